"""The first 3D points of the still scene, from its plates and calibrated cameras.

Three sources, from the surest to the least: feature matches along epipolar lines, a plane sweep over everything
textured, and a fill of plain areas, whose depth is interpolated from the points round them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recon.calibrate.cloud import join_points, thin
from recon.calibrate.fill import fill_points
from recon.calibrate.sweep import sweep_points
from recon.calibrate.tracks import match_points
from recon.core.errors import InputError
from recon.core.seeding import numpy_generator
from recon.geometry.camera import Camera

MAX_POINTS = 100_000
MAX_FILL = 20_000


def initial_points(
    plates: Sequence[np.ndarray],
    cameras: Sequence[Camera],
    valid: Sequence[np.ndarray] | None = None,
    *,
    seed: int = 0,
    max_points: int = MAX_POINTS,
    max_fill: int = MAX_FILL,
) -> tuple[np.ndarray, np.ndarray]:
    """(positions float64 [M, 3] world, colours uint8 [M, 3]) on the surfaces of the still scene.

    plates: uint8 [H, W, 3] per camera, free of moving things. cameras: the ideal pinhole camera of each plate.
    valid: bool [H, W] per plate, where it shows something. seed: of the choice among fill points.
    At most `max_points` from matches and sweep and `max_fill` in plain areas, so that no visible area is left empty.
    Raises InputError when there are fewer than two cameras.
    """
    if len(cameras) < 2:
        raise InputError(f"{len(cameras)} camera gives no depth", fix="At least three cameras are needed.")
    names = [camera.name for camera in cameras]
    pictures = dict(zip(names, plates, strict=True))
    rig = dict(zip(names, cameras, strict=True))
    seen = None if valid is None else dict(zip(names, valid, strict=True))
    matched = match_points(pictures, rig, seen)
    swept = sweep_points(pictures, rig, seen, seeds=matched)
    surface = thin(join_points([matched, swept]), max_points)
    filled = fill_points(pictures, rig, seen, surface, max_fill, numpy_generator(seed, 0, "fill points"))
    points = join_points([surface, filled])
    return points.xyz, points.rgb
