"""Robots: description files, joint logs, forward kinematics, silhouettes, surfaces.

model = load_robot(path)                      # MJCF or URDF
log = read_joint_log(csv)
poses = model.link_poses(log.at(t), world_from_base)
picture = draw_robot(model, log.at(t), camera, world_from_base=world_from_base)
"""

from __future__ import annotations

from recon.robot.description import Joint, Link, RobotModel, Site, load_robot
from recon.robot.kinematics import JointLog, forward_kinematics, read_joint_log
from recon.robot.silhouettes import DepthPicture, draw_robot, link_ids, rasterize_triangles, silhouette
from recon.robot.source import load_spec
from recon.robot.surface import SurfaceGaussians, SurfaceSamples, sample_surface, surface_gaussians

__all__ = [
    "DepthPicture",
    "Joint",
    "JointLog",
    "Link",
    "RobotModel",
    "Site",
    "SurfaceGaussians",
    "SurfaceSamples",
    "draw_robot",
    "forward_kinematics",
    "link_ids",
    "load_robot",
    "load_spec",
    "rasterize_triangles",
    "read_joint_log",
    "sample_surface",
    "silhouette",
    "surface_gaussians",
]
