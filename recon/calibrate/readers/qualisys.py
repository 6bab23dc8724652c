"""Qualisys' calibration (*.qca.txt): XML with one <camera> each, lengths in mm, pixels in 64ths.

    K = intrinsic / 64,  R (world to camera) = diag(1, -1, -1) [r11 .. r33],  centre = (x, y, z) / 1000 [m]

Positions on the sensor start at the first pixel's centre, as OpenCV's.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

import numpy as np

from recon.calibrate.readers.draft import (
    MAX_CAMERAS,
    Document,
    Draft,
    Reading,
    bad,
    floats,
    from_integer_centres,
    matrix_of,
    pose_of,
    whole,
)  # fmt: skip
from recon.core.errors import CalibrationError

SUBPIXELS = 64.0
METRES = 1e-3  # per unit of x, y, z
FLIP = np.diag([1.0, -1.0, -1.0])
FORBIDDEN = re.compile(rb"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)
ROTATION = [f"r{row}{column}" for row in (1, 2, 3) for column in (1, 2, 3)]
LENS = ("radialDistortion1", "radialDistortion2", "tangentalDistortion1", "tangentalDistortion2", "radialDistortion3")


def is_ours(data: bytes) -> bool:
    """Whether the bytes of an XML file begin as this format does."""
    return b"<calibration" in data[:4096]


def read(documents: Sequence[Document]) -> Reading:
    """All active cameras of one file."""
    if len(documents) > 1:
        raise CalibrationError(f"{documents[1].path}: two Qualisys files were given", fix="Give one.")
    where = str(documents[0].path)
    root = _parse(documents[0].data, where)
    cameras = [camera for camera in root.iterfind("cameras/camera") if camera.get("active") != "0"]
    if not 0 < len(cameras) <= MAX_CAMERAS:
        raise bad(where, f"it holds {len(cameras)} active cameras")
    return Reading(where, [_draft(camera, where, k) for k, camera in enumerate(cameras)], units="metres")


def _parse(data: bytes, where: str) -> ElementTree.Element:
    """The root element. Entities could expand without bound, so a file that declares a type or one is refused first."""
    try:
        plain = data.decode("utf-8").encode()  # no other encoding may hide a declaration
    except UnicodeDecodeError as error:
        raise bad(where, "it is not UTF-8 text") from error
    if FORBIDDEN.search(plain):
        raise bad(where, "it declares a DOCTYPE or an ENTITY, which no calibration needs")
    parser = ElementTree.XMLParser(encoding="utf-8")
    try:
        root = ElementTree.fromstring(plain, parser)
    except (ElementTree.ParseError, ValueError) as error:
        raise bad(where, f"it is not XML: {error}") from error
    if root.tag != "calibration":
        raise bad(where, f"its root is <{root.tag[:40]}>, not <calibration>")
    return root


def _draft(camera: ElementTree.Element, where: str, index: int) -> Draft:
    name = camera.get("serial") or str(index + 1)
    label = f"{where}: camera {name[:80]}"
    lens = _values(camera, "intrinsic", [
        "focalLengthU", "focalLengthV", "centerPointU", "centerPointV", "skew", *LENS
    ], label)  # fmt: skip
    left, top, right, bottom = _values(camera, "fov_video", ["left", "top", "right", "bottom"], label)
    size = whole(right - left + 1, f"{label}: width"), whole(bottom - top + 1, f"{label}: height")
    if lens[4] != 0.0:
        raise bad(label, "its pixels have skew, which is not supported")
    k = matrix_of(*(float(v) for v in lens[:4] / SUBPIXELS))
    k[:2, 2] -= [left, top]
    # world to camera: x_c = R (x - centre)
    rotation = FLIP @ _values(camera, "transform", ROTATION, label).reshape(3, 3)
    centre = METRES * _values(camera, "transform", ["x", "y", "z"], label)
    pose = pose_of(rotation, -rotation @ centre, label)
    return Draft(name, from_integer_centres(k), pose, size, tuple(float(v) for v in lens[5:]))


def _values(camera: ElementTree.Element, tag: str, names: list[str], label: str) -> np.ndarray:
    element = camera.find(tag)
    missing = names if element is None else [name for name in names if element.get(name) is None]
    if element is None or missing:
        raise bad(label, f"<{tag}> lacks {missing[0]}")
    return floats([str(element.get(name)) for name in names], f"{label}: <{tag}>")
