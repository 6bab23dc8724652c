"""TOML as caliscope (camera_array.toml), anipose and Pose2Sim (Calib.toml) write it: one table per camera.

`matrix` and `distortions` are OpenCV's (the first pixel's centre is (0, 0); `fisheye = true` for its fisheye model),
`rotation` (3x3 or a rotation vector) and `translation` lead from the world to the camera. caliscope counts in metres;
the others do not say theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recon.calibrate.readers.draft import (
    Document,
    Draft,
    Reading,
    Size,
    bad,
    from_integer_centres,
    numbers,
    opencv_distortion,
    pose_of,
    whole,
)  # fmt: skip
from recon.core.errors import CalibrationError

KEYS = {"matrix", "distortions", "size"}  # of every camera's table


def is_ours(data: Any) -> bool:
    """Whether parsed TOML has this layout."""
    return bool(_tables(data))


def read(documents: Sequence[Document]) -> Reading:
    """All cameras of one file that are not marked `ignore`."""
    if len(documents) > 1:
        raise CalibrationError(f"{documents[1].path}: two camera arrays were given", fix="Give one.")
    data, where = documents[0].data, str(documents[0].path)
    tables = {key: table for key, table in _tables(data).items() if table.get("ignore") is not True}
    drafts = [_draft(key, table, where) for key, table in tables.items()]
    return Reading(where, drafts, units="metres" if "cameras" in data else "unknown")


def _tables(data: Any) -> dict[str, Mapping[str, Any]]:
    """Name -> table, of `[cameras.N]` (caliscope) or of tables at the top (anipose, Pose2Sim)."""
    top = data.get("cameras", data) if isinstance(data, dict) else {}
    entries = top.items() if isinstance(top, dict) else ()
    return {str(key): table for key, table in entries if isinstance(table, dict) and table.keys() >= KEYS}


def _draft(key: str, table: Mapping[str, Any], where: str) -> Draft:
    given = table.get("name", table.get("cam_id", table.get("port", key)))
    name = str(given) if isinstance(given, (str, int)) else key
    label = f"{where}: camera {name}"
    if table.get("rotation") is None or table.get("translation") is None:
        raise bad(label, "it has no pose, only a lens", "Run the extrinsic calibration, or set `ignore = true`.")
    k = from_integer_centres(numbers(table["matrix"], f"{label}: matrix", (3, 3)))
    distortions = numbers(table["distortions"], f"{label}: distortions")
    bent = opencv_distortion(distortions, f"{label}: distortions", table.get("fisheye") is True)
    rotation = numbers(table["rotation"], f"{label}: rotation")
    pose = pose_of(rotation, numbers(table["translation"], f"{label}: translation"), label)
    return Draft(name, k, pose, _size(table["size"], label), *bent, aliases=(key,))


def _size(value: Any, label: str) -> Size:
    if not isinstance(value, list) or len(value) != 2:
        raise bad(f"{label}: size", "width and height are needed")
    return whole(value[0], f"{label}: width"), whole(value[1], f"{label}: height")
