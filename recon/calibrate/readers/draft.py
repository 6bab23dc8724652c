"""What a foreign calibration says of each camera, in our conventions, before a recording fills what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recon.core.errors import CalibrationError, ReconError
from recon.geometry.camera import NO_DISTORTION, Camera
from recon.geometry.convert import pixels_from_integer_centres
from recon.geometry.lens import BROWN, FISHEYE, Distortion
from recon.geometry.pose import is_rigid
from recon.geometry.rig import Rig

MAX_CAMERAS = 4096
Size = tuple[int, int]  # width, height [pixels]
RECALIBRATE = "Export it again, or calibrate again."


@dataclass(frozen=True)
class Document:
    """A file whose format is known. data: what it holds, parsed as far as telling the format needed."""

    path: Path
    kind: str
    data: Any


@dataclass(frozen=True)
class Draft:
    """One camera: K [3, 3] in our pixel grid, cam_from_world [4, 4] (OpenCV axes), size when the file says it.

    aliases: other names it may be recorded under, best first; picture files give several.
    """

    name: str
    K: np.ndarray
    cam_from_world: np.ndarray
    size: Size | None = None
    distortion: Distortion = NO_DISTORTION
    lens: str = BROWN
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """All cameras of one calibration. units: 'metres' where the format says so, else 'unknown'.

    direction_open: the format does not say whether its poses lead from the world to the camera or back; they were
    taken to lead to the camera.
    """

    where: str
    cameras: Sequence[Draft]
    units: str = "unknown"
    direction_open: bool = False

    def rig(self, pictures: Mapping[str, Size] | None) -> tuple[Rig, list[str]]:
        """(the rig, names of cameras left out of it because neither the file nor a recording says their size).

        pictures: name -> size of the recordings. Raises CalibrationError when no camera has a size.
        """
        cameras: dict[str, Camera] = {}
        unsized = []
        for draft in self.cameras:
            recorded = pictures[draft.name] if pictures and draft.name in pictures else None
            size = recorded if draft.size is None or _padded(recorded) == draft.size else draft.size
            if size is None:
                unsized.append(draft.name)
                continue
            if draft.name in cameras:
                raise CalibrationError(f"{self.where}: it describes camera {draft.name} twice")
            cameras[draft.name] = self._camera(draft, size)
        if not cameras:
            raise CalibrationError(
                f"{self.where}: it does not say the picture size of camera {', '.join(unsized[:8])}",
                why=f"recordings to take it from: {', '.join(pictures or ()) or 'none'}",
                fix="Name the recordings as the cameras are named there.",
            )
        return Rig(cameras=cameras, units=self.units), unsized

    def _camera(self, draft: Draft, size: Size) -> Camera:
        k = draft.K
        label = f"{self.where}: camera {draft.name}"
        if k.shape != (3, 3) or not np.isfinite(k).all() or not (k[0, 0] > 0 and k[1, 1] > 0):
            raise CalibrationError(f"{label}: K needs finite numbers and positive focal lengths", fix=RECALIBRATE)
        if abs(k[0, 1]) > 1e-6 * k[0, 0] or np.abs([k[1, 0], *(k[2] - [0, 0, 1])]).max() > 1e-9:
            raise CalibrationError(
                f"{label}: K has skew, or is no camera matrix", why="pixels with skew are not supported"
            )
        try:
            return Camera(
                name=draft.name,
                width=size[0],
                height=size[1],
                fx=float(k[0, 0]),
                fy=float(k[1, 1]),
                cx=float(k[0, 2]),
                cy=float(k[1, 2]),
                distortion=draft.distortion,
                cam_from_world=draft.cam_from_world,
                lens=draft.lens,
            )
        except CalibrationError as error:
            raise CalibrationError(f"{self.where}: {error.what}", why=error.why, fix=error.fix) from error


def _padded(size: Size | None) -> Size | None:
    """A recording's size with the rows and columns to whole blocks of 16, which encoders add on the far sides.

    Sensors of 1088 lines give videos of 1080, with the first pixel in the same place.
    """
    return None if size is None else (size[0] + -size[0] % 16, size[1] + -size[1] % 16)


def bad(where: str, why: str, fix: str = RECALIBRATE) -> CalibrationError:
    """The error for a calibration that cannot be used; `where` names file and camera."""
    return CalibrationError(f"{where} cannot be used", why=why, fix=fix)


def numbers(value: Any, where: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Finite float64 array of nested lists of numbers (or of an array); of that shape when one is given."""
    try:
        array = np.array(value, dtype=object)
        kinds = {type(cell) for cell in array.ravel()}
        if not kinds <= {int, float}:
            raise TypeError(f"it holds {', '.join(sorted(kind.__name__ for kind in kinds - {int, float}))}")
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise bad(where, f"a regular table of numbers is needed: {error}") from error
    if shape is not None and array.shape != shape:
        raise bad(where, f"its shape is {list(array.shape)}, {list(shape)} is needed")
    if not np.isfinite(array).all():
        raise bad(where, "it holds NaN or infinity")
    return array


