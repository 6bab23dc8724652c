"""Reading calibrations, ours and other people's, into a rig; the formats are in recon/calibrate/readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from recon.calibrate.readers import caliscope, colmap, dynamic3d, lines, nerfstudio, opencv, qualisys
from recon.calibrate.readers import sniff as formats
from recon.calibrate.readers.draft import Document, Reading, Size, explain, named
from recon.calibrate.readers.sniff import ACCEPTED, sniff, sniff_folder
from recon.core.errors import CalibrationError
from recon.core.files import inside
from recon.geometry.camera import Camera
from recon.geometry.rig import Rig, rig_from_json

READERS: dict[str, Callable[[Sequence[Document]], Reading]] = {
    formats.NERFSTUDIO: nerfstudio.read,
    formats.OPENCV: opencv.read,
    formats.CALISCOPE: caliscope.read,
    formats.QUALISYS: qualisys.read,
    formats.COLMAP: colmap.read,
    formats.MIDDLEBURY: lines.read_list,
    formats.TEXT: lines.read_pairs,
}
MODEL_FOLDERS = ("sparse/0", "sparse", "0")  # where COLMAP puts a model in its workspace
BESIDE = (".", "..", "calibration", "calib", "sparse/0", "../calibration", "../calib", "../sparse/0")


@dataclass(frozen=True)
class Calibration:
    """A rig and what reading it left to tell.

    renamed: {the file's camera: the recording it was taken for} where names differ. direction_open: the files do not
    say whether poses lead from the world to the camera (as was assumed) or back. unsized: cameras left out because
    neither a file nor a recording says their picture size.
    """

    rig: Rig
    renamed: dict[str, str] = field(default_factory=dict)
    direction_open: bool = False
    unsized: Sequence[str] = ()


def load_rig(paths: Sequence[Path], pictures: Mapping[str, Size] | None = None) -> Rig:
    """Read one or several calibration files, or folders of them, into one rig.

    pictures: camera name -> (width, height) of its recording: what a file that does not say picture sizes needs, and
    what its cameras are named after where names differ (camera 3 is cam_3.mp4). Formats are told apart by what the
    files contain. Paths inside a file are relative to it and may not leave its folder.

    Raises CalibrationError for no file, an unknown format, a camera that moves, a non-finite or non-rigid pose, or a
    camera that two files describe differently; InputError for a file that cannot be read.
    """
    return load_calibration(paths, pictures).rig


def load_calibration(paths: Sequence[Path], pictures: Mapping[str, Size] | None = None) -> Calibration:
    """As `load_rig`, with what a person should know of the reading."""
    if not paths:
        raise CalibrationError("no calibration given", fix=f"Accepted with --rig: {ACCEPTED}.")
    groups: list[tuple[Path, list[Document]]] = []
    for path in map(Path, paths):
        for document in _documents(path):
            last = groups[-1][1] if groups else []
            if last and document.kind == last[0].kind and document.kind in READERS:
                last.append(document)
            else:
                groups.append((path, [document]))
    merged: Calibration | None = None
    for path, documents in groups:
        one = _load(documents, pictures)
        merged = one if merged is None else _joined(merged, one, path)
    assert merged is not None
    return merged


def find_calibration(videos: Path) -> list[Path]:
    """Calibration files in the folder of the recordings or its parent, for `load_rig`.

    A rig.json wins over meta files, and these over other formats; the folder wins over its parent, and both over
    folders beside them called calibration, calib or sparse/0. Raises CalibrationError listing what is accepted.
    """
    folders = [videos, videos.resolve().parent]
    for folder in folders:
        if (folder / "rig.json").is_file():
            return [folder / "rig.json"]
        metas = sorted(folder.glob("*_meta.json"), key=lambda p: (p.name == dynamic3d.TEST_META, p.name))
        if metas:
            return metas
    for folder in ((videos / place).resolve() for place in BESIDE):
        found = sniff_folder(folder) if folder.is_dir() else []
        if found:
            return [document.path for document in found]
    raise CalibrationError(
        f"no calibration found for {videos}",
        why=f"looked for rig.json, *_meta.json and other formats in {folders[0]} and {folders[1]}",
        fix=f"Give one with --rig. Accepted: {ACCEPTED}.",
    )


def _documents(path: Path) -> list[Document]:
    """The documents of a file, or of a folder or COLMAP's model in it."""
    if not path.is_dir():
        return [sniff(path)]
    for folder in (path, *(path / place for place in MODEL_FOLDERS)):
        found = sniff_folder(folder) if folder.is_dir() else []
        if found:
            return found
    raise CalibrationError(f"{path}: no calibration in this folder", fix=f"Accepted: {ACCEPTED}.")


def _load(documents: list[Document], pictures: Mapping[str, Size] | None) -> Calibration:
    first = documents[0]
    try:
        if first.kind == formats.OURS:
            rig = rig_from_json(first.data, str(first.path))
            _check_robot_paths(rig, first.path)
            return Calibration(rig)
        if first.kind == formats.META:
            return Calibration(dynamic3d.read(first))
        reading, renamed = named(READERS[first.kind](documents), pictures)
        rig, unsized = reading.rig(pictures)
        return Calibration(rig, renamed, reading.direction_open, unsized)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, np.linalg.LinAlgError) as error:
        raise explain(first.path, error) from error


def _check_robot_paths(rig: Rig, path: Path) -> None:
    if rig.robot is not None:
        for name in (rig.robot.file, rig.robot.joint_log):
            if name:
                inside(path.resolve().parent, str(name))


def _joined(a: Calibration, b: Calibration, path: Path) -> Calibration:
    rig = _merge(a.rig, b.rig, path)
    unsized = [name for name in (*a.unsized, *b.unsized) if name not in rig.cameras]
    return Calibration(rig, {**a.renamed, **b.renamed}, a.direction_open and b.direction_open, unsized)


def _merge(a: Rig, b: Rig, path: Path) -> Rig:
    for name in a.cameras.keys() & b.cameras.keys():
        if not _same_camera(a.cameras[name], b.cameras[name]):
            raise CalibrationError(f"{path}: camera {name} is also in another calibration, with other values")
    roles = {**a.roles, **b.roles}
    roles.update({n: "test" for rig in (a, b) for n, role in rig.roles.items() if role == "test"})
    return replace(
        a,
        cameras={**a.cameras, **b.cameras},
        roles=roles,
        robot=a.robot if a.robot is not None else b.robot,
        fps=a.fps if a.fps is not None else b.fps,
        world_up=a.world_up if a.world_up == b.world_up else "unknown",
        units=a.units if a.units == b.units else "unknown",
    )


def _same_camera(a: Camera, b: Camera) -> bool:
    return (
        (a.width, a.height, a.lens) == (b.width, b.height, b.lens)
        and np.allclose([a.fx, a.fy, a.cx, a.cy, *a.distortion], [b.fx, b.fy, b.cx, b.cy, *b.distortion], rtol=1e-6)
        and np.allclose(a.cam_from_world, b.cam_from_world, rtol=0, atol=1e-6)
    )
