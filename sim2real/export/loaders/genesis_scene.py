"""Load this folder in Genesis 1.4:  python genesis_scene.py [--viewer] [--seconds 1]

    from genesis_scene import Bench
    bench = Bench(".")
    bench.command({"joint1": 0.3})
    bench.step(0.5)
    poses = bench.poses()          # name -> world_from_link [4, 4]: what draw.Pictures wants

Genesis compiles its kernels on the first use, which takes minutes on a CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import genesis as gs
import numpy as np
from described import completed, driven, matrix, read, reset, run, xyzw


class Bench:
    """The bench, the robot at rest and the bodies. Joint and link names are those of scene.json."""

    def __init__(self, folder: str | Path = ".", viewer: bool = False, backend: Any = None) -> None:
        folder = Path(folder)
        self.header: dict[str, Any] = read(folder)
        if not gs._initialized:
            gs.init(backend=gs.cpu if backend is None else backend, logging_level="warning", precision="64")
        options = gs.options.SimOptions(dt=self.header["timestep"], gravity=tuple(self.header["gravity"]))
        self.scene = gs.Scene(show_viewer=viewer, sim_options=options)
        compensated = all(entry["gravity"] == 0 for entry in self.header["robot"]["links"])
        self.bench = self._load(folder / "bench.urdf", True, self.header["bench"]["friction"], 0.0)
        self.robot = self._load(folder / "robot.urdf", True, 1.0, float(compensated))
        self.things = {
            thing["name"]: self._load(folder / f"{thing['plain']}.urdf", False, thing["friction"], 0.0)
            for thing in self.header["things"]
        }
        self.scene.build()
        self.joints = {e["name"]: self.robot.get_joint(e["plain"]) for e in self.header["robot"]["joints"]}
        self.links = {e["name"]: self.robot.get_link(e["plain"]) for e in self.header["robot"]["links"]}
        self._servos()
        self.reset()

    def _load(self, path: Path, fixed: bool, friction: float, compensation: float) -> Any:
        # every hull is convex already, and fixed links keep their names
        morph = gs.morphs.URDF(file=str(path), fixed=fixed, merge_fixed_links=False, decimate=False, align=False)
        material = gs.materials.Rigid(friction=max(friction, 0.01), gravity_compensation=compensation)
        return self.scene.add_entity(morph, material=material)

    def _servos(self) -> None:
        for name, entry in driven(self.header).items():
            dofs = self.joints[name].dofs_idx_local
            servo = entry["servo"]
            self.robot.set_dofs_armature([entry["armature"]], dofs)
            if servo is not None:
                self.robot.set_dofs_kp([servo["kp"]], dofs)
                self.robot.set_dofs_kv([servo["kv"]], dofs)
                if servo["force"] is not None:
                    self.robot.set_dofs_force_range([-servo["force"]], [servo["force"]], dofs)

    def reset(self) -> None:
        """The robot at rest and commanded to stay, the bodies where they were recorded."""
        reset(self)

    def set_joints(self, positions: dict[str, float]) -> None:
        """Put joints somewhere, at once."""
        for name, value in positions.items():
            self.robot.set_dofs_position([value], self.joints[name].dofs_idx_local)

    def command(self, positions: dict[str, float]) -> None:
        """What the servos shall hold. Coupled joints follow unless they are named."""
        for name, value in completed(self.header, positions).items():
            self.robot.control_dofs_position([value], self.joints[name].dofs_idx_local)

    def set_pose(self, thing: str, world_from_thing: np.ndarray) -> None:
        """Put a body somewhere, at rest."""
        x, y, z, w = xyzw(world_from_thing[:3, :3])
        self.things[thing].set_qpos([*world_from_thing[:3, 3].tolist(), w, x, y, z])

    def step(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / self.header["timestep"])):
            self.scene.step()

    def poses(self) -> dict[str, np.ndarray]:
        """world_from_link and world_from_thing, [4, 4], in the frames of scene.json."""
        bodies = {**self.links, **{name: entity.links[0] for name, entity in self.things.items()}}
        quats = {name: _array(link.get_quat()) for name, link in bodies.items()}  # w x y z
        return {n: matrix(_array(link.get_pos()), np.roll(quats[n], -1)) for n, link in bodies.items()}

    def masses(self) -> dict[str, tuple[float, list[float]]]:
        """Mass (kg) and principal moments (kg m^2) of every link and body."""
        bodies = {name: (self.robot, link.idx_local) for name, link in self.links.items()}
        bodies.update({name: (entity, 0) for name, entity in self.things.items()})
        found = {}
        for name, (entity, number) in bodies.items():
            inertia = _array(entity.get_links_inertia()).reshape(-1, 3, 3)[number]
            mass = float(_array(entity.get_links_mass()).reshape(-1)[number])
            found[name] = (mass, np.linalg.eigvalsh(inertia).tolist())
        return found


def _array(tensor: Any) -> np.ndarray:
    array: np.ndarray = np.asarray(tensor.cpu() if hasattr(tensor, "cpu") else tensor, float)
    return array[0] if array.ndim == 2 and len(array) == 1 else array


def main() -> None:
    """Step for a while and say where everything ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--viewer", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    bench = Bench(Path(__file__).parent, options.viewer)
    run(bench, options.seconds)


if __name__ == "__main__":
    main()
