"""One MuJoCo model: the robot at its place on the bench, the bench to hit, the things and the markers of a task.

The robot's own file is the root specification, so that its joint names, options and meshes stay as they are; the bench
and the markers are added to it. Bodies welded to the world never collide with one another, hence a robot base may touch
the table; a moving link that already touches the bench at rest loses that one contact pair.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError, UnavailableError, UsageError
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import matrix_to_quat, quat_to_matrix
from recon.robot.source import load_spec
from sim2real.arm import Arm, find_arm
from sim2real.bench import Bench, Box, carve
from sim2real.bodies import ROLL, SPIN, Thing, free_joint
from sim2real.gripper import Gripper, find_gripper
from sim2real.primitives import Piece

if TYPE_CHECKING:
    import mujoco

Array = NDArray[np.float64]

log = logging.getLogger(__name__)

TIMESTEP = 0.002  # s
PARKED = 5.0  # m along x: where declared things are until a scenario places them
CLEARANCE = 0.05  # m kept free around the robot at rest
TABLE = "bench_table"
PIECES = "bench_things"


@dataclass(frozen=True)
class Marker:
    """A place to show, moved by the task and touched by nothing: a mocap body. Radius m, colour 0-1 RGB.

    flat: a disc on the table instead of a ball.
    """

    name: str
    radius: float
    color: tuple[float, float, float]
    flat: bool = False


@dataclass(frozen=True)
class World:
    """A compiled model with what the environment must know about it."""

    spec: mujoco.MjSpec
    model: mujoco.MjModel
    arm: Arm
    bench: Bench
    markers: tuple[Marker, ...]
    gripper: Gripper | None = None
    things: tuple[Thing, ...] = ()
    touch: dict[tuple[str, str], int] = field(default_factory=dict)  # pair of names -> row of sensordata


def compose(
    robot: Path,
    world_from_base: Array,
    bench: Bench,
    markers: Sequence[Marker] = (),
    base_body: str | None = None,
    things: Sequence[Thing] = (),
) -> World:
    """Build the model.

    Args:
        robot: MJCF or URDF file.
        world_from_base: [4, 4] pose of the robot's base body in the scene, metres.
        bench: What collides besides the robot; boxes that reach into the robot at rest are removed.
        markers: Places drawn by the task.
        base_body: Name of the base body; by default the robot's first body.
        things: What can be moved, and fixtures; each becomes a body of its own name.

    Raises:
        InputError: the file cannot be read, or has no arm with actuated or actuatable joints.
        UnavailableError: mujoco >= 4 is not installed.
    """
    spec = _mounted(robot, world_from_base, base_body)
    alone = _compile(spec, robot)
    arm = find_arm(spec, alone, robot)  # adds position servos and a tool centre point where there are none
    alone = _compile(spec, robot)
    bench = _clear_of_robot(bench, alone, arm.at(alone))
    _add_bench(spec, bench)
    for marker in markers:
        body = spec.worldbody.add_body(name=marker.name, mocap=True, pos=[0, 0, bench.top + marker.radius])
        rgba = [*marker.color, 1.0]
        size = [marker.radius, 0.001 if marker.flat else 0, 0]
        kind = _mj().mjtGeom.mjGEOM_CYLINDER if marker.flat else _mj().mjtGeom.mjGEOM_SPHERE
        body.add_geom(type=kind, size=size, rgba=rgba, contype=0, conaffinity=0, group=2)
    model = _compile(spec, robot)
    if _exclude_resting_contacts(spec, model, arm.at(model)):
        model = _compile(spec, robot)
    gripper = find_gripper(model, arm.at(model))
    touch: dict[tuple[str, str], int] = {}
    if things:
        model, touch = _with_things(spec, robot, things, gripper)
    return World(spec, model, arm.at(model), bench, tuple(markers), gripper, tuple(things), touch)


def _with_things(
    spec: mujoco.MjSpec, robot: Path, things: Sequence[Thing], gripper: Gripper | None
) -> tuple[mujoco.MjModel, dict[tuple[str, str], int]]:
    """Add the bodies and a sensor for each pair whose touching a task may ask about."""
    mj = _mj()
    taken = {body.name for body in spec.bodies}
    for thing in things:
        if thing.node in taken:
            raise UsageError(
                f"a body of the task is called {thing.name!r}", why="the robot or the bench has a body of that name",
                fix="Rename it in the task.",
            )  # fmt: skip
        taken.add(thing.node)
    add_things(spec, {thing.node: thing for thing in things})
    fingers = gripper.fingers if gripper is not None else ()
    nodes = {thing.name: thing.node for thing in things}
    pairs = [(t.name, other) for t in things for other in (*fingers, TABLE, PIECES) if t.free or other in fingers]
    pairs += [(a.name, b.name) for i, a in enumerate(things) for b in things[i + 1 :]]
    for a, b in pairs:
        kinds = [mj.mjtObj.mjOBJ_XBODY if name in fingers else mj.mjtObj.mjOBJ_BODY for name in (a, b)]
        sensor = spec.add_sensor(
            name=f"touch/{a}/{b}", type=mj.mjtSensor.mjSENS_CONTACT,
            objtype=kinds[0], objname=nodes.get(a, a), reftype=kinds[1], refname=nodes.get(b, b),
        )  # fmt: skip
        sensor.intprm = [1 << int(mj.mjtConDataField.mjCONDATA_FOUND), 0, 1]  # how many contacts there are
    model = _compile(spec, robot)
    return model, {(a, b): int(model.sensor(f"touch/{a}/{b}").adr[0]) for a, b in pairs}


def add_things(spec: mujoco.MjSpec, things: Mapping[str, Thing]) -> None:
    """Add bodies, with what can be hit of them, under the names given; where they start, else parked far off."""
    if not things:
        return
    # grasps slip under pyramidal friction cones and soft friction
    spec.option.cone = _mj().mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0
    parked = len(spec.bodies)
    for number, (name, thing) in enumerate(things.items()):
        _add_thing(spec, name, thing, [PARKED + parked + number, 0.0, 1.0])


def _add_thing(spec: mujoco.MjSpec, name: str, thing: Thing, parked: Sequence[float]) -> None:
    pose = thing.start if thing.start is not None else np.eye(4)
    position = pose[:3, 3] if thing.start is not None else parked
    body = spec.worldbody.add_body(name=name, mocap=not thing.free, pos=position, quat=matrix_to_quat(pose[:3, :3]))
    if thing.free:
        body.add_freejoint(name=free_joint(name))
        i = thing.inertia
        body.mass, body.ipos, body.explicitinertial = thing.mass, thing.center, True
        body.fullinertia = [i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]]
    # priority: what touches it slides as the thing's own friction says, whatever the other's is
    for number, piece in enumerate(thing.pieces):
        kind, size, at = _geom(spec, f"{name}_{number:02d}", piece)
        body.add_geom(
            name=f"{name}_{number:02d}", type=kind, pos=at, condim=4, friction=[thing.friction, SPIN, ROLL],
            priority=1, group=0, **size,
        )  # fmt: skip


def _geom(spec: mujoco.MjSpec, name: str, piece: Piece) -> tuple[Any, dict[str, Any], Sequence[float]]:
    mj = _mj()
    if piece.kind == "hull":
        assert piece.vertices is not None
        mesh = spec.add_mesh(name=name)
        mesh.uservert = np.ascontiguousarray(piece.vertices, np.float32).ravel().tolist()
        mesh.inertia = mj.mjtMeshInertia.mjMESH_INERTIA_CONVEX
        return mj.mjtGeom.mjGEOM_MESH, {"meshname": name}, [0.0, 0, 0]
    kinds = {"box": mj.mjtGeom.mjGEOM_BOX, "cylinder": mj.mjtGeom.mjGEOM_CYLINDER, "sphere": mj.mjtGeom.mjGEOM_SPHERE}
    return kinds[piece.kind], {"size": [*piece.size, 0, 0][:3]}, piece.at


def _mj() -> Any:
    try:
        import mujoco
        import mujoco.batch
    except ImportError as error:
        raise UnavailableError(
            "the simulator needs MuJoCo 4 or newer", why=str(error), fix="Run: pip install 'mujoco>=4'"
        ) from error
    if mujoco.get_mju_user_warning() is None:  # otherwise warnings go to a file in the working directory
        mujoco.set_mju_user_warning(lambda text: log.warning("MuJoCo: %s", text))
    return mujoco


def _compile(spec: mujoco.MjSpec, robot: Path) -> mujoco.MjModel:
    try:
        return spec.compile()
    except ValueError as error:
        raise InputError(f"the robot {robot} cannot be simulated", why=" ".join(str(error).split())) from error


def _mounted(robot: Path, world_from_base: Array, base_body: str | None) -> mujoco.MjSpec:
    """The robot's specification with everything at its top level moved so that the base is at world_from_base."""
    mj = _mj()
    spec = load_spec(robot)
    _name_all(spec)
    spec.option.timestep = TIMESTEP
    spec.option.integrator = mj.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.disableflags |= mj.mjtDisableBit.mjDSBL_AUTORESET  # a state that blows up must be seen, not replaced
    model = _compile(spec, robot)
    if model.nbody < 2:
        raise InputError(f"the robot {robot} has no bodies")
    data = mj.MjData(model)
    mj.mj_forward(model, data)
    base = 1 if base_body is None else mj.mj_name2id(model, mj.mjtObj.mjOBJ_BODY, base_body)
    if base < 0:
        raise InputError(f"the robot {robot} has no body {base_body!r}", fix="Correct `base_body` in the rig.")
    file_from_base = np.eye(4)
    file_from_base[:3, :3], file_from_base[:3, 3] = data.xmat[base].reshape(3, 3), data.xpos[base]
    world_from_file = np.asarray(world_from_base, float) @ invert_pose(file_from_base)
    for geom in list(spec.worldbody.geoms):
        if geom.type == mj.mjtGeom.mjGEOM_PLANE:  # the file's own floor; the bench takes its place
            spec.delete(geom)
    for light in list(spec.worldbody.lights):
        spec.delete(light)
    for camera in list(spec.worldbody.cameras):
        spec.delete(camera)
    for item in [*spec.worldbody.bodies, *spec.worldbody.geoms, *spec.worldbody.sites]:
        _move(item, model, data, world_from_file)
    return spec


