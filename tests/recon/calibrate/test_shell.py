"""The far surface: known rooms, holes in them, and rays against plain geometry."""

from __future__ import annotations

import numpy as np
import pytest

from recon.calibrate.cloud import Points
from recon.calibrate.shell import Shell, backdrop, fit_shell, sphere_directions
from recon.geometry.camera import Camera
from tests.recon.fit.tiny import ring_of_cameras


def as_points(xyz: np.ndarray, rgb: tuple[int, int, int] = (120, 130, 140)) -> Points:
    count = len(xyz)
    return Points(xyz, np.tile(np.array(rgb, np.uint8), (count, 1)), np.full(count, 3), np.zeros(count))


def ball(radius: float, count: int = 40_000) -> np.ndarray:
    """Points on a sphere round the ring's middle."""
    return middle() + radius * sphere_directions(count)


def middle() -> np.ndarray:
    return np.mean([camera.center for camera in ring_of_cameras()], axis=0)


def room(count: int, rng: np.random.Generator) -> np.ndarray:
    """Points on the six walls of a cube of 6 m round the ring's middle."""
    points = rng.uniform(-3, 3, (count, 3))
    axis = rng.integers(0, 3, count)
    points[np.arange(count), axis] = rng.choice([-3.0, 3.0], count)
    return middle() + points


def distance(shell: Shell, directions: np.ndarray) -> np.ndarray:
    return 1.0 / shell.inverse(directions)


def test_a_sphere_is_found_through_noise_strays_and_things_in_the_room() -> None:
    rng = np.random.default_rng(0)
    wall = ball(4.0) + rng.normal(0, 0.02, (40_000, 3))
    things = middle() + rng.uniform(-1, 1, (4000, 3))
    strays = middle() + 8.0 * sphere_directions(300)
    shell = fit_shell(np.concatenate([wall, things, strays]), ring_of_cameras())
    assert shell is not None
    found = distance(shell, sphere_directions(5000))
    assert np.abs(found / 4.0 - 1.0).max() < 0.05


def test_walls_go_on_as_planes_where_nothing_was_measured() -> None:
    points = room(120_000, np.random.default_rng(1))
    offset = points - middle()
    hole = (offset[:, 0] > 2.99) & (np.abs(offset[:, 1]) < 0.8) & (np.abs(offset[:, 2]) < 0.8)
    shell = fit_shell(points[~hole], ring_of_cameras())
    assert shell is not None
    grid = np.stack(np.meshgrid([3.0], np.linspace(-0.7, 0.7, 9), np.linspace(-0.7, 0.7, 9)), -1).reshape(-1, 3)
    unit = grid / np.linalg.norm(grid, axis=1, keepdims=True)
    assert np.abs(distance(shell, unit) / np.linalg.norm(grid, axis=1) - 1.0).max() < 0.03


def test_depths_are_where_the_rays_meet_the_surface() -> None:
    shell = fit_shell(ball(4.0), ring_of_cameras())
    assert shell is not None
    camera = ring_of_cameras()[1]
    v, u = np.mgrid[: camera.height, : camera.width] + 0.5
    local = np.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, np.ones_like(u)], -1)
    rays = local @ camera.cam_from_world[:3, :3]
    # |o + z d - c|^2 = 16
    o = camera.center - middle()
    a, b, c = (rays**2).sum(-1), rays @ o, o @ o - 16.0
    depth = (-b + np.sqrt(b * b - a * c)) / a
    assert np.abs(shell.inverse_depth(camera, 0.1) * depth - 1.0).max() < 0.05


def test_a_camera_outside_looks_through_the_near_side() -> None:
    shell = fit_shell(ball(2.0), ring_of_cameras())
    assert shell is not None
    pose = np.eye(4)
    pose[:3, 3] = [0.0, 0.0, 5.0] - middle()  # 5 m before the middle, looking at it
    camera = Camera(name="out", width=16, height=16, fx=64.0, fy=64.0, cx=8.0, cy=8.0, cam_from_world=pose)
    assert 1.0 / shell.inverse_depth(camera, 0.1)[8, 8] == pytest.approx(7.0, rel=0.05)


def test_cameras_side_by_side_see_no_wall_before_their_faces() -> None:
    """Four cameras in a row of 0.3 m look at a wall 3 m away: what they do not see is not nearer than that."""
    cameras = []
    for k in range(4):
        pose = np.eye(4)
        pose[0, 3] = -0.1 * k
        cameras.append(Camera(f"c{k}", 64, 48, 60.0, 60.0, 32.0, 24.0, cam_from_world=pose))
    wall = np.concatenate([np.random.default_rng(2).uniform(-1.5, 1.5, (20_000, 2)), np.full((20_000, 1), 3.0)], axis=1)
    shell = fit_shell(wall, cameras)
    assert shell is not None
    assert distance(shell, sphere_directions(5000)).min() > 2.8
    assert np.abs(1.0 / shell.inverse_depth(cameras[1], 0.1)[16:32, 24:40] / 3.0 - 1.0).max() < 0.03


def test_too_little_gives_no_surface() -> None:
    assert fit_shell(np.zeros((0, 3)), ring_of_cameras()) is None
    assert fit_shell(ball(3.0, 40), ring_of_cameras()) is None


def test_the_backdrop_covers_the_bare_part_alone_in_the_colours_round_it() -> None:
    points = ball(4.0)
    up = (points - middle())[:, 2] > 2.5
    shell = fit_shell(points[~up], ring_of_cameras())
    assert shell is not None
    seen = as_points(points[~up], (200, 100, 50))
    found = backdrop(shell, seen).points
    assert len(found) > 100
    assert ((found.xyz - middle())[:, 2] > 2.0).all()
    assert np.abs(found.rgb.astype(int) - [200, 100, 50]).max() <= 1
    assert len(backdrop(shell, as_points(points)).points) == 0
