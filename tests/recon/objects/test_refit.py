"""A body's shape and Gaussians, set right: what is under the table, what stands in front, what the pictures teach."""

from __future__ import annotations

import numpy as np

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.objects.align import Aligner, Look, look_at_instant
from recon.objects.refit import refit
from recon.objects.shape import Shape
from recon.objects.splats import OPACITY, Splats

NEAR = 0.02
RED, GREY = (0.8, 0.2, 0.1), 0.4


def cube(half: float = 0.03, size: float = 0.006, low: float = -0.03, colour: tuple[float, ...] = RED) -> Splats:
    """The surface of a box of a side of 2 half, its bottom at `low`."""
    across = np.arange(-half + size / 2, half, size)
    up = np.arange(low + size / 2, half, size)
    cells = np.stack(np.meshgrid(across, across, up, indexing="ij"), -1).reshape(-1, 3)
    points = Shape(cells, size).surface()
    colours = np.tile(np.array(colour, np.float32), (len(points), 1))
    return Splats(points, colours, size, np.full(len(points), OPACITY, np.float32))


def cameras() -> list[Camera]:
    found = []
    for k in range(4):
        eye = np.array([np.cos(1.5 * k), np.sin(1.5 * k), 0.1])
        pose = look_at(eye, np.zeros(3))
        found.append(Camera(f"c{k}", 160, 120, 300.0, 300.0, 80.0, 60.0, cam_from_world=pose))
    return found


def look(frames: list[np.ndarray]) -> Look:
    grey = [np.full((120, 160, 3), GREY, np.float32)] * 4
    known, hidden = [np.ones((120, 160), bool)] * 4, [None] * 4
    found = look_at_instant(cameras(), frames, grey, known, hidden, np.zeros(4), np.zeros(3), 0.06)
    assert found is not None
    return found


def pictures(splats: Splats) -> Look:
    """What the cameras see of a body at the origin, on grey."""
    blank = look([np.full((120, 160, 3), 102, np.uint8)] * 4)
    drawn = Aligner(splats, blank, NEAR).seen(np.eye(4)).picture
    return Look(
        blank.cameras, blank.index, blank.crops, drawn, blank.background, blank.weight, blank.known, blank.lag
    )  # fmt: skip


def test_what_is_under_the_table_is_no_part_of_what_stands_on_it() -> None:
    cells = np.stack(np.meshgrid(*[np.arange(4.0)] * 2, np.arange(-2.0, 8.0), indexing="ij"), -1).reshape(-1, 3) * 0.01
    assert Shape(cells, 0.01).standing().cells[:, 2].min() == 0.0
    sunk = Shape(cells - [0, 0, 0.06], 0.01)  # most of it is below: it does not stand on this table
    assert sunk.standing() is sunk


def test_wrong_colours_and_a_part_too_many_are_set_right() -> None:
    truth = pictures(cube())
    wrong = cube(low=-0.048, colour=(0.4, 0.4, 0.6))
    before = Aligner(wrong, truth, NEAR).cost(np.eye(4))
    found = refit(wrong, [Aligner(wrong, truth, NEAR)], [np.eye(4)], NEAR)
    assert Aligner(found, truth, NEAR).cost(np.eye(4)) < 0.25 * before
    under = [float(splats.opacities[splats.points[:, 2] < -0.036].sum()) for splats in (wrong, found)]
    assert under[1] < 0.6 * under[0]
    again = refit(wrong, [Aligner(wrong, truth, NEAR)], [np.eye(4)], NEAR)
    assert np.array_equal(found.points, again.points) and np.array_equal(found.opacities, again.opacities)


def test_a_rim_in_front_of_a_body_does_not_push_it_away() -> None:
    truth = pictures(cube())
    target = truth.target.copy()
    side = target.shape[1]
    target[:, side // 2 + 4 :] = GREY  # its lower part is behind something that looks as the background does
    hidden = Look(
        truth.cameras, truth.index, truth.crops, target, truth.background, truth.weight, truth.known, truth.lag
    )  # fmt: skip
    aligner = Aligner(cube(), hidden, NEAR)
    start = np.eye(4)
    start[:3, 3] = [0.004, 0.0, 0.003]
    found = aligner.align(start)
    assert np.linalg.norm(found[:3, 3]) < 0.0035
    assert aligner.judged(found).visible < 0.85
