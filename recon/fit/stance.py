"""Where the robot stands: its base pose and constant joint offsets, by the outline it shows against the still scene.

The outline of the posed model is looked for, along its normal n in the picture, in

    D = |frame - plate|, the largest channel,

which is high on the robot and low beside it: outline and picture are e pixels apart where

    mean of D over [e - R, e)  -  mean of D over [e, e + R)         (outwards is positive)

is largest. With p(x) an outline point's projection when base and joints are moved by x, Gauss-Newton minimises

    sum of rho(n . (p(x) - p(0)) - e) / sigma^2  +  |x / prior|^2

and the outline is drawn and looked for anew, in an ever narrower band. Priors say how wrong a measured base and a
robot's joint zeros usually are; where the outline tells nothing, x stays there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from recon.geometry.camera import Camera, project, unproject
from recon.geometry.pose import so3_exp, so3_log
from recon.robot.description import RobotModel
from recon.robot.silhouettes import draw_robot

BANDS_PX = (20.0, 10.0, 5.0, 5.0)  # searched either way, round by round
SIDE_PX = 4  # R
STEP_PX = 0.5  # between the shifts that are tried
POINTS = 250  # outline points per view
MIN_STEP = 0.06  # sRGB: of D across the outline
SIGMA_PX = 1.5  # of one point; neighbours err alike, so it is more than their scatter
ROBUST_PX = 1.5  # Tukey's constant is 3 of these, or of the residuals' scatter when that is larger
PRIOR_M, PRIOR_RAD = 0.05, np.radians(5.0)  # of the base
PRIOR_JOINT_RAD = np.radians(0.3)
MIN_POINTS = 200
MAX_ERROR_PX = 1.5  # at the end; more is another shape's outline
JOINTS_GAIN = 0.95  # offsets of joints are believed when they lower the error to this share


@dataclass(frozen=True, eq=False)
class RobotView:
    """A picture with the robot in it, and what tells it from the still scene.

    camera: an ideal one. q: joint positions. difference: float32 [H, W], `D` above. valid: bool [H, W].
    """

    camera: Camera
    q: Mapping[str, float]
    difference: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True, eq=False)
class BaseFit:
    """world_from_base [4, 4]; joint_offsets {joint: rad} to add to the log's; sigma [6] of the base (rad, m).

    points: outline points that were used; error: their median distance from the outline in pixels, `before` that of
    those found from the start, both looked for in the last round's band.
    """

    world_from_base: np.ndarray
    joint_offsets: dict[str, float]
    sigma: np.ndarray
    points: int
    before: float
    error: float


@dataclass
class _Outline:
    """Outline points of one view: pixels [K, 2] and outward normals [K, 2], places in their links' frames [K, 3]."""

    pixels: np.ndarray
    normals: np.ndarray
    links: list[str]
    owner: np.ndarray  # [K] index into links
    local: np.ndarray


def find_base(
    model: RobotModel, views: Sequence[RobotView], world_from_base: np.ndarray, joints: Sequence[str] = ()
) -> BaseFit | None:
    """The base pose near a rough one (a few centimetres, a few degrees), and offsets of `joints` where they help.

    None when too little of the outline shows, or what was found is not the robot's outline.
    """
    found = refine_base(model, views, world_from_base, (), BANDS_PX)
    if found is None or not joints:
        return found
    bent = refine_base(model, views, found.world_from_base, joints, BANDS_PX[-2:])
    if bent is None or bent.error > JOINTS_GAIN * found.error:
        return found
    return replace(bent, before=found.before)


