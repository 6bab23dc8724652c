"""The other conventions people use, and the way into ours (OpenCV axes, wxyz, first pixel centre at (0.5, 0.5)).

Called by readers, exporters and simulator bridges only; everything inside speaks one convention.
"""

from __future__ import annotations

import numpy as np

from recon.geometry.quaternion import Array

# Camera axes: OpenCV is x right, y down, z forward; OpenGL is x right, y up, z backward. The flip is its own inverse.
OPENCV_FROM_OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])

INTEGER_CENTRES = 0.5  # added to a principal point given with pixel centres at whole numbers (OpenCV, Kalibr)


def opencv_from_opengl_pose(gl_cam_from_world: np.ndarray) -> np.ndarray:
    """cam_from_world [..., 4, 4] in OpenCV axes of one in OpenGL axes (MuJoCo, glTF, USD, Blender, nerfstudio)."""
    return OPENCV_FROM_OPENGL @ gl_cam_from_world


def opengl_from_opencv_pose(cam_from_world: np.ndarray) -> np.ndarray:
    """cam_from_world [..., 4, 4] in OpenGL axes of one in OpenCV axes."""
    return OPENCV_FROM_OPENGL @ cam_from_world


def wxyz_from_xyzw(q: Array) -> Array:
    """Our quaternion order [..., 4] of glTF's, ROS's, SciPy's and COLMAP's."""
    return q[..., [3, 0, 1, 2]]


def xyzw_from_wxyz(q: Array) -> Array:
    """The quaternion order [..., 4] of glTF, ROS, SciPy and COLMAP of ours."""
    return q[..., [1, 2, 3, 0]]


def pixels_from_integer_centres(uv: np.ndarray) -> np.ndarray:
    """Pixel positions (or principal points) [..., 2] in our grid of ones with centres at whole numbers (OpenCV)."""
    return np.asarray(uv) + INTEGER_CENTRES


def integer_centres_from_pixels(uv: np.ndarray) -> np.ndarray:
    """Pixel positions [..., 2] with centres at whole numbers (OpenCV, cv2.remap) of ones in our grid."""
    return np.asarray(uv) - INTEGER_CENTRES
