"""A known robot's links as bodies: flat Gaussians on their surfaces, which follow forward kinematics."""

from __future__ import annotations

import numpy as np
import torch

from recon.fit.robot import KnownRobot
from recon.geometry.quaternion import matrix_to_quat
from recon.geometry.sh import rgb_to_sh0
from recon.robot.surface import surface_gaussians
from recon.scene.gaussians import RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body

MARGIN_S = 0.5  # of a track, before the first frame and after the last


def link_bodies(robot: KnownRobot, start: float, end: float) -> list[Body]:
    """The links that can be seen, with their world poses at the samples of the joint log from `start` to `end` [s]."""
    names = [name for name, link in robot.model.links.items() if len(link.triangles)]
    times = robot.joints.times
    inside = (times >= start - MARGIN_S) & (times <= end + MARGIN_S)
    if inside.sum() < 2:
        times, inside = np.array([start, max(end, start + 1e-3)]), np.ones(2, dtype=bool)
    knots = times[inside]
    poses = [robot.model.link_poses(robot.joints.at(float(t)), robot.world_from_base) for t in knots]
    bodies: list[Body] = []
    for name in names:
        matrices = torch.from_numpy(np.stack([pose[name] for pose in poses]))
        quats = matrix_to_quat(matrices[:, :3, :3]).float()
        track = Track(knots, matrices[:, :3, 3].float().contiguous(), quats)
        bodies.append(Body(name, len(bodies) + 1, "link", None, track))
    return bodies


def link_gaussians(robot: KnownRobot, bodies: list[Body], count: int, sh_degree: int, seed: int) -> Gaussians:
    """`count` Gaussians of the links of `bodies`, each in its link's frame, coloured as the description says."""
    tables = []
    made = surface_gaussians(robot.model, count, seed)
    for body in bodies:
        g = made[body.name]
        rows = len(g.means)
        sh = torch.zeros(rows, (sh_degree + 1) ** 2, 3, device="cpu")
        sh[:, 0] = rgb_to_sh0(torch.from_numpy(g.colours))
        tables.append(
            Gaussians(
                means=torch.from_numpy(g.means),
                log_scales=torch.from_numpy(g.log_scales),
                quats=torch.from_numpy(g.quats),
                logit_opacities=torch.from_numpy(g.logit_opacities),
                sh=sh,
                object_id=torch.full((rows,), body.id, dtype=torch.int32, device="cpu"),
                kind=torch.full((rows,), RIGID, dtype=torch.uint8, device="cpu"),
                time_centers=torch.zeros(rows, device="cpu"),
                log_durations=torch.zeros(rows, device="cpu"),
                velocities=torch.zeros(rows, 3, device="cpu"),
            )
        )
    return Gaussians.concat(tables)
