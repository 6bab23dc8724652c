"""Fill points: the interpolation, where they go, and where they may not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.calibrate.cloud import Points
from recon.calibrate.fill import fill_points, push_pull, splat_inverse_depth
from recon.calibrate.points import initial_points
from recon.core.errors import InputError
from recon.geometry.camera import Camera, project
from tests.recon.calibrate.textured import FLOOR, distance_to_surface, plates, rig


def on_floor(count: int, seed: int = 0) -> Points:
    """Points on the floor but for a hole of 0.5 m radius."""
    xy = np.random.default_rng(seed).uniform(FLOOR[0], FLOOR[1], (count, 2))
    xy = xy[np.hypot(*xy.T) > 0.5]
    rows = len(xy)
    return Points(np.c_[xy, np.zeros(rows)], np.full((rows, 3), 80, np.uint8), np.full(rows, 3), np.zeros(rows))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**31))
def test_push_pull_keeps_known_values_and_stays_between_them(height: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(1, 2, (height, width))
    known = rng.uniform(size=(height, width)) < 0.2
    known[rng.integers(height), rng.integers(width)] = True
    filled = push_pull(np.where(known, values, -99.0), known)
    assert np.array_equal(filled[known], values[known])
    assert filled.min() >= values[known].min() - 1e-9
    assert filled.max() <= values[known].max() + 1e-9


def test_the_hole_in_a_floor_is_filled_at_its_height() -> None:
    cameras = rig(4)
    grey = {name: np.full((180, 240, 3), 80, np.uint8) for name in cameras}
    points = fill_points(grey, cameras, None, on_floor(60_000), 4000, np.random.default_rng(0))
    hole = points.xyz[np.hypot(points.xyz[:, 0], points.xyz[:, 1]) < 0.45]
    assert len(hole) > 200
    assert np.median(np.abs(hole[:, 2])) < 0.05
    assert (points.rgb == 80).all()
    assert (points.views == 1).all()
    assert len(points) <= 4000


def test_no_fill_point_hangs_in_front_of_a_measured_surface() -> None:
    cameras = rig(4)
    grey = {name: np.full((180, 240, 3), 80, np.uint8) for name in cameras}
    surface = on_floor(60_000)
    points = fill_points(grey, cameras, None, surface, 10**6, np.random.default_rng(0))
    for camera in cameras.values():
        small = camera.scaled(160 / camera.width)
        inverse = splat_inverse_depth(small, surface.xyz)
        uv, z = project(small, points.xyz)
        inside = (z > 0) & (uv >= 0).all(1) & (uv < [small.width, small.height]).all(1)
        column, row = uv[inside].astype(int).T
        assert not ((inverse[row, column] > 0) & (z[inside] * inverse[row, column] < 0.94)).any()


def test_without_any_surface_the_rigs_size_gives_the_depth() -> None:
    cameras = rig(3)
    grey = {name: np.full((180, 240, 3), 80, np.uint8) for name in cameras}
    empty = Points(np.empty((0, 3)), np.empty((0, 3), np.uint8), np.empty(0, np.int64), np.empty(0))
    points = fill_points(grey, cameras, None, empty, 500, np.random.default_rng(0))
    assert len(points) == 500
    assert np.isfinite(points.xyz).all()


def test_initial_points_are_on_the_surfaces_and_repeatable() -> None:
    cameras = rig(4)
    pictures = plates(cameras)
    arguments = (list(pictures.values()), list(cameras.values()))
    xyz, rgb = initial_points(*arguments, max_points=8000, max_fill=500)
    assert xyz.shape == rgb.shape
    assert 4000 < len(xyz) <= 8500
    assert rgb.dtype == np.uint8
    assert np.median(distance_to_surface(xyz)) < 0.01
    again, _ = initial_points(*arguments, max_points=8000, max_fill=500)
    assert np.array_equal(xyz, again)


def test_one_camera_gives_no_depth() -> None:
    one: Camera = rig(2)["c0"]
    with pytest.raises(InputError, match="1 camera gives no depth"):
        initial_points([np.zeros((180, 240, 3), np.uint8)], [one])
