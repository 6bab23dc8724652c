"""Scripted expert: damped least squares inverse kinematics towards the target, as joint-delta actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DAMPING = 0.05  # metres: keeps joint speeds bounded where the arm is stretched out
LEAD = 0.08  # m, the error is clipped to this length so that far targets do not bend the path
POSTURE = 0.05  # fraction of the way back to the rest pose per step, in the directions the tool does not feel


def reach_action(jacobian: Array, error: Array, q: Array, home: Array, max_delta: float) -> NDArray[np.float32]:
    """Action in [-1, 1] that carries the tool along `error`.

    Args:
        jacobian: [N, 3, A] d tool position / d joint, m per rad.
        error: [N, 3] target - tool, m.
        q: [N, A] commanded joint positions. home: [A] posture to prefer.
        max_delta: rad per control step at action 1.

    Returns:
        [N, A] float32. All joints are slowed together when one would exceed its limit, so the direction is kept.
    """
    length = np.linalg.norm(error, axis=-1, keepdims=True)
    e = error * np.minimum(1.0, LEAD / np.maximum(length, 1e-9))
    # dq = J^T (J J^T + l^2 I)^-1 e + (I - J^+ J) posture
    jt = np.swapaxes(jacobian, -1, -2)
    inverse = jt @ np.linalg.inv(jacobian @ jt + DAMPING**2 * np.eye(3))  # [N, A, 3]
    posture = POSTURE * (home - q)
    dq = (inverse @ e[..., None])[..., 0] + posture - (inverse @ (jacobian @ posture[..., None]))[..., 0]
    action = dq / max_delta
    action = action / np.maximum(1.0, np.abs(action).max(axis=-1, keepdims=True))
    return action.astype(np.float32)
