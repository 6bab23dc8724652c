"""The visible surface: on what is there, not on what only blends between two things."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from recon.geometry.camera import unproject
from sim2real.draw import static_splats
from sim2real.surface import bending, seen_surface
from tests.sim2real.conftest import BLOCK, TOP


def test_points_lie_on_the_table_the_block_or_the_far_surfaces(scene) -> None:
    points = seen_surface(static_splats(scene.gaussians), scene.rig)
    middle = (np.abs(points[:, :2]) < [0.45, 0.35]).all(axis=1)
    over = points[middle & (np.abs(points[:, 2]) < 0.4)]
    # splat depth is that of Gaussian centres: seen flat, it lies up to a spacing (12 mm here) in front
    table = np.abs(over[:, 2] - TOP) < 0.014
    assert abs(np.median(over[table, 2]) - TOP) < 0.008
    block = (np.abs(over - BLOCK) < 0.07).all(axis=1)
    assert table.sum() > 2000 and block.sum() > 50
    assert (table | block).mean() > 0.97


def test_test_cameras_do_not_look(scene) -> None:
    static = static_splats(scene.gaussians)
    cameras = {name: camera for name, camera in scene.rig.cameras.items() if scene.rig.roles[name] == "train"}
    without = replace(scene.rig, cameras=cameras, roles=dict.fromkeys(cameras, "train"))
    assert len(cameras) < len(scene.rig.cameras)
    assert np.array_equal(seen_surface(static, scene.rig), seen_surface(static, without))


def test_a_tilted_plane_is_straight_and_an_edge_is_not(scene) -> None:
    camera = scene.rig.cameras["cam00"].scaled(0.25)
    v, u = np.mgrid[0 : camera.height, 0 : camera.width]
    rays = unproject(camera, np.stack([u, v], axis=-1).reshape(-1, 2) + 0.5)
    normal = np.array([0.1, -0.8, 0.5])
    depth = (0.6 / (rays @ normal)).reshape(camera.height, camera.width)
    depth[depth < 0] = np.nan
    seen = np.isfinite(depth[1:-1, 1:-1])
    assert np.isinf(bending(depth)[0]).all() and seen.sum() > 500
    inner = bending(depth)[1:-1, 1:-1]
    assert np.nanmax(np.where(np.isfinite(inner), inner, np.nan)) < 1e-9
    depth[:, 40:] -= 0.1 * np.nanmin(depth)
    assert (bending(depth)[-10:-1, 39:41] > 0.005).all()


def test_a_scene_that_is_too_thin_shows_nothing(scene) -> None:
    static = static_splats(scene.gaussians)
    thin = replace(static, opacities=torch.full_like(static.opacities, 0.05))
    assert seen_surface(thin, scene.rig) == pytest.approx(np.zeros((0, 3)))
