"""Which way x, y and z point in a file, named by three letters, and tables turned from one naming to another.

r, l  right, left      u, d  up, down      f, b  forward, back

rdf  x right, y down, z forward: cameras, COLMAP, and by habit PLY, .splat, .ksplat and SOG files
rub  x right, y up, z back: OpenGL, SPZ
luf  x left, y up, z forward: glTF
rfu  x right, y forward, z up: our scenes whose up axis is known
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from recon.core.errors import UsageError, did_you_mean
from recon.geometry.sh import sh_rotations, turn_sh
from recon.scene.gaussians import Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body

KNOWN = ("rdf", "rub", "rfu", "luf", "flu", "ruf")
UNSTATED = ""  # the file does not say
RIGHT_UP_BACK = {
    "r": (1, 0, 0), "l": (-1, 0, 0), "u": (0, 1, 0), "d": (0, -1, 0), "b": (0, 0, 1), "f": (0, 0, -1)
}  # fmt: skip
_WORDS = {"r": "right", "l": "left", "u": "up", "d": "down", "f": "forward", "b": "back"}
SNAP = 1e-6  # entries this close to a whole number are it: quarter turns are exact


def spelled(axes: str) -> str:
    """ "rdf" -> "rdf (x right, y down, z forward)". UsageError for a name that is not in KNOWN."""
    if axes not in KNOWN:
        raise UsageError(f"no axes are called {axes!r}", fix=did_you_mean(axes, KNOWN))
    return f"{axes} (x {_WORDS[axes[0]]}, y {_WORDS[axes[1]]}, z {_WORDS[axes[2]]})"


def rotation(to: str, source: str) -> np.ndarray:
    """R [3, 3] with x_to = R x_source, exact. UsageError for names that are not in KNOWN, or of other handedness."""
    words = [spelled(axes) for axes in (to, source)]
    frames = [np.array([RIGHT_UP_BACK[letter] for letter in axes], dtype=np.float64).T for axes in (to, source)]
    turn = frames[0].T @ frames[1]
    if np.linalg.det(turn) < 0:
        raise UsageError(f"{words[1]} cannot be turned to {words[0]}", why="one is the other's mirror image")
    return turn


def turned(g: Gaussians, turn: np.ndarray) -> Gaussians:
    """The table after x' = R x, R [3, 3] a rotation that permutes axes (quarter turns only).

    The Gaussians' own axes are turned along (R Q R^T, scales in their new order): every number keeps its bits but those
    of colour bands 2 and 3 under turns that mix them. The frames of bodies are turned likewise: `turned_bodies`.
    """
    if np.array_equal(turn, np.eye(3)):
        return g
    # x' = R x, R_g' = R R_g R^T: the quaternion's vector part turns like a vector; S' = R S R^T permutes the scales.
    like = g.means
    r = torch.as_tensor(turn, dtype=like.dtype, device=like.device)
    order = torch.as_tensor(np.abs(turn).argmax(1), device=like.device)
    sign = r.sum(1)
    matrices = []
    for matrix in sh_rotations(g.degree, torch.from_numpy(turn)):
        whole = torch.round(matrix)
        snapped = torch.where((matrix - whole).abs() < SNAP, whole, matrix)
        matrices.append(snapped.to(dtype=like.dtype, device=like.device))
    return replace(
        g,
        means=g.means[:, order] * sign,
        log_scales=g.log_scales[:, order],
        quats=torch.cat([g.quats[:, :1], g.quats[:, 1:][:, order] * sign], 1),
        sh=turn_sh(g.sh, matrices),
        velocities=g.velocities[:, order] * sign,
    )


def turned_bodies(bodies: Iterable[Body], turn: np.ndarray) -> tuple[Body, ...]:
    """The bodies of a table that `turned` turned: x' = R x in the world and in each body's own frame."""
    # R_b' = R R_b R^T, p_b' = R p_b
    order, sign = np.abs(turn).argmax(1), turn.sum(1)
    result = []
    for body in bodies:
        track = body.track
        if track is not None:
            signs = torch.as_tensor(sign, dtype=track.quats.dtype, device=track.quats.device)
            quats = torch.cat([track.quats[:, :1], track.quats[:, 1:][:, order] * signs], 1)
            track = Track(track.times, track.positions[:, order] * signs.to(track.positions.dtype), quats)
        result.append(replace(body, track=track))
    return tuple(result)
