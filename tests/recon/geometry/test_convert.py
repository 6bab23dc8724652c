from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation

from recon.geometry.convert import (
    integer_centres_from_pixels,
    opencv_from_opengl_pose,
    opengl_from_opencv_pose,
    pixels_from_integer_centres,
    wxyz_from_xyzw,
    xyzw_from_wxyz,
)
from recon.geometry.pose import look_at
from recon.geometry.quaternion import quat_to_matrix

finite = st.floats(-100, 100)


@given(arrays(np.float64, (5, 4), elements=finite))
def test_round_trips(q: np.ndarray) -> None:
    np.testing.assert_array_equal(wxyz_from_xyzw(xyzw_from_wxyz(q)), q)
    uv = q[:, :2]
    np.testing.assert_allclose(integer_centres_from_pixels(pixels_from_integer_centres(uv)), uv, atol=1e-12)


def test_scipy_reads_xyzw() -> None:
    q = np.array([0.5, -0.1, 0.7, 0.2])
    np.testing.assert_allclose(Rotation.from_quat(xyzw_from_wxyz(q)).as_matrix(), quat_to_matrix(q), atol=1e-14)


def test_opengl_cameras_look_along_minus_z_with_y_up() -> None:
    pose = look_at(np.array([0.0, -2.0, 0.0]), np.zeros(3))
    gl = opengl_from_opencv_pose(pose)
    np.testing.assert_allclose(gl[:3, :3] @ [0, 0, 0] + gl[:3, 3], [0, 0, -2], atol=1e-12)
    np.testing.assert_allclose(gl[:3, :3] @ [0, 0, 1], [0, 1, 0], atol=1e-12)
    np.testing.assert_array_equal(opencv_from_opengl_pose(gl), pose)


def test_whole_numbers_get_their_half() -> None:
    np.testing.assert_array_equal(pixels_from_integer_centres(np.array([3, 4])), [3.5, 4.5])
    np.testing.assert_array_equal(integer_centres_from_pixels(np.array([3, 4])), [2.5, 3.5])


def test_float32_maps_stay_float32() -> None:
    uv = np.full((2, 3, 2), 7.5, dtype=np.float32)
    assert integer_centres_from_pixels(uv).dtype == np.float32
