"""Base pose and, picture by picture, joint positions by the robot's outline, for logs of other moments.

Beside the base's pose x every picture i has its own offsets s_i along the directions in which the log says that the
robot moved (principal axes of the joints that did; none held tighter than FLOOR). Gauss-Newton as in `stance.py` on

    sum of rho(n . dp(x, s_i) - e) / sigma^2  +  sum_i |s_i / (SLACK spread)|^2

so that what the pictures agree on moves the base and what only one of them shows moves its joints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recon.fit.stance import MIN_POINTS, RobotView, find_outline, moved, outline_jacobian, robust_step, search, shifted
from recon.robot.description import RobotModel

SLACK = 0.3  # of the spread of the joint positions along a direction
LEAST = np.radians(0.5)  # spread of joint positions that are free
FLOOR = np.radians(10.0)  # of the spread: a wrist turns quickly in between
FREE_RAD, FREE_M = np.radians(30.0), 0.5  # of the base: the search has said where it is, the outline says exactly


@dataclass(frozen=True, eq=False)
class Posture:
    """world_from_base [4, 4]; qs: joint positions per view; error: median distance of outline points (px).

    points: those used; share: of all outline points that could have been; sigma: [6] of the base (rad, m).
    """

    world_from_base: np.ndarray
    qs: list[dict[str, float]]
    error: float
    points: int
    share: float
    sigma: np.ndarray


def refine_posture(
    model: RobotModel, views: Sequence[RobotView], world_from_base: np.ndarray, slack: bool, bands: Sequence[float]
) -> Posture | None:
    """One round per band (pixels searched either way); slack: joint positions are free too. None: no outline shows."""
    base = np.array(world_from_base, dtype=np.float64)
    names, axes, spread = _directions([view.q for view in views] if slack else [])
    count = len(spread)
    qs = [dict(view.q) for view in views]
    offsets = np.zeros((len(views), count))
    prior = np.r_[np.full(3, FREE_RAD), np.full(3, FREE_M), np.tile(SLACK * spread, len(views))]
    found: Posture | None = None
    for band in bands:
        rows, errors, shown = [np.empty((0, len(prior)))], [np.empty(0)], 0
        for v, view in enumerate(views):
            posed = replace(view, q=qs[v])
            outline = find_outline(model, posed, base)
            if outline is None:
                continue
            error = search(outline, posed, band)
            good = np.isfinite(error)
            own = outline_jacobian(model, posed, base, names, outline)[good]
            row = np.zeros((len(own), len(prior)))
            row[:, :6] = own[:, :6]
            if count:
                row[:, 6 + v * count : 6 + (v + 1) * count] = own[:, 6:] @ axes.T
            rows.append(row)
            errors.append(error[good])
            shown += len(good)
        jacobian, error = np.concatenate(rows), np.concatenate(errors)
        if len(error) < MIN_POINTS:
            return None
        step, sigma = robust_step(jacobian, error, prior, np.r_[np.zeros(6), offsets.ravel()])
        base = moved(base, step[:6])
        offsets = offsets + step[6:].reshape(offsets.shape)
        qs = [shifted(view.q, names, o @ axes) for view, o in zip(views, offsets, strict=True)]
        left = float(np.median(np.abs(error - jacobian @ step)))
        found = Posture(base, qs, left, len(error), len(error) / max(1, shown), sigma[:6])
    return found


def _directions(qs: Sequence[Mapping[str, float]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """(joint names, directions [D, J], spread [D] along them): how the joints moved between the pictures."""
    names = [name for name in (qs[0] if qs else ()) if np.std([q[name] for q in qs]) > LEAST]
    table = np.array([[q[name] for name in names] for q in qs])
    if not names:
        return [], np.empty((0, 0)), np.empty(0)
    _, values, axes = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    return names, axes, np.maximum(values / np.sqrt(max(1, len(qs) - 1)), FLOOR)
