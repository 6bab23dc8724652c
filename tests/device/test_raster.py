"""The reference rasteriser, the losses and the sparse optimiser: the CPU's bits on the simulated device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from recon.fit.seed import as_tensor
from recon.mesh import views
from recon.render.api import rasterize
from recon.render.losses import l1_ssim
from recon.render.optim import SparseAdam
from recon.render.types import RasterConfig
from tests.recon.mesh.shapes import cube, with_body

NAMES = ("means", "quats", "scales", "opacities", "sh")


def scene(device: torch.device) -> dict[str, torch.Tensor]:
    random = np.random.default_rng(3)
    tensors = {
        "means": random.normal(0.0, 0.4, (120, 3)),
        "quats": random.normal(size=(120, 4)),
        "scales": random.uniform(0.02, 0.1, (120, 3)),
        "opacities": random.uniform(0.1, 0.95, 120),
        "sh": random.normal(0.0, 0.4, (120, 4, 3)),
    }
    return {name: as_tensor(value, device).requires_grad_(True) for name, value in tensors.items()}


def draw(s: dict[str, torch.Tensor], device: torch.device, **options: object):
    pose = torch.eye(4, device=device)
    pose[2, 3] = 2.0
    K = torch.tensor([[50.0, 0.0, 24.0], [0.0, 50.0, 20.0], [0.0, 0.0, 1.0]], device=device)
    return rasterize(
        *(s[name] for name in NAMES), pose[None], K[None], 48, 40, sh_degree=1, backend="reference",
        background=torch.full((3,), 0.2, device=device), **options,
    )  # fmt: skip


def test_pictures_and_gradients_are_the_cpus(on_both, same) -> None:
    def work(device: torch.device):
        s = scene(device)
        drawn = draw(s, device, config=RasterConfig(antialiased=True))
        picture = drawn.color[0]
        weight = torch.ones_like(drawn.alpha[0])
        loss = l1_ssim(picture, torch.full_like(picture, 0.5), weight, 0.2, backend="reference")
        (loss + drawn.depth.mean() + drawn.alpha.mean()).backward()
        assert {tensor.device for tensor in vars(drawn.aux).values()} == {drawn.color.device}
        return drawn.color, drawn.depth, drawn.alpha, drawn.aux.means2d_grad_norm, {n: s[n].grad for n in NAMES}

    same(*on_both(work))


def test_tile_masks_are_kept_to(on_both, same) -> None:
    def work(device: torch.device):
        mask = torch.zeros(1, 3, 3, dtype=torch.bool, device=device)
        mask[0, 1, 1] = True
        return draw(scene(device), device, tile_mask=mask).color

    cpu, simulated = on_both(work)
    same(cpu, simulated)
    assert float(cpu[0, 20, 24].detach().sum()) > 0


def test_sparse_adam_moves_the_same_rows_alike(on_both, same) -> None:
    def work(device: torch.device):
        s = scene(device)
        columns = {"sh": torch.ones(4, 3, device=device)}
        optimizer = SparseAdam({"sh": s["sh"]}, {"sh": 0.01}, columns=columns, backend="reference")
        for step in range(4):
            s["sh"].grad = (s["sh"].detach() * 3 + step).sin()
            optimizer.step(torch.arange(120, device=device) % (step + 2) == 0)
        return s["sh"], optimizer.state_tensors()

    same(*on_both(work))


def test_the_views_that_meshes_are_made_of(on_both, monkeypatch: pytest.MonkeyPatch) -> None:
    """`recon mesh` looks at the scene on its device; what follows is NumPy's, Open3D's and CoACD's."""
    monkeypatch.setattr(views, "SIDE", 24)
    monkeypatch.setattr(views, "INSTANTS", 2)
    dense = with_body(cube())
    scene = replace(dense, gaussians=dense.gaussians.select(torch.arange(0, len(dense.gaussians), 12, device="cpu")))

    def work(device: torch.device):
        pictures, sightings = views.body_views(scene.to(device), scene.bodies[0], backend="reference")
        return [(view.depth, view.color, view.clear) for view in [*pictures, *(s.view for s in sightings)]]

    cpu, simulated = on_both(work)
    assert len(cpu) == len(simulated) == 20 and np.isfinite(cpu[0][0]).any()
    for ours, theirs in zip(simulated, cpu, strict=True):
        assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(ours, theirs, strict=True))


def test_arrays_arrive_as_float32(musa: torch.device, no_float64: None) -> None:
    for values in (np.ones((3, 2)), np.ones((4, 3), dtype=np.float32)[::2], np.ones(2, dtype=np.uint8)):
        moved = as_tensor(values, musa)
        assert moved.device.type == "musa" and moved.dtype == torch.float32
        assert np.array_equal(moved.cpu().numpy(), values.astype(np.float32))
