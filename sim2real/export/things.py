"""Bodies of the scene that move freely: those of `bodies.py` that `recon mesh` made, where the recording starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import trimesh
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.geometry.quaternion import matrix_to_quat
from sim2real import bodies, physics
from sim2real.bench import Bench
from sim2real.bodies import captured
from sim2real.export.parts import Mesh, convex
from sim2real.tasks.items import Init, Item

if TYPE_CHECKING:
    import mujoco

    from recon.mesh.folder import Published
    from recon.scene.scene import Scene

Array = NDArray[np.float64]

REST_GAP = 1e-4  # m, between the lowest point of a body and the table it starts on


@dataclass(frozen=True, eq=False)
class Thing:
    """A body that moves freely.

    body: as the environment has it. world_from_thing: [4, 4], where it is at the scene's first instant, lifted out of
    the table by `lift` m. surface: vertex colours, in its frame.
    """

    body: bodies.Thing
    world_from_thing: Array
    surface: trimesh.Trimesh
    lift: float = 0.0

    @property
    def name(self) -> str:
        """As in the scene."""
        return self.body.name

    @property
    def mass(self) -> float:
        """kg."""
        return self.body.mass

    @property
    def center(self) -> Array:
        """[3] m, of mass."""
        return self.body.center

    @property
    def inertia(self) -> Array:
        """[3, 3] kg m^2 about the centre of mass."""
        return self.body.inertia

    @property
    def source(self) -> str:
        """How its density is known."""
        return self.body.sources["mass"]

    @property
    def friction(self) -> float:
        """Sliding, of a body nobody measured."""
        return self.body.friction

    @cached_property
    def pieces(self) -> tuple[Mesh, ...]:
        """Convex, with faces."""
        return tuple(convex(piece.corners()) for piece in self.body.pieces)

    @property
    def principal(self) -> tuple[Array, Array]:
        """(axes [3, 3], right-handed, moments [3]) of the inertia."""
        moments, axes = np.linalg.eigh(self.inertia)
        if np.linalg.det(axes) < 0:
            axes[:, 2] *= -1
        return axes, moments

    @property
    def colour(self) -> tuple[float, float, float]:
        """Mean sRGB colour of the surface, 0 to 1."""
        red, green, blue = np.round(vertex_colours(self.surface).mean(axis=0), 4).tolist()
        return red, green, blue

    def free_qpos(self) -> list[float]:
        """x y z, w x y z: MuJoCo's position of a free joint."""
        pose = self.world_from_thing
        return [*pose[:3, 3].tolist(), *matrix_to_quat(pose[:3, :3]).tolist()]

    def lifted(self, bench: Bench) -> Thing:
        """The same, moved up where its recorded pose sinks into the table: no simulator starts well that way."""
        world = self.body.corners @ self.world_from_thing[:3, :3].T + self.world_from_thing[:3, 3]
        low = world[:, 2].min()
        over = bench.table.contains(np.column_stack([world[:, :2], np.full(len(world), bench.table.center[2])]))
        rise = bench.top + REST_GAP - low
        if not over.any() or rise <= 0 or low < bench.table.center[2] - bench.table.half[2]:
            return self
        pose = self.world_from_thing.copy()
        pose[2, 3] += rise
        return replace(self, world_from_thing=pose, lift=float(rise))


def read_things(scene: Scene, meshed: Mapping[str, Published]) -> list[Thing]:
    """The objects of a scene that have meshes. Raises InputError when there are meshes of one that it does not have."""
    known = {body.name for body in scene.bodies}
    things = []
    for name, made in meshed.items():
        if made.kind != "object":
            continue
        if name not in known:
            raise InputError(
                f"{made.folder.parent} knows a body {name!r} that the scene does not have",
                fix="Run `recon mesh` again.",
            )
        body = captured(name, Item(Init(pose="scene"), scene=name), scene, meshed)
        assert body.start is not None
        things.append(Thing(body, body.start, made.surface()))
    return things


def bench_surface(meshed: Mapping[str, Published]) -> trimesh.Trimesh | None:
    """The bench as `recon mesh` made it, in the scene's world; None where it did not."""
    made = next((entry for entry in meshed.values() if entry.kind == "bench"), None)
    return None if made is None else made.surface()


def vertex_colours(surface: trimesh.Trimesh) -> Array:
    """[V, 3] sRGB, 0 to 1."""
    visual: Any = surface.visual
    return np.asarray(visual.vertex_colors, float)[:, :3] / 255


def add_things(spec: mujoco.MjSpec, things: list[Thing]) -> None:
    """Free bodies as the environment has them, under the names of the scene and in their own colours."""
    physics.add_things(spec, {t.name: replace(t.body, start=t.world_from_thing) for t in things})
    for thing in things:
        for geom in spec.body(thing.name).geoms:
            geom.rgba = [*thing.colour, 1.0]
