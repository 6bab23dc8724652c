"""Compressed PLY files (PlayCanvas), in and out: 16 bytes per Gaussian, quantised within chunks of 256.

    element chunk    18 float32: min_x y z  max_x y z  min_scale_x y z  max_scale_x y z  min_r g b  max_r g b
                     (older files 12, without colours: these are then 0..1)
    element vertex   u32 packed_position 11 10 11 bits   u32 packed_rotation 2 10 10 10   u32 packed_scale 11 10 11
                     u32 packed_color 8 8 8 8
    element sh       0, 9, 24 or 45 uchar f_rest_i, channel-major: c = 8 ((b + 0.5) / 256 - 0.5)

Scales are logs, colours 0.5 + C0 f_dc, the last colour byte the opacity. A rotation is the index of its dropped largest
component in w x y z order and the other three, (q / sqrt(2) + 0.5) 1023. Axes are not stated.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from recon.core.files import replacing
from recon.geometry.sh import rgb_to_sh0, sh0_to_rgb
from recon.scene.formats.ply_header import MAX_HEADER, Header, check_size, parse_header
from recon.scene.formats.quats import RANGE, drop_largest, restore_largest
from recon.scene.formats.splats import (
    LOGIT_OF_BYTE,
    MAX_FILE,
    Columns,
    Splats,
    arrays,
    blocks,
    require_static,
    sigmoid,
    unreadable,
)
from recon.scene.gaussians import Gaussians

KIND = "compressed PLY"
CHUNK = 256  # Gaussians; divides splats.BLOCK
POSITION = ["min_x", "min_y", "min_z", "max_x", "max_y", "max_z"]
SCALE = ["min_scale_x", "min_scale_y", "min_scale_z", "max_scale_x", "max_scale_y", "max_scale_z"]
COLOUR = ["min_r", "min_g", "min_b", "max_r", "max_g", "max_b"]
PACKED = ["packed_position", "packed_rotation", "packed_scale", "packed_color"]
LIMIT_OF_SCALE = 20.0  # logs are kept within +-20
STEPS = (
    "position and log scale 1/1024 of their range among 256 neighbours, rotation 1/723, colour and opacity 1/255, "
    "bands 1/32"
)


def write_compressed_ply(gaussians: Gaussians, path: Path) -> None:
    """Writes static Gaussians (atomically), along a Morton curve so that the ranges of a chunk are small."""
    g = require_static(gaussians, path, KIND)
    means = g.means.detach().cpu().float().numpy()
    order = morton_order(means)
    count, rest = len(g), 3 * (g.sh.shape[1] - 1)
    chunks = -(-count // CHUNK)
    limits = np.empty((chunks, 18), "<f4")
    packed = np.empty((count, 4), "<u4")
    for rows in blocks(count):
        _pack(g, order[rows], limits[rows.start // CHUNK : -(-rows.stop // CHUNK)], packed[rows])
    lines = ["ply", "format binary_little_endian 1.0", f"element chunk {chunks}"]
    lines += [f"property float {name}" for name in (*POSITION, *SCALE, *COLOUR)]
    lines += [f"element vertex {count}", *(f"property uint {name}" for name in PACKED)]
    lines += [f"element sh {count}", *(f"property uchar f_rest_{i}" for i in range(rest))] if rest else []
    sh = g.sh.detach().cpu().float().numpy()
    with replacing(path) as file:
        file.write("\n".join([*lines, "end_header", ""]).encode("ascii"))
        file.write(limits.data)
        file.write(packed.data)
        for rows in blocks(count) if rest else ():
            bands = sh[order[rows], 1:].transpose(0, 2, 1).reshape(-1, rest)
            file.write(np.clip(np.floor(256.0 * (bands / 8.0 + 0.5)), 0, 255).astype(np.uint8).data)


def morton_order(means: np.ndarray) -> np.ndarray:
    """Row order [N] along a Morton curve through `means` [N, 3]: neighbours in it are neighbours in space."""
    low, high = means.min(0), means.max(0)
    cell = ((means - low) / np.where(high > low, high - low, 1) * 1023.0).astype(np.uint32)
    code = np.zeros(len(means), np.uint32)
    for bit in range(10):
        for axis in range(3):
            code |= (cell[:, axis] >> np.uint32(bit) & np.uint32(1)) << np.uint32(3 * bit + axis)
    return np.argsort(code, kind="stable")


def _pack(g: Gaussians, rows: np.ndarray, limits: np.ndarray, packed: np.ndarray) -> None:
    """Fills the limits [C, 18] and codes [M, 4] of the rows [M] of whole chunks (the last may be short)."""
    means, log_scales, quats, logits, sh = arrays(g.select(torch.from_numpy(rows)), slice(None))
    log_scales = np.clip(log_scales, -LIMIT_OF_SCALE, LIMIT_OF_SCALE)
    rgb = sh0_to_rgb(sh[:, 0]).astype(np.float32)
    starts = np.arange(0, len(rows), CHUNK)
    shares = []
    for k, values in enumerate((means, log_scales, rgb)):
        low, high = np.minimum.reduceat(values, starts, axis=0), np.maximum.reduceat(values, starts, axis=0)
        limits[:, 6 * k : 6 * k + 3], limits[:, 6 * k + 3 : 6 * k + 6] = low, high
        span = np.where(high > low, high - low, 1)
        shares.append((values - _spread(low, len(rows))) / _spread(span, len(rows)))
    packed[:, 0] = _join(shares[0], (11, 10, 11))
    packed[:, 2] = _join(shares[1], (11, 10, 11))
    packed[:, 3] = _join(np.concatenate([shares[2], sigmoid(logits)[:, None]], 1), (8, 8, 8, 8))
    index, others = drop_largest(quats)
    packed[:, 1] = _join(others * RANGE + 0.5, (10, 10, 10)) | index.astype(np.uint32) << np.uint32(30)


def _spread(per_chunk: np.ndarray, count: int) -> np.ndarray:
    """[M, ...] each chunk's value for all its rows."""
    return np.repeat(per_chunk, CHUNK, axis=0)[:count]


