"""The stage of a build that finds the still scene's first points: the room, the table, every camera's depth."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from recon.calibrate.cloud import Points, join_points
from recon.calibrate.dense import DepthPrior, depth_priors, fused_points
from recon.calibrate.room import Room, find_room
from recon.calibrate.shell import Backdrop, backdrop
from recon.calibrate.stands import find_stands, standing, with_stands
from recon.calibrate.table import Table, find_table
from recon.core.events import Event, Message, StageFinished, StageStarted
from recon.fit.data import Frames
from recon.fit.plate import Plate
from recon.fit.seed import scene_extent

SPACING = 0.002  # of the extent, of points on stands


@dataclass(frozen=True)
class FirstPoints:
    """priors: of every camera, in order. fused: points on what was seen. behind: what stands where no camera looks."""

    priors: list[DepthPrior]
    fused: Points
    behind: Backdrop | None


def find_points(frames: Frames, plates: list[Plate], budget: int, z_up: bool) -> Generator[Event, None, FirstPoints]:
    """At most `budget` points. Walls, floor and table are looked for where the world is known to have z up."""
    started = time.monotonic()
    yield StageStarted("points")
    pictures = dict(zip(frames.names, _as_uint8(plates), strict=True))
    cameras = dict(zip(frames.names, frames.cameras, strict=True))
    valid = {name: plate.weight > 0 for name, plate in zip(frames.names, plates, strict=True)}
    room = find_room(pictures, cameras, valid) if z_up else None
    table = find_table(pictures, cameras, valid) if z_up else None
    if z_up:
        yield Message("info", _told(room, table))
    by_name, shell = depth_priors(pictures, cameras, valid, room, table)
    stands = find_stands(pictures, cameras, valid) if z_up else []
    by_name = {name: with_stands(prior, stands) for name, prior in by_name.items()}
    fused = fused_points(by_name, pictures, valid, budget)
    behind = None if shell is None else backdrop(shell, fused)
    if stands:
        yield Message("info", f"stands of {', '.join(sorted(stand.camera for stand in stands))} seen by other cameras")
        fused = join_points([fused, standing(stands, SPACING * scene_extent(frames.cameras))])
    metrics = {"points": float(len(fused)), "walls": 0.0 if room is None else float(len(room.walls()[0]))}
    yield StageFinished("points", time.monotonic() - started, metrics)
    return FirstPoints([by_name[name] for name in frames.names], fused, behind)


def _as_uint8(plates: list[Plate]) -> list[np.ndarray]:
    """The plates' pictures as uint8 [H, W, 3]."""
    return [(plate.picture * 255.0).round().astype(np.uint8) for plate in plates]


def _told(room: Room | None, table: Table | None) -> str:
    """One line for a person."""
    parts = ["no wall stands out"]
    if room is not None:
        walls = [f"{offset:.2f} along ({n[0]:+.2f}, {n[1]:+.2f})" for n, offset in zip(*room.walls(), strict=True)]
        floor = room.floor()
        parts = [f"walls at {', '.join(walls)}", "no floor found" if floor is None else f"floor at z = {floor:.2f}"]
    parts.append("no table found" if table is None else f"table at z = {table.height:.3f}")
    return "; ".join(parts)
