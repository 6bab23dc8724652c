"""Unit quaternions, Hamilton product, stored (w, x, y, z).

Every function takes numpy arrays or torch tensors of any batch shape and returns the same kind; the torch forms are
differentiable. A quaternion of norm zero means "no rotation" everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch

Array = TypeVar("Array", np.ndarray, torch.Tensor)

TINY = 1e-30  # squared norms below this count as zero; representable in float32
NEARLY_PARALLEL = 0.9995  # slerp's sin(angle) loses its digits above this cosine


def quat_normalize(q: Array) -> Array:
    """Unit quaternion(s) along `q` [..., 4]; the zero quaternion becomes the identity."""
    squared = (q * q).sum(-1)[..., None]
    is_zero = squared < TINY
    safe = _where(is_zero, _ones_like(squared), squared)
    unit = q / safe**0.5
    return _where(is_zero, _identity_like(q), unit)


def quat_multiply(a: Array, b: Array) -> Array:
    """Hamilton product a (x) b of [..., 4] and [..., 4]: the rotation b, then the rotation a."""
    aw, ax, ay, az = _parts(a)
    bw, bx, by, bz = _parts(b)
    return _stack(
        (
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        )
    )


def quat_to_matrix(q: Array) -> Array:
    """Rotation matrix [..., 3, 3] of the quaternion(s) `q` [..., 4], which need not be normalised."""
    w, x, y, z = _parts(quat_normalize(q))
    rows = (
        _stack((1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y))),
        _stack((2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x))),
        _stack((2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y))),
    )
    return _stack(rows, axis=-2)


def matrix_to_quat(matrix: Array) -> Array:
    """Unit quaternion(s) [..., 4] with w >= 0 of the rotation matrices [..., 3, 3]."""
    m = [[matrix[..., i, j] for j in range(3)] for i in range(3)]
    trace = m[0][0] + m[1][1] + m[2][2]
    # 4 q q^T, written with the entries of R. Row i is q scaled by 4 q_i: the row of the largest diagonal entry
    # (q_i >= 1/2) is always well conditioned.
    wx, wy, wz = m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]
    xy, xz, yz = m[1][0] + m[0][1], m[0][2] + m[2][0], m[2][1] + m[1][2]
    rows = (
        _stack((1 + trace, wx, wy, wz)),
        _stack((wx, 1 + 2 * m[0][0] - trace, xy, xz)),
        _stack((wy, xy, 1 + 2 * m[1][1] - trace, yz)),
        _stack((wz, xz, yz, 1 + 2 * m[2][2] - trace)),
    )
    outer = _stack(rows, axis=-2)
    diagonal = _stack([rows[i][..., i] for i in range(4)])
    best = diagonal.argmax(-1)
    q = quat_normalize(_row(outer, best))
    return _where(q[..., :1] < 0, -q, q)


def quat_rotate(q: Array, v: Array) -> Array:
    """Rotates the vector(s) `v` [..., 3] by the quaternion(s) `q` [..., 4] (batch shapes broadcast)."""
    q = quat_normalize(q)
    w, axis = q[..., :1], q[..., 1:]
    # v' = v + 2 w (a x v) + 2 a x (a x v)
    twice = 2 * _cross(axis, v)
    return v + w * twice + _cross(axis, twice)


def quat_slerp(a: Array, b: Array, weight: Array | float) -> Array:
    """Turns from `a` (weight 0) to `b` (weight 1) at constant speed along the shorter way; all [..., 4].

    `weight` is a number or has the batch shape without the last axis.
    """
    a, b = quat_normalize(a), quat_normalize(b)
    w = weight[..., None] if isinstance(weight, (np.ndarray, torch.Tensor)) else weight
    cosine = (a * b).sum(-1)[..., None]
    b = _where(cosine < 0, -b, b)
    cosine = abs(cosine)
    straight = cosine > NEARLY_PARALLEL
    # The branch not taken must stay finite too, or its derivative poisons the other.
    angle = _arccos(_where(straight, 0 * cosine, cosine))
    sine = _sin(angle)
    arc = (_sin((1 - w) * angle) * a + _sin(w * angle) * b) / sine
    return quat_normalize(_where(straight, (1 - w) * a + w * b, arc))


def _parts(q: Array) -> tuple[Array, Array, Array, Array]:
    return q[..., 0], q[..., 1], q[..., 2], q[..., 3]


def _stack(parts: Sequence[Array], axis: int = -1) -> Array:
    if isinstance(parts[0], torch.Tensor):
        return torch.stack(torch.broadcast_tensors(*parts), dim=axis)
    return np.stack(np.broadcast_arrays(*parts), axis=axis)


def _where(condition: Any, yes: Array, no: Array) -> Array:
    return torch.where(condition, yes, no) if isinstance(yes, torch.Tensor) else np.where(condition, yes, no)


def _row(matrix: Array, index: Any) -> Array:
    """The row [..., 4] of `matrix` [..., 4, 4] that `index` [...] names."""
    if isinstance(matrix, torch.Tensor):
        return torch.gather(matrix, -2, index[..., None, None].expand(*index.shape, 1, 4))[..., 0, :]
    return np.take_along_axis(matrix, index[..., None, None], axis=-2)[..., 0, :]


def _ones_like(x: Array) -> Array:
    return torch.ones_like(x) if isinstance(x, torch.Tensor) else np.ones_like(x)


def _identity_like(q: Array) -> Array:
    if isinstance(q, torch.Tensor):
        return torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=q.dtype, device=q.device).expand_as(q)
    return np.broadcast_to(np.array([1.0, 0.0, 0.0, 0.0], dtype=q.dtype), q.shape)


def _cross(a: Array, b: Array) -> Array:
    if isinstance(a, torch.Tensor):
        a, b = torch.broadcast_tensors(a, b)
        return torch.linalg.cross(a, b)
    return np.cross(a, b)


def _sin(x: Array) -> Array:
    return torch.sin(x) if isinstance(x, torch.Tensor) else np.sin(x)


def _arccos(x: Array) -> Array:
    return torch.arccos(x) if isinstance(x, torch.Tensor) else np.arccos(x)
