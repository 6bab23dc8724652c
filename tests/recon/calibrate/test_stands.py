"""Poles under the cameras of a drawn room: placed to millimetres, not claimed where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from recon.calibrate.dense import WEIGHTS, DepthPrior
from recon.calibrate.stands import Stand, find_stands, standing, with_stands
from recon.calibrate.unrolled import unroll
from recon.geometry.camera import Camera, project
from recon.geometry.pose import look_at
from tests.recon.calibrate.boxroom import POLE, BoxRoom, stand_of


@pytest.fixture(scope="module")
def stands() -> list[Stand]:
    return find_stands(*BoxRoom(0.35, stands=True).seen())


def test_an_upright_line_is_one_column() -> None:
    pose = look_at(np.array([1.0, 0.2, 0.7]), np.array([0.0, 0.0, 0.1]))
    camera = Camera("c", 240, 180, 170.0, 170.0, 120.0, 90.0, cam_from_world=pose)
    heights = np.linspace(-0.2, 0.4, 7)
    line = np.c_[np.full(7, -0.3), np.full(7, 0.25), heights]
    plate = np.zeros((180, 240, 3), np.uint8)
    at = np.floor(project(camera, line)[0]).astype(int)
    plate[at[:, 1], at[:, 0]] = 255
    view = unroll(plate, np.ones((180, 240), bool), camera)
    assert view is not None
    azimuth = np.arctan2(0.25 - 0.2, -0.3 - 1.0)
    rise = (heights - 0.7) / np.hypot(1.3, 0.05)
    for one in rise:
        row = int(np.argmin(np.abs(view.rises - one)))
        near = view.picture[row - 1 : row + 2].max(axis=(0, 2))
        assert abs(int(near.argmax()) - view.column(azimuth)) <= 2.5


def test_poles_are_placed_to_millimetres(stands: list[Stand]) -> None:
    cameras = BoxRoom(0.35).cameras()
    assert len(stands) >= 5
    off = [np.linalg.norm(stand.place - stand_of(cameras[stand.camera])) for stand in stands]
    assert max(off) < 0.012
    assert np.median(off) < 0.006
    assert np.median([stand.radius for stand in stands]) == pytest.approx(POLE, abs=0.006)
    for stand in stands:
        assert stand.high == pytest.approx(cameras[stand.camera].center[2])
        assert stand.colours.mean() < 0.35  # they are dark, the walls are not


def test_a_room_without_poles_has_none() -> None:
    assert find_stands(*BoxRoom(0.35).seen()) == []


def test_points_lie_on_the_poles(stands: list[Stand]) -> None:
    points = standing(stands[:1], 0.02)
    stand = stands[0]
    assert np.linalg.norm(points.xyz[:, :2] - stand.place, axis=1) == pytest.approx(stand.radius)
    assert points.xyz[:, 2].min() == pytest.approx(stand.low)


def test_a_pole_is_put_before_a_wall_but_not_before_what_hides_it(stands: list[Stand]) -> None:
    cameras = BoxRoom(0.35).cameras()
    stand = max(stands, key=lambda one: one.seen)
    viewer = next(
        c
        for n, c in cameras.items()
        if n != stand.camera and 0 < project(c, np.array([[*stand.place, 0.4]]))[0][0, 0] < c.width
    )
    uv, z = project(viewer, np.array([[*stand.place, 0.4]]))
    column, row = np.floor(uv[0]).astype(int)
    shape = (viewer.height, viewer.width)
    wall = DepthPrior(np.full(shape, 1 / 5.0, np.float32), np.ones(shape, np.float32), viewer)
    found = with_stands(wall, stands)
    assert 1 / found.inverse[row, column] == pytest.approx(z[0], rel=0.01)
    assert found.weight[row, column] == np.float32(WEIGHTS["seen"])
    assert found.weight[row, column + 3] == 0.0  # beside it the depth is not known
    near = DepthPrior(np.full(shape, 1 / 0.5, np.float32), np.ones(shape, np.float32), viewer)
    assert (with_stands(near, stands).inverse == near.inverse).all()
