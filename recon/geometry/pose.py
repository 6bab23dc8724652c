"""Rigid poses and similarities as 4x4 matrices; `a_from_b` maps column vectors: x_a = a_from_b @ x_b."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import torch

from recon.core.errors import InputError
from recon.geometry.quaternion import Array, quat_to_matrix

RIGID_TOLERANCE = 1e-3  # largest entry of |R^T R - I| a pose may have
SMALL_ANGLE = 1e-2  # radians; below it the series of se3_exp are exact to double precision


def invert_pose(a_from_b: Array) -> Array:
    """b_from_a [..., 4, 4] of rigid poses [..., 4, 4] (numpy or torch; no matrix inversion)."""
    inverse = a_from_b.clone() if isinstance(a_from_b, torch.Tensor) else a_from_b.copy()
    rotation = a_from_b[..., :3, :3]
    transposed = rotation.transpose(-1, -2) if isinstance(rotation, torch.Tensor) else np.swapaxes(rotation, -1, -2)
    inverse[..., :3, :3] = transposed
    inverse[..., :3, 3] = -(transposed @ a_from_b[..., :3, 3:])[..., 0]
    return inverse


def is_rigid(pose: np.ndarray, tolerance: float = RIGID_TOLERANCE) -> bool:
    """Whether `pose` is a finite [4, 4] rotation + translation: |R^T R - I| <= tolerance, det > 0, last row 0 0 0 1."""
    pose = np.asarray(pose)
    if pose.shape != (4, 4) or not np.isfinite(pose).all():
        return False
    rotation = pose[:3, :3]
    orthonormal = np.abs(rotation.T @ rotation - np.eye(3)).max() <= tolerance
    homogeneous = np.abs(pose[3] - [0.0, 0.0, 0.0, 1.0]).max() <= tolerance
    return bool(orthonormal and homogeneous and np.linalg.det(rotation) > 0)


def nearest_rotation(matrix: np.ndarray) -> np.ndarray:
    """The rotation [3, 3] closest to `matrix` [3, 3] in the Frobenius norm."""
    u, _, vt = np.linalg.svd(matrix)
    sign = np.sign(np.linalg.det(u @ vt))
    return u @ np.diag([1.0, 1.0, sign]) @ vt


def split_similarity(a_from_b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """(scale, R [3, 3], t [3]) of the similarity `a_from_b` [4, 4] = [[scale R, t], [0, 1]].

    Raises InputError when the matrix is not one (shear, mirror, zero scale, non-finite).
    """
    a_from_b = np.asarray(a_from_b, dtype=np.float64)
    if a_from_b.shape == (4, 4) and np.isfinite(a_from_b).all():
        determinant = np.linalg.det(a_from_b[:3, :3])
        if determinant > 0:
            scale = float(np.cbrt(determinant))
            rigid = a_from_b.copy()
            rigid[:3, :3] /= scale
            if is_rigid(rigid):
                return scale, rigid[:3, :3], a_from_b[:3, 3].copy()
    raise InputError(
        "a transform between two worlds is not a similarity",
        why="its upper 3x3 part must be a positive scale times a rotation, and its last row 0 0 0 1",
    )


def carried(a_from_b: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """The rigid world_from_x `pose` [4, 4] in the world that the similarity `a_from_b` [4, 4] leads to.

    With x_a = s R x_b + t its origin moves to s R p + t and its axes turn by R; what stands there keeps its size.
    """
    scale, rotation, shift = split_similarity(a_from_b)
    found = np.eye(4)
    found[:3, :3] = rotation @ pose[:3, :3]
    found[:3, 3] = scale * rotation @ pose[:3, 3] + shift
    return found


def angle_between(a: np.ndarray, b: np.ndarray) -> float:
    """Radians from one rotation [3, 3] to another; exact for small angles too: |A - B| = 2 sqrt(2) sin(angle / 2)."""
    return 2.0 * float(np.arcsin(min(1.0, np.linalg.norm(np.asarray(a) - np.asarray(b)) / np.sqrt(8.0))))


def pose_of(position: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """Pose [4, 4] of a position [3] and a wxyz quaternion [4] of any positive length."""
    pose = np.eye(4)
    pose[:3, :3] = quat_to_matrix(np.asarray(quat, np.float64))
    pose[:3, 3] = position
    return pose


def so3_exp(vector: np.ndarray) -> np.ndarray:
    """Rotation [3, 3] about `vector` [3] by its length, radians."""
    found: np.ndarray = cv2.Rodrigues(np.asarray(vector, np.float64))[0]
    return found


def so3_log(rotation: np.ndarray) -> np.ndarray:
    """Rotation vector [3], radians, of a rotation [3, 3]: its axis times its angle in 0..pi."""
    return np.asarray(cv2.Rodrigues(np.asarray(rotation, np.float64))[0]).ravel()


def look_at(eye: np.ndarray, target: np.ndarray, up: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0)) -> np.ndarray:
    """cam_from_world [4, 4] of a camera at `eye` whose +z looks at `target` and whose -y is towards `up` (all [3])."""
    eye, forward, upward = (
        np.asarray(eye, np.float64),
        np.subtract(target, eye, dtype=np.float64),
        np.asarray(up, np.float64),
    )
    right = np.cross(forward, upward)
    if not np.linalg.norm(right) > 1e-9 * np.linalg.norm(forward) * np.linalg.norm(upward):
        raise InputError("a camera cannot be aimed", why="target equals eye, or up is along the line of sight")
    forward = forward / np.linalg.norm(forward)
    right = right / np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(forward, right), forward])
    pose[:3, 3] = -pose[:3, :3] @ eye
    return pose


def umeyama(a: np.ndarray, b: np.ndarray, with_scale: bool) -> np.ndarray:
    """The similarity (or rigid) `b_from_a` [4, 4] with the least sum of |b_i - b_from_a a_i|^2; a, b are [N, 3].

    Raises InputError for fewer than 3 points or points on one line, which leave the rotation open.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 2 or a.shape[1] != 3 or len(a) < 3:
        raise InputError(
            "two point sets cannot be aligned", why=f"shapes {a.shape} and {b.shape}, need [N >= 3, 3] twice"
        )
    mean_a, mean_b = a.mean(0), b.mean(0)
    centred_a, centred_b = a - mean_a, b - mean_b
    # cov = 1/N sum b a^T = U D V^T; R = U S V^T with S = diag(1, 1, +-1) so that det R = 1; s = tr(D S) / var(a)
    u, d, vt = np.linalg.svd(centred_b.T @ centred_a / len(a))
    if not d[1] > 1e-12 * d[0]:
        raise InputError("two point sets cannot be aligned", why="their points lie on one line or in one place")
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ vt))])
    rotation = u @ np.diag(sign) @ vt
    scale = float((d * sign).sum() / (centred_a**2).sum(1).mean()) if with_scale else 1.0
    b_from_a = np.eye(4)
    b_from_a[:3, :3] = scale * rotation
    b_from_a[:3, 3] = mean_b - scale * rotation @ mean_a
    return b_from_a