def _move(item: mujoco.MjsBody, model: mujoco.MjModel, data: mujoco.MjData, world_from_file: Array) -> None:
    kind = type(item).__name__
    if kind == "MjsBody":
        position, rotation = data.xpos[item.id], data.xmat[item.id].reshape(3, 3)
        free = model.body_jntnum[item.id] and model.jnt_type[model.body_jntadr[item.id]] == 0
        if free:
            raise InputError(
                f"body {item.name!r} of the robot floats free", why="only robots fixed to the bench are simulated"
            )
    else:
        position = np.asarray(item.pos, float)
        rotation = quat_to_matrix(np.asarray(item.quat, float))
    item.pos = world_from_file[:3, :3] @ position + world_from_file[:3, 3]
    item.quat = matrix_to_quat(world_from_file[:3, :3] @ rotation)
    item.alt.type = _mj().mjtOrientation.mjORIENTATION_QUAT  # the quaternion counts, whatever the file used


def _name_all(spec: mujoco.MjSpec) -> None:
    """Give every body, joint and actuator a name: we refer to them by it when the model grows."""
    for kind, items in (("body", spec.bodies), ("joint", spec.joints), ("servo", spec.actuators)):
        for i, item in enumerate(items):
            if not item.name:
                item.name = f"{kind}_{i}"


