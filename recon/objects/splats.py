"""A body as small opaque Gaussians on its surface, and how it shows in several cameras at once.

Moving the body by T in front of a still camera is the same as moving the camera by its inverse, so all cameras and all
small displacements of the body that a derivative needs are drawn in one call:

    view of camera c, displacement d  =  cam_from_world_c  world_from_body  exp(d)
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch

from recon.geometry.camera import Camera, project
from recon.render.api import rasterize
from recon.render.types import RasterConfig

SIDE = 96  # pixels, most of a crop at the working resolution; a multiple of the rasteriser's tile
TILE = 16
ROOM = 1.25  # of the body's radius, that a crop reaches
OPACITY = 0.95
RADIUS = 0.4  # of a cell, of a surface Gaussian


@dataclass(frozen=True)
class Splats:
    """N surface Gaussians in the body's frame: points [N, 3] m, colours [N, 3] in [0, 1], size: m, of a cell.

    opacities: float32 [N] in [0, 1].
    """

    points: np.ndarray
    colours: np.ndarray
    size: float
    opacities: np.ndarray

    @property
    def radius(self) -> float:
        """Metres from the body's origin to its farthest point."""
        return float(np.linalg.norm(self.points, axis=1).max()) + self.size

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """(means, quats, scales, opacities, colours), float32 on the CPU."""
        count = len(self.points)
        means = torch.from_numpy(self.points.astype(np.float32))
        quats = torch.zeros(count, 4, device="cpu")
        quats[:, 0] = 1.0
        scales = torch.full((count, 3), RADIUS * self.size, device="cpu")
        opacities = torch.from_numpy(self.opacities.astype(np.float32))
        return means, quats, scales, opacities, torch.from_numpy(self.colours.astype(np.float32))


@dataclass(frozen=True)
class Crop:
    """Where a body is looked at in one camera: `step` pixels of the picture are one of the crop's.

    left, top: pixels of the picture, may be negative. side: pixels of the crop.
    """

    left: int
    top: int
    side: int
    step: int

    def intrinsics(self, camera: Camera) -> np.ndarray:
        """[3, 3] of the crop."""
        return np.array(
            [
                [camera.fx / self.step, 0.0, (camera.cx - self.left) / self.step],
                [0.0, camera.fy / self.step, (camera.cy - self.top) / self.step],
                [0.0, 0.0, 1.0],
            ]
        )

    def cut(self, picture: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """The crop [side, side, ...] of a picture [H, W, ...], averaged; `fill` outside it."""
        size = self.side * self.step
        height, width = picture.shape[:2]
        y0, y1 = max(0, self.top), min(height, self.top + size)
        x0, x1 = max(0, self.left), min(width, self.left + size)
        whole = np.full((size, size, *picture.shape[2:]), fill, dtype=picture.dtype)
        if y1 > y0 and x1 > x0:
            whole[y0 - self.top : y1 - self.top, x0 - self.left : x1 - self.left] = picture[y0:y1, x0:x1]
        if self.step == 1:
            return whole
        return cv2.resize(whole, (self.side, self.side), interpolation=cv2.INTER_AREA)


def crops_of(
    cameras: list[Camera], center: np.ndarray, radius: float, most: int = SIDE, coarser: int = 1
) -> list[Crop | None]:
    """Square crops of equal side round a ball [3], m in every camera; None where it is behind it or out of view."""
    found: list[Crop | None] = []
    reach = []
    for camera in cameras:
        pixel, depth = project(camera, center[None])
        z = float(depth[0])
        if not z > 1.5 * radius:
            found.append(None)
            reach.append(0.0)
            continue
        r = ROOM * radius * max(camera.fx, camera.fy) / np.sqrt(max(z * z - radius * radius, 1e-12))
        u, v = pixel[0]
        if not (-r < u < camera.width + r and -r < v < camera.height + r):
            found.append(None)
            reach.append(0.0)
            continue
        found.append(Crop(int(np.floor(u)), int(np.floor(v)), 0, 0))
        reach.append(2.0 * r + 6)
    steps = [max(1, int(np.ceil(size / most))) * coarser for size in reach]
    side = max([size / step for size, step in zip(reach, steps, strict=True)] + [1.0])
    side = int(-(-side // TILE) * TILE)
    return [
        None if crop is None else Crop(crop.left - side * step // 2, crop.top - side * step // 2, side, step)
        for crop, step in zip(found, steps, strict=True)
    ]


def draw(
    splats: Splats, views: np.ndarray, intrinsics: np.ndarray, side: int, near: float
) -> tuple[np.ndarray, np.ndarray]:
    """(colour times coverage float32 [V, side, side, 3], coverage float32 [V, side, side]) from V views.

    views: [V, 4, 4] camera from body; intrinsics: [V, 3, 3]; near: m.
    """
    means, quats, scales, opacities, colours = splats.tensors()
    with torch.no_grad():
        drawn = rasterize(
            means, quats, scales, opacities, colours,
            torch.from_numpy(views.astype(np.float32)), torch.from_numpy(intrinsics.astype(np.float32)), side, side,
            config=RasterConfig(near=near),
        )  # fmt: skip
    return drawn.color.numpy(), drawn.alpha.numpy()


def silhouette(splats: Splats, camera: Camera, world_from_body: np.ndarray, near: float = 1e-3) -> np.ndarray:
    """bool [H, W]: where the body alone covers more than half of a pixel."""
    mask = np.zeros((camera.height, camera.width), dtype=bool)
    crop = crops_of([camera], world_from_body[:3, 3], splats.radius, most=4096)[0]
    if crop is None:
        return mask
    view = (camera.cam_from_world @ world_from_body)[None]
    _, alpha = draw(splats, view, crop.intrinsics(camera)[None], crop.side, near)
    y0, x0 = max(0, crop.top), max(0, crop.left)
    y1, x1 = min(camera.height, crop.top + crop.side), min(camera.width, crop.left + crop.side)
    if y1 > y0 and x1 > x0:
        mask[y0:y1, x0:x1] = alpha[0, y0 - crop.top : y1 - crop.top, x0 - crop.left : x1 - crop.left] > 0.5
    return mask
