"""A real rig given a little off: how far matches lie from each other's epipolar lines before a build and after it.

Matches are found without believing any rig: mutual best features of the cameras' first pictures that agree with one
fundamental matrix per pair of cameras. Undistorted by each rig's own lenses, with F from the two cameras, a match
(a, b) is off by the mean of its two distances,

    (|b . F a| / |(F a)_xy| + |b . F a| / |(F^T b)_xy|) / 2    pixels.

The set of matches is the same for every rig; the few that RANSAC wrongly took are in the tail, not in the median.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import zipfile
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np

from recon.calibrate.matches import find_features, match_freely
from recon.calibrate.rig import load_calibration
from recon.capture.session import PictureSizes, open_capture
from recon.core.files import read_json
from recon.geometry.camera import Camera, unproject
from recon.geometry.pose import invert_pose
from recon.geometry.rig import Rig, rig_from_json
from scripts.bench.command import recon

DEMO = "Pose2Sim/Demo_SinglePerson/"  # in the wheel
AGREE = 4.0  # pixels of RANSAC's fundamental matrix: wide, so that a lens that bends lines loses no matches
LEAST = 25  # matches of a pair
NO_FIT = ["--fit.iterations-static=0", "--fit.iterations-joint=0", "--fit.budget=2000"]  # rig alone, as far as it goes

Matches = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]  # two cameras -> positions [M, 2] in each picture


def free_matches(pictures: dict[str, np.ndarray]) -> Matches:
    """Of every pair of pictures (uint8 [H, W, 3]) that has enough of them."""
    features = {name: find_features(picture) for name, picture in pictures.items()}
    found: Matches = {}
    for one, two in combinations(pictures, 2):
        pairs = match_freely(features[one], features[two])
        if len(pairs) < LEAST:
            continue
        a, b = features[one].uv[pairs[:, 0]], features[two].uv[pairs[:, 1]]
        cv2.setRNGSeed(0)
        inlier = cv2.findFundamentalMat(a, b, cv2.FM_RANSAC, AGREE, 0.9999, 20_000)[1]
        if inlier is not None and int(inlier.sum()) >= LEAST:
            keep = inlier.ravel() > 0
            found[one, two] = (a[keep], b[keep])
    return found


def line_distances(camera_a: Camera, camera_b: Camera, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[M] pixels: how far matches a, b [M, 2] lie from each other's lines, by two cameras with lenses."""
    b_from_a = camera_b.cam_from_world @ invert_pose(camera_a.cam_from_world)
    x, y, z = b_from_a[:3, 3]
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ b_from_a[:3, :3]
    F = np.linalg.inv(camera_b.K).T @ essential @ np.linalg.inv(camera_a.K)
    p, q = unproject(camera_a, a) @ camera_a.K.T, unproject(camera_b, b) @ camera_b.K.T  # ideal pixels
    in_b, in_a = p @ F.T, q @ F
    product = np.abs((q * in_b).sum(1))
    return 0.5 * product * (1 / np.linalg.norm(in_b[:, :2], axis=1) + 1 / np.linalg.norm(in_a[:, :2], axis=1))


def rig_errors(matches: Matches, cameras: dict[str, Camera]) -> dict[str, object]:
    """Median over all matches, and by pair of cameras; pixels."""
    by_pair = {f"{a}-{b}": line_distances(cameras[a], cameras[b], *uv) for (a, b), uv in matches.items()}
    every = np.concatenate(list(by_pair.values()))
    every = every[np.isfinite(every)]
    medians = {pair: float(np.nanmedian(values)) for pair, values in by_pair.items()}
    return {"median_px": float(np.median(every)), "p90_px": float(np.percentile(every, 90)), "by_pair_px": medians}


class WalkingPerson:
    """The recording inside the wheel of pose2sim: four upright cameras, a calibration from another day."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, options: argparse.Namespace) -> dict[str, object]:
        """Build without a fit, compare the rigs. options.wheel: the wheel; else its folder is the capture."""
        work = options.keep or Path(tempfile.mkdtemp(prefix="bench-recon-"))
        demo = self.root
        if options.wheel is not None:
            demo = unpacked(options.wheel, work / "capture")
        videos, given = demo / "videos", demo / "calibration" / "Calib.qca.txt"
        extra = [*NO_FIT, *options.extra]
        seconds = recon("build", "--videos", str(videos), "--rig", str(given), "--out", str(work / "scene"), *extra)
        refined = rig_from_json(read_json(work / "scene" / "rig.json"), "rig.json").cameras
        before = load_calibration([given], PictureSizes(videos)).rig.cameras
        with open_capture(videos, Rig(refined)) as capture:
            matches = free_matches({name: stream.read(0) for name, stream in capture.cameras.items()})
        scores = {"given": rig_errors(matches, before), "refined": rig_errors(matches, refined)}
        report = read_json(work / "scene" / "report" / "report.json")
        stage = next(s["metrics"] for s in report["stages"] if s["name"] == "rig")
        if options.keep is None:
            shutil.rmtree(work)
        return {
            "capture": options.capture, "epipolar_given_px": scores["given"]["median_px"],
            "epipolar_px": scores["refined"]["median_px"], "matches": sum(len(a) for a, _ in matches.values()),
            **scores, "stage": stage, "seconds": seconds,
        }  # fmt: skip


def unpacked(wheel: Path, folder: Path) -> Path:
    """The recording's folder, taken out of the wheel into `folder`; its videos and calibration alone."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = name.removeprefix(DEMO)
            if inside != name and (inside.startswith("videos/") or inside == "calibration/Calib.qca.txt"):
                archive.extract(name, folder)
    return folder / DEMO
