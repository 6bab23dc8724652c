"""The views a body's surface is made of: what the training cameras saw of it over its track, in its own frame."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.geometry.camera import Camera, pixel_cells
from recon.geometry.pose import invert_pose, look_at
from recon.geometry.quaternion import matrix_to_quat, quat_multiply, quat_to_matrix
from recon.mesh.depth import Array, View, look
from recon.render.types import RasterConfig
from recon.scene.motion import Posed
from recon.scene.scene import Body, Scene

INSTANTS = 8  # moments of the track that are looked at
SIDE = 256  # px of the square pictures
FILL = 0.9  # of a picture that the body's sphere fills
SOLID = 0.5  # least opacity of Gaussians that bound a body
GRAZING = 0.1  # cosine: a surface turned further away is not counted as seen


@dataclass(frozen=True, eq=False)
class Sighting:
    """A body as one camera saw it at one moment. real: the camera; view: its aimed picture of the whole scene (the
    body may be hidden there); both in the body's frame."""

    real: Camera
    view: View


def training_cameras(scene: Scene) -> list[Camera]:
    """The cameras whose pictures the scene was made from (all, when none is called so), in the scene's world."""
    rig = scene.rig.transformed(scene.scene_from_rig)
    return [rig.cameras[name] for name in rig.named("train") or list(rig.cameras)]


def body_sphere(scene: Scene, body: Body) -> tuple[Array, float]:
    """(centre [3], radius) in metres, body frame, of the body's opaque Gaussians; InputError when it has too few."""
    g = scene.gaussians.of_body(body.id)
    means = g.means[torch.sigmoid(g.logit_opacities) >= SOLID].cpu().numpy().astype(np.float64)
    if len(means) < 4:
        raise InputError(f"body '{body.name}' has no surface", why=f"{len(means)} of its {len(g)} Gaussians are opaque")
    low, high = np.percentile(means, [0.5, 99.5], axis=0)
    return (low + high) / 2, float(np.linalg.norm(high - low)) / 2 * 1.1


def instants(scene: Scene, body: Body) -> Array:
    """[T] s: evenly spaced moments of the body's track; one when it stands still."""
    start, end = scene.time_range
    if body.track is None or len(body.track.times) < 2:
        return np.array([(start + end) / 2])
    start, end = max(start, float(body.track.times[0])), min(end, float(body.track.times[-1]))
    return np.linspace(start, end, INSTANTS if end > start else 1)


def world_from_body(body: Body, t: float) -> Array:
    """[4, 4] pose of the body at `t` seconds."""
    quat, position = body.pose_at(t)
    pose = np.eye(4)
    pose[:3, :3] = quat_to_matrix(quat).numpy()
    pose[:3, 3] = position.numpy()
    return pose


def aimed(camera: Camera, centre: Array, radius: float) -> Camera | None:
    """A square pinhole at the camera's place, filled by a sphere (m); None from inside or close to it."""
    away = centre - camera.center
    distance = float(np.linalg.norm(away))
    if distance < 1.2 * radius:
        return None
    # the sphere's outline is the cone sin a = r / d
    focal = FILL * SIDE / 2 / np.tan(np.arcsin(radius / distance))
    up = (0.0, 0.0, 1.0) if abs(away[2]) < 0.95 * distance else (0.0, 1.0, 0.0)
    pose = look_at(camera.center, centre, up)
    return Camera(camera.name, SIDE, SIDE, focal, focal, SIDE / 2, SIDE / 2, cam_from_world=pose)


def body_views(scene: Scene, body: Body, backend: str = "auto") -> tuple[list[View], list[Sighting]]:
    """(pictures of the body alone, the same pictures of the whole scene), both in the body's frame.

    The first tell its shape, the second what of it was really seen. Raises InputError when no camera sees the body.
    """
    near = float(scene.provenance.get("near", RasterConfig().near))
    centre, radius = body_sphere(scene, body)
    alone = Scene.at(replace(scene, gaussians=scene.gaussians.of_body(body.id), bodies=[still(body)]), 0.0)
    views, sightings = [], []
    for t in instants(scene, body):
        pose = world_from_body(body, t)
        posed = _moved(scene.at(t, drop_faded=True), invert_pose(pose))
        for camera in training_cameras(scene):
            real = camera.with_pose(camera.cam_from_world @ pose)
            window = aimed(real, centre, radius)
            if window is None or not pixel_cells(real, centre[None])[0].all():
                continue
            views.append(look(alone, window, near=near, backend=backend))
            sightings.append(Sighting(real, look(posed, window, near=near, backend=backend, colour=False)))
    if not views:
        raise InputError(f"body '{body.name}' has no surface", why="no training camera looks at it")
    return views, sightings


def still(body: Body) -> Body:
    """The body at the origin of its own frame."""
    return replace(body, track=None, parent=None)


def _moved(posed: Posed, a_from_world: Array) -> Posed:
    """Gaussians in another frame. Their colours stay: nothing here looks at them."""
    like = posed.means
    rotation = torch.as_tensor(a_from_world[:3, :3], dtype=like.dtype, device=like.device)
    shift = torch.as_tensor(a_from_world[:3, 3], dtype=like.dtype, device=like.device)
    quat = matrix_to_quat(rotation)
    return replace(
        posed, means=like @ rotation.T + shift, quats=quat_multiply(quat.expand_as(posed.quats), posed.quats)
    )


def seen(points: Array, normals: Array, sighting: Sighting, tolerance: float) -> NDArray[np.bool_]:
    """[N] bool: surface points [N, 3] with outward normals that the camera sees: facing it, in its picture, and within
    `tolerance` metres of the depth there."""
    away = sighting.real.center - points
    facing = (away * normals).sum(1) > GRAZING * np.linalg.norm(away, axis=1)
    inside, column, row, z = pixel_cells(sighting.view.camera, points)
    depth = sighting.view.depth[row, column]
    with np.errstate(invalid="ignore"):
        near = np.abs(depth - z) < tolerance
    return facing & inside & near & pixel_cells(sighting.real, points)[0]
