"""INRIA Gaussian PLY files, in and out.

    binary_little_endian; element vertex; float32 properties
    x y z  nx ny nz  f_dc_0..2  f_rest_0..3(K-1)-1  opacity  scale_0..2  rot_0..3

f_rest is channel-major (all red, all green, all blue); opacity is a logit, scales are logs, rotations raw wxyz.
Readers go by the names: normals may be absent, further scalar properties are skipped.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import numpy as np
import torch

from recon.core.errors import InputError, UsageError
from recon.core.files import write_bytes
from recon.geometry.sh import MAX_DEGREE
from recon.scene.gaussians import STATIC, Gaussians

MAX_HEADER = 64 * 1024  # bytes
MAX_PROPERTIES = 512
MAX_FILE = 16 * 1024**3  # bytes

_TYPES = {
    "char": "i1", "uchar": "u1", "short": "<i2", "ushort": "<u2", "int": "<i4", "uint": "<u4",
    "int8": "i1", "uint8": "u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
    "float": "<f4", "float32": "<f4", "double": "<f8", "float64": "<f8",
}  # fmt: skip
_COLUMNS = {
    "means": ["x", "y", "z"],
    "sh0": ["f_dc_0", "f_dc_1", "f_dc_2"],
    "logit_opacities": ["opacity"],
    "log_scales": ["scale_0", "scale_1", "scale_2"],
    "quats": ["rot_0", "rot_1", "rot_2", "rot_3"],
}


def write_ply(gaussians: Gaussians, path: Path) -> None:
    """Writes static Gaussians as an INRIA PLY file (atomically).

    Raises UsageError for a table with moving rows: the format knows no motion (use Scene.frozen(t)).
    """
    if bool((gaussians.kind != STATIC).any()):
        raise UsageError(
            f"cannot write {path}", why="PLY files know no motion", fix="Freeze the scene at one time first."
        )
    g = gaussians.validate("the Gaussians to write")
    count, rest = len(g), 3 * (g.sh.shape[1] - 1)
    columns = [
        g.means,
        torch.zeros_like(g.means),
        g.sh[:, 0],
        g.sh[:, 1:].transpose(1, 2).reshape(count, rest),
        g.logit_opacities[:, None],
        g.log_scales,
        g.quats,
    ]
    table = torch.cat([column.detach().cpu().float() for column in columns], 1).numpy()
    names = [*_COLUMNS["means"], "nx", "ny", "nz", *_COLUMNS["sh0"], *(f"f_rest_{i}" for i in range(rest))]
    names += [*_COLUMNS["logit_opacities"], *_COLUMNS["log_scales"], *_COLUMNS["quats"]]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    lines += [*(f"property float {name}" for name in names), "end_header", ""]
    write_bytes(path, "\n".join(lines).encode("ascii") + table.astype("<f4").tobytes())


def read_ply(path: Path) -> Gaussians:
    """The Gaussians of an INRIA PLY file, as static rows.

    Rows with NaN or infinity are dropped with a warning that counts them. Raises InputError, in one line, for anything
    else that is not such a file.
    """
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            head = file.read(MAX_HEADER)
            count, row, start = _parse_header(path, head)
            expected = start + count * row.itemsize
            if size != expected:
                held = (size - start) / row.itemsize
                raise _error(
                    path, f"its header declares {count} Gaussians of {row.itemsize} bytes, it holds {held:.6g}"
                )
            if size > MAX_FILE:
                raise _error(path, f"it is larger than {MAX_FILE // 1024**3} GiB")
            file.seek(start)
            table = np.fromfile(file, dtype=row, count=count)
    except OSError as error:
        raise _error(path, error.strerror or str(error)) from error
    if len(table) != count:
        raise _error(path, f"it ended after {len(table)} of {count} Gaussians")
    return _gaussians(path, table)


def _parse_header(path: Path, head: bytes) -> tuple[int, np.dtype, int]:
    """(number of rows, row type, offset of the first row)."""
    match = re.search(rb"\r?\nend_header\r?\n", head)
    if not head.startswith((b"ply\n", b"ply\r\n")):
        raise _error(path, "it does not start with 'ply'")
    if match is None:
        raise _error(path, f"its header does not end within {MAX_HEADER // 1024} KiB")
    try:
        lines = head[: match.start()].decode("ascii").splitlines()[1:]
    except UnicodeDecodeError as error:
        raise _error(path, "its header is not ASCII") from error
    count: int | None = None
    form = ""
    properties: dict[str, str] = {}
    for line in lines:
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "format" and len(words) == 3 and not form:
            form = words[1]
        elif words[0] == "element" and len(words) == 3:
            if words[1] != "vertex" or count is not None:
                hint = "; this is a compressed PLY, which is another format" if words[1] == "chunk" else ""
                raise _error(path, f"its only element must be 'vertex', found {words[1][:40]!r}{hint}")
            if not re.fullmatch(r"\d{1,12}", words[2]):
                raise _error(path, f"its number of Gaussians is {words[2][:40]!r}")
            count = int(words[2])
        elif words[0] == "property" and count is not None:
            _add_property(path, words, properties)
        else:
            raise _error(path, f"its header has the line {line[:60]!r}")
    if form != "binary_little_endian":
        raise _error(path, f"its data are {form[:40] or 'of no stated format'}, not binary_little_endian")
    if not count:
        raise _error(path, "it declares no Gaussians")
    row = np.dtype(list(properties.items()))
    return count, row, match.end()


def _add_property(path: Path, words: list[str], properties: dict[str, str]) -> None:
    if len(words) != 3 or words[1] not in _TYPES:
        raise _error(path, f"its property {' '.join(words[1:])[:60]!r} is not a single number of a known type")
    if words[2] in properties or len(properties) >= MAX_PROPERTIES:
        raise _error(path, f"its property {words[2][:40]!r} comes twice, or there are more than {MAX_PROPERTIES}")
    properties[words[2]] = _TYPES[words[1]]


def _gaussians(path: Path, table: np.ndarray) -> Gaussians:
    fields = {name: table.dtype[name] for name in table.dtype.names or ()}
    rest = sum(name.startswith("f_rest_") for name in fields)
    degrees = {3 * ((degree + 1) ** 2 - 1): degree for degree in range(MAX_DEGREE + 1)}
    if rest not in degrees:
        raise _error(
            path, f"it has {rest} f_rest properties", f"only {', '.join(map(str, degrees))} make a full degree"
        )
    wanted = {**_COLUMNS, "rest": [f"f_rest_{i}" for i in range(rest)]}
    missing = [name for names in wanted.values() for name in names if name not in fields]
    if missing:
        raise _error(path, f"it lacks the properties {', '.join(missing[:6])}{' ...' if len(missing) > 6 else ''}")
    wrong = [name for names in wanted.values() for name in names if fields[name] != np.dtype("<f4")]
    if wrong:
        raise _error(path, f"its property '{wrong[0]}' is not float32")
    columns = {
        key: np.stack([table[name] for name in names], 1) if names else np.zeros((len(table), 0), np.float32)
        for key, names in wanted.items()
    }
    finite = np.all([np.isfinite(column).all(1) for column in columns.values()], axis=0)
    if not finite.all():
        dropped = int((~finite).sum())
        warnings.warn(f"{path}: dropped {dropped} of {len(table)} Gaussians that are not finite", stacklevel=3)
        columns = {key: column[finite] for key, column in columns.items()}
    tensors = {key: torch.from_numpy(np.ascontiguousarray(column)) for key, column in columns.items()}
    count = len(tensors["means"])
    higher = tensors["rest"].reshape(count, 3, rest // 3).transpose(1, 2)
    sh = torch.cat([tensors["sh0"][:, None], higher], 1).contiguous()
    logits = tensors["logit_opacities"][:, 0].contiguous()
    return Gaussians.static(tensors["means"], tensors["log_scales"], tensors["quats"], logits, sh)


def _error(path: Path, why: str, more: str = "") -> InputError:
    return InputError(f"{path} is not a Gaussian PLY file", why=f"{why} ({more})" if more else why)
