"""What varies from episode to episode besides places: looks, friction and mass, delays and lost frames.

Kept per environment and drawn from the episode's seed. The delays are part of the environments' state; everything else
follows from the seed alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recon.core.seeding import numpy_generator
from sim2real.draw import Painter
from sim2real.look import Look, draw_look, painter_of
from sim2real.rider import Rider

if TYPE_CHECKING:
    from sim2real.control import Controller
    from sim2real.workcell import Workcell

Array = NDArray[np.float64]


class Variety:
    """Of N environments. seeds [N]: 0 where nothing varies.

    past [N, D + 1, B, 16]: poses of the last steps, the newest first; sensed [N, D + 1, P]: proprio likewise; seen
    [N, B, 16]: the poses of the last frame that came through; queue [N, E + 1, size]: actions, the newest first.
    """

    def __init__(
        self, cell: Workcell, batch: Any, painters: dict[str, Painter | Rider], controller: Controller, proprio: int
    ) -> None:
        self.cell, self.spec, self.painters, self.controller = cell, cell.task.randomize, painters, controller
        self._batch, count, bodies = batch, batch.nsim, cell.world.model.nbody
        timing = self.spec.timing
        self.seeds = np.zeros(count, np.int64)
        self.slow_sight, self.slow_hand = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.delays = timing.observation[1] > 0 or timing.drop > 0
        deep, late = (timing.observation[1] + 1, timing.action[1] + 1) if self.spec.any else (0, 0)
        deep = deep if self.delays else 0
        self.past = np.zeros((count, deep, bodies, 16))
        self.sensed = np.zeros((count, deep, proprio), np.float32)
        self.seen = np.zeros((count, bodies if deep else 0, 16))
        self.queue = np.zeros((count, late if timing.action[1] else 0, controller.size))
        self._looks: list[dict[str, tuple[Look, Painter | Rider]]] = [{} for _ in range(count)]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the future depends on, by name; rows stand for environments."""
        if not self.spec.any:
            return {}
        return {
            "variation": self.seeds, "slow_sight": self.slow_sight, "slow_hand": self.slow_hand, "past": self.past,
            "sensed": self.sensed, "seen": self.seen, "queue": self.queue,
        }  # fmt: skip

    # ------------------------------------------------------------------ episodes

    def begin(self, row: int, seed: int) -> None:
        """Take the seed of a new episode."""
        self.seeds[row] = seed
        timing = self.spec.timing
        rng = numpy_generator(seed, 0, "timing")
        low, high = timing.observation
        self.slow_sight[row] = rng.integers(low, high + 1) if seed else 0
        low, high = timing.action
        self.slow_hand[row] = rng.integers(low, high + 1) if seed else 0
        if self.queue.shape[1]:
            self.queue[row] = self.controller.neutral(row)
        self.prepare(np.array([row]))

    def prepare(self, rows: NDArray[np.int64]) -> None:
        """Make what follows from the seeds of these environments: looks, friction, mass."""
        for row in rows.tolist():
            self._looks[row] = {}
        noise = self.spec.physics
        if noise.friction == noise.mass == (1.0, 1.0):
            return
        model = self.cell.world.model
        friction, mass = self._batch.expand("geom_friction"), self._batch.expand("body_mass")
        inertia = self._batch.expand("body_inertia")
        for row in rows.tolist():
            rng = numpy_generator(int(self.seeds[row]), 0, "physics")
            for thing in self.cell.world.things:
                by, times = rng.uniform(*noise.friction), rng.uniform(*noise.mass)
                body = int(model.body(thing.node).id)
                own = np.flatnonzero(model.geom_bodyid == body)
                friction[row, own] = model.geom_friction[own] * by
                mass[row, body], inertia[row, body] = model.body_mass[body] * times, model.body_inertia[body] * times
        self._batch.set_const(ids=np.sort(rows))

    # ------------------------------------------------------------------ time

    def restart(self, rows: NDArray[np.int64], poses: list[Array], sensed: NDArray[np.float32]) -> None:
        """Nothing else was ever seen in these environments. poses: the batch's tables; sensed [N, P]: proprio."""
        if self.delays:
            table = _packed(poses)
            self.past[rows], self.seen[rows] = table[rows, None], table[rows]
            self.sensed[rows] = sensed[rows, None]

    def tick(self, poses: list[Array], sensed: NDArray[np.float32], elapsed: NDArray[np.int64]) -> None:
        """One control step later."""
        if not self.delays:
            return
        self.past[:, 1:], self.sensed[:, 1:] = self.past[:, :-1].copy(), self.sensed[:, :-1].copy()
        self.past[:, 0], self.sensed[:, 0] = _packed(poses), sensed
        for row in range(len(self.seeds)):
            chance = numpy_generator(int(self.seeds[row]), int(elapsed[row]), "timing/drop").uniform()
            if chance >= self.spec.timing.drop:
                self.seen[row] = self.past[row, self.slow_sight[row]]

    def proprio(self, sensed: NDArray[np.float32]) -> NDArray[np.float32]:
        """[N, P] as it arrives."""
        return self.sensed[np.arange(len(sensed)), self.slow_sight] if self.delays else sensed

    def delayed(self, action: Array) -> Array:
        """[N, size] actions that arrive now, for those that are sent."""
        if not self.queue.shape[1]:
            return action
        self.queue[:, 1:] = self.queue[:, :-1].copy()
        self.queue[:, 0] = action
        return self.queue[np.arange(len(action)), self.slow_hand]

    # ------------------------------------------------------------------ pictures

    def tables(self, poses: list[Array]) -> list[Array]:
        """The batch's pose tables as they are seen now."""
        return poses if not self.delays else [self.seen[..., :3], self.seen[..., 3:7], self.seen[..., 7:]]

    def eye(self, row: int, camera: str) -> tuple[Look | None, Painter | Rider]:
        """Through what an environment is seen: the look of its episode, None where nothing varies, and the painter."""
        seed = int(self.seeds[row])
        if seed == 0 or not self.spec.looks:
            return None, self.painters[camera]
        if camera not in self._looks[row]:
            look = draw_look(seed, camera, self.spec)
            gain = self.cell.scene.colour.get(camera)
            base, cell = self.painters[camera], self.cell
            self._looks[row][camera] = look, painter_of(look, base, cell.static, cell.movers, cell.world.bench, gain)
        return self._looks[row][camera]


def _packed(poses: list[Array]) -> Array:
    return np.concatenate(poses, axis=2)
