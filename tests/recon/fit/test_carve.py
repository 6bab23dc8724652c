"""Free space: who looks through a position, against a loop over cameras and positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.calibrate.dense import DepthPrior
from recon.fit.carve import CLEARANCE, SURE, FreeSpace, robot_depths
from recon.geometry.camera import Camera
from tests.recon.fit.tiny import ring_of_cameras

NEAR = 0.1


def floor_priors(cameras: list[Camera], weight: float = 1.0) -> list[DepthPrior]:
    """How far each camera sees when there is nothing but the floor z = 0."""
    priors = []
    for camera in cameras:
        v, u = np.mgrid[: camera.height, : camera.width] + 0.5
        rays = np.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, np.ones_like(u)], -1)
        down = (rays @ camera.cam_from_world[:3, :3])[..., 2]
        inverse = np.maximum(-down / camera.center[2], 0.1).astype(np.float32)  # above the horizon: 10 m
        priors.append(DepthPrior(inverse, np.full_like(inverse, weight), camera))
    return priors


def slow_count(priors: list[DepthPrior], position: np.ndarray) -> int:
    """How many cameras look through one position."""
    count = 0
    for prior in priors:
        camera = prior.camera
        x, y, z = (camera.cam_from_world @ [*position, 1.0])[:3]
        if z > NEAR:
            column = int(np.floor(camera.fx * x / z + camera.cx))
            row = int(np.floor(camera.fy * y / z + camera.cy))
            if 0 <= column < camera.width and 0 <= row < camera.height:
                count += z < CLEARANCE / prior.inverse[row, column]
                count += z < SURE / prior.inverse[row, column] and prior.weight[row, column] > 0.5
    return count


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_the_count_equals_the_loop(seed: int, count: int) -> None:
    priors = floor_priors(ring_of_cameras(6)[:count])
    positions = np.random.default_rng(seed).uniform([-2, -2, -0.3], [2, 2, 1.2], (60, 3))
    assert FreeSpace(priors, NEAR).violations(positions).tolist() == [slow_count(priors, p) for p in positions]


def test_the_floor_and_what_lies_below_stay_and_what_hangs_in_the_air_goes() -> None:
    space = FreeSpace(floor_priors(ring_of_cameras()), NEAR)
    flat = np.random.default_rng(0).uniform(-0.4, 0.4, (200, 2))
    assert not space.in_the_way(np.c_[flat, np.zeros(200)]).any()
    assert not space.in_the_way(np.c_[flat, np.full(200, -0.2)]).any()
    assert space.in_the_way(np.c_[flat, np.full(200, 0.4)]).all()


def test_one_camera_that_guesses_takes_nothing_away() -> None:
    camera = ring_of_cameras()[0]
    space = FreeSpace(floor_priors([camera], weight=0.1), NEAR)
    half_way = camera.center * 0.5
    behind = camera.center - 0.05 * camera.cam_from_world[2, :3]
    positions = np.stack([half_way, behind, camera.center, np.array([0.0, 0.0, 50.0])])
    assert not space.in_the_way(positions).any()
    assert space.violations(positions).tolist() == [1, 0, 0, 0]


def test_a_camera_does_not_judge_what_it_is_mounted_in() -> None:
    camera = ring_of_cameras()[0]
    space = FreeSpace(floor_priors([camera]), NEAR)
    ahead = camera.cam_from_world[2, :3]
    close, further = camera.center + 0.9 * NEAR * ahead, camera.center + 1.1 * NEAR * ahead
    assert space.in_the_way(np.stack([close, further])).tolist() == [False, True]


def test_no_positions_and_no_cameras() -> None:
    assert FreeSpace(floor_priors(ring_of_cameras()), NEAR).violations(np.zeros((0, 3))).shape == (0,)
    assert FreeSpace([], NEAR).violations(np.zeros((4, 3))).tolist() == [0, 0, 0, 0]


def test_what_no_picture_shows_is_unseen() -> None:
    camera = ring_of_cameras()[0]
    space = FreeSpace(floor_priors([camera]), NEAR)
    across, ahead = camera.cam_from_world[0, :3], camera.cam_from_world[2, :3]
    half = 0.5 * camera.width / camera.fx  # of a picture at 1 m
    positions = [camera.center + ahead + share * half * across for share in (0.0, 0.97, 1.2)]
    assert space.unseen(np.stack([*positions, camera.center - ahead])).tolist() == [False, False, True, True]


class Ball:
    """Stands for a robot: points on a ball of radius 0.2 m at the origin."""

    def points_at(self, t: float) -> np.ndarray:
        direction = np.random.default_rng(0).normal(size=(20_000, 3))
        return 0.2 * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def test_what_a_camera_sees_of_a_robot_has_nothing_still_before_it() -> None:
    cameras = ring_of_cameras()[:2]
    shape = (cameras[0].height, cameras[0].width)
    nothing = [DepthPrior(np.full(shape, 10.0, np.float32), np.zeros(shape, np.float32), c) for c in cameras]
    passed = robot_depths(Ball(), cameras, np.array([0.0]))  # type: ignore[arg-type]
    assert passed[0][passed[0] > 0].min() == pytest.approx(np.linalg.norm(cameras[0].center) - 0.2, abs=0.02)
    toward = cameras[0].center / np.linalg.norm(cameras[0].center)
    positions = np.stack([0.3 * toward, 0.1 * toward, -0.5 * toward])  # before, inside and behind the ball
    first = FreeSpace(nothing[:1], NEAR, passed[:1])
    assert first.violations(positions).tolist() == [1, 0, 0]
    assert not first.in_the_way(positions).any()  # one camera alone may be wrong
