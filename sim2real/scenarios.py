"""Scenarios: where the arm starts and where everything is, drawn by (seed, split, index) and nothing else.

Training and evaluation draw from different streams, so their scenarios never coincide; a set written to a file carries
its content hash, so that two policies can be shown to have met the same ones. What varies besides places (looks,
friction, delays) follows from `variation`, a seed of its own: changing how a scene looks moves nothing in it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recon.core.config import from_dict
from recon.core.errors import CorruptError, InputError, UsageError
from recon.core.files import read_json, write_json
from recon.core.seeding import derive_seed, numpy_generator
from sim2real.physics import World, rest
from sim2real.placing import Placer, Pose, Ring
from sim2real.tasks.expert import reach_action
from sim2real.tasks.items import Region
from sim2real.tasks.spec import Task, content_hash

Array = NDArray[np.float64]
Split = Literal["train", "eval"]

FORMAT, VERSION = "sim2real-scenarios", 2  # version 1 had neither places, bodies nor variation
TRIES = 200  # draws before a region is called impossible
CLEARANCE = 0.06  # m around a target that the bench's things must leave free
EDGE = 0.02  # m between a target and the table's edge
IK_STEPS = 150
IK_TOLERANCE = 0.01  # m


@dataclass(frozen=True)
class Scenario:
    """One initial state. q0 [A] arm joint positions; target [3] m, world; rejected: draws thrown away before it.

    places: [3] m by name; bodies: x y z (m) qw qx qy qz of each body's frame, at rest. variation: seed of what differs
    besides, 0 when nothing does.
    """

    index: int
    q0: tuple[float, ...]
    target: tuple[float, ...] = ()
    rejected: int = 0
    places: dict[str, tuple[float, ...]] = field(default_factory=dict)
    bodies: dict[str, tuple[float, ...]] = field(default_factory=dict)
    variation: int = 0

    def plain(self) -> dict[str, Any]:
        """Plain values, without the later fields where they say nothing."""
        values = asdict(self)
        return {key: value for key, value in values.items() if value or key not in ("places", "bodies", "variation")}


@dataclass(frozen=True)
class ScenarioSet:
    """Materialised scenarios with what they belong to."""

    task: str
    split: Split
    seed: int
    scenarios: tuple[Scenario, ...]

    @cached_property
    def hash(self) -> str:
        """16 hex digits over the task's hash and every number of every scenario."""
        return content_hash(self.plain())

    def plain(self) -> dict[str, Any]:
        """Plain values."""
        scenarios = [scenario.plain() for scenario in self.scenarios]
        return {"task": self.task, "split": self.split, "seed": self.seed, "scenarios": scenarios}

    @property
    def rejection_rate(self) -> float:
        """Share of draws that were thrown away as unreachable or blocked."""
        rejected = sum(s.rejected for s in self.scenarios)
        return rejected / max(1, rejected + len(self.scenarios))


