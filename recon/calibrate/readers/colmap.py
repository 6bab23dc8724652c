"""COLMAP's sparse models: cameras and images, as text (cameras.txt, images.txt) or binary (.bin).

Poses are cam_from_world (quaternion wxyz, translation) in OpenCV axes; the first pixel's centre is (0.5, 0.5), as ours.
The scale is arbitrary. One image is one camera; several images in a folder of their own are one fixed camera.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from recon.calibrate.readers.draft import Document, Draft, Reading, bad, floats, matrix_of, pose_of, whole
from recon.calibrate.readers.pictures import one_per_camera
from recon.core.errors import CalibrationError
from recon.core.files import read_bytes
from recon.geometry.lens import BROWN, FISHEYE, Distortion
from recon.geometry.quaternion import quat_to_matrix

MAX_BYTES = 512 * 2**20  # images.bin holds every feature of every picture
MAX_IMAGES = 100_000
# id in binary files -> name, number of parameters
MODELS = {
    0: ("SIMPLE_PINHOLE", 3), 1: ("PINHOLE", 4), 2: ("SIMPLE_RADIAL", 4), 3: ("RADIAL", 5), 4: ("OPENCV", 8),
    5: ("OPENCV_FISHEYE", 8), 6: ("FULL_OPENCV", 12), 7: ("FOV", 5), 8: ("SIMPLE_RADIAL_FISHEYE", 4),
    9: ("RADIAL_FISHEYE", 5), 10: ("THIN_PRISM_FISHEYE", 12), 11: ("RAD_TAN_THIN_PRISM_FISHEYE", 16),
    12: ("SIMPLE_DIVISION", 4), 13: ("DIVISION", 5), 14: ("SIMPLE_FISHEYE", 3), 15: ("FISHEYE", 4), 16: ("EUCM", 6),
    17: ("EQUIRECTANGULAR", 2),
}  # fmt: skip
COUNTS = dict(MODELS.values())
READ = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV")
IMAGE_ROW = struct.Struct("<I7dI")  # id, quaternion wxyz, translation, camera id


@dataclass(frozen=True)
class _Lens:
    model: str
    size: tuple[int, int]
    params: np.ndarray


@dataclass(frozen=True)
class _Image:
    name: str
    camera: int
    pose: np.ndarray


def part_of_text(text: str) -> str | None:
    """'cameras' or 'images' when `text`'s first line of data is one of COLMAP's."""
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) >= 5 and words[0].isdigit() and words[1] in COUNTS and words[2].isdigit():
            return "cameras"
        numbers = len(words) >= 10 and words[0].isdigit() and words[8].isdigit() and all(map(_is_number, words[1:8]))
        # frames.txt has as many numbers, but no name after them, and its quaternion elsewhere
        return "images" if numbers and not _is_number(words[9]) and _is_unit(np.array(words[1:5], float)) else None
    return None


def part_of_bytes(data: bytes) -> str | None:
    """'cameras' or 'images' when `data` has the layout of cameras.bin or begins as images.bin does."""
    if len(data) < 32:
        return None
    count, first, model = struct.unpack_from("<QIi", data)
    if 0 < count <= MAX_IMAGES and model in MODELS:
        width, height = struct.unpack_from("<QQ", data, 16)
        if 0 < width <= 32768 and 0 < height <= 32768:
            return "cameras"
    begins = 0 < count <= MAX_IMAGES and len(data) > 8 + IMAGE_ROW.size
    return "images" if begins and _is_unit(np.array(IMAGE_ROW.unpack_from(data, 8)[1:5])) else None


def read(documents: Sequence[Document]) -> Reading:
    """The cameras of one model; of a pair of files, the one not given is taken from beside the other."""
    files = {document.data: document.path for document in documents}
    if len(files) != len(documents):
        raise CalibrationError(f"{documents[1].path}: two COLMAP models were given", fix="Give one.")
    for part in ("cameras", "images"):
        if part not in files:
            files[part] = _beside(documents[0].path, part)
    lenses, images = _cameras(files["cameras"]), _images(files["images"])
    where = str(files["images"])
    drafts = []
    for image in images:
        if image.camera not in lenses:
            raise bad(f"{where}: picture {image.name}", f"its camera {image.camera} is not in {files['cameras']}")
        drafts.append(_draft(image, lenses[image.camera], f"{where}: picture {image.name}"))
    return Reading(where, one_per_camera(drafts, where))


def _beside(path: Path, part: str) -> Path:
    other = path.with_name(part + path.suffix.lower())
    if not other.is_file():
        raise CalibrationError(f"{path}: COLMAP's {other.name} is missing beside it", fix="Give the model's folder.")
    return other


def _cameras(path: Path) -> dict[int, _Lens]:
    data = read_bytes(path, MAX_BYTES)
    lenses = _cameras_binary(data, str(path)) if b"\0" in data[:4096] else _cameras_text(data, str(path))
    if not 0 < len(lenses) <= MAX_IMAGES:
        raise bad(str(path), "it holds no camera")
    return lenses


def _images(path: Path) -> list[_Image]:
    data = read_bytes(path, MAX_BYTES)
    images = _images_binary(data, str(path)) if b"\0" in data[:4096] else _images_text(data, str(path))
    if not images:
        raise bad(str(path), "it holds no picture")
    return images


def _lines(data: bytes, where: str) -> list[str]:
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise bad(where, "it is not UTF-8 text") from error
    return [line for line in lines if not line.lstrip().startswith("#")]


def _cameras_text(data: bytes, where: str) -> dict[int, _Lens]:
    lenses = {}
    for line in _lines(data, where):
        words = line.split()
        if not words:
            continue
        label = f"{where}: camera {words[0][:20]}"
        if len(words) < 5 or not words[0].isdigit():
            raise bad(label, "a line needs id, model, width, height and parameters")
        size = floats(words[2:4], label)
        lenses[int(words[0])] = _lens(words[1], size[0], size[1], floats(words[4:], label), label)
    return lenses


def _cameras_binary(data: bytes, where: str) -> dict[int, _Lens]:
    cursor = _Cursor(data, where)
    lenses = {}
    for _ in range(cursor.count(MAX_IMAGES)):
        number, model, width, height = cursor.take("<IiQQ")
        label = f"{where}: camera {number}"
        if model not in MODELS:
            raise bad(label, f"its model has the number {model}, which is none of COLMAP's")
        name, count = MODELS[model]
        lenses[number] = _lens(name, width, height, np.array(cursor.take(f"<{count}d")), label)
    cursor.finished()
    return lenses


def _lens(model: str, width: float, height: float, params: np.ndarray, label: str) -> _Lens:
    if model not in READ:
        raise bad(label, f"its model is {model[:40]}", f"Read are {', '.join(READ)}: run COLMAP with one of them.")
    if len(params) != COUNTS[model]:
        raise bad(label, f"{model} has {COUNTS[model]} parameters, not {len(params)}")
    if not np.isfinite(params).all():
        raise bad(label, "it holds NaN or infinity")
    return _Lens(model, (whole(width, f"{label}: width"), whole(height, f"{label}: height")), params)


def _images_text(data: bytes, where: str) -> list[_Image]:
    lines = _lines(data, where)
    images = []
    for at in range(0, len(lines), 2):  # every second line holds the picture's features, and may be empty
        words = lines[at].split(maxsplit=9)
        if not words:
            if any(line.strip() for line in lines[at:]):
                raise bad(where, "a picture's line is empty: each picture has two lines")
            break
        label = f"{where}: picture {words[0][:20]}"
        if len(words) != 10 or not words[8].isdigit():
            raise bad(label, "a line needs id, quaternion, translation, camera and name")
        images.append(_image(floats(words[1:8], label), int(words[8]), words[9].strip(), label))
    return images


def _images_binary(data: bytes, where: str) -> list[_Image]:
    cursor = _Cursor(data, where)
    images = []
    for _ in range(cursor.count(MAX_IMAGES)):
        number, *pose, camera = cursor.take("<I7dI")
        label = f"{where}: picture {number}"
        name = cursor.text()
        (features,) = cursor.take("<Q")
        cursor.skip(24 * features)  # two doubles and a point's id each
        images.append(_image(np.array(pose), camera, name, label))
    cursor.finished()
    return images


def _image(values: np.ndarray, camera: int, name: str, label: str) -> _Image:
    quaternion = values[:4]
    if not _is_unit(quaternion):
        raise bad(label, f"its quaternion {' '.join(f'{v:g}' for v in quaternion)} has not the length 1")
    rotation = quat_to_matrix(quaternion / np.linalg.norm(quaternion))
    return _Image(name, camera, pose_of(rotation, values[4:], label))


def _draft(image: _Image, lens: _Lens, where: str) -> Draft:
    k, distortion, kind = _intrinsics(lens, where)
    path = PurePosixPath(image.name)
    return Draft(str(path), k, image.pose, lens.size, distortion, kind)


def _intrinsics(lens: _Lens, where: str) -> tuple[np.ndarray, Distortion, str]:
    p = [float(v) for v in lens.params]
    if lens.model == "SIMPLE_PINHOLE":  # f cx cy
        return matrix_of(p[0], p[0], *p[1:3]), (0.0,) * 5, BROWN
    if lens.model in ("SIMPLE_RADIAL", "RADIAL"):  # f cx cy k1 [k2]
        k1, k2 = p[3], p[4] if len(p) > 4 else 0.0
        return matrix_of(p[0], p[0], *p[1:3]), (k1, k2, 0.0, 0.0, 0.0), BROWN
    k = matrix_of(*p[:4])  # fx fy cx cy
    if lens.model == "PINHOLE":
        return k, (0.0,) * 5, BROWN
    if lens.model == "OPENCV_FISHEYE":  # k1 k2 k3 k4
        return k, tuple(p[4:8]), FISHEYE
    if any(p[9:]):  # FULL_OPENCV: k1 k2 p1 p2 k3 k4 k5 k6
        raise bad(where, "its FULL_OPENCV lens uses k4, k5 or k6", "Run COLMAP with the OPENCV model.")
    return k, (*p[4:8], p[8] if len(p) > 8 else 0.0), BROWN


class _Cursor:
    """Reads little-endian values one after the other; every read is bounded by the data."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.at = data, where, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        """The values of a struct layout."""
        size = struct.calcsize(layout)
        if self.at + size > len(self.data):
            raise bad(self.where, "it ends too early")
        self.at += size
        return struct.unpack_from(layout, self.data, self.at - size)

    def count(self, most: int) -> int:
        """A number of entries."""
        (value,) = self.take("<Q")
        if not 0 < value <= most:
            raise bad(self.where, f"it claims {value} entries")
        return int(value)

    def text(self) -> str:
        """A name that ends with a zero byte."""
        end = self.data.find(b"\0", self.at, self.at + 4096)
        if end < 0:
            raise bad(self.where, "a name does not end")
        text = self.data[self.at : end].decode("utf-8", errors="replace")
        self.at = end + 1
        return text

    def skip(self, size: int) -> None:
        """Pass over `size` bytes."""
        if size > len(self.data) - self.at:
            raise bad(self.where, "it ends too early")
        self.at += size

    def finished(self) -> None:
        """Refuse what follows the last entry."""
        if self.at != len(self.data):
            raise bad(self.where, f"{len(self.data) - self.at} bytes follow its last entry")


def _is_unit(quaternion: np.ndarray) -> bool:
    return bool(np.abs(quaternion).max() < 2.0 and abs(float(quaternion @ quaternion) - 1.0) < 1e-2)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
