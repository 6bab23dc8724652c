"""SOG files, version 2 (PlayCanvas), in and out: numbers as pixels of lossless WebP pictures, in a zip or a folder.

    meta.json       version 2, count, antialias, and per picture below: files, codebook [256], mins, maxs
    means_l/_u      low and high byte of m = 65535 (y - min) / (max - min), y = sign(x) ln(|x| + 1); rgb = xyz
    quats           w x y z without the largest, (q sqrt(2) + 1) 127.5; alpha 252 + its index
    scales          red green blue: entries of a codebook of log scales
    sh0             red green blue: entries of a codebook of f_dc; alpha: opacity 255
    shN_labels      red + 256 green: a row of the palette of colour bands
    shN_centroids   entries of a codebook; row L of the palette at y = L / 64, x = (L mod 64) K + k, K = 3, 8 or 15

Pixels go row by row. Axes are not stated.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from recon.core.files import inside, read_bytes, replacing
from recon.scene.formats.codebook import SIZE, nearest, palette, scalar_codebook
from recon.scene.formats.compressed_ply import morton_order
from recon.scene.formats.json_text import parse_json
from recon.scene.formats.quats import RANGE, drop_largest, restore_largest
from recon.scene.formats.splats import (
    ANTIALIASED,
    LOGIT_OF_BYTE,
    MAX_COUNT,
    MAX_INFLATION,
    Columns,
    Splats,
    arrays,
    blocks,
    require_static,
    sigmoid,
    to_byte,
    unreadable,
)
from recon.scene.formats.webp import decode_webp, encode_webp
from recon.scene.gaussians import Gaussians

KIND = "SOG"
STEPS = "position 16 bits of its range, scale and colour one of 256 values, rotation 1/180, bands one of 65536 sets"
META = "meta.json"
MAX_META, MAX_PICTURE = 4 * 2**20, 2**30  # bytes
COEFFICIENTS = {1: 3, 2: 8, 3: 15}  # by bands
LABELS, ACROSS = 1 << 16, 64
TAG = 252
STAMP = (1980, 1, 1, 0, 0, 0)  # of the zip's members: equal scenes give equal files

Load = Callable[[str, int], bytes]


def write_sog(gaussians: Gaussians, path: Path) -> None:
    """Writes static Gaussians (atomically) along a Morton curve."""
    g = require_static(gaussians, path, KIND)
    g = g.select(torch.from_numpy(morton_order(g.means.detach().cpu().float().numpy())))
    meta, pictures = _described(g)
    with replacing(path) as file, zipfile.ZipFile(cast(Any, file), "w", zipfile.ZIP_STORED) as archive:
        for name, picture in pictures:
            archive.writestr(zipfile.ZipInfo(name, STAMP), encode_webp(picture))
        archive.writestr(zipfile.ZipInfo(META, STAMP), json.dumps(meta))


def _described(g: Gaussians) -> tuple[dict[str, Any], Iterator[tuple[str, np.ndarray]]]:
    """(meta.json, pictures by file name, each made when it is asked for)."""
    means, log_scales, _, _, sh = arrays(g, slice(None))
    logs = np.sign(means) * np.log1p(np.abs(means.astype(np.float64)))
    low, high = logs.min(0), logs.max(0)
    scales, colours = scalar_codebook(log_scales), scalar_codebook(sh[:, 0])
    meta: dict[str, Any] = {
        "version": 2,
        "asset": {"generator": "recon"},
        "count": len(g),
        "means": {"mins": low.tolist(), "maxs": high.tolist(), "files": ["means_l.webp", "means_u.webp"]},
        "scales": {"codebook": scales.tolist(), "files": ["scales.webp"]},
        "quats": {"files": ["quats.webp"]},
        "sh0": {"codebook": colours.tolist(), "files": ["sh0.webp"]},
    }
    rows, label, bands = np.empty((0, 0), np.float32), np.empty(0, np.int64), np.empty(0, np.float32)
    if g.degree:
        rows, label = palette(sh.reshape(len(g), -1)[:, 3:], LABELS)
        bands = scalar_codebook(rows)
        files = ["shN_centroids.webp", "shN_labels.webp"]
        meta["shN"] = {"count": len(rows), "bands": g.degree, "codebook": bands.tolist(), "files": files}

    def pictures() -> Iterator[tuple[str, np.ndarray]]:
        steps = np.rint((logs - low) / np.where(high > low, high - low, 1) * 65535.0).astype(np.uint16)
        yield "means_l.webp", _picture((steps & np.uint16(255)).astype(np.uint8))
        yield "means_u.webp", _picture((steps >> np.uint16(8)).astype(np.uint8))
        yield "quats.webp", _picture(_packed_quats(g))
        yield "scales.webp", _picture(nearest(scales, log_scales))
        opacity = to_byte(sigmoid(arrays(g, slice(None))[3]))
        yield "sh0.webp", _picture(np.concatenate([nearest(colours, sh[:, 0]), opacity[:, None]], 1))
        if g.degree:
            yield "shN_centroids.webp", _centroids(nearest(bands, rows))
            low_byte, high_byte = label & 255, label >> 8
            yield "shN_labels.webp", _picture(np.stack([low_byte, high_byte, 0 * label], 1).astype(np.uint8))

    return meta, pictures()


def _picture(rows: np.ndarray) -> np.ndarray:
    """[H, W, C] with the rows [N, C] in its first pixels."""
    width = 4 * math.ceil(math.sqrt(len(rows)) / 4)
    height = 4 * math.ceil(len(rows) / width / 4)
    picture = np.zeros((height * width, rows.shape[1]), np.uint8)
    picture[: len(rows)] = rows
    return picture.reshape(height, width, -1)


def _packed_quats(g: Gaussians) -> np.ndarray:
    packed = np.empty((len(g), 4), np.uint8)
    for rows in blocks(len(g)):
        index, others = drop_largest(arrays(g, rows)[2])
        packed[rows, :3] = to_byte(0.5 * others / RANGE + 0.5)
        packed[rows, 3] = index + TAG
    return packed


def _centroids(codes: np.ndarray) -> np.ndarray:
    """[ceil(P / 64), 64 K, 3] of the codes [P, 3 K] of a palette."""
    height = -(-len(codes) // ACROSS)
    padded = np.zeros((height * ACROSS, codes.shape[1]), np.uint8)
    padded[: len(codes)] = codes
    return padded.reshape(height, -1, 3)


def read_sog(path: Path) -> Splats:
    """The Gaussians of a .sog file, or of the folder (or its meta.json) that such a file is made of, as static rows.

    InputError, in one line, for anything else.
    """
    if path.is_dir() or path.name == META:
        folder = path if path.is_dir() else path.parent
        listed = [p for p in folder.iterdir() if p.suffix == ".webp"] if folder.is_dir() else []
        room = sum(p.stat().st_size for p in listed)
        return _read(path, lambda name, most: read_bytes(inside(folder, name), most), room)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return _read(path, lambda name, most: _member(archive, path, name, most), path.stat().st_size)
    except OSError as error:
        raise unreadable(path, KIND, error.strerror or str(error)) from error
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise unreadable(path, KIND, f"it is no zip archive that can be read ({error})") from error


def _member(archive: zipfile.ZipFile, path: Path, name: str, most: int) -> bytes:
    try:
        info = archive.getinfo(name)
        if info.file_size > min(most, MAX_INFLATION * max(info.compress_size, 1)) or info.flag_bits & 1:
            raise unreadable(path, KIND, f"its member {name[:40]} is encrypted or larger than can be")
        with archive.open(info) as file:
            return file.read(most)
    except KeyError as error:
        raise unreadable(path, KIND, f"it has no {name[:40]!r}") from error
    except (zlib.error, zipfile.BadZipFile, EOFError, RuntimeError, OSError) as error:
        raise unreadable(path, KIND, f"its member {name[:40]} is damaged") from error


def _read(path: Path, load: Load, room: int) -> Splats:
    meta = parse_json(load(META, MAX_META), path, KIND)
    if meta.get("version") != 2:
        raise unreadable(path, KIND, f"its version is {str(meta.get('version'))[:20]}; version 2 is read")
    count = meta.get("count")
    most = room * MAX_INFLATION  # pixels; a picture of one colour takes almost no bytes, but never so few
    if type(count) is not int or not 0 < count <= min(MAX_COUNT, most):
        raise unreadable(path, KIND, f"it declares {str(count)[:20]} Gaussians, which it cannot hold")
    bands = _section(meta, "shN", path).get("bands") if "shN" in meta else 0
    if bands not in (0, *COEFFICIENTS):
        raise unreadable(path, KIND, f"its colours have {str(bands)[:20]} bands, 1 to 3 are known")

    def pixels(section: str, place: int, files: int) -> np.ndarray:
        names = _section(meta, section, path).get("files")
        if not isinstance(names, list) or len(names) != files or not all(isinstance(name, str) for name in names):
            raise unreadable(path, KIND, f"its {section} names no {files} files")
        data = load(names[place], MAX_PICTURE)
        return decode_webp(data, most, path, KIND, names[place][:40])

    def rows(section: str, place: int = 0, files: int = 1) -> np.ndarray:
        picture = pixels(section, place, files)
        if picture.shape[0] * picture.shape[1] < count:
            raise unreadable(path, KIND, f"a picture of its {section} has fewer pixels than its {count} Gaussians")
        return picture.reshape(-1, 4)[:count]

    low = rows("means", 0, 2)  # decoded before the table is made: now its size is known to be true
    columns = Columns(count, bands)
    low16 = low[:, :3].astype(np.uint16) | rows("means", 1, 2)[:, :3].astype(np.uint16) << np.uint16(8)
    _fill_means(columns.means, low16, *(_numbers(meta, "means", key, 3, path) for key in ("mins", "maxs")))
    columns.log_scales[:] = _numbers(meta, "scales", "codebook", SIZE, path)[rows("scales")[:, :3]]
    _fill_quats(columns.quats, rows("quats"))
    sh0 = rows("sh0")
    columns.sh[:, 0] = _numbers(meta, "sh0", "codebook", SIZE, path)[sh0[:, :3]]
    columns.logit_opacities[:] = LOGIT_OF_BYTE[sh0[:, 3]]
    if bands:
        book = _numbers(meta, "shN", "codebook", SIZE, path)
        _fill_bands(columns.sh, rows("shN", 1, 2), pixels("shN", 0, 2), book, path)
    columns.take(count)
    return Splats(columns.table(path), notes=(ANTIALIASED,) if meta.get("antialias") is True else ())


def _fill_means(means: np.ndarray, steps: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    for rows in blocks(len(means)):
        y = low.astype(np.float64) + steps[rows] / 65535.0 * (high.astype(np.float64) - low)
        with np.errstate(over="ignore"):  # such rows are dropped
            means[rows] = np.sign(y) * np.expm1(np.abs(y))


def _fill_quats(quats: np.ndarray, pixels: np.ndarray) -> None:
    for rows in blocks(len(quats)):
        index = pixels[rows, 3].astype(np.int64) - TAG
        others = (pixels[rows, :3] / np.float32(127.5) - 1) * np.float32(RANGE)
        quats[rows] = restore_largest(np.maximum(index, 0), others)
        quats[rows][index < 0] = [1, 0, 0, 0]


def _fill_bands(sh: np.ndarray, labels: np.ndarray, centroids: np.ndarray, book: np.ndarray, path: Path) -> None:
    width = sh.shape[1] - 1
    if centroids.shape[1] != ACROSS * width:
        why = f"its palette is {centroids.shape[1]} pixels wide, not {ACROSS * width}"
        raise unreadable(path, KIND, why)
    codes = centroids[:, :, :3].reshape(-1, width, 3)
    for rows in blocks(len(sh)):
        label = labels[rows, 0].astype(np.int64) + 256 * labels[rows, 1].astype(np.int64)
        if label.max() >= len(codes):
            raise unreadable(path, KIND, f"its palette has {len(codes)} sets of bands, it uses number {label.max()}")
        sh[rows, 1:] = book[codes[label]]


def _section(meta: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = meta.get(name)
    if not isinstance(section, dict):
        raise unreadable(path, KIND, f"its meta.json has no {name}")
    return section


def _numbers(meta: dict[str, Any], section: str, key: str, count: int, path: Path) -> np.ndarray:
    values = _section(meta, section, path).get(key)
    good = isinstance(values, list) and len(values) == count and all(type(v) in (int, float) for v in values)
    numbers = np.array(values, np.float64) if good else np.empty(0)
    if not good or not (np.abs(numbers) < 1e30).all():
        raise unreadable(path, KIND, f"the {key} of its {section} are not {count} numbers")
    return numbers.astype(np.float32)
