"""What .4dgs files are made of: records of fields, and streams of whole numbers.

file      magic 89 "4DGS1" 0d 0a, records, magic
record    u8 what it is, u64 length, fields; text is u32 length and UTF-8, a map u32 length and pairs of texts
stream    u8 attribute, u8 width 1 2 4, u8 mode 0 raw 1 differences 2 one for all, u8 codec 0 deflate, u8 channels,
          u32 count, u64 length, then zlib of zigzag codes, all lowest bytes first, then the next ones
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from recon.scene.formats.splats import MAX_INFLATION, unreadable

KIND = ".4dgs"
MAGIC = b"\x894DGS1\r\n"
HEADER, FOOTER, QUANTIZATION, WINDOWS, CHUNK, BAND, INDEX = 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x08
FRAME, OBJECTS, TRACK = 0x20, 0x24, 0x25
RECORD = struct.Struct("<BQ")
STREAM = struct.Struct("<BBBBBIQ")
POSITION, SCALE, LARGEST, ROTATION, COLOUR, OPACITY, MOTION, CENTRE, SIGMA, FLAGS, WINDOW, OBJECT = (*range(11), 14)
CHANNELS = {POSITION: 3, SCALE: 3, LARGEST: 1, ROTATION: 3, COLOUR: 3, OPACITY: 1, MOTION: 3, CENTRE: 1, SIGMA: 1,
            FLAGS: 1, WINDOW: 1, OBJECT: 1}  # fmt: skip
BANDS = {1: (0, 3), 2: (3, 8), 3: (8, 15)}  # of a degree: its coefficients
LEVEL = 4  # of zlib
RAW, DIFFERENCES, CONSTANT = 0, 1, 2
NEVER_FADES = 1  # bit of FLAGS
SH_LOW, SH_STEP = -4.0, 8.0 / 255.0  # colour bands are bytes
# How precisely speeds and centres are kept depends on how long a Gaussian is seen, in seconds.
LIFE, LIFE_CLASSES, HALF_LIFE = 0.5, (-4, 2), (0.02, 2.0)
CENTRE_SHARE, CENTRE_CLASSES = 0.05, (-10, 0)


def record(kind: int, *parts: bytes) -> bytes:
    """A record of these fields."""
    body = b"".join(parts)
    return RECORD.pack(kind, len(body)) + body


def text(value: str) -> bytes:
    """A text field."""
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def words(values: dict[str, str]) -> bytes:
    """A map field."""
    body = b"".join(text(key) + text(values[key]) for key in sorted(values))
    return struct.pack("<I", len(body)) + body


def doubles(*values: float) -> bytes:
    """f64 fields."""
    return struct.pack(f"<{len(values)}d", *values)


def motion_step(step: float, sigma: np.ndarray, forever: np.ndarray, cutoff: float) -> np.ndarray:
    """[N] the step of each row's velocity: finer the longer it is seen. sigma: as decoded, seconds."""
    half = np.clip(np.where(forever, HALF_LIFE[1], np.sqrt(-2.0 * np.log(cutoff)) * sigma), *HALF_LIFE)
    return step * np.exp2(-np.clip(np.ceil(np.log2(half / LIFE)), *LIFE_CLASSES))


def centre_step(step: float, sigma: np.ndarray, forever: np.ndarray) -> np.ndarray:
    """[N] the step of each row's time centre: a share of how long it is seen."""
    target = np.where(forever, step, np.minimum(step, CENTRE_SHARE * sigma))
    return step * np.exp2(np.clip(np.floor(np.log2(target / step)), *CENTRE_CLASSES))


