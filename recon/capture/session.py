"""A capture: the recordings of all cameras on one clock.

A folder holds one video per camera (`cam00.mp4` is camera `cam00`) or one image folder per camera
(`0/000000.jpg` is camera `0`); both may be mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recon.capture.images import TIMES_FILE, ImageFolder, is_picture, natural_key, read_times
from recon.capture.match import MIN_CAMERAS, match_cameras
from recon.capture.stream import CameraStream, FrameCache, Source
from recon.capture.video import VIDEO_SUFFIXES, VideoFile
from recon.core.errors import InputError
from recon.core.events import Message
from recon.core.files import inside
from recon.geometry.rig import Rig

MASK_FOLDERS = ("seg", "masks")
CACHE_BYTES = 512 * 2**20


@dataclass
class Capture:
    """All cameras of a recording.

    root: the folder with the recordings. cameras: name -> stream, in the rig's order (else natural order).
    messages: what was noticed on opening, to be shown once.
    """

    root: Path
    cameras: dict[str, CameraStream]
    messages: list[Message] = field(default_factory=list)

    @property
    def time_range(self) -> tuple[float, float]:
        """First and last frame time of any camera, seconds on the common clock."""
        return (
            min(float(s.times[0]) for s in self.cameras.values()),
            max(float(s.times[-1]) for s in self.cameras.values()),
        )

    @property
    def frame_count(self) -> int:
        """Frames of all cameras together."""
        return sum(len(s) for s in self.cameras.values())

    def close(self) -> None:
        """Release all files."""
        for stream in self.cameras.values():
            stream.close()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_capture(
    videos: Path,
    rig: Rig | None,
    cams: Sequence[str] | None = None,
    *,
    fps: float = 30.0,
    offsets: Mapping[str, float] | None = None,
    masks: Path | None = None,
    role: str | None = "train",
    min_cameras: int = MIN_CAMERAS,
    cache_bytes: int = CACHE_BYTES,
) -> Capture:
    """Open the recordings of a folder; nothing is decoded yet but each camera's first frame.

    videos: folder with one video or image folder per camera. rig: calibration, whose cameras of `role` must all have
    a recording unless `cams` chooses among them; None opens everything. fps: frame rate of image folders without
    timestamps.csv. offsets: camera -> seconds added to its container times (common = pts + offset).
    masks: folder with the layout of `videos`; by default a `seg` or `masks` folder beside or inside it.
    cache_bytes: bound of the decoded frames kept in memory.

    Raises InputError for a missing or unreadable recording, too few cameras, no overlap in time, and a picture size
    that differs from the calibration.
    """
    if not fps > 0 or not np.isfinite(fps):
        raise InputError(f"--fps {fps}: not a frame rate", fix="Give frames per second, such as --fps 30.")
    found = find_recordings(videos)
    messages: list[Message] = []
    if rig is not None:
        match = match_cameras(found, rig, cams, role=role, min_cameras=min_cameras)
        names, messages = match.names, list(match.messages)
    else:
        names = _chosen(list(found), cams, videos, min_cameras)
    sources = {name: _open_source(found[name]) for name in names}
    messages += _set_image_times(videos, sources, fps)
    messages += _shortened(sources)
    mask_root = _mask_root(videos, masks)
    cache = FrameCache(cache_bytes)
    shift = _checked_offsets(offsets or {}, names)
    streams = {
        name: CameraStream(name, source, shift.get(name, 0.0), cache, _mask_files(mask_root, name, source))
        for name, source in sources.items()
    }
    if rig is not None:
        _check_sizes(streams, rig)
    _check_overlap(streams)
    return Capture(videos, streams, messages)


def find_recordings(videos: Path) -> dict[str, Path]:
    """Camera name -> video file or image folder, in natural name order.

    Raises InputError when there is none, when two recordings claim one camera, or when a link leaves the folder.
    """
    if not videos.is_dir():
        raise InputError(f"{videos}: no such folder", fix="--videos takes a folder with one video per camera.")
    found: dict[str, Path] = {}
    for path in sorted(videos.iterdir(), key=natural_key):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not any(is_picture(p) for p in path.iterdir()):
                continue
            name = path.name
        elif path.suffix.lower() in VIDEO_SUFFIXES:
            name = path.stem
        else:
            continue
        inside(videos, path.name)
        if name in found:
            raise InputError(f"camera {name} has two recordings: {found[name].name} and {path.name}", fix="Remove one.")
        found[name] = path
    if not found:
        folders = [p for p in sorted(videos.iterdir()) if p.is_dir()]
        nested = [p for p in folders if any(_has_recording(q) for q in p.iterdir())]
        hint = f" Did you mean {nested[0]}?" if nested else ""
        raise InputError(
            f"{videos}: no recordings",
            why="it holds neither videos nor folders of pictures",
            fix=f"Put one video per camera (cam00.mp4, ...) or one picture folder per camera there.{hint}",
        )
    return found


class PictureSizes(Mapping[str, tuple[int, int]]):
    """Camera name -> (width, height) [pixels] of the recordings in a folder; each is opened when its size is asked for.

    Raises InputError as `find_recordings` does, and for a recording that cannot be read.
    """

    def __init__(self, videos: Path) -> None:
        self._found = find_recordings(videos)
        self._known: dict[str, tuple[int, int]] = {}

    def __getitem__(self, name: str) -> tuple[int, int]:
        if name not in self._known:
            source = _open_source(self._found[name])
            try:
                self._known[name] = (source.width, source.height)
            finally:
                source.close()
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _has_recording(path: Path) -> bool:
    return path.suffix.lower() in VIDEO_SUFFIXES or (path.is_dir() and any(is_picture(p) for p in path.iterdir()))


def _chosen(names: list[str], cams: Sequence[str] | None, videos: Path, min_cameras: int) -> list[str]:
    missing = [name for name in cams or () if name not in names]
    if missing:
        raise InputError(f"--cams: no recording of camera {missing[0]!r} in {videos}", why=f"found: {', '.join(names)}")
    chosen = names if cams is None else [name for name in names if name in set(cams)]
    if len(chosen) < min_cameras:
        raise InputError(
            f"{videos}: {len(chosen)} recordings, at least {min_cameras} cameras are needed",
            why=f"found: {', '.join(chosen)}",
        )
    return chosen


def _open_source(path: Path) -> Source:
    return ImageFolder(path) if path.is_dir() else VideoFile(path)


def _set_image_times(videos: Path, sources: Mapping[str, Source], fps: float) -> list[Message]:
    """Give image folders their clock: timestamps.csv of the camera, of the capture, or frame number / fps."""
    folders = {name: s for name, s in sources.items() if isinstance(s, ImageFolder)}
    by_rate = []
    for name, folder in folders.items():
        times = None
        for table in (folder.path / TIMES_FILE, videos / TIMES_FILE):
            if times is None and table.is_file():
                times = read_times(table, name, folder.files)
        if times is None:
            by_rate.append(name)
        else:
            folder.times = times
    numbered = all(folders[name].numbers is not None for name in by_rate)
    first = min((int(folders[name].numbers[0]) for name in by_rate), default=0) if numbered else 0  # type: ignore[index]
    for name in by_rate:
        folder = folders[name]
        numbers = folder.numbers - first if numbered and folder.numbers is not None else np.arange(len(folder))
        folder.times = numbers.astype(np.float64) / fps
    return [Message("info", f"pictures without {TIMES_FILE}: {fps:g} frames/s assumed (--fps)")] if by_rate else []


def _shortened(sources: Mapping[str, Source]) -> list[Message]:
    return [
        Message("warning", f"{s.path}: {len(s)} of {s.claimed} promised frames can be used; the file is cut short")
        for s in sources.values()
        if len(s) < s.claimed
    ]


def _checked_offsets(offsets: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    for name, value in offsets.items():
        if not np.isfinite(value):
            raise InputError(f"time offset of camera {name} is {value}", fix="Give seconds.")
    return {name: float(offsets[name]) for name in names if name in offsets}


def _mask_root(videos: Path, masks: Path | None) -> Path | None:
    if masks is not None:
        if not masks.is_dir():
            raise InputError(f"--masks {masks}: no such folder")
        return masks
    places = [parent / name for parent in (videos.parent, videos) for name in MASK_FOLDERS]
    return next((place for place in places if place.is_dir() and place.resolve() != videos.resolve()), None)


def _mask_files(root: Path | None, name: str, source: Source) -> dict[int, Path]:
    """Frame index -> mask picture. Masks pair with pictures by file stem, with video frames by number in the name."""
    if root is None or not (root / name).is_dir():
        return {}
    folder = inside(root, name)
    files = {p.stem: inside(root, f"{name}/{p.name}") for p in folder.iterdir() if is_picture(p)}
    if isinstance(source, ImageFolder):
        return {k: files[file.stem] for k, file in enumerate(source.files) if file.stem in files}
    return {int(stem): path for stem, path in files.items() if stem.isdigit() and int(stem) < len(source)}


def _check_sizes(streams: Mapping[str, CameraStream], rig: Rig) -> None:
    for name, stream in streams.items():
        camera = rig.cameras[name]
        if (stream.width, stream.height) != (camera.width, camera.height):
            raise InputError(
                f"{stream.path}: camera {name} has {stream.width}x{stream.height} pictures, "
                f"its calibration is for {camera.width}x{camera.height}",
                fix="Record with the calibrated size (and rotation), or calibrate again.",
            )


def _check_overlap(streams: Mapping[str, CameraStream]) -> None:
    last_start = max(streams.values(), key=lambda s: float(s.times[0]))
    first_end = min(streams.values(), key=lambda s: float(s.times[-1]))
    if last_start.times[0] > first_end.times[-1]:
        raise InputError(
            f"cameras {first_end.name} and {last_start.name} do not overlap in time",
            why=f"{first_end.name} ends at {first_end.times[-1]:.3f} s, "
            f"{last_start.name} starts at {last_start.times[0]:.3f} s",
            fix="Give the clock offsets, or leave one out with --cams.",
        )
