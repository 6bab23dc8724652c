from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.core.errors import CalibrationError
from recon.geometry.camera import Camera, Distortion, distort_map, pixel_cells, project, undistort_map, unproject
from recon.geometry.pose import look_at, se3_exp

BARREL: Distortion = (-0.338, 0.0967, -0.00135, 0.00316, -0.00375)  # a cheap webcam
PINCUSHION: Distortion = (0.19, -0.26, 0.0028, -0.0052, 0.115)
LENSES = [BARREL, PINCUSHION, (-0.144, 0.0379, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0)]

lenses = st.tuples(
    st.floats(-0.2, 0.2), st.floats(-0.05, 0.05), st.floats(-0.005, 0.005), st.floats(-0.005, 0.005), st.floats(0, 0.02)
)


def camera(distortion: Distortion = BARREL, width: int = 160, height: int = 120) -> Camera:
    pose = look_at(np.array([0.3, -1.5, 0.8]), np.array([0.0, 0.0, 0.1]))
    return Camera("a", width, height, 0.9 * width, 0.91 * width, 0.51 * width, 0.48 * height, distortion, pose)


def seen_points(cam: Camera, count: int = 200) -> np.ndarray:
    rng = np.random.default_rng(0)
    uv = rng.uniform([0, 0], [cam.width, cam.height], (count, 2))
    local = unproject(cam, uv) * rng.uniform(0.5, 3, (count, 1))
    return (local - cam.cam_from_world[:3, 3]) @ cam.cam_from_world[:3, :3]


@pytest.mark.parametrize("distortion", LENSES)
def test_opencv_projects_to_the_same_pixels_half_a_pixel_away(distortion: Distortion) -> None:
    cam = camera(distortion)
    points = seen_points(cam)
    rotation, _ = cv2.Rodrigues(cam.cam_from_world[:3, :3])
    k = cam.K - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]]
    theirs, _ = cv2.projectPoints(points, rotation, cam.cam_from_world[:3, 3], k, np.array(distortion))
    uv, z = project(cam, points)
    np.testing.assert_allclose(uv - 0.5, theirs[:, 0], atol=1e-8)
    assert (z > 0).all()


@pytest.mark.parametrize("distortion", LENSES)
def test_opencv_undistorts_to_the_same_rays(distortion: Distortion) -> None:
    cam = camera(distortion)
    # OpenCV stops after a few fixed-point steps, so the middle of the picture is where it is exact.
    uv = np.random.default_rng(1).uniform(
        [0.3 * cam.width, 0.3 * cam.height], [0.7 * cam.width, 0.7 * cam.height], (100, 2)
    )
    k = cam.K - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]]
    theirs = cv2.undistortPoints((uv - 0.5)[:, None], k, np.array(distortion))
    np.testing.assert_allclose(unproject(cam, uv)[:, :2], theirs[:, 0], atol=1e-5)


@given(lenses)
def test_unproject_inverts_project(distortion: Distortion) -> None:
    cam = camera(distortion)
    uv = np.random.default_rng(2).uniform([0, 0], [cam.width, cam.height], (50, 2))
    rays = unproject(cam, uv)
    points = (2 * rays - cam.cam_from_world[:3, 3]) @ cam.cam_from_world[:3, :3]
    back, z = project(cam, points)
    np.testing.assert_allclose(back, uv, atol=1e-8)
    np.testing.assert_allclose(z, 2)


def test_a_point_behind_has_no_pixel() -> None:
    cam = camera()
    offsets = np.array([[0.0, 0, 0], [-0.3, 1.5, -0.7], [0.3, -1.5, 0.7]])
    uv, z = project(cam, cam.center + offsets)
    assert np.isnan(uv[[0, 2]]).all()
    assert np.isfinite(uv[1]).all()
    assert z[1] > 0 > z[2]


def test_a_ray_beyond_the_fold_of_the_polynomial_has_no_pixel() -> None:
    cam = camera((-0.3, 0.0, 0.0, 0.0, 0.0)).with_pose(np.eye(4))
    assert cam.max_radius == pytest.approx(np.sqrt(1 / 0.9))
    inside, outside = 0.99 * cam.max_radius, 1.01 * cam.max_radius
    uv, _ = project(cam, np.array([[inside, 0, 1.0], [outside, 0, 1.0]]))
    assert np.isfinite(uv[0]).all()
    assert np.isnan(uv[1]).all()
    largest = uv[0, 0] + 5  # no ray reaches that pixel: the polynomial has turned back before
    assert np.isnan(unproject(cam, np.array([[largest, cam.cy]]))[0, 0])
    assert camera((0.1, 0.1, 0, 0, 0.1)).max_radius == np.inf


@pytest.mark.parametrize("distortion", LENSES)
def test_every_distorted_pixel_lies_in_the_ideal_image(distortion: Distortion) -> None:
    cam = camera(distortion)
    ideal = cam.pinhole()
    assert not ideal.distorted
    assert (ideal.fx, ideal.fy) == (cam.fx, cam.fy)
    to_ideal = distort_map(cam, ideal)
    assert to_ideal.shape == (cam.height, cam.width, 2)
    assert to_ideal.dtype == np.float32
    assert (to_ideal >= 0).all()
    assert (to_ideal <= [ideal.width, ideal.height]).all()
    if not cam.distorted:
        assert ideal is cam
    else:
        grown = cam.pinhole(margin=3)
        assert (grown.width, grown.height) == (ideal.width + 6, ideal.height + 6)
        np.testing.assert_allclose(distort_map(cam, grown), to_ideal + 3, atol=1e-4)


