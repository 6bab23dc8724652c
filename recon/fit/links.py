"""A known robot's links as bodies: flat Gaussians on their surfaces, which follow forward kinematics."""

from __future__ import annotations

from dataclasses import replace

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
    near = times[(times >= start - MARGIN_S) & (times <= end + MARGIN_S)]
    knots = np.unique(np.concatenate([[start], near, [end]]))
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
        means, log_scales, quats, logits = map(torch.from_numpy, (g.means, g.log_scales, g.quats, g.logit_opacities))
        table = Gaussians.static(means, log_scales, quats, logits, sh)
        object_id, kind = torch.full_like(table.object_id, body.id), torch.full_like(table.kind, RIGID)
        tables.append(replace(table, object_id=object_id, kind=kind))
    return Gaussians.concat(tables)
