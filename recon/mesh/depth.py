"""What a pinhole camera sees of Gaussians, as depth: where light comes from, not where Gaussian centres are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from recon.geometry.camera import Camera, pixel_centres, unproject
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import quat_normalize, quat_to_matrix
from recon.geometry.sh import sh_degree
from recon.render.api import rasterize
from recon.render.types import RasterConfig, Rendering

Array = NDArray[np.float64]

OPAQUE = 0.95  # least alpha of a pixel that has a depth
EDGE_ON = 0.2  # cosine between ray and normal
TRUSTED = 0.05  # of the depth: a plane's depth may differ this much from that of the centres
CLEAR = 0.5  # a pixel below this alpha is looked through


class Splats(Protocol):
    """Activated Gaussians: means [N, 3] m, quats [N, 4] wxyz, scales [N, 3] m, opacities [N], sh [N, K, 3]."""

    @property
    def means(self) -> torch.Tensor:
        """[N, 3] metres."""

    @property
    def quats(self) -> torch.Tensor:
        """[N, 4] wxyz."""

    @property
    def scales(self) -> torch.Tensor:
        """[N, 3] metres."""

    @property
    def opacities(self) -> torch.Tensor:
        """[N] in 0..1."""

    @property
    def sh(self) -> torch.Tensor:
        """[N, K, 3] spherical harmonics."""


@dataclass(frozen=True, eq=False)
class View:
    """A depth picture. camera: a pinhole. color [H, W, 3] float32 in 0..1; depth [H, W] m along the optical axis, NaN
    where nothing is opaque; clear [H, W] bool, pixels that are looked through."""

    camera: Camera
    color: NDArray[np.float32]
    depth: Array
    clear: NDArray[np.bool_]

    def points(self, keep: NDArray[np.bool_]) -> Array:
        """[M, 3] m, world: the surface at the pixels of the mask `keep` [H, W], which must have a depth."""
        rays = unproject(self.camera, pixel_centres(self.camera.width, self.camera.height)[keep.ravel()])
        world_from_cam = invert_pose(self.camera.cam_from_world)
        return (rays * self.depth[keep][:, None]) @ world_from_cam[:3, :3].T + world_from_cam[:3, 3]


def look(
    splats: Splats, camera: Camera, *, near: float = RasterConfig.near, backend: str = "auto", colour: bool = True
) -> View:
    """What the pinhole `camera` sees of `splats`. near: metres, of the rasteriser. Without `colour` it is black."""
    device = splats.means.device
    views = torch.tensor(camera.cam_from_world, dtype=torch.float32, device=device)[None]
    intrinsics = torch.tensor(camera.K, dtype=torch.float32, device=device)[None]

    def drawn(colors: torch.Tensor, degree: int | None) -> Rendering:
        return rasterize(
            splats.means, splats.quats, splats.scales, splats.opacities, colors, views, intrinsics, camera.width,
            camera.height, sh_degree=degree, config=RasterConfig(near=near), backend=backend,
        )  # fmt: skip

    with torch.no_grad():
        normals, offsets = _planes(splats, views[0])
        faced = drawn(normals, None)
        normal = faced.color[0].cpu().numpy().astype(np.float64)
        offset = drawn(offsets[:, None].expand(-1, 3).contiguous(), None).color[0, ..., 0].cpu().numpy()
        shown = drawn(splats.sh, sh_degree(splats.sh.shape[1])).color[0] if colour else torch.zeros_like(faced.color[0])
    alpha = faced.alpha[0].cpu().numpy()
    centres = faced.depth[0].cpu().numpy().astype(np.float64)
    depth = np.where(alpha >= OPAQUE, _plane_depth(camera, normal, offset, alpha, centres), np.nan)
    return View(camera, shown.cpu().numpy().clip(0.0, 1.0), depth, alpha < CLEAR)


def _planes(splats: Splats, cam_from_world: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(unit normals [N, 3] in the camera's frame, turned towards it; n . x of each Gaussian's plane [N], negative)."""
    axis = splats.scales.argmin(1)
    frames = quat_to_matrix(quat_normalize(splats.quats))  # [N, 3, 3]
    own = torch.gather(frames, 2, axis[:, None, None].expand(-1, 3, 1))[..., 0]
    normals = own @ cam_from_world[:3, :3].T
    centres = splats.means @ cam_from_world[:3, :3].T + cam_from_world[:3, 3]
    offsets = (normals * centres).sum(1)
    turn = torch.where(offsets > 0, -1.0, 1.0)
    return normals * turn[:, None], offsets * turn


def _plane_depth(camera: Camera, normal: Array, offset: Array, alpha: Array, centres: Array) -> Array:
    """[H, W] m: where the ray meets the blended plane of what it passes.

    A flat Gaussian counts with its own depth where the plain expected depth takes its centre's, which lies nearer on a
    slanted surface, where nearer Gaussians cover farther ones. With blended n and d = n . x, z = d / (n . ray).
    Where the plane is seen edge on, or would be far from the centres, theirs is kept.
    """
    rays = unproject(camera, pixel_centres(camera.width, camera.height)).reshape(*offset.shape, 3)
    slope = (normal * rays).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = offset / slope
    steep = -slope > EDGE_ON * alpha * np.linalg.norm(rays, axis=-1)
    return np.where(steep & (np.abs(depth - centres) < TRUSTED * centres), depth, centres)


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
