"""Lens models: where a lens puts the ideal position (x, y) = (X/Z, Y/Z) of a ray, and back. Arrays are [N, 2].

`brown` (Brown-Conrady, OpenCV's k1 k2 p1 p2 k3), with s = x^2 + y^2:
    x_d = x (1 + k1 s + k2 s^2 + k3 s^3) + 2 p1 x y + p2 (s + 2 x^2)
    y_d = y (1 + k1 s + k2 s^2 + k3 s^3) + p1 (s + 2 y^2) + 2 p2 x y
`fisheye` (Kannala-Brandt, OpenCV's fisheye k1 k2 k3 k4), with r = sqrt(s) and theta = atan r:
    theta_d = theta (1 + k1 theta^2 + k2 theta^4 + k3 theta^6 + k4 theta^8),   (x_d, y_d) = (theta_d / r) (x, y)
Rays at 90 degrees from the axis and beyond have no (x, y), so a fisheye camera is used up to there.

Both polynomials fold back on themselves far off the axis: a ray beyond the radius where they stop growing has no
position, and is reported as such instead of landing inside the image.
"""

from __future__ import annotations

import numpy as np

Distortion = tuple[float, ...]

BROWN, FISHEYE = "brown", "fisheye"
COEFFICIENTS = {BROWN: ("k1", "k2", "p1", "p2", "k3"), FISHEYE: ("k1", "k2", "k3", "k4")}
STEPS = 50
BLOCK = 16384  # rows solved together
TOLERANCE = 1e-7  # error before the last step, in units of the focal length: squared by that step
SOLVED = 1e-8  # a residual above this after all steps: no ray meets the position


def max_radius(lens: str, distortion: Distortion) -> float:
    """Largest r = |(x, y)| the polynomial is one-to-one up to; infinity for most lenses."""
    if lens == FISHEYE:
        angle = _largest_angle(distortion)
        return float(np.tan(angle)) if angle < np.pi / 2 else float("inf")
    k1, k2, _, _, k3 = distortion
    # d/dr [r (1 + k1 r^2 + k2 r^4 + k3 r^6)] = 1 + 3 k1 r^2 + 5 k2 r^4 + 7 k3 r^6
    return _first_zero([1.0, 3 * k1, 5 * k2, 7 * k3])


def bend(lens: str, distortion: Distortion, xy: np.ndarray) -> np.ndarray:
    """Distorted positions of the ideal ones `xy`; what lies beyond max_radius is for the caller to refuse."""
    return _bend_fisheye(distortion, xy) if lens == FISHEYE else _bend_brown(distortion, xy)[0]


def unbend(lens: str, distortion: Distortion, target: np.ndarray) -> np.ndarray:
    """The ideal positions whose distorted ones are `target`; NaN where none is found."""
    if lens == FISHEYE:
        return _unbend_fisheye(distortion, target)
    limit = max_radius(lens, distortion)
    solved = np.empty_like(target)
    for start in range(0, len(target), BLOCK):  # blocks that stay in the cache
        rows = slice(start, start + BLOCK)
        solved[rows] = _newton_brown(distortion, limit, target[rows])
    return solved


def _first_zero(coefficients: list[float]) -> float:
    """Least r > 0 where 1 + a r^2 + b r^4 + ... is zero; infinity when there is none."""
    # With w = 1 / r^2 its zeros are those of w^n + a w^(n-1) + ..., which has a leading 1 whatever the lens: the
    # largest w is the first.
    roots = np.roots(coefficients)
    turning = [float(w.real) for w in roots if abs(w.imag) < 1e-9 * abs(w) and w.real > 1e-12]
    return max(turning) ** -0.5 if turning else float("inf")


def _bend_brown(distortion: Distortion, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
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


def _newton_brown(distortion: Distortion, limit: float, target: np.ndarray) -> np.ndarray:
    """Newton's method from the target itself, on all rows until the last has converged.

    Steps are held within the radius up to which the lens is one-to-one, where the radial part is monotone.
    """
    xy = _held_within(target, limit)
    with np.errstate(all="ignore"):  # rows that diverge become NaN below
        for _ in range(STEPS):
            bent, jxx, jxy, jyy = _bend_brown(distortion, xy)
            error = target - bent
            determinant = jxx * jyy - jxy * jxy
            step = np.empty_like(xy)
            step[:, 0] = (jyy * error[:, 0] - jxy * error[:, 1]) / determinant
            step[:, 1] = (jxx * error[:, 1] - jxy * error[:, 0]) / determinant
            xy = _held_within(xy + step, limit)
            if np.abs(error).max() < TOLERANCE:  # NaN compares false: such rows use up all steps
                break
        residual = np.abs(_bend_brown(distortion, xy)[0] - target).max(1)
    xy[np.logical_not(residual < SOLVED)] = np.nan
    return xy


def _held_within(xy: np.ndarray, limit: float) -> np.ndarray:
    if not np.isfinite(limit):
        return xy
    radius = np.sqrt((xy * xy).sum(1))
    shrink = np.minimum(1.0, 0.999999 * limit / np.maximum(radius, 1e-300))
    return xy * shrink[:, None]


def _largest_angle(distortion: Distortion) -> float:
    """The angle [rad] up to which theta_d grows, at most pi / 2."""
    k1, k2, k3, k4 = distortion
    return min(_first_zero([1.0, 3 * k1, 5 * k2, 7 * k3, 9 * k4]), np.pi / 2)


def _bent_angle(distortion: Distortion, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(theta_d, its derivative) at `theta` [N]."""
    k1, k2, k3, k4 = distortion
    q = theta * theta
    bent = theta * (1 + q * (k1 + q * (k2 + q * (k3 + q * k4))))
    return bent, 1 + q * (3 * k1 + q * (5 * k2 + q * (7 * k3 + q * 9 * k4)))


def _bend_fisheye(distortion: Distortion, xy: np.ndarray) -> np.ndarray:
    r = np.sqrt((xy * xy).sum(1))
    bent = _bent_angle(distortion, np.arctan(r))[0]
    scale = np.where(r > 1e-12, bent / np.maximum(r, 1e-12), 1.0)
    return xy * scale[:, None]


def _unbend_fisheye(distortion: Distortion, target: np.ndarray) -> np.ndarray:
    """Newton's method on the angle alone, halving the bracket where a step would leave it."""
    radius = np.sqrt((target * target).sum(1))
    limit = 0.999999 * _largest_angle(distortion)
    low, high = np.zeros_like(radius), np.full_like(radius, limit)
    theta = np.minimum(radius, limit)
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            bent, slope = _bent_angle(distortion, theta)
            error = radius - bent
            low, high = np.where(error > 0, theta, low), np.where(error > 0, high, theta)
            step = theta + error / slope
            theta = np.where((step >= low) & (step <= high), step, (low + high) / 2)
            if np.abs(error).max(initial=0.0) < TOLERANCE:
                break
        found = np.abs(_bent_angle(distortion, theta)[0] - radius) < SOLVED
        scale = np.where(radius > 1e-12, np.tan(theta) / np.maximum(radius, 1e-12), 1.0)
    xy = target * scale[:, None]
    xy[np.logical_not(found)] = np.nan
    return xy
