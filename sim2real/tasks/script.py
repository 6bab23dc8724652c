"""Scripted experts as data: a list of steps, each of which says where the tool goes and what the hand does.

    - {go: cube, height: 0.1, grip: 1, align: cube}     over the cube, hand open, turned with it
    - {go: cube, tol: 0.006}                            down to where it is gripped
    - {grip: 0, wait: 8}                                close
    - {rise: 0.2}                                       straight up, to 0.2 m over the table
    - {go: goal, carry: cube, height: 0.02}             so that the cube, not the tool, comes over the goal
    - {push: [puck, goal], back: 0.05, height: 0.02}    from behind, along the table

A step ends when the tool is within `tol` of its goal and `wait` control steps have passed, or after `limit`; the last
one stays. Who drops what is carried, or loses what is pushed, begins again. The expert reads the simulator's truth, as
a person who labels data would.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from sim2real.tasks.facts import Facts

Array = NDArray[np.float64]

DEEP = 0.025  # m: tall bodies are gripped this far below their top
LOST = 0.08  # m: a pushed body this much farther than it should be was lost; the script starts again
PRESS = 0.03  # m: a push aims this far into the body,
ASIDE = 0.012  # m: less when the tool is off the line by a share of this


@dataclass(frozen=True)
class Step:
    """One step. go: name of what the tool goes to, `height` m over it. behind, back: stay `back` m behind it, seen from
    `behind`. carry: the body that is to get there instead of the tool. push: [body, place], `back` m from the body's
    middle to where the tool touches it, tool `height` m over the table. rise: tool height over the table, m, straight
    up. grip: opening of the hand, 0 to 1, kept until changed. align: body whose sides the fingers take. side: least
    opening's direction, "square" bodies are taken at the nearest side. tol m, wait, limit: control steps.
    """

    go: str | None = None
    push: list[str] | None = None
    rise: float | None = None
    height: float = 0.0
    behind: str | None = None
    back: float = 0.0
    carry: str | None = None
    grip: float | None = None
    align: str | None = None
    tol: float = 0.01
    wait: int = 0
    limit: int = 80

    def __post_init__(self) -> None:
        if sum(verb is not None for verb in (self.go, self.push, self.rise)) > 1:
            raise ValueError("a step of the expert has one of go, push and rise")
        if self.go is None and self.push is None and self.rise is None and self.grip is None and self.wait == 0:
            raise ValueError("a step of the expert does nothing")
        if self.grip is not None and not 0 <= self.grip <= 1:
            raise ValueError("grip must lie within 0..1")
        if not self.tol > 0 or self.wait < 0 or self.limit < 1:
            raise ValueError("a step needs tol > 0, wait >= 0 and limit >= 1")


class Wish(NamedTuple):
    """Where the tool of one environment should be: position [3] m, turn about the vertical rad (None: as it is),
    opening 0..1 (None: as it is), and whether it may go slowly only."""

    position: Array
    yaw: float | None
    grip: float | None
    slow: bool


def check_script(steps: Sequence[Step], kinds: Mapping[str, str]) -> None:
    """Refuse unknown names.

    Raises:
        UsageError: a step names something the task does not have.
    """
    for number, step in enumerate(steps):
        bodies = [step.carry, step.align, *(step.push or [])[:1]]
        named = [step.go, step.behind, *(step.push or []), *bodies]
        for name in named:
            if name is not None and name not in kinds:
                raise UsageError(f"step {number + 1} of the expert names {name!r}", fix=did_you_mean(name, kinds))
        for name in bodies:
            if name is not None and kinds[name] not in ("body", "socket"):
                raise UsageError(f"step {number + 1} of the expert needs a body", why=f"{name!r} is none")
        if step.push is not None and len(step.push) != 2:
            raise UsageError(f"step {number + 1} of the expert pushes {step.push!r}", why="[body, place] is needed")
        if step.grip is not None and "gripper" not in kinds:
            raise UsageError(f"step {number + 1} of the expert uses the hand", fix="Set control.gripper: true.")


class Script:
    """Runs the steps for N environments. phase, waited, grip [N], anchor [N, 3] m (where the tool was when the step
    began): part of the environments' state."""

    def __init__(self, steps: Sequence[Step], count: int) -> None:
        self.steps = list(steps)
        self.phase, self.waited = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.grip, self.anchor = np.ones(count), np.zeros((count, 3))

    def restart(self, rows: NDArray[np.int64]) -> None:
        """Begin again in these environments."""
        self.phase[rows], self.waited[rows], self.grip[rows] = 0, 0, 1.0

    def wish(self, row: int, facts: Facts, tool_yaw: float) -> Wish:
        """What is wanted of environment `row` now; goes on to the next step where one is done."""
        for _ in range(2 * len(self.steps)):  # a step may be done at once
            step = self.steps[self.phase[row]]
            if step.grip is not None:
                self.grip[row] = step.grip
            if self.waited[row] == 0:
                self.anchor[row] = facts["tcp"][row]
            position, yaw = _goal(step, row, facts, tool_yaw, self.anchor[row])
            last = self.phase[row] == len(self.steps) - 1
            there = float(np.linalg.norm(position - facts["tcp"][row])) < step.tol
            if step.push is not None:
                body, place = (facts[name][row, :2] for name in step.push)
                there = float(np.hypot(*(body - place))) < step.tol
                if not there and _lost(step, row, facts):
                    self.restart(np.array([row]))
                    continue
            if step.carry is not None and not facts.fingers_on(step.carry)[row].any():
                self.restart(np.array([row]))  # it was dropped
                continue
            done = (there and self.waited[row] >= step.wait) or self.waited[row] >= step.limit
            if last or not done:
                self.waited[row] += 1
                return Wish(position, yaw, float(self.grip[row]), step.push is not None)
            self.phase[row] += 1
            self.waited[row] = 0
        return Wish(facts["tcp"][row].copy(), None, float(self.grip[row]), True)


