"""The robot of a scene against the true one: where its base is, and what its links cover in the pictures.

A pixel belongs to the scene's robot where the links' Gaussians make up at least half of what is drawn,

    sum_{i in links} alpha_i T_i >= 1/2,    T_i = prod_{j < i} (1 - alpha_j) over everything in front of i,

so that everything else of the scene occludes them as it does in a picture. It is drawn at the frame's time, with the
true camera moved into the scene's world, and compared with the true mask of all links:

    link_iou = mean over pictures of |A and B| / |A or B|.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch

from recon.geometry.camera import Camera, distort_map
from recon.geometry.pose import angle_between
from recon.geometry.rig import Rig
from recon.render.api import rasterize
from recon.render.types import RasterConfig
from recon.scene.scene import Scene

HALF = 0.5


def base_errors(scene_rig: Rig, found_from_true: np.ndarray, world_from_base: np.ndarray) -> dict[str, float]:
    """robot_base_mm and robot_base_deg of the base in the scene's rig; nothing where it has none."""
    if scene_rig.robot is None or scene_rig.robot.world_from_base is None:
        return {}
    found, true = np.asarray(scene_rig.robot.world_from_base), found_from_true @ world_from_base
    return {
        "robot_base_mm": 1000.0 * float(np.linalg.norm(found[:3, 3] - true[:3, 3])),
        "robot_base_deg": float(np.degrees(angle_between(found[:3, :3], true[:3, :3]))),
    }


class LinkPainter:
    """Draws what the links of a scene cover in one camera's own, distorted pixel grid."""

    def __init__(self, scene: Scene, camera: Camera) -> None:
        """camera: in the scene's world."""
        self.scene, self.camera, self.ideal = scene, camera, camera.pinhole()
        links = torch.tensor([b.id for b in scene.bodies if b.kind == "link"], dtype=torch.int64)
        self.share = torch.isin(scene.gaussians.object_id.long(), links).float()[:, None].expand(-1, 3).contiguous()
        self.raster = RasterConfig(near=float(scene.provenance.get("near", RasterConfig().near)))

    @torch.no_grad()
    def mask(self, t: float) -> np.ndarray:
        """bool [H, W] at t [s] of the scene's clock."""
        posed, ideal = self.scene.at(t), self.ideal
        view, K = (torch.from_numpy(m.astype(np.float32))[None] for m in (ideal.cam_from_world, ideal.K))
        drawn = rasterize(
            posed.means, posed.quats, posed.scales, posed.opacities, self.share, view, K, ideal.width, ideal.height,
            config=self.raster,
        )  # fmt: skip
        share = drawn.color[0, :, :, 0].numpy()
        if self.camera.distorted:
            share = cv2.remap(share, distort_map(self.camera, ideal) - np.float32(0.5), None, cv2.INTER_LINEAR)
        return share >= HALF


def iou(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two bool pictures; 1 where both are empty."""
    union = int((a | b).sum())
    return float((a & b).sum() / union) if union else 1.0


def true_masks(folder: Path, camera: str, ids: Mapping[str, int]) -> Iterator[tuple[int, np.ndarray]]:
    """(frame, uint8 [H, W] of instance ids) of a camera's pictures in the masks' folder; ids must be those there."""
    assert json.loads((folder / "ids.json").read_text())["ids"] == dict(ids)
    for path in sorted((folder / camera).glob("*.png")):
        yield int(path.stem), cv2.imread(str(path), cv2.IMREAD_UNCHANGED)


def link_iou(
    scene: Scene, cameras: Mapping[str, Camera], masks: Mapping[str, Mapping[int, np.ndarray]],
    times: Mapping[str, np.ndarray],
) -> dict[str, object]:  # fmt: skip
    """link_iou, its worst picture, and the means by camera.

    cameras: true ones in the scene's world. masks: camera -> frame -> bool [H, W]. times: camera -> scene seconds [F].
    """
    values: dict[str, list[float]] = {}
    for name, own in masks.items():
        painter = LinkPainter(scene, replace(cameras[name], name=name))
        values[name] = [iou(painter.mask(float(times[name][frame])), mask) for frame, mask in own.items()]
    every = [value for own in values.values() for value in own]
    return {
        "link_iou": float(np.mean(every)), "link_iou_min": min(every),
        "link_iou_per_camera": {name: float(np.mean(own)) for name, own in values.items()},
    }  # fmt: skip
