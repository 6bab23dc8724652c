"""Clips of a board alone: `recon calibrate`, and the rig it finds against the known one."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from recon.geometry.pose import angle_between, nearest_rotation
from scripts.bench.command import recon

if sys.version_info >= (3, 11):
    import tomllib  # device-lint: allow M11 (tomli is the same on Python 3.10)
else:
    import tomli as tomllib


class BoardClips:
    """Clips of a board, scored by the cameras that are known: name -> (fx, fy, centre [3], cam_from_world rotation)."""

    def __init__(self, root: Path) -> None:
        self.bench = root.name == "bench01-board"
        root = root.with_name(root.name.removesuffix("-board"))
        clips = root / ("calib" if self.bench else "board")
        board = clips / ("board.json" if self.bench else "charuco.toml")
        self.root, self.calibrate = root, ["--videos", str(clips), "--board", str(board)]

    def known(self) -> dict[str, tuple[float, float, np.ndarray, np.ndarray]]:
        if self.bench:
            return rig_cameras(self.root / "truth" / "rig_true.json", "train")
        entries = tomllib.loads((self.root / "board" / "camera_array.toml").read_text())["cameras"]
        found = {}
        for name, entry in entries.items():
            K, R = np.array(entry["matrix"]), np.array(entry["rotation"])
            found[f"cam_{name}"] = (K[0, 0], K[1, 1], -R.T @ np.array(entry["translation"]), R)
        return found

    def run(self, options: argparse.Namespace) -> dict[str, object]:
        """Calibrate as a user would and score the rig."""
        out = (options.keep or Path(tempfile.mkdtemp(prefix="bench-recon-"))) / "rig"
        seconds = recon("calibrate", *self.calibrate, "--out", str(out), *options.extra)
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = json.loads((out / "report.json").read_text())
        result = {
            "capture": options.capture, **score_rig(rig_cameras(out / "rig.json"), self.known()), "seconds": seconds,
            "cpu_seconds": cpu.ru_utime + cpu.ru_stime, "reprojection_px": report["reprojection_px"],
            "weak_camera": report["weak_camera"], "verdict": report["verdict"],
        }  # fmt: skip
        if options.keep is None:
            shutil.rmtree(out.parent)
        return result


def rig_cameras(path: Path, role: str | None = None) -> dict[str, tuple[float, float, np.ndarray, np.ndarray]]:
    """Cameras of a rig.json (of one role): name -> (fx, fy, centre [3], rotation [3, 3])."""
    found = {}
    for name, entry in json.loads(path.read_text())["cameras"].items():
        pose = np.array(entry["cam_from_world"])
        if role in (None, entry.get("role", "train")):
            found[name] = (entry["fx"], entry["fy"], -pose[:3, :3].T @ pose[:3, 3], pose[:3, :3])
    return found


def score_rig(found: dict[str, tuple], known: dict[str, tuple]) -> dict[str, object]:
    """Per camera and as median and maximum: centre_mm, rotation_deg (after a rigid alignment of the centres, no scale),
    focal_percent, and baseline_percent over all pairs."""
    names = list(known)
    a, b = (np.stack([cameras[n][2] for n in names]) for cameras in (found, known))
    R = nearest_rotation((b - b.mean(0)).T @ (a - a.mean(0)))
    off = np.linalg.norm((a - a.mean(0)) @ R.T + b.mean(0) - b, axis=1)
    per_camera = {}
    for k, name in enumerate(names):
        focal = max(abs(found[name][i] / known[name][i] - 1) for i in (0, 1))
        per_camera[name] = {
            "centre_mm": float(1000 * off[k]),
            "rotation_deg": float(np.degrees(angle_between(found[name][3] @ R.T, known[name][3]))),
            "focal_percent": float(100 * focal),
        }
    pairs = [(i, j) for i in range(len(names)) for j in range(i)]
    ratios = [np.linalg.norm(a[i] - a[j]) / np.linalg.norm(b[i] - b[j]) - 1 for i, j in pairs]
    result: dict[str, object] = {}
    for key in ("centre_mm", "rotation_deg", "focal_percent"):
        values = [row[key] for row in per_camera.values()]
        result |= {key: float(np.median(values)), f"{key}_max": float(max(values))}
    baselines = 100 * np.abs(ratios)
    result |= {"baseline_percent": float(np.median(baselines)), "baseline_percent_max": float(baselines.max())}
    return {**result, "per_camera": per_camera}
