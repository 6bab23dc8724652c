"""What tells a robot from the scene behind it in a few pictures: the median of those in which it stands elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np

from recon.fit.changes import Sighting
from recon.fit.stance import RobotView
from recon.robot.description import RobotModel
from recon.robot.silhouettes import draw_robot

SURE = 0.05  # sRGB: a difference of one standard deviation
STEP = 0.3  # of the outline where the robot differs surely


def robot_views(
    model: RobotModel, sightings: Sequence[Sighting], world_from_base: np.ndarray, margin: int
) -> list[RobotView]:
    """The pictures against what the others show behind their robot; margin: pixels by which its outline may be off.

    Differences saturate, STEP (1 - exp(-D^2 / 2 SURE^2)): a dark part of a bright robot is no edge.
    """
    side = 2 * margin + 1
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    masks = [draw_robot(model, s.q, s.camera, world_from_base).mask.astype(np.uint8) for s in sightings]
    covered = [cv2.dilate(mask, kernel) > 0 for mask in masks]
    views: list[RobotView] = []
    for k, sighting in enumerate(sightings):
        others = [
            j for j, s in enumerate(sightings) if j != k and s.camera.name == sighting.camera.name
        ]  # fmt: skip
        stack = np.stack([np.where(covered[j][..., None], np.nan, sightings[j].picture) for j in others])
        known = np.isfinite(stack[..., 0]).any(axis=0)
        stack[:, ~known] = 0.0
        plate = np.nanmedian(stack, axis=0)
        off = np.abs(sighting.picture - plate).max(axis=-1)
        difference = STEP * (1.0 - np.exp(-0.5 * (off / SURE) ** 2))
        views.append(RobotView(sighting.camera, sighting.q, difference.astype(np.float32), known))
    return views


def reposed(sightings: Sequence[Sighting], qs: Sequence[dict[str, float]]) -> list[Sighting]:
    """The same pictures with other joint positions."""
    return [replace(sighting, q=q) for sighting, q in zip(sightings, qs, strict=True)]
