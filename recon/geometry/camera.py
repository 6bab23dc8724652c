"""One calibrated camera: a pinhole behind a lens (Brown-Conrady or fisheye, geometry/lens.py) and a pose.

Axes are OpenCV's (x right, y down, z forward). Pixels: the centre of the first one is at (0.5, 0.5), so that the image
covers [0, width] x [0, height]; cv2 wants 0.5 less.

The lens bends (x, y) = (X/Z, Y/Z) to (x_d, y_d); then u = fx x_d + cx, v = fy y_d + cy. A ray beyond the radius where
the lens stops growing has no pixel, and is reported as such instead of landing inside the image.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from recon.core.errors import CalibrationError
from recon.geometry.lens import BROWN, COEFFICIENTS, Distortion, bend, max_radius, unbend
from recon.geometry.pose import RIGID_TOLERANCE, is_rigid, nearest_rotation

NO_DISTORTION: Distortion = (0.0, 0.0, 0.0, 0.0, 0.0)
MAX_SIDE = 32768  # pixels
MAX_GROWTH = 1.0  # an ideal image grows by at most this many widths (heights) on each side
ROUNDING = 1e-10  # rotations further than this from orthonormal (rounded in a file) are replaced by the nearest one


@dataclass(frozen=True, eq=False)
class Camera:
    """Intrinsics in pixels, lens and its distortion, and cam_from_world [4, 4] float64 (read-only).

    lens: 'brown' with distortion (k1, k2, p1, p2, k3), or 'fisheye' with (k1, k2, k3, k4).

    Raises CalibrationError, naming the camera, for sizes, numbers or poses that no camera has.
    """

    name: str
    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: Distortion = NO_DISTORTION
    cam_from_world: np.ndarray = field(default_factory=lambda: np.eye(4))
    lens: str = BROWN

    def __post_init__(self) -> None:
        for side in ("width", "height"):
            size = getattr(self, side)
            if not 1 <= size <= MAX_SIDE or int(size) != size:
                raise self._error(f"its {side} is {size!r}", f"give a whole number of pixels from 1 to {MAX_SIDE}")
            object.__setattr__(self, side, int(size))
        distortion = tuple(float(k) for k in self.distortion)
        if self.lens not in COEFFICIENTS:
            raise self._error(f"its lens is {self.lens!r}", f"lenses are {' and '.join(COEFFICIENTS)}")
        if len(distortion) != len(COEFFICIENTS[self.lens]):
            fix = f"give {' '.join(COEFFICIENTS[self.lens])}"
            raise self._error(f"it has {len(distortion)} distortion coefficients", fix)
        object.__setattr__(self, "distortion", distortion)
        numbers = [self.fx, self.fy, self.cx, self.cy, *distortion]
        if not np.isfinite(numbers).all():
            raise self._error("its focal length, principal point or distortion is not finite", "calibrate it again")
        if not (self.fx > 0 and self.fy > 0):
            raise self._error(
                f"its focal lengths are {self.fx:g} and {self.fy:g}", "they must be above zero, in pixels"
            )
        object.__setattr__(self, "cam_from_world", self._checked_pose(self.cam_from_world))

    def _checked_pose(self, pose: np.ndarray) -> np.ndarray:
        pose = np.array(pose, dtype=np.float64)
        if pose.shape != (4, 4):
            raise self._error(f"cam_from_world has shape {list(pose.shape)}", "give a 4x4 matrix")
        if not np.isfinite(pose).all():
            raise self._error("cam_from_world holds NaN or infinity", "calibrate it again")
        if not is_rigid(pose, RIGID_TOLERANCE):
            raise self._error(
                "cam_from_world is not a rotation and a translation",
                "its upper 3x3 part must be orthonormal with determinant +1, its last row 0 0 0 1",
            )
        rotation = pose[:3, :3]
        if np.abs(rotation.T @ rotation - np.eye(3)).max() > ROUNDING:
            pose[:3, :3] = nearest_rotation(rotation)
        pose[3] = [0.0, 0.0, 0.0, 1.0]
        pose.flags.writeable = False
        return pose

    def _error(self, why: str, fix: str) -> CalibrationError:
        return CalibrationError(f"camera '{self.name}' cannot be used", why=why, fix=fix)

    @property
    def K(self) -> np.ndarray:
        """[3, 3] float64 intrinsic matrix in our pixel grid."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])

    @property
    def center(self) -> np.ndarray:
        """[3] the optical centre in the world."""
        return -self.cam_from_world[:3, :3].T @ self.cam_from_world[:3, 3]

    @property
    def distorted(self) -> bool:
        """Whether the lens is anything but a pinhole."""
        return self.lens != BROWN or any(self.distortion)

    @cached_property
    def max_radius(self) -> float:
        """Largest r = |(x, y)| the lens is one-to-one up to; infinity for most lenses."""
        return max_radius(self.lens, self.distortion)

    def with_pose(self, cam_from_world: np.ndarray) -> Camera:
        """The same camera at another pose."""
        return replace(self, cam_from_world=cam_from_world)

    def scaled(self, scale: float) -> Camera:
        """The camera of the picture resized by `scale` (sizes rounded, the image's corners kept)."""
        width, height = max(1, round(self.width * scale)), max(1, round(self.height * scale))
        sx, sy = width / self.width, height / self.height
        return replace(
            self, width=width, height=height, fx=self.fx * sx, fy=self.fy * sy, cx=self.cx * sx, cy=self.cy * sy
        )

    def cropped(self, left: int, top: int, width: int, height: int) -> Camera:
        """The camera of the window of width x height pixels whose first pixel is (left, top)."""
        return replace(self, width=width, height=height, cx=self.cx - left, cy=self.cy - top)

    def pinhole(self, margin: int = 0) -> Camera:
        """The ideal camera of the same K and pose, grown by whole pixels until every distorted pixel maps inside.

        `margin` adds that many pixels on each side of a distorted camera. A pixel no ray meets, or one that lands
        further than MAX_GROWTH image sizes outside, is not in it: distort_map says -1 there.
        """
        if not self.distorted:
            return self
        uv = self._ideal_positions(_border(self.width, self.height))
        uv = uv[np.isfinite(uv).all(1)]
        if len(uv) == 0:
            raise self._error("no ray meets the border of its image under this distortion", "calibrate it again")
        size = np.array([self.width, self.height], dtype=np.float64)
        low = np.maximum(np.minimum(uv.min(0), 0.0), -MAX_GROWTH * size)
        high = np.minimum(np.maximum(uv.max(0), size), (1 + MAX_GROWTH) * size)
        left, top = (int(v) for v in np.floor(low) - margin)
        right, bottom = (int(v) for v in np.ceil(high) + margin)
        return replace(self.cropped(left, top, right - left, bottom - top), distortion=NO_DISTORTION, lens=BROWN)

    def _ideal_positions(self, uv: np.ndarray) -> np.ndarray:
        return unproject(self, uv)[:, :2] * [self.fx, self.fy] + [self.cx, self.cy]