def se3_exp(twist: Array) -> Array:
    """Pose [..., 4, 4] of twists [..., 6] = (translation part rho, rotation vector phi in radians); numpy or torch.

    R = I + A [phi] + B [phi]^2,  t = (I + B [phi] + C [phi]^2) rho,
    A = sin(a)/a, B = (1 - cos a)/a^2, C = (a - sin a)/a^3, a = |phi|. Differentiable in torch, also at zero.
    """
    if isinstance(twist, torch.Tensor):
        return _se3_exp_torch(twist)
    return _se3_exp_torch(torch.from_numpy(np.asarray(twist, dtype=np.float64))).numpy()


def _se3_exp_torch(twist: torch.Tensor) -> torch.Tensor:
    rho, phi = twist[..., :3], twist[..., 3:]
    square = (phi * phi).sum(-1)[..., None, None]
    small = square < SMALL_ANGLE**2
    safe = torch.where(small, torch.ones_like(square), square)
    angle = safe.sqrt()
    a = torch.where(small, 1 - square / 6 * (1 - square / 20 * (1 - square / 42)), torch.sin(angle) / angle)
    b = torch.where(small, 0.5 - square / 24 * (1 - square / 30 * (1 - square / 56)), (1 - torch.cos(angle)) / safe)
    c = torch.where(
        small, 1 / 6 - square / 120 * (1 - square / 42 * (1 - square / 72)), (1 - torch.sin(angle) / angle) / safe
    )
    zero = torch.zeros_like(phi[..., 0])
    x, y, z = phi[..., 0], phi[..., 1], phi[..., 2]
    skew = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*phi.shape[:-1], 3, 3)
    skew2 = skew @ skew
    identity = torch.eye(3, dtype=twist.dtype, device=twist.device)
    rotation = identity + a * skew + b * skew2
    translation = (identity + b * skew + c * skew2) @ rho[..., None]
    top = torch.cat([rotation, translation], -1)
    bottom = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=twist.dtype, device=twist.device).expand(*phi.shape[:-1], 1, 4)
    return torch.cat([top, bottom], -2)
