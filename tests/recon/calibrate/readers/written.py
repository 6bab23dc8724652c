"""A rig written in other people's formats, plainly, from the formats' descriptions. Pixels, axes, units are theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pycolmap

from recon.geometry.camera import Camera
from recon.geometry.lens import FISHEYE
from recon.geometry.pose import invert_pose, look_at
from recon.geometry.rig import Rig

BARREL = (-0.14, 0.03, 0.001, -0.002, 0.004)


def rig(distortion: tuple[float, ...] = BARREL, lens: str = "brown", units: str = "unknown") -> Rig:
    """Three cameras named as recordings are, that differ in every number."""
    cameras = {}
    for k, name in enumerate(("cam00", "cam01", "cam02")):
        eye = np.array([1.5 * np.cos(k), 1.5 * np.sin(k), 0.8 + 0.1 * k])
        pose = look_at(eye, np.array([0.0, 0.1, 0.2]))
        cameras[name] = Camera(name, 640, 480, 500.0 + k, 502.0 + k, 318.3, 241.9, distortion, pose, lens)
    return Rig(cameras, units=units)


def opencv_k(camera: Camera) -> np.ndarray:
    """K with the first pixel's centre at (0, 0)."""
    return np.asarray(camera.K - [[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])


def colmap(folder: Path, source: Rig, text: bool = False, name: Callable[[str], str] = "{}.png".format) -> Path:
    """A model by pycolmap itself."""
    model = pycolmap.Reconstruction()
    for number, camera in enumerate(source.cameras.values(), start=1):
        k = [camera.fx, camera.fy, camera.cx, camera.cy]
        if camera.lens == FISHEYE:
            kind, params = "OPENCV_FISHEYE", [*k, *camera.distortion]
        elif camera.distortion[4]:
            kind, params = "FULL_OPENCV", [*k, *camera.distortion, 0.0, 0.0, 0.0]
        elif any(camera.distortion):
            kind, params = "OPENCV", [*k, *camera.distortion[:4]]
        else:
            kind, params = "PINHOLE", k
        theirs = pycolmap.Camera(model=kind, width=camera.width, height=camera.height, params=params, camera_id=number)
        model.add_camera_with_trivial_rig(theirs)
        image = pycolmap.Image(name=name(camera.name), camera_id=number, image_id=number)
        image.points2D = pycolmap.Point2DList([pycolmap.Point2D(np.array([1.0, 2.0]))] * number)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(camera.cam_from_world[:3]))
    folder.mkdir(parents=True, exist_ok=True)
    (model.write_text if text else model.write_binary)(str(folder))
    return folder


def nerfstudio(path: Path, source: Rig) -> Path:
    """transforms.json whose world was turned by an applied_transform, as ns-process-data does."""
    applied = np.array([[0.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]])
    frames = []
    for camera in source.cameras.values():
        opengl = invert_pose(camera.cam_from_world) @ np.diag([1.0, -1.0, -1.0, 1.0])
        names = ("k1", "k2", "k3", "k4") if camera.lens == FISHEYE else ("k1", "k2", "p1", "p2", "k3")
        frame = {"file_path": f"images/{camera.name}.png", "transform_matrix": (applied @ opengl).tolist()}
        frame |= {"fl_x": camera.fx, "fl_y": camera.fy, "cx": camera.cx, "cy": camera.cy}
        frames.append(frame | dict(zip(names, camera.distortion, strict=True)))
    model = "OPENCV_FISHEYE" if next(iter(source.cameras.values())).lens == FISHEYE else "OPENCV"
    shared = {"camera_model": model, "w": 640, "h": 480, "applied_transform": applied[:3].tolist()}
    path.write_text(json.dumps({**shared, "frames": frames}))
    return path


def opencv_files(folder: Path, source: Rig, suffix: str = "yml") -> Path:
    """One file per camera, by cv::FileStorage."""
    folder.mkdir(parents=True, exist_ok=True)
    for camera in source.cameras.values():
        storage = cv2.FileStorage(str(folder / f"{camera.name}.{suffix}"), cv2.FILE_STORAGE_WRITE)
        storage.write("image_width", camera.width)
        storage.write("image_height", camera.height)
        storage.write("camera_matrix", opencv_k(camera))
        storage.write("distortion_coefficients", np.array([camera.distortion]))
        if camera.lens == FISHEYE:
            storage.write("model", "fisheye")
        storage.write("R", camera.cam_from_world[:3, :3])
        storage.write("T", camera.cam_from_world[:3, 3:])
        storage.release()
    return folder


