"""Tracks of the scene's objects against those that truly moved."""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from recon.geometry.pose import angle_between, invert_pose
from recon.geometry.quaternion import quat_to_matrix

MOVED = 0.01  # metres that an object has to get away from where it was
FOLLOWS = 20.0  # millimetres within which a body stands for an object


@dataclass(frozen=True)
class Followed:
    """A body that stands for a true object.

    scores: as in the result. usual: (scene_from_body, scene_from_object), [4, 4] each, at the object's usual place.
    times [N] s, scene_from_body [N, 4, 4]: the body's track.
    """

    body: str
    scores: dict[str, float]
    usual: tuple[np.ndarray, np.ndarray]
    times: np.ndarray
    scene_from_body: np.ndarray


def matrices(positions: np.ndarray, quats: np.ndarray) -> np.ndarray:
    """[T, 4, 4] of positions [T, 3] and quaternions wxyz [T, 4]."""
    found = np.tile(np.eye(4), (len(quats), 1, 1))
    found[:, :3, :3] = quat_to_matrix(np.asarray(quats, np.float64))
    found[:, :3, 3] = positions
    return found


def follow(
    scene: Path, truth: Path, scene_from_true: np.ndarray, shift: float
) -> tuple[dict[str, object], dict[str, Followed]]:
    """(scores, object -> the body that stands for it): the scene's objects against those that moved by a centimetre.

    scene_from_true: rigid [4, 4]. shift: seconds, scene time - true time. Medians away from the object's usual place.
    A body stands for the mover that it follows best, if within 20 mm; one that stands for none is invented.
    """
    header, tensors = json.loads((scene / "scene.json").read_text()), load_file(scene / "tracks.safetensors")
    facts = header["provenance"].get("objects", {})
    movers = [o for o in json.loads((truth / "objects.json").read_text())["objects"] if o["moves"]]
    movers = [o for o in movers if o["max_displacement_m"] > MOVED]
    with (truth / "object_poses_100hz.csv").open() as file:
        rows = list(csv.DictReader(file))
    known = {}
    for entry in movers:
        times, world_from_object = true_track(rows, entry["name"])
        known[entry["name"]] = (times + shift, scene_from_true @ world_from_object, symmetries(entry))
    best: dict[str, Followed] = {}
    invented = 0
    for body in (b for b in header["bodies"] if b["kind"] == "object"):
        times, positions, quats = (tensors[f"{body['id']}.{part}"] for part in ("times", "positions", "quats"))
        sigma = np.array(facts[body["name"]]["sigmas"])
        track = matrices(positions, quats)
        scored = {n: pose_errors(times, track, sigma, *entry) for n, entry in known.items()}
        name = min(scored, key=lambda n: scored[n][0]["position_mm"], default=None)
        if name is None or scored[name][0]["position_mm"] > FOLLOWS:
            invented += 1
        elif name not in best or scored[name][0]["position_mm"] < best[name].scores["position_mm"]:
            best[name] = Followed(body["name"], *scored[name], times, track)
    result: dict[str, object] = {
        "objects_found": len(best), "objects_true": len(movers), "objects_invented": invented,
        "objects": {name: entry.scores for name, entry in best.items()},
    }  # fmt: skip
    if best:
        result["object_position_mm"] = max(entry.scores["position_mm"] for entry in best.values())
        result["object_rotation_deg"] = max(entry.scores["rotation_deg"] for entry in best.values())
    return result, best


def true_track(rows: list[dict[str, str]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(times [N], world_from_object [N, 4, 4]) of one object."""
    own = [row for row in rows if row["object"] == name]
    numbers = np.array([[float(row[key]) for key in ("time_s", "x", "y", "z", "qw", "qx", "qy", "qz")] for row in own])
    return numbers[:, 0], matrices(numbers[:, 1:4], numbers[:, 4:])


def symmetries(entry: dict) -> list[np.ndarray]:
    """Rotations [3, 3] that leave an object as it looks: those of a cube for one box of equal sides."""
    pieces = entry["collision"]
    if entry["texture"] or len(pieces) != 1 or pieces[0]["kind"] != "box" or len(set(pieces[0]["size"])) != 1:
        return [np.eye(3)]
    every = [
        np.eye(3)[list(p)] * np.array(s)[:, None]
        for p in itertools.permutations(range(3))
        for s in itertools.product((1, -1), repeat=3)
    ]
    return [R for R in every if np.linalg.det(R) > 0]


def pose_errors(
    times: np.ndarray, found: np.ndarray, sigma: np.ndarray, true_times: np.ndarray, true: np.ndarray,
    same: list[np.ndarray],
) -> tuple[dict[str, float], tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """(medians at the track's times when the object is over 5 mm from its usual place, the two poses there).

    times [N], found [N, 4, 4]: the track; true_times [M], true [M, 4, 4]: in the same world. The body's own frame is
    nobody's business, so the two are tied at the usual place, where the object lies most of the time.
    """
    near = np.array([true[int(np.clip(np.searchsorted(true_times, t), 0, len(true_times) - 1))] for t in times])
    after = np.clip(np.searchsorted(true_times, times), 1, len(true_times) - 1)
    part = np.clip((times - true_times[after - 1]) / np.diff(true_times)[after - 1], 0, 1)[:, None]
    near[:, :3, 3] = (1 - part) * true[after - 1, :3, 3] + part * true[after, :3, 3]
    apart = np.linalg.norm(near[:, None, :3, 3] - near[None, :, :3, 3], axis=-1)
    usual = int(np.argmax((apart < 1e-3).sum(1)))
    tied = found[usual], near[usual]
    guess = found @ invert_pose(found[usual]) @ near[usual]
    off = 1000 * np.linalg.norm(guess[:, :3, 3] - near[:, :3, 3], axis=1)
    pairs = [(g[:3, :3], n[:3, :3]) for g, n in zip(guess, near, strict=True)]
    turn = np.degrees([min(angle_between(g @ R, n) for R in same) for g, n in pairs])
    away = apart[usual] > 5e-3
    if not away.any():
        return {"position_mm": float("inf"), "rotation_deg": 180.0}, tied
    ratios = off[away] / (1000 * sigma[away, 0]), turn[away] / np.degrees(sigma[away, 1])
    return {
        "position_mm": float(np.median(off[away])), "rotation_deg": float(np.median(turn[away])),
        "position_p90_mm": float(np.percentile(off[away], 90)),
        "rotation_p90_deg": float(np.percentile(turn[away], 90)),
        "position_over_sigma": float(np.median(ratios[0])), "rotation_over_sigma": float(np.median(ratios[1])),
        "instants": int(away.sum()),
    }, tied  # fmt: skip
