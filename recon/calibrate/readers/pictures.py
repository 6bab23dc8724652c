"""Cameras from lists of pictures: which of the pictures a calibration names belong to one fixed camera."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np

from recon.calibrate.readers.draft import Draft, bad
from recon.core.errors import InputError
from recon.geometry.pose import angle_between

SAME_PLACE = 0.01  # of the largest distance between two cameras: how far fixed cameras may stray between pictures
SAME_TURN = 0.02  # radians


def one_per_camera(drafts: Sequence[Draft], where: str) -> list[Draft]:
    """One draft per camera from one per picture, whose names are the pictures' paths.

    When no two pictures share a stem, every picture is a camera called by its stem, its name or its folder, whichever a
    recording has; otherwise a folder is a camera. Raises CalibrationError for a camera that moves, InputError for a
    path that leaves the folder.
    """
    paths = [_checked(draft.name, where) for draft in drafts]
    stems, folders = [path.stem for path in paths], [path.parent.name for path in paths]
    if len(set(stems)) == len(stems):
        return [
            replace(draft, name=stem, aliases=(path.name, *([folder] if folders.count(folder) == 1 and folder else [])))
            for draft, path, stem, folder in zip(drafts, paths, stems, folders, strict=True)
        ]
    groups: dict[PurePosixPath, list[Draft]] = defaultdict(list)
    for path, draft in zip(paths, drafts, strict=True):
        groups[path.parent].append(draft)
    reach = _reach(drafts)
    cameras = []
    for folder, members in groups.items():
        first = members[0]
        for other in members[1:]:
            if not _stays(first, other, reach):
                raise bad(
                    f"{where}: camera {folder}", f"it moves between {first.name} and {other.name}",
                    "Only fixed cameras can be reconstructed; leave it out.",
                )  # fmt: skip
        cameras.append(replace(first, name=folder.name or str(folder)))
    return cameras


def _checked(name: str, where: str) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.name or path.is_absolute() or ".." in path.parts or "\0" in name or ":" in path.parts[0]:
        raise InputError(
            f"{where}: the file name {name[:80]!r} may lead outside the capture folder",
            fix="Names must be relative, such as images/cam00.png.",
        )
    return path


def _reach(drafts: Sequence[Draft]) -> float:
    centres = np.stack([_centre(draft) for draft in drafts])
    return float(np.linalg.norm(centres.max(0) - centres.min(0)))


def _centre(draft: Draft) -> np.ndarray:
    return -draft.cam_from_world[:3, :3].T @ draft.cam_from_world[:3, 3]


def _stays(a: Draft, b: Draft, reach: float) -> bool:
    turn = angle_between(a.cam_from_world[:3, :3], b.cam_from_world[:3, :3])
    near = np.linalg.norm(_centre(a) - _centre(b)) <= SAME_PLACE * reach
    return bool(near and turn <= SAME_TURN and np.allclose(a.K, b.K, rtol=0.01))
