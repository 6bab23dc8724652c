"""URDF files: `robot.urdf` (its root link `world` is the scene's world), `bench.urdf`, one per body.

joints    `parts.segments`: a link without shape where URDF cannot say it in one joint
inertia   about the centre of mass, in the principal frame: the off-diagonal entries are 0
capsules  a cylinder and two spheres, which is the same set of points and is in the standard
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recon.core.files import write_bytes
from sim2real.export.cargo import Cargo
from sim2real.export.header import file_names, joint_names
from sim2real.export.parts import Part, PartJoint, Shape, segments, shifted
from sim2real.export.surfaces import by_colour, shapes_surface, write_link_glb, write_obj, write_surface_glb
from sim2real.export.things import Thing, vertex_colours

Array = NDArray[np.float64]
ROOT = "world"
NO_MASS = 1e-5  # kg and kg m^2, of links that only carry a joint; readers take 1 kg where nothing is said
FREE_FORCE, FREE_SPEED = 1000.0, 10.0  # limits that URDF demands where the robot states none


@dataclass(frozen=True)
class UrdfFiles:
    """Names relative to the export's folder: the robot, the bench, each thing."""

    robot: str
    bench: str
    things: dict[str, str]


def write_urdfs(cargo: Cargo, folder: Path, visual: str = "obj") -> UrdfFiles:
    """Write the URDF files and `meshes/`. visual: 'obj' (one per colour) or 'glb' (one per link)."""
    names = file_names(cargo)
    _write(folder / "robot.urdf", _robot(cargo, folder, names, visual))
    _write(folder / "bench.urdf", _bench(cargo, folder, visual))
    things = {}
    for thing in cargo.things:
        things[thing.name] = f"{names[thing.name]}.urdf"
        _write(folder / things[thing.name], _thing(thing, folder, names[thing.name], visual))
    return UrdfFiles("robot.urdf", "bench.urdf", things)


# ------------------------------------------------------------------ robot


def _robot(cargo: Cargo, folder: Path, names: dict[str, str], visual: str) -> ET.Element:
    root = ET.Element("robot", name="robot")
    world = ET.SubElement(root, "link", name=ROOT)
    _inertial(world, 0.0, np.zeros(3), np.eye(3), np.zeros(3))
    joints = joint_names(cargo)
    for part in cargo.parts:
        _link(root, part, folder, names[part.name], visual)
    for part in cargo.parts:
        _chain(root, part, names, joints, cargo)
    return root


def _link(root: ET.Element, part: Part, folder: Path, name: str, visual: str) -> None:
    link = ET.SubElement(root, "link", name=name)
    _inertial(link, part.mass, part.center, part.axes, part.moments)
    if part.meshes and visual == "glb":
        write_link_glb(folder / "meshes" / f"{name}.glb", part.meshes)
        _mesh(ET.SubElement(link, "visual"), f"meshes/{name}.glb")
    elif part.meshes:
        for number, (vertices, faces, rgba) in enumerate(by_colour(part.meshes)):
            file = f"meshes/{name}_{number}.obj"
            write_obj(folder / file, vertices, faces)
            _coloured(ET.SubElement(link, "visual"), file, rgba, f"{name}_{number}")
    _collisions(link, part.shapes, folder, f"{name}_hull")
    _contact(link, part.shapes)


def _chain(root: ET.Element, part: Part, names: dict[str, str], joints: dict[str, str], cargo: Cargo) -> None:
    """The joints from a part's parent to it, with the links in between that some need."""

    def link_name(place: str | tuple[str, str] | None) -> str:
        if isinstance(place, tuple):
            return f"{names[place[0]]}__{joints[place[1]]}"
        return ROOT if place is None else names[place]

    for segment in segments(part):
        parent, child = link_name(segment.parent), link_name(segment.child)
        if isinstance(segment.child, tuple):
            _inertial(ET.SubElement(root, "link", name=child), NO_MASS, np.zeros(3), np.eye(3), np.full(3, NO_MASS))
        if segment.joint is None:
            _fixed(root, f"{parent}_to_{child}", parent, child, segment.origin)
        else:
            _joint(root, segment.joint, joints, parent, child, segment.origin, cargo)


