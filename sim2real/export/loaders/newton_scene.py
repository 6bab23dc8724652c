"""Load this folder in Newton (its CPU device is enough):  python newton_scene.py [--seconds 1] [--device cpu]

    from newton_scene import Bench
    bench = Bench(".")
    bench.command({"joint1": 0.3})
    bench.step(0.5)
    image = bench.picture("cam00", 0.25)   # Newton's own ray tracer, Gaussians and meshes

Physics is Newton's MuJoCo solver; bodies and links carry their Gaussians. The first use compiles kernels (a minute).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import newton
import numpy as np
import warp as wp
from described import completed, matrix, read, reset, run, xyzw


class Bench:
    """The bench, the robot at rest and the bodies. Joint and link names are those of scene.json."""

    def __init__(self, folder: str | Path = ".", device: str = "cpu", gaussians: bool = False) -> None:
        folder = Path(folder)
        self.header: dict[str, Any] = read(folder)
        builder = newton.ModelBuilder(up_axis=newton.Axis.Z)
        newton.solvers.SolverMuJoCo.register_custom_attributes(builder)
        # either Gaussians or surfaces: a surface would hide the Gaussians that lie on it
        ignored = [".*/surface.*"] if gaussians else [".*/gaussians", ".*/still"]
        builder.add_usd(str(folder / "scene.usdc"), ignore_paths=ignored)
        self._compensate_gravity(builder)
        self.model = builder.finalize(device=device)
        self.bodies = {label.rsplit("/", 1)[-1]: number for number, label in enumerate(self.model.body_label)}
        entries = [*self.header["robot"]["links"], *self.header["things"]]
        self.plain = {entry["name"]: entry["plain"] for entry in entries}
        starts = self.model.joint_q_start.numpy()
        velocities = self.model.joint_qd_start.numpy()
        joints = {label.rsplit("/", 1)[-1]: number for number, label in enumerate(self.model.joint_label)}
        self.joints = {e["name"]: int(starts[joints[e["plain"]]]) for e in self.header["robot"]["joints"]}
        self.dofs = {e["name"]: int(velocities[joints[e["plain"]]]) for e in self.header["robot"]["joints"]}
        children = self.model.joint_child.numpy().tolist()
        self.free = {t["name"]: int(starts[children.index(self.bodies[t["plain"]])]) for t in self.header["things"]}
        self._servos()
        self.solver = newton.solvers.SolverMuJoCo(self.model, use_mujoco_cpu=device == "cpu", enable_multiccd=True)
        self.state, self.next = self.model.state(), self.model.state()
        self.control = self.model.control()
        self.contacts = None
        self.reset()

    def _compensate_gravity(self, builder: Any) -> None:
        attribute = builder.custom_attributes.get("mujoco:gravcomp")
        if attribute is not None:
            shares = {e["plain"]: 1.0 - e["gravity"] for e in self.header["robot"]["links"]}
            if attribute.values is None:
                attribute.values = {}
            for number, label in enumerate(builder.body_label):
                attribute.values[number] = shares.get(label.rsplit("/", 1)[-1], 0.0)

    def _servos(self) -> None:
        """Armature, which USD has no word for."""
        armature = self.model.joint_armature.numpy()
        for entry in self.header["robot"]["joints"]:
            armature[self.dofs[entry["name"]]] = entry["armature"]
        self.model.joint_armature.assign(armature)

    def reset(self) -> None:
        """The robot at rest and commanded to stay, the bodies where they were recorded."""
        reset(self)

    def set_joints(self, positions: dict[str, float]) -> None:
        """Put joints somewhere, at once."""
        q = self.state.joint_q.numpy()
        for name, value in positions.items():
            q[self.joints[name]] = value
        self._place(q)

    def _place(self, q: np.ndarray) -> None:
        self.state.joint_q.assign(q)
        self.state.joint_qd.zero_()
        newton.eval_fk(self.model, self.state.joint_q, self.state.joint_qd, self.state)

    def command(self, positions: dict[str, float]) -> None:
        """What the servos shall hold. Coupled joints follow unless they are named."""
        whole = completed(self.header, positions)
        name = "joint_target_q" if hasattr(self.control, "joint_target_q") else "joint_target_pos"
        target = getattr(self.control, name)
        values = target.numpy()
        places = self.joints if len(values) == self.model.joint_coord_count and name.endswith("_q") else self.dofs
        for joint, value in whole.items():
            values[places[joint]] = value
        target.assign(values)

    def set_pose(self, thing: str, world_from_thing: np.ndarray) -> None:
        """Put a body somewhere, at rest."""
        q = self.state.joint_q.numpy()
        start = self.free[thing]
        q[start : start + 3] = world_from_thing[:3, 3]
        q[start + 3 : start + 7] = xyzw(world_from_thing[:3, :3])
        self._place(q)

    def step(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / self.header["timestep"])):
            self.state.clear_forces()
            self.solver.step(self.state, self.next, self.control, self.contacts, self.header["timestep"])
            self.state, self.next = self.next, self.state

    def poses(self) -> dict[str, np.ndarray]:
        """world_from_link and world_from_thing, [4, 4], in the frames of scene.json."""
        rows = self.state.body_q.numpy()
        return {name: matrix(rows[b][:3], rows[b][3:]) for name, b in self._rows().items()}

    def masses(self) -> dict[str, tuple[float, list[float]]]:
        """Mass (kg) and principal moments (kg m^2) of every link and body."""
        mass, inertia = self.model.body_mass.numpy(), self.model.body_inertia.numpy()
        moments = {n: np.linalg.eigvalsh(inertia[b].reshape(3, 3)).tolist() for n, b in self._rows().items()}
        return {n: (float(mass[b]), moments[n]) for n, b in self._rows().items()}

    def _rows(self) -> dict[str, int]:
        return {name: self.bodies[plain] for name, plain in self.plain.items()}

    def picture(self, camera: str, scale: float = 1.0) -> np.ndarray:
        """uint8 [H, W, 3] by Newton's ray tracer. Load with gaussians=True to see them."""
        from newton.sensors import SensorCamera

        entry = self.header["cameras"][camera]
        width, height = round(scale * entry["width"]), round(scale * entry["height"])
        sensor = SensorCamera(self.model)
        rays = SensorCamera.compute_camera_rays_pinhole_opencv(
            width, height, *(scale * entry[k] for k in ("fx", "fy", "cx", "cy")), device=self.model.device
        )
        # Newton looks along -z with y up
        pose = np.linalg.inv(np.array(entry["cam_from_world"])) @ np.diag([1.0, -1.0, -1.0, 1.0])
        where = wp.transformf(*pose[:3, 3].tolist(), *xyzw(pose[:3, :3]))
        image = sensor.allocate_image_color(1, width, height)
        self.model.bvh_refit_shapes(self.state)
        sensor.update(self.state, wp.array([where], dtype=wp.transformf, device=self.model.device), rays,
                      color_image=image)  # fmt: skip
        packed = image.numpy()[0]
        return np.stack([(packed >> shift) & 255 for shift in (0, 8, 16)], axis=-1).astype(np.uint8)


def main() -> None:
    """Step for a while and say where everything ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    bench = Bench(Path(__file__).parent, options.device)
    run(bench, options.seconds)


if __name__ == "__main__":
    main()
