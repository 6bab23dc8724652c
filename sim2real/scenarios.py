"""Scenarios: where the arm starts and where the target is, drawn by (seed, split, index) and nothing else.

Training and evaluation draw from different streams, so their scenarios never coincide; a set written to a file carries
its content hash, so that two policies can be shown to have met the same ones.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recon.core.config import from_dict
from recon.core.errors import CorruptError, InputError, UsageError
from recon.core.files import read_json, write_json
from recon.core.seeding import numpy_generator
from sim2real.physics import World, rest
from sim2real.tasks.expert import reach_action
from sim2real.tasks.spec import Task, content_hash

Array = NDArray[np.float64]
Split = Literal["train", "eval"]

TRIES = 200  # draws before a region is called impossible
CLEARANCE = 0.06  # m around a target that the bench's things must leave free
EDGE = 0.02  # m between a target and the table's edge
IK_STEPS = 150
IK_TOLERANCE = 0.01  # m


@dataclass(frozen=True)
class Scenario:
    """One initial state. q0 [A] arm joint positions; target [3] m, world; rejected: draws thrown away before it."""

    index: int
    q0: tuple[float, ...]
    target: tuple[float, ...]
    rejected: int = 0


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
        return content_hash(asdict(self))

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
        self.base, self.forward, self.reach = self._ring()

    def draw(self, seed: int, split: Split, index: int) -> Scenario:
        """The scenario; the first of up to TRIES draws that the arm can reach and the bench leaves free.

        Raises:
            UsageError: the region is impossible here.
        """
        rng = numpy_generator(seed, index, f"scenario/{split}")
        blocked = {"off the table": 0, "inside something on the bench": 0, "out of reach": 0, "start collides": 0}
        for rejected in range(TRIES):
            q0, target = self._candidate(rng)
            reason = self._refusal(q0, target)
            if reason is None:
                return Scenario(index, tuple(map(float, q0)), tuple(map(float, target)), rejected)
            blocked[reason] += 1
        most = max(blocked, key=lambda name: blocked[name])
        raise UsageError(
            f"task {self.task.task!r} finds no place for its target here",
            why=f"{blocked[most]} of {TRIES} places are {most}",
            fix="Change the task's region, or check the robot's base pose and the table of the scene.",
        )

    def draw_set(self, seed: int, split: Split, count: int) -> ScenarioSet:
        """Scenarios 0 to count - 1 of the stream, with their hash."""
        return ScenarioSet(self.task.hash, split, seed, tuple(self.draw(seed, split, i) for i in range(count)))

    def region_points(self, count: int = 200) -> Array:
        """Points [count, 3] of the target region that lie over the table, for framing cameras."""
        rng = numpy_generator(0, 0, "scenario/region")
        points = [self._place(rng) for _ in range(count)]
        over = [p for p in points if self._over_table(p)]
        return np.array(over or points)

    def _ring(self) -> tuple[Array, float, float]:
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
        return base[:2], forward, float(np.quantile(distances, 0.99))

    def _place(self, rng: np.random.Generator) -> Array:
        region = self.task.target.region
        # uniform over the ring's area: r^2 is uniform
        radius = math.sqrt(rng.uniform(region.radius[0] ** 2, region.radius[1] ** 2)) * self.reach
        azimuth = self.forward + math.radians(rng.uniform(*region.azimuth_deg))
        height = self.world.bench.top + rng.uniform(*region.height)
        return np.array([self.base[0] + radius * math.cos(azimuth), self.base[1] + radius * math.sin(azimuth), height])

    def _candidate(self, rng: np.random.Generator) -> tuple[Array, Array]:
        arm, noise = self.world.arm, self.task.start.joint_noise
        target = self._place(rng)
        scale = np.where(self.world.model.jnt_type[[self.world.model.joint(j).id for j in arm.joints]] == 2, 0.1, 1.0)
        q0 = arm.home_qpos[arm.qpos] + scale * rng.uniform(-noise, noise, arm.size)
        return np.clip(q0, arm.low, arm.high), target

    def _over_table(self, point: Array) -> bool:
        table = self.world.bench.table
        flat = np.array([[point[0], point[1], table.center[2]]])
        return bool(table.contains(flat, -EDGE * np.array([1, 1, 0]))[0])

    def _refusal(self, q0: Array, target: Array) -> str | None:
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
    write_json(path, {"format": "sim2real-scenarios", "version": 1, "hash": scenarios.hash, **asdict(scenarios)})


def load_set(path: Path) -> ScenarioSet:
    """Read a set.

    Raises:
        InputError: not such a file. CorruptError: its numbers do not give the hash it carries.
    """
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != "sim2real-scenarios" or data.get("version") != 1:
        raise InputError(f"{path} is not a scenario file of version 1")
    body = {key: value for key, value in data.items() if key not in ("format", "version", "hash")}
    result = from_dict(ScenarioSet, body)
    if result.hash != data.get("hash"):
        raise CorruptError(f"{path} changed since it was written", why="its scenarios do not give the hash in it")
    return result
