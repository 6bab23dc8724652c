"""The capture behind a scene as a data set of other people's trainers: nerfstudio's or COLMAP's layout.

    images/<camera>/<frame>.png   as recorded (distorted); images/timestamps.csv  camera, file, time_s
    nerfstudio   transforms.json: per frame world_from_cam in OpenGL axes, lens, time in seconds; points.ply
    colmap       sparse/0/cameras.txt, images.txt, points3D.txt

Poses are in the scene's world. The points are Gaussians that stand still.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from recon.capture.session import Capture, open_capture
from recon.core.errors import StorageError, UsageError
from recon.core.events import Artifact, Event, Message, Progress, StageFinished, StageStarted
from recon.core.files import publishing, write_bytes, write_json
from recon.geometry.camera import Camera
from recon.geometry.convert import OPENCV_FROM_OPENGL
from recon.geometry.lens import COEFFICIENTS, FISHEYE
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import matrix_to_quat
from recon.geometry.rig import Rig
from recon.geometry.sh import sh0_to_rgb
from recon.scene.gaussians import STATIC
from recon.scene.scene import Scene

LAYOUTS = ("nerfstudio", "colmap")
MAX_POINTS = 100_000
MAX_PICTURES = 200_000
SOLID = 0.5  # opacity of a Gaussian that makes a point


def export_dataset(
    scene: Scene, layout: str, videos: Path | None, out: Path, instant: float | None, every: int
) -> Iterator[Event]:
    """Write the folder `out` (whole or not at all); yields progress.

    instant: only the frame of each camera nearest to it, in seconds. every: else only each so many-th frame.
    Raises UsageError without recordings or when `out` exists.
    """
    if videos is None:
        raise UsageError(f"--to {layout} needs the recordings", fix="Name their folder with --videos.")
    if every < 1:
        raise UsageError(f"--every {every}", why="a whole number from 1 is needed")
    rig = scene.rig.transformed(scene.scene_from_rig)
    unit = "" if scene.metric else " (their unit is unknown)"
    yield Message("info", f"poses in the scene's world{unit}; pictures as recorded, with their lenses' distortion")
    lost = ["what moves but for the pictures of it", "the Gaussians: those that stand still become points"]
    for text in (*lost, *(["the cameras' own colours"] if scene.colour else [])):
        yield Message("warning", f"{layout} cannot carry {text}")
    with open_capture(videos, scene.rig, role=None, min_cameras=1) as capture:
        yield from capture.messages
        frames = {name: _chosen(stream.times, instant, every) for name, stream in capture.cameras.items()}
        total = sum(map(len, frames.values()))
        if total > MAX_PICTURES:
            raise UsageError(
                f"{total} pictures, at most {MAX_PICTURES} are written", fix="Leave some out with --every."
            )
        started = time.monotonic()
        yield StageStarted("export", total)
        with publishing(out, overwrite=False) as stage:
            done = 0
            for name, chosen in frames.items():
                _pictures(capture, name, chosen, stage / "images" / name)
                done += len(chosen)
                yield Progress("export", done, total)
            _times(capture, frames, stage / "images" / "timestamps.csv")
            points, colours = _points(scene)
            write = _nerfstudio if layout == "nerfstudio" else _colmap
            write(rig, capture, frames, points, colours, stage)
    yield StageFinished("export", time.monotonic() - started, {"pictures": float(total), "points": float(len(points))})
    yield Artifact("dataset", out)


def _chosen(times: np.ndarray, instant: float | None, every: int) -> list[int]:
    if instant is not None:
        return [int(np.abs(times - instant).argmin())]
    return list(range(0, len(times), every))


def _pictures(capture: Capture, name: str, chosen: list[int], folder: Path) -> None:
    folder.mkdir(parents=True)
    wanted = set(chosen)
    stream = capture.cameras[name]
    pictures = ((k, stream.read(k)) for k in chosen) if len(wanted) < len(stream) / 8 else stream.iterate()
    for k, picture in pictures:
        if k in wanted:
            path = folder / f"{k:06d}.png"
            if not cv2.imwrite(str(path), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, 1]):
                raise StorageError(f"cannot write {path}", fix="Is the disk full?")
            wanted.discard(k)
    chosen[:] = [k for k in chosen if k not in wanted]  # frames that cannot be decoded are passed over


def _times(capture: Capture, frames: dict[str, list[int]], path: Path) -> None:
    lines = ["camera,file,time_s"]
    for name, chosen in frames.items():
        lines += [f"{name},{k:06d}.png,{float(capture.cameras[name].times[k])!r}" for k in chosen]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def _points(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """(positions [P, 3] float32, colours [P, 3] uint8) of solid Gaussians that stand still, evenly chosen."""
    g = scene.gaussians
    rows = ((g.kind == STATIC) & (g.logit_opacities.sigmoid() >= SOLID)).nonzero()[:, 0]
    rows = rows[:: max(1, -(-len(rows) // MAX_POINTS))]
    colours = np.clip(sh0_to_rgb(g.sh[rows, 0].detach().cpu().numpy()), 0, 1)
    return g.means[rows].detach().cpu().float().numpy(), np.rint(255 * colours).astype(np.uint8)


def _lens(camera: Camera) -> tuple[str, list[float]]:
    """COLMAP's model and its parameters after fx fy cx cy."""
    if camera.lens == FISHEYE:
        return "OPENCV_FISHEYE", list(camera.distortion)
    if camera.distortion[4]:
        return "FULL_OPENCV", [*camera.distortion, 0.0, 0.0, 0.0]
    return ("OPENCV", list(camera.distortion[:4])) if any(camera.distortion) else ("PINHOLE", [])


