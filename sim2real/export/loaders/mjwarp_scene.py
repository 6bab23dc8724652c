"""Load this folder in MuJoCo Warp with its Gaussians:  python mjwarp_scene.py [--camera cam00] [--scale 0.25]

MuJoCo Warp ray-traces on a GPU; on a CPU it works, slowly. Its Gaussians stand still in the world: `Splats.at` gives
those of links and bodies where a simulation has them, and mujoco_warp.refit_splat_bvh takes them over.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

UNSEEN = 5  # a group of geoms


class Splats:
    """splats.npz: position [N, 3] m, rotation [N, 4] wxyz, scale [N, 3] m, rgba [N, 4], each in its carrier's frame.

    group [N]: index into `carriers`; 0 is the world.
    """

    def __init__(self, folder: str | Path = ".") -> None:
        with np.load(Path(folder) / "splats.npz", allow_pickle=False) as file:
            self.position, self.rotation, self.scale = file["position"], file["rotation"], file["scale"]
            self.rgba, self.group = file["rgba"], file["group"]
        header: dict[str, Any] = json.loads((Path(folder) / "scene.json").read_text(encoding="utf-8"))
        self.carriers: list[str] = header["splat_groups"]

    def at(self, model: mujoco.MjModel, data: mujoco.MjData) -> dict[str, np.ndarray]:
        """The arguments of mujoco_warp.create_render_context, bodies where `data` has them."""
        bodies = np.array([0, *(model.body(name).id for name in self.carriers[1:])])[self.group]
        turn = data.xmat[bodies].reshape(-1, 3, 3)
        quat = data.xquat[bodies]
        w0, x0, y0, z0 = quat.T
        w1, x1, y1, z1 = self.rotation.T
        # q' = q_body q (Hamilton)
        turned = np.stack(
            [
                w0 * w1 - x0 * x1 - y0 * y1 - z0 * z1,
                w0 * x1 + x0 * w1 + y0 * z1 - z0 * y1,
                w0 * y1 - x0 * z1 + y0 * w1 + z0 * x1,
                w0 * z1 + x0 * y1 - y0 * x1 + z0 * w1,
            ],
            axis=1,
        )
        position = np.einsum("nij,nj->ni", turn, self.position) + data.xpos[bodies]
        return {
            "splat_position": position.astype(np.float32),
            "splat_rotation": turned.astype(np.float32),
            "splat_scale": self.scale,
            "splat_rgba": self.rgba,
        }


def picture(folder: str | Path, camera: str, scale: float = 1.0, meshes: bool = False) -> np.ndarray:
    """uint8 [H, W, 3] of the scene at rest by MuJoCo Warp. meshes: draw MuJoCo's geoms too, over what they hide."""
    import mujoco_warp

    spec = mujoco.MjSpec.from_file(str(Path(folder) / "scene.xml"))
    # MuJoCo Warp 4.0.0 ends with a memory fault where there is no geom at all to draw: one that nothing sees
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[1e-3, 0, 0], pos=[0, 0, -100], group=UNSEEN,
                            contype=0, conaffinity=0)  # fmt: skip
    model = spec.compile()
    data = mujoco.MjData(model)
    model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # a flag MuJoCo Warp does not know
    mujoco.mj_resetDataKeyframe(model, data, model.key("rest").id)
    mujoco.mj_forward(model, data)
    index = model.camera(camera).id
    width, height = (round(scale * v) for v in model.cam_resolution[index].tolist())
    model.cam_resolution[index] = (width, height)
    # pixels of this picture: focal lengths and principal points are kept in metres on the sensor
    context = mujoco_warp.create_render_context(
        model, nworld=1, cam_res=(width, height), render_rgb=True, cam_active=[index],
        enabled_geom_groups=[0, 1, 2, UNSEEN] if meshes else [UNSEEN], **Splats(folder).at(model, data),
    )  # fmt: skip
    on_device, state = mujoco_warp.put_model(model), mujoco_warp.put_data(model, data)
    mujoco_warp.kinematics(on_device, state)
    mujoco_warp.camlight(on_device, state)
    mujoco_warp.refit_bvh(on_device, state, context)
    mujoco_warp.render(on_device, state, context)
    packed = context.rgb_data.numpy()[0].reshape(height, width)
    return np.stack([(packed >> shift) & 255 for shift in (16, 8, 0)], axis=-1).astype(np.uint8)


def main() -> None:
    """Draw one camera's picture into a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--camera", default="")
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--out", type=Path, default=Path("picture.npy"))
    options = parser.parse_args()
    folder = Path(__file__).parent
    header = json.loads((folder / "scene.json").read_text(encoding="utf-8"))
    name = options.camera or next(iter(header["cameras"]))
    np.save(options.out, picture(folder, name, options.scale), allow_pickle=False)
    print(f"{options.out}: {name}")


if __name__ == "__main__":
    main()