@pytest.mark.parametrize("distortion", LENSES)
def test_the_two_maps_are_inverse(distortion: Distortion) -> None:
    cam = camera(distortion)
    ideal = cam.pinhole()
    to_ideal, to_real = distort_map(cam, ideal), undistort_map(cam, ideal)
    assert to_real.shape == (ideal.height, ideal.width, 2)
    inner = to_ideal[10:-10, 10:-10]
    sampled = cv2.remap(to_real, inner - np.float32(0.5), None, cv2.INTER_LINEAR)
    v, u = np.mgrid[10 : cam.height - 10, 10 : cam.width - 10] + 0.5
    np.testing.assert_allclose(sampled, np.stack([u, v], -1), atol=0.02)  # bilinear, and cv2 keeps 5 bits of the place


def test_undistort_map_agrees_with_opencv_inside_and_says_where_nothing_is() -> None:
    cam = camera(BARREL)
    ideal = cam.pinhole()
    ours = undistort_map(cam, ideal)
    half = np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    size = (ideal.width, ideal.height)
    x, y = cv2.initUndistortRectifyMap(cam.K - half, np.array(BARREL), None, ideal.K - half, size, cv2.CV_32FC1)
    theirs = np.stack([x, y], -1) + 0.5
    inside = ((theirs > 0) & (theirs < [cam.width, cam.height])).all(-1)
    np.testing.assert_allclose(ours[inside], theirs[inside], atol=1e-3)
    assert (ours[~inside] == -1).all()
    assert (~inside).any()


def test_scaled_and_cropped_keep_what_they_see() -> None:
    cam = camera(BARREL, 161, 121)
    points = seen_points(cam)
    uv, _ = project(cam, points)
    half = cam.scaled(0.5)
    assert (half.width, half.height) == (80, 60)
    np.testing.assert_allclose(project(half, points)[0], uv * [80 / 161, 60 / 121], atol=1e-9)
    window = cam.cropped(20, 10, 50, 40)
    assert (window.width, window.height) == (50, 40)
    np.testing.assert_allclose(project(window, points)[0], uv - [20, 10], atol=1e-9)


def test_center_and_read_only_pose() -> None:
    cam = camera()
    np.testing.assert_allclose(cam.center, [0.3, -1.5, 0.8])
    with pytest.raises(ValueError, match="read-only"):
        cam.cam_from_world[0, 0] = 2


def test_a_pose_rounded_in_a_file_becomes_a_rotation_and_an_exact_one_is_kept() -> None:
    exact = se3_exp(np.arange(6) / 3.0)
    np.testing.assert_array_equal(camera().with_pose(exact).cam_from_world, exact)
    kept = camera().with_pose(np.round(exact, 5)).cam_from_world[:3, :3]
    np.testing.assert_allclose(kept @ kept.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(kept, exact[:3, :3], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"height": 1.5}, "height is 1.5"),
        ({"fx": float("nan")}, "not finite"),
        ({"fy": -3.0}, "focal lengths"),
        ({"distortion": (0.1, float("inf"), 0, 0, 0)}, "not finite"),
        ({"distortion": (0.1, 0.2)}, "2 distortion coefficients"),
        ({"cam_from_world": np.eye(3)}, r"shape \[3, 3\]"),
        ({"cam_from_world": np.full((4, 4), np.nan)}, "NaN or infinity"),
        ({"cam_from_world": np.diag([1.0, 1.0, 1.002, 1.0])}, "not a rotation"),
        ({"cam_from_world": np.diag([1.0, 1.0, -1.0, 1.0])}, "not a rotation"),
    ],
)
def test_impossible_cameras_are_refused_by_name(change: dict[str, object], message: str) -> None:
    values: dict[str, object] = {"width": 64, "height": 48, "fx": 50.0, "fy": 50.0, "cx": 32.0, "cy": 24.0}
    with pytest.raises(CalibrationError, match=message) as caught:
        Camera(name="left", **{**values, **change})  # type: ignore[arg-type]
    assert "camera 'left'" in str(caught.value)


def test_pixel_cells_are_the_floor_of_what_project_says() -> None:
    camera = Camera("c", 40, 30, 50.0, 50.0, 20.5, 14.5, (-0.1, 0.02, 0.0, 0.0, 0.0))
    points = np.random.default_rng(3).uniform([-2, -2, -1], [2, 2, 4], (500, 3))
    inside, column, row, z = pixel_cells(camera, points)
    uv, depth = project(camera, points)
    assert 20 < inside.sum() < 480
    assert np.array_equal(z, depth)
    assert (column[inside] == np.floor(uv[inside, 0])).all() and (row[inside] == np.floor(uv[inside, 1])).all()
    assert (z[inside] > 0).all() and (column[~inside] == 0).all() and (row[~inside] == 0).all()
    seen = [d > 0 and 0 <= u < 40 and 0 <= v < 30 for (u, v), d in zip(uv, depth, strict=True)]
    assert inside.tolist() == seen
