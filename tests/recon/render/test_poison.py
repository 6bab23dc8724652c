"""Broken and extreme Gaussians are left out or drawn cleanly; they never reach pixels or gradients of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recon.render.scenes import RenderScene, projection_loss, random_scene

BACKENDS = ["reference", "cpu"]
NAN, INF = float("nan"), float("inf")


def with_extra(scene: RenderScene, **values: object) -> RenderScene:
    """`scene` (float32) plus one more Gaussian in the middle of the picture, with some of its values replaced."""
    extra = {
        "means": torch.tensor([[0.0, 0.0, 2.5]]),
        "quats": torch.tensor([[1.0, 0.2, -0.1, 0.3]]),
        "scales": torch.full((1, 3), 0.1),
        "opacities": torch.tensor([0.7]),
        "colors": torch.full((1, *scene.colors.shape[1:]), 0.3),
    }
    for name, value in values.items():
        new = torch.as_tensor(value, dtype=torch.float32)
        extra[name] = new.expand(extra[name].shape[1:])[None].clone()
    joined = {name: torch.cat([getattr(scene, name), tensor]) for name, tensor in extra.items()}
    return replace(scene, **joined).to(torch.float32, grad=True)


LEFT_OUT = {
    "nan mean": {"means": [0.0, NAN, 2.5]},
    "inf mean": {"means": [INF, 0.0, 2.5]},
    "nan quaternion": {"quats": [1.0, NAN, 0.0, 0.0]},
    "inf quaternion": {"quats": [INF, 0.0, 0.0, 0.0]},
    "zero quaternion": {"quats": [0.0, 0.0, 0.0, 0.0]},
    "nan scale": {"scales": [0.1, 0.1, NAN]},
    "inf scale": {"scales": [INF, 0.1, 0.1]},
    "scale that overflows": {"scales": [3e38, 0.1, 0.1]},
    "nan opacity": {"opacities": NAN},
    "inf opacity": {"opacities": INF},
    "zero opacity": {"opacities": 0.0},
    "negative opacity": {"opacities": -0.5},
    "opacity below alpha_min": {"opacities": 0.0039},
    "nan colour": {"colors": NAN},
    "inf colour": {"colors": -INF},
    "behind the camera": {"means": [0.0, 0.0, -2.5]},
    "in the camera": {"means": [0.0, 0.0, 0.0]},
    "before the near plane": {"means": [0.0, 0.0, 0.0199]},
    "beyond the far plane": {"means": [0.0, 0.0, 2e4]},
    "mean that overflows": {"means": [3e38, 3e38, 1e-20]},
    "far outside the image": {"means": [50.0, 0.0, 2.5]},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("degree", [None, 1])
@pytest.mark.parametrize("case", LEFT_OUT)
def test_left_out(case: str, degree: int | None, backend: str) -> None:
    """Same pictures and same gradients as without it, bit for bit; its own gradient is zero."""
    clean = replace(
        random_scene(3, count=20, width=33, height=20, sh_degree=degree), viewmats=torch.eye(4)[None].double()
    )
    clean = clean.to(torch.float32, grad=True)
    poisoned = with_extra(clean.to(torch.float32), **LEFT_OUT[case])
    expected, out = clean.render(backend), poisoned.render(backend)
    assert not out.aux.visible[0, -1] and out.aux.radii[0, -1] == 0
    for name in ("color", "alpha", "depth"):
        assert torch.equal(getattr(out, name), getattr(expected, name)), name
    for rendering in (expected, out):
        projection_loss(rendering).backward()
    for name, gradient in clean.grads().items():
        found = poisoned.grads()[name]
        if name not in ("viewmats", "background"):
            assert found[-1].abs().sum() == 0, name
            found = found[:-1]
        assert torch.allclose(found, gradient, rtol=1e-5, atol=1e-7), name


DRAWN = {
    "huge": {"scales": [1e4, 1e4, 1e4]},
    "huge and thin": {"scales": [1e4, 1e-6, 1e-6]},
    "enormous": {"scales": [1e12, 1e12, 1e12]},
    "tiny": {"scales": [1e-8, 1e-8, 1e-8]},
    "vanishing": {"scales": [1e-30, 1e-30, 1e-30]},
    "flat": {"scales": [0.1, 0.1, 0.0]},
    "a point": {"scales": [0.0, 0.0, 0.0]},
    "tiny quaternion": {"quats": [1e-9, 2e-9, 0.0, 1e-9]},
    "large quaternion": {"quats": [1e15, 2e15, 0.0, 1e15]},
    "huge quaternion": {"quats": [1e19, 2e19, 0.0, 1e19]},
    "opacity one": {"opacities": 1.0},
    "opacity above one": {"opacities": 30.0},
    "just behind near": {"means": [0.0, 0.0, 0.0201]},
    "close and wide": {"means": [0.01, 0.0, 0.03], "scales": [0.5, 0.5, 0.5]},
    "huge colour": {"colors": 1e6},
    "at the image edge": {"means": [1.2, 0.0, 2.5], "scales": [1.0, 1e-3, 1.0]},
    "far, strong and wide": {"means": [900.0, 0.0, 2.5], "scales": [1e3, 1e3, 1e3]},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("antialiased", [False, True])
@pytest.mark.parametrize("case", DRAWN)
def test_extreme_but_finite(case: str, antialiased: bool, backend: str) -> None:
    """Whether such a Gaussian is drawn or not, pictures and gradients stay finite."""
    scene = random_scene(4, count=20, width=33, height=20, sh_degree=1)
    scene = replace(scene, config=replace(scene.config, antialiased=antialiased))
    extreme = with_extra(scene.to(torch.float32), **DRAWN[case])
    out = extreme.render(backend)
    for name in ("color", "alpha", "depth"):
        assert torch.isfinite(getattr(out, name)).all(), name
    assert out.alpha.min() >= 0 and out.alpha.max() <= 1
    projection_loss(out).backward()
    for name, gradient in extreme.grads().items():
        assert torch.isfinite(gradient).all(), name


ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    means=st.lists(ANY_FLOAT, min_size=3, max_size=3),
    quats=st.lists(ANY_FLOAT, min_size=4, max_size=4),
    scales=st.lists(ANY_FLOAT, min_size=3, max_size=3),
    opacity=ANY_FLOAT,
)
def test_any_numbers_at_all_give_finite_pictures(
    means: list[float], quats: list[float], scales: list[float], opacity: float, backend: str
) -> None:
    scene = random_scene(5, count=5, width=20, height=18).to(torch.float32)
    out = with_extra(scene, means=means, quats=quats, scales=scales, opacities=opacity).render(backend)
    for name in ("color", "alpha", "depth"):
        assert torch.isfinite(getattr(out, name)).all(), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_broken_gaussians_draw_the_background(backend: str) -> None:
    scene = random_scene(6, count=8).to(torch.float32)
    broken = replace(scene, means=torch.full_like(scene.means, NAN)).to(torch.float32, grad=True)
    out = broken.render(backend)
    assert torch.equal(out.color, scene.background[:, None, None, :].expand_as(out.color))
    out.color.sum().backward()
    assert broken.grads()["means"].abs().sum() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_gaussians(backend: str) -> None:
    scene = random_scene(7, count=0).to(torch.float32, grad=True)
    out = scene.render(backend)
    assert out.alpha.abs().sum() == 0 and out.aux.visible.shape == (1, 0)
    out.color.sum().backward()
    assert scene.grads()["means"].shape == (0, 3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 40), (16, 16), (17, 33)])
def test_odd_picture_sizes(width: int, height: int, backend: str) -> None:
    scene = random_scene(8, count=30, width=width, height=height).to(torch.float32)
    out = scene.render(backend)
    exact = scene.to(torch.float64).render("reference")
    assert out.color.shape == (1, height, width, 3)
    assert torch.allclose(out.color.double(), exact.color, atol=6e-3)
