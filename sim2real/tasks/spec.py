"""The schema of `data/tasks/*.yaml`: strict keys, SI units, every threshold written down.

A task's hash covers all of it, so that two results are comparable only when the task was the same to the last digit.
What later versions of the schema brought is left out of the hash where a task does not use it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from recon.core.config import from_dict, load_yaml, to_dict
from recon.core.errors import UsageError, did_you_mean
from recon.core.files import data_root
from sim2real.tasks.items import Init, Item, Place, Region, Target
from sim2real.tasks.mounts import Mount
from sim2real.tasks.predicates import check_tree
from sim2real.tasks.script import Step, check_script
from sim2real.tasks.variation import Randomize

__all__ = ["Control", "Init", "Item", "Place", "Region", "Reward", "Start", "Target", "Task", "load_task"]

LATER: dict[str, Any] = {"later": True}  # marks fields that older tasks' hashes do not know
RESERVED = ("tcp", "target", "table", "gripper")


@dataclass(frozen=True)
class Control:
    """How actions move the robot.

    mode: joint_delta adds action x max_delta to the commanded joint positions. joint_position commands the share of
    each joint's range that the action is of -1..1, approached by at most max_delta per step. ee_delta moves the
    commanded tool by action[:3] x max_delta and turns it by the rotation vector action[3:6] x max_turn, in world axes.
    hz: control steps per second. max_delta: rad (or m, for a sliding joint or the tool) per control step at action 1.
    max_turn: rad per control step. gripper: one more action, -1 closed to 1 open.
    """

    mode: Literal["joint_delta", "joint_position", "ee_delta"] = "joint_delta"
    hz: int = 20
    max_delta: float = 0.06
    max_turn: float = field(default=0.1, metadata=LATER)
    gripper: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        if self.hz <= 0 or 500 % self.hz:
            raise ValueError("hz must divide 500, the physics rate")
        if not 0 < self.max_delta <= 0.5 or not 0 < self.max_turn <= 0.5:
            raise ValueError("max_delta and max_turn must lie in (0, 0.5]")


@dataclass(frozen=True)
class Start:
    """Initial state: the rest pose plus uniform noise of +-joint_noise rad (or 0.1 x m) on each arm joint."""

    joint_noise: float = 0.1


@dataclass(frozen=True)
class Reward:
    """Per-step reward.

    progress: (d before - d after) / scale. dense: 1 - tanh(k d). sparse: nothing. staged: Phi after the step, and
    potential: (gamma Phi after - Phi before) / scale, where over the M stages

        Phi = 1/M sum_j [done_j + (1 - done_j) active_j (1 - tanh(k d_j))]

    done_j is latched, active_j: all that stage j needs are done, d_j: metres that its predicate lacks. On success
    + success_bonus; always - action_penalty x mean action^2. d is the tool's distance to the target in metres, or what
    the success predicate lacks.
    """

    type: Literal["progress", "dense", "sparse", "staged", "potential"] = "progress"
    scale: float = 0.1
    k: float = 5.0
    success_bonus: float = 1.0
    action_penalty: float = 0.01
    gamma: float = field(default=0.99, metadata=LATER)


@dataclass(frozen=True)
class Stage:
    """A step on the way that stays done once it was true. when: its predicate. needs: stages that come before it."""

    id: str
    when: dict[str, Any]
    needs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """What `sim2real eval` plays when it is not told otherwise: number of scenarios, and their seed."""

    episodes: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError("eval episodes must be at least 1")


@dataclass(frozen=True)
class Task:
    """One task. instruction: the first is canonical, the rest paraphrases. horizon: control steps.

    success: a predicate tree (see predicates.py); hold: consecutive control steps it must be true. regions, bodies,
    places: what it is about. stages: latched steps on the way. expert: a script that solves it (see script.py);
    without one the tool goes to the target. randomize: what varies besides the places; nothing unless named.
    cameras: besides those of the scene's rig.
    """

    task: str
    instruction: list[str]
    success: dict[str, Any]
    target: Target | None = None
    horizon: int = 50
    hold: int = 1
    control: Control = field(default_factory=Control)
    start: Start = field(default_factory=Start)
    reward: Reward = field(default_factory=Reward)
    regions: dict[str, Region] = field(default_factory=dict, metadata=LATER)
    bodies: dict[str, Item] = field(default_factory=dict, metadata=LATER)
    places: dict[str, Place] = field(default_factory=dict, metadata=LATER)
    stages: list[Stage] = field(default_factory=list, metadata=LATER)
    expert: list[Step] = field(default_factory=list, metadata=LATER)
    randomize: Randomize = field(default_factory=Randomize, metadata=LATER)
    eval: Evaluation = field(default_factory=Evaluation, metadata=LATER)
    cameras: dict[str, Mount] = field(default_factory=dict, metadata=LATER)

    def __post_init__(self) -> None:
        if not self.instruction or self.horizon < 1 or self.hold < 1:
            raise ValueError("a task needs an instruction, a horizon >= 1 and a hold >= 1")
        _check_names(self)
        kinds = self.kinds()
        check_tree(self.success, kinds)
        _check_stages(self, kinds)
        check_script(self.expert, kinds)
        if self.target is None and not self.expert:
            raise ValueError("a task without a target needs an expert script")

    def kinds(self) -> dict[str, str]:
        """What each name stands for: point, body, socket, place, support (the table) or gripper."""
        kinds = {"tcp": "point", "table": "support"}
        if self.target is not None:
            kinds["target"] = "point"
        if self.control.gripper:
            kinds["gripper"] = "gripper"
        bodies = {name: "socket" if item.shape == "socket" else "body" for name, item in self.bodies.items()}
        return kinds | dict.fromkeys(self.places, "place") | bodies

    @property
    def simple(self) -> bool:
        """Whether it is about the tool and a target only."""
        return not self.bodies and not self.places and not self.control.gripper and self.target is not None

    def plain(self) -> dict[str, Any]:
        """The task as plain values, without what it leaves at the defaults of later schemas."""
        result = _plain(self)
        assert isinstance(result, dict)
        return result

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the task's canonical JSON."""
        return content_hash(self.plain())


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _plain(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not (f.metadata.get("later") and getattr(value, f.name) == _default(f))
        }
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return to_dict(value)


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def _check_names(task: Task) -> None:
    for name in [*task.regions, *task.bodies, *task.places, *task.cameras]:
        if not name.isidentifier():
            raise UsageError(f"the name {name!r} in task {task.task!r}", why="letters, digits and _ make a name")
    for name in [*task.bodies, *task.places]:
        if name in RESERVED:
            raise UsageError(f"task {task.task!r} calls something {name!r}", why=f"reserved are {', '.join(RESERVED)}")
    both = sorted(set(task.bodies) & set(task.places))
    if both:
        raise UsageError(f"task {task.task!r} has a body and a place called {both[0]!r}")
    before: list[str] = []
    starts = [(name, thing.init) for name, thing in task.places.items()]
    for name, init in [*starts, *((name, item.init) for name, item in task.bodies.items())]:
        region = init.region
        if region is not None and region not in task.regions:
            raise UsageError(f"{name!r} starts in region {region!r}", fix=did_you_mean(region, task.regions))
        named = [*init.within, *([init.clear_to] if init.clear_to is not None else [])]
        for other in named:
            if other not in before:
                raise UsageError(
                    f"where {name!r} starts depends on {other!r}", why="that is not placed before it",
                    fix=did_you_mean(other, before) if before else "Places come first, then bodies, each in order.",
                )  # fmt: skip
        before.append(name)


