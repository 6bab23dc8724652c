"""How well each camera of a solved rig is known, which is the weakest, and how many more views it needs.

Deviations come from the covariance of the adjustment, with the six motions of the whole rig projected out (no camera
holds the world): with G [6 C, 6] the change of all camera poses under a motion of the world, S' = P S P^T,
P = I - G (G^T W G)^-1 G^T W; W weighs rotations by the rig's radius. They shrink with the square root of the number
of views, so a camera with n views at r times what is wanted needs n (r^2 - 1) more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recon.calibrate.sightings import CAMERA, LENS, POSE, State, adjoint
from recon.calibrate.solve import Solved

FOCAL_PERCENT = 0.3  # wanted: the accuracy at which a build loses nothing
ROTATION_DEG = 0.15
CENTRE_SHARE = 2e-3  # of the distance to the board
FEW = 8  # views below which a camera is weak whatever its numbers say
GRID = 5  # cells per side of the picture for the coverage


@dataclass(frozen=True)
class Quality:
    """One camera. focal_percent, centre_mm, rotation_deg: one standard deviation. covered: share of its picture in
    which corners were seen. more: how many views it should have besides."""

    name: str
    model: str
    views: int
    corners: int
    outliers: int
    reprojection_px: float  # median over its corners
    lag_s: float  # how much later it looks than the cameras do on average, 0 where all look together
    noise_px: float  # per coordinate
    covered: float
    focal_percent: float
    centre_mm: float
    rotation_deg: float
    strain: float  # largest deviation as a multiple of what is wanted
    more: int

    def data(self) -> dict[str, Any]:
        """Plain values for report.json."""
        return {key: value for key, value in vars(self).items() if key != "name"}


def judge_cameras(solved: Solved) -> list[Quality]:
    """One verdict per camera, in their order."""
    s, trust, state = solved.sightings, solved.solution.trust, solved.solution.state
    spread = _free_of_motion(state, solved.solution.covariance)
    off = np.linalg.norm(trust.off, axis=1)
    found = []
    for k, camera in enumerate(solved.cameras):
        own = s.camera == k
        used = own & solved.solution.used
        at = CAMERA * k
        focal = 100 * float(np.sqrt(np.diag(solved.solution.covariance)[at : at + 2] / state.lens[k, :2] ** 2).max())
        pose = spread[POSE * k : POSE * (k + 1), POSE * k : POSE * (k + 1)]
        # c = -R^T t, T <- exp(rho, phi) T: dc = -R^T rho, so centres vary as rho does
        centre, turn = float(np.sqrt(np.trace(pose[:3, :3]))), float(np.sqrt(np.trace(pose[3:, 3:])))
        world = np.einsum("nij,nj->ni", state.world_from_board[s.instant[own], :3, :3], s.point[own])
        world += state.world_from_board[s.instant[own], :3, 3]
        distance = float(np.median(np.linalg.norm(world - camera.center, axis=1)))
        strain = max(focal / FOCAL_PERCENT, np.degrees(turn) / ROTATION_DEG, centre / (CENTRE_SHARE * distance))
        views = len(np.unique(s.instant[own]))
        more = max(int(np.ceil(views * (strain**2 - 1))), FEW - views, 0)
        cells = np.floor(GRID * s.uv[used] / [camera.width, camera.height]).astype(int)
        found.append(
            Quality(
                name=camera.name, model=solved.models[k], views=views, corners=int(own.sum()),
                outliers=int((own & ~solved.solution.used).sum()), reprojection_px=float(np.median(off[own])),
                lag_s=float(state.lag[k] - state.lag.mean()),
                noise_px=float(trust.noise[k]), covered=len(np.unique(cells, axis=0)) / GRID**2, focal_percent=focal,
                centre_mm=1000 * centre, rotation_deg=float(np.degrees(turn)), strain=float(strain), more=more,
            )
        )  # fmt: skip
    return found


def weakest(qualities: Sequence[Quality]) -> Quality:
    """The camera that limits the rig."""
    return max(qualities, key=lambda quality: (quality.more, quality.strain))


def told(qualities: Sequence[Quality]) -> str:
    """One sentence: the weak camera and what it needs."""
    weak = weakest(qualities)
    known = f"its focal length is known to {weak.focal_percent:.2f} %, its place to {weak.centre_mm:.1f} mm"
    if weak.more == 0:
        return f"no camera needs more views; the weakest is {weak.name} ({known})"
    return (
        f"camera {weak.name} is weak: {weak.views} views, {known}; give it about {weak.more} more views, with the "
        "board near, tilted in several ways, and where its picture has shown none yet"
    )


def table(qualities: Sequence[Quality]) -> list[str]:
    """Lines for the console."""
    wide = max(len("camera"), *(len(q.name) for q in qualities))
    head = f"{'camera':{wide}}  views  corners  reprojection  focal +-  place +-  turn +-   more views  lens"
    return [head] + [
        f"{q.name:{wide}}  {q.views:5d}  {q.corners:7d}  {q.reprojection_px:9.2f} px  {q.focal_percent:6.2f} %  "
        f"{q.centre_mm:5.1f} mm  {q.rotation_deg:5.2f} deg  {q.more or '-':>9}  {q.model}"
        for q in qualities
    ]


def _free_of_motion(state: State, covariance: np.ndarray) -> np.ndarray:
    """Covariance [6 C, 6 C] of the camera poses (translation and rotation parts of their twists)."""
    count = len(state.lens)
    poses = (CAMERA * np.arange(count)[:, None] + LENS + np.arange(POSE)).ravel()
    spread = covariance[np.ix_(poses, poses)]
    rotation, shift = state.cam_from_world[:, :3, :3], state.cam_from_world[:, :3, 3]
    g = adjoint(state.cam_from_world).reshape(-1, POSE)
    centres = -np.einsum("nji,nj->ni", rotation, shift)
    radius = max(float(np.linalg.norm(centres - centres.mean(0), axis=1).mean()), 1e-3)
    weight = np.tile(np.r_[np.ones(3), np.full(3, radius**2)], count)
    keep = np.eye(len(g)) - g @ np.linalg.solve(g.T @ (weight[:, None] * g), g.T * weight)
    return np.asarray(keep @ spread @ keep.T)