def _join(shares: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    """uint32 [M] of shares [M, K] in 0..1, as whole numbers of so many bits each, the first in the highest."""
    code = np.zeros(len(shares), np.uint32)
    for column, width in zip(shares.T, bits, strict=True):
        top = 2**width - 1
        code = code << np.uint32(width) | np.clip(np.rint(column * top), 0, top).astype(np.uint32)
    return code


def _split(code: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    """Shares [M, K] in 0..1 of what `_join` made."""
    shares, shift = [], sum(bits)
    for width in bits:
        shift -= width
        top = 2**width - 1
        shares.append((code >> np.uint32(shift) & np.uint32(top)).astype(np.float32) / np.float32(top))
    return np.stack(shares, 1)


def read_compressed_ply(path: Path) -> Splats:
    """The Gaussians of a compressed PLY file, as static rows. InputError, in one line, for anything else."""
    try:
        with path.open("rb") as file:
            head = file.read(MAX_HEADER)
            header = parse_header(path, head, ("chunk", "vertex", "sh"))
            check_size(path, header, path.stat().st_size, MAX_FILE)
            return _read(path, file, header)
    except OSError as error:
        raise unreadable(path, KIND, error.strerror or str(error)) from error


def _read(path: Path, file: BinaryIO, header: Header) -> Splats:
    degree, coloured = _layout(path, header)
    chunks, vertex = header.elements[:2]
    count = vertex.count
    columns = Columns(count, degree)
    file.seek(header.start)
    limits = np.fromfile(file, "<f4", chunks.count * (18 if coloured else 12)).reshape(chunks.count, -1)
    if not coloured:
        limits = np.concatenate([limits, np.tile(np.array([0, 0, 0, 1, 1, 1], "<f4"), (chunks.count, 1))], 1)
    rest, bands_at = 3 * ((degree + 1) ** 2 - 1), header.start + chunks.count * chunks.row.itemsize + 16 * count
    for rows in blocks(count):
        file.seek(header.start + chunks.count * chunks.row.itemsize + 16 * rows.start)
        packed = np.fromfile(file, "<u4", 4 * (rows.stop - rows.start)).reshape(-1, 4)
        file.seek(bands_at + rest * rows.start)
        raw = np.fromfile(file, np.uint8, rest * (rows.stop - rows.start))
        if len(packed) + rows.start != rows.stop or len(raw) != rest * len(packed):
            raise unreadable(path, KIND, "it became shorter while it was read")
        own = limits[rows.start // CHUNK : -(-rows.stop // CHUNK)]
        _unpack(columns, packed, _spread(own, len(packed)), raw.reshape(len(packed), 3, rest // 3))
    return Splats(columns.table(path))


def _layout(path: Path, header: Header) -> tuple[int, bool]:
    """(degree of the colours, whether chunks hold colour ranges), after checking every property."""
    elements = {element.name: element for element in header.elements}
    if [*elements] not in (["chunk", "vertex"], ["chunk", "vertex", "sh"]):
        raise unreadable(path, KIND, f"its elements are {', '.join(elements)}, not chunk, vertex and sh")
    chunk, vertex = elements["chunk"], elements["vertex"]
    ranges = [dict.fromkeys(names, "<f4") for names in ((*POSITION, *SCALE, *COLOUR), (*POSITION, *SCALE))]
    if list(chunk.properties.items()) not in [list(one.items()) for one in ranges]:
        raise unreadable(path, KIND, "its chunks do not hold the ranges of positions, scales and colours in order")
    if list(vertex.properties.items()) != [(name, "<u4") for name in PACKED]:
        raise unreadable(path, KIND, f"its vertices do not hold {', '.join(PACKED)}")
    if vertex.count == 0 or chunk.count != -(-vertex.count // CHUNK):
        raise unreadable(path, KIND, f"{chunk.count} chunks of {CHUNK} do not hold {vertex.count} Gaussians")
    sh = elements.get("sh")
    rest = 0 if sh is None else len(sh.properties)
    degree = {0: 0, 9: 1, 24: 2, 45: 3}.get(rest)
    named = sh is None or list(sh.properties.items()) == [(f"f_rest_{i}", "u1") for i in range(rest)]
    if degree is None or not named or (sh is not None and sh.count != vertex.count):
        raise unreadable(path, KIND, f"its element sh has {rest} columns, not 9, 24 or 45 of every Gaussian in order")
    return degree, len(chunk.properties) == 18


def _unpack(columns: Columns, packed: np.ndarray, limits: np.ndarray, raw: np.ndarray) -> None:
    means, log_scales, quats, logits, sh = columns.block(len(packed))
    color = _split(packed[:, 3], (8, 8, 8, 8))
    with np.errstate(invalid="ignore", over="ignore"):  # ranges that are not finite make rows that are dropped
        for k, (target, share) in enumerate(
            (
                (means, _split(packed[:, 0], (11, 10, 11))),
                (log_scales, _split(packed[:, 2], (11, 10, 11))),
                (sh[:, 0], color[:, :3]),
            )
        ):
            low, high = limits[:, 6 * k : 6 * k + 3], limits[:, 6 * k + 3 : 6 * k + 6]
            target[:] = low * (1 - share) + high * share
        sh[:, 0] = rgb_to_sh0(sh[:, 0])
    logits[:] = LOGIT_OF_BYTE[packed[:, 3] & np.uint32(255)]
    others = (_split(packed[:, 1], (10, 10, 10)) - np.float32(0.5)) / np.float32(RANGE)
    quats[:] = restore_largest((packed[:, 1] >> np.uint32(30)).astype(np.int64), others)
    share = np.where(raw == 0, 0.0, np.where(raw == 255, 1.0, (raw + 0.5) / 256.0))
    sh[:, 1:] = (8.0 * (share - 0.5)).transpose(0, 2, 1)
    columns.take(len(packed))
