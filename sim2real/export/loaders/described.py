"""What the scripts that load this folder have in common: `scene.json`, and poses as 4x4 matrices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def read(folder: str | Path) -> dict[str, Any]:
    """The content of scene.json."""
    header: dict[str, Any] = json.loads((Path(folder) / "scene.json").read_text(encoding="utf-8"))
    return header


def completed(header: dict[str, Any], positions: dict[str, float]) -> dict[str, float]:
    """With the coupled joints whose leader is named: q = follower_zero + sum_k a_k (q_leader - leader_zero)^k."""
    whole = dict(positions)
    for c in header["robot"]["couplings"]:
        if c["leader"] in whole and c["follower"] not in whole:
            x = whole[c["leader"]] - c["leader_zero"]
            whole[c["follower"]] = c["follower_zero"] + sum(a * x**k for k, a in enumerate(c["polynomial"]))
    return whole


def driven(header: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The joints by name; a coupled one without a servo has that of its leader."""
    joints = {entry["name"]: dict(entry) for entry in header["robot"]["joints"]}
    for coupling in header["robot"]["couplings"]:
        follower = joints[coupling["follower"]]
        follower["servo"] = follower["servo"] or joints[coupling["leader"]]["servo"]
    return joints


def reset(bench: Any) -> None:
    """The robot at rest and commanded to stay, the bodies where they were recorded."""
    home = {joint["name"]: joint["home"] for joint in bench.header["robot"]["joints"]}
    bench.set_joints(home)
    bench.command(home)
    for thing in bench.header["things"]:
        bench.set_pose(thing["name"], np.array(thing["world_from_thing"]))


def run(bench: Any, seconds: float) -> None:
    """Step for a while and say where everything ended."""
    bench.step(seconds)
    for name, pose in bench.poses().items():
        print(f"{name}: {np.round(pose[:3, 3], 4).tolist()} m")


def matrix(position: Any, xyzw: Any) -> np.ndarray:
    """[4, 4] of a position [3] and a quaternion x y z w."""
    x, y, z, w = (np.asarray(xyzw, float) / np.linalg.norm(xyzw)).tolist()
    pose = np.eye(4)
    pose[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    pose[:3, 3] = position
    return pose


def xyzw(rotation: np.ndarray) -> list[float]:
    """Quaternion of a rotation [3, 3], by the eigenvector of the largest eigenvalue (Bar-Itzhack)."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    table = [[a - e - i, b + d, c + g, h - f], [b + d, e - a - i, f + h, c - g],
             [c + g, f + h, i - a - e, d - b], [h - f, c - g, d - b, a + e + i]]  # fmt: skip
    found: list[float] = np.linalg.eigh(np.array(table) / 3)[1][:, -1].tolist()
    return found