def stream(attribute: int, values: np.ndarray) -> bytes:
    """Whole numbers [N, C] (or [N]), N > 0, as a stream; they must fit 31 bits."""
    v = values.reshape(len(values), -1).astype(np.int64)
    if len(v) > 1 and (v == v[0]).all():
        mode, codes = CONSTANT, v[:1]
    else:
        differences = np.concatenate([v[:1], np.diff(v, axis=0)])
        smaller = np.abs(differences).sum() < np.abs(v).sum() and np.abs(differences).max() < 2**31
        mode, codes = (DIFFERENCES, differences) if smaller and attribute != OBJECT else (RAW, v)
    zigzag = (codes << 1 ^ codes >> 63).ravel()
    width = next(w for w in (1, 2, 4) if int(zigzag.max()) < 1 << 8 * w)
    planes = zigzag.astype("<u4").view("u1").reshape(-1, 4)[:, :width].T
    packed = zlib.compress(np.ascontiguousarray(planes).data, LEVEL)
    return STREAM.pack(attribute, width, mode, 0, v.shape[1], len(v), len(packed)) + packed


class Fields:
    """Reads the fields of a record one after the other; every read is bounded by its bytes."""

    def __init__(self, path: Path, data: bytes | memoryview) -> None:
        self.path, self.data, self.at = path, memoryview(data), 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self.data) - self.at

    def bytes(self, size: int) -> memoryview:
        """The next `size` bytes."""
        if size > self.left:
            raise unreadable(self.path, KIND, "a record ends before its fields do")
        self.at += size
        return self.data[self.at - size : self.at]

    def take(self, layout: str) -> tuple[Any, ...]:
        """The values of a struct layout."""
        return struct.unpack("<" + layout, self.bytes(struct.calcsize("<" + layout)))

    def text(self) -> str:
        """A text field."""
        return bytes(self.bytes(self.take("I")[0])).decode("utf-8", errors="replace")

    def words(self) -> dict[str, str]:
        """A map field."""
        inner = Fields(self.path, self.bytes(self.take("I")[0]))
        found = {}
        while inner.left:
            key = inner.text()
            found[key] = inner.text()
        return found

    def stream(self, known: Iterable[int] | None, rows: int, channels: int | None = None) -> tuple[int, np.ndarray]:
        """(attribute, int64 [rows, C]) of the next stream; an empty table for an attribute that is not `known`."""
        attribute, width, mode, codec, held, count, length = STREAM.unpack(self.bytes(STREAM.size))
        data = self.bytes(length)
        if known is not None and attribute not in known:
            return attribute, np.empty((0, 0), np.int64)
        channels = CHANNELS.get(attribute) if channels is None else channels
        if count != rows or held != channels or width not in (1, 2, 4) or mode > CONSTANT:
            text = f"a stream of {count} times {held} numbers of width {width} and mode {mode}"
            raise unreadable(self.path, KIND, f"it has {text} in a chunk of {rows} Gaussians")
        if codec != 0:
            raise unreadable(self.path, KIND, f"its streams are packed by codec {codec}; deflate is read")
        size = (1 if mode == CONSTANT else rows) * held * width
        if size > MAX_INFLATION * max(length, 1):
            raise unreadable(self.path, KIND, f"a stream of {length} bytes declares {size}")
        return attribute, _unpacked(self.path, data, size, width, mode, rows, held)


def _unpacked(path: Path, data: memoryview, size: int, width: int, mode: int, rows: int, channels: int) -> np.ndarray:
    try:
        plain = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise unreadable(path, KIND, f"a stream is damaged ({error})") from error
    if len(plain) != size:
        raise unreadable(path, KIND, f"a stream declares {size} bytes and does not hold them")
    count = size // width
    planes = np.zeros((count, 4), np.uint8)
    planes[:, :width] = np.frombuffer(plain, np.uint8).reshape(width, count).T
    zigzag = planes.view("<u4")[:, 0].astype(np.int64)
    values = (zigzag >> 1 ^ -(zigzag & 1)).reshape(-1, channels)
    if mode == CONSTANT:
        return np.broadcast_to(values, (rows, channels))
    return np.cumsum(values, axis=0) if mode == DIFFERENCES else values
