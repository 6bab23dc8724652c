"""Pictures of this folder's Gaussians, links and bodies where a simulator has them. Needs recon4d; a CPU is enough.

    from draw import Pictures
    pictures = Pictures(".")
    image = pictures.draw("cam00", {"link1": world_from_link1, "cup": world_from_cup})   # uint8 [H, W, 3]

Carriers that are not named (`pictures.carriers`) are drawn at rest, as scene.json has them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


class Pictures:
    """The Gaussians of an export, ready to draw.

    carriers: names of the links and bodies that carry some. cameras: names of the recorded cameras.
    """

    def __init__(self, folder: str | Path = ".", backend: str = "auto") -> None:
        import torch

        from recon.scene.formats.registry import read_splats
        from recon.scene.gaussians import Gaussians

        folder = Path(folder)
        self.header: dict[str, Any] = json.loads((folder / "scene.json").read_text(encoding="utf-8"))
        self.backend = backend
        self.carriers = [name for name, entry in self.header["splats"].items() if entry["kind"] != "world"]
        self.cameras = list(self.header["cameras"])
        self.rest = {link["name"]: np.array(link["world_from_link"]) for link in self.header["robot"]["links"]}
        self.rest.update({thing["name"]: np.array(thing["world_from_thing"]) for thing in self.header["things"]})
        tables = []
        for name, entry in self.header["splats"].items():
            table = read_splats(folder / entry["file"])[1].gaussians
            number = 0 if entry["kind"] == "world" else 1 + self.carriers.index(name)
            columns = table.tensors()
            columns["object_id"] = torch.full_like(table.object_id, number)
            columns["kind"] = torch.full_like(table.kind, int(number > 0))
            tables.append(Gaussians(**columns))
        self.gaussians = Gaussians.concat(tables)

    def draw(self, camera: str, poses: dict[str, Any], scale: float = 1.0) -> np.ndarray:
        """uint8 [H, W, 3] of a recorded camera, as it shows colours. poses: carrier -> world_from_carrier [4, 4]."""
        entry = self.header["cameras"][camera]
        size = (round(scale * entry["width"]), round(scale * entry["height"]))
        matrix = np.array(
            [[scale * entry["fx"], 0, scale * entry["cx"]], [0, scale * entry["fy"], scale * entry["cy"]], [0, 0, 1]]
        )
        color = self.draw_free(np.array(entry["cam_from_world"]), matrix, size, poses)[0]
        if entry["colour"] is not None:
            # what the camera shows = M colour + b
            color = color @ np.array(entry["colour"]["matrix"]).T + np.array(entry["colour"]["offset"])
        shown: np.ndarray = (np.clip(color, 0, 1) * 255 + 0.5).astype(np.uint8)
        return shown

    def draw_free(
        self, cam_from_world: np.ndarray, matrix: np.ndarray, size: tuple[int, int], poses: dict[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(colour [H, W, 3] in 0..1, depth [H, W] m) of any camera: OpenCV axes, matrix [3, 3] px, size (W, H)."""
        import torch

        from recon.geometry.quaternion import matrix_to_quat
        from recon.render.api import rasterize
        from recon.scene.motion import pose_gaussians

        placed = {}
        for number, name in enumerate(self.carriers, start=1):
            pose = torch.as_tensor(
                np.asarray(poses.get(name, self.rest.get(name, np.eye(4)))), dtype=torch.float32, device="cpu"
            )
            placed[number] = (matrix_to_quat(pose[:3, :3]), pose[:3, 3])
        g = pose_gaussians(self.gaussians, placed, None)
        view = torch.as_tensor(cam_from_world, dtype=torch.float32, device="cpu")[None]
        intrinsics = torch.as_tensor(matrix, dtype=torch.float32, device="cpu")[None]
        with torch.no_grad():
            picture = rasterize(
                g.means, g.quats, g.scales, g.opacities, g.sh, view, intrinsics, size[0], size[1],
                sh_degree=self.gaussians.degree, backend=self.backend,
            )  # fmt: skip
        return picture.color[0].numpy(), picture.depth[0].numpy()
