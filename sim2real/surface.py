"""What the cameras of a rig see of a static set, as points: its splat depth, brought into the world.

Gaussian centres say little about a surface: those of a thick one lie below it, and those that nothing shows are
anywhere. The depth that the rasteriser gives is where light comes from, and it is what an exported scene is judged by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from recon.geometry.camera import unproject
from recon.geometry.pose import invert_pose
from recon.render.api import rasterize

if TYPE_CHECKING:
    from recon.geometry.camera import Camera
    from recon.geometry.rig import Rig
    from sim2real.draw import Splats

Array = NDArray[np.float64]

WIDTH = 240  # px, of the depth pictures
OPAQUE = 0.95  # least alpha of a pixel that counts
BEND = 0.01  # m, largest departure of a pixel's depth from the plane through its neighbours


def seen_surface(static: Splats, rig: Rig, backend: str = "auto") -> Array:
    """Points [M, 3] m, world, where the training cameras (all, when there are none) see something solid."""
    cameras = [rig.cameras[name] for name in rig.cameras if rig.roles.get(name, "train") == "train"]
    clouds = [_cloud(camera, static, backend) for camera in cameras or rig.cameras.values()]
    return np.concatenate([np.zeros((0, 3)), *clouds])


def _cloud(camera: Camera, static: Splats, backend: str) -> Array:
    ideal = camera.pinhole()
    ideal = ideal.scaled(min(1.0, WIDTH / ideal.width))
    depth = splat_depth(ideal, static, backend)
    y, x = np.nonzero(np.isfinite(depth) & (bending(depth) < BEND))
    rays = unproject(ideal, np.stack([x + 0.5, y + 0.5], axis=1))
    world_from_cam = invert_pose(ideal.cam_from_world)
    return (rays * depth[y, x, None]) @ world_from_cam[:3, :3].T + world_from_cam[:3, 3]


def splat_depth(camera: Camera, static: Splats, backend: str = "auto") -> Array:
    """[H, W] m along the optical axis of a pinhole camera; NaN where alpha < OPAQUE."""
    device = static.means.device
    # colour is not looked at, so its constant part will do
    colors = static.sh[:, 0].contiguous()
    views = torch.tensor(camera.cam_from_world, dtype=torch.float32, device=device)[None]
    intrinsics = torch.tensor(camera.K, dtype=torch.float32, device=device)[None]
    with torch.no_grad():
        drawn = rasterize(
            static.means, static.quats, static.scales, static.opacities, colors, views, intrinsics,
            camera.width, camera.height, backend=backend,
        )  # fmt: skip
    depth = drawn.depth[0].cpu().numpy().astype(np.float64)
    return np.where(drawn.alpha[0].cpu().numpy() >= OPAQUE, depth, np.nan)


def bending(depth: Array) -> Array:
    """How far each pixel of depth [H, W] m lies off the plane through its neighbours, m; inf beside gaps and edges.

    On a plane 1 / z is linear in the pixel, so its second differences vanish; z^2 / 2 of one is the departure in depth.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        inverse = 1 / depth
        across = np.abs(inverse[1:-1, :-2] + inverse[1:-1, 2:] - 2 * inverse[1:-1, 1:-1])
        down = np.abs(inverse[:-2, 1:-1] + inverse[2:, 1:-1] - 2 * inverse[1:-1, 1:-1])
        inner = np.maximum(across, down) * depth[1:-1, 1:-1] ** 2 / 2
    result = np.full(depth.shape, np.inf)
    result[1:-1, 1:-1] = np.where(np.isfinite(inner), inner, np.inf)
    return result
