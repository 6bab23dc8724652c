"""Lossless WebP pictures of numbers: what their headers say is checked before OpenCV decodes them.

"RIFF" u32 size "WEBP", then chunks of 4 letters and u32 size
"VP8L"   u8 0x2f, u32: 14 bits width - 1, 14 bits height - 1
"VP8X"   u8 flags (2: animation), 3 bytes, u24 width - 1, u24 height - 1; the picture's chunks follow
"VP8 "   10-byte frame header, u16 14 bits width, u16 14 bits height: lossy
"""

from __future__ import annotations

import struct
from pathlib import Path

import cv2
import numpy as np

from recon.core.errors import ReconError
from recon.scene.formats.splats import unreadable

MAX_SIDE = 16383
ANIMATED = 2
_LOSSLESS = 101  # of IMWRITE_WEBP_QUALITY
# Newer OpenCVs can be told to keep colours where alpha is 0; older ones write any colour there, which no one sees.
_PRESERVE = getattr(cv2, "IMWRITE_WEBP_LOSSLESS_PRESERVE_COLOR", None)
_MODE = getattr(cv2, "IMWRITE_WEBP_LOSSLESS_MODE", None)


def encode_webp(picture: np.ndarray) -> bytes:
    """A lossless file of uint8 [H, W, 3] (red, green, blue) or [H, W, 4] (and alpha)."""
    options = (
        [_MODE, _PRESERVE] if _MODE is not None and _PRESERVE is not None else [cv2.IMWRITE_WEBP_QUALITY, _LOSSLESS]
    )
    order = cv2.COLOR_RGB2BGR if picture.shape[2] == 3 else cv2.COLOR_RGBA2BGRA
    done, data = cv2.imencode(".webp", cv2.cvtColor(picture, order), options)
    if not done:
        raise ReconError("OpenCV cannot write WebP pictures", fix="Install an OpenCV that was built with WebP.")
    return data.tobytes()


def decode_webp(data: bytes, most: int, path: Path, kind: str, name: str) -> np.ndarray:
    """uint8 [H, W, 4] of the file `data`, at most `most` pixels; alpha is 255 where it has none.

    Raises InputError, naming `path` and the picture's `name`, for anything that is not one such picture.
    """
    size = webp_size(data)
    if size is None:
        raise unreadable(path, kind, f"its picture {name} is not a WebP file")
    if size[0] * size[1] > most:
        why = f"its picture {name} declares {size[0]}x{size[1]} pixels, more than such a file can hold"
        raise unreadable(path, kind, why)
    try:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise unreadable(path, kind, f"its picture {name} cannot be decoded") from error
    if picture is None or picture.ndim != 3 or picture.shape[:2] != size[::-1] or picture.shape[2] not in (3, 4):
        raise unreadable(path, kind, f"its picture {name} is damaged")
    result: np.ndarray = cv2.cvtColor(picture, cv2.COLOR_BGR2RGBA if picture.shape[2] == 3 else cv2.COLOR_BGRA2RGBA)
    return result


def webp_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) that the header of a still WebP file declares; None when it is none."""
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    chunk, body = data[12:16], data[20:]
    if chunk == b"VP8L" and body[0] == 0x2F:
        (bits,) = struct.unpack_from("<I", body, 1)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X" and not body[0] & ANIMATED:
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", body, 6)
        return width & 0x3FFF, height & 0x3FFF
    return None
