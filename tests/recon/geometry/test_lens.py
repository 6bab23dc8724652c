"""The fisheye lens: OpenCV's own model is the oracle, inverse and maps are properties."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.core.errors import CalibrationError
from recon.geometry.camera import Camera, distort_map, project, undistort_map, unproject
from recon.geometry.lens import FISHEYE, Distortion, bend, max_radius, unbend
from recon.geometry.pose import look_at
from recon.geometry.rig import Rig, rig_from_json, rig_to_json

REAL: Distortion = (-0.0128, 0.0031, -0.0024, 0.0004)  # a 130 degree action camera
LENSES = [REAL, (0.0, 0.0, 0.0, 0.0), (0.08, -0.02, 0.006, -0.001)]
coefficients = st.tuples(st.floats(-0.1, 0.1), st.floats(-0.02, 0.02), st.floats(-0.01, 0.01), st.floats(-0.002, 0.002))


def camera(distortion: Distortion = REAL) -> Camera:
    pose = look_at(np.array([0.3, -1.5, 0.8]), np.array([0.0, 0.0, 0.1]))
    return Camera("a", 160, 120, 70.0, 71.0, 81.3, 58.2, distortion, pose, FISHEYE)


def opencv_k(cam: Camera) -> np.ndarray:
    return np.asarray(cam.K - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])


@pytest.mark.parametrize("distortion", LENSES)
def test_opencv_projects_to_the_same_pixels_half_a_pixel_away(distortion: Distortion) -> None:
    cam = camera(distortion)
    local = np.random.default_rng(0).uniform([-2, -2, 0.4], [2, 2, 3], (200, 3))
    points = (local - cam.cam_from_world[:3, 3]) @ cam.cam_from_world[:3, :3]
    rotation, _ = cv2.Rodrigues(cam.cam_from_world[:3, :3])
    theirs, _ = cv2.fisheye.projectPoints(
        points[:, None], rotation, cam.cam_from_world[:3, 3], opencv_k(cam), np.array(distortion)
    )
    np.testing.assert_allclose(project(cam, points)[0] - 0.5, theirs[:, 0], atol=1e-8)


@given(coefficients)
def test_unbend_inverts_bend_up_to_the_last_angle(distortion: Distortion) -> None:
    limit = np.arctan(max_radius(FISHEYE, distortion))
    angle = np.linspace(0.0, 0.98 * min(limit, 1.4), 40)
    azimuth = np.linspace(0.0, 6.0, 40)
    xy = np.tan(angle)[:, None] * np.stack([np.cos(azimuth), np.sin(azimuth)], 1)
    np.testing.assert_allclose(unbend(FISHEYE, distortion, bend(FISHEYE, distortion, xy)), xy, rtol=1e-5, atol=1e-9)


def test_a_ray_beyond_the_fold_has_no_pixel() -> None:
    folding = camera((-0.2, 0.0, 0.0, 0.0)).with_pose(np.eye(4))  # theta_d stops growing at sqrt(1 / 0.6)
    edge = np.tan(np.sqrt(1 / 0.6))
    assert folding.max_radius == pytest.approx(edge)
    uv, _ = project(folding, np.array([[0.99 * edge, 0, 1.0], [1.01 * edge, 0, 1.0]]))
    assert np.isfinite(uv[0]).all() and np.isnan(uv[1]).all()
    assert np.isnan(unproject(folding, np.array([[uv[0, 0] + 5, folding.cy]]))[0, 0])
    assert camera((0.0, 0.0, 0.0, 0.0)).max_radius == np.inf


def test_a_fisheye_picture_becomes_an_ideal_one_and_back() -> None:
    cam = camera()
    ideal = cam.pinhole()
    assert cam.distorted and not ideal.distorted and ideal.lens == "brown"
    to_ideal, to_real = distort_map(cam, ideal), undistort_map(cam, ideal)
    inner = to_ideal[20:-20, 20:-20]
    sampled = cv2.remap(to_real, inner - np.float32(0.5), None, cv2.INTER_LINEAR)
    v, u = np.mgrid[20 : cam.height - 20, 20 : cam.width - 20] + 0.5
    np.testing.assert_allclose(sampled, np.stack([u, v], -1), atol=0.03)
    theirs = cv2.fisheye.initUndistortRectifyMap(
        opencv_k(cam), np.array(REAL), np.eye(3), opencv_k(ideal), (ideal.width, ideal.height), cv2.CV_32F
    )
    seen = to_real[..., 0] >= 0
    np.testing.assert_allclose(to_real[seen] - 0.5, np.stack(theirs, -1)[seen], atol=1e-3)


def test_rig_json_keeps_the_lens() -> None:
    rig = Rig({"a": camera(), "b": replace(camera(), name="b", lens="brown", distortion=(0.1, 0, 0, 0, 0))})
    again = rig_from_json(rig_to_json(rig), "rig.json")
    assert [(c.lens, c.distortion) for c in again.cameras.values()] == [
        (FISHEYE, REAL),
        ("brown", (0.1, 0.0, 0.0, 0.0, 0.0)),
    ]


def test_a_lens_needs_its_own_coefficients() -> None:
    with pytest.raises(CalibrationError, match=r"5 distortion coefficients\. give k1 k2 k3 k4"):
        Camera("a", 4, 4, 1.0, 1.0, 2.0, 2.0, (0.0,) * 5, lens=FISHEYE)
    with pytest.raises(CalibrationError, match=r"its lens is 'mirror'"):
        Camera("a", 4, 4, 1.0, 1.0, 2.0, 2.0, lens="mirror")
