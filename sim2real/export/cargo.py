"""What leaves for another simulator, in one form that every target reads: robot, bench, bodies, cameras, Gaussians.

All numbers come from the one compiled MuJoCo model that the environment itself steps, so that a target can be held
against it. Frames: world as in the scene (metres, +z up), links as in the robot's description, bodies as in
`bodies/meshes.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import trimesh
from numpy.typing import NDArray

from recon.core.errors import InputError
from sim2real.export.parts import Part, Shape, bench_shapes, robot_parts
from sim2real.export.skins import Skin, make_skins
from sim2real.export.things import Thing, add_things, bench_surface, read_things
from sim2real.physics import World
from sim2real.workcell import find_robot, meshes_of, open_world

if TYPE_CHECKING:
    import mujoco

    from recon.geometry.rig import Rig
    from recon.robot.kinematics import Coupling
    from recon.scene.scene import Scene

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cargo:
    """One scene made ready to leave.

    Attributes:
        name, folder: Of the scene.
        robot_file, base: The robot's description, and its link that the rig places.
        scene, rig: As loaded; the rig in the scene's world.
        world: Spec and model with robot, bench and things; `model` is what targets are compared with.
        model: Compiled, things included (free joints after the robot's own).
        rest_qpos [nq], rest_ctrl [nu]: The pose the environment starts from, things where they were recorded.
        parts: Robot links, parents first.
        couplings: Joints that follow another.
        excluded: Pairs of bodies that never collide.
        fixed: What stands still and is hit: table and boxes, in the world's frame.
        bench_surface: The bench as reconstructed, coloured; None where `recon mesh` was not run.
        things: Bodies that move freely.
        skins: Gaussians by what carries them; "world" for what stands still.
    """

    name: str
    folder: Path
    robot_file: Path
    base: str
    scene: Scene
    rig: Rig
    world: World
    model: mujoco.MjModel
    rest_qpos: Array
    rest_ctrl: Array
    parts: tuple[Part, ...]
    couplings: tuple[Coupling, ...]
    excluded: tuple[tuple[str, str], ...]
    fixed: tuple[Shape, ...]
    bench_surface: trimesh.Trimesh | None
    things: tuple[Thing, ...]
    skins: dict[str, Skin]

    @property
    def home(self) -> dict[str, float]:
        """Position of every robot joint at rest, rad or m."""
        return {joint.name: joint.home for part in self.parts for joint in part.joints}


def load_cargo(folder: Path, robot: Path | None = None) -> Cargo:
    """Read a scene folder and everything that leaves with it.

    Raises:
        InputError: the scene cannot be simulated (unknown scale, no table, no robot), or a body's mesh is damaged.
    """
    from recon.robot import load_robot
    from recon.scene.folder import load_scene

    scene = load_scene(folder)
    meshed = meshes_of(scene, folder)
    things = read_things(scene, meshed)  # before the slow part: refuse early
    world, rig = open_world(folder, robot=robot)
    file = find_robot(scene, folder, robot)
    described = load_robot(file, rig.robot.base_body if rig.robot is not None and robot is None else None)
    taken = {world.model.body(b).name for b in range(world.model.nbody)}
    clashing = sorted(thing.name for thing in things if thing.name in taken)
    if clashing:
        raise InputError(f"body {clashing[0]!r} of the scene is also the name of a part of the robot", fix="Rename it.")
    things = [thing.lifted(world.bench) for thing in things]
    add_things(world.spec, things)
    model = world.spec.compile()
    poses = [value for thing in things for value in thing.free_qpos()]
    parts = robot_parts(model, described, world.arm.home_qpos)
    return Cargo(
        name=folder.resolve().name,
        folder=folder,
        robot_file=file,
        base=described.base,
        scene=scene,
        rig=rig,
        world=world,
        model=model,
        rest_qpos=np.concatenate([world.arm.home_qpos, poses]),
        rest_ctrl=world.arm.home_ctrl.copy(),
        parts=parts,
        couplings=described.couplings,
        excluded=_excluded(model),
        fixed=bench_shapes(model),
        bench_surface=bench_surface(meshed),
        things=tuple(things),
        skins=make_skins(scene, described, things),
    )


def _excluded(model: mujoco.MjModel) -> tuple[tuple[str, str], ...]:
    """Pairs of body names, from the signatures ((first + 1) << 16) + second + 1 of MuJoCo's exclusions."""
    pairs = []
    for signature in model.exclude_signature.tolist():
        first, second = (signature >> 16) - 1, (signature & 0xFFFF) - 1
        pairs.append((model.body(first).name, model.body(second).name))
    return tuple(pairs)
