from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import sph_harm_y

from recon.core.errors import InputError
from recon.geometry.quaternion import quat_to_matrix
from recon.geometry.sh import eval_sh, rgb_to_sh0, rotate_sh, sh0_to_rgb, sh_basis, sh_degree


def directions(count: int, seed: int = 0) -> torch.Tensor:
    d = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return d / d.norm(dim=-1, keepdim=True)


def rotation(seed: int) -> torch.Tensor:
    return quat_to_matrix(torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


def coefficients(count: int, degree: int, seed: int = 3) -> torch.Tensor:
    shape = (count, (degree + 1) ** 2, 3)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_basis_is_scipys_real_one_in_order_and_sign() -> None:
    d = directions(50)
    theta, phi = torch.arccos(d[:, 2]).numpy(), torch.atan2(d[:, 1], d[:, 0]).numpy()
    ours = sh_basis(3, d).numpy()
    for band in range(4):
        for order in range(-band, band + 1):
            # The INRIA basis keeps the Condon-Shortley sign: sqrt(2) times the plain imaginary or real part.
            y = sph_harm_y(band, abs(order), theta, phi)
            real = y.real if order == 0 else math.sqrt(2) * (y.imag if order < 0 else y.real)
            np.testing.assert_allclose(ours[:, band * band + band + order], real, atol=1e-12)


def test_signs_along_the_axes() -> None:
    c = 0.48860251
    basis = sh_basis(1, torch.eye(3, dtype=torch.float64))
    expected = [[0.28209479, 0, 0, -c], [0.28209479, -c, 0, 0], [0.28209479, 0, c, 0]]
    np.testing.assert_allclose(basis.numpy(), expected, atol=1e-8)


@given(st.integers(0, 3), st.integers(0, 10**6))
def test_rotated_coefficients_show_the_turned_colours(degree: int, seed: int) -> None:
    coeffs, d, r = coefficients(20, degree, seed), directions(20, seed + 1), rotation(seed + 2)
    turned = eval_sh(degree, rotate_sh(coeffs, r), d)
    torch.testing.assert_close(turned, eval_sh(degree, coeffs, d @ r), atol=1e-12, rtol=0)  # rows of d @ R are R^T d


@given(st.integers(0, 10**6))
def test_rotations_compose_and_keep_length(seed: int) -> None:
    coeffs, a, b = coefficients(4, 3, seed), rotation(seed + 1), rotation(seed + 2)
    torch.testing.assert_close(rotate_sh(rotate_sh(coeffs, b), a), rotate_sh(coeffs, a @ b), atol=1e-11, rtol=0)
    torch.testing.assert_close(rotate_sh(coeffs, a).norm(), coeffs.norm(), atol=1e-11, rtol=0)


def test_one_rotation_per_row_equals_a_loop() -> None:
    coeffs = coefficients(6, 3)
    rotations = torch.stack([rotation(seed) for seed in range(6)])
    loop = torch.cat([rotate_sh(coeffs[i : i + 1], rotations[i]) for i in range(6)])
    torch.testing.assert_close(rotate_sh(coeffs, rotations), loop, atol=1e-13, rtol=0)


def test_gradients_in_coefficients_and_rotation() -> None:
    coeffs = coefficients(2, 3).requires_grad_()
    r = rotation(5).requires_grad_()
    assert torch.autograd.gradcheck(rotate_sh, (coeffs, r))


def test_lower_degree_uses_the_first_bands_only() -> None:
    coeffs, d = coefficients(5, 3), directions(5)
    torch.testing.assert_close(eval_sh(1, coeffs, d), eval_sh(1, coeffs[:, :4], d))


def test_constant_colour_round_trip() -> None:
    rgb = np.linspace(0, 1, 12).reshape(4, 3)
    np.testing.assert_allclose(sh0_to_rgb(rgb_to_sh0(rgb)), rgb, atol=1e-15)
    coeffs = torch.from_numpy(rgb_to_sh0(rgb))[:, None]
    np.testing.assert_allclose(eval_sh(0, coeffs, directions(4)).numpy() + 0.5, rgb, atol=1e-15)


@pytest.mark.parametrize("count", [0, 2, 5, 25])
def test_refuses_what_is_no_degree(count: int) -> None:
    with pytest.raises(InputError, match=f"{count} spherical harmonics"):
        sh_degree(count)
