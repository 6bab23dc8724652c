"""Bodies of the scene that move freely: surface, pieces and mass from `bodies/meshes.json`, pose from the track."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import trimesh
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.core.files import read_json
from recon.geometry.quaternion import matrix_to_quat, quat_normalize
from sim2real.bench import Bench
from sim2real.export.parts import Mesh, convex, pose_of

if TYPE_CHECKING:
    import mujoco

    from recon.scene.scene import Scene

Array = NDArray[np.float64]

MESHES = "bodies"  # in a scene's folder
FRICTION = 0.8  # sliding, of a body nobody measured: as the bench's
REST_GAP = 1e-4  # m, between the lowest point of a body and the table it starts on


@dataclass(frozen=True, eq=False)
class Thing:
    """A body that moves freely.

    world_from_thing: [4, 4], where it is at the scene's first instant, lifted out of the table by `lift` m. surface:
    vertex colours, in its frame. pieces: convex. mass kg, center [3] m, inertia [3, 3] kg m^2 about the centre. source:
    how its density is known.
    """

    name: str
    world_from_thing: Array
    surface: trimesh.Trimesh
    pieces: tuple[Mesh, ...]
    mass: float
    center: Array
    inertia: Array
    source: str
    friction: float = FRICTION
    lift: float = 0.0

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
        points = np.concatenate([vertices for vertices, _ in self.pieces])
        world = points @ self.world_from_thing[:3, :3].T + self.world_from_thing[:3, 3]
        low = world[:, 2].min()
        over = bench.table.contains(np.column_stack([world[:, :2], np.full(len(world), bench.table.center[2])]))
        rise = bench.top + REST_GAP - low
        if not over.any() or rise <= 0 or low < bench.table.center[2] - bench.table.half[2]:
            return self
        pose = self.world_from_thing.copy()
        pose[2, 3] += rise
        return replace(self, world_from_thing=pose, lift=float(rise))


def _entries(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The entries of that kind in the scene's meshes.json; none where there is no such file."""
    from recon.mesh.folder import read_meshes

    if not (folder / MESHES / "meshes.json").is_file():
        return []
    return [entry for entry in read_meshes(folder / MESHES) if entry["kind"] == kind]


def read_bench_surface(folder: Path) -> trimesh.Trimesh | None:
    """The bench as `recon mesh` made it, in the scene's world; None where it did not."""
    entries = _entries(folder, "bench")
    return _surface(folder / MESHES / entries[0]["folder"] / "visual.glb") if entries else None


def read_things(folder: Path, scene: Scene) -> list[Thing]:
    """The objects of a scene folder that have meshes.

    Raises:
        InputError: meshes.json names a body the scene does not have. CorruptError: a file changed.
    """
    bodies = {body.name: body for body in scene.bodies}
    things = []
    for entry in _entries(folder, "object"):
        if entry["name"] not in bodies:
            raise InputError(
                f"{folder / MESHES} knows a body {entry['name']!r} that the scene does not have",
                fix="Run `recon mesh` again.",
            )
        quat, position = bodies[entry["name"]].pose_at(scene.time_range[0])
        pose = pose_of(position.numpy().astype(float), quat_normalize(quat.numpy().astype(float)))
        things.append(_thing(folder / MESHES / entry["folder"], entry["name"], pose))
    return things


def _thing(folder: Path, name: str, pose: Array) -> Thing:
    mass = read_json(folder / "inertia.json")
    files = sorted((folder / "collision").glob("*.obj"))
    if not isinstance(mass, dict) or not files:
        raise InputError(f"{folder} lacks collision pieces or a mass", fix="Run `recon mesh` again.")
    pieces = []
    for file in files:
        piece = cast(trimesh.Trimesh, trimesh.load(file, force="mesh", process=False))
        pieces.append(convex(np.asarray(piece.vertices, float)))
    return Thing(
        name=name,
        world_from_thing=pose,
        surface=_surface(folder / "visual.glb"),
        pieces=tuple(pieces),
        mass=float(mass["mass"]),
        center=np.array(mass["center"], float),
        inertia=np.array(mass["inertia"], float),
        source=str(mass["density_source"]),
    )


def vertex_colours(surface: trimesh.Trimesh) -> Array:
    """[V, 3] sRGB, 0 to 1."""
    visual: Any = surface.visual
    return np.asarray(visual.vertex_colors, float)[:, :3] / 255


def _surface(file: Path) -> trimesh.Trimesh:
    return cast(trimesh.Trimesh, trimesh.load(file, force="mesh", process=False))


def add_things(spec: mujoco.MjSpec, things: list[Thing]) -> None:
    """Free bodies with their pieces to hit and their exact mass."""
    import mujoco

    for thing in things:
        pose = thing.world_from_thing
        body = spec.worldbody.add_body(
            name=thing.name, pos=pose[:3, 3], quat=matrix_to_quat(pose[:3, :3]), explicitinertial=True,
            mass=thing.mass, ipos=thing.center, fullinertia=_six(thing.inertia),
        )  # fmt: skip
        body.add_freejoint(name=f"{thing.name}_free")
        for number, (vertices, faces) in enumerate(thing.pieces):
            name = f"{thing.name}_{number:02d}"
            spec.add_mesh(name=name, uservert=vertices.ravel(), userface=faces.ravel())
            body.add_geom(
                name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, rgba=[*thing.colour, 1.0], group=0,
                friction=[thing.friction, 0.005, 0.0001],
            )  # fmt: skip


def _six(inertia: Array) -> list[float]:
    """Ixx Iyy Izz Ixy Ixz Iyz."""
    return [float(inertia[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
