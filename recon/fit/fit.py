"""The training loop: draw a patch, compare, step, and now and then move dead Gaussians to where they are needed.

A `Fit` runs one stage (static or joint) for a fixed number of iterations and yields events. What an iteration does is a
function of the state and of (seed, step), so that a fit resumed from a checkpoint ends in the same bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor

from recon.core.checkpoint import latest_checkpoint, save_checkpoint
from recon.core.errors import DivergedError, Interrupted
from recon.core.events import Event, Progress, StageFinished, StageStarted
from recon.core.interrupt import deferred_interrupt
from recon.core.seeding import torch_generator
from recon.fit.carve import FreeSpace
from recon.fit.colour import ColourModel
from recon.fit.cull import rows_in_window
from recon.fit.density import exploration_noise, plan_relocation, split_copies
from recon.fit.model import GAUSSIAN_KEYS, TIME_KEYS, Model, Posed
from recon.fit.sampler import Sample
from recon.fit.seed import as_tensor
from recon.fit.settings import FitSettings
from recon.render.api import rasterize
from recon.render.losses import l1_ssim
from recon.render.optim import SparseAdam
from recon.render.types import RasterConfig, Rendering

NEAR = 0.18  # of the extent: cameras are mounted on things, which must not hide the view
DEAD_LOGIT = -8.0
MAX_BAD_STEPS = 10  # consecutive non-finite losses before the fit gives up
SHAPE_KEYS = ("means", "log_scales", "quats", "logit_opacities")
NOISE_BELOW = 0.06  # opacity above which the exploration noise is negligible


class Sampler(Protocol):
    """Gives the sample of an iteration."""

    def draw(self, step: int) -> Sample:
        """The sample of iteration `step`."""
        ...


@dataclass
class Stage:
    """What one stage of the fit does.

    name: for events and checkpoints. start: number of iterations done by earlier stages. means_rate: (first, last)
    multiples of the learning rate of static and rigid positions; residual positions always start at 1. dropout: the
    largest share of the Gaussians that an iteration leaves out.
    """

    name: str
    iterations: int
    start: int
    means_rate: tuple[float, float]
    dropout: float = 0.0


class Fit:
    """One stage of a fit over one `Model`."""

    def __init__(
        self, model: Model, sampler: Sampler, colour: ColourModel, settings: FitSettings, stage: Stage, *,
        extent: float, device: torch.device, backend: str, free_space: FreeSpace | None = None, known: int = 0,
    ) -> None:  # fmt: skip
        """known: so many of the first rigid rows keep their shape and opacity, as a robot's description gives both."""
        self.free_space, self.known = free_space, known
        self.model, self.sampler, self.colour = model, sampler, colour
        self.settings, self.stage, self.extent = settings, stage, extent
        self.device, self.backend = device, backend
        self.raster = RasterConfig(near=NEAR * extent)
        self.degree = math.isqrt(model.gaussians["sh"].shape[1]) - 1
        self.step = 0
        self.bad_steps = 0
        self.average: dict[str, float] = {}
        rows = model.num_rows
        self.scores = torch.zeros(rows, device=device)  # screen gradient, summed since the last relocation
        self.views: dict[str, dict[str, Tensor]] = {p: self._row_views(p, rows) for p, rows in model.parts.items()}
        self.optimizers = {
            part: SparseAdam(views, dict.fromkeys(views, 0.0), columns={"sh": self._sh_rates(part)}, backend=backend)
            for part, views in self.views.items()
        }

    # --- optimiser ------------------------------------------------------------------------------------------------

    def _row_views(self, part: str, rows: slice) -> dict[str, Tensor]:
        """The leaves' rows of one part, sharing memory, so that each kind of rows has its own rates."""
        views = {key: self.model.gaussians[key].detach()[rows] for key in GAUSSIAN_KEYS}
        if part == "residual":
            views |= {key: self.model.time[key].detach() for key in TIME_KEYS}
        return views

    def _sh_rates(self, part: str) -> Tensor:
        """[K, 3]: degree 0 learns at the full rate, what depends on the direction more slowly, on bodies not at all.

        The light does not turn with a body, so such colours would be wrong as soon as it did.
        """
        rest = 0.0 if part == "rigid" else self.settings.rates.sh_rest
        factors = torch.full(self.model.gaussians["sh"].shape[1:], rest, device=self.device)
        factors[0] = 1.0
        return factors

    def _set_rates(self) -> None:
        rates, progress = self.settings.rates, self.step / max(1, self.stage.iterations)
        first, last = self.stage.means_rate
        for part, optimizer in self.optimizers.items():
            for key in optimizer.lrs:
                rate = getattr(rates, key)
                if key in ("means", "velocities"):
                    decay = 0.01**progress if part == "residual" else first * (last / first) ** progress
                    rate = rate * self.extent * decay
                optimizer.lrs[key] = rate

    def _apply_step(self, part: Model, rows: Tensor, touched: Tensor) -> None:
        """Adam on those rows of `part`, which are the rows `rows` of the model, that any pixel of the patch saw."""
        self._set_rates()
        leaves = {key: part.gaussians[key].grad for key in GAUSSIAN_KEYS}
        for name, chosen in part.parts.items():
            if name not in self.optimizers:
                continue
            grads = {key: grad[chosen] for key, grad in leaves.items() if grad is not None}
            if name == "residual":
                grads |= {key: leaf.grad for key, leaf in part.time.items() if leaf.grad is not None}
            into = rows[chosen] - self.model.parts[name].start
            if name == "rigid" and self.known:
                # else they turn transparent, and whatever is near paints the robot over
                free = into >= self.known
                grads |= {key: grads[key] * free.view(-1, *[1] * (grads[key].dim() - 1)) for key in SHAPE_KEYS}
            self.optimizers[name].step_rows(grads, into.to(torch.int32), touched[chosen])

    # --- one iteration --------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """One iteration: patch, loss, backward, step."""
        settings = self.settings
        sample = self.sampler.draw(self.step)
        camera, window = sample.camera, sample.window
        rows = rows_in_window(self.model, sample.t, camera, window, self.raster)
        rows = self._survivors(rows)
        part = self.model.take(rows)
        posed = part.at(sample.t)
        drawn = self._draw(self._strengthened(posed, part), sample)
        picture = window.cut(drawn.color.squeeze(0))
        if settings.colour:
            picture = self.colour.apply(picture, sample.index)
        target, weight = as_tensor(sample.target, self.device), as_tensor(sample.weight, self.device)
        loss = l1_ssim(picture, target, weight, settings.ssim_weight, backend=self.backend)
        if settings.depth_weight > 0:
            depth, alpha = window.cut(drawn.depth.squeeze(0)), window.cut(drawn.alpha.squeeze(0))
            loss = loss + settings.depth_weight * self._depth_loss(sample, depth, alpha)
        # means over all rows of the model: the rows that are not here would be the same for every patch
        penalty = settings.opacity_penalty * posed.opacities.sum() + settings.scale_penalty * posed.scales.sum() / 3
        total = loss + penalty / self.model.num_rows
        total = total + (self.colour.penalty(sample.index) if settings.colour else 0.0)
        if not self._finite(float(total.detach())):
            return
        total.backward()
        norms = drawn.aux.means2d_grad_norm[0]
        self.scores.index_add_(0, rows, norms)
        self._apply_step(part, rows, norms > 0)
        if settings.colour:
            self.colour.step()
        self._explore(rows[norms > 0])
        self._note(picture.detach(), target, weight, float(loss.detach()))

    def _dropout(self) -> float:
        """The share p of the free rows that this iteration leaves out.

        It grows over a quarter of the stage and ends at half of it: fine detail is learned with all rows.
        """
        progress = self.step / max(1, self.stage.iterations)
        return self.stage.dropout * min(1.0, 4.0 * progress) if progress < 0.5 else 0.0

    def _survivors(self, rows: Tensor) -> Tensor:
        """`rows` without a random share p of those that are free; rows of bodies stay, as their surfaces are known.

        The others become that much more opaque,

            alpha_i -> min(1, alpha_i b_i / (1 - p)),    b_i = 0 with probability p, else 1,

        so what only a chance arrangement of many Gaussians explains, seen from few cameras, does not survive
        (DropGaussian, Park et al. 2025).
        """
        share = self._dropout()
        if share <= 0:
            return rows
        generator = torch_generator(self.settings.seed, self.step, f"{self.stage.name} dropout")
        kept = torch.rand(rows.shape, generator=generator, device="cpu").to(self.device) >= share
        first = self.model.num_static
        kept |= (rows >= first) & (rows < first + self.model.num_rigid)
        return rows[kept]

    def _strengthened(self, posed: Posed, part: Model) -> Posed:
        """`posed` with the opacities of free rows made up for those that were left out."""
        factor = torch.full_like(posed.opacities, 1.0 / (1.0 - self._dropout()))
        factor[part.num_static : part.num_static + part.num_rigid] = 1.0
        return replace(posed, opacities=(posed.opacities * factor).clamp_max(1.0))

    def _draw(self, posed: Posed, sample: Sample) -> Rendering:
        """The sample's camera's picture, of which only the window is drawn."""
        camera = sample.camera
        viewmat = torch.from_numpy(camera.cam_from_world.astype(np.float32))[None].to(self.device)
        K = torch.from_numpy(camera.K.astype(np.float32))[None].to(self.device)
        tiles = torch.from_numpy(sample.window.tiles(camera.height, camera.width))[None].to(self.device)
        degree = min(self.degree, (self.stage.start + self.step) // 1000)
        return rasterize(
            posed.means, posed.quats, posed.scales, posed.opacities, posed.sh, viewmat, K, camera.width, camera.height,
            sh_degree=degree, tile_mask=tiles, config=self.raster, backend=self.backend,
        )  # fmt: skip

    def _depth_loss(self, sample: Sample, depth: Tensor, alpha: Tensor) -> Tensor:
        """Weighted mean of |1 / depth - prior|, times the camera's median depth, where the scene is opaque at all."""
        prior = as_tensor(sample.inverse_depth, self.device)
        weight = as_tensor(sample.depth_weight, self.device)
        weight = weight * (alpha.detach() > 0.3)
        difference = (1.0 / depth.clamp_min(1e-3 * sample.depth_scale) - prior).abs() * sample.depth_scale
        return (difference.clamp_max(2.0) * weight).mean()

    def _finite(self, loss: float) -> bool:
        """Skip a step whose loss is not finite; give up after several in a row."""
        if math.isfinite(loss):
            self.bad_steps = 0
            return True
        self.bad_steps += 1
        if self.bad_steps >= MAX_BAD_STEPS:
            raise DivergedError(
                f"the {self.stage.name} fit gave {MAX_BAD_STEPS} non-finite losses in a row at iteration {self.step}",
                why="the Gaussians diverged", fix="check the calibration, or lower the learning rates",
            )  # fmt: skip
        return False

    @torch.no_grad()
    def _explore(self, rows: Tensor) -> None:
        """Noise on the positions of those of `rows` that are nearly transparent."""
        if self.settings.noise <= 0:
            return
        g = {key: leaf.detach() for key, leaf in self.model.gaussians.items()}
        rows = rows[g["logit_opacities"][rows] < math.log(NOISE_BELOW / (1.0 - NOISE_BELOW))]
        if rows.numel() == 0:
            return
        opacities = torch.sigmoid(g["logit_opacities"][rows])
        generator = torch_generator(self.settings.seed, self.step, f"{self.stage.name} noise")
        strength = self.settings.noise * self.optimizers["static"].lrs["means"]
        offsets = exploration_noise(g["quats"][rows], torch.exp(g["log_scales"][rows]), opacities, strength, generator)
        limit = 0.02 * self.extent
        g["means"][rows] += offsets.clamp(-limit, limit)

    # --- relocation -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def relocate(self) -> int:
        """Rebirth of dead rows at rows that are opaque or wanted; rows keep to their own kind, those of bodies stay."""
        moved = 0
        if self.free_space is not None:
            static = self.views["static"]
            blocked = self.free_space.in_the_way(static["means"].cpu().numpy().astype(np.float64))
            static["logit_opacities"][torch.from_numpy(blocked).to(self.device, torch.bool)] = DEAD_LOGIT
        for part, rows in self.model.parts.items():
            if part != "rigid":
                moved += self._relocate_rows(part, rows)
        self.scores.zero_()
        return moved

    def _relocate_rows(self, part: str, rows: slice) -> int:
        settings, views = self.settings, self.views[part]
        opacities = torch.sigmoid(views["logit_opacities"])
        score = self.scores[rows]
        wanted = opacities / opacities.sum().clamp_min(1e-9) + score / score.sum().clamp_min(1e-9)
        generator = torch_generator(settings.seed, self.step, f"{self.stage.name} {part} relocation")
        dead, source = plan_relocation(opacities, wanted, settings.min_opacity, settings.relocate_share, generator)
        if dead.numel() == 0:
            return 0
        copies = torch.bincount(source, minlength=opacities.numel())[source] + 1
        scales = torch.exp(views["log_scales"][source])
        opacity, scale = split_copies(opacities[source], scales, copies)
        opacity = opacity.clamp(settings.min_opacity, 1 - 1e-4)
        logit = torch.log(opacity / (1 - opacity))
        for target in (source, dead):
            for view in views.values():
                view[target] = view[source]
            views["logit_opacities"][target] = logit
            views["log_scales"][target] = torch.log(scale)
        self.optimizers[part].reset_rows(torch.cat([source, dead]))
        return int(dead.numel())

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self, checkpoints: Path | None) -> Iterator[Event]:
        """All iterations that are left, from the newest valid checkpoint on; yields events about once a second."""
        settings, stage = self.settings, self.stage
        started = time.monotonic()
        yield StageStarted(stage.name, stage.iterations)
        if checkpoints is not None:
            self.restore(checkpoints)
        shown = 0.0
        with deferred_interrupt() as stop:
            while self.step < stage.iterations:
                self.advance()
                if stop.asked:
                    self._stop(checkpoints)
                if (
                    checkpoints is not None
                    and self.step % settings.checkpoint_every == 0
                    and self.step < stage.iterations
                ):
                    self.save(checkpoints)
                if time.monotonic() - shown > 1.0:
                    shown = time.monotonic()
                    yield Progress(stage.name, self.step, stage.iterations, dict(self.average))
        yield StageFinished(stage.name, time.monotonic() - started, dict(self.average))

    def advance(self) -> None:
        """One iteration, and the relocation that may follow it."""
        settings = self.settings
        self.iterate()
        self.step += 1
        last = 0.9 * self.stage.iterations
        if self.step % settings.relocate_every == 0 and settings.relocate_from <= self.step <= last:
            self.relocate()

    def _stop(self, checkpoints: Path | None) -> NoReturn:
        """Ctrl-C between two iterations: save, then say so."""
        kept = "nothing was saved"
        if checkpoints is not None:
            self.save(checkpoints)
            kept = "the state was saved"
        raise Interrupted(
            f"stopped in the {self.stage.name} fit at iteration {self.step}",
            why=kept,
            fix="run the same command to continue",
        )

    def _note(self, picture: Tensor, target: Tensor, weight: Tensor, loss: float) -> None:
        """Running means of loss and PSNR over about 50 iterations, for the live line."""
        squared = (picture - target).square().mean(-1)
        seen = weight > 0
        error = float((squared * seen).sum() / seen.sum().clamp_min(1))
        psnr = -10.0 * math.log10(max(error, 1e-10))
        for key, value in (("loss", loss), ("psnr", psnr)):
            self.average[key] = value if key not in self.average else 0.98 * self.average[key] + 0.02 * value

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write everything the next iteration depends on."""
        tensors = {f"model.{k}": v.detach().contiguous() for k, v in self.model.tensors().items()}
        for part, optimizer in self.optimizers.items():
            tensors |= {f"{part}.{k}": v for k, v in optimizer.state_tensors().items()}
        tensors |= {k: v.contiguous() for k, v in self.colour.tensors().items()}
        tensors["scores"] = self.scores
        save_checkpoint(folder, self.step, tensors, {"stage": self.stage.name, "average": self.average})

    @torch.no_grad()
    def restore(self, folder: Path) -> None:
        """Continue from the newest valid checkpoint of this stage, if there is one."""
        found = latest_checkpoint(folder)
        if found is None or found.state.get("stage") != self.stage.name:
            return
        self.step = found.step
        self.average = dict(found.state["average"])
        for key, leaf in self.model.tensors().items():
            leaf.copy_(found.tensors[f"model.{key}"])
        for part, optimizer in self.optimizers.items():
            own = {k.removeprefix(f"{part}."): v for k, v in found.tensors.items() if k.startswith(f"{part}.")}
            optimizer.load_state_tensors(own)
        self.colour.load(found.tensors)
        self.scores.copy_(found.tensors["scores"])
