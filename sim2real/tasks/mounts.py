"""Cameras that a task has besides those of the scene's rig."""

from __future__ import annotations

import math
from dataclasses import dataclass

TOOL = "tool"  # the frame of the tool centre point, whichever link carries it


@dataclass(frozen=True)
class Mount:
    """A pinhole camera put up in the scene, or carried by a body.

    body: what carries it: tool, one of the task's bodies, or a link by the name it has in the robot's file; None: it
    stands in the scene. position, look_at: m, in the frame of that body (or the scene): where it is, and what is in the
    middle of its picture. up: what points up in the picture. fov_deg: vertical angle of view.
    """

    position: tuple[float, float, float]
    look_at: tuple[float, float, float]
    up: tuple[float, float, float] = (0.0, 0.0, 1.0)
    fov_deg: float = 60.0
    body: str | None = None

    def __post_init__(self) -> None:
        if not 5 <= self.fov_deg <= 150:
            raise ValueError("a camera's fov_deg must lie within 5..150")
        if not all(math.isfinite(x) for x in (*self.position, *self.look_at, *self.up)):
            raise ValueError("a camera's position, look_at and up must be finite")
