"""The bench found in Gaussians: its table, what stands on it, what must be left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recon.core.errors import InputError
from sim2real.bench import Box, carve, find_bench


def _plane(rng, size, z, count, yaw=0.0, centre=(0.0, 0.0)):
    xy = rng.uniform(-0.5, 0.5, (count, 2)) * size
    c, s = math.cos(yaw), math.sin(yaw)
    xy = xy @ np.array([[c, s], [-s, c]]) + centre
    return np.column_stack([xy, np.full(count, z) + rng.normal(0, 5e-4, count)])


def _bench(points, near=(0.0, 0.0)):
    return find_bench(points, near)


@pytest.mark.parametrize("yaw_deg", [0, 21, -30])
def test_table_rectangle_is_found_at_its_height_and_angle(yaw_deg: float) -> None:
    rng = np.random.default_rng(1)
    bench = _bench(_plane(rng, (1.2, 0.7), 0.004, 8000, math.radians(yaw_deg), (0.1, -0.2)))
    assert bench.top == pytest.approx(0.004, abs=1e-3)
    assert bench.table.center[:2] == pytest.approx((0.1, -0.2), abs=0.02)
    sides = sorted(2 * h for h in bench.table.half[:2])
    assert sides == pytest.approx([0.7, 1.2], abs=0.06)
    assert math.cos(4 * (bench.table.yaw - math.radians(yaw_deg))) > 0.99  # modulo a quarter turn
    assert bench.boxes == ()


def test_the_table_under_the_robot_wins_over_a_larger_one_far_away() -> None:
    rng = np.random.default_rng(2)
    points = np.concatenate([_plane(rng, (0.8, 0.8), 0.0, 4000), _plane(rng, (2, 2), 0.0, 9000, centre=(3.0, 0.0))])
    assert _bench(points).table.center[:2] == pytest.approx((0, 0), abs=0.03)


def test_a_block_becomes_boxes_and_floaters_do_not() -> None:
    rng = np.random.default_rng(3)
    table = _plane(rng, (1.2, 0.8), 0.0, 8000)
    sides = np.column_stack([np.full(300, 0.25), rng.uniform(0.1, 0.2, 300), rng.uniform(0, 0.12, 300)])
    other = np.column_stack([rng.uniform(0.25, 0.35, 300), np.full(300, 0.1), rng.uniform(0, 0.12, 300)])
    lid = np.column_stack([rng.uniform(0.25, 0.35, 400), rng.uniform(0.1, 0.2, 400), np.full(400, 0.12)])
    floaters = np.column_stack([rng.uniform(-0.4, -0.1, (60, 2)), rng.uniform(0.2, 0.5, 60)])
    bench = _bench(np.concatenate([table, sides, other, lid, floaters]))
    inside = np.array([[0.3, 0.15, 0.06], [0.27, 0.12, 0.1], [0.34, 0.19, 0.1]])
    assert all(any(box.contains(p[None])[0] for box in bench.boxes) for p in inside)
    outside = np.array([[-0.25, -0.25, 0.3], [-0.25, -0.25, 0.05], [0.3, 0.3, 0.05], [0.3, 0.15, 0.2]])
    assert not any(box.contains(outside).any() for box in bench.boxes)


def test_carving_removes_only_what_reaches_into_the_volume() -> None:
    rng = np.random.default_rng(4)
    bench = _bench(_plane(rng, (1, 1), 0.0, 5000))
    boxes = (Box((0.3, 0, 0.05), (0.05, 0.05, 0.05)), Box((-0.3, 0, 0.05), (0.05, 0.05, 0.05)))
    carved = carve(type(bench)(bench.table, boxes), np.array([0.2, -0.1, 0.0]), np.array([0.4, 0.1, 0.5]))
    assert carved.boxes == boxes[1:]


def test_a_scene_without_a_table_is_refused() -> None:
    rng = np.random.default_rng(5)
    with pytest.raises(InputError, match="no table surface was found near z = 0"):
        _bench(rng.uniform(0.5, 1.5, (2000, 3)))
