"""The numbers an observation carries besides pictures, and what each is called in data sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recon.geometry.quaternion import matrix_to_quat
from sim2real.tasks.facts import Facts
from sim2real.tasks.progress import Progress
from sim2real.tasks.spec import Task

Array = NDArray[np.float64]
AXES = ("x", "y", "z")


def proprio_names(task: Task, joints: Sequence[str]) -> list[str]:
    """Of "proprio"."""
    names = [f"{j}.pos" for j in joints] + [f"{j}.vel" for j in joints] + [f"tool.{axis}" for axis in AXES]
    return [*names, "hand.opening"] if task.control.gripper else names


def privileged_names(task: Task) -> list[str]:
    """Of "privileged"."""
    if task.simple:
        return [*(f"tool_to_target.{axis}" for axis in AXES), *(f"target.{axis}" for axis in AXES), "time_left"]
    names = [f"{place}.{axis}" for place in _places(task) for axis in AXES]
    for body in task.bodies:
        names += [f"tool_to_{body}.{axis}" for axis in AXES] + [f"{body}.{axis}" for axis in AXES]
        names += [f"{body}.q{axis}" for axis in ("w", *AXES)]
    return [*names, *(f"done.{stage.id}" for stage in task.stages), "time_left"]


def privileged_size(task: Task) -> int:
    """Number of values of "privileged"."""
    return len(privileged_names(task))


def privileged_values(task: Task, facts: Facts, progress: Progress, left: Array) -> Array:
    """[N, S] in the order of `privileged_names`; left [N, 1]: share of the horizon."""
    tool = facts["tcp"]
    if task.simple:
        return np.concatenate([facts["target"] - tool, facts["target"], left], axis=1)
    columns = [facts[place] for place in _places(task)]
    turns = [facts.turn(body) for body in task.bodies]
    # all at once: element by element, so that a row does not depend on the others
    quats = np.split(_upper_half(matrix_to_quat(np.concatenate(turns))), len(turns)) if turns else []
    for body, quat in zip(task.bodies, quats, strict=True):
        columns += [facts[body] - tool, facts[body], quat]
    return np.concatenate([*columns, progress.latched.astype(float), left], axis=1)


def _places(task: Task) -> list[str]:
    return [*(["target"] if task.target is not None else []), *task.places]


def _upper_half(quats: Array) -> Array:
    """[N, 4] the one of q and -q, which turn alike, that begins with a positive number."""
    return np.where(quats[:, :1] < 0, -quats, quats)
