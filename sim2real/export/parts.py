"""The rigid parts of the robot and the shapes that collide, read off a compiled MuJoCo model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.geometry.pose import pose_of, so3_exp
from recon.geometry.quaternion import quat_to_matrix
from sim2real.physics import PIECES, TABLE

if TYPE_CHECKING:
    import mujoco

    from recon.robot import RobotModel
    from recon.robot.meshes import LinkMesh

Array = NDArray[np.float64]
Mesh = tuple[Array, NDArray[np.int32]]  # vertices [V, 3] m, faces [F, 3]


@dataclass(frozen=True, eq=False)
class Shape:
    """Something that collides.

    kind and size: 'box' (half extents [3]), 'sphere' (radius), 'cylinder' and 'capsule' (radius, half length along z),
    'hull' (no size; `mesh` is convex). part_from_shape: [4, 4]. friction: sliding, no unit.
    """

    name: str
    kind: str
    size: tuple[float, ...]
    part_from_shape: Array
    friction: float
    rgba: tuple[float, float, float, float]
    mesh: Mesh | None = None


@dataclass(frozen=True, eq=False)
class PartJoint:
    """One degree of freedom between a part and its parent: 'revolute' (rad) or 'prismatic' (m).

    axis [3] unit and anchor [3] m in the part's frame. The part stands at its `parent_from_part` when q = zero. kp, kv,
    force: of its position servo, 0 and inf where it has none. command: range of what the servo may be told.
    """

    name: str
    kind: str
    axis: Array
    anchor: Array
    lower: float
    upper: float
    zero: float
    home: float
    damping: float
    armature: float
    dry_friction: float
    kp: float
    kv: float
    force: float
    command: tuple[float, float]

    @property
    def limited(self) -> bool:
        """Whether it has stops."""
        return bool(np.isfinite([self.lower, self.upper]).all())


@dataclass(frozen=True, eq=False)
class Part:
    """A robot link. parent: None for what is fixed to the world; then `parent_from_part` is world_from_part.

    mass kg; center [3] m; axes [3, 3] and moments [3] kg m^2: the principal frame of its inertia about the centre, in
    the part's frame. gravity: share of gravity that acts on it (arms compensate it).
    """

    name: str
    parent: str | None
    parent_from_part: Array
    joints: tuple[PartJoint, ...]
    mass: float
    center: Array
    axes: Array
    moments: Array
    gravity: float
    shapes: tuple[Shape, ...]
    meshes: tuple[LinkMesh, ...]


def robot_parts(model: mujoco.MjModel, robot: RobotModel, home_qpos: Array) -> tuple[Part, ...]:
    """Every link of the robot, parents first, from the model that it is part of. Raises InputError for a ball joint."""
    shapes = _shapes_by_body(model)
    parts = []
    for name, link in robot.links.items():
        b = model.body(name).id
        parent = int(model.body_parentid[b])
        first, count = int(model.body_jntadr[b]), int(model.body_jntnum[b])
        parts.append(
            Part(
                name=name,
                parent=model.body(parent).name if parent else None,
                parent_from_part=pose_of(model.body_pos[b], model.body_quat[b]),
                joints=tuple(_joint(model, j, home_qpos) for j in range(first, first + count)),
                mass=float(model.body_mass[b]),
                center=model.body_ipos[b].copy(),
                axes=quat_to_matrix(model.body_iquat[b]),
                moments=model.body_inertia[b].copy(),
                gravity=1.0 - float(model.body_gravcomp[b]),
                shapes=tuple(shapes.get(b, [])),
                meshes=link.meshes,
            )
        )
    return tuple(parts)


@dataclass(frozen=True, eq=False)
class Segment:
    """One joint as URDF and USD mean them: the child stands at origin @ move(q) in its parent; joint None: fixed.

    parent None: the world. child: a part's name, or (part, joint) for the massless link at a joint's anchor.
    """

    joint: PartJoint | None
    parent: str | tuple[str, str] | None
    child: str | tuple[str, str]
    origin: Array


def segments(part: Part) -> list[Segment]:
    """The joints from a part's parent to it.

    With T0 the part's pose in its parent, p_j the anchors and z_j the zeros of its joints, it stands at

        T0 prod_j [Trans(p_j) Move_j(q_j - z_j) Trans(-p_j)]

    A link moves about its own origin there, so all but a single joint anchored at that origin get a link of their own.
    """
    found: list[Segment] = []
    reach, parent = part.parent_from_part, part.parent
    at: str | tuple[str, str] | None = parent
    for number, joint in enumerate(part.joints):
        last = number == len(part.joints) - 1 and not joint.anchor.any()
        child: str | tuple[str, str] = part.name if last else (part.name, joint.name)
        origin = reach @ shifted(joint.anchor) @ moved(joint, -joint.zero)
        found.append(Segment(joint, at, child, origin))
        at, reach = child, shifted(-joint.anchor)
        if last:
            return found
    return [*found, Segment(None, at, part.name, reach)]


def moved(joint: PartJoint, q: float) -> Array:
    """[4, 4] of a joint at q, about its own anchor."""
    pose = np.eye(4)
    if joint.kind == "prismatic":
        pose[:3, 3] = q * joint.axis
        return pose
    pose[:3, :3] = so3_exp(q * joint.axis)
    return pose


def shifted(by: Array) -> Array:
    """[4, 4] of a translation [3]."""
    pose = np.eye(4)
    pose[:3, 3] = by
    return pose


def bench_shapes(model: mujoco.MjModel) -> tuple[Shape, ...]:
    """What stands still: the table, the boxes on it and whatever the robot's file fixes to the world."""
    shapes = _shapes_by_body(model)
    bodies = [0, model.body(TABLE).id, model.body(PIECES).id]
    return tuple(shape for b in bodies for shape in shapes.get(b, []))


