"""One calibrated camera: a pinhole with Brown-Conrady lens distortion (OpenCV's k1 k2 p1 p2 k3) and a pose.

Axes are OpenCV's (x right, y down, z forward). Pixels: the centre of the first one is at (0.5, 0.5), so that the image
covers [0, width] x [0, height]; cv2 wants 0.5 less.

With (x, y) = (X/Z, Y/Z) and r^2 = x^2 + y^2, the lens maps
    x_d = x (1 + k1 r^2 + k2 r^4 + k3 r^6) + 2 p1 x y + p2 (r^2 + 2 x^2)
    y_d = y (1 + k1 r^2 + k2 r^4 + k3 r^6) + p1 (r^2 + 2 y^2) + 2 p2 x y
and u = fx x_d + cx, v = fy y_d + cy. The polynomial folds back on itself far off the axis: a ray beyond the radius
where it stops growing has no pixel, and is reported as such instead of landing inside the image.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from recon.core.errors import CalibrationError
from recon.geometry.pose import RIGID_TOLERANCE, is_rigid, nearest_rotation

Distortion = tuple[float, float, float, float, float]

NO_DISTORTION: Distortion = (0.0, 0.0, 0.0, 0.0, 0.0)
MAX_SIDE = 32768  # pixels
MAX_GROWTH = 1.0  # an ideal image grows by at most this many widths (heights) on each side
ROUNDING = 1e-10  # rotations further than this from orthonormal (rounded in a file) are replaced by the nearest one
NEWTON_STEPS = 50
NEWTON_BLOCK = 16384  # rows solved together
NEWTON_TOLERANCE = 1e-7  # error before the last step, in units of the focal length: squared by that step
SOLVED = 1e-8  # a residual above this after all steps: no ray meets the pixel


@dataclass(frozen=True, eq=False)
class Camera:
    """Intrinsics in pixels, distortion (k1, k2, p1, p2, k3), and cam_from_world [4, 4] float64 (read-only).

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

    def __post_init__(self) -> None:
        for side in ("width", "height"):
            size = getattr(self, side)
            if not 1 <= size <= MAX_SIDE or int(size) != size:
                raise self._error(f"its {side} is {size!r}", f"give a whole number of pixels from 1 to {MAX_SIDE}")
            object.__setattr__(self, side, int(size))
        distortion = tuple(float(k) for k in self.distortion)
        if len(distortion) != 5:
            raise self._error(f"it has {len(distortion)} distortion coefficients", "give k1 k2 p1 p2 k3")
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
        return any(self.distortion)

    @cached_property
    def max_radius(self) -> float:
        """Largest r = |(x, y)| the distortion polynomial is one-to-one up to; infinity for most lenses."""
        k1, k2, _, _, k3 = self.distortion
        # d/dr [r (1 + k1 r^2 + k2 r^4 + k3 r^6)] = 1 + 3 k1 r^2 + 5 k2 r^4 + 7 k3 r^6; with w = 1 / r^2 its zeros are
        # those of w^3 + 3 k1 w^2 + 5 k2 w + 7 k3, which has a leading 1 whatever the lens: the largest w is the first.
        roots = np.roots([1.0, 3 * k1, 5 * k2, 7 * k3])
        turning = [float(w.real) for w in roots if abs(w.imag) < 1e-9 * abs(w) and w.real > 1e-12]
        return max(turning) ** -0.5 if turning else float("inf")

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
        return replace(self.cropped(left, top, right - left, bottom - top), distortion=NO_DISTORTION)

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
        xy = _undistort(camera, xy)
    return np.concatenate([xy, np.ones((len(xy), 1))], 1)


def distort(camera: Camera, xy: np.ndarray) -> np.ndarray:
    """Distorted normalised positions [N, 2] of the ideal ones `xy` [N, 2]; NaN beyond the lens's radius."""
    if not camera.distorted:
        return xy
    bent = _bend(camera.distortion, xy)[0]
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


def _bend(distortion: Distortion, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(distorted [N, 2], and its Jacobian's entries xx, xy = yx, yy, each [N]) at `xy` [N, 2]."""
    k1, k2, p1, p2, k3 = distortion
    x, y = xy[:, 0], xy[:, 1]
    s = x * x + y * y
    radial = 1 + s * (k1 + s * (k2 + s * k3))
    slope = 2 * (k1 + s * (2 * k2 + 3 * k3 * s))  # d radial / dx = slope x
    bent = np.empty_like(xy)
    bent[:, 0] = x * radial + 2 * p1 * x * y + p2 * (s + 2 * x * x)
    bent[:, 1] = y * radial + p1 * (s + 2 * y * y) + 2 * p2 * x * y
    jxx = radial + slope * x * x + 2 * p1 * y + 6 * p2 * x
    jxy = slope * x * y + 2 * p1 * x + 2 * p2 * y
    jyy = radial + slope * y * y + 6 * p1 * y + 2 * p2 * x
    return bent, jxx, jxy, jyy


def _undistort(camera: Camera, target: np.ndarray) -> np.ndarray:
    """The ideal positions [N, 2] whose distorted ones are `target` [N, 2]; NaN where none is found."""
    solved = np.empty_like(target)
    for start in range(0, len(target), NEWTON_BLOCK):  # blocks that stay in the cache
        rows = slice(start, start + NEWTON_BLOCK)
        solved[rows] = _newton(camera, target[rows])
    return solved


def _newton(camera: Camera, target: np.ndarray) -> np.ndarray:
    """Newton's method from the target itself, on all rows until the last has converged.

    Steps are held within the radius up to which the lens is one-to-one, where the radial part is monotone.
    """
    limit = camera.max_radius
    xy = _held_within(target, limit)
    with np.errstate(all="ignore"):  # rows that diverge become NaN below
        for _ in range(NEWTON_STEPS):
            bent, jxx, jxy, jyy = _bend(camera.distortion, xy)
            error = target - bent
            determinant = jxx * jyy - jxy * jxy
            step = np.empty_like(xy)
            step[:, 0] = (jyy * error[:, 0] - jxy * error[:, 1]) / determinant
            step[:, 1] = (jxx * error[:, 1] - jxy * error[:, 0]) / determinant
            xy = _held_within(xy + step, limit)
            if np.abs(error).max() < NEWTON_TOLERANCE:  # NaN compares false: such rows use up all steps
                break
        residual = np.abs(_bend(camera.distortion, xy)[0] - target).max(1)
    xy[np.logical_not(residual < SOLVED)] = np.nan
    return xy


def _held_within(xy: np.ndarray, limit: float) -> np.ndarray:
    if not np.isfinite(limit):
        return xy
    radius = np.sqrt((xy * xy).sum(1))
    shrink = np.minimum(1.0, 0.999999 * limit / np.maximum(radius, 1e-300))
    return xy * shrink[:, None]


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
