"""The visual hull holds the thing, little else, and knows its colours."""

from __future__ import annotations

import numpy as np

from recon.fit.hull import hull_surface, search_volume, surface_colours, visual_hull
from tests.recon.fit.tiny import BALL, ball_center, ray_trace, ring_of_cameras

CELL = 0.03


def hull_at(t: float) -> tuple[np.ndarray, list]:
    cameras = ring_of_cameras(8)
    masks = [ray_trace(camera, t)[1] for camera in cameras]
    volume = search_volume(cameras, np.zeros((0, 3)))
    return visual_hull(masks, cameras, volume, CELL), cameras


def test_the_hull_covers_the_ball_and_not_much_more() -> None:
    cells, _ = hull_at(0.4)
    distance = np.linalg.norm(cells - ball_center(0.4), axis=1)
    inside = (distance < BALL).sum() * CELL**3
    assert inside > 0.75 * 4 / 3 * np.pi * BALL**3  # the picture's pixels are 3 cm wide at the ball
    assert (distance < BALL + 3 * CELL).mean() > 0.95


def test_nothing_moving_gives_no_hull() -> None:
    cameras = ring_of_cameras(5)
    empty = [np.zeros((camera.height, camera.width), dtype=bool) for camera in cameras]
    assert len(visual_hull(empty, cameras, search_volume(cameras, np.zeros((0, 3))), CELL)) == 0


def test_the_surface_of_a_block_is_its_outer_shell() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(5)] * 3, indexing="ij"), -1).reshape(-1, 3) * CELL
    shell = hull_surface(grid, CELL)
    assert shell.sum() == 5**3 - 3**3
    assert not shell[np.all((grid > 0.5 * CELL) & (grid < 3.5 * CELL), axis=1)].any()


def test_surface_colours_come_from_the_cameras_that_see_the_cell() -> None:
    cells, cameras = hull_at(0.4)
    surface = cells[hull_surface(cells, CELL)]
    pictures, masks = zip(*[ray_trace(camera, 0.4) for camera in cameras], strict=True)
    colours, count = surface_colours(surface, CELL, list(pictures), list(masks), cameras)
    assert np.abs(colours[count > 0] - [0.85, 0.15, 0.1]).max() < 0.01
    above = surface[:, 2] > BALL
    assert (count[above] >= 1).all() and (count[above] < len(cameras)).any()
