"""Real spherical harmonics up to degree 3, in the order and signs of the INRIA Gaussian files.

A colour is 0.5 + sum_k c_k Y_k(direction), clamped at zero by whoever draws it; `coeffs` [N, K, 3] holds c_k for
K = (degree + 1)^2 functions and three channels. Directions are unit vectors from the camera towards the Gaussian.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TypeVar

import numpy as np
import torch

from recon.core.errors import InputError

MAX_DEGREE = 3
SH_C0 = 0.28209479177387814  # 1 / (2 sqrt(pi))
SH_C1 = 0.4886025119029199  # sqrt(3 / (4 pi))
SH_C2 = (1.0925484305920792, 0.31539156525252005, 0.5462742152960396)
SH_C3 = (0.5900435899266435, 2.890611442640554, 0.4570457994644658, 0.3731763325901154, 1.445305721320277)

Colour = TypeVar("Colour", np.ndarray, torch.Tensor)


def sh_degree(count: int) -> int:
    """The degree that `count` = K functions belong to; InputError unless K is 1, 4, 9 or 16."""
    degree = math.isqrt(max(count, 0)) - 1
    if (degree + 1) ** 2 != count or not 0 <= degree <= MAX_DEGREE:
        raise InputError(
            f"{count} spherical harmonics per colour channel", why="only 1, 4, 9 and 16 make a full degree"
        )
    return degree


def rgb_to_sh0(rgb: Colour) -> Colour:
    """The constant coefficient [..., 3] of a colour [..., 3] in [0, 1]."""
    return (rgb - 0.5) / SH_C0


def sh0_to_rgb(sh0: Colour) -> Colour:
    """The colour [..., 3] of a constant coefficient [..., 3]."""
    return sh0 * SH_C0 + 0.5


def sh_basis(degree: int, dirs: torch.Tensor) -> torch.Tensor:
    """Y [..., (degree + 1)^2] at the unit directions `dirs` [..., 3]."""
    x, y, z = dirs.unbind(-1)
    bands = [torch.full_like(x, SH_C0)[..., None]]
    if degree >= 1:
        bands.append(SH_C1 * torch.stack([-y, z, -x], -1))
    if degree >= 2:
        bands.append(_band2(x, y, z))
    if degree >= 3:
        bands.append(_band3(x, y, z))
    return torch.cat(bands, -1)


def eval_sh(degree: int, coeffs: torch.Tensor, dirs: torch.Tensor) -> torch.Tensor:
    """sum_k c_k Y_k(d) [N, 3] of the first (degree + 1)^2 of `coeffs` [N, K, 3] at `dirs` [N, 3], before + 0.5."""
    if not 0 <= degree <= sh_degree(coeffs.shape[-2]):
        raise InputError(
            f"spherical harmonics of degree {degree}", why=f"the table holds {coeffs.shape[-2]} per channel"
        )
    basis = sh_basis(degree, dirs)
    return (basis[..., None] * coeffs[..., : basis.shape[-1], :]).sum(-2)


def rotate_sh(coeffs: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Coefficients [N, K, 3] of the same colours turned with their body by `rotation` ([3, 3], or [N, 3, 3] per row).

    eval_sh(degree, rotate_sh(c, R), d) == eval_sh(degree, c, R^T d). Differentiable in both arguments.
    """
    return turn_sh(coeffs, sh_rotations(sh_degree(coeffs.shape[-2]), rotation))


def sh_rotations(degree: int, rotation: torch.Tensor) -> list[torch.Tensor]:
    """The matrices [..., 2l+1, 2l+1] of bands l = 1..degree that turn coefficients by `rotation` [..., 3, 3]."""
    return [_band1_rotation(rotation) if band == 1 else _band_rotation(band, rotation) for band in range(1, degree + 1)]


def turn_sh(coeffs: torch.Tensor, matrices: list[torch.Tensor]) -> torch.Tensor:
    """Coefficients [N, K, 3] turned by the per-band `matrices` of sh_rotations ([2l+1, 2l+1], or one per row)."""
    parts = [coeffs[..., :1, :]]
    for band, matrix in enumerate(matrices, start=1):
        parts.append(matrix @ coeffs[..., band**2 : (band + 1) ** 2, :])
    return torch.cat(parts, -2)


def _band1_rotation(rotation: torch.Tensor) -> torch.Tensor:
    # Band 1 is a linear function g . d with g = C1 (-c3, -c1, c2); turning it means g' = R g. With the signed
    # permutation (c1, c2, c3) = (-gy, gz, -gx) / C1 that is, entry by entry:
    r = rotation
    row1 = torch.stack([r[..., 1, 1], -r[..., 1, 2], r[..., 1, 0]], -1)
    row2 = torch.stack([-r[..., 2, 1], r[..., 2, 2], -r[..., 2, 0]], -1)
    row3 = torch.stack([r[..., 0, 1], -r[..., 0, 2], r[..., 0, 0]], -1)
    return torch.stack([row1, row2, row3], -2)


def _band_rotation(band: int, rotation: torch.Tensor) -> torch.Tensor:
    # Least squares over fixed directions d_i: A_ij = Y_j(d_i), B_ij = Y_j(R^T d_i), c' = pinv(A) B c.
    dirs_np, pinv_np = _fixed_directions(band)
    dirs = torch.as_tensor(dirs_np, dtype=rotation.dtype, device=rotation.device)
    pinv = torch.as_tensor(pinv_np, dtype=rotation.dtype, device=rotation.device)
    turned = dirs @ rotation  # row vectors: (R^T d)^T = d^T R
    x, y, z = turned.unbind(-1)
    return pinv @ (_band2(x, y, z) if band == 2 else _band3(x, y, z))


@cache
def _fixed_directions(band: int) -> tuple[np.ndarray, np.ndarray]:
    """(directions [M, 3], pinv(A) [2l+1, M]) with float64 entries; a spherical Fibonacci set, well spread."""
    count = 4 * (2 * band + 1)
    k = np.arange(count)
    z = 1 - (2 * k + 1) / count
    azimuth = k * math.pi * (3 - math.sqrt(5))
    radius = np.sqrt(1 - z * z)
    dirs = np.stack([radius * np.cos(azimuth), radius * np.sin(azimuth), z], -1)
    basis = sh_basis(band, torch.from_numpy(dirs))[:, band * band :].numpy()
    return dirs.astype(np.float64), np.linalg.pinv(basis)


def _band2(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    xx, yy, zz = x * x, y * y, z * z
    a, b, c = SH_C2
    return torch.stack([a * x * y, -a * y * z, b * (2 * zz - xx - yy), -a * x * z, c * (xx - yy)], -1)


def _band3(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    xx, yy, zz = x * x, y * y, z * z
    a, b, c, d, e = SH_C3
    return torch.stack(
        [
            -a * y * (3 * xx - yy),
            b * x * y * z,
            -c * y * (4 * zz - xx - yy),
            d * z * (2 * zz - 3 * xx - 3 * yy),
            -c * x * (4 * zz - xx - yy),
            e * z * (xx - yy),
            -a * x * (xx - 3 * yy),
        ],
        -1,
    )
