"""A real recording of a court: picture folders, both meta files as rigs, test cameras 0 and 15."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from scripts.bench.command import recon
from scripts.bench.pictures import Regions, read_rgb


class Basketball:
    """How it is built, drawn and scored."""

    def __init__(self, root: Path) -> None:
        self.root = root
        rigs = [f"--rig={root / name}" for name in ("train_meta.json", "test_meta.json")]
        self.build = ["--videos", str(root / "ims"), *rigs]
        self.cameras = ["0", "15"]

    def render(self, scene: Path, renders: Path) -> None:
        """Draw the test cameras."""
        cams = ["--cams", ",".join(self.cameras)]
        recon(
            "render", str(scene), "--rig", str(self.root / "test_meta.json"), *cams, "--out", str(renders), "--no-depth"
        )

    def truth(self, camera: str) -> np.ndarray:
        """uint8 [F, H, W, 3]."""
        return np.stack([read_rgb(path) for path in sorted((self.root / "ims" / camera).glob("*.jpg"))])

    def regions(self, camera: str) -> Regions:
        """Nothing is known of what a pixel shows."""
        return {}

    def score(self, scene: Path, mesh: bool) -> dict[str, object]:
        """Nothing rigid moves by itself there: every body is invented."""
        bodies = json.loads((scene / "scene.json").read_text())["bodies"]
        return {"objects_invented": sum(body["kind"] == "object" for body in bodies)}
