"""A robot before one camera: `recon locate` from nothing, its masks against the true ones.

mask_iou = mean over pictures of |A and B| / |A or B|. The masks are read here and nowhere else.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import cv2
import numpy as np

from scripts.bench.command import recon
from scripts.bench.links import iou

ROBOT = "../bench01/robot/robot.xml"  # the same arm; its capture brings no description


class LoneCamera:
    """Pictures `color`, joint positions `qpos`, masks `mask`, K.txt."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, options: argparse.Namespace) -> dict[str, object]:
        """Locate with every seed; medians, and the least of all pictures and seeds. options.robot: the description."""
        robot = options.robot or self.root / ROBOT
        every, seconds = [], []
        for seed in options.seeds:
            with tempfile.TemporaryDirectory(prefix="bench-recon-") as folder:
                out = (options.keep or Path(folder)) / f"seed{seed}"
                seconds.append(recon(
                    "locate", "--images", str(self.root / "color"), "--intrinsics", str(self.root / "K.txt"),
                    "--joints", str(self.root / "qpos"), "--robot", str(robot), "--out", str(out), "--seed", str(seed),
                    *options.extra,
                ))  # fmt: skip
                true = sorted(self.root.glob("mask/*.png"))
                every.append([iou(_mask(out / "masks" / path.name), _mask(path)) for path in true])
                told = json.loads((out / "pose.json").read_text())
        means = np.mean(every, axis=1)
        return {
            "capture": options.capture, "mask_iou": float(np.median(means)), "mask_iou_by_seed": means.tolist(),
            "mask_iou_min": float(np.min(every)), "mask_iou_by_picture": np.median(every, axis=0).tolist(),
            "outline_px": told["outline_px"], "late": sum(p["late"] for p in told["pictures"]),
            "seconds": float(np.median(seconds)),
        }  # fmt: skip


def _mask(path: Path) -> np.ndarray:
    picture = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    assert picture is not None, f"{path} is missing"
    return np.asarray(picture > 127)
