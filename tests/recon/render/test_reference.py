"""The reference rasteriser against closed forms, finite differences, and itself called differently."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import recon.render.backends.reference as reference
from recon.render import RasterConfig, rasterize
from tests.recon.render.scenes import INPUTS, RenderScene, projection_loss, random_scene

F64 = torch.float64
SEEDS = st.integers(0, 10_000)


def one_gaussian(opacity: float = 0.8, **changes: object) -> RenderScene:
    """A sphere of 0.1 m at (0.2, -0.1, 2) before a 64 x 48 camera with f = 100, principal point (30, 25)."""
    scene = RenderScene(
        means=torch.tensor([[0.2, -0.1, 2.0]], dtype=F64),
        quats=torch.tensor([[2.0, 0.0, 0.0, 0.0]], dtype=F64),
        scales=torch.full((1, 3), 0.1, dtype=F64),
        opacities=torch.tensor([opacity], dtype=F64),
        colors=torch.tensor([[0.9, 0.5, 0.1]], dtype=F64),
        viewmats=torch.eye(4, dtype=F64)[None],
        Ks=torch.tensor([[[100.0, 0.0, 30.0], [0.0, 100.0, 25.0], [0.0, 0.0, 1.0]]], dtype=F64),
        width=64,
        height=48,
        sh_degree=None,
        background=torch.tensor([[0.0, 0.0, 1.0]], dtype=F64),
    )
    return replace(scene, **changes)


def closed_form_alpha(opacity: float, column: int, row: int) -> float:
    """alpha at a pixel of `one_gaussian`, by hand.

    Mean at u = 100 * 0.2 / 2 + 30 = 40, v = 100 * -0.1 / 2 + 25 = 20. J = [[50, 0, -5], [0, 50, 2.5]], Sigma = 0.01 I,
    so the covariance is 0.01 J J^T + 0.3 I = [[25.25, -0.125], [-0.125, 25.0625]] + 0.3 I.
    """
    a, b, c = 25.55, -0.125, 25.3625
    det = a * c - b * b
    dx, dy = 40.0 - (column + 0.5), 20.0 - (row + 0.5)
    return opacity * math.exp(-0.5 * (c * dx * dx - 2 * b * dx * dy + a * dy * dy) / det)


def test_one_gaussian_matches_the_closed_form() -> None:
    out = one_gaussian().render("reference")
    for column, row in [(40, 20), (39, 19), (45, 23), (33, 28), (28, 20)]:
        alpha = closed_form_alpha(0.8, column, row)
        assert alpha > 1 / 255
        expected = alpha * torch.tensor([0.9, 0.5, 0.1], dtype=F64) + (1 - alpha) * torch.tensor([0, 0, 1.0], dtype=F64)
        assert out.alpha[0, row, column].item() == pytest.approx(alpha, abs=1e-12)
        assert torch.allclose(out.color[0, row, column], expected, atol=1e-12)
        assert out.depth[0, row, column].item() == pytest.approx(2.0, abs=1e-12)
    assert out.aux.means2d[0, 0].tolist() == pytest.approx([40.0, 20.0])
    assert out.aux.radii[0, 0].item() == math.ceil(math.sqrt(2 * math.log(255 * 0.8) * 25.55))


def test_pixels_below_alpha_min_are_background() -> None:
    out = one_gaussian().render("reference")
    for column, row in [(0, 0), (63, 47), (40, 40)]:
        assert closed_form_alpha(0.8, column, row) < 1 / 255
        assert out.color[0, row, column].tolist() == [0.0, 0.0, 1.0]
        assert out.alpha[0, row, column] == 0 and out.depth[0, row, column] == 0


def test_alpha_is_capped() -> None:
    scene = one_gaussian(scales=torch.full((1, 3), 3.0, dtype=F64), opacities=torch.ones(1, dtype=F64))
    assert scene.render("reference").alpha[0, 20, 40].item() == 0.99


def test_blending_order_and_early_stop() -> None:
    """Three flat Gaussians of alpha 0.99: T = 0.01, then 0.0001, which is kept; the third is not, it passes below."""
    wide = one_gaussian(opacities=torch.ones(3, dtype=F64), scales=torch.full((3, 3), 50.0, dtype=F64))
    colors = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=F64)
    means = torch.tensor([[0, 0, 400.0], [0, 0, 200.0], [0, 0, 300.0]], dtype=F64)  # drawn in the order 1, 2, 0
    scene = replace(wide, means=means, quats=wide.quats.expand(3, 4), colors=colors, background=None)
    pixel = scene.render("reference").color[0, 25, 30]
    assert pixel.tolist() == pytest.approx([0.99, 0.01 * 0.99, 0.0], abs=1e-12)
    loose = replace(scene, config=RasterConfig(transmittance_min=1e-7)).render("reference").color[0, 25, 30]
    assert loose.tolist() == pytest.approx([0.99, 0.0099, 0.0001 * 0.99], abs=1e-12)


def test_depth_is_expected_z_over_alpha() -> None:
    """Two flat Gaussians on one axis: weights 0.5 at z = 200 and 0.5 * 0.4 at z = 300."""
    wide = one_gaussian(opacities=torch.tensor([0.5, 0.4], dtype=F64), scales=torch.full((2, 3), 500.0, dtype=F64))
    means = torch.tensor([[0, 0, 200.0], [0, 0, 300.0]], dtype=F64)
    scene = replace(wide, means=means, quats=wide.quats.expand(2, 4), colors=wide.colors.expand(2, 3))
    out = scene.render("reference")
    assert out.alpha[0, 25, 30].item() == pytest.approx(0.7, rel=1e-3)
    assert out.depth[0, 25, 30].item() == pytest.approx((0.5 * 200 + 0.2 * 300) / 0.7, rel=1e-3)


def test_antialiased_scales_opacity_by_the_lost_area() -> None:
    """For `one_gaussian` at 2 mm: Sigma2 = 4e-6 J J^T, and comp = sqrt(det(Sigma2) / det(Sigma2 + 0.3 I)) = 0.0324."""
    tiny = one_gaussian(scales=torch.full((1, 3), 0.002, dtype=F64), config=RasterConfig(antialiased=True))
    raw = 4e-6 * torch.tensor([[2525.0, -12.5], [-12.5, 2506.25]], dtype=F64)
    blurred = raw + 0.3 * torch.eye(2, dtype=F64)
    comp = math.sqrt(torch.linalg.det(raw).item() / torch.linalg.det(blurred).item())
    delta = torch.tensor([-0.5, -0.5], dtype=F64)
    alpha = 0.8 * comp * math.exp(-0.5 * (delta @ torch.linalg.inv(blurred) @ delta).item())
    assert tiny.render("reference").alpha[0, 20, 40].item() == pytest.approx(alpha, rel=1e-9)


def test_spherical_harmonics_follow_the_view_direction() -> None:
    """Degree 1 with only the x coefficient c: colour = 0.5 - 0.4886 c x, x the direction's first component."""
    colors = torch.zeros(1, 4, 3, dtype=F64)
    colors[0, 3, 0], colors[0, 3, 1] = -0.7, 9.0
    scene = one_gaussian(colors=colors, sh_degree=1, background=None)
    out = scene.render("reference")
    x = 0.2 / math.sqrt(0.2**2 + 0.1**2 + 2.0**2)
    red, green, blue = (out.color[0, 20, 40] / out.alpha[0, 20, 40]).tolist()
    assert red == pytest.approx(0.5 + 0.4886025119029199 * 0.7 * x, abs=1e-12)
    assert green == pytest.approx(max(0.0, 0.5 - 0.4886025119029199 * 9.0 * x), abs=1e-12)
    assert blue == pytest.approx(0.5, abs=1e-12)
    dark = replace(scene, colors=torch.full((1, 1, 3), -9.0, dtype=F64), sh_degree=0).render("reference")
    assert dark.color.abs().max() == 0.0 and dark.alpha.max() > 0.5


