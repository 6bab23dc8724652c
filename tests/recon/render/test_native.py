"""The native module itself: instruction sets, what it refuses, plain rendering, and builds without it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from recon.core.errors import UsageError
from recon.render.backends import cpu
from recon.render.types import RasterConfig

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def best_target() -> Iterator[None]:
    yield
    cpu.set_target(None)


def gaussians(count: int, seed: int = 0) -> list[Tensor]:
    """means, quats, scales, opacities, SH of degree 3, in front of `camera`."""
    random = torch.Generator().manual_seed(seed)
    return [
        torch.randn(count, 3, generator=random),
        torch.randn(count, 4, generator=random),
        0.08 * torch.randn(count, 3, generator=random).exp(),
        0.05 + 0.9 * torch.rand(count, generator=random),
        0.3 * torch.randn(count, 16, 3, generator=random),
    ]


def cameras(views: int, width: int, height: int) -> list[Tensor]:
    viewmats = torch.eye(4).repeat(views, 1, 1)
    viewmats[:, 0, 3] = 0.1 * torch.arange(views)
    viewmats[:, 2, 3] = 3.0
    intrinsics = torch.tensor([[0.9 * width, 0.0, 0.5 * width], [0.0, 0.9 * width, 0.45 * height], [0.0, 0.0, 1.0]])
    return [viewmats, intrinsics.repeat(views, 1, 1)]


def draw(scene: list[Tensor], views: list[Tensor], width: int, height: int, keep: bool = True) -> cpu.Forward:
    return cpu.forward(
        *scene, *views, width, height, sh_degree=3, background=torch.tensor([0.1, 0.2, 0.3]), config=RasterConfig(),
        keep=keep,
    )  # fmt: skip


def gradients(scene: list[Tensor], views: list[Tensor], out: cpu.Forward) -> cpu.Gradients:
    random = torch.Generator().manual_seed(1)
    grads = [torch.randn(tensor.shape, generator=random) for tensor in (out.color, out.alpha, out.depth)]
    return cpu.backward(
        out.saved, *scene, *views, torch.zeros(3), out.color, out.alpha, out.depth, *grads, want_viewmats=True
    )


def test_instruction_sets_agree() -> None:
    scene, views = gaussians(600), cameras(2, 75, 53)
    results = {}
    for target in cpu.targets():
        cpu.set_target(target)
        out = draw(scene, views, 75, 53)
        found = gradients(scene, views, out)
        pictures = [out.color, out.alpha, out.depth]
        results[target] = (
            pictures,
            [found.means, found.quats, found.scales, found.opacities, found.colors, found.viewmats],
        )
    best = cpu.targets()[0]
    for target, (pictures, grads) in results.items():
        for name, mine, theirs in zip(("color", "alpha", "depth"), pictures, results[best][0], strict=True):
            wrong = (mine - theirs).abs() > 1e-4
            assert wrong.float().mean() <= 1e-3, (target, name)
        for mine, theirs in zip(grads, results[best][1], strict=True):
            assert mine is not None and theirs is not None
            assert (mine - theirs).norm() <= 1e-3 * theirs.norm(), target


def test_unknown_instruction_set_is_refused_and_changes_nothing() -> None:
    with pytest.raises(UsageError, match="mmx"):
        cpu.set_target("mmx")
    assert draw(gaussians(5), cameras(1, 16, 16), 16, 16).color.isfinite().all()


def test_loss_and_adam_agree_between_instruction_sets() -> None:
    random = torch.Generator().manual_seed(2)
    picture, target = torch.rand(2, 70, 41, 3, generator=random)
    weight = torch.rand(70, 41, generator=random)
    seen = torch.arange(37) % 3 != 0
    losses, moved = [], []
    for name in cpu.targets():
        cpu.set_target(name)
        loss, grad = cpu.l1_ssim(picture, target, weight, 0.2, want_grad=True)
        assert grad is not None
        losses.append((loss, grad))
        rows = [torch.ones(37, 3), 0.1 * picture[:37, 0].clone(), torch.zeros(37, 3), torch.zeros(37, 3)]
        steps = torch.zeros(37, dtype=torch.int32)
        cpu.adam_step(*rows, steps, seen, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-15)
        assert torch.equal(steps, seen.to(torch.int32))
        moved.append(rows[0])
    for loss, grad in losses:
        assert loss == pytest.approx(losses[0][0], rel=1e-5)
        torch.testing.assert_close(grad, losses[0][1], rtol=1e-4, atol=1e-8)
    for param in moved:
        torch.testing.assert_close(param, moved[0])
        assert torch.equal(param[::3], torch.ones(13, 3))


def test_plain_rendering_is_the_same_picture_and_keeps_nothing() -> None:
    scene, views = gaussians(300), cameras(3, 40, 30)
    kept = draw(scene, views, 40, 30)
    color, alpha, depth = cpu.render_views(
        *scene, *views, 40, 30, sh_degree=3, background=torch.tensor([0.1, 0.2, 0.3]), config=RasterConfig()
    )  # fmt: skip
    assert torch.equal(color, kept.color) and torch.equal(alpha, kept.alpha) and torch.equal(depth, kept.depth)
    assert draw(scene, views, 40, 30, keep=False).saved is None


def test_bytes_are_rounded_and_clamped() -> None:
    scene, views = gaussians(300), cameras(2, 40, 30)
    scene[4] *= 8.0  # colours beyond 1
    arguments = {"sh_degree": 3, "background": None, "config": RasterConfig()}
    color, _, _ = cpu.render_views(*scene, *views, 40, 30, **arguments)  # type: ignore[arg-type]
    pixels, _, _ = cpu.render_views(*scene, *views, 40, 30, as_uint8=True, **arguments)  # type: ignore[arg-type]
    assert pixels.dtype == torch.uint8 and color.max() > 1.0
    assert torch.equal(pixels, (255.0 * color.clamp(0.0, 1.0) + 0.5).floor().to(torch.uint8))


def test_results_survive_later_calls() -> None:
    """Pool memory is reused only after its tensor has died."""
    scene, views = gaussians(200), cameras(1, 33, 21)
    first = draw(scene, views, 33, 21)
    copy = first.color.clone()
    for seed in range(3):
        draw(gaussians(200, seed + 1), views, 33, 21)
    assert torch.equal(first.color, copy)


def test_strided_or_double_tensors_are_refused() -> None:
    scene, views = gaussians(10), cameras(1, 16, 16)
    with pytest.raises(UsageError, match="float64"):
        draw([scene[0].double(), *scene[1:]], views, 16, 16)
    with pytest.raises(UsageError, match="strided"):
        draw([scene[0].T.contiguous().T, *scene[1:]], views, 16, 16)


def test_other_tile_sizes_are_refused() -> None:
    scene, views = gaussians(10), cameras(1, 16, 16)
    with pytest.raises(UsageError, match="tile_size is 8"):
        cpu.forward(*scene, *views, 16, 16, sh_degree=3, background=None, config=RasterConfig(tile_size=8))


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_build_without_highway_succeeds_and_says_why(tmp_path: Path) -> None:
    missing = ["-DHWY_INCLUDE_DIR=HWY_INCLUDE_DIR-NOTFOUND", "-DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON"]
    hidden = ["-DCMAKE_SYSTEM_IGNORE_PATH=/usr/include;/usr/local/include", "-DCMAKE_IGNORE_PATH=/usr/include"]
    build, prefix = tmp_path / "build", tmp_path / "installed"
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), *missing, *hidden], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
    subprocess.run(["cmake", "--install", str(build), "--prefix", str(prefix)], check=True, capture_output=True)
    note = (prefix / "recon" / "render" / "native_missing.txt").read_text(encoding="utf-8")
    assert "Google Highway was not found" in note and "libhwy-dev" in note
