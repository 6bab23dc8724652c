"""How far episodes have come: counters of held predicates, latched stages, the potential of the reward."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim2real.tasks.facts import Facts
from sim2real.tasks.predicates import evaluate_tree, gap, held_nodes
from sim2real.tasks.spec import Task

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Progress:
    """Of N environments. latched [N, M] stages done; timers [N, H] control steps, per `held` node of the task."""

    def __init__(self, task: Task, count: int) -> None:
        self.task = task
        self._nodes = [n for tree in (task.success, *(s.when for s in task.stages)) for n in held_nodes(tree)]
        self.latched = np.zeros((count, len(task.stages)), bool)
        self.timers = np.zeros((count, len(self._nodes)), np.int64)

    def restart(self, rows: NDArray[np.int64]) -> None:
        """Nothing is done yet in these environments."""
        self.latched[rows], self.timers[rows] = False, 0

    def counters(self) -> dict[int, NDArray[Any]]:
        """Of every `held` node, by its identity."""
        return {id(node): self.timers[:, k] for k, node in enumerate(self._nodes)}

    def advance(self, facts: Facts) -> None:
        """One control step later: count what holds, latch what is done and had its needs."""
        for k, node in enumerate(self._nodes):
            true = evaluate_tree(node["held"], facts)
            self.timers[:, k] = np.where(true, self.timers[:, k] + 1, 0)
        for j, stage in enumerate(self.task.stages):
            self.latched[:, j] |= self._active(j) & evaluate_tree(stage.when, facts)

    def potential(self, facts: Facts) -> Array:
        """Phi [N] in 0..1 (see Reward)."""
        stages, k = self.task.stages, self.task.reward.k
        total = np.zeros(facts.count)
        for j, stage in enumerate(stages):
            near = 1 - np.tanh(k * gap(stage.when, facts))
            total += np.where(self.latched[:, j], 1.0, self._active(j) * near)
        return total / max(1, len(stages))

    def share(self) -> Array:
        """[N] share of the stages that are done; 0 where there are none."""
        return self.latched.mean(axis=1) if self.task.stages else np.zeros(len(self.latched))

    def _active(self, j: int) -> Bools:
        ids = [stage.id for stage in self.task.stages]
        needs = [ids.index(need) for need in self.task.stages[j].needs]
        return np.asarray(self.latched[:, needs].all(axis=1))