def test_jacobian_is_clamped_outside_the_image_only_in_its_last_column() -> None:
    """Mean at x/z = 1, beyond the limit (64 - 30) / 100 + 0.15 * 64 / 100 = 0.436: J02 = -100 * 0.436 / 2."""
    scene = one_gaussian(means=torch.tensor([[2.0, 0.0, 2.0]], dtype=F64), scales=torch.full((1, 3), 0.6, dtype=F64))
    gaussians = (scene.means, scene.quats, scene.scales, scene.opacities)
    splats = reference.project(gaussians, scene.viewmats[0], scene.Ks[0], 64, 48, scene.config)
    var_u = 0.36 * (50.0**2 + (-100 * 0.436 / 2.0) ** 2) + 0.3
    var_v = 0.36 * 50.0**2 + 0.3
    assert splats.means2d[0].tolist() == pytest.approx([130.0, 25.0])
    assert splats.conics[0].tolist() == pytest.approx([1 / var_u, 0.0, 1 / var_v])


def finite_difference(scene: RenderScene, name: str, direction: torch.Tensor, step: float) -> float:
    tensor = getattr(scene, name)
    moved = [replace(scene, **{name: tensor + sign * step * direction}) for sign in (1, -1)]
    ends = [projection_loss(end.render("reference")) for end in moved]
    return ((ends[0] - ends[1]) / (2 * step)).item()


