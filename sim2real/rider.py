"""Cameras that ride on bodies: nothing stands still before them, so every picture is drawn whole."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from recon.geometry.camera import Camera
from recon.geometry.pose import invert_pose
from recon.geometry.sh import sh_degree
from recon.render.backends import CPU, select_name
from recon.render.stage import Gaussians, Pictures, Worlds, draw_anew
from recon.render.types import Rendering
from sim2real.draw import (
    RASTER,
    Floats,
    Movers,
    Painter,
    Poses,
    Splats,
    as_bytes,
    each_world,
    make_view,
    one_world,
    pinhole_of,
)  # fmt: skip


class Rider:
    """Draws through a camera that a body carries.

    camera: pinhole, its cam_from_world being cam_from_body. body: row of MuJoCo's tables. `render` is the slow twin.
    """

    def __init__(self, camera: Camera, body: int, static: Splats, movers: Movers, backend: str = "auto") -> None:
        self.camera, self.body, self.static, self.movers, self.backend = camera, body, static, movers, backend
        self.native = select_name(backend, static.means.device, static.means.dtype) == CPU

    def at(self, poses: Poses) -> Camera:
        """The camera where its body has carried it."""
        world_from_body = np.eye(4)
        world_from_body[:3, :3] = poses.matrices[self.body].reshape(3, 3)
        world_from_body[:3, 3] = poses.positions[self.body]
        return replace(self.camera, cam_from_world=self.camera.cam_from_world @ invert_pose(world_from_body))

    @cached_property
    def _still(self) -> Gaussians:
        g = self.static
        return Gaussians(g.means, g.quats, g.scales, g.opacities, g.sh.contiguous(), sh_degree(g.sh.shape[1]))

    def render(self, poses: Poses) -> Rendering:
        """One picture by way of a fixed camera that stands there."""
        view = make_view(self.at(poses), self.static, cull=False, backend=self.backend)
        return Painter(view, self.movers, self.backend).render(poses)

    def draw(self, worlds: Worlds, *kinds: str) -> Pictures:
        """Pictures of many worlds, natively."""
        cameras = [pinhole_of(camera) for camera in self.cameras(worlds)]
        return draw_anew(self._still, self.movers.native, worlds, cameras, RASTER, *kinds)

    def shown(self, poses: Poses) -> torch.Tensor:
        """[H, W, 3] float32 the picture before it is cut to bytes."""
        if not self.native:
            return self.render(poses).color[0]
        made = self.draw(one_world(poses), "color").color
        assert made is not None
        return torch.from_numpy(made[0])

    def picture(self, poses: Poses) -> NDArray[np.uint8]:
        """[H, W, 3] uint8 sRGB."""
        return self.pictures(one_world(poses))[0]

    def pictures(self, worlds: Worlds) -> NDArray[np.uint8]:
        """[E, H, W, 3] the same of many worlds."""
        if self.native:
            made = self.draw(worlds, "rgb").rgb
            assert made is not None
            return made
        return np.stack([as_bytes(self.shown(world)) for world in each_world(worlds)])

    def depths(self, worlds: Worlds) -> Floats:
        """[E, H, W] m along the optical axis of what is seen; 0 where nothing is."""
        if self.native:
            made = self.draw(worlds, "depth").depth
            assert made is not None
            return made
        return np.stack([self.render(world).depth[0].cpu().numpy() for world in each_world(worlds)])

    def blended(self, worlds: Worlds, still: Floats, values: Floats) -> tuple[Floats, Floats]:
        """As Painter.blended; `still` [3] or [N, 3]."""
        made = []
        for world in each_world(worlds):
            view = make_view(self.at(world), self.static, cull=False, backend=self.backend)
            rows = np.tile(still, (len(self.static), 1)) if still.ndim == 1 else still
            made.append(Painter(view, self.movers, self.backend).blended(one_world(world), rows, values))
        color, alpha = (np.concatenate(a) for a in zip(*made, strict=True))
        return color, alpha

    def cameras(self, worlds: Worlds) -> list[Camera]:
        """Where the camera is in each world."""
        return [self.at(world) for world in each_world(worlds)]
