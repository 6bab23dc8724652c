"""Semi-global matching: the recursion against a slow twin, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.calibrate.sgm import DIRECTIONS, EDGE, JUMP, SLANT, semi_global


def path_costs(cost: np.ndarray, grey: np.ndarray, step: tuple[int, int]) -> np.ndarray:
    """L_r [D, h, w], one pixel and one plane at a time, along the path of each pixel.

    A path starts with the cost alone where it enters the picture.
    """
    planes, height, width = cost.shape
    out = np.zeros(cost.shape)
    rows = range(height) if step[0] >= 0 else range(height - 1, -1, -1)
    columns = range(width) if step[1] >= 0 else range(width - 1, -1, -1)
    for y in rows:
        for x in columns:
            py, px = y - step[0], x - step[1]
            if not (0 <= py < height and 0 <= px < width):
                out[:, y, x] = cost[:, y, x]
                continue
            before = out[:, py, px]
            difference = abs(float(grey[y, x]) - float(grey[py, px]))
            jump = max(2 * SLANT, JUMP * EDGE / (EDGE + difference))
            for d in range(planes):
                choices = [before[d], before.min() + jump]
                if d > 0:
                    choices.append(before[d - 1] + SLANT)
                if d + 1 < planes:
                    choices.append(before[d + 1] + SLANT)
                out[d, y, x] = cost[d, y, x] + min(choices) - before.min()
    return out


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_the_sum_of_path_costs_equals_the_slow_recursion(planes: int, height: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.random((planes, height, width)).astype(np.float32)
    grey = rng.uniform(0, 60, (height, width)).astype(np.float32)
    expected = sum(path_costs(cost, grey, step) for step in DIRECTIONS)
    assert np.allclose(semi_global(cost, grey), expected, atol=1e-4)


def test_the_eight_directions_are_all_neighbours() -> None:
    assert sorted(DIRECTIONS) == sorted((y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0))


def plain_strip(grey_step: float) -> tuple[np.ndarray, np.ndarray]:
    """A picture whose left part is at plane 2 and right part at plane 7; between them nothing tells the planes apart.

    The grey level jumps by `grey_step` at column 22 of 40.
    """
    cost = np.full((10, 12, 40), 0.5, np.float32)
    cost[2, :, :8] = 0.0
    cost[7, :, 32:] = 0.0
    grey = np.full((12, 40), 50.0, np.float32)
    grey[:, 22:] += grey_step
    return cost, grey


def test_plain_areas_take_the_depth_of_their_borders_and_jump_at_an_edge() -> None:
    cost, grey = plain_strip(150.0)
    top = semi_global(cost, grey).argmin(axis=0)
    assert (top[:, :22] == 2).all()
    assert (top[:, 22:] == 7).all()


def test_without_an_edge_the_jump_is_elsewhere() -> None:
    """The same volume under a plain picture: it was the edge of the picture that placed the jump."""
    top = semi_global(*plain_strip(0.0)).argmin(axis=0)
    assert (top[:, :8] == 2).all()
    assert (top[:, 32:] == 7).all()
    assert top[6, 22] == 2


def test_a_gentle_slant_is_followed_through_noise() -> None:
    rng = np.random.default_rng(3)
    planes, height, width = 16, 24, 60
    truth = np.linspace(5, 8, width)[None] + np.zeros((height, 1))
    distance = np.abs(np.arange(planes)[:, None, None] - truth[None])
    cost = np.clip(0.25 * distance + rng.normal(0, 0.2, (planes, height, width)), 0, 2).astype(np.float32)
    grey = np.full((height, width), 90.0, np.float32)
    alone = np.mean(np.abs(cost.argmin(axis=0) - truth) > 1.0)
    joined = np.mean(np.abs(semi_global(cost, grey).argmin(axis=0) - truth) > 1.0)
    assert alone > 0.1
    assert joined < 0.6 * alone


def test_one_plane_has_nothing_to_choose() -> None:
    cost = np.random.default_rng(0).random((1, 5, 7)).astype(np.float32)
    total = semi_global(cost, np.zeros((5, 7), np.float32))
    assert total == pytest.approx(len(DIRECTIONS) * cost, abs=1e-5)
