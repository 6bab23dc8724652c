"""Load this folder in SAPIEN 3 (RoboTwin, ManiSkill 3):  python sapien_scene.py [--seconds 2]

    from sapien_scene import Bench
    bench = Bench(".")                     # or Bench(".", scene=env.scene.sub_scenes[0]) in a ManiSkill environment
    bench.command({"joint1": 0.3})
    bench.step(0.5)
    poses = bench.poses()                  # name -> world_from_link [4, 4]: what draw.Pictures wants

Where SAPIEN finds no Vulkan device the surfaces are left out and everything is simulated all the same.
"""

from __future__ import annotations

import argparse
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import sapien
from described import completed, driven, read, reset, run


class Bench:
    """The bench, the robot at rest and the bodies. Joint and link names are those of scene.json."""

    def __init__(self, folder: str | Path = ".", scene: Any = None, draws: bool | None = None) -> None:
        self.folder = Path(folder).resolve()
        self.header: dict[str, Any] = read(self.folder)
        self.draws = _can_draw() if draws is None else draws
        if scene is None:
            systems = [sapien.physx.PhysxCpuSystem()]
            if self.draws:
                systems.append(sapien.render.RenderSystem())
            scene = sapien.Scene(systems)
            scene.set_timestep(self.header["timestep"])
        self.scene = scene
        self.bench = self._load("bench", True, [self.header["bench"]["friction"]])
        self.robot = self._load("robot", True, [1.0])
        self.things = {
            thing["name"]: self._load(thing["plain"], False, [thing["friction"]]) for thing in self.header["things"]
        }
        joints = {joint.name: joint for joint in self.robot.get_active_joints()}
        self.joints = {entry["name"]: joints[entry["plain"]] for entry in self.header["robot"]["joints"]}
        links = {link.name: link for link in self.robot.get_links()}
        self.links = {entry["name"]: links[entry["plain"]] for entry in self.header["robot"]["links"]}
        self._servos()
        self._never_collide()
        for entry in self.header["robot"]["links"]:
            self.links[entry["name"]].disable_gravity = entry["gravity"] == 0
        self.reset()

    def _load(self, name: str, fixed: bool, friction: list[float]) -> Any:
        loader = self.scene.create_urdf_loader()
        loader.fix_root_link = fixed
        loader.set_material(friction[0], friction[0], 0.0)
        path = self.folder / f"{name}.urdf"
        text = ET.parse(path)
        for link in text.getroot().iter("link"):
            if not self.draws:
                for visual in link.findall("visual"):
                    link.remove(visual)
        for element in text.getroot().iter("mesh"):
            element.set("filename", str(self.folder / element.get("filename", "")))
        with tempfile.TemporaryDirectory() as place:
            text.write(Path(place) / path.name)
            made = loader.load_multiple(str(Path(place) / path.name))
        # one link alone is an actor to SAPIEN, several are an articulation
        return [*made[0], *made[1]][0]

    def _servos(self) -> None:
        for name, entry in driven(self.header).items():
            servo = entry["servo"]
            if servo is not None:
                force = servo["force"] if servo["force"] is not None else 1e6
                self.joints[name].set_drive_properties(servo["kp"], servo["kv"] + entry["damping"], force)
            self.joints[name].set_armature(np.array([entry["armature"]], np.float32))

    def _never_collide(self) -> None:
        """PhysX skips pairs whose third group words share a bit; parent and child never collide anyway."""
        pairs = list(self.header["robot"]["never_collide"])
        still = [entry["name"] for entry in self.header["robot"]["links"] if entry["fixed"]]
        pairs += [[name, "bench"] for name in still]
        groups: dict[str, int] = {}
        for bit, (first, second) in enumerate(pairs[:30]):
            for name in (first, second):
                key = name if name in self.links else "bench"
                groups[key] = groups.get(key, 0) | (1 << bit)
        for name, mask in groups.items():
            for shape in self._shapes(name):
                words = shape.get_collision_groups()
                words[2] |= mask
                shape.set_collision_groups(words)

    def _shapes(self, name: str) -> list[Any]:
        if name in self.links:
            return list(self.links[name].collision_shapes)
        return [shape for link in self.bench.get_links() for shape in link.collision_shapes]

    def reset(self) -> None:
        """The robot at rest and commanded to stay, the bodies where they were recorded."""
        reset(self)

    def set_joints(self, positions: dict[str, float]) -> None:
        """Put joints somewhere, at once."""
        order = [joint.name for joint in self.robot.get_active_joints()]
        q = np.array(self.robot.get_qpos(), np.float32)
        for name, value in positions.items():
            q[order.index(self.joints[name].name)] = value
        self.robot.set_qpos(q)
        self.robot.set_qvel(np.zeros_like(q))

    def command(self, positions: dict[str, float]) -> None:
        """What the servos shall hold. Coupled joints follow unless they are named."""
        for name, value in completed(self.header, positions).items():
            self.joints[name].set_drive_target(np.array([value], np.float32))

    def set_pose(self, thing: str, world_from_thing: np.ndarray) -> None:
        """Put a body somewhere, at rest."""
        body = self.things[thing]
        body.set_pose(sapien.Pose(np.asarray(world_from_thing, np.float32)))
        rigid = _rigid(body)
        rigid.set_linear_velocity(np.zeros(3, np.float32))
        rigid.set_angular_velocity(np.zeros(3, np.float32))

    def step(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / self.header["timestep"])):
            self.scene.step()

    def poses(self) -> dict[str, np.ndarray]:
        """world_from_link and world_from_thing, [4, 4], in the frames of scene.json."""
        found = {name: link.get_entity_pose().to_transformation_matrix() for name, link in self.links.items()}
        found.update({name: body.get_pose().to_transformation_matrix() for name, body in self.things.items()})
        return found

    def masses(self) -> dict[str, tuple[float, list[float]]]:
        """Mass (kg) and principal moments (kg m^2) of every link and body."""
        bodies = {**self.links, **{name: _rigid(body) for name, body in self.things.items()}}
        return {name: (float(body.mass), [float(v) for v in body.inertia]) for name, body in bodies.items()}


def _rigid(entity: Any) -> Any:
    for kind in (sapien.physx.PhysxRigidDynamicComponent, sapien.physx.PhysxRigidStaticComponent):
        found = entity.find_component_by_type(kind) if hasattr(entity, "find_component_by_type") else None
        if found is not None:
            return found
    return entity.get_links()[0]


def _can_draw() -> bool:
    try:
        sapien.render.RenderSystem()
    except RuntimeError:
        return False
    return True


def main() -> None:
    """Step for a while and say where everything ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    bench = Bench(Path(__file__).parent)
    run(bench, options.seconds)


if __name__ == "__main__":
    main()