def project(camera: Camera, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uv [N, 2] distorted pixel positions, z [N] depth along the axis) of world `points` [N, 3].

    uv is NaN for points at or behind the camera's plane (z <= 0) and beyond the lens's radius; others may
    lie off the image.
    """
    local = np.asarray(points, dtype=np.float64) @ camera.cam_from_world[:3, :3].T + camera.cam_from_world[:3, 3]
    z = local[:, 2]
    ahead = z > 0
    xy = np.full((len(local), 2), np.nan)
    xy[ahead] = local[ahead, :2] / z[ahead, None]
    return distort(camera, xy) * [camera.fx, camera.fy] + [camera.cx, camera.cy], z


def pixel_cells(camera: Camera, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(inside bool [N], column int64 [N], row int64 [N], z [N]): the pixel each world point [N, 3] falls into.

    Column and row are 0 for points outside the image or behind the camera: they may index before `inside` masks.
    """
    uv, z = project(camera, points)
    inside = (z > 0) & (uv >= 0).all(1) & (uv < [camera.width, camera.height]).all(1)  # False for NaN
    column, row = np.where(inside[:, None], uv, 0.0).astype(np.int64).T
    return inside, column, row, z


def unproject(camera: Camera, uv: np.ndarray) -> np.ndarray:
    """Rays [N, 3] with unit z in camera axes through the distorted positions `uv` [N, 2]; NaN where none exists."""
    uv = np.asarray(uv, dtype=np.float64)
    xy = (uv - [camera.cx, camera.cy]) / [camera.fx, camera.fy]
    if camera.distorted:
        xy = unbend(camera.lens, camera.distortion, xy)
    return np.concatenate([xy, np.ones((len(xy), 1))], 1)


