"""What `rasterize` accepts, what it refuses and in which words, and which backend it picks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from recon.core.errors import CalibrationError, ReconError, UnavailableError, UsageError
from recon.render import RasterConfig, SparseAdam, backends, l1_ssim, psnr
from recon.render.backends import describe_backends, select, select_name
from tests.recon.render.scenes import RenderScene, random_scene

CPU = torch.device("cpu")


def scene(**changes: Any) -> RenderScene:
    return replace(random_scene(0, count=5).to(torch.float32), **changes)


def nan_at(tensor: torch.Tensor, *index: int) -> torch.Tensor:
    copy = tensor.clone()
    copy[index] = float("nan")
    return copy


BASE = scene()
WRONG: list[tuple[dict[str, Any], type[ReconError], str]] = [
    ({"means": BASE.means[:, :2]}, UsageError, r"means has shape \[5, 2\]: expected \[N, 3\]"),
    ({"means": BASE.means.half()}, UsageError, "means is torch.float16: only float32 and float64"),
    ({"quats": BASE.quats[:4]}, UsageError, r"quats has shape \[4, 4\]: expected \[5, 4\]"),
    ({"quats": BASE.quats.double()}, UsageError, "quats is torch.float64 on cpu: means is torch.float32 on cpu"),
    ({"scales": BASE.scales[:, 0]}, UsageError, r"scales has shape \[5\]: expected \[5, 3\]"),
    ({"opacities": BASE.opacities[:, None]}, UsageError, r"opacities has shape \[5, 1\]: expected \[5\]"),
    ({"colors": torch.zeros(5, 4, 3)}, UsageError, r"colors has shape \[5, 4, 3\]: expected \[5, 3\] \(pass sh_degree"),
    ({"colors": torch.zeros(5, 3), "sh_degree": 1}, UsageError, r"expected \[5, K, 3\] with sh_degree=1"),
    ({"colors": torch.zeros(5, 4, 3), "sh_degree": 2}, UsageError, "sh_degree=2 needs 9 coefficients, colors has 4"),
    ({"colors": torch.zeros(5, 25, 3), "sh_degree": 4}, UsageError, "sh_degree is 4: degrees 0 to 3 exist"),
    ({"viewmats": BASE.viewmats[0]}, UsageError, r"viewmats has shape \[4, 4\]: expected \[C, 4, 4\]"),
    ({"Ks": BASE.Ks.repeat(2, 1, 1)}, UsageError, r"Ks has shape \[2, 3, 3\]: expected \[1, 3, 3\]"),
    ({"viewmats": nan_at(BASE.viewmats, 0, 1, 2)}, CalibrationError, r"viewmats\[0\] is not finite.*Check the calibr"),
    ({"Ks": nan_at(BASE.Ks, 0, 0, 2)}, CalibrationError, r"Ks\[0\] is not a pinhole matrix"),
    ({"Ks": -BASE.Ks}, CalibrationError, "positive focal lengths and no skew"),
    ({"Ks": BASE.Ks + torch.eye(3).roll(1, 1)}, CalibrationError, "no skew"),
    ({"width": 0}, UsageError, "bad image size: 0 x 37 pixels"),
    ({"height": 10**6}, UsageError, "bad image size"),
    ({"background": torch.zeros(4)}, UsageError, r"background has shape \[4\]: expected \[3\] or \[1, 3\]"),
    ({"tile_mask": torch.ones(1, 2, 2, dtype=torch.bool)}, UsageError, r"tile_mask .*expected \[1, 3, 4\]"),
    ({"tile_mask": torch.ones(1, 3, 4)}, UsageError, "tile_mask is torch.float32 on cpu: it must be bool on cpu"),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG, ids=[str(i) for i in range(len(WRONG))])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_bad_arguments_are_refused(changes: dict[str, Any], error: type, message: str, backend: str) -> None:
    with pytest.raises(error, match="(?i)" + message):
        scene(**changes).render(backend)


@pytest.mark.parametrize(
    "wrong",
    [
        {"near": 0.0},
        {"near": 2.0, "far": 1.0},
        {"eps2d": -1.0},
        {"alpha_max": 1.0},
        {"alpha_min": 0.0},
        {"transmittance_min": 0.0},
        {"tile_size": 0},
        {"near": float("nan")},
    ],
)
def test_bad_config_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="RasterConfig"):
        RasterConfig(**wrong)


def test_results_have_the_documented_shapes() -> None:
    out = replace(random_scene(1, count=7, views=2).to(torch.float32)).render("auto")
    assert out.color.shape == (2, 37, 53, 3) and out.alpha.shape == out.depth.shape == (2, 37, 53)
    assert out.aux.visible.shape == out.aux.radii.shape == out.aux.means2d_grad_norm.shape == (2, 7)
    assert out.aux.means2d.shape == (2, 7, 2) and out.aux.visible.dtype == torch.bool
    assert out.color.dtype == torch.float32 and not out.color.requires_grad


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_one_background_serves_all_views(backend: str) -> None:
    many = random_scene(1, views=3).to(torch.float32)
    one = replace(many, background=torch.tensor([0.2, 0.4, 0.6], requires_grad=True))
    each = replace(many, background=one.background.detach().expand(3, 3))
    out = one.render(backend)
    assert torch.equal(out.color, each.render(backend).color)
    out.color.sum().backward()
    assert torch.allclose(one.background.grad, (1.0 - out.alpha.detach()).sum().expand(3), rtol=1e-4)


def test_unknown_backend_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no rasteriser backend is called 'referense'. Did you mean 'reference'"):
        scene().render("referense")


def test_auto_takes_what_fits() -> None:
    native = describe_backends()["cpu"] is None
    assert select_name("auto", CPU, torch.float32) == ("cpu" if native else "reference")
    assert select_name("auto", CPU, torch.float64) == "reference"
    assert select("auto", CPU, torch.float32, intrinsics_grad=True).name == "reference"
    assert select("auto", CPU, torch.float32, tile_size=8).name == "reference"
    assert select_name("auto", torch.device("meta"), torch.float32) == "reference"
    assert select("reference", CPU).name == "reference"


@pytest.mark.parametrize(
    ("device", "dtype", "needs", "message"),
    [
        ("meta", torch.float32, {}, "tensors are on meta. Use --backend reference"),
        ("cpu", torch.float64, {}, "torch.float64 and it draws float32. Use --backend reference"),
        ("cpu", torch.float32, {"intrinsics_grad": True}, "Ks requires a gradient.*Use --backend reference"),
        ("cpu", torch.float32, {"tile_size": 8}, "tile_size is 8 and its tiles have 16 pixels a side"),
    ],
)
def test_named_backend_that_does_not_fit_is_refused(
    device: str, dtype: torch.dtype, needs: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnavailableError, match=message):
        select("cpu", torch.device(device), dtype, **needs)


def test_build_without_native_code_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "recon was built without Highway's headers. Install libhwy-dev and reinstall recon"
    monkeypatch.setattr(backends, "native_unavailable", lambda: reason)
    assert select("auto", CPU).name == "reference"
    with pytest.raises(UnavailableError, match="Install libhwy-dev") as caught:
        select("cpu", CPU)
    assert caught.value.exit_code == 5
    assert describe_backends() == {"cpu": reason, "reference": None}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_small_fit_converges(backend: str) -> None:
    """Rasteriser, loss and optimiser together: from a disturbed copy back to the pictures of the original."""
    truth = random_scene(31, count=25, views=2, width=32, height=24, pixels=4.0).to(torch.float32)
    target = truth.render(backend).color
    generator = torch.Generator().manual_seed(1)
    noise = 0.1 * torch.randn(truth.means.shape, generator=generator)
    start = replace(truth, means=truth.means + noise, colors=torch.full_like(truth.colors, 0.5))
    fitted = start.to(torch.float32, grad=True)
    params = {"means": fitted.means, "quats": fitted.quats, "scales": fitted.scales, "colors": fitted.colors}
    optimizer = SparseAdam(params, {"means": 6e-3, "quats": 1e-2, "scales": 1e-3, "colors": 3e-2}, backend=backend)
    before = psnr(start.render(backend).color[0], target[0])
    for _ in range(50):
        out = fitted.render(backend)
        loss = sum(l1_ssim(out.color[view], target[view], backend=backend) for view in range(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(out.aux.visible.any(0))
    after = psnr(fitted.render(backend).color[0].detach(), target[0])
    assert after > before + 8.0, (before, after)