def _joint(
    root: ET.Element, joint: PartJoint, names: dict[str, str], parent: str, child: str, origin: Array, cargo: Cargo
) -> None:  # fmt: skip
    kind = "prismatic" if joint.kind == "prismatic" else "revolute" if joint.limited else "continuous"
    element = ET.SubElement(root, "joint", name=names[joint.name], type=kind)
    _origin(element, origin)
    ET.SubElement(element, "parent", link=parent)
    ET.SubElement(element, "child", link=child)
    ET.SubElement(element, "axis", xyz=_numbers(joint.axis))
    force = joint.force if np.isfinite(joint.force) else FREE_FORCE
    limit = ET.SubElement(element, "limit", effort=_number(force), velocity=_number(FREE_SPEED))
    if kind != "continuous":
        low, high = (joint.lower, joint.upper) if joint.limited else (-1e3, 1e3)
        limit.set("lower", _number(low))
        limit.set("upper", _number(high))
    ET.SubElement(element, "dynamics", damping=_number(joint.damping), friction=_number(joint.dry_friction))
    for c in cargo.couplings:
        # q_f = f0 + a0 + a1 (q_l - l0): mimic holds straight lines only
        if c.follower == joint.name and c.leader in names and not any(c.polynomial[2:]):
            slope = c.polynomial[1]
            offset = c.follower_zero + c.polynomial[0] - slope * c.leader_zero
            ET.SubElement(
                element, "mimic", joint=names[c.leader], multiplier=_number(slope), offset=_number(offset)
            )  # fmt: skip


# ------------------------------------------------------------------ bench and bodies


def _bench(cargo: Cargo, folder: Path, visual: str) -> ET.Element:
    root = ET.Element("robot", name="bench")
    # two links: readers take a lone one for a loose body
    _inertial(ET.SubElement(root, "link", name=ROOT), 0.0, np.zeros(3), np.eye(3), np.zeros(3))
    link = ET.SubElement(root, "link", name="bench")
    _fixed(root, "world_to_bench", ROOT, "bench", np.eye(4))
    _inertial(link, 0.0, np.zeros(3), np.eye(3), np.zeros(3))
    surface = cargo.bench_surface if cargo.bench_surface is not None else shapes_surface(cargo.fixed)
    if visual == "glb":
        write_surface_glb(folder / "meshes" / "bench.glb", surface)
        _mesh(ET.SubElement(link, "visual"), "meshes/bench.glb")
    elif cargo.bench_surface is None:
        for number, shape in enumerate(cargo.fixed):
            element = ET.SubElement(link, "visual")
            _shape(element, shape, folder, f"bench_hull_{number}")
            _material(element, shape.rgba, f"bench_{number}")
    else:
        write_obj(folder / "meshes" / "bench.obj", surface.vertices, surface.faces)
        mean = np.round(vertex_colours(surface).mean(axis=0), 4)
        _coloured(ET.SubElement(link, "visual"), "meshes/bench.obj", (*mean.tolist(), 1.0), "bench")
    _collisions(link, cargo.fixed, folder, "bench_hull")
    _contact(link, cargo.fixed)
    return root


def _thing(thing: Thing, folder: Path, name: str, visual: str) -> ET.Element:
    root = ET.Element("robot", name=name)
    link = ET.SubElement(root, "link", name=name)
    _inertial(link, thing.mass, thing.center, *thing.principal)
    if visual == "glb":
        write_surface_glb(folder / "meshes" / f"{name}.glb", thing.surface)
        _mesh(ET.SubElement(link, "visual"), f"meshes/{name}.glb")
    else:
        write_obj(folder / "meshes" / f"{name}.obj", thing.surface.vertices, thing.surface.faces)
        _coloured(ET.SubElement(link, "visual"), f"meshes/{name}.obj", (*thing.colour, 1.0), name)
    for number, (vertices, faces) in enumerate(thing.pieces):
        file = f"meshes/{name}_piece_{number:02d}.obj"
        write_obj(folder / file, vertices, faces)
        _mesh(ET.SubElement(link, "collision"), file)
    _friction(link, thing.friction)
    return root


# ------------------------------------------------------------------ elements


def _inertial(link: ET.Element, mass: float, center: Array, axes: Array, moments: Array) -> None:
    element = ET.SubElement(link, "inertial")
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = axes, center
    _origin(element, pose)
    ET.SubElement(element, "mass", value=_number(mass))
    x, y, z = (_number(v) for v in moments)
    ET.SubElement(element, "inertia", ixx=x, ixy="0", ixz="0", iyy=y, iyz="0", izz=z)


