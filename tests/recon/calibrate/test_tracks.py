"""Matched points: where they should be, exact triangulation, and what is thrown away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.calibrate.cloud import sample
from recon.calibrate.matches import Features, match_features
from recon.calibrate.neighbours import fundamental, line_distance, neighbours
from recon.calibrate.tracks import match_points, triangulate
from recon.geometry.camera import Camera, project
from recon.geometry.pose import look_at
from tests.recon.calibrate.textured import BOARD_HEIGHT, distance_to_surface, plates, rig


def test_points_lie_on_the_surfaces_and_carry_their_colours() -> None:
    cameras = rig()
    pictures = plates(cameras)
    points = match_points(pictures, cameras)
    off = distance_to_surface(points.xyz)
    assert len(points) > 300
    assert np.median(off) < 0.005
    assert np.percentile(off, 95) < 0.02
    assert (np.abs(points.xyz[:, 2] - BOARD_HEIGHT) < 0.01).sum() > 20
    assert (points.views >= 3).sum() > 50
    assert (points.error < 1.5).all()
    uv, z = project(cameras["c2"], points.xyz)
    seen = (z > 0) & (uv > 2).all(1) & (uv < [238, 178]).all(1) & (points.xyz[:, 2] > BOARD_HEIGHT - 0.01)
    there = sample(pictures["c2"], uv[seen])
    assert np.median(np.abs(there - points.rgb[seen])) < 30  # exposures differ by up to 40 %


@given(st.integers(0, 2**31))
def test_triangulation_inverts_projection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cameras = list(rig().values())
    xyz = rng.uniform(-0.4, 0.4, (20, 3))
    seen = [project(c, xyz)[0] for c in cameras]
    views = rng.integers(2, len(cameras) + 1, 20)
    chosen = [rng.choice(len(cameras), n, replace=False) for n in views]
    camera = np.concatenate(chosen)
    track = np.repeat(np.arange(20), views)
    uv = np.stack([seen[c][t] for c, t in zip(camera, track, strict=True)])
    assert np.allclose(triangulate(camera, uv, track, 20, cameras), xyz, atol=1e-6)


@given(st.integers(0, 2**31))
def test_projections_lie_on_each_others_epipolar_lines(seed: int) -> None:
    a, b = list(rig().values())[:2]
    xyz = np.random.default_rng(seed).uniform(-0.5, 0.5, (10, 3))
    uv_a, uv_b = project(a, xyz)[0], project(b, xyz)[0]
    matrix = fundamental(a, b)
    assert np.abs(np.diag(line_distance(matrix, uv_a, uv_b))).max() < 1e-3
    assert np.abs(np.diag(line_distance(matrix.T, uv_b, uv_a))).max() < 1e-3


def test_a_twin_off_the_epipolar_line_does_not_disturb_a_match_and_one_on_it_does() -> None:
    a, b = list(rig().values())[:2]
    xyz = np.array([[0.1, 0.05, 0.0]])
    uv_a, uv_b = project(a, xyz)[0], project(b, xyz)[0]
    descriptor = np.full((1, 128), 128**-0.5, np.float32)
    other = np.zeros((1, 128), np.float32)
    other[0, 0] = 1
    line = fundamental(a, b) @ [*uv_a[0], 1.0]
    along, across = np.array([line[1], -line[0]]), np.array([line[0], line[1]])
    along, across = along / np.linalg.norm(along), across / np.linalg.norm(across)
    one = Features(uv_a, descriptor)
    for shift, expected in ((30 * across, 1), (30 * along, 0), (0.5 * along, 1)):
        two = Features(np.concatenate([uv_b, uv_b + shift]), np.concatenate([descriptor, descriptor]))
        assert len(match_features(one, two, a, b)) == expected
    assert len(match_features(one, Features(uv_b, other), a, b)) == 0
    assert len(match_features(one, Features(np.empty((0, 2)), np.empty((0, 128), np.float32)), a, b)) == 0


def test_neighbours_are_near_look_the_same_way_and_stand_apart() -> None:
    cameras = rig(6)
    near = neighbours(cameras, 2)
    assert near["c0"] == ["c1", "c2"]
    assert set(near["c3"]) == {"c2", "c4"}
    twin = Camera("twin", 240, 180, 230.0, 230.0, 120.0, 90.0, cam_from_world=cameras["c0"].cam_from_world)
    away = twin.with_pose(look_at(cameras["c0"].center + 0.1, 2 * cameras["c0"].center))
    with_both = neighbours({**cameras, "twin": twin, "away": away}, 3)
    assert "twin" not in with_both["c0"]
    assert "away" not in with_both["c0"]


def test_plain_pictures_give_no_points() -> None:
    cameras = rig(3)
    grey = {name: np.full((180, 240, 3), 90, np.uint8) for name in cameras}
    assert len(match_points(grey, cameras)) == 0


def test_masked_parts_give_no_points() -> None:
    cameras = rig(4)
    valid = {name: np.ones((180, 240), bool) for name in cameras}
    for mask in valid.values():
        mask[:, :120] = False
    points = match_points(plates(cameras), cameras, valid)
    assert len(points) > 20
    for camera in cameras.values():
        uv, _ = project(camera, points.xyz[points.views == len(cameras)])
        assert (uv[:, 0] > 118).all()


def test_bilinear_sampling_at_pixel_centres_is_exact() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    rows, columns = np.mgrid[:9, :7]
    uv = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)
    assert np.array_equal(sample(picture, uv).reshape(9, 7, 3), picture)
    middle = sample(picture, np.array([[1.0, 0.5]]))[0]
    assert middle == pytest.approx(picture[0, :2].astype(float).mean(axis=0), abs=0.1)