def _check_stages(task: Task, kinds: dict[str, str]) -> None:
    known: list[str] = []
    for stage in task.stages:
        if stage.id in known:
            raise UsageError(f"stage {stage.id!r} is there twice")
        for need in stage.needs:
            if need not in known:
                raise UsageError(f"stage {stage.id!r} needs {need!r}", fix=did_you_mean(need, known))
        check_tree(stage.when, kinds)
        known.append(stage.id)
    if task.reward.type in ("staged", "potential") and not task.stages:
        raise ValueError(f"reward type {task.reward.type} needs stages")


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


def with_captured(task: Task, wish: str) -> Task:
    """The task with captured bodies instead of its own: wish is "cube=NAME,..."; "" changes nothing.

    Raises:
        UsageError: the wish is not of that form, or the task has no such body.
    """
    bodies = dict(task.bodies)
    for part in (part.strip() for part in wish.split(",") if part.strip()):
        name, _, captured = (word.strip() for word in part.partition("="))
        if not captured:
            raise UsageError(f"--bodies: {part!r}", why="BODY=NAME is needed, such as cube=mug")
        if name not in bodies:
            known = list(bodies) or ["none"]
            raise UsageError(f"--bodies: task {task.task!r} has no body {name!r}", fix=did_you_mean(name, known))
        own = bodies[name]
        bodies[name] = Item(own.init, scene=captured, friction=own.friction, fixed=own.fixed)
    return dataclasses.replace(task, bodies=bodies)


def bundled(folder: str) -> dict[str, Path]:
    """YAML files that ship with us under `data/<folder>`, by name."""
    return {path.stem: path for path in sorted((data_root() / folder).glob("*.yaml"))}
