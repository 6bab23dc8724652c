"""A robot as we need it: links with meshes, joints with limits, couplings, named sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recon.core.errors import InputError, did_you_mean
from recon.geometry.pose import pose_of
from recon.robot.kinematics import Coupling, forward_kinematics
from recon.robot.meshes import LinkMesh, geom_mesh, visual_geoms
from recon.robot.source import compile_spec, import_mujoco, load_spec

if TYPE_CHECKING:
    import mujoco

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Joint:
    """A joint with one degree of freedom.

    Attributes:
        name: As in the description; the column of the joint log.
        kind: "revolute" (radians) or "prismatic" (metres).
        link: The link that the joint moves.
        lower, upper: Limits; -inf and inf where there are none.
        home: Position used where a pose does not state this joint.
        address: Index into MuJoCo's qpos.
    """

    name: str
    kind: str
    link: str
    lower: float
    upper: float
    home: float
    address: int


@dataclass(frozen=True, eq=False)
class Link:
    """A rigid part of the robot.

    Attributes:
        name, parent: Link names; the parent of a root is None.
        body: MuJoCo body index.
        meshes: What the link looks like, in its own frame; may be empty.
    """

    name: str
    parent: str | None
    body: int
    meshes: tuple[LinkMesh, ...]

    @cached_property
    def triangles(self) -> Floats:
        """[F, 3, 3] float64: corners of all faces of all meshes, link frame."""
        corners = [mesh.vertices[mesh.faces] for mesh in self.meshes]
        return np.concatenate([np.empty((0, 3, 3)), *corners])

    @cached_property
    def colours(self) -> Floats:
        """[F, 3] float64 sRGB-encoded colour of every face, in the order of `triangles`."""
        rows = [np.tile(mesh.rgba[:3], (len(mesh.faces), 1)) for mesh in self.meshes]
        return np.concatenate([np.empty((0, 3)), *rows])


@dataclass(frozen=True, eq=False)
class Site:
    """A named frame on a link, such as `tcp`. `link_from_site` is [4, 4]."""

    name: str
    link: str
    link_from_site: Floats


@dataclass(frozen=True, eq=False)
class RobotModel:
    """A robot read by `load_robot`. Immutable; safe to share between threads.

    Attributes:
        path: The description it was read from.
        base: The link whose pose `world_from_base` gives.
        links, joints, sites: By name, in the order of the description, parents first.
        couplings: Joints that follow another one (URDF mimic, MJCF joint equalities).
        mj_model: The compiled MuJoCo model.
    """

    path: Path
    base: str
    links: dict[str, Link]
    joints: dict[str, Joint]
    sites: dict[str, Site]
    couplings: tuple[Coupling, ...]
    mj_model: mujoco.MjModel = field(repr=False)

    @property
    def home(self) -> dict[str, float]:
        """Position of every joint in the rest pose."""
        return {joint.name: joint.home for joint in self.joints.values()}

    def link_poses(self, q: Mapping[str, float], world_from_base: Floats | None = None) -> dict[str, Floats]:
        """Return world_from_link [4, 4] of every link; see `forward_kinematics`."""
        return forward_kinematics(self, q, world_from_base)

    def site_pose(self, name: str, q: Mapping[str, float], world_from_base: Floats | None = None) -> Floats:
        """Return world_from_site [4, 4]. InputError when there is no such site."""
        if name not in self.sites:
            raise InputError(f"robot {self.path} has no site {name!r}", fix=did_you_mean(name, self.sites))
        site = self.sites[name]
        return self.link_poses(q, world_from_base)[site.link] @ site.link_from_site


def load_robot(path: str | Path, base_body: str | None = None, root: str | Path | None = None) -> RobotModel:
    """Read an MJCF or URDF robot.

    Bodies that float freely (a free joint at their root) are taken for loose objects and left out; geoms fixed to the
    world are scenery and left out too.

    Args:
        path: The description file.
        base_body: Link whose pose is meant by `world_from_base`; default: the first root link.
        root: Folder that no referenced file may leave; default: the folder of `path`.

    Raises:
        InputError: The description cannot be read, names files outside `root`, has no links or no such base body.
        UnavailableError: mujoco is not installed.
    """
    path = Path(path)
    model = compile_spec(load_spec(path, root), path)
    mujoco = import_mujoco()
    bodies = _robot_bodies(model, mujoco, path)
    names = {body: model.body(body).name for body in bodies}
    links = _links(model, mujoco, names)
    if base_body is None:
        base_body = next(iter(links))
    elif base_body not in links:
        raise InputError(f"robot {path} has no body {base_body!r}", fix=did_you_mean(base_body, links))
    joints = _joints(model, mujoco, names, path)
    return RobotModel(path, base_body, links, joints, _sites(model, names), _couplings(model, mujoco, joints), model)


def _sites(model: mujoco.MjModel, names: dict[int, str]) -> dict[str, Site]:
    sites = {}
    for s in range(model.nsite):
        name, body = model.site(s).name, int(model.site_bodyid[s])
        if name and body in names:
            sites[name] = Site(name, names[body], pose_of(model.site_pos[s], model.site_quat[s]))
    return sites


def _robot_bodies(model: mujoco.MjModel, mujoco: Any, path: Path) -> list[int]:
    """Body indices of the robot: all but the world and what floats freely."""
    roots = model.body_rootid
    floats = model.jnt_type == mujoco.mjtJoint.mjJNT_FREE
    free = {int(roots[body]) for body in model.jnt_bodyid[floats]}
    bodies = [body for body in range(1, model.nbody) if int(roots[body]) not in free]
    if not bodies:
        raise InputError(f"robot {path} has no links", fix="Give the description of the robot itself.")
    unnamed = [body for body in bodies if not model.body(body).name]
    if unnamed:
        raise InputError(f"robot {path} has {len(unnamed)} bodies without a name", fix="Name every body.")
    return bodies


def _links(model: mujoco.MjModel, mujoco: Any, names: dict[int, str]) -> dict[str, Link]:
    drawn = visual_geoms(model)
    links = {}
    for body, name in names.items():
        meshes = [geom_mesh(model, geom, mujoco.mjtGeom) for geom in drawn.get(body, [])]
        parent = names.get(int(model.body_parentid[body]))
        links[name] = Link(name, parent, body, tuple(mesh for mesh in meshes if mesh is not None))
    return links


def _joints(model: mujoco.MjModel, mujoco: Any, names: dict[int, str], path: Path) -> dict[str, Joint]:
    kinds = {int(mujoco.mjtJoint.mjJNT_HINGE): "revolute", int(mujoco.mjtJoint.mjJNT_SLIDE): "prismatic"}
    home = _home(model)
    joints = {}
    for j in range(model.njnt):
        body, kind, name = int(model.jnt_bodyid[j]), int(model.jnt_type[j]), model.joint(j).name
        if body not in names:
            continue
        if kind not in kinds:
            raise InputError(f"robot {path} has a ball joint {name!r}", fix="Replace it by three hinges.")
        if not name:
            raise InputError(f"robot {path} has a joint without a name on {names[body]!r}", fix="Name every joint.")
        lower, upper = model.jnt_range[j].tolist() if model.jnt_limited[j] else (-np.inf, np.inf)
        address = int(model.jnt_qposadr[j])
        rest = float(np.clip(home[address], lower, upper))
        joints[name] = Joint(name, kinds[kind], names[body], lower, upper, rest, address)
    return joints


def _home(model: mujoco.MjModel) -> Floats:
    """qpos of the keyframe `home`, else of the first keyframe, else the description's zero."""
    keys = [model.key(k).name.lower() for k in range(model.nkey)]
    if not keys:
        return np.array(model.qpos0)
    return np.array(model.key_qpos[keys.index("home") if "home" in keys else 0])


def _couplings(model: mujoco.MjModel, mujoco: Any, joints: dict[str, Joint]) -> tuple[Coupling, ...]:
    couplings = []
    for e in range(model.neq):
        first, second = int(model.eq_obj1id[e]), int(model.eq_obj2id[e])
        if model.eq_type[e] != mujoco.mjtEq.mjEQ_JOINT or not model.eq_active0[e] or second < 0:
            continue
        follower, leader = model.joint(first).name, model.joint(second).name
        if follower in joints and leader in joints:
            zero = (float(model.qpos0[joints[follower].address]), float(model.qpos0[joints[leader].address]))
            couplings.append(Coupling(follower, leader, tuple(model.eq_data[e, :5].tolist()), *zero))
    return tuple(couplings)
