"""What one camera makes of the scene's colours: exposure, white balance and vignetting are told apart."""

from __future__ import annotations

import pytest
import torch

from recon.fit.colour import ColourModel

CPU = torch.device("cpu")


def test_gains_and_vignetting_are_found() -> None:
    random = torch.Generator().manual_seed(0)
    model = ColourModel(["a", "b"], CPU, lr=5e-3, weight=0.0)
    x = torch.linspace(-1.0, 1.0, 24)
    r2 = 0.5 * (x * x + (x * x)[:, None])
    gains = torch.tensor([[1.1, 1.0, 0.9], [0.9, 1.0, 1.1]])  # their mean is 1: only differences can be seen
    vignetting = (-0.1, 0.1)  # likewise, their mean is 0
    for _ in range(1500):
        for camera in (0, 1):
            scene = torch.rand(24, 24, 3, generator=random)
            seen = scene * gains[camera]
            seen = seen * (1.0 - vignetting[camera] * r2)[..., None]
            (model.apply(scene, camera, r2) - seen).square().mean().backward()
            model.step()
    for camera in (0, 1):
        assert torch.diagonal(model.table()["ab"[camera]][0]) == pytest.approx(gains[camera], abs=0.02)
    assert model.vignetting.tolist() == pytest.approx(vignetting, abs=0.02)


def test_state_is_kept() -> None:
    one, other = ColourModel(["a", "b"], CPU), ColourModel(["a", "b"], CPU)

    def advance(model: ColourModel) -> None:
        (model.apply(torch.full((4, 3), 0.5), 0, torch.linspace(0.0, 1.0, 4)) - 0.4).square().sum().backward()
        model.step()

    advance(one)
    other.load({key: value.clone() for key, value in one.tensors().items()})
    advance(one)
    advance(other)
    assert torch.equal(one.vignetting, other.vignetting)
    assert float(one.vignetting.detach()[0]) > 0.0