def _collisions(link: ET.Element, shapes: Sequence[Shape], folder: Path, stem: str) -> None:
    for number, shape in enumerate(shapes):
        if shape.kind != "capsule":
            _shape(ET.SubElement(link, "collision"), shape, folder, f"{stem}_{number}")
            continue
        radius, half = shape.size
        _shape(ET.SubElement(link, "collision"), _with(shape, "cylinder", shape.size, np.zeros(3)), folder, "")
        for end in (-half, half):
            ball = _with(shape, "sphere", (radius,), np.array([0.0, 0.0, end]))
            _shape(ET.SubElement(link, "collision"), ball, folder, "")


def _with(shape: Shape, kind: str, size: tuple[float, ...], offset: Array) -> Shape:
    pose = shape.part_from_shape @ shifted(offset)
    return Shape(shape.name, kind, size, pose, shape.friction, shape.rgba)


def _shape(element: ET.Element, shape: Shape, folder: Path, stem: str) -> None:
    _origin(element, shape.part_from_shape)
    geometry = ET.SubElement(element, "geometry")
    if shape.kind == "box":
        ET.SubElement(geometry, "box", size=_numbers(2 * np.array(shape.size)))
    elif shape.kind == "sphere":
        ET.SubElement(geometry, "sphere", radius=_number(shape.size[0]))
    elif shape.kind == "cylinder":
        radius, half = shape.size
        ET.SubElement(geometry, "cylinder", radius=_number(radius), length=_number(2 * half))
    else:
        assert shape.mesh is not None
        write_obj(folder / "meshes" / f"{stem}.obj", *shape.mesh)
        ET.SubElement(geometry, "mesh", filename=f"meshes/{stem}.obj")


def _mesh(element: ET.Element, file: str) -> None:
    _origin(element, np.eye(4))
    ET.SubElement(ET.SubElement(element, "geometry"), "mesh", filename=file)


def _coloured(element: ET.Element, file: str, rgba: Sequence[float], name: str) -> None:
    _mesh(element, file)
    _material(element, rgba, name)


def _material(element: ET.Element, rgba: Sequence[float], name: str) -> None:
    ET.SubElement(ET.SubElement(element, "material", name=f"colour_{name}"), "color", rgba=_numbers(rgba))


def _contact(link: ET.Element, shapes: Sequence[Shape]) -> None:
    if shapes:
        _friction(link, max(shape.friction for shape in shapes))


def _friction(link: ET.Element, value: float) -> None:
    # an extension that Bullet reads and others skip; scene.json has it too
    ET.SubElement(ET.SubElement(link, "contact"), "lateral_friction", value=_number(value))


def _fixed(root: ET.Element, name: str, parent: str, child: str, origin: Array) -> None:
    element = ET.SubElement(root, "joint", name=name, type="fixed")
    _origin(element, origin)
    ET.SubElement(element, "parent", link=parent)
    ET.SubElement(element, "child", link=child)


def _origin(element: ET.Element, pose: Array) -> None:
    ET.SubElement(element, "origin", xyz=_numbers(pose[:3, 3]), rpy=_numbers(roll_pitch_yaw(pose[:3, :3])))


def roll_pitch_yaw(rotation: Array) -> tuple[float, float, float]:
    """(roll, pitch, yaw) rad with R = Rz(yaw) Ry(pitch) Rx(roll), as URDF means them."""
    r = np.asarray(rotation, float)
    level = float(np.hypot(r[0, 0], r[1, 0]))
    if level > 1e-9:
        return (
            float(np.arctan2(r[2, 1], r[2, 2])),
            float(np.arctan2(-r[2, 0], level)),
            float(np.arctan2(r[1, 0], r[0, 0])),
        )
    # straight up or down: roll and yaw turn about the same axis, yaw is taken as 0
    return float(np.arctan2(-r[1, 2], r[1, 1])), float(np.arctan2(-r[2, 0], level)), 0.0


def _number(value: float) -> str:
    return format(float(value) + 0.0, ".12g")


def _numbers(values: Sequence[float] | Array) -> str:
    return " ".join(_number(v) for v in values)


def _write(path: Path, root: ET.Element) -> None:
    ET.indent(root)
    write_bytes(path, b'<?xml version="1.0"?>\n' + ET.tostring(root, encoding="utf-8") + b"\n")
