"""Which recordings belong to which calibrated cameras."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recon.core.errors import InputError, did_you_mean
from recon.core.events import Message
from recon.geometry.rig import Rig

MIN_CAMERAS = 3


@dataclass(frozen=True)
class Match:
    """The cameras to open, in the rig's order, and what a person should know about the others."""

    names: list[str]
    messages: list[Message]


def match_cameras(
    capture_names: Iterable[str],
    rig: Rig,
    cams: Sequence[str] | None = None,
    *,
    role: str | None = "train",
    min_cameras: int = MIN_CAMERAS,
) -> Match:
    """Pair recordings with the cameras of a rig by name.

    capture_names: names of the recordings found. cams: the cameras asked for (all when None).
    role: only cameras of this role are taken; the others never enter, even when asked for. None takes every role.

    Raises InputError when a camera asked for (or any of that role in the rig) has no recording, when `cams` names an
    unknown camera or one of another role, or when fewer than `min_cameras` remain.
    """
    found = set(capture_names)
    of_role = [name for name in rig.cameras if role is None or rig.roles.get(name, "train") == role]
    wanted = of_role if cams is None else _asked(cams, rig, of_role, role)
    messages = []
    missing = [name for name in wanted if name not in found]
    if missing:
        present = [name for name in wanted if name in found]
        raise InputError(
            f"the calibration has {_cameras(missing)} without a recording",
            why=f"recordings found: {', '.join(sorted(found)) or 'none'}",
            fix=f"Add the missing recordings, or choose cameras with --cams {','.join(present) or 'NAMES'}.",
        )
    unknown = sorted(found - set(rig.cameras))
    if unknown and cams is None:
        messages.append(
            Message("warning", f"LEFT OUT: {_cameras(unknown)}, recorded but not in the calibration. Calibrate to use.")
        )
    if len(wanted) < min_cameras:
        raise InputError(
            f"{len(wanted)} calibrated {'camera has' if len(wanted) == 1 else 'cameras have'} a recording, "
            f"at least {min_cameras} are needed",
            why=f"usable: {', '.join(wanted) or 'none'}; recorded without calibration: {', '.join(unknown) or 'none'}",
            fix="Check that file names and camera names agree, or add cameras. "
            "With fewer, `recon check` still judges clocks, sharpness and calibration.",
        )
    return Match(wanted, messages)


def _asked(cams: Sequence[str], rig: Rig, of_role: list[str], role: str | None) -> list[str]:
    for name in cams:
        if name not in rig.cameras:
            raise InputError(f"--cams: no camera {name!r} in the calibration", fix=did_you_mean(name, rig.cameras))
        if name not in of_role:
            raise InputError(
                f"--cams: camera {name!r} has the role {rig.roles.get(name, 'train')!r}, not {role!r}",
                why="held-out cameras never enter a fit",
                fix="Change its role in the calibration if it is meant to be used.",
            )
    return [name for name in of_role if name in set(cams)]


def _cameras(names: Sequence[str]) -> str:
    return f"camera {names[0]}" if len(names) == 1 else f"cameras {', '.join(names)}"
