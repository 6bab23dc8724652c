"""A folder that plain MuJoCo loads: `scene.xml`, the robot's meshes, the bench to hit, the rig's cameras.

Cameras keep their exact pinhole intrinsics (focal and principal point in pixels); MuJoCo's axes are OpenGL's.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recon.core.errors import InputError
from recon.core.files import write_bytes
from recon.geometry.camera import Camera
from recon.geometry.convert import opengl_from_opencv_pose
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import matrix_to_quat
from sim2real.export.cargo import Cargo
from sim2real.export.header import file_names

if TYPE_CHECKING:
    import mujoco

ABOUT = "MJCF with meshes, cameras and a key frame `rest`, for MuJoCo 4 (3.17 loads it, 3.3 does not)"
LOSSES = ("the Gaussians themselves: MuJoCo draws meshes, and the bench as the boxes that are hit",)
HOW_TO_OPEN = "python -m mujoco.viewer --mjcf={out}/scene.xml"
SENSOR = 0.005  # m, a nominal sensor width: MuJoCo wants one, pixels decide


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder and check that it loads.

    Raises:
        InputError: a file of the robot is missing, or the result is not the model that was meant.
    """
    spec = cargo.world.spec.copy()
    copy_assets(spec, folder, Path(cargo.world.spec.modelfiledir or "."))
    _name_piece_files(spec, cargo, folder)
    for camera in cargo.rig.cameras.values():
        _add_camera(spec, camera.pinhole())
    spec.worldbody.add_light(name="ceiling", pos=[0, 0, 2.5], dir=[0, 0, -1], diffuse=[0.6, 0.6, 0.6], castshadow=False)
    width = max(camera.pinhole().width for camera in cargo.rig.cameras.values())
    height = max(camera.pinhole().height for camera in cargo.rig.cameras.values())
    spec.visual.global_.offwidth, spec.visual.global_.offheight = width, height
    spec.visual.map.znear, spec.visual.map.zfar = 0.005, 50.0
    spec.modelname = "scene"
    spec.stat.extent = 1.0
    _set_rest_key(spec, cargo)
    model = spec.compile()
    write_bytes(folder / "scene.xml", spec.to_xml().encode())
    _check(folder / "scene.xml", model)


def _name_piece_files(spec: mujoco.MjSpec, cargo: Cargo, folder: Path) -> None:
    """The bodies' pieces as OBJ files, instead of numbers inside the XML."""
    from sim2real.export.surfaces import write_obj

    for thing in cargo.things:
        for number, (vertices, faces) in enumerate(thing.pieces):
            name = f"{thing.name}_{number:02d}"
            file = f"{file_names(cargo)[thing.name]}_{number:02d}.obj"
            write_obj(folder / "meshes" / file, vertices, faces)
            mesh = spec.mesh(name)
            mesh.uservert, mesh.userface = [], []
            mesh.file = file


def copy_assets(spec: mujoco.MjSpec, stage: Path, source: Path) -> None:
    """Copy every mesh and texture beside scene.xml and name it relative to the folder. source: of the robot's files."""
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


def _set_rest_key(spec: mujoco.MjSpec, cargo: Cargo) -> None:
    """One key frame, called rest: the pose the environment starts from."""
    for key in list(spec.keys):
        spec.delete(key)
    spec.add_key(name="rest", qpos=cargo.rest_qpos, ctrl=cargo.rest_ctrl)


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
