"""A reconstructed scene: Gaussians, bodies with tracks, the cameras it was made from, and its world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from recon.core.errors import InputError, did_you_mean
from recon.geometry.pose import split_similarity
from recon.geometry.quaternion import matrix_to_quat
from recon.geometry.rig import Rig
from recon.scene.gaussians import WORLD, Gaussians
from recon.scene.motion import Posed, Track, freeze, pose_gaussians

BODY_KINDS = ("link", "object")
UPS = ("z", "unknown")

Affine = tuple[np.ndarray, np.ndarray]  # (M [3, 3], b [3]): what the camera shows = M colour + b


@dataclass(frozen=True, eq=False)
class Body:
    """Something that moves as one: a robot link or an object. `parent` is another body's name (None: the world)."""

    name: str
    id: int  # the object_id of its Gaussians, from 1
    kind: str  # 'link' or 'object'
    parent: str | None = None
    track: Track | None = None  # world from body over time; None: it stands at the world's origin

    def pose_at(self, t: float, device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
        """(wxyz [4], position [3]) of the body at `t` seconds."""
        if self.track is None:
            identity = torch.tensor([1.0, 0.0, 0.0, 0.0], device=device)
            return identity, torch.zeros(3, device=device)
        _, position, quat = self.track.at(t)
        return quat, position


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything a scene folder holds; seconds are those of the capture's common clock."""

    gaussians: Gaussians
    rig: Rig  # in its own world; rig.transformed(scene_from_rig) is in the scene's
    time_range: tuple[float, float]
    bodies: list[Body] = field(default_factory=list)
    scene_from_rig: np.ndarray = field(default_factory=lambda: np.eye(4))  # [4, 4] similarity
    up: str = "unknown"  # 'z': +z up, table top at z = 0
    metric: bool = False  # whether its unit is the metre
    colour: dict[str, Affine] = field(default_factory=dict)  # by camera; cameras not named: identity
    vignetting: dict[str, float] = field(default_factory=dict)  # v of `colour` cameras: times 1 - v r^2; not named: 0
    provenance: dict[str, Any] = field(default_factory=dict)  # JSON values
    frame_times: dict[str, list[float]] = field(default_factory=dict)  # by camera, seconds

    def at(self, t: float, *, drop_faded: bool = False) -> Posed:
        """The scene at `t` seconds, bodies on their tracks."""
        poses = {body.id: body.pose_at(t, self.gaussians.device) for body in self.bodies}
        return pose_gaussians(self.gaussians, poses, t, drop_faded=drop_faded)

    def posed(
        self, body_poses: Mapping[str, np.ndarray | torch.Tensor], t: float | None = None, *, drop_faded: bool = False
    ) -> Posed:
        """The scene with bodies where a simulator has them: name -> world_from_body [4, 4].

        Bodies not named stay where their track has them at `t` (at the start when None). Without a time, what lives in
        time only (hands, shadows) is left out. Raises InputError for names the scene does not have.
        """
        known = {body.name: body for body in self.bodies}
        for name in body_poses:
            if name not in known:
                raise InputError(f"the scene has no body '{name}'", fix=did_you_mean(name, known))
        start = self.time_range[0] if t is None else t
        poses = {b.id: b.pose_at(start, self.gaussians.device) for b in self.bodies if b.name not in body_poses}
        if body_poses:
            like = self.gaussians.means
            poses_given = [torch.as_tensor(p, dtype=like.dtype, device=like.device) for p in body_poses.values()]
            matrices = torch.stack(poses_given)
            quats = matrix_to_quat(matrices[:, :3, :3])
            poses |= {known[name].id: (quats[i], matrices[i, :3, 3]) for i, name in enumerate(body_poses)}
        return pose_gaussians(self.gaussians, poses, t, drop_faded=drop_faded)

    def frozen(self, t: float) -> Gaussians:
        """The scene at `t` as static Gaussians, for file formats that know no motion."""
        poses = {body.id: body.pose_at(t, self.gaussians.device) for body in self.bodies}
        return freeze(self.gaussians, poses, t)

    def to(self, device: torch.device | str) -> Scene:
        """The same scene with its Gaussians on another device (tracks stay; they are small)."""
        return replace(self, gaussians=self.gaussians.to(device))

    def scaled(self, metres: float) -> Scene:
        """The same scene in metres, when its unit is `metres` long. Raises InputError for a factor that is none."""
        if not (np.isfinite(metres) and metres > 0):
            raise InputError(f"a scale of {metres}", why="a positive number of metres is needed")
        g = self.gaussians
        table = replace(
            g, means=g.means * metres, log_scales=g.log_scales + float(np.log(metres)), velocities=g.velocities * metres
        )
        bodies = [
            b if b.track is None else replace(b, track=replace(b.track, positions=b.track.positions * metres))
            for b in self.bodies
        ]
        world = np.diag([metres, metres, metres, 1.0]) @ self.scene_from_rig
        return replace(self, gaussians=table, bodies=bodies, scene_from_rig=world, metric=True)

    def validate(self) -> Scene:
        """Itself, after checking the table and every reference between its parts; InputError otherwise."""
        self.gaussians.validate("scene: gaussians")
        _validate_bodies(self.bodies)
        ids = {body.id for body in self.bodies}
        stray = sorted(set(torch.unique(self.gaussians.object_id).tolist()) - ids - {WORLD})
        if stray:
            raise InputError(f"scene: Gaussians belong to body {stray[0]}", why=f"the bodies are {sorted(ids)}")
        start, end = self.time_range
        if not (np.isfinite([start, end]).all() and start <= end):
            raise InputError(f"scene: the time range is {start} to {end}")
        split_similarity(self.scene_from_rig)
        if self.up not in UPS:
            raise InputError(f"scene: up is {self.up!r}", why=f"accepted are {', '.join(UPS)}")
        for name, (matrix, offset) in self.colour.items():
            if np.shape(matrix) != (3, 3) or np.shape(offset) != (3,):
                raise InputError(f"scene: the colour of camera '{name}'", why="it needs M [3, 3] and b [3]")
            if not (np.isfinite(matrix).all() and np.isfinite(offset).all()):
                raise InputError(f"scene: the colour of camera '{name}' is not finite")
        for name, falloff in self.vignetting.items():
            if name not in self.colour or not np.isfinite(falloff):
                raise InputError(f"scene: the vignetting of camera '{name}' is {falloff}")
        for name, times in self.frame_times.items():
            if not np.isfinite(np.asarray(times, dtype=np.float64)).all() or (np.diff(times) < 0).any():
                raise InputError(f"scene: the frame times of camera '{name}'", why="they must be finite and in order")
        return self


def _validate_bodies(bodies: list[Body]) -> None:
    names: dict[str, Body] = {}
    ids: set[int] = set()
    for body in bodies:
        if not 0 < len(body.name) <= 200 or not body.name.isprintable():
            raise InputError(
                f"scene: the body name {body.name[:40]!r}", why="1 to 200 printable characters are accepted"
            )
        if body.name in names or body.id in ids:
            raise InputError(
                f"scene: body '{body.name}' (id {body.id}) is listed twice", why="names and ids are unique"
            )
        if not 0 < body.id < 2**31:
            raise InputError(f"scene: body '{body.name}' has the id {body.id}", why="ids start at 1; 0 is the world")
        if body.kind not in BODY_KINDS:
            raise InputError(f"scene: body '{body.name}' is a {body.kind!r}", why=f"known are {', '.join(BODY_KINDS)}")
        names[body.name] = body
        ids.add(body.id)
    for body in bodies:
        seen, parent = {body.name}, body.parent
        while parent is not None:
            if parent not in names:
                raise InputError(f"scene: body '{body.name}' hangs on '{parent}'", why="there is no such body")
            if parent in seen:
                raise InputError(f"scene: body '{body.name}' hangs on itself")
            seen.add(parent)
            parent = names[parent].parent