def assert_gradients_match(scene: RenderScene, seed: int) -> None:
    """Directional derivatives of every input. Scenes have no Gaussian on a threshold within the step (see `smooth`)."""
    leaf = scene.to(F64, grad=True)
    projection_loss(leaf.render("reference")).backward()
    generator = torch.Generator().manual_seed(seed)
    for name, gradient in leaf.grads().items():
        direction = torch.randn(gradient.shape, generator=generator, dtype=F64)
        if name == "viewmats":
            direction[:, 3] = 0.0
        expected = finite_difference(scene, name, direction, 1e-6)
        scale = gradient.norm().item() * direction.norm().item() / math.sqrt(gradient.numel()) + 1e-9
        assert (gradient * direction).sum().item() == pytest.approx(expected, abs=2e-5 * scale), name


# Thresholds so low that no finite difference crosses them: the model is then smooth apart from the SH clamp at 0.
SMOOTH = {"alpha_min": 1e-30, "transmittance_min": 1e-30, "alpha_max": 0.999999}


@settings(max_examples=6, deadline=None, derandomize=True)
@given(SEEDS, st.integers(10, 30), st.sampled_from([None, 0, 1, 2, 3]), st.booleans())
def test_gradients_match_finite_differences(seed: int, count: int, degree: int | None, antialiased: bool) -> None:
    config = RasterConfig(**SMOOTH, antialiased=antialiased)
    scene = random_scene(seed, count=count, width=17, height=14, sh_degree=degree, config=config, views=2)
    if degree is not None:
        scene = replace(scene, colors=scene.colors * 0.2)  # keeps 0.5 + SH away from its clamp
    assert_gradients_match(scene, seed)


