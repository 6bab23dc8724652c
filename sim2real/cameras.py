"""Which cameras there are: those of the rig, and those that a task puts up or lets a body carry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError, UsageError, did_you_mean
from recon.geometry.camera import Camera, project
from recon.geometry.pose import invert_pose, look_at
from recon.geometry.quaternion import quat_to_matrix
from sim2real.tasks.mounts import TOOL, Mount

if TYPE_CHECKING:
    from recon.geometry.rig import Rig
    from sim2real.physics import World

Array = NDArray[np.float64]


def square_camera(camera: Camera, points: Array, size: int, margin: float = 0.08) -> Camera:
    """A size x size pinhole camera that looks through the square window of `camera` around the projected points [N, 3].

    The window is grown by `margin` of its side, keeps square pixels and stays inside the picture where it fits.
    """
    ideal = camera.pinhole()
    uv, z = project(ideal, np.asarray(points, float))
    uv = uv[z > 0.05]
    if len(uv) == 0:
        raise UsageError(f"camera {camera.name!r} does not see the workspace", fix="Choose another with --cameras.")
    low, high = uv.min(axis=0), uv.max(axis=0)
    side = min(float((high - low).max()) * (1 + 2 * margin), float(min(ideal.width, ideal.height)))
    middle = np.clip((low + high) / 2, side / 2, np.array([ideal.width, ideal.height]) - side / 2)
    left, top = middle - side / 2
    scale = size / side
    return replace(
        ideal,
        width=size,
        height=size,
        fx=ideal.fx * scale,
        fy=ideal.fy * scale,
        cx=(ideal.cx - left) * scale,
        cy=(ideal.cy - top) * scale,
    )


def best_camera(rig: Rig, points: Array) -> str:
    """The camera that resolves the points [N, 3] best: pixels per metre in the worst direction of the table plane."""
    scores = {}
    for name, camera in rig.cameras.items():
        ideal = camera.pinhole()
        uv, z = project(ideal, points)
        inside = (z > 0.05) & (uv >= 0).all(axis=1) & (uv[:, 0] < ideal.width) & (uv[:, 1] < ideal.height)
        if not inside.any():
            continue
        du, dv = (project(ideal, points + step)[0] - uv for step in (np.array([0.01, 0, 0]), np.array([0, 0.01, 0])))
        worst = np.linalg.svd(np.stack([du, dv], axis=-1)[inside], compute_uv=False)[:, -1] / 0.01
        scores[name] = (float(inside.mean()) ** 2) * float(np.median(worst)) / max(ideal.width, ideal.height)
    if not scores:
        raise UsageError("no camera of the rig sees the task's region", fix="Check the robot's base pose in the rig.")
    trained = [name for name in scores if rig.roles[name] == "train"] or list(scores)
    return max(trained, key=lambda name: scores[name])


def camera_named(rig: Rig, name: str, others: Iterable[str] = ()) -> Camera:
    """The rig's camera of that name; UsageError with the nearest one, or one of the `others`, otherwise."""
    if name not in rig.cameras:
        raise UsageError(f"the scene has no camera {name!r}", fix=did_you_mean(name, [*rig.cameras, *others]))
    return rig.cameras[name]


def mounted_camera(name: str, mount: Mount, width: int, height: int) -> Camera:
    """A pinhole camera whose cam_from_world is cam_from_frame: of the scene, or of the body that carries it."""
    # f = (height / 2) / tan(fov / 2)
    focal = height / 2 / np.tan(np.radians(mount.fov_deg) / 2)
    try:
        pose = look_at(np.array(mount.position), np.array(mount.look_at), np.array(mount.up))
    except InputError as error:
        raise UsageError(f"camera {name!r} of the task cannot be aimed", why=error.why) from error
    return Camera(name, width, height, focal, focal, width / 2, height / 2, cam_from_world=pose)


def carrier(name: str, mount: Mount, world: World) -> tuple[int, Array]:
    """The body that carries a camera, as a row of MuJoCo's tables, and frame_from_body [4, 4] of what it is given in.

    `tool` is the frame of the tool centre point. Raises UsageError for a body that is not there.
    """
    model, body = world.model, mount.body
    pose = np.eye(4)
    if body == TOOL:
        site = world.arm.tcp
        pose[:3, :3], pose[:3, 3] = quat_to_matrix(model.site_quat[site]), model.site_pos[site]
        return int(model.site_bodyid[site]), invert_pose(pose)
    things = {thing.name: thing.node for thing in world.things}
    names = {model.body(i).name: i for i in range(1, model.nbody)}
    wanted = things.get(body or "", body or "")
    if wanted not in names:
        fix = did_you_mean(wanted, [TOOL, *things, *names])
        raise UsageError(f"camera {name!r} of the task rides on {body!r}", why="there is no such body", fix=fix)
    return names[wanted], pose
