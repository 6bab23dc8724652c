"""Each camera in turn left out of a scene that was photographed once, with the colour model and without it."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import cv2
import numpy as np

from recon.calibrate.rig import load_calibration
from recon.core.files import read_json
from recon.geometry.rig import Rig, rig_from_json, rig_to_json
from scripts.bench.command import recon
from scripts.bench.pictures import affine_to_truth, psnr, read_rgb

SCALE = 0.5
SHORT = ["--fit.iterations-static=400", "--fit.iterations-joint=0", "--fit.budget=20000"]
WAYS = {"colour": [], "plain": ["--fit.no-colour"]}


class AssemblyBench:
    """Eight cameras round a bench, one instant, strong casts of colour."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, options: argparse.Namespace) -> dict[str, object]:
        """Two short builds per camera; psnr raw and after the best affine colours, by camera and in the mean."""
        work = options.keep or Path(tempfile.mkdtemp(prefix="bench-recon-"))
        names = self._lay_out(work)
        found: dict[str, dict[str, float]] = {name: {} for name in names}
        for name in names:
            others = ",".join(other for other in names if other != name)
            for way, asked in WAYS.items():
                scene, renders = work / f"{name}-{way}", work / f"{name}-{way}-renders"
                source = ["--videos", str(work / "cams"), "--rig", str(work / "rig.json"), "--cams", others]
                recon("build", *source, "--out", str(scene), *SHORT, *asked, *options.extra)
                rig = ["--rig", str(work / "rig.json"), "--cams", name, "--times", "0"]
                recon("render", str(scene), *rig, "--out", str(renders), "--no-depth")
                found[name] |= compared(renders / name / "000000.png", work / "cams" / name / "000000.png", way)
        if options.keep is None:
            shutil.rmtree(work)
        keys = sorted(next(iter(found.values())))
        means = {key: float(np.mean([row[key] for row in found.values()])) for key in keys}
        least = {f"{key}_min": float(min(row[key] for row in found.values())) for key in keys}
        return {"capture": options.capture, **means, **least, "per_camera": found}

    def _lay_out(self, work: Path) -> list[str]:
        """Pictures and rig at half size in `work`, one folder per camera; the cameras' names."""
        sizes = {}
        for path in sorted((self.root / "A").glob("*.jpg")):
            picture = read_rgb(path)
            sizes[path.stem] = (picture.shape[1], picture.shape[0])
        rig = load_calibration([self.root / "cams_calibrations.yml"], sizes).rig
        cameras = {name: rig.cameras[name].scaled(SCALE) for name in sizes}
        for name, camera in cameras.items():
            (work / "cams" / name).mkdir(parents=True, exist_ok=True)
            picture = cv2.imread(str(self.root / "A" / f"{name}.jpg"))
            small = cv2.resize(picture, (camera.width, camera.height), interpolation=cv2.INTER_AREA)
            cv2.imwrite(str(work / "cams" / name / "000000.png"), small)
        (work / "rig.json").write_text(json.dumps(rig_to_json(Rig(cameras, units=rig.units, world_up=rig.world_up))))
        rig_from_json(read_json(work / "rig.json"), "rig.json")
        return list(cameras)


def compared(drawn: Path, truth: Path, way: str) -> dict[str, float]:
    """psnr_<way> and psnr_<way>_cc of a drawn picture."""
    a, b = (read_rgb(path).astype(np.float32)[None] / 255.0 for path in (drawn, truth))
    colour = affine_to_truth(a, b)
    corrected = np.clip(a @ colour[:3] + colour[3], 0, 1)
    return {f"psnr_{way}": psnr((a - b) ** 2), f"psnr_{way}_cc": psnr((corrected - b) ** 2)}
