"""A folder that plain MuJoCo loads: `scene.xml`, the robot's meshes, the bench to hit, the rig's cameras.

Cameras keep their exact pinhole intrinsics (focal and principal point in pixels); MuJoCo's axes are OpenGL's.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recon.core.errors import InputError
from recon.core.files import publishing, write_bytes
from recon.geometry.camera import Camera
from recon.geometry.convert import opengl_from_opencv_pose
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import matrix_to_quat
from sim2real.physics import World
from sim2real.workcell import open_world

if TYPE_CHECKING:
    import mujoco

    from recon.geometry.rig import Rig

LOSSES = (
    "the Gaussians themselves: MuJoCo draws the robot and the bench's collision geometry",
    "lens distortion and colour response: cameras are ideal pinholes with the same focal lengths and principal points",
    "what moved in the recording other than the robot",
)
HOW_TO_OPEN = "python -m mujoco.viewer --mjcf={out}/scene.xml"
SENSOR = 0.005  # m, a nominal sensor width: MuJoCo wants one, pixels decide


def export(scene: Path, out: Path, *, robot: Path | None = None) -> None:
    """Write the folder `out`, all or nothing, and check that it loads.

    Raises:
        InputError: the scene cannot be simulated (unknown scale, no table, no robot), or the result does not load.
    """
    world, rig = open_world(scene, robot=robot)
    spec = world.spec
    with publishing(out) as stage:
        _copy_assets(spec, stage)
        for camera in rig.cameras.values():
            _add_camera(spec, camera.pinhole())
        spec.worldbody.add_light(
            name="ceiling", pos=[0, 0, 2.5], dir=[0, 0, -1], diffuse=[0.6, 0.6, 0.6], castshadow=False
        )
        width = max(camera.pinhole().width for camera in rig.cameras.values())
        height = max(camera.pinhole().height for camera in rig.cameras.values())
        spec.visual.global_.offwidth, spec.visual.global_.offheight = width, height
        spec.visual.map.znear, spec.visual.map.zfar = 0.005, 50.0
        spec.modelname = "scene"
        spec.stat.extent = 1.0
        _set_rest_key(spec, world)
        model = spec.compile()
        write_bytes(stage / "scene.xml", spec.to_xml().encode())
        write_bytes(stage / "README.md", readme(world, rig).encode())
        _check(stage / "scene.xml", model)


def _copy_assets(spec: mujoco.MjSpec, stage: Path) -> None:
    """Copy every mesh and texture beside scene.xml and name it relative to the folder."""
    source = Path(spec.modelfiledir) if spec.modelfiledir else Path()
    taken: dict[str, Path] = {}
    for folder, directory, items in (
        ("meshes", spec.meshdir, spec.meshes),
        ("meshes", spec.meshdir, spec.hfields),
        ("textures", spec.texturedir, spec.textures),
    ):
        for item in items:
            if not item.file:
                continue
            path = next(
                (p for p in (source / directory / item.file, source / item.file, Path(item.file)) if p.is_file()), None
            )
            if path is None:
                raise InputError(f"the robot's file {item.file} was not found", why=f"looked beside {source}")
            if not item.name:
                item.name = Path(item.file).stem
            name = path.name
            if taken.setdefault(f"{folder}/{name}", path) != path:
                name = f"{len(taken)}_{name}"
                taken[f"{folder}/{name}"] = path
            item.file = name
    for name, path in taken.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, stage / name)
    spec.meshdir, spec.texturedir = "meshes", "textures"
    spec.modelfiledir = str(stage)


def _add_camera(spec: mujoco.MjSpec, camera: Camera) -> None:
    world_from_gl = invert_pose(opengl_from_opencv_pose(camera.cam_from_world))
    # MuJoCo shifts the picture, not the axis: a positive principal_pixel moves the picture left and up
    spec.worldbody.add_camera(
        name=camera.name,
        pos=world_from_gl[:3, 3],
        quat=matrix_to_quat(world_from_gl[:3, :3]),
        resolution=[camera.width, camera.height],
        sensor_size=[SENSOR, SENSOR * camera.height / camera.width],
        focal_pixel=[camera.fx, camera.fy],
        principal_pixel=[camera.width / 2 - camera.cx, camera.height / 2 - camera.cy],
    )


def _set_rest_key(spec: mujoco.MjSpec, world: World) -> None:
    """One key frame, called rest: the pose the environment starts from."""
    for key in list(spec.keys):
        spec.delete(key)
    spec.add_key(name="rest", qpos=world.arm.home_qpos, ctrl=world.arm.home_ctrl)


def _check(path: Path, expected: mujoco.MjModel) -> None:
    """The written file gives the model that was meant."""
    import mujoco

    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise InputError("the exported model does not load", why=" ".join(str(error).split())) from error
    for size in ("nq", "nu", "nbody", "ngeom", "nmesh", "ncam"):
        if getattr(model, size) != getattr(expected, size):
            raise InputError(
                "the exported model differs from what was meant",
                why=f"{size} is {getattr(model, size)}, not {getattr(expected, size)}",
            )
    if not np.allclose(model.cam_pos, expected.cam_pos, atol=1e-5):
        raise InputError("the exported model differs from what was meant", why="its cameras stand elsewhere")


def readme(world: World, rig: Rig) -> str:
    """What lies in the folder, how to open it, what is missing."""
    sides = [2 * half for half in world.bench.table.half]
    lines = [
        "# The reconstructed bench as a MuJoCo model",
        "",
        "Open it:",
        "",
        "    python -m mujoco.viewer --mjcf=scene.xml",
        "",
        "- `scene.xml`: metres, z up, world of the scene; key frame `rest` is the pose the environment starts from",
        "- `meshes/`, `textures/`: the robot's own files, copied",
        f"- body `bench_table`: top at z = {world.bench.top:.4f} m, {sides[0]:.2f} x {sides[1]:.2f} m",
        f"- body `bench_things`: {len(world.bench.boxes)} boxes around what stands on it",
        f"- cameras: {', '.join(rig.cameras)}; pinholes with exact focal lengths and principal points in pixels",
        f"- tool centre point: site `{world.arm.site}`; arm joints: {', '.join(world.arm.joints)}",
        "",
        "Not carried:",
        "",
        *(f"- {loss}" for loss in LOSSES),
        "",
    ]
    return "\n".join(lines)