def _goal(step: Step, row: int, facts: Facts, tool_yaw: float, anchor: Array) -> tuple[Array, float | None]:
    tool = facts["tcp"][row]
    yaw = _aligned(step, row, facts, tool_yaw)
    if step.rise is not None:
        return np.array([anchor[0], anchor[1], facts.table + step.rise]), yaw
    if step.push is not None:
        body, place = (facts[name][row] for name in step.push)
        along = _direction(body, place)
        # first to the line behind the body, then on: pressing off the line would turn it away
        aside = _cross(along, body[:2] - tool[:2])
        press = PRESS * max(-0.5, 1 - abs(aside) / ASIDE)
        position = body[:2] - along * (step.back - press)
        return np.array([*position, facts.table + step.height]), math.atan2(along[1], along[0]) + math.pi / 2
    if step.go is None:
        return anchor.copy(), yaw
    place = _grip_point(step.go, row, facts)
    if step.behind is not None:
        along = _direction(facts[step.go][row], facts[step.behind][row])
        place[:2] -= along * step.back
        yaw = math.atan2(along[1], along[0]) + math.pi / 2
        place[2] = facts.table
    elif step.carry is not None:
        body = facts[step.carry][row]
        top = facts.top(step.go)[row] if step.go in facts.things else facts[step.go][row, 2]
        wanted = np.array([place[0], place[1], top + body[2] - facts.bottom(step.carry)[row]])
        place = wanted + (tool - body)
    place[2] += step.height
    return place, yaw


def _lost(step: Step, row: int, facts: Facts) -> bool:
    """Whether the tool is no longer behind the body it pushes, or far from it."""
    assert step.push is not None
    body, place = (facts[name][row] for name in step.push)
    way = body[:2] - facts["tcp"][row, :2]
    reach = float(np.hypot(*way))
    return reach > step.back + LOST or float(way @ _direction(body, place)) < 0.3 * reach


def _cross(a: Array, b: Array) -> float:
    return float(a[0] * b[1] - a[1] * b[0])


def _grip_point(name: str, row: int, facts: Facts) -> Array:
    place = facts[name][row].copy()
    if name in facts.things:
        place[2] = max(place[2], facts.top(name)[row] - DEEP)
    return place


def _direction(a: Array, b: Array) -> Array:
    """[2] unit, from a to b, horizontally; along x where they are one above the other."""
    d = b[:2] - a[:2]
    size = float(np.hypot(*d))
    return d / size if size > 1e-6 else np.array([1.0, 0.0])


def _aligned(step: Step, row: int, facts: Facts, tool_yaw: float) -> float | None:
    """Yaw of the closing direction: along the narrower side of the body, the nearest of equal ones."""
    if step.align is None:
        return None
    turn = facts.turn(step.align)[row]
    yaw = math.atan2(turn[1, 0], turn[0, 0])
    if step.carry is not None:  # so that the carried one lies as the other does
        carried = facts.turn(step.carry)[row]
        return tool_yaw + _nearest(yaw - math.atan2(carried[1, 0], carried[0, 0]), 0.0, math.pi / 2)
    half = facts.things[step.align].half
    if abs(half[0] - half[1]) < 0.1 * max(half[0], half[1]):
        return _nearest(yaw, tool_yaw, math.pi / 2)
    return _nearest(yaw if half[0] < half[1] else yaw + math.pi / 2, tool_yaw, math.pi)


def _nearest(angle: float, to: float, period: float) -> float:
    """`angle` plus a multiple of `period`, nearest to `to`."""
    return angle + period * round((to - angle) / period)