def pixel_rays(camera: Camera) -> np.ndarray:
    """[height * width, 3] rays in the world through the pixel centres, row by row, one unit long along the axis.

    NaN where the lens lets none through.
    """
    rays: np.ndarray = unproject(camera, pixel_centres(camera.width, camera.height)) @ camera.cam_from_world[:3, :3]
    return rays


def squared_radii(
    camera: Camera, top: int = 0, bottom: int | None = None, left: int = 0, right: int | None = None
) -> np.ndarray:
    """float32 [bottom - top, right - left]: squared distance of pixels from the principal point, in half diagonals."""
    x = np.arange(left, camera.width if right is None else right, dtype=np.float32) + np.float32(0.5 - camera.cx)
    y = np.arange(top, camera.height if bottom is None else bottom, dtype=np.float32) + np.float32(0.5 - camera.cy)
    return (x * x + (y * y)[:, None]) * np.float32(4.0 / (camera.width**2 + camera.height**2))


def distort(camera: Camera, xy: np.ndarray) -> np.ndarray:
    """Distorted normalised positions [N, 2] of the ideal ones `xy` [N, 2]; NaN beyond the lens's radius."""
    if not camera.distorted:
        return xy
    bent = bend(camera.lens, camera.distortion, xy)
    beyond = np.asarray((xy * xy).sum(1) >= camera.max_radius**2)
    bent[beyond] = np.nan
    return bent


def distort_map(camera: Camera, ideal: Camera) -> np.ndarray:
    """[H, W, 2] float32: for each pixel of the real, distorted image its position in the image of `ideal`; -1 outside.

    With cv2.remap(ideal_picture, map - 0.5, None, ...) it makes the distorted picture from the ideal one.
    """
    rays = unproject(camera, pixel_centres(camera.width, camera.height))
    uv = rays[:, :2] * [ideal.fx, ideal.fy] + [ideal.cx, ideal.cy]
    return _as_map(uv, camera, ideal)


def undistort_map(camera: Camera, ideal: Camera) -> np.ndarray:
    """[h, w, 2] float32: for each pixel of `ideal` its position in the real, distorted image; -1 outside.

    With cv2.remap(real_picture, map - 0.5, None, ...) it makes the ideal picture from the distorted one.
    """
    xy = (pixel_centres(ideal.width, ideal.height) - [ideal.cx, ideal.cy]) / [ideal.fx, ideal.fy]
    uv = distort(camera, xy) * [camera.fx, camera.fy] + [camera.cx, camera.cy]
    return _as_map(uv, ideal, camera)


def _as_map(uv: np.ndarray, target: Camera, source: Camera) -> np.ndarray:
    u, v = uv[:, 0], uv[:, 1]
    outside = ~((u >= 0) & (u <= source.width) & (v >= 0) & (v <= source.height))  # True for NaN
    uv[outside] = -1.0
    return uv.reshape(target.height, target.width, 2).astype(np.float32)


def pixel_centres(width: int, height: int) -> np.ndarray:
    """[H * W, 2] positions of all pixel centres, row by row."""
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    return np.stack([u.ravel(), v.ravel()], 1)


def _border(width: int, height: int) -> np.ndarray:
    """[M, 2] positions along the outer edge of an image, one per pixel corner."""
    across, down = np.arange(width + 1.0), np.arange(height + 1.0)
    sides = [
        np.stack([across, np.zeros_like(across)], 1),
        np.stack([across, np.full_like(across, height)], 1),
        np.stack([np.zeros_like(down), down], 1),
        np.stack([np.full_like(down, width), down], 1),
    ]
    return np.concatenate(sides)
