""".ksplat files (mkkellogg), in: sections of Gaussians at one of three levels of compression.

    4096-byte header   u8 major 0, u8 minor; u32@4 sections that have a header; u32@16 Gaussians; u16@20 level;
                       f32@36, f32@40 range of colour bands of level 2
    1024 bytes each    u32@0 Gaussians, u32@4 Gaussians there is room for, u32@8 bucket size, u32@12 buckets,
                       f32@16 block size, u16@20 bytes per bucket, u32@24 range, u32@32 full buckets,
                       u32@36 others (whose sizes, u32 each, lead the section), u16@40 colour degree
    record, level 0    mean 3 f32, scale 3 f32, rotation w x y z 4 f32, r g b opacity u8, bands f32
    record, levels 1/2 mean 3 u16 about its bucket's centre, scale 3 f16, rotation 4 f16, r g b opacity u8, bands f16/u8

Bands lie one after the other, in each all red, all green, all blue. Scales are linear. Axes are not stated.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recon.core.files import read_bytes
from recon.scene.formats.splats import LOGIT_OF_BYTE, SH0_OF_BYTE, Columns, Splats, log_scale, unreadable

KIND = ".ksplat"
HEADER_BYTES, SECTION_BYTES = 4096, 1024
MAX_BYTES = 2 * 1024**3
MAX_SECTIONS = 4096
BANDS = (0, 9, 24, 45)  # numbers by degree
DEFAULT_BAND_RANGE = 1.5
_SECTION = struct.Struct("<IIIIfHxxIxxxxIIH")
_FIELDS = "count room bucket_size buckets block bucket_bytes reach full partial degree".split()


@dataclass(frozen=True)
class _Section:
    count: int
    room: int
    bucket_size: int
    buckets: int
    block: float
    bucket_bytes: int
    reach: int
    full: int
    partial: int
    degree: int
    start: int  # byte of its data


def read_ksplat(path: Path) -> Splats:
    """The Gaussians of a .ksplat file, as static rows. InputError, in one line, for anything else."""
    data = read_bytes(path, MAX_BYTES)
    if len(data) < HEADER_BYTES + SECTION_BYTES:
        raise unreadable(path, KIND, f"it has {len(data)} bytes, its headers alone have more")
    major, minor = data[0], data[1]
    (headers,) = struct.unpack_from("<I", data, 4)
    count, level = struct.unpack_from("<IH", data, 16)
    low, high = struct.unpack_from("<ff", data, 36)
    if major != 0 or minor < 1 or level > 2:
        raise unreadable(path, KIND, f"its version is {major}.{minor} and its level {level}; 0.1 and 0 to 2 are read")
    if not 0 < headers <= MAX_SECTIONS or HEADER_BYTES + headers * SECTION_BYTES > len(data):
        raise unreadable(path, KIND, f"it declares {headers} sections, which it cannot hold")
    sections = _sections(path, data, headers, level)
    if count == 0 or sum(section.count for section in sections) != count:
        held = sum(section.count for section in sections)
        raise unreadable(path, KIND, f"it declares {count} Gaussians, its sections {held}")
    columns = Columns(count, max(section.degree for section in sections))
    span = (low or -DEFAULT_BAND_RANGE, high or DEFAULT_BAND_RANGE)
    for section in sections:
        if section.count:
            _fill(path, columns, data, section, level, span)
    return Splats(columns.table(path))


def _row(level: int, degree: int) -> np.dtype:
    numbers = BANDS[degree]
    if level == 0:
        fields = [("mean", "<f4", 3), ("scale", "<f4", 3), ("wxyz", "<f4", 4), ("rgba", "u1", 4)]
        return np.dtype([*fields, ("bands", "<f4", numbers)])
    fields = [("mean", "<u2", 3), ("scale", "<f2", 3), ("wxyz", "<f2", 4), ("rgba", "u1", 4)]
    return np.dtype([*fields, ("bands", "<f2" if level == 1 else "u1", numbers)])


def _sections(path: Path, data: bytes, headers: int, level: int) -> list[_Section]:
    """All sections, each proven to lie inside the file."""
    found = []
    start = HEADER_BYTES + headers * SECTION_BYTES
    for k in range(headers):
        values = _SECTION.unpack_from(data, HEADER_BYTES + k * SECTION_BYTES)
        section = _Section(**dict(zip(_FIELDS, values, strict=True)), start=start)
        if section.degree >= len(BANDS) or section.count > section.room:
            why = (
                f"section {k} declares colours of degree {section.degree}, {section.count} of {section.room} Gaussians"
            )
            raise unreadable(path, KIND, why)
        if section.count and level > 0 and section.bucket_bytes != 12:
            raise unreadable(path, KIND, f"the centres of section {k} have {section.bucket_bytes} bytes, not 12")
        start += 4 * section.partial + section.bucket_bytes * section.buckets
        start += section.room * _row(level, section.degree).itemsize
        if start > len(data):
            raise unreadable(path, KIND, f"section {k} ends at byte {start}, the file at {len(data)}")
        found.append(section)
    return found


def _fill(path: Path, columns: Columns, data: bytes, section: _Section, level: int, span: tuple[float, float]) -> None:
    row = _row(level, section.degree)
    lead = 4 * section.partial + section.bucket_bytes * section.buckets
    record = np.frombuffer(data, row, section.count, section.start + lead)
    means, log_scales, quats, logits, sh = columns.block(section.count)
    if level == 0:
        means[:] = record["mean"]
    else:
        reach = section.reach or 32767
        centres = np.frombuffer(data, "<f4", 3 * section.buckets, section.start + 4 * section.partial).reshape(-1, 3)
        offset = (record["mean"].astype(np.float32) - reach) * np.float32(section.block / 2.0 / reach)
        with np.errstate(invalid="ignore", over="ignore"):  # such rows are dropped
            means[:] = offset + centres[_buckets(path, data, section)]
    log_scales[:], quats[:] = log_scale(record["scale"].astype(np.float32)), record["wxyz"]
    sh[:, 0], logits[:] = SH0_OF_BYTE[record["rgba"][:, :3]], LOGIT_OF_BYTE[record["rgba"][:, 3]]
    sh[:, 1:] = 0
    bands = record["bands"].astype(np.float32)
    if level == 2:
        bands = span[0] + bands / np.float32(255.0) * (span[1] - span[0])
    for band in range(1, section.degree + 1):
        first, size = band * band, 2 * band + 1
        one = bands[:, 3 * (first - 1) : 3 * (first - 1 + size)].reshape(-1, 3, size)
        sh[:, first : first + size] = one.transpose(0, 2, 1)
    columns.take(section.count)


def _buckets(path: Path, data: bytes, section: _Section) -> np.ndarray:
    """The bucket [count] of each Gaussian: full ones first, then those whose sizes are listed."""
    rows = np.arange(section.count)
    full_rows = section.full * section.bucket_size
    sizes = np.frombuffer(data, "<u4", section.partial, section.start).astype(np.int64)
    ends = full_rows + np.cumsum(sizes)
    bucket = np.where(
        rows < full_rows, rows // max(1, section.bucket_size), section.full + np.searchsorted(ends, rows, "right")
    )
    if bucket.max() >= section.buckets:
        raise unreadable(path, KIND, f"its Gaussians lie in {int(bucket.max()) + 1} buckets, it has {section.buckets}")
    return bucket
