"""Plane sweep: dense, on the surfaces, through its formulas and against its obvious twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.calibrate.cloud import Points, thin
from recon.calibrate.sweep import _best_two, _peak, depth_maps, depth_range, homography, sweep_points
from recon.geometry.camera import Camera, project
from tests.recon.calibrate.textured import BOARD_HEIGHT, distance_to_surface, plates, rig


@pytest.fixture(scope="module")
def swept() -> Points:
    cameras = rig()
    return sweep_points(plates(cameras), cameras, width=160)


def test_dense_points_lie_on_the_surfaces(swept: Points) -> None:
    off = distance_to_surface(swept.xyz)
    assert len(swept) > 15_000
    assert np.median(off) < 0.01  # a pixel covers 13 mm
    assert np.percentile(off, 95) < 0.03
    assert (np.abs(swept.xyz[:, 2] - BOARD_HEIGHT) < 0.02).sum() > 1_000
    assert (swept.views >= 3).all()


def test_dense_points_cover_the_board(swept: Points) -> None:
    on_board = swept.xyz[np.abs(swept.xyz[:, 2] - BOARD_HEIGHT) < 0.02]
    cells = np.floor((on_board[:, :2] - [-0.3, -0.25]) / 0.05).astype(int)
    inside = ((cells >= 0) & (cells < [10, 11])).all(axis=1)
    assert len(np.unique(cells[inside], axis=0)) > 0.9 * 110


def test_depth_maps_match_the_exact_depth() -> None:
    cameras = rig(4)
    for name, found in depth_maps(plates(cameras), cameras, width=160).items():
        camera = found.camera
        rows, columns = np.nonzero(found.depth)
        rays = np.stack(
            [(columns + 0.5 - camera.cx) / camera.fx, (rows + 0.5 - camera.cy) / camera.fy, np.ones(len(rows))], 1
        )
        world = rays @ camera.cam_from_world[:3, :3]  # R^T r per row
        exact = np.full(len(rows), np.inf)
        for z, half in ((0.0, 9.0), (BOARD_HEIGHT, 1.0)):
            depth = (z - camera.center[2]) / world[:, 2]
            at = camera.center + depth[:, None] * world
            on = (at[:, 0] > -0.3) & (at[:, 0] < 0.2) & (at[:, 1] > -0.25) & (at[:, 1] < 0.3) | (half > 1)
            exact = np.where(on & (depth < exact), depth, exact)
        assert len(rows) > 0.3 * camera.width * camera.height, name
        assert np.median(np.abs(found.depth[rows, columns] - exact)) < 0.03  # 1 % of the distance, before any vote


@given(st.floats(0.5, 4.0), st.integers(0, 2**31))
def test_the_homography_maps_points_of_its_plane(depth: float, seed: int) -> None:
    a, b = list(rig().values())[:2]
    rng = np.random.default_rng(seed)
    local = np.c_[rng.uniform(-0.3, 0.3, (5, 2)), np.ones(5)] * depth
    world = (np.c_[local, np.ones(5)] @ np.linalg.inv(a.cam_from_world).T)[:, :3]
    uv_a, uv_b = project(a, world)[0], project(b, world)[0]
    mapped = np.c_[uv_a - 0.5, np.ones(5)] @ homography(a, b, depth).T
    assert np.allclose(mapped[:, :2] / mapped[:, 2:], uv_b - 0.5, atol=1e-6)


@given(st.integers(1, 6), st.integers(0, 2**31))
def test_best_two_equals_sorting(count: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(count, 4, 5)).astype(np.float32)
    assert np.allclose(_best_two(scores), np.sort(scores, axis=0)[-2:].mean(axis=0), atol=1e-6)


def test_a_peak_between_planes_is_found_with_its_margin() -> None:
    inverse = np.linspace(0.5, 2.0, 31)
    true = 1.113
    curve = (1 - 30 * (inverse - true) ** 2).astype(np.float32)
    curve[2] = 0.4
    volume = np.maximum(curve, -1).reshape(31, 1, 1).repeat(2, axis=2)
    depth, score, margin = _peak(volume, inverse)
    assert 1 / depth == pytest.approx(np.full((1, 2), true), abs=1e-3)
    far = np.abs(np.arange(31) - int(curve.argmax())) > 2
    assert margin == pytest.approx(np.full((1, 2), curve.max() - curve[far].max()), abs=1e-5)
    edge = np.linspace(1, 0, 31, dtype=np.float32).reshape(31, 1, 1)
    assert _peak(edge, inverse)[2][0, 0] == -1


def test_the_depth_range_follows_the_seeds_or_the_rig() -> None:
    cameras = list(rig().values())
    camera: Camera = cameras[0]
    near, far = depth_range(camera, cameras, None)
    assert near < 2.0 < far
    world = np.array([camera.center + camera.cam_from_world[2, :3] * z for z in np.linspace(1.8, 2.4, 50)])
    seeds = Points(world, np.zeros((50, 3), np.uint8), np.full(50, 2), np.zeros(50))
    near, far = depth_range(camera, cameras, seeds)
    assert 1.2 < near < 1.3
    assert 3.5 < far < 3.7


def test_thinning_keeps_the_best_of_each_cell() -> None:
    rng = np.random.default_rng(0)
    xyz = rng.uniform(0, 1, (5000, 3))
    points = Points(xyz, np.zeros((5000, 3), np.uint8), np.full(5000, 3), rng.uniform(size=5000))
    few = thin(points, 500)
    assert 300 < len(few) <= 500
    assert few.error.mean() < 0.5 * points.error.mean()
    assert thin(points, 5000) is points