def refine_base(
    model: RobotModel, views: Sequence[RobotView], world_from_base: np.ndarray, joints: Sequence[str],
    bands: Sequence[float],
) -> BaseFit | None:  # fmt: skip
    """One round per band."""
    base = np.array(world_from_base, dtype=np.float64)
    offsets = np.zeros(len(joints))
    before = float("inf")
    prior = np.r_[np.full(3, PRIOR_RAD), np.full(3, PRIOR_M), np.full(len(joints), PRIOR_JOINT_RAD)]
    start = base.copy()
    result: BaseFit | None = None
    for band in bands:
        posed = [replace(view, q=shifted(view.q, joints, offsets)) for view in views]
        shown = [(view, outline) for view in posed if (outline := find_outline(model, view, base)) is not None]
        if result is None:
            before = _distance(shown, bands[-1])
        rows, errors = [np.empty((0, len(prior)))], [np.empty(0)]
        for view, outline in shown:
            error = search(outline, view, band)
            good = np.isfinite(error)
            rows.append(outline_jacobian(model, view, base, joints, outline)[good])
            errors.append(error[good])
        jacobian, error = np.concatenate(rows), np.concatenate(errors)
        if len(error) < MIN_POINTS:
            return None
        step, sigma = robust_step(jacobian, error, prior, _so_far(base, start, offsets))
        base = moved(base, step[:6])
        offsets = offsets + step[6:]
        result = BaseFit(
            base, dict(zip(joints, map(float, offsets), strict=True)), sigma[:6], len(error), before,
            float(np.median(np.abs(error - jacobian @ step))),
        )  # fmt: skip
    return result if result is not None and result.error <= MAX_ERROR_PX else None


def _distance(shown: Sequence[tuple[RobotView, _Outline]], band: float) -> float:
    """Median distance in pixels of the outlines' points from what is found of them; infinity when nothing is."""
    found = np.concatenate([np.empty(0), *(search(outline, view, band) for view, outline in shown)])
    found = np.abs(found[np.isfinite(found)])
    return float(np.median(found)) if len(found) else float("inf")


def shifted(q: Mapping[str, float], joints: Sequence[str], offsets: np.ndarray) -> dict[str, float]:
    """Joint positions with offsets added to those of `joints`."""
    return {**q, **{name: q[name] + float(offset) for name, offset in zip(joints, offsets, strict=True)}}


def moved(base: np.ndarray, twist: np.ndarray) -> np.ndarray:
    """The base turned about its own origin by twist[:3] [rad] (axes of the world) and shifted by twist[3:6] [m]."""
    found = base.copy()
    found[:3, :3] = so3_exp(twist[:3]) @ base[:3, :3]
    found[:3, 3] = base[:3, 3] + twist[3:6]
    return found


def _so_far(base: np.ndarray, start: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    turn = so3_log(base[:3, :3] @ start[:3, :3].T)
    return np.r_[turn, base[:3, 3] - start[:3, 3], offsets]


def find_outline(model: RobotModel, view: RobotView, base: np.ndarray) -> _Outline | None:
    """Points on the outline of the robot in a view; None where it does not show."""
    drawn = draw_robot(model, view.q, view.camera, base)
    mask = drawn.mask.astype(np.uint8)
    border = np.ones_like(mask)
    border[SIDE_PX:-SIDE_PX, SIDE_PX:-SIDE_PX] = 0
    edge = (mask > 0) & (cv2.erode(mask, np.ones((3, 3), np.uint8)) == 0) & (border == 0) & view.valid
    row, column = np.nonzero(edge)
    if len(row) < 20:
        return None
    soft = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 2.0)
    slope = np.stack([-cv2.Sobel(soft, cv2.CV_32F, 1, 0), -cv2.Sobel(soft, cv2.CV_32F, 0, 1)], axis=-1)[row, column]
    length = np.linalg.norm(slope, axis=1)
    chosen = np.nonzero(length > 1e-3)[0]
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(POINTS, len(chosen))).astype(int)]
    row, column, normals = row[chosen], column[chosen], slope[chosen] / length[chosen, None]
    camera = view.camera
    depth = drawn.depth[row, column].astype(np.float64)
    rays = unproject(camera, np.stack([column + 0.5, row + 0.5], 1))
    in_world = (rays * depth[:, None] - camera.cam_from_world[:3, 3]) @ camera.cam_from_world[:3, :3]
    names = list(model.links)
    owner = drawn.links[row, column] - 1
    poses = model.link_poses(view.q, base)
    local = np.empty_like(in_world)
    for k in np.unique(owner):
        pose = poses[names[k]]
        own = owner == k
        local[own] = (in_world[own] - pose[:3, 3]) @ pose[:3, :3]
    # the mask's last pixel lies, on average, half a pixel inside
    pixels = np.stack([column + 0.5, row + 0.5], 1) + 0.5 * normals
    return _Outline(pixels, normals, names, owner, local)


