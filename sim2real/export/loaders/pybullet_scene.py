"""Load this folder in PyBullet:  python pybullet_scene.py [--gui] [--seconds 2]

from pybullet_scene import Bench
bench = Bench(".", gui=False)
bench.command({"joint1": 0.3})
bench.step(0.5)
poses = bench.poses()          # name -> world_from_link [4, 4]: what draw.Pictures wants
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pybullet as p
from described import completed, matrix, read, reset, run, xyzw


class Bench:
    """The bench, the robot at rest and the bodies. Joint and link names are those of scene.json."""

    def __init__(self, folder: str | Path = ".", gui: bool = False) -> None:
        folder = Path(folder)
        self.header: dict[str, Any] = read(folder)
        self.client = p.connect(p.GUI if gui else p.DIRECT)
        p.setGravity(*self.header["gravity"], physicsClientId=self.client)
        p.setTimeStep(self.header["timestep"], physicsClientId=self.client)
        exact = p.URDF_USE_INERTIA_FROM_FILE
        inside = exact | p.URDF_USE_SELF_COLLISION
        self.bench = self._load(folder / "bench.urdf", exact, True)
        self.robot = self._load(folder / "robot.urdf", inside, True)
        self.things = {}
        for thing in self.header["things"]:
            self.things[thing["name"]] = self._load(folder / f"{thing['plain']}.urdf", exact, False)
        self.joints, self.links = {}, {}
        named = {joint["plain"]: joint["name"] for joint in self.header["robot"]["joints"]}
        plain = {link["plain"]: link["name"] for link in self.header["robot"]["links"]}
        for number in range(p.getNumJoints(self.robot, physicsClientId=self.client)):
            info = p.getJointInfo(self.robot, number, physicsClientId=self.client)
            if info[1].decode() in named:
                self.joints[named[info[1].decode()]] = number
            link = info[12].decode()
            if link in plain:
                self.links[plain[link]] = number
        self._never_collide()
        self.reset()

    def _load(self, path: Path, flags: int, fixed: bool) -> int:
        return int(p.loadURDF(str(path), useFixedBase=fixed, flags=flags, physicsClientId=self.client))

    def _never_collide(self) -> None:
        links = {**self.links}
        names = list(links)
        # MuJoCo lets no link collide with its parent, nor what the world carries with the bench
        pairs = [*self.header["robot"]["never_collide"]]
        pairs += [[e["name"], e["parent"]] for e in self.header["robot"]["links"] if e["parent"]]
        for first, second in pairs:
            if first in names and second in names:
                p.setCollisionFilterPair(
                    self.robot, self.robot, links[first], links[second], 0, physicsClientId=self.client
                )
            elif first in names or second in names:  # the other one is the bench
                link = links[first if first in names else second]
                p.setCollisionFilterPair(self.robot, self.bench, link, 0, 0, physicsClientId=self.client)
        for entry in self.header["robot"]["links"]:
            if entry["fixed"]:
                p.setCollisionFilterPair(
                    self.robot, self.bench, links[entry["name"]], 0, 0, physicsClientId=self.client
                )

    def reset(self) -> None:
        """The robot at rest and commanded to stay, the bodies where they were recorded."""
        reset(self)

    def set_joints(self, positions: dict[str, float]) -> None:
        """Put joints somewhere, at once."""
        for name, value in positions.items():
            p.resetJointState(self.robot, self.joints[name], value, physicsClientId=self.client)

    def command(self, positions: dict[str, float]) -> None:
        """Position servos: Bullet's own, as strong as the robot's. Coupled joints follow unless they are named."""
        positions = completed(self.header, positions)
        for joint in self.header["robot"]["joints"]:
            if joint["name"] in positions:
                force = (joint["servo"] or {}).get("force")
                p.setJointMotorControl2(
                    self.robot, self.joints[joint["name"]], p.POSITION_CONTROL, positions[joint["name"]],
                    force=1000.0 if force is None else force, physicsClientId=self.client,
                )  # fmt: skip

    def set_pose(self, thing: str, world_from_thing: np.ndarray) -> None:
        """Put a body somewhere, at rest."""
        body = self.things[thing]
        # Bullet places the frame of the inertia
        inner = p.getDynamicsInfo(body, -1, physicsClientId=self.client)[3:5]
        position, turn = p.multiplyTransforms(world_from_thing[:3, 3].tolist(), xyzw(world_from_thing[:3, :3]), *inner)
        p.resetBasePositionAndOrientation(body, position, turn, physicsClientId=self.client)
        p.resetBaseVelocity(body, [0, 0, 0], [0, 0, 0], physicsClientId=self.client)

    def step(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / self.header["timestep"])):
            p.stepSimulation(physicsClientId=self.client)

    def poses(self) -> dict[str, np.ndarray]:
        """world_from_link and world_from_thing, [4, 4], in the frames of scene.json."""
        found = {}
        for name, number in self.links.items():
            state = p.getLinkState(self.robot, number, computeForwardKinematics=True, physicsClientId=self.client)
            found[name] = matrix(state[4], state[5])
        for name, body in self.things.items():
            position, turn = p.getBasePositionAndOrientation(body, physicsClientId=self.client)
            inner = p.getDynamicsInfo(body, -1, physicsClientId=self.client)[3:5]
            found[name] = matrix(*p.multiplyTransforms(position, turn, *p.invertTransform(*inner)))
        return found

    def masses(self) -> dict[str, tuple[float, list[float]]]:
        """Mass (kg) and principal moments (kg m^2) of every link and body."""
        bodies = {name: (self.robot, number) for name, number in self.links.items()}
        bodies.update({name: (body, -1) for name, body in self.things.items()})
        found = {}
        for name, (body, number) in bodies.items():
            info = p.getDynamicsInfo(body, number, physicsClientId=self.client)
            found[name] = (float(info[0]), [float(v) for v in info[2]])
        return found


def main() -> None:
    """Step for a while and say where everything ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gui", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    bench = Bench(Path(__file__).parent, options.gui)
    run(bench, options.seconds)


if __name__ == "__main__":
    main()