class Sampler:
    """Draws scenarios of one task in one world; a pure function of (seed, split, index)."""

    def __init__(self, world: World, task: Task) -> None:
        import mujoco

        self.world, self.task = world, task
        self._data = rest(world.model, world.arm)
        self._mj = mujoco
        self._home_contacts = self._deepest_contact()
        self.ring = self._ring()
        self._placer = Placer(world, task, self._data) if task.bodies or task.places else None

    def draw(self, seed: int, split: Split, index: int) -> Scenario:
        """The scenario; the first of up to TRIES draws that the arm can reach and the bench leaves free.

        Raises:
            UsageError: the region is impossible here.
        """
        rng = numpy_generator(seed, index, f"scenario/{split}")
        varied = derive_seed(seed, index, f"variation/{split}") if self.task.randomize.any else 0
        blocked: Counter[str] = Counter()
        wasted = 0
        for rejected in range(TRIES):
            q0, target = self._candidate(rng)
            places: dict[str, Pose] = {}
            bodies: dict[str, Pose] = {}
            reason = None
            if self._placer is not None:
                places, bodies, more, reason = self._placer.draw(rng, self.ring)
                wasted += more
            reason = reason or self._refusal(q0, target)
            if reason is None and self._placer is not None:
                settled = self._settled(q0, places, bodies)
                if isinstance(settled, str):
                    reason = settled
                else:
                    bodies = settled
            if reason is None:
                drawn = () if target is None else tuple(map(float, target))
                return Scenario(index, tuple(map(float, q0)), drawn, rejected + wasted, places, bodies, varied)
            blocked[reason] += 1
        most = max(blocked, key=lambda name: blocked[name])
        raise UsageError(
            f"task {self.task.task!r} finds no place for its {'target' if self._placer is None else 'things'} here",
            why=f"{blocked[most]} of {TRIES} places are {most}",
            fix="Change the task's region, or check the robot's base pose and the table of the scene.",
        )

    def _settled(self, q0: Array, places: dict[str, Pose], bodies: dict[str, Pose]) -> dict[str, Pose] | str:
        """Poses at rest, or why these will not do."""
        assert self._placer is not None
        if not self._placer.reachable(q0, places, bodies):
            return "out of reach"
        return self._placer.settle(q0, bodies) or "not at rest"

    def draw_set(self, seed: int, split: Split, count: int) -> ScenarioSet:
        """Scenarios 0 to count - 1 of the stream, with their hash."""
        return ScenarioSet(self.task.hash, split, seed, tuple(self.draw(seed, split, i) for i in range(count)))

    def region_points(self, count: int = 200) -> Array:
        """Points [count, 3] of the target's and the things' regions that lie over the table, for framing cameras."""
        rng = numpy_generator(0, 0, "scenario/region")
        regions = [self.task.target.region] if self.task.target is not None else list(self.task.regions.values())
        if self.task.target is not None and self._placer is not None:
            regions += list(self.task.regions.values())
        points = [self._drawn(rng, regions[i % len(regions)]) for i in range(count)] if regions else []
        points += [t.start[:3, 3] for t in self.world.things if t.start is not None]
        over = [p for p in points if self._over_table(p)]
        return np.array(over or points)

    def _ring(self) -> Ring:
        """Base (x, y), direction of the rest pose (rad), and horizontal reach (m) of the tool at table height."""
        model, arm, data = self.world.model, self.world.arm, self._data
        first = int(model.jnt_bodyid[model.joint(arm.joints[0]).id])
        base = data.xpos[first].copy()
        tool = data.site_xpos[arm.tcp]
        forward = math.atan2(tool[1] - base[1], tool[0] - base[0])
        rng = numpy_generator(0, 0, "scenario/reach")
        low, high = np.maximum(arm.low, -np.pi), np.minimum(arm.high, np.pi)
        distances = []
        for _ in range(2000):
            data.qpos[arm.qpos] = rng.uniform(low, high)
            self._mj.mj_kinematics(model, data)
            distances.append(float(np.linalg.norm(data.site_xpos[arm.tcp, :2] - base[:2])))
        return Ring(base[:2], forward, float(np.quantile(distances, 0.99)))

    def _drawn(self, rng: np.random.Generator, region: Region) -> Array:
        return self.ring.point(rng, region, self.world.bench.top)

    def _candidate(self, rng: np.random.Generator) -> tuple[Array, Array | None]:
        arm, noise = self.world.arm, self.task.start.joint_noise
        target = None if self.task.target is None else self._drawn(rng, self.task.target.region)
        scale = np.where(self.world.model.jnt_type[[self.world.model.joint(j).id for j in arm.joints]] == 2, 0.1, 1.0)
        q0 = arm.home_qpos[arm.qpos] + scale * rng.uniform(-noise, noise, arm.size)
        return np.clip(q0, arm.low, arm.high), target

    def _over_table(self, point: Array) -> bool:
        table = self.world.bench.table
        flat = np.array([[point[0], point[1], table.center[2]]])
        return bool(table.contains(flat, -EDGE * np.array([1, 1, 0]))[0])

    def _refusal(self, q0: Array, target: Array | None) -> str | None:
        if target is not None:
            if not self._over_table(target):
                return "off the table"
            if any(box.contains(target[None], CLEARANCE)[0] for box in self.world.bench.boxes):
                return "inside something on the bench"
            if not self._reachable(q0, target):
                return "out of reach"
        self._data.qpos[:] = self.world.arm.home_qpos
        self._data.qpos[self.world.arm.qpos] = q0
        self._mj.mj_forward(self.world.model, self._data)
        if self._deepest_contact() < min(self._home_contacts, 0.0) - 1e-3:
            return "start collides"
        return None

    def _reachable(self, q0: Array, target: Array) -> bool:
        """Whether inverse kinematics from q0 gets within IK_TOLERANCE, without regard to contacts."""
        model, arm, data = self.world.model, self.world.arm, self._data
        data.qpos[:] = arm.home_qpos
        q, jacobian = q0.copy(), np.zeros((3, model.nv))
        for _ in range(IK_STEPS):
            data.qpos[arm.qpos] = q
            self._mj.mj_kinematics(model, data)
            self._mj.mj_comPos(model, data)
            error = target - data.site_xpos[arm.tcp]
            if np.linalg.norm(error) < IK_TOLERANCE:
                return True
            self._mj.mj_jacSite(model, data, jacobian, None, arm.tcp)
            action = reach_action(jacobian[None, :, arm.dof], error[None], q[None], arm.home_qpos[arm.qpos], 0.1)
            q = np.clip(q + 0.1 * action[0], arm.low, arm.high)
        return False

    def _deepest_contact(self) -> float:
        data = self._data
        return min((float(c.dist) for c in data.contact[: data.ncon]), default=0.0)


def save_set(scenarios: ScenarioSet, path: Path) -> None:
    """Write the set with its hash as JSON."""
    write_json(path, {"format": FORMAT, "version": VERSION, "hash": scenarios.hash, **scenarios.plain()})


def load_set(path: Path) -> ScenarioSet:
    """Read a set.

    Raises:
        InputError: not such a file. CorruptError: its numbers do not give the hash it carries.
    """
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") not in (1, VERSION):
        raise InputError(f"{path} is not a scenario file of version 1 to {VERSION}")
    body = {key: value for key, value in data.items() if key not in ("format", "version", "hash")}
    result = from_dict(ScenarioSet, body)
    if result.hash != data.get("hash"):
        raise CorruptError(f"{path} changed since it was written", why="its scenarios do not give the hash in it")
    return result
