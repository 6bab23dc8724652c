"""Loss and metrics against loops, finite differences, and native against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recon.core.errors import UsageError
from recon.render import l1_ssim, psnr, ssim
from recon.render.losses import ssim_map, window

F64 = torch.float64


def pictures(seed: int, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """A picture, a noisy copy of it, and weights with some zeros."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.rand((height, width, 3), generator=generator, dtype=F64)
    b = (a + 0.2 * torch.randn((height, width, 3), generator=generator, dtype=F64)).clamp(0, 1)
    weight = (torch.rand((height, width), generator=generator, dtype=F64) * 4 - 1).clamp(min=0)
    return a, b, weight


def slow_ssim(a: np.ndarray, b: np.ndarray, row: int, column: int) -> float:
    """SSIM of one channel in the 11 x 11 window whose corner is (row, column), straight from the definition."""
    taps = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    weights = np.outer(taps, taps) / np.outer(taps, taps).sum()
    x, y = a[row : row + 11, column : column + 11], b[row : row + 11, column : column + 11]
    mx, my = (weights * x).sum(), (weights * y).sum()
    vx, vy = (weights * (x - mx) ** 2).sum(), (weights * (y - my) ** 2).sum()
    cov = (weights * (x - mx) * (y - my)).sum()
    c1, c2 = 0.01**2, 0.03**2
    return float((2 * mx * my + c1) * (2 * cov + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2)))


def slow_loss(a: np.ndarray, b: np.ndarray, weight: np.ndarray, ssim_weight: float) -> float:
    height, width = weight.shape
    l1 = (np.abs(a - b).mean(2) * weight).sum() / weight.sum()
    total, count = 0.0, 0.0
    for row in range(height - 10):
        for column in range(width - 10):
            center = weight[row + 5, column + 5]
            total += center * np.mean([slow_ssim(a[..., c], b[..., c], row, column) for c in range(3)])
            count += center
    return float((1 - ssim_weight) * l1 + ssim_weight * (1 - total / count))


@pytest.mark.parametrize("weighted", [False, True])
def test_loss_matches_the_definition(weighted: bool) -> None:
    a, b, weight = pictures(0, 14, 17)
    weight = weight if weighted else torch.ones_like(weight)
    expected = slow_loss(a.numpy(), b.numpy(), weight.numpy(), 0.3)
    got = l1_ssim(a, b, weight if weighted else None, 0.3, backend="reference")
    assert got.item() == pytest.approx(expected, abs=1e-12)


def test_window_is_a_normalised_gaussian() -> None:
    taps = window(F64, torch.device("cpu"))
    assert taps.sum().item() == pytest.approx(1.0, abs=1e-15)
    assert (taps[5] / taps[2]).item() == pytest.approx(math.exp(9 / 4.5))


def test_gradient_matches_finite_differences() -> None:
    a, b, weight = pictures(1, 13, 12)
    a = (b + torch.where(a > b, 1.0, -1.0) * ((a - b).abs() + 0.01)).requires_grad_()  # away from |x| at 0
    assert torch.autograd.gradcheck(lambda x: l1_ssim(x, b, weight, 0.4, backend="reference"), (a,), fast_mode=True)


def test_native_gradient_is_not_shared_with_the_graph() -> None:
    """Two passes through one graph add up, whether the incoming gradient is 1 or not."""
    a, b, _ = (x.float() for x in pictures(7, 20, 20))
    a.requires_grad_()
    loss = l1_ssim(a, b, backend="cpu")
    once = torch.autograd.grad(loss, a, retain_graph=True)[0].clone()
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    (3.0 * loss).backward()
    assert torch.allclose(a.grad, 5.0 * once, rtol=1e-5)


def test_equal_pictures() -> None:
    a, _, _ = pictures(2, 20, 20)
    assert l1_ssim(a, a, backend="reference").item() == pytest.approx(0.0, abs=1e-12)
    assert ssim(a, a) == pytest.approx(1.0) and psnr(a, a) == math.inf


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(11, 60), st.integers(11, 60), st.sampled_from([0.0, 0.2, 1.0]), st.booleans())
def test_native_matches_float64(seed: int, height: int, width: int, ssim_weight: float, weighted: bool) -> None:
    a, b, weight = pictures(seed, height, width)
    weights = weight if weighted else None
    exact = a.clone().requires_grad_()
    expected = l1_ssim(exact, b, weights, ssim_weight, backend="reference")
    (2.0 * expected).backward()
    single = a.float().requires_grad_()
    got = l1_ssim(single, b.float(), None if weights is None else weights.float(), ssim_weight, backend="cpu")
    (2.0 * got).backward()
    assert got.item() == pytest.approx(expected.item(), abs=1e-5)
    assert (single.grad.double() - exact.grad).norm() <= 1e-3 * exact.grad.norm() + 1e-9


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_weights_select_pixels(backend: str) -> None:
    """With weight only on the left half, nothing that happens well inside the right half matters."""
    a, b, _ = (x.float() for x in pictures(3, 24, 40))
    weight = torch.zeros(24, 40)
    weight[:, :20] = 1.0
    changed = a.clone()
    changed[:, 26:] = 0.0
    assert l1_ssim(a, b, weight, backend=backend).item() == l1_ssim(changed, b, weight, backend=backend).item()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_no_weight_at_all_is_no_loss(backend: str) -> None:
    a, b, _ = (x.float() for x in pictures(3, 24, 40))
    a.requires_grad_()
    loss = l1_ssim(a, b, torch.zeros(24, 40), backend=backend)
    loss.backward()
    assert loss.item() == 0.0 and a.grad.abs().max() == 0.0


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_small_pictures_have_l1_but_no_ssim(backend: str) -> None:
    a, b, _ = (x.float() for x in pictures(4, 9, 30))
    assert l1_ssim(a, b, None, 0.0, backend=backend).item() == pytest.approx((a - b).abs().mean().item(), rel=1e-5)
    with pytest.raises(UsageError, match="SSIM of a 30 x 9 picture: its window is 11 pixels wide"):
        l1_ssim(a, b, None, 0.2, backend=backend)
    with pytest.raises(UsageError, match="SSIM of a 30 x 9 picture"):
        ssim(a, b)


def test_bad_arguments_are_refused() -> None:
    a, b, weight = pictures(5, 20, 20)
    with pytest.raises(UsageError, match="shapes"):
        l1_ssim(a, b[1:])
    with pytest.raises(UsageError, match="float32"):
        l1_ssim(a, b.float())
    with pytest.raises(UsageError, match="weight is"):
        l1_ssim(a, b, weight[1:])
    with pytest.raises(UsageError, match="ssim_weight is 1.5"):
        l1_ssim(a, b, weight, 1.5)


def test_psnr_by_hand() -> None:
    a = torch.zeros(4, 4, 3)
    b = torch.full((4, 4, 3), 0.1)
    assert psnr(a, b) == pytest.approx(20.0, abs=1e-5)
    mask = torch.zeros(4, 4, dtype=torch.bool)
    assert math.isnan(psnr(a, b, mask))
    b[0, 0] = 0.01
    mask[0, 0] = True
    assert psnr(a, b, mask) == pytest.approx(40.0, abs=1e-5)


def test_ssim_is_symmetric_and_bounded() -> None:
    a, b, _ = pictures(6, 30, 25)
    assert torch.allclose(ssim_map(a, b), ssim_map(b, a), atol=1e-12)
    assert ssim_map(a, b).shape == (20, 15, 3)
    assert -1.0 <= ssim(a, b) < 1.0
