"""The whole training loop on a made-up recording, with the backend every device has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recon.calibrate.dense import DepthPrior
from recon.core.errors import DivergedError
from recon.core.events import StageFinished
from recon.fit.bodies import BodyMotion
from recon.fit.colour import ColourModel
from recon.fit.fit import Fit, Stage
from recon.fit.hull import search_volume
from recon.fit.model import Model
from recon.fit.moving import moving_points
from recon.fit.plate import make_plate
from recon.fit.sampler import JointSampler, StaticSampler
from recon.fit.seed import residual_gaussians, scene_extent, static_gaussians
from recon.fit.settings import FitSettings
from recon.render.backends import select_name
from recon.scene.gaussians import RIGID, Gaussians
from recon.scene.motion import Track
from tests.recon.fit.tiny import TinyFrames

CPU = torch.device("cpu")
SETTINGS = FitSettings(
    budget=400, budget_residual=150, sh_degree=1, patch=48, relocate_every=20, relocate_from=20, checkpoint_every=15
)


def floor_points(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    points = np.concatenate([rng.uniform(-1, 1, (400, 2)), rng.normal(0, 0.01, (400, 1))], axis=1)
    check = (np.floor(points[:, 0] * 4) + np.floor(points[:, 1] * 4)) % 2
    return points, np.where(check[:, None] > 0, [0.8, 0.75, 0.6], [0.25, 0.35, 0.3])


def floor_priors(frames: TinyFrames) -> list[DepthPrior]:
    """The exact depth of the floor, hardly believed above the horizon."""
    found = []
    for camera in frames.cameras:
        v, u = np.mgrid[: camera.height, : camera.width] + 0.5
        local = np.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, np.ones_like(u)], -1)
        down = -(local @ camera.cam_from_world[:3, :3])[..., 2]
        inverse = np.maximum(down / camera.center[2], 0.05).astype(np.float32)
        found.append(DepthPrior(inverse, (down > 0).astype(np.float32), camera))
    return found


def static_fit(backend: str, iterations: int) -> tuple[Fit, TinyFrames, list]:
    frames = TinyFrames()
    plates = [make_plate(frames, c) for c in range(len(frames.cameras))]
    points, colours = floor_points(np.random.default_rng(0))
    table = static_gaussians(points, colours, frames.cameras, SETTINGS.budget, 1, np.random.default_rng(1))
    sampler = StaticSampler(frames.cameras, plates, floor_priors(frames), 0, SETTINGS.patch, 10)
    stage = Stage("static", iterations, 0, (1.0, 0.1))
    extent = scene_extent(frames.cameras)
    fit = Fit(
        Model.from_table(table),
        sampler,
        ColourModel(frames.names, CPU),
        SETTINGS,
        stage,
        extent=extent,
        device=CPU,
        backend=backend,
    )
    return fit, frames, plates


def joint_fit(backend: str, iterations: int) -> Fit:
    first, frames, plates = static_fit(backend, 0)
    moving = moving_points(frames, plates, search_volume(frames.cameras, np.zeros((0, 3))), 0.04, 0.25)
    residual = residual_gaussians(moving, SETTINGS.budget_residual, 1, np.random.default_rng(2))
    model = Model.from_table(Gaussians.concat([first.model.to_table(), residual]))
    sampler = JointSampler(frames, plates, floor_priors(frames), 0, SETTINGS.patch, 0.7, 3.0)
    stage = Stage("joint", iterations, 0, (0.1, 0.01))
    return Fit(
        model,
        sampler,
        ColourModel(frames.names, CPU),
        SETTINGS,
        stage,
        extent=first.extent,
        device=CPU,
        backend=backend,
    )


@pytest.mark.parametrize(("backend", "iterations", "gain"), [("reference", 60, 0.3), ("auto", 400, 3.0)])
def test_the_static_fit_gets_better(backend: str, iterations: int, gain: float) -> None:
    fit, _, _ = static_fit(backend, iterations)
    fit.iterate()
    first = fit.average["psnr"]
    events = list(fit.run(None))
    assert isinstance(events[-1], StageFinished)
    assert fit.average["psnr"] > first + gain


def test_the_joint_fit_draws_the_ball_where_it_is() -> None:
    fit = joint_fit("auto", 120)
    before = fit.model.to_table()
    fit.iterate()
    first = fit.average["psnr"]
    list(fit.run(None))
    assert fit.average["psnr"] > first + 1.0
    table = fit.model.to_table()
    assert (table.kind == 2).sum() == SETTINGS.budget_residual
    assert not torch.equal(before.velocities, table.velocities) and not torch.equal(
        before.time_centers, table.time_centers
    )
    assert bool(torch.isfinite(table.means).all())


def test_a_resumed_fit_ends_in_the_same_bytes(tmp_path: Path) -> None:
    whole = joint_fit("auto", 40)
    list(whole.run(None))
    broken = joint_fit("auto", 40)
    for _ in range(33):
        broken.iterate()
        broken.step += 1
        if broken.step % SETTINGS.relocate_every == 0:
            broken.relocate()
        if broken.step == 30:
            broken.save(tmp_path)
    resumed = joint_fit("auto", 40)
    list(resumed.run(tmp_path))
    for key, value in whole.model.tensors().items():
        assert torch.equal(value, resumed.model.tensors()[key]), key
    assert torch.equal(whole.colour.matrices, resumed.colour.matrices)


def test_a_fit_that_diverges_says_so() -> None:
    fit, _, _ = static_fit("reference", 30)
    with torch.no_grad():
        fit.colour.offsets.fill_(float("nan"))
    with pytest.raises(DivergedError, match="non-finite"):
        list(fit.run(None))


def test_the_backends_agree_on_what_a_fit_does() -> None:
    results = []
    for backend in ("reference", "auto"):
        fit, _, _ = static_fit(backend, 5)
        list(fit.run(None))
        results.append(fit.model.gaussians["means"].detach())
    assert torch.allclose(*results, atol=2e-3)
    assert select_name("auto", CPU, torch.float32) in ("cpu", "reference")


def test_dropout_leaves_free_rows_out_and_makes_up_for_them() -> None:
    fit = joint_fit("reference", 100)
    fit.stage = Stage("static", 100, 0, (1.0, 0.1), dropout=0.5)
    rows = torch.arange(fit.model.num_rows)
    assert torch.equal(fit._survivors(rows), rows)  # none at first
    fit.step = 40
    kept = fit._survivors(rows)
    assert 0.4 < len(kept) / len(rows) < 0.6
    assert torch.equal(kept, fit._survivors(rows))  # a function of (seed, step)
    whole, part = fit.model.at(0.5), fit.model.take(kept)
    stronger = fit._strengthened(part.at(0.5), part)
    torch.testing.assert_close(stronger.opacities, (2.0 * whole.opacities[kept]).clamp_max(1.0))
    fit.step = 50  # the second half learns with all
    assert torch.equal(fit._survivors(rows), rows)
    fit.stage = Stage("static", 100, 0, (1.0, 0.1))
    fit.step = 40
    assert torch.equal(fit._survivors(rows), rows)


def test_dropout_spares_the_rows_of_bodies() -> None:
    fit = joint_fit("reference", 100)
    fit.stage, fit.step = Stage("static", 100, 0, (1.0, 0.1), dropout=0.9), 40
    fit.model.bodies = torch.zeros(50, dtype=torch.int64)  # as if the last static rows were a body's
    static = fit.model.num_static
    kept = fit._survivors(torch.arange(fit.model.num_rows))
    assert set(range(static, static + 50)) <= set(kept.tolist())
    assert len(kept) < 0.3 * fit.model.num_rows + 50


def test_bodies_of_known_surface_stay_opaque() -> None:
    fit = joint_fit("auto", 100)
    table = fit.model.to_table()
    table.kind[:20], table.object_id[:20] = RIGID, 1
    table.object_id[10:20] = 2
    quats, still = torch.tensor([[1.0, 0, 0, 0]]), torch.zeros(1, 3)
    motion = BodyMotion([Track(np.array([0.0]), still, quats)] * 2)
    fit = Fit(
        Model.from_table(table, motion), fit.sampler, fit.colour, SETTINGS, replace(fit.stage, solid=1),
        extent=fit.extent, device=CPU, backend="auto",
    )  # fmt: skip
    rigid = fit.model.parts["rigid"]
    before = {key: value.detach()[rigid].clone() for key, value in fit.model.gaussians.items()}
    for _ in range(40):
        fit.iterate()
    changed = {key: value.detach()[rigid] != before[key] for key, value in fit.model.gaussians.items()}
    assert changed["sh"][:10].any() and changed["means"][:10].any()
    assert not changed["logit_opacities"][:10].any() and changed["logit_opacities"][10:].any()


def test_rates_fall_at_the_end_of_a_stage_that_is_kept() -> None:
    fit = joint_fit("auto", 100)
    first = fit.settings.rates.log_scales
    for settles, step, share in ((False, 99, 1.0), (True, 50, 1.0), (True, 85, 0.55), (True, 100, 0.1)):
        fit.stage, fit.step = replace(fit.stage, settles=settles, iterations=100), step
        fit._set_rates()
        assert fit.optimizers["static"].lrs["log_scales"] == pytest.approx(share * first)