def _nerfstudio(
    rig: Rig, capture: Capture, frames: dict[str, list[int]], points: np.ndarray, colours: np.ndarray, stage: Path
) -> None:
    entries: list[dict[str, Any]] = []
    by_role: dict[str, list[str]] = {"train": [], "test": []}
    for name, chosen in frames.items():
        camera = rig.cameras[name]
        lens = {"fl_x": camera.fx, "fl_y": camera.fy, "cx": camera.cx, "cy": camera.cy, "w": camera.width}
        lens |= {"h": camera.height} | dict(zip(COEFFICIENTS[camera.lens], camera.distortion, strict=True))
        model = "OPENCV_FISHEYE" if camera.lens == FISHEYE else "OPENCV"
        pose = (invert_pose(camera.cam_from_world) @ OPENCV_FROM_OPENGL).tolist()
        for k in chosen:
            file = f"images/{name}/{k:06d}.png"
            by_role[rig.roles[name]].append(file)
            moment = float(capture.cameras[name].times[k])
            entries.append({"file_path": file, "camera_model": model, "transform_matrix": pose, "time": moment, **lens})
    data = {"ply_file_path": "points.ply", "train_filenames": by_role["train"], "test_filenames": by_role["test"]}
    write_json(stage / "transforms.json", {**data, "val_filenames": by_role["test"], "frames": entries})
    kind = np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3)])
    table = np.zeros(len(points), kind)
    table["xyz"], table["rgb"] = points, colours
    head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(points)}"]
    head += [*(f"property float {a}" for a in "xyz"), *(f"property uchar {a}" for a in ("red", "green", "blue"))]
    write_bytes(stage / "points.ply", "\n".join([*head, "end_header", ""]).encode() + table.tobytes())


def _colmap(
    rig: Rig, capture: Capture, frames: dict[str, list[int]], points: np.ndarray, colours: np.ndarray, stage: Path
) -> None:
    cameras, images = ["# id model width height parameters"], ["# id qw qx qy qz tx ty tz camera name; features"]
    number = 0
    for k, (name, chosen) in enumerate(frames.items(), start=1):
        camera = rig.cameras[name]
        model, rest = _lens(camera)
        numbers = [camera.fx, camera.fy, camera.cx, camera.cy, *rest]
        cameras.append(f"{k} {model} {camera.width} {camera.height} {_row(numbers)}")
        pose = camera.cam_from_world
        placed = _row([*matrix_to_quat(pose[:3, :3]), *pose[:3, 3]])
        for frame in chosen:
            number += 1
            images += [f"{number} {placed} {k} {name}/{frame:06d}.png", ""]
    rows = ["# id x y z r g b error; track"]
    for k, (point, colour) in enumerate(zip(points.tolist(), colours.tolist(), strict=True), start=1):
        rows.append(f"{k} {_row(point)} {colour[0]} {colour[1]} {colour[2]} 0")
    folder = stage / "sparse" / "0"
    folder.mkdir(parents=True)
    for file, lines in (("cameras.txt", cameras), ("images.txt", images), ("points3D.txt", rows)):
        write_bytes(folder / file, ("\n".join(lines) + "\n").encode())


def _row(values: list[Any]) -> str:
    return " ".join(repr(float(value)) for value in values)