def _clear_of_robot(bench: Bench, model: mujoco.MjModel, arm: Arm) -> Bench:
    """Remove boxes inside the resting robot's own volume: they are leftovers of its picture, or hold it."""
    data = rest(model, arm)
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] == 0:
            continue
        low, high = geom_bounds(model, data, geom)
        bench = carve(bench, low - CLEARANCE, high + CLEARANCE)
    base = [g for g in range(model.ngeom) if model.body_weldid[model.geom_bodyid[g]] == 0]
    if base:  # below the base, down to the table
        bounds = [geom_bounds(model, data, g) for g in base]
        low = np.min([b[0] for b in bounds], axis=0) - CLEARANCE
        high = np.max([b[1] for b in bounds], axis=0) + CLEARANCE
        bench = carve(bench, np.array([low[0], low[1], min(low[2], bench.top)]), high)
    return bench


def rest(model: mujoco.MjModel, arm: Arm) -> mujoco.MjData:
    """A fresh MjData with the arm at home and forward kinematics done."""
    mj = _mj()
    data = mj.MjData(model)
    data.qpos[:] = arm.home_qpos
    data.ctrl[:] = arm.home_ctrl
    mj.mj_forward(model, data)
    return data


def geom_bounds(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> tuple[Array, Array]:
    """World axis-aligned bounds (low [3], high [3]) m of a geom from its local box."""
    center, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    rotation = data.geom_xmat[geom].reshape(3, 3)
    middle = data.geom_xpos[geom] + rotation @ center
    reach = np.abs(rotation) @ half
    return middle - reach, middle + reach


def _add_bench(spec: mujoco.MjSpec, bench: Bench) -> None:
    table = spec.worldbody.add_body(name=TABLE)
    _add_box(table, bench.table, "bench_top", (0.55, 0.5, 0.45, 1.0))
    things = spec.worldbody.add_body(name=PIECES)
    for i, box in enumerate(bench.boxes):
        _add_box(things, box, f"bench_thing_{i:03d}", (0.6, 0.6, 0.65, 1.0))


def _add_box(body: mujoco.MjsBody, box: Box, name: str, rgba: tuple[float, float, float, float]) -> None:
    half = box.yaw / 2
    body.add_geom(
        name=name,
        type=_mj().mjtGeom.mjGEOM_BOX,
        pos=list(box.center),
        size=list(box.half),
        quat=[float(np.cos(half)), 0.0, 0.0, float(np.sin(half))],
        rgba=list(rgba),
        friction=[0.8, 0.005, 0.0001],
        group=0,  # MuJoCo's viewers hide group 3 and up
    )


def _exclude_resting_contacts(spec: mujoco.MjSpec, model: mujoco.MjModel, arm: Arm) -> bool:
    """Exclude body pairs that penetrate by more than 0.5 mm at rest (neighbours, a link sunk into the table)."""
    data = rest(model, arm)
    pairs = set()
    for contact in data.contact[: data.ncon]:
        a, b = (int(model.geom_bodyid[g]) for g in contact.geom)
        if contact.dist < -5e-4:
            pairs.add((min(a, b), max(a, b)))
    for a, b in sorted(pairs):
        spec.add_exclude(bodyname1=model.body(a).name, bodyname2=model.body(b).name)
    return bool(pairs)
