"""The z-buffer against a ray caster that tries every triangle at every pixel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.geometry.camera import Camera, unproject
from recon.geometry.pose import look_at
from recon.robot import RobotModel, draw_robot, link_ids, rasterize_triangles, silhouette
from recon.robot.silhouettes import NEAR_M

LENSES = [(0.0,) * 5, (-0.15, 0.04, 0.001, -0.002, 0.0), (0.1, -0.02, 0.0, 0.0, 0.0)]


def cast_twin(triangles: np.ndarray, camera: Camera, near: float = NEAR_M) -> tuple[np.ndarray, np.ndarray]:
    """(depth, triangle) [H, W] by Moeller and Trumbore's test of every triangle at every pixel."""
    v, u = np.mgrid[0 : camera.height, 0 : camera.width] + 0.5
    rays = unproject(camera, np.column_stack([u.ravel(), v.ravel()]))
    depth, index = np.full(len(rays), np.inf), np.full(len(rays), -1)
    for t, (a, b, c) in enumerate(triangles):
        edge1, edge2 = b - a, c - a
        p = np.cross(rays, edge2)
        with np.errstate(all="ignore"):
            inverse = 1 / (p @ edge1)
            bu = (p @ -a) * inverse
            q = np.cross(-a, edge1)
            bv = (rays @ q) * inverse
            z = (q @ edge2) * inverse
            hit = (bu >= 0) & (bv >= 0) & (bu + bv <= 1) & (z >= near) & (z < depth)
        depth[hit], index[hit] = z[hit], t
    shape = (camera.height, camera.width)
    return np.where(index >= 0, depth, 0).reshape(shape), index.reshape(shape)


def agree(triangles: np.ndarray, camera: Camera) -> None:
    picture = rasterize_triangles(triangles, camera)
    depth, index = cast_twin(triangles, camera)
    differ = (picture.triangles != index) & (np.abs(picture.depth - depth) > 1e-5 * np.maximum(depth, 1e-3))
    assert differ.sum() <= 1  # a pixel centre exactly on an edge may round either way
    same = ~differ
    np.testing.assert_allclose(picture.depth[same], depth[same], rtol=1e-5)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from(LENSES), st.floats(0.02, 3.0))
def test_random_triangles_equal_the_ray_caster(seed: int, lens: tuple, size: float) -> None:
    rng = np.random.default_rng(seed)
    camera = Camera("c", 48, 36, 40.0, 42.0, 23.0, 19.0, lens)  # type: ignore[arg-type]
    middles = rng.uniform([-1, -1, -0.2], [1, 1, 3], (20, 3))  # some behind, some across the near plane
    agree(middles[:, None] + rng.normal(0, size, (20, 3, 3)), camera)


@pytest.mark.parametrize("lens", LENSES)
def test_huge_triangles_and_near_ones(lens: tuple) -> None:
    camera = Camera("c", 64, 48, 60.0, 60.0, 32.0, 24.0, lens)
    floor = np.array([[[-50, 0.5, -50], [50, 0.5, -50], [0, 0.5, 200]], [[-1, -1, 0.021], [1, -1, 0.021], [0, 2, 0.9]]])
    agree(floor.astype(float), camera)


def test_shared_edges_leave_no_gap() -> None:
    rng = np.random.default_rng(0)
    xs, ys = np.meshgrid(np.linspace(-3, 3, 40), np.linspace(-3, 3, 40))
    grid = np.stack([xs, ys, 2 + 0.2 * rng.random(xs.shape)], axis=-1)
    a, b, c, d = grid[:-1, :-1], grid[:-1, 1:], grid[1:, :-1], grid[1:, 1:]
    triangles = np.concatenate([np.stack([a, b, c], 2).reshape(-1, 3, 3), np.stack([b, d, c], 2).reshape(-1, 3, 3)])
    assert rasterize_triangles(triangles, Camera("c", 160, 120, 120.0, 120.0, 80.0, 60.0)).mask.all()


def test_nothing_and_nonsense_draw_nothing() -> None:
    camera = Camera("c", 16, 12, 12.0, 12.0, 8.0, 6.0)
    assert not rasterize_triangles(np.empty((0, 3, 3)), camera).mask.any()
    nonsense = np.full((3, 3, 3), np.nan)
    nonsense[1] = [[0, 0, -1], [1, 0, -1], [0, 1, -1]]
    nonsense[2] = 1.0  # a point
    assert not rasterize_triangles(nonsense, camera).mask.any()


@pytest.mark.parametrize("lens", LENSES)
def test_the_arm_equals_the_ray_caster(arm: RobotModel, lens: tuple) -> None:
    pose = look_at(np.array([1.1, -0.6, 0.6]), np.array([0.1, 0.0, 0.3]))
    camera = Camera("c", 40, 30, 34.0, 34.0, 20.0, 15.0, lens, pose)
    world_from_base = np.eye(4)
    world_from_base[:3, 3] = [0.05, -0.1, 0.02]
    q = dict(arm.home, joint1=0.4)
    picture = draw_robot(arm, q, camera, world_from_base)
    triangles, owner = [], []
    for name, link_pose in arm.link_poses(q, world_from_base).items():
        cam_from_link = pose @ link_pose
        corners = arm.links[name].triangles @ cam_from_link[:3, :3].T + cam_from_link[:3, 3]
        triangles.append(corners)
        owner += [link_ids(arm)[name]] * len(corners)
    depth, index = cast_twin(np.concatenate(triangles), camera)
    assert 40 < (index >= 0).sum() < 1000
    np.testing.assert_allclose(picture.depth, depth, rtol=1e-5)
    np.testing.assert_array_equal(picture.links, np.where(index >= 0, np.array(owner)[index], 0))
    np.testing.assert_array_equal(silhouette(arm, q, camera, world_from_base), index >= 0)
    assert set(np.unique(picture.links)) <= {0, *link_ids(arm).values()}
