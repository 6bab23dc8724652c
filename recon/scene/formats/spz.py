"""SPZ files (Niantic): versions 2 and 3 (one gzip stream) and 4 (zstd streams), in and out.

    16-byte header; then, each for all Gaussians:
    position   3 x 24-bit signed fixed point, 2^-fractionalBits
    opacity    u8      colour  3 u8: f_dc 0.15 255 + 127.5      log scale  3 u8: (s + 10) 16
    rotation   version 2: x y z as u8 q 127.5 + 127.5, w >= 0
               versions 3, 4: u32, 2 bits for the dropped component of x y z w, then 3 times sign and 9 bits of
               |q| sqrt(2) 511
    colour bands 1..degree   u8 c 128 + 128, coefficient by coefficient, r g b inside; the writer keeps 5 bits of band 1
               and 4 of the others

Axes are rub (x right, y up, z back) by definition.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from recon.core.errors import InputError
from recon.core.files import replacing
from recon.scene.formats.quats import RANGE, drop_largest, restore_largest
from recon.scene.formats.splats import (
    ANTIALIASED,
    LOGIT_OF_BYTE,
    Columns,
    Splats,
    arrays,
    blocks,
    require_static,
    sigmoid,
    to_byte,
    unreadable,
)
from recon.scene.formats.spz_container import (
    HEADER,
    KIND,
    MAGIC,
    Header,
    open_spz,
    write_zstd,
)
from recon.scene.gaussians import Gaussians

AXES = "rub"
FRACTIONAL_BITS = 12
MAX_POSITION = 2**23 - 1  # in steps
COLOUR = 0.15 * 255.0
LEVEL = 1  # of deflate: the higher ones take several times as long for a few per cent
STEPS = "position 2^-12, log scale 1/16, rotation 1/722, opacity 1/255, colour 1/38, band 1 1/16, other bands 1/8"

Encoded = Iterator[bytes]


def write_spz(gaussians: Gaussians, path: Path, version: int = 3) -> None:
    """Writes static Gaussians (atomically), whose world is taken to be in `rub` axes already.

    version: 2, 3 or 4 (4 needs the package zstandard). Raises InputError for a scene that 24 bits cannot span.
    """
    g = require_static(gaussians, path, KIND)
    bits = _fractional_bits(g, path)
    header = (MAGIC, version, len(g), g.degree, bits, 0)
    encoders = [_positions(g, bits), _opacities(g), _colours(g), _scales(g), _rotations(g, version)]
    encoders += [_bands(g)] if g.degree else []
    with replacing(path) as file:
        if version == 4:
            write_zstd(path, file, header, encoders)
            return
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        file.write(packer.compress(HEADER.pack(*header, 0)))
        for encoder in encoders:
            for piece in encoder:
                file.write(packer.compress(piece))
        file.write(packer.flush())


def _fractional_bits(g: Gaussians, path: Path) -> int:
    """12, or as many as leave room for the furthest Gaussian."""
    furthest = float(g.means.abs().max()) if len(g) else 0.0
    for bits in range(FRACTIONAL_BITS, -1, -1):
        if furthest * 2**bits <= MAX_POSITION:
            return bits
    raise InputError(f"cannot write {path}", why=f"a Gaussian is {furthest:g} units away, SPZ reaches {MAX_POSITION}")


def _positions(g: Gaussians, bits: int) -> Encoded:
    for rows in blocks(len(g)):
        fixed = np.rint(arrays(g, rows)[0].astype(np.float64) * 2**bits).astype("<i4")
        yield fixed.view("u1").reshape(-1, 4)[:, :3].tobytes()


def _opacities(g: Gaussians) -> Encoded:
    for rows in blocks(len(g)):
        yield to_byte(sigmoid(arrays(g, rows)[3])).tobytes()


def _colours(g: Gaussians) -> Encoded:
    for rows in blocks(len(g)):
        sh0 = arrays(g, rows)[4][:, 0]
        yield np.clip(np.rint(sh0 * COLOUR + 127.5), 0, 255).astype(np.uint8).tobytes()


def _scales(g: Gaussians) -> Encoded:
    for rows in blocks(len(g)):
        yield np.clip(np.rint((arrays(g, rows)[1] + 10.0) * 16.0), 0, 255).astype(np.uint8).tobytes()


def _rotations(g: Gaussians, version: int) -> Encoded:
    for rows in blocks(len(g)):
        wxyz = arrays(g, rows)[2]
        if version == 2:
            xyz = wxyz[:, 1:] * np.where(wxyz[:, :1] < 0, -1, 1)
            yield np.clip(np.rint(xyz * 127.5 + 127.5), 0, 255).astype(np.uint8).tobytes()
            continue
        index, others = drop_largest(wxyz[:, [1, 2, 3, 0]])
        magnitude = np.minimum(np.rint(np.abs(others) / RANGE * 511.0), 511).astype(np.uint32)
        ten = magnitude | (others < 0).astype(np.uint32) << np.uint32(9)
        code = index.astype(np.uint32) << np.uint32(30)
        code |= ten[:, 0] << np.uint32(20) | ten[:, 1] << np.uint32(10) | ten[:, 2]
        yield code.astype("<u4").tobytes()


def _bands(g: Gaussians) -> Encoded:
    # The step of 5 bits (band 1) and 4 bits: values are moved to the nearest multiple, 255 standing for 256.
    bands = g.sh.shape[1] - 1
    half = np.repeat(np.where(np.arange(bands) < 3, 4, 8), 3).astype(np.float32)
    mask = np.repeat(np.where(np.arange(bands) < 3, ~7, ~15), 3).astype(np.int16)
    sh = g.sh.detach().cpu().float().numpy().reshape(len(g), -1)
    for rows in blocks(len(g)):
        value = sh[rows, 3:] * np.float32(128.0)
        np.rint(value, out=value)
        value += half + 128.0
        np.clip(value, 0, 271, out=value)
        whole = value.astype(np.int16)
        whole &= mask
        np.minimum(whole, 255, out=whole)
        yield whole.astype(np.uint8).tobytes()


def read_spz(path: Path) -> Splats:
    """The Gaussians of an SPZ file, as static rows in `rub` axes. InputError, in one line, for anything else.

    Version 4 needs the package zstandard (UnavailableError without it).
    """
    try:
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        raise unreadable(path, KIND, error.strerror or str(error)) from error


def _read(path: Path, file: BinaryIO) -> Splats:
    header, streams = open_spz(path, file)
    kept = min(header.degree, 3)
    columns = Columns(header.count, kept)
    wide = (header.degree + 1) ** 2 - 1

    def fill(size: int, put: Callable[[slice, np.ndarray], None]) -> None:
        take = streams(size * header.count)
        for rows in blocks(header.count):
            count = rows.stop - rows.start
            put(rows, np.frombuffer(take(count * size), np.uint8).reshape(count, size))

    def positions(rows: slice, raw: np.ndarray) -> None:
        fixed = np.zeros((len(raw), 3, 4), np.uint8)
        fixed[:, :, 1:] = raw.reshape(-1, 3, 3)  # the top three bytes of 32 bits, so that the sign is theirs
        columns.means[rows] = fixed.view("<i4")[:, :, 0] * np.float32(2.0 ** -(8 + header.fractional_bits))

    def opacities(rows: slice, raw: np.ndarray) -> None:
        columns.logit_opacities[rows] = LOGIT_OF_BYTE[raw[:, 0]]

    def colours(rows: slice, raw: np.ndarray) -> None:
        columns.sh[rows, 0] = (raw - np.float32(127.5)) / np.float32(COLOUR)

    def scales(rows: slice, raw: np.ndarray) -> None:
        columns.log_scales[rows] = raw / np.float32(16.0) - np.float32(10.0)

    def rotations(rows: slice, raw: np.ndarray) -> None:
        columns.quats[rows] = _decoded_rotations(raw)

    def bands(rows: slice, raw: np.ndarray) -> None:
        higher = raw.reshape(len(raw), wide, 3)[:, : columns.sh.shape[1] - 1]
        columns.sh[rows, 1:] = (higher - np.float32(128.0)) / np.float32(128.0)

    fill(9, positions)
    fill(1, opacities)
    fill(3, colours)
    fill(3, scales)
    fill(header.rotation_bytes, rotations)
    if wide:
        fill(3 * wide, bands)
    columns.at = header.count
    return Splats(columns.table(path), AXES, _notes(header))


def _decoded_rotations(raw: np.ndarray) -> np.ndarray:
    """wxyz [N, 4] of the bytes [N, 3] of version 2 or [N, 4] of the later ones."""
    if raw.shape[1] == 3:
        xyz = raw / np.float32(127.5) - 1
        w = np.sqrt(np.maximum(0.0, 1.0 - (xyz * xyz).sum(1, keepdims=True)))
        return np.concatenate([w, xyz], 1)
    code = np.ascontiguousarray(raw).view("<u4")[:, 0]
    ten = np.stack([code >> np.uint32(shift) & np.uint32(1023) for shift in (20, 10, 0)], 1)
    size = (ten & np.uint32(511)).astype(np.float32) * np.float32(RANGE / 511.0)
    others = np.where(ten & np.uint32(512), -size, size)
    xyzw = restore_largest((code >> np.uint32(30)).astype(np.int64), others)
    return xyzw[:, [3, 0, 1, 2]]


def _notes(header: Header) -> tuple[str, ...]:
    notes = []
    if header.degree > 3:
        notes.append("its colours have band 4, which is left out")
    if header.antialiased:
        notes.append(ANTIALIASED)
    if header.extensions:
        notes.append("it carries extensions of a vendor, which are not read")
    return tuple(notes)
