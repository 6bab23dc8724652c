"""The schema of `data/tasks/*.yaml`: strict keys, SI units, every threshold written down.

A task's hash covers all of it, so that two results are comparable only when the task was the same to the last digit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from recon.core.config import from_dict, load_yaml, to_dict
from recon.core.errors import UsageError, did_you_mean
from recon.core.files import data_root
from sim2real.tasks.predicates import check_tree


@dataclass(frozen=True)
class Control:
    """How actions move the robot.

    mode: joint_delta adds action x max_delta to the commanded joint positions.
    hz: control steps per second. max_delta: rad (or m, for a sliding joint) per control step at action 1.
    """

    mode: Literal["joint_delta"] = "joint_delta"
    hz: int = 20
    max_delta: float = 0.06

    def __post_init__(self) -> None:
        if self.hz <= 0 or 500 % self.hz:
            raise ValueError("hz must divide 500, the physics rate")
        if not 0 < self.max_delta <= 0.5:
            raise ValueError("max_delta must lie in (0, 0.5]")


@dataclass(frozen=True)
class Region:
    """A part of a ring around the robot's base.

    radius: fraction of the arm's horizontal reach. azimuth_deg: from the rest pose's direction, counter-clockwise seen
    from above. height: m above the table.
    """

    radius: tuple[float, float]
    azimuth_deg: tuple[float, float]
    height: tuple[float, float]

    def __post_init__(self) -> None:
        if not 0 < self.radius[0] <= self.radius[1] <= 1:
            raise ValueError("region radius must be two ascending fractions of the reach in (0, 1]")
        if not -180 <= self.azimuth_deg[0] <= self.azimuth_deg[1] <= 180:
            raise ValueError("region azimuth_deg must be two ascending angles within -180..180")
        if not 0 <= self.height[0] <= self.height[1] <= 2:
            raise ValueError("region height must be two ascending heights in metres within 0..2")


@dataclass(frozen=True)
class Target:
    """The place to go to, drawn as a sphere. radius m; color RGB 0-1."""

    region: Region
    radius: float = 0.02
    color: tuple[float, float, float] = (0.9, 0.1, 0.1)


@dataclass(frozen=True)
class Start:
    """Initial state: the rest pose plus uniform noise of +-joint_noise rad (or 0.1 x m) on each arm joint."""

    joint_noise: float = 0.1


@dataclass(frozen=True)
class Reward:
    """Per-step reward.

    progress: (d before - d after) / scale. dense: 1 - tanh(k d). sparse: nothing. On success + success_bonus; always
    - action_penalty x mean action^2. d is the tool's distance to the target in metres.
    """

    type: Literal["progress", "dense", "sparse"] = "progress"
    scale: float = 0.1
    k: float = 5.0
    success_bonus: float = 1.0
    action_penalty: float = 0.01


@dataclass(frozen=True)
class Task:
    """One task. instruction: the first is canonical, the rest paraphrases. horizon: control steps.

    success: a predicate tree over named points (see predicates.py); hold: consecutive control steps it must be true.
    """

    task: str
    instruction: list[str]
    target: Target
    success: dict[str, Any]
    horizon: int = 50
    hold: int = 1
    control: Control = field(default_factory=Control)
    start: Start = field(default_factory=Start)
    reward: Reward = field(default_factory=Reward)

    def __post_init__(self) -> None:
        if not self.instruction or self.horizon < 1 or self.hold < 1:
            raise ValueError("a task needs an instruction, a horizon >= 1 and a hold >= 1")
        check_tree(self.success, points=("tcp", "target"))

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the task's canonical JSON."""
        return content_hash(to_dict(self))


def content_hash(value: Any) -> str:
    """16 hex digits that identify plain JSON values, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_task(name_or_path: str) -> Task:
    """A bundled task by name (reach) or one from a YAML file.

    Raises:
        UsageError: unknown name (the nearest is named), unknown key, wrong type, malformed predicate.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return from_dict(Task, load_yaml(path))
    known = bundled("tasks")
    if name_or_path not in known:
        raise UsageError(f"there is no task {name_or_path!r}", fix=did_you_mean(name_or_path, known))
    return from_dict(Task, load_yaml(known[name_or_path]))


def bundled(folder: str) -> dict[str, Path]:
    """YAML files that ship with us under `data/<folder>`, by name."""
    return {path.stem: path for path in sorted((data_root() / folder).glob("*.yaml"))}
