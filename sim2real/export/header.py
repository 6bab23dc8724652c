"""`scene.json`: the one description of what left, the same for every target, and the names of its files.

Poses are 4x4 row major, lengths m, angles rad, masses kg; cameras look along +z with y down (OpenCV), pixels as in the
rig. A target's script needs nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recon.core.files import write_json
from sim2real.export.cargo import Cargo
from sim2real.export.parts import Part, PartJoint
from sim2real.export.things import Thing

FORMAT, VERSION = "recon-export", 1
HEADER = "scene.json"


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """For each name one that any file system and any XML or USD reader takes; distinct, also without case."""
    taken: set[str] = set()
    plain = {}
    for name in names:
        stem = re.sub(r"\W", "_", name, flags=re.ASCII)[:48]
        stem = stem if re.match(r"[A-Za-z]", stem) else f"n_{stem}"
        candidate, number = stem, 2
        while candidate.lower() in taken:
            candidate, number = f"{stem}_{number}", number + 1
        taken.add(candidate.lower())
        plain[name] = candidate
    return plain


def file_names(cargo: Cargo) -> dict[str, str]:
    """Plain names of everything that carries Gaussians or meshes."""
    parts = [part.name for part in cargo.parts]
    return plain_names(["world", "bench", *(n for n in parts if n not in ("world", "bench")),
                        *(thing.name for thing in cargo.things)])  # fmt: skip


def joint_names(cargo: Cargo) -> dict[str, str]:
    """Plain names of the robot's joints."""
    return plain_names(joint.name for part in cargo.parts for joint in part.joints)


def write_header(cargo: Cargo, folder: Path, splats: dict[str, str], **extra: Any) -> None:
    """Write scene.json. splats: carrier -> file, relative to `folder`; extra: what one target adds."""
    write_json(folder / HEADER, header(cargo, splats) | extra)


def header(cargo: Cargo, splats: dict[str, str]) -> dict[str, Any]:
    """The content of scene.json; see ARCHITECTURE.md."""
    names, joints, rest = file_names(cargo), joint_names(cargo), rest_poses(cargo)
    return {
        "format": FORMAT,
        "version": VERSION,
        "scene": cargo.name,
        "units": "metres",
        "up": "z",
        "gravity": [float(v) for v in cargo.model.opt.gravity],
        "timestep": float(cargo.model.opt.timestep),
        "robot": {
            "tool": cargo.world.arm.site,
            "arm_joints": list(cargo.world.arm.joints),
            "links": [_link(part, names, cargo, rest) for part in cargo.parts],
            "joints": [_joint(joint, part, joints) for part in cargo.parts for joint in part.joints],
            "couplings": [
                {"follower": c.follower, "leader": c.leader, "polynomial": list(c.polynomial),
                 "follower_zero": c.follower_zero, "leader_zero": c.leader_zero}
                for c in cargo.couplings
            ],
            "never_collide": [list(pair) for pair in cargo.excluded],
        },
        "bench": {"top": float(cargo.world.bench.top), "shapes": len(cargo.fixed),
                  "friction": cargo.fixed[0].friction if cargo.fixed else None},
        "things": [_thing(thing, names) for thing in cargo.things],
        "cameras": {name: _camera(cargo, name) for name in cargo.rig.cameras},
        "splats": {
            name: {"file": file, "kind": cargo.skins[name].kind, "source": cargo.skins[name].source,
                   "count": len(cargo.skins[name].gaussians)}
            for name, file in splats.items()
        },
    }  # fmt: skip


def rest_poses(cargo: Cargo) -> dict[str, NDArray[np.float64]]:
    """world_from_link [4, 4] of every robot link in the pose the environment starts from."""
    import mujoco

    data = mujoco.MjData(cargo.model)
    data.qpos[:] = cargo.rest_qpos
    mujoco.mj_kinematics(cargo.model, data)
    poses = {}
    for part in cargo.parts:
        body, pose = cargo.model.body(part.name).id, np.eye(4)
        pose[:3, :3], pose[:3, 3] = data.xmat[body].reshape(3, 3), data.xpos[body]
        poses[part.name] = pose
    return poses


def _link(
    part: Part, names: dict[str, str], cargo: Cargo, rest: dict[str, NDArray[np.float64]]
) -> dict[str, Any]:  # fmt: skip
    fixed = int(cargo.model.body_weldid[cargo.model.body(part.name).id]) == 0
    return {
        "name": part.name,
        "plain": names[part.name],
        "parent": part.parent,
        "parent_from_link": part.parent_from_part.tolist(),
        "world_from_link": rest[part.name].tolist(),
        "mass": part.mass,
        "gravity": part.gravity,
        "fixed": fixed,
    }


def _joint(joint: PartJoint, part: Part, names: dict[str, str]) -> dict[str, Any]:
    return {
        "name": joint.name,
        "plain": names[joint.name],
        "link": part.name,
        "kind": joint.kind,
        "lower": finite(joint.lower),
        "upper": finite(joint.upper),
        "home": joint.home,
        "servo": None if joint.kp == 0 else {"kp": joint.kp, "kv": joint.kv, "force": finite(joint.force)},
        "command": [finite(v) for v in joint.command],
        "damping": joint.damping,
        "armature": joint.armature,
        "friction": joint.dry_friction,
    }


def _thing(thing: Thing, names: dict[str, str]) -> dict[str, Any]:
    return {
        "name": thing.name,
        "plain": names[thing.name],
        "world_from_thing": thing.world_from_thing.tolist(),
        "lifted": thing.lift,
        "mass": thing.mass,
        "density": thing.source,
        "friction": thing.friction,
        "friction_source": "assumed, not measured",
        "pieces": len(thing.pieces),
    }


def _camera(cargo: Cargo, name: str) -> dict[str, Any]:
    camera = cargo.rig.cameras[name]
    pinhole = camera.pinhole()
    gain = cargo.scene.colour.get(name)
    return {
        "width": pinhole.width, "height": pinhole.height, "fx": pinhole.fx, "fy": pinhole.fy,
        "cx": pinhole.cx, "cy": pinhole.cy, "cam_from_world": pinhole.cam_from_world.tolist(),
        "role": cargo.rig.roles[name],
        "colour": None if gain is None else {"matrix": np.asarray(gain[0]).tolist(),
                                             "offset": np.asarray(gain[1]).tolist()},
    }  # fmt: skip


def finite(value: float) -> float | None:
    """The number, or None for what has no limit: JSON knows no infinity."""
    return float(value) if math.isfinite(value) else None
