"""The rows found for a patch draw it as all rows do (torch rounds an exponential by its place in the tensor)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.fit.cull import rows_in_window
from recon.fit.model import Model
from recon.fit.sampler import Window
from recon.geometry.camera import Camera
from recon.render.api import rasterize
from recon.render.types import RasterConfig, Rendering
from tests.recon.fit.tiny import ring_of_cameras

CONFIG = RasterConfig(near=0.05)


def random_model(seed: int, static: int, residual: int) -> Model:
    """Some rows are huge, some behind the cameras, some nearly transparent, some out of their time."""
    random = torch.Generator().manual_seed(seed)
    rows = static + residual
    gaussians = {
        "means": 1.5 * torch.randn(rows, 3, generator=random),
        "log_scales": -4.0 + 1.5 * torch.randn(rows, 3, generator=random),
        "quats": torch.randn(rows, 4, generator=random),
        "logit_opacities": 4.0 * torch.randn(rows, generator=random),
        "sh": torch.randn(rows, 4, 3, generator=random),
    }
    time = {
        "time_centers": torch.rand(residual, generator=random),
        "log_durations": torch.full((residual,), -2.0),
        "velocities": torch.randn(residual, 3, generator=random),
    }
    return Model(gaussians, time)


def drawn(model: Model, t: float | None, camera: Camera, window: Window) -> tuple[Rendering, Model]:
    posed = model.at(t)
    found = rasterize(
        posed.means, posed.quats, posed.scales, posed.opacities, posed.sh,
        torch.from_numpy(camera.cam_from_world.astype(np.float32))[None],
        torch.from_numpy(camera.K.astype(np.float32))[None], camera.width, camera.height, sh_degree=1,
        tile_mask=torch.from_numpy(window.tiles(camera.height, camera.width))[None], config=CONFIG,
    )  # fmt: skip
    window.cut(found.color[0]).square().sum().backward()
    return found, model


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([None, 0.3, 0.9]), st.integers(0, 2), st.integers(0, 3))
def test_the_rows_in_the_window_draw_the_same_picture(seed: int, t: float | None, top: int, left: int) -> None:
    camera = ring_of_cameras()[seed % 4]
    window = Window(16 * top, min(camera.height, 16 * top + 32), 16 * left, min(camera.width, 16 * left + 32))
    model = random_model(seed, 300, 200)
    rows = rows_in_window(model, t, camera, window, CONFIG)
    whole, _ = drawn(model, t, camera, window)
    part, small = drawn(model.take(rows), t, camera, window)
    torch.testing.assert_close(window.cut(whole.color[0]), window.cut(part.color[0]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(window.cut(whole.alpha[0]), window.cut(part.alpha[0]), rtol=1e-4, atol=1e-5)
    for key, leaf in model.gaussians.items():
        assert leaf.grad is not None and small.gaussians[key].grad is not None
        scale = float(leaf.grad.abs().max()) + 1e-6
        torch.testing.assert_close(small.gaussians[key].grad, leaf.grad[rows], rtol=1e-3, atol=1e-4 * scale)
        left_out = torch.ones(model.num_rows, dtype=torch.bool)
        left_out[rows] = False
        assert not leaf.grad[left_out].any(), key


def test_most_rows_are_left_out() -> None:
    camera = ring_of_cameras()[0]
    model = random_model(3, 2000, 2000)
    with torch.no_grad():
        model.gaussians["log_scales"].fill_(-5.0)
    found = rows_in_window(model, 0.5, camera, Window(0, 16, 0, 16), CONFIG)
    assert 0 < len(found) < 400
    assert rows_in_window(model, None, camera, Window(0, 16, 0, 16), CONFIG).max() < 2000


@pytest.mark.parametrize("t", [None, 0.5])
def test_a_model_of_no_rows_is_fine(t: float | None) -> None:
    camera = ring_of_cameras()[0]
    window = Window(0, camera.height, 0, camera.width)
    rows = rows_in_window(random_model(0, 0, 0), t, camera, window, CONFIG)
    assert rows.shape == (0,)