def floats(words: Sequence[str | bytes], where: str) -> np.ndarray:
    """Finite float64 [N] of the words of a text file."""
    try:
        array = np.array([float(word) for word in words], dtype=np.float64)
    except ValueError as error:
        raise bad(where, str(error)) from error
    if not np.isfinite(array).all():
        raise bad(where, "it holds NaN or infinity")
    return array


def whole(value: Any, where: str, least: int = 1, most: int = 32768) -> int:
    """`value` as a whole number from `least` to `most`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= most
        or value != int(value)
    ):
        raise bad(where, f"it is {str(value)[:40]}, a whole number from {least} to {most} is needed")
    return int(value)


def matrix_of(fx: float, fy: float, cx: float, cy: float) -> np.ndarray:
    """K [3, 3]."""
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def from_integer_centres(k: np.ndarray) -> np.ndarray:
    """K [3, 3] in our pixel grid of one whose first pixel centre is (0, 0), as OpenCV's."""
    shifted = k.copy()
    shifted[:2, 2] = pixels_from_integer_centres(k[:2, 2])
    return shifted


def pose_of(rotation: np.ndarray, translation: np.ndarray, where: str) -> np.ndarray:
    """[4, 4] of R [3, 3] (or a rotation vector of 3) and t [3], proven rigid."""
    turn = np.asarray(rotation, dtype=np.float64)
    if turn.size == 3:
        turn = rotation_from_vector(turn.ravel())
    if turn.shape != (3, 3) or np.size(translation) != 3:
        raise bad(where, f"its rotation is {list(turn.shape)} and its translation {list(np.shape(translation))}")
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = turn, np.ravel(translation)
    return rigid(pose, where)


def rigid(pose: np.ndarray, where: str) -> np.ndarray:
    """`pose` when it is [4, 4] and rigid; a [3, 4] one gets its last row. Says whether it is mirrored otherwise."""
    if pose.shape == (3, 4):
        pose = np.vstack([pose, [0.0, 0.0, 0.0, 1.0]])
    if is_rigid(pose):
        return pose
    if pose.shape == (4, 4) and np.isfinite(pose).all() and is_rigid(pose @ np.diag([-1.0, 1.0, 1.0, 1.0])):
        raise bad(where, "its pose is mirrored: the axes are left-handed", "Export it with right-handed axes.")
    raise bad(where, "its pose is not rigid: a rotation and a translation are needed")


def rotation_from_vector(vector: np.ndarray) -> np.ndarray:
    """R [3, 3] of the rotation vector [3] (axis times angle [rad]): I + sin a [n] + (1 - cos a) [n]^2."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector / max(angle, 1e-300)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


def opencv_distortion(values: np.ndarray, where: str, fisheye: bool = False) -> tuple[Distortion, str]:
    """(coefficients, lens) of OpenCV's list: k1 k2 p1 p2 [k3 [k4 k5 k6 ...]], or k1 k2 k3 k4 of its fisheye model.

    Coefficients we have no model for are accepted when they are zero.
    """
    flat = [float(v) for v in values.ravel()]
    keep = 4 if fisheye else 5
    if len(flat) not in (0, 1, 2, 4, 5, 8, 12, 14) or (fisheye and len(flat) not in (0, 4)):
        raise bad(where, f"it has {len(flat)} distortion coefficients")
    if any(flat[keep:]):
        raise bad(where, "its lens model has more terms than k1 k2 p1 p2 k3", "Calibrate with OpenCV's default model.")
    padded = (flat + [0.0] * keep)[:keep]
    return tuple(padded), FISHEYE if fisheye else BROWN


def named(reading: Reading, pictures: Mapping[str, Size] | None) -> tuple[Reading, dict[str, str]]:
    """(the reading with its cameras named as their recordings are, {file's name: recording's} where they differ).

    A camera takes the recording of its own name or an alias, else, when it is the only one for both sides, the one
    whose name holds the same last number: camera 3 of a file is cam_3.mp4.
    """
    found = {draft.name: _recording(draft, pictures or {}) for draft in reading.cameras}
    left = [draft.name for draft in reading.cameras if found[draft.name] is None]
    free = [name for name in pictures or {} if name not in set(found.values())]
    for name in left:
        same = [other for other in free if _last_number(other) == _last_number(name) is not None]
        rivals = [other for other in left if _last_number(other) == _last_number(name)]
        if len(same) == 1 and len(rivals) == 1:
            found[name] = same[0]
    cameras = [replace(draft, name=found[draft.name] or draft.name) for draft in reading.cameras]
    changed = {old: new for old, new in found.items() if new is not None and new != old}
    return replace(reading, cameras=cameras), changed


def _recording(draft: Draft, pictures: Mapping[str, Size]) -> str | None:
    return next((name for name in (draft.name, *draft.aliases) if name in pictures), None)


def _last_number(name: str) -> int | None:
    digits = "".join(c if c in "0123456789" else " " for c in name).split()
    return int(digits[-1]) if digits and len(digits[-1]) < 19 else None


def explain(path: Path, error: Exception) -> ReconError:
    """An error about the file `path` for something a reader did not foresee in it."""
    if isinstance(error, ReconError):
        return error
    return CalibrationError(f"{path}: the calibration cannot be read", why=str(error)[:200], fix=RECALIBRATE)
