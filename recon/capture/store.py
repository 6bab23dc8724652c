"""Frames of all cameras in ideal pinhole grids, as raw pixels on disk, for reading random crops.

A fit reads small windows of random frames. Decoding and undistorting for each would cost far more than the fit itself,
so both are done once, streaming, into one flat file per camera (uint8 [T, h, w, 3]); a window is then one `pread` of
its rows. The pages belong to the system's file cache, not to this process, so memory does not grow with the recording.
The folder can be reused: a header written last says which recordings and cameras it was made from.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from recon.capture.session import Capture
from recon.capture.stream import CameraStream
from recon.core.errors import InputError, StorageError
from recon.core.events import Event, Message, Progress, StageFinished, StageStarted
from recon.core.files import read_json, write_json, writing
from recon.geometry.camera import Camera, undistort_map

FORMAT, VERSION = "recon-frames", 1
STAGE = "frames"
Window = tuple[int, int, int, int]  # y0, y1, x0, x1 in pixels of the ideal grid


@dataclass(frozen=True)
class StoredCamera:
    """One camera's frames on disk.

    camera: the ideal pinhole camera of the grid. times: [T] s on the common clock, of the frames that decoded.
    source_indices: [T] their frame numbers in the recording. valid: bool [h, w], where the real picture reaches.
    """

    camera: Camera
    times: np.ndarray
    source_indices: np.ndarray
    valid: np.ndarray
    has_masks: bool


class FrameStore:
    """Random windows of (camera, frame), uint8, from a folder made by `build_store`.

    cameras: name -> StoredCamera, in the capture's order. Safe to read from several threads.
    """

    def __init__(self, folder: Path, cameras: Mapping[str, StoredCamera]):
        self.folder = folder
        self.cameras = dict(cameras)
        self._files = {name: os.open(folder / f"{name}.rgb", os.O_RDONLY) for name in cameras}
        self._masks = {n: os.open(folder / f"{n}.mask", os.O_RDONLY) for n, c in cameras.items() if c.has_masks}

    def num_frames(self, camera: str) -> int:
        """Frames of one camera."""
        return len(self.cameras[camera].times)

    def read(self, camera: str, index: int, window: Window | None = None) -> np.ndarray:
        """Frame `index` of a camera, or its window [y0:y1, x0:x1], as uint8 [h, w, 3] RGB, yours to change."""
        return self._read(self._files[camera], camera, index, window, 3)

    def read_mask(self, camera: str, index: int, window: Window | None = None) -> np.ndarray | None:
        """Mask of a frame or window as uint8 [h, w] (0 = background); None when the camera has no masks."""
        if camera not in self._masks:
            return None
        return self._read(self._masks[camera], camera, index, window, 1)[..., 0]

    def close(self) -> None:
        """Close the files; the folder stays."""
        for descriptor in (*self._files.values(), *self._masks.values()):
            os.close(descriptor)
        self._files, self._masks = {}, {}

    def __enter__(self) -> FrameStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, descriptor: int, camera: str, index: int, window: Window | None, channels: int) -> np.ndarray:
        stored = self.cameras[camera]
        width, height = stored.camera.width, stored.camera.height
        y0, y1, x0, x1 = window or (0, height, 0, width)
        if not (0 <= index < len(stored.times) and 0 <= y0 < y1 <= height and 0 <= x0 < x1 <= width):
            raise IndexError(f"camera {camera}: frame {index}, window {(y0, y1, x0, x1)} of {height}x{width}")
        rows = np.empty((y1 - y0, width, channels), dtype=np.uint8)
        start = (index * height + y0) * width * channels
        view = rows.data.cast("B")
        done = 0
        while done < len(view):
            got = os.preadv(descriptor, [view[done:]], start + done)
            if got == 0:
                raise StorageError(f"{self.folder}: frames of camera {camera} are cut short", fix="Delete the folder.")
            done += got
        return rows if x1 - x0 == width else np.ascontiguousarray(rows[:, x0:x1])


class Undistorter:
    """Resamples one camera's pictures to its ideal pinhole grid; the identity costs nothing.

    camera: the ideal camera. valid: bool [h, w], where the ideal pixel lies in the real picture.
    """

    def __init__(self, camera: Camera):
        self.camera = camera.pinhole()
        self._maps: tuple[np.ndarray, np.ndarray] | None = None
        self.valid: np.ndarray = np.ones((self.camera.height, self.camera.width), dtype=bool)
        if camera.distorted:
            position = undistort_map(camera, self.camera)  # [h, w, 2], -1 outside
            self.valid = position[..., 0] >= 0
            # cv2 puts the first pixel centre at (0, 0). Far outside stays outside; the border is replicated.
            self._maps = cv2.convertMaps(position - np.float32(0.5), None, cv2.CV_16SC2)

    def picture(self, image: np.ndarray) -> np.ndarray:
        """uint8 [H, W, 3] as recorded -> uint8 [h, w, 3]; invalid pixels are black. Cubic, which keeps detail."""
        if self._maps is None:
            return image
        out = cv2.remap(image, *self._maps, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
        out[~self.valid] = 0
        return out

    def mask(self, mask: np.ndarray) -> np.ndarray:
        """uint8 [H, W] -> uint8 [h, w], nearest neighbour, so that labels survive."""
        if self._maps is None:
            return mask
        return cv2.remap(mask, *self._maps, cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT, borderValue=0)


def open_store(folder: Path, capture: Capture, cameras: Mapping[str, Camera], *, stride: int = 1) -> FrameStore | None:
    """The store in `folder` if it was made from exactly these recordings and cameras, else None."""
    header = folder / "frames.json"
    if not header.is_file():
        return None
    data = read_json(header)
    if not isinstance(data, dict) or data.get("fingerprint") != fingerprint(capture, cameras, stride):
        return None
    stored = {}
    for name, entry in data["cameras"].items():
        eye = Undistorter(cameras[name])
        times = np.array(entry["times"], dtype=np.float64)
        pixels = len(times) * eye.camera.width * eye.camera.height
        if not _has_size(folder / f"{name}.rgb", 3 * pixels):
            return None
        if entry["masks"] and not _has_size(folder / f"{name}.mask", pixels):
            return None
        indices = np.array(entry["indices"], dtype=np.int64)
        stored[name] = StoredCamera(eye.camera, times, indices, eye.valid, bool(entry["masks"]))
    return FrameStore(folder, stored)


def build_store(folder: Path, capture: Capture, cameras: Mapping[str, Camera], *, stride: int = 1) -> Iterator[Event]:
    """Decode, undistort and write every `stride`-th frame of all cameras; yields progress. Then `open_store` opens it.

    cameras: name -> calibrated camera of every stream. Writes about 3 w h bytes per frame; refuses beforehand with
    StorageError when the disk has less than that. Raises InputError when more than a tenth of a video is damaged.
    """
    if stride < 1:
        raise InputError(f"frame stride {stride}", fix="Use 1 for all frames, 2 for every second one.")
    total = sum(-(-len(s) // stride) for s in capture.cameras.values())
    yield StageStarted(STAGE, total)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "frames.json").unlink(missing_ok=True)
    _check_room(folder, capture, cameras, stride)
    started = time.monotonic()
    entries: dict[str, object] = {}
    done = 0
    for name, stream in capture.cameras.items():
        eye = Undistorter(cameras[name])
        kept: list[int] = []
        with writing(folder), (folder / f"{name}.rgb").open("wb") as file:
            masks = (folder / f"{name}.mask").open("wb") if stream.has_masks else None
            try:
                for index, image in stream.iterate():
                    if index % stride:
                        continue
                    file.write(np.ascontiguousarray(eye.picture(image)).data)
                    if masks is not None:
                        masks.write(np.ascontiguousarray(eye.mask(_mask_or_empty(stream, index))).data)
                    kept.append(index)
                    done += 1
                    if done % 16 == 0:
                        yield Progress(STAGE, done, total)
            finally:
                if masks is not None:
                    masks.close()
        lost = -(-len(stream) // stride) - len(kept)
        if lost:
            yield Message("warning", f"{stream.path}: camera {name}: {lost} damaged frames left out")
        entries[name] = {"indices": kept, "times": stream.times[kept].tolist(), "masks": stream.has_masks}
    header = {"format": FORMAT, "version": VERSION, "fingerprint": fingerprint(capture, cameras, stride)}
    write_json(folder / "frames.json", {**header, "cameras": entries})
    yield StageFinished(STAGE, time.monotonic() - started, {"frames": float(done)})


def fingerprint(capture: Capture, cameras: Mapping[str, Camera], stride: int) -> str:
    """Hash of what a store depends on: sizes and change times of the recordings, frame times, masks, cameras."""
    parts: list[object] = [FORMAT, VERSION, stride]
    for name, stream in capture.cameras.items():
        camera = cameras[name]
        files = sorted(stream.path.iterdir()) if stream.path.is_dir() else [stream.path]
        stats = [(file.name, (s := file.stat()).st_size, s.st_mtime_ns) for file in files]
        size = (camera.width, camera.height)
        pose = camera.cam_from_world.tolist()
        lens = [camera.fx, camera.fy, camera.cx, camera.cy, *camera.distortion, camera.lens]
        parts.append([name, stats, stream.times.tolist(), stream.mask_stats(), size, lens, pose])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _mask_or_empty(stream: CameraStream, index: int) -> np.ndarray:
    mask = stream.read_mask(index)
    return np.zeros((stream.height, stream.width), dtype=np.uint8) if mask is None else mask


def _check_room(folder: Path, capture: Capture, cameras: Mapping[str, Camera], stride: int) -> None:
    need = 0
    for name, stream in capture.cameras.items():
        ideal = cameras[name].pinhole()
        need += -(-len(stream) // stride) * ideal.width * ideal.height * (4 if stream.has_masks else 3)
    have = sum(f.stat().st_size for f in folder.glob("*.*") if f.suffix in (".rgb", ".mask"))
    free = shutil.disk_usage(folder).free + have
    if need > free:
        raise StorageError(
            f"{folder}: the decoded frames need {need / 2**30:.1f} GiB",
            why=f"{free / 2**30:.1f} GiB are free",
            fix="Free some space, choose another output folder, or take fewer frames.",
        )


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