def easymocap(folder: Path, source: Rig) -> Path:
    """intri.yml and extri.yml, by cv::FileStorage; picture sizes are not said."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, keys in (("intri.yml", ("K", "dist")), ("extri.yml", ("R", "Rot", "T"))):
        storage = cv2.FileStorage(str(folder / file), cv2.FILE_STORAGE_WRITE)
        storage.startWriteStruct("names", cv2.FileNode_SEQ)
        for name in source.cameras:
            storage.write("", name)
        storage.endWriteStruct()
        for name, camera in source.cameras.items():
            rotation = camera.cam_from_world[:3, :3]
            values = {"K": opencv_k(camera), "dist": np.array([camera.distortion]), "Rot": rotation}
            values |= {"R": cv2.Rodrigues(rotation)[0], "T": camera.cam_from_world[:3, 3:]}
            for key in keys:
                storage.write(f"{key}_{name}", values[key])
        storage.release()
    return folder


def by_serial(path: Path, source: Rig, key: str = "extrinsics") -> Path:
    """One plain YAML for all cameras, 4x4 world_from_camera poses under `key`, as assembly benches are calibrated."""
    lines = []
    for name, camera in source.cameras.items():
        pose = invert_pose(camera.cam_from_world)
        lines += [f"'{name}':", f"  {key}:", *_rows(pose, "  "), "  intrinsics:", "    D:"]
        lines += [f"    - {value!r}" for value in camera.distortion]
        lines += ["    K:", *_rows(opencv_k(camera), "    "), "  master: false"]
    path.write_text("\n".join(lines) + "\n")
    return path


def _rows(matrix: np.ndarray, indent: str) -> list[str]:
    return [
        f"{indent}{'- ' if column == 0 else '  '}- {float(value)!r}"
        for row in matrix
        for column, value in enumerate(row)
    ]


def caliscope(path: Path, source: Rig) -> Path:
    """camera_array.toml; cameras are numbered."""
    lines = []
    for number, camera in enumerate(source.cameras.values()):
        lines += [f"[cameras.{number}]", f"cam_id = {number}", "ignore = false", "size = [640, 480]"]
        lines += [f"fisheye = {str(camera.lens == FISHEYE).lower()}", f"matrix = {opencv_k(camera).tolist()}"]
        lines += [f"distortions = {list(camera.distortion)}", f"rotation = {camera.cam_from_world[:3, :3].tolist()}"]
        lines += [f"translation = {camera.cam_from_world[:3, 3].tolist()}", ""]
    path.write_text("\n".join(lines))
    return path


def qualisys(path: Path, source: Rig) -> Path:
    """A .qca.txt: 64ths of pixels, millimetres, x right, y up, z backward."""
    cameras = []
    for name, camera in source.cameras.items():
        k, centre = 64 * opencv_k(camera), 1000 * camera.center
        rotation = np.diag([1.0, -1.0, -1.0]) @ camera.cam_from_world[:3, :3]
        turn = " ".join(f'r{i + 1}{j + 1}="{float(rotation[i, j])!r}"' for i in range(3) for j in range(3))
        place = " ".join(f'{axis}="{float(value)!r}"' for axis, value in zip("xyz", centre, strict=True))
        k1, k2, p1, p2, k3 = camera.distortion
        lens = f'radialDistortion1="{k1}" radialDistortion2="{k2}" radialDistortion3="{k3}" skew="0.000000"'
        lens += f' tangentalDistortion1="{p1}" tangentalDistortion2="{p2}"'
        lens += f' focalLengthU="{k[0, 0]}" focalLengthV="{k[1, 1]}" centerPointU="{k[0, 2]}" centerPointV="{k[1, 2]}"'
        fov = '<fov_video left="0" top="0" right="639" bottom="479"/>'
        cameras.append(
            f'<camera active="1" serial="{name}">{fov}<transform {turn} {place}/><intrinsic {lens}/></camera>'
        )
    path.write_text(f'<?xml version="1.0"?>\n<calibration><cameras>{"".join(cameras)}</cameras></calibration>\n')
    return path


def middlebury(path: Path, source: Rig) -> Path:
    """A *_par.txt of pictures; no distortion."""
    lines = [str(len(source.cameras))]
    for name, camera in source.cameras.items():
        values = [*opencv_k(camera).ravel(), *camera.cam_from_world[:3, :3].ravel(), *camera.cam_from_world[:3, 3]]
        lines.append(" ".join([f"{name}.png", *(repr(float(v)) for v in values)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def pairs(folder: Path, source: Rig) -> Path:
    """c0.dat with the lens and rot_trans_c0.dat with the pose, and a second pose there that is between cameras."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, camera in enumerate(source.cameras.values()):
        lens = ["intrinsic:", _table(opencv_k(camera)), "distortion:", _table(np.array([camera.distortion]))]
        pose = ["R:", _table(camera.cam_from_world[:3, :3]), "T:", _table(camera.cam_from_world[:3, 3:])]
        (folder / f"c{number}.dat").write_text("\n".join(lens) + "\n")
        text = "\n".join([*pose, "", "#between cameras", "R:", _table(np.eye(3)), "T:", "0 0 0"])
        (folder / f"rot_trans_c{number}.dat").write_text(text + "\n")
    return folder


def _table(matrix: np.ndarray) -> str:
    return "\n".join(" ".join(repr(float(value)) for value in row) + " " for row in matrix)