def search(outline: _Outline, view: RobotView, band: float) -> np.ndarray:
    """[K] e: the shifts along the normals at which `difference` steps down most; NaN where it hardly does."""
    reach = band + SIDE_PX
    along = np.arange(-reach, reach + 1e-6, STEP_PX)
    at = (outline.pixels[:, None] + along[None, :, None] * outline.normals[:, None] - 0.5).astype(np.float32)
    inside = view.valid.astype(np.float32)
    profile = cv2.remap(view.difference, at, None, cv2.INTER_LINEAR, borderValue=np.nan)
    profile[cv2.remap(inside, at, None, cv2.INTER_LINEAR, borderValue=0.0) < 0.99] = np.nan
    total = np.cumsum(np.pad(profile, ((0, 0), (1, 0))), axis=1)
    side = round(SIDE_PX / STEP_PX)
    mean = (total[:, side:] - total[:, :-side]) / side  # over [k, k + side)
    step = mean[:, :-side] - mean[:, side:]  # edge at along[k + side] - STEP_PX / 2
    step = np.where(np.isfinite(step), step, -1.0)
    best = step.argmax(axis=1)
    pick = np.arange(len(best))
    peak = step[pick, best]
    found = along[best + side] - STEP_PX / 2
    interior = (best > 0) & (best < step.shape[1] - 1)
    left, right = step[pick, np.maximum(best - 1, 0)], step[pick, np.minimum(best + 1, step.shape[1] - 1)]
    bend = left - 2 * peak + right
    found += np.where(interior & (bend < -1e-9), 0.5 * (left - right) / np.minimum(bend, -1e-9), 0.0) * STEP_PX
    return np.where(interior & (peak > MIN_STEP), found, np.nan)


def outline_jacobian(
    model: RobotModel, view: RobotView, base: np.ndarray, joints: Sequence[str], outline: _Outline
) -> np.ndarray:
    """[K, 6 + J]: how far the outline points move along their normals per unit of each parameter, by differences."""
    columns = []
    here = _projected(model, view, base, outline)
    for k in range(6 + len(joints)):
        twist, turn = np.zeros(6), np.zeros(len(joints))
        (twist if k < 6 else turn)[k if k < 6 else k - 6] = 1e-4
        there = _projected(model, replace(view, q=shifted(view.q, joints, turn)), moved(base, twist), outline)
        columns.append(((there - here) * outline.normals).sum(axis=1) / 1e-4)
    return np.stack(columns, axis=1)


def _projected(model: RobotModel, view: RobotView, base: np.ndarray, outline: _Outline) -> np.ndarray:
    """[K, 2] pixels of the outline's points."""
    poses = model.link_poses(view.q, base)
    world_from_link = np.stack([poses[name] for name in outline.links])[outline.owner]
    in_world = np.einsum("kij,kj->ki", world_from_link[:, :3, :3], outline.local) + world_from_link[:, :3, 3]
    return project(view.camera, in_world)[0]


def robust_step(
    jacobian: np.ndarray, error: np.ndarray, prior: np.ndarray, so_far: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Step [P] and its standard deviations [P]: Tukey-weighted least squares with the prior."""
    step = np.zeros(len(prior))
    for _ in range(15):
        residual = error - jacobian @ step
        scatter = 1.4826 * float(np.median(np.abs(residual)))
        u = residual / (3.0 * max(scatter, ROBUST_PX))
        weight = np.where(np.abs(u) < 1, (1 - u**2) ** 2, 0.0) / SIGMA_PX**2
        normal = (jacobian * weight[:, None]).T @ jacobian + np.diag(1 / prior**2)
        step = np.linalg.solve(normal, (jacobian * weight[:, None]).T @ error - so_far / prior**2)
    return step, np.sqrt(np.diag(np.linalg.inv(normal)))
