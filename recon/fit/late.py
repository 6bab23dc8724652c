"""Joint positions of single pictures, where the log says those of another moment: it was late, or the robot moved.

A picture whose robot is not where its joint positions put it is tried with positions on the way to those of the other
pictures, q_i + t (q_j - q_i): a robot that passed from one to the other took them about so. It keeps its own positions
unless others explain clearly more of what changed between the pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recon.fit.changes import Evidence, pose_points
from recon.robot.description import RobotModel

SHARES = np.arange(1, 21) / 20  # t
OTHERS = 12  # nearest pictures whose joint positions are tried
COST = 0.003  # of the explained share of all changes, for t = 1: small gains are chance
SWEEPS = 3

Q = Mapping[str, float]


class Alternatives:
    """For every picture the joint positions it may have been taken at, its own first, posed once."""

    def __init__(self, model: RobotModel, qs: Sequence[Q]) -> None:
        self.qs: list[list[dict[str, float]]] = []
        self.cost: list[np.ndarray] = []
        table = np.array([list(q.values()) for q in qs])
        for i, q in enumerate(qs):
            gap = np.abs(table - table[i]).max(axis=1)
            others = [j for j in np.argsort(gap, kind="stable") if gap[j] > 1e-6][:OTHERS]
            own, cost = [dict(q)], [0.0]
            for j in others:
                for t in SHARES:
                    own.append({name: q[name] + float(t) * (qs[j][name] - q[name]) for name in q})
                    cost.append(COST * float(t))
            self.qs.append(own)
            self.cost.append(np.array(cost))
        self.points = [pose_points(model, own) for own in self.qs]

    def choose(self, evidence: Evidence, chosen: Sequence[int], world_from_base: np.ndarray) -> list[int]:
        """For every picture the alternative that explains most beside the others', starting from `chosen`."""
        found = list(chosen)
        masks = [evidence.shown(v, p, world_from_base[None].repeat(len(p), 0)) for v, p in enumerate(self.points)]
        current = np.stack([mask[k] for mask, k in zip(masks, found, strict=True)])
        for _ in range(SWEEPS):
            before = list(found)
            for v, mask in enumerate(masks):
                worth = evidence.against(v, mask, current) - self.cost[v]
                found[v] = int(worth.argmax())
                current[v] = mask[found[v]]
            if found == before:
                break
        return found

    def taken(self, chosen: Sequence[int]) -> tuple[list[dict[str, float]], np.ndarray]:
        """(joint positions of every picture, its posed points [V, N, 3])."""
        qs = [own[k] for own, k in zip(self.qs, chosen, strict=True)]
        return qs, np.stack([p[k] for p, k in zip(self.points, chosen, strict=True)])
