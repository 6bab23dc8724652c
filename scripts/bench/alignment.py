"""The rigid motion from the true world to the one a scene was built in, found by the cameras that both know.

A refined rig is free to move as a whole; what is true of the world has to be moved along before the two are compared.
With true centres c_i and axes R_i^T (world from camera), refined ones c'_i and R'_i^T, and no scale, so that a rig of
the wrong size counts as wrong, the motion (Q, t) is the one of least

    sum_i |Q c_i + t - c'_i|^2 + (d^2 / 2) |Q R_i^T - R'_i^T|_F^2,    d = the centres' RMS distance from their mean,

where the second term is (d theta_i)^2 for a small turn theta_i: what a camera turned by theta_i shows at distance d is
off by that. It has a closed form: Q is the rotation nearest to

    sum_i (c'_i - mean c')(c_i - mean c)^T + (d^2 / 2) R'_i^T R_i,    and t = mean c' - Q mean c.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recon.geometry.pose import angle_between, nearest_rotation


@dataclass(frozen=True)
class Alignment:
    """found_from_true: rigid [4, 4]. millimetres, degrees: by camera, what it leaves."""

    found_from_true: np.ndarray
    millimetres: dict[str, float]
    degrees: dict[str, float]

    def scores(self) -> dict[str, float]:
        """Medians and maxima over the cameras."""
        millimetres, degrees = list(self.millimetres.values()), list(self.degrees.values())
        return {
            "alignment_mm": float(np.median(millimetres)), "alignment_mm_max": max(millimetres),
            "alignment_deg": float(np.median(degrees)), "alignment_deg_max": max(degrees),
        }  # fmt: skip


def align(true: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> Alignment:
    """The motion between two rigs: cam_from_world [4, 4] by camera; those that both have count, at least one."""
    names = [name for name in true if name in found]
    a, b = (np.stack([np.linalg.inv(rig[name]) for name in names]) for rig in (true, found))
    mean_a, mean_b = a[:, :3, 3].mean(0), b[:, :3, 3].mean(0)
    spread_a, spread_b = a[:, :3, 3] - mean_a, b[:, :3, 3] - mean_b
    half = 0.5 * float((spread_a**2).sum(1).mean()) if len(names) > 1 else 1.0  # d^2 / 2
    turns = np.einsum("nij,nkj->ik", b[:, :3, :3], a[:, :3, :3])
    Q = nearest_rotation(spread_b.T @ spread_a + half * turns)
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = Q, mean_b - Q @ mean_a
    moved = motion @ a
    off = 1000.0 * np.linalg.norm(moved[:, :3, 3] - b[:, :3, 3], axis=1)
    turn = [float(np.degrees(angle_between(m[:3, :3], f[:3, :3]))) for m, f in zip(moved, b, strict=True)]
    return Alignment(motion, dict(zip(names, off.tolist(), strict=True)), dict(zip(names, turn, strict=True)))


def poses(rig: dict, role: str | None = None) -> dict[str, np.ndarray]:
    """cam_from_world [4, 4] by camera of parsed rig.json data (of one role)."""
    return {
        name: np.array(entry["cam_from_world"], dtype=np.float64)
        for name, entry in rig["cameras"].items()
        if role in (None, entry.get("role", "train"))
    }


def write_moved(rig: dict, found_from_true: np.ndarray, path: Path) -> None:
    """Parsed rig.json data as a file in which every camera stands where the motion takes it."""
    true_from_found = np.linalg.inv(found_from_true)
    cameras = {
        name: entry | {"cam_from_world": (np.array(entry["cam_from_world"]) @ true_from_found).tolist()}
        for name, entry in rig["cameras"].items()
    }
    path.write_text(json.dumps({key: value for key, value in rig.items() if key != "robot"} | {"cameras": cameras}))