@pytest.mark.parametrize("name", INPUTS)
def test_gradcheck(name: str) -> None:
    scene = random_scene(5, count=6, width=12, height=11, sh_degree=1, config=RasterConfig(**SMOOTH)).to(F64)

    def images(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = replace(scene, **{name: tensor}).render("reference")
        return out.color, out.alpha, out.depth

    assert torch.autograd.gradcheck(images, getattr(scene, name).requires_grad_(), fast_mode=True, atol=1e-4, rtol=1e-3)


def test_default_thresholds_do_not_disturb_the_gradient() -> None:
    """With the default cuts the gradient is that of the cut model: it differs from the smooth one by little."""
    cut, smooth = (random_scene(3, count=40, config=config) for config in (RasterConfig(), RasterConfig(**SMOOTH)))
    grads = []
    for scene in (cut.to(F64, grad=True), smooth.to(F64, grad=True)):
        scene.render("reference").color.sum().backward()
        grads.append(scene.grads()["means"])
    assert (grads[0] - grads[1]).norm() < 0.1 * grads[1].norm()


def test_no_gradient_where_alpha_is_capped() -> None:
    scene = one_gaussian(scales=torch.full((1, 3), 30.0, dtype=F64), opacities=torch.ones(1, dtype=F64)).to(
        F64, grad=True
    )
    out = scene.render("reference")
    out.alpha[0, 20, 40].backward()
    assert scene.grads()["opacities"].abs().max() == 0


def test_intrinsics_get_gradients() -> None:
    scene = random_scene(8, count=10, width=20, height=18, config=RasterConfig(**SMOOTH))
    Ks = scene.Ks.clone().requires_grad_()
    projection_loss(replace(scene, Ks=Ks).render("reference")).backward()
    direction = torch.zeros_like(Ks.detach())
    direction[0, 0, 0], direction[0, 1, 2] = 1.0, -0.5
    expected = finite_difference(scene, "Ks", direction, 1e-6)
    assert (Ks.grad * direction).sum().item() == pytest.approx(expected, rel=1e-5)


def test_many_views_equal_single_views() -> None:
    scene = random_scene(11, views=3, sh_degree=2)
    together = scene.render("reference")
    for view in range(3):
        one = slice(view, view + 1)
        alone = replace(scene, viewmats=scene.viewmats[one], Ks=scene.Ks[one], background=scene.background[one]).render(
            "reference"
        )
        assert torch.equal(together.color[view], alone.color[0])
        assert torch.equal(together.depth[view], alone.depth[0])
        assert torch.equal(together.aux.visible[view], alone.aux.visible[0])


@settings(max_examples=5, deadline=None, derandomize=True)
@given(SEEDS)
def test_tile_mask_cuts_tiles_out_and_leaves_the_others_alone(seed: int) -> None:
    scene = random_scene(seed, views=2)
    rows, columns = scene.config.tile_grid(scene.width, scene.height)
    mask = torch.rand((2, rows, columns), generator=torch.Generator().manual_seed(seed)) < 0.5
    full, part = scene.render("reference"), replace(scene, tile_mask=mask).render("reference")
    pixels = mask.repeat_interleave(16, 1).repeat_interleave(16, 2)[:, : scene.height, : scene.width]
    assert torch.allclose(part.color[pixels], full.color[pixels], atol=1e-14)
    assert torch.allclose(part.depth[pixels], full.depth[pixels], atol=1e-12)
    assert part.alpha[~pixels].abs().sum() == 0 and part.depth[~pixels].abs().sum() == 0
    expected = scene.background[:, None, None, :].expand_as(part.color)
    assert torch.equal(part.color[~pixels], expected[~pixels])
    assert torch.equal(part.aux.visible, full.aux.visible)


@pytest.mark.parametrize("tile_size", [4, 16, 64])
def test_tile_size_and_batching_do_not_change_the_picture(tile_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = random_scene(2, count=20, width=37, height=21, sh_degree=1).to(F64, grad=True)
    expected = scene.render("reference")
    projection_loss(expected).backward()
    # Tiny budgets: one tile per batch, pixels in parts, everything recomputed in the backward pass.
    monkeypatch.setattr(reference, "PAIRS_PER_BATCH", 3000)
    monkeypatch.setattr(reference, "PAIRS_TO_KEEP", 0)
    other = replace(scene.to(F64, grad=True), config=RasterConfig(tile_size=tile_size))
    out = other.render("reference")
    projection_loss(out).backward()
    assert torch.allclose(out.color, expected.color, atol=1e-13)
    for name, gradient in scene.grads().items():
        assert torch.allclose(other.grads()[name], gradient, rtol=1e-9, atol=1e-11), name


def test_float32_is_close_to_float64() -> None:
    scene = random_scene(4, count=200, sh_degree=3)
    low, high = scene.to(torch.float32).render("reference"), scene.render("reference")
    assert low.color.dtype == torch.float32
    assert ((low.color.double() - high.color).abs() > 1e-4).double().mean() < 1e-3


def test_screen_gradient_norm_is_filled_by_the_backward_pass() -> None:
    """Against the gradient of the principal point: shifting (cx, cy) shifts every mean (when J is not clamped)."""
    scene = one_gaussian().to(F64, grad=True)
    out = scene.render("reference")
    assert out.aux.means2d_grad_norm.tolist() == [[0.0]]
    out.color[0, 22, 43].sum().backward()
    still = one_gaussian()
    moved = [replace(still, Ks=still.Ks + shift).render("reference").color[0, 22, 43].sum() for shift in shifts()]
    u, v = ((moved[0] - moved[1]) / 2e-6).item(), ((moved[2] - moved[3]) / 2e-6).item()
    assert out.aux.means2d_grad_norm[0, 0].item() == pytest.approx(math.hypot(u, v), rel=1e-6)


def shifts() -> list[torch.Tensor]:
    moves = []
    for row in (0, 1):
        for sign in (1.0, -1.0):
            shift = torch.zeros(1, 3, 3, dtype=F64)
            shift[0, row, 2] = sign * 1e-6
            moves.append(shift)
    return moves


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_to_draw_still_gives_pictures_and_zero_gradients(count: int) -> None:
    scene = random_scene(1, count=count)
    behind = replace(scene, means=scene.means * torch.tensor([1.0, 1.0, -1.0], dtype=F64)).to(F64, grad=True)
    out = behind.render("reference")
    assert torch.equal(out.color, behind.background[:, None, None, :].expand_as(out.color))
    assert not out.aux.visible.any()
    projection_loss(out).backward()
    assert behind.grads()["means"].shape == (count, 3)
    assert behind.grads()["means"].abs().sum() == 0


def test_no_views() -> None:
    scene = random_scene(1)
    out = rasterize(
        scene.means, scene.quats, scene.scales, scene.opacities, scene.colors, scene.viewmats[:0], scene.Ks[:0], 8, 6,
        backend="reference",
    )  # fmt: skip
    assert out.color.shape == (0, 6, 8, 3) and out.aux.visible.shape == (0, 60)