def _joint(model: mujoco.MjModel, j: int, home_qpos: Array) -> PartJoint:
    import mujoco

    kinds = {mujoco.mjtJoint.mjJNT_HINGE: "revolute", mujoco.mjtJoint.mjJNT_SLIDE: "prismatic"}
    kind = mujoco.mjtJoint(int(model.jnt_type[j]))
    if kind not in kinds:
        raise InputError(f"joint {model.joint(j).name!r} is neither a hinge nor a slide", fix="Replace it by hinges.")
    limited, address, dof = bool(model.jnt_limited[j]), int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])
    lower, upper = model.jnt_range[j].tolist() if limited else (-np.inf, np.inf)
    kp, kv, force, command = 0.0, 0.0, np.inf, (lower, upper)
    for a in range(model.nu):
        pull, length = _share(model, a, j)
        if pull:
            kp, kv = (-pull * length * float(v) for v in model.actuator_biasprm[a, 1:3])
            if model.actuator_forcelimited[a]:
                force = pull * float(np.abs(model.actuator_forcerange[a]).max())
            if model.actuator_ctrllimited[a] and length == 1 and model.actuator_trntype[a] == 0:
                command = tuple(model.actuator_ctrlrange[a].tolist())
    return PartJoint(
        name=model.joint(j).name,
        kind=kinds[kind],
        axis=model.jnt_axis[j].copy(),
        anchor=model.jnt_pos[j].copy(),
        lower=lower,
        upper=upper,
        zero=float(model.qpos0[address]),
        home=float(home_qpos[address]),
        damping=float(np.ravel(model.dof_damping[dof])[0]),
        armature=float(model.dof_armature[dof]),
        dry_friction=float(model.dof_frictionloss[dof]),
        kp=kp,
        kv=kv,
        force=force,
        command=command,
    )


def _share(model: mujoco.MjModel, actuator: int, joint: int) -> tuple[float, float]:
    """(share of the actuator's force that the joint gets, what its length grows by per unit of the joint).

    A servo on a tendon over several joints (a gripper's two fingers) is divided among them as if they moved together:
    with length = sum_i c_i q_i a joint gets c_i of the force, and the length grows by S = sum_i |c_i|.
    """
    import mujoco

    kind, target = int(model.actuator_trntype[actuator]), int(model.actuator_trnid[actuator, 0])
    if kind == mujoco.mjtTrn.mjTRN_JOINT:
        return (1.0, 1.0) if target == joint else (0.0, 0.0)
    if kind != mujoco.mjtTrn.mjTRN_TENDON:
        return 0.0, 0.0
    wraps = range(model.tendon_adr[target], model.tendon_adr[target] + model.tendon_num[target])
    shares = {int(model.wrap_objid[w]): abs(float(model.wrap_prm[w])) for w in wraps
              if model.wrap_type[w] == mujoco.mjtWrap.mjWRAP_JOINT}  # fmt: skip
    return shares.get(joint, 0.0), sum(shares.values())


def _shapes_by_body(model: mujoco.MjModel) -> dict[int, list[Shape]]:
    """Geoms that collide, by body. Planes and height fields are no part of a bench or a robot and are left out."""
    import mujoco

    kinds = mujoco.mjtGeom
    simple = {
        kinds.mjGEOM_BOX: ("box", 3),
        kinds.mjGEOM_SPHERE: ("sphere", 1),
        kinds.mjGEOM_CYLINDER: ("cylinder", 2),
        kinds.mjGEOM_CAPSULE: ("capsule", 2),
    }
    found: dict[int, list[Shape]] = {}
    for g in range(model.ngeom):
        if model.geom_contype[g] == 0 and model.geom_conaffinity[g] == 0:
            continue
        kind = kinds(int(model.geom_type[g]))
        pose = pose_of(model.geom_pos[g], model.geom_quat[g])
        rgba = tuple(model.geom_rgba[g].tolist())
        friction, name = float(model.geom_friction[g, 0]), model.geom(g).name
        body = int(model.geom_bodyid[g])
        if kind in simple:
            word, count = simple[kind]
            shape = Shape(name, word, tuple(model.geom_size[g, :count].tolist()), pose, friction, rgba)
        elif kind in (kinds.mjGEOM_MESH, kinds.mjGEOM_SDF, kinds.mjGEOM_ELLIPSOID):
            shape = Shape(name, "hull", (), np.eye(4), friction, rgba, _hull(model, g))
        else:
            continue
        found.setdefault(body, []).append(shape)
    return found


def _hull(model: mujoco.MjModel, geom: int) -> Mesh:
    """The convex hull that MuJoCo collides with, in the body's frame."""
    import mujoco

    from recon.robot.meshes import geom_mesh

    mesh = geom_mesh(model, geom, mujoco.mjtGeom)
    assert mesh is not None
    return convex(mesh.vertices)


def convex(points: Array) -> Mesh:
    """The convex hull of points [N, 3], faces wound outward, in an order that depends on the points alone."""
    from scipy.spatial import ConvexHull

    hull = ConvexHull(points)
    kept, corners = np.unique(hull.simplices, return_inverse=True)
    faces = corners.reshape(hull.simplices.shape).astype(np.int32)
    vertices = np.asarray(points, np.float64)[kept]
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    inward = np.einsum("ij,ij->i", np.cross(b - a, c - a), hull.equations[:, :3]) < 0
    faces[inward] = faces[inward][:, ::-1]
    return vertices, faces
