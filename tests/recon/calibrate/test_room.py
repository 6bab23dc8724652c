"""Walls, floor and table of a drawn room: found where they show, not claimed where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from recon.calibrate.dense import dense_depths
from recon.calibrate.room import Room, find_room
from recon.calibrate.shell import backdrop, fit_shell
from recon.calibrate.table import Table, find_table
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from tests.recon.calibrate.boxroom import FLOOR, TABLE, BoxRoom
from tests.recon.calibrate.test_shell import as_points

HEADING = 0.35


@pytest.fixture(scope="module")
def seen() -> tuple[dict[str, np.ndarray], dict[str, Camera], dict[str, np.ndarray]]:
    return BoxRoom(HEADING).seen()


@pytest.fixture(scope="module")
def room(seen: tuple[dict[str, np.ndarray], dict[str, Camera], dict[str, np.ndarray]]) -> Room:
    found = find_room(*seen)
    assert found is not None
    return found


def test_walls_are_found_to_centimetres(room: Room) -> None:
    normals, offsets = room.walls()
    drawn = BoxRoom(HEADING)
    assert len(offsets) == 4
    for k in range(4):
        normal, offset = drawn.wall(k)
        near = normals @ normal > np.cos(np.radians(1.0))
        assert near.sum() == 1
        assert offsets[near] == pytest.approx(offset, abs=0.04)


def test_the_floor_is_found_by_the_feet_of_the_walls(room: Room) -> None:
    floor = room.floor()
    assert floor is not None
    assert floor == pytest.approx(FLOOR, abs=0.02)


def test_a_table_in_the_open_has_no_room_round_it() -> None:
    assert find_room(*BoxRoom(HEADING, closed=False).seen()) is None


def test_rays_leave_the_room_where_they_meet_its_nearest_plane() -> None:
    box = Room(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]]), np.array([2.0, 3.0, 0.5]))
    origin = np.array([1.0, 0.0, 0.5])
    rays = np.array([[1.0, 0.0, 0.0], [1.0, 6.0, 0.0], [0.0, 0.1, -1.0], [-1.0, 0.0, 0.2], [2.0, 0.0, -1.0]])
    assert box.plane(origin, rays).tolist() == [0, 1, 2, -1, 0]
    assert box.inverse(origin, rays) == pytest.approx([1.0, 2.0, 1.0, 0.0, 2.0])


def test_the_table_is_found_to_millimetres_and_its_outline_to_a_decimetre(
    seen: tuple[dict[str, np.ndarray], dict[str, Camera], dict[str, np.ndarray]],
) -> None:
    found = find_table(*seen)
    assert found is not None
    assert found.height == pytest.approx(0.0, abs=0.004)
    c, s = np.cos(HEADING), np.sin(HEADING)
    own = found.outline @ np.array([[c, -s], [s, c]])
    assert np.abs(own).max(axis=0) == pytest.approx(TABLE, abs=0.14)


def test_rays_meet_the_table_inside_its_outline_alone() -> None:
    table = Table(0.1, np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]))
    camera = Camera(
        "c", 64, 64, 40.0, 40.0, 32.0, 32.0, cam_from_world=look_at(np.array([0.0, -1e-3, 1.6]), np.zeros(3))
    )
    inverse = table.inverse_depth(camera)
    assert inverse[32, 32] == pytest.approx(1 / 1.5, rel=1e-3)
    reach = 0.5 * 40.0 / 1.5  # pixels
    assert inverse[32, int(32 + reach) - 1] > 0.0
    assert inverse[32, int(32 + reach) + 2] == 0.0
    below = Camera(
        "b",
        64,
        64,
        40.0,
        40.0,
        32.0,
        32.0,
        cam_from_world=look_at(np.array([0.0, 0.1, -1.0]), np.array([0.0, 0.0, -2.0])),
    )
    assert (table.inverse_depth(below) == 0.0).all()


def test_plain_walls_get_their_depth_from_the_room(
    seen: tuple[dict[str, np.ndarray], dict[str, Camera], dict[str, np.ndarray]], room: Room
) -> None:
    """Of the pixels on walls, many more lie within 7 % of the truth with the room than without."""
    plates, cameras, valid = seen
    exact = Room(*(np.array(x) for x in zip(*(BoxRoom(HEADING).wall(k) for k in range(4)), strict=True)))
    shares = []
    for known in (None, room):
        right = total = 0
        for one in dense_depths(plates, cameras, valid, known).values():
            wall = exact.inverse_depth(one.camera)
            v, _ = np.mgrid[: one.camera.height, : one.camera.width]
            high = v < 0.25 * one.camera.height  # over the table's far edge
            right += int((np.abs(one.depth * wall - 1.0) < 0.07)[high].sum())
            total += int(high.sum())
        shares.append(right / total)
    assert shares[1] > shares[0] + 0.15
    assert shares[1] > 0.6


def test_the_backdrop_of_a_wall_has_the_colour_of_that_wall() -> None:
    """A floor that was seen in part stays dark right up to a light wall."""
    room = Room(np.vstack([np.eye(3)[:2], -np.eye(3)]), np.array([2.0, 2.0, 2.0, 2.0, 1.0]))
    rng = np.random.default_rng(3)
    floor = np.c_[rng.uniform(-0.7, 0.7, (6000, 2)), np.full(6000, -1.0)]
    y, z = rng.uniform(-1.5, 1.5, 8000), rng.uniform(0.0, 1.5, 8000)
    sides = [np.c_[np.full(8000, 2.0), y, z], np.c_[np.full(8000, -2.0), y, z]]
    sides += [np.c_[y, np.full(8000, 2.0), z], np.c_[y, np.full(8000, -2.0), z]]
    light, dark = as_points(np.concatenate(sides), (200, 200, 200)), as_points(floor, (40, 40, 40))
    points = type(light)(
        *(np.concatenate([getattr(light, k), getattr(dark, k)]) for k in ("xyz", "rgb", "views", "error"))
    )
    poses = [look_at(np.array([np.cos(k), np.sin(k), 0.3]), np.zeros(3)) for k in range(6)]
    cameras = [Camera(f"c{k}", 64, 48, 40.0, 40.0, 32.0, 24.0, cam_from_world=pose) for k, pose in enumerate(poses)]
    shell = fit_shell(points.xyz, cameras, room)
    assert shell is not None
    behind = backdrop(shell, points).points
    low = (behind.xyz[:, 2] < -0.98) & (np.abs(behind.xyz[:, :2]).max(axis=1) < 1.9)
    assert low.sum() > 50
    assert behind.rgb[low].max() < 60
