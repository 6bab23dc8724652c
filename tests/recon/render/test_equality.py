"""The native rasteriser against the float64 reference, and against itself with other thread counts and views."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recon.render import RasterConfig, Rendering
from recon.render.backends import cpu
from tests.recon.render.scenes import RenderScene, random_scene

IMAGE_TOLERANCE = 1e-4
THRESHOLD_SHARE = 1e-3  # of the pixels may lie on the alpha_min or stop threshold, where rounding decides
THRESHOLD_ERROR = 1.0 / 255.0  # a contribution that only one of the two drew
GRADIENT_TOLERANCE = 1e-3  # of the tensor's norm

SCENES = st.builds(
    random_scene,
    st.integers(0, 100_000),
    count=st.integers(1, 150),
    views=st.integers(1, 2),
    width=st.integers(17, 90),
    height=st.integers(17, 70),
    sh_degree=st.sampled_from([None, 0, 1, 2, 3]),
    background=st.booleans(),
    pixels=st.floats(0.3, 6.0),
    config=st.builds(RasterConfig, antialiased=st.booleans()),
)


def same_pixels(native: Rendering, exact: Rendering) -> Tensor:
    """bool [C, H, W]: where colour, alpha and depth agree within the tolerance."""
    same = (native.color.double() - exact.color).abs().amax(-1) <= IMAGE_TOLERANCE
    same &= (native.alpha.double() - exact.alpha).abs() <= IMAGE_TOLERANCE
    return same & ((native.depth.double() - exact.depth).abs() <= IMAGE_TOLERANCE * exact.depth.clamp(min=1.0))


def assert_images_agree(native: Rendering, exact: Rendering) -> Tensor:
    same = same_pixels(native, exact)
    assert (~same).sum().item() <= max(2.0, THRESHOLD_SHARE * same.numel())
    worst = (native.color.double() - exact.color).abs().max().item()
    assert worst <= THRESHOLD_ERROR * max(1.0, exact.color.abs().max().item()) * 1.5
    return same


def weighted_loss(rendering: Rendering, pixels: Tensor, seed: int) -> Tensor:
    """A random linear function of the three images on `pixels`. Its gradient reaches every output."""
    generator = torch.Generator().manual_seed(seed)
    total = rendering.color.new_zeros(())
    for image in (rendering.color, rendering.alpha, rendering.depth):
        weights = torch.randn(image.shape, generator=generator, dtype=torch.float64)
        weights = weights * (pixels[..., None] if image.ndim == 4 else pixels)
        total = total + (weights.to(image.dtype) * image).sum()
    return total


def assert_gradients_agree(native: RenderScene, exact: RenderScene) -> None:
    found, expected = native.grads(), exact.grads()
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        error = (found[name].double() - gradient).norm().item()
        assert error <= GRADIENT_TOLERANCE * gradient.norm().item() + 1e-7, (name, error, gradient.norm().item())


def compare(scene: RenderScene, seed: int = 0) -> None:
    """Draw in float32 natively and in float64 by the reference, from the same float32 numbers; compare everything."""
    native = scene.to(torch.float32, grad=True)
    exact = native.to(torch.float64, grad=True)
    drawn, truth = native.render("cpu"), exact.render("reference")
    same = assert_images_agree(drawn, truth)
    assert torch.equal(drawn.aux.visible, truth.aux.visible)
    assert torch.allclose(drawn.aux.means2d.double(), truth.aux.means2d, atol=1e-3)
    assert ((drawn.aux.radii.double() - truth.aux.radii).abs() <= 1.0).all()
    for rendering in (drawn, truth):
        weighted_loss(rendering, same, seed).backward()
    assert_gradients_agree(native, exact)
    norms = truth.aux.means2d_grad_norm
    assert (drawn.aux.means2d_grad_norm.double() - norms).norm() <= GRADIENT_TOLERANCE * norms.norm() + 1e-7


@settings(max_examples=25, deadline=None, derandomize=True)
@given(SCENES, st.integers(0, 1000))
def test_native_equals_the_reference(scene: RenderScene, seed: int) -> None:
    compare(scene, seed)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(SCENES, st.integers(0, 1000))
def test_native_equals_the_reference_under_a_tile_mask(scene: RenderScene, seed: int) -> None:
    rows, columns = scene.config.tile_grid(scene.width, scene.height)
    shape = (len(scene.viewmats), rows, columns)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    compare(replace(scene, tile_mask=mask), seed)


def test_a_dense_scene_with_early_stops() -> None:
    """Hundreds of strong layers per pixel: most stop early, and 1 / (1 - alpha) is at its largest."""
    scene = random_scene(17, count=500, width=64, height=48, pixels=8.0, sh_degree=1)
    compare(replace(scene, opacities=scene.opacities.clamp(min=0.6)))


def test_opaque_gaussians_at_the_cap() -> None:
    scene = random_scene(18, count=60, pixels=5.0)
    compare(replace(scene, opacities=torch.ones_like(scene.opacities)))


def test_gaussians_beside_the_image_where_the_jacobian_is_clamped() -> None:
    scene = random_scene(19, count=80, width=64, height=48, pixels=12.0)
    stretch = torch.tensor([2.5, 2.5, 1.0], dtype=torch.float64)
    compare(replace(scene, means=scene.means * stretch))


def test_only_one_output_has_a_gradient() -> None:
    for output in ("color", "alpha", "depth"):
        native = random_scene(20, sh_degree=2).to(torch.float32, grad=True)
        exact = native.to(torch.float64, grad=True)
        drawn, truth = native.render("cpu"), exact.render("reference")
        pixels = same_pixels(drawn, truth).double()
        for rendering in (drawn, truth):
            image = getattr(rendering, output)
            (image * (pixels[..., None] if output == "color" else pixels).to(image.dtype)).sum().backward()
        for name, gradient in exact.grads().items():
            found = native.grads().get(name)
            found = torch.zeros_like(gradient) if found is None else found.double()
            assert (found - gradient).norm() <= GRADIENT_TOLERANCE * gradient.norm() + 1e-6, (output, name)


def test_more_coefficients_than_the_degree_asks_for() -> None:
    scene = random_scene(21, sh_degree=3)
    compare(replace(scene, sh_degree=1))


def test_rendering_without_gradients_is_the_same_picture() -> None:
    scene = random_scene(22, sh_degree=1, views=2)
    with_grad = scene.to(torch.float32, grad=True).render("cpu")
    without = scene.to(torch.float32).render("cpu")
    with torch.no_grad():
        switched_off = scene.to(torch.float32, grad=True).render("cpu")
    for name in ("color", "alpha", "depth"):
        assert torch.equal(getattr(with_grad, name), getattr(without, name))
        assert torch.equal(getattr(with_grad, name), getattr(switched_off, name))
    assert not without.color.requires_grad and not switched_off.color.requires_grad


def test_many_views_equal_single_views() -> None:
    """Pictures bit for bit; Gaussian gradients are the sum over the views."""
    together = random_scene(23, views=3, sh_degree=2).to(torch.float32, grad=True)
    out = together.render("cpu")
    out.color.square().sum().backward()
    total = {name: torch.zeros_like(gradient) for name, gradient in together.grads().items()}
    for view in range(3):
        alone = together.to(torch.float32)
        one = slice(view, view + 1)
        alone = replace(alone, viewmats=alone.viewmats[one], Ks=alone.Ks[one], background=alone.background[one])
        alone = alone.to(torch.float32, grad=True)
        single = alone.render("cpu")
        assert torch.equal(single.color[0], out.color[view]) and torch.equal(single.depth[0], out.depth[view])
        single.color.square().sum().backward()
        for name, gradient in alone.grads().items():
            if name in ("viewmats", "background"):
                total[name][view] += gradient[0]
            else:
                total[name] += gradient
    for name, gradient in together.grads().items():
        assert torch.allclose(gradient, total[name], rtol=1e-4, atol=1e-5 * gradient.abs().max().item()), name


@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.booleans())
def test_bit_identical_for_any_thread_count(seed: int, antialiased: bool) -> None:
    results: list[list[Tensor]] = []
    scene = random_scene(
        seed, count=400, views=2, width=100, height=70, sh_degree=2, config=RasterConfig(antialiased=antialiased)
    )
    try:
        for count in (1, 2, 3):
            cpu.set_threads(count)
            leaf = scene.to(torch.float32, grad=True)
            out = leaf.render("cpu")
            weighted_loss(out, torch.ones_like(out.alpha, dtype=torch.bool), seed).backward()
            images = [out.color.detach(), out.alpha.detach(), out.depth.detach(), out.aux.means2d_grad_norm]
            results.append(images + [gradient for _, gradient in sorted(leaf.grads().items())])
    finally:
        cpu.set_threads(0)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_finished_picture_frees_its_memory_at_once() -> None:
    """No reference cycle holds the pictures or what the backward pass needs: a loop must not wait for the collector."""
    scene = random_scene(25).to(torch.float32, grad=True)
    gc.disable()
    try:
        out = scene.render("cpu")
        picture, graph = weakref.ref(out.color), weakref.ref(out.color.grad_fn)
        out.color.sum().backward()
        del out
        assert picture() is None and graph() is None
    finally:
        gc.enable()


def test_backward_twice_gives_the_same_gradient() -> None:
    scene = random_scene(24, sh_degree=1).to(torch.float32, grad=True)
    loss = scene.render("cpu").color.square().sum()
    first = torch.autograd.grad(loss, scene.means, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(loss, scene.means)[0])
