"""INRIA Gaussian PLY files, in and out.

    binary_little_endian; element vertex; float32 properties
    x y z  nx ny nz  f_dc_0..2  f_rest_0..3(K-1)-1  opacity  scale_0..2  rot_0..3

f_rest is channel-major (all red, all green, all blue); opacity is a logit, scales are logs, rotations raw wxyz.
Readers go by the names: normals may be absent, further scalar properties are skipped. Axes are not stated.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from recon.core.files import replacing
from recon.geometry.sh import MAX_DEGREE
from recon.scene.formats.ply_header import KIND, MAX_HEADER, check_size, parse_header
from recon.scene.formats.splats import (
    ANTIALIASED,
    MAX_FILE,
    Columns,
    Splats,
    blocks,
    require_static,
    unreadable,
)
from recon.scene.gaussians import Gaussians

_MEANS = ["x", "y", "z"]
_SH0 = ["f_dc_0", "f_dc_1", "f_dc_2"]
_SCALES = ["scale_0", "scale_1", "scale_2"]
_QUATS = ["rot_0", "rot_1", "rot_2", "rot_3"]


def write_ply(gaussians: Gaussians, path: Path) -> None:
    """Writes static Gaussians as an INRIA PLY file (atomically).

    Raises UsageError for a table with moving rows: the format knows no motion (use Scene.frozen(t)).
    """
    g = require_static(gaussians, path, "PLY")
    count, rest = len(g), 3 * (g.sh.shape[1] - 1)
    names = [*_MEANS, "nx", "ny", "nz", *_SH0, *(f"f_rest_{i}" for i in range(rest)), "opacity", *_SCALES, *_QUATS]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    lines += [*(f"property float {name}" for name in names), "end_header", ""]
    columns = (g.means, g.sh, g.logit_opacities, g.log_scales, g.quats)
    means, sh, logits, log_scales, quats = (column.detach().cpu().float().numpy() for column in columns)
    with replacing(path) as file:
        file.write("\n".join(lines).encode("ascii"))
        for rows in blocks(count):
            size = rows.stop - rows.start
            table = np.zeros((size, len(names)), "<f4")
            table[:, 0:3] = means[rows]
            table[:, 6:9] = sh[rows, 0]
            table[:, 9 : 9 + rest].reshape(size, 3, rest // 3)[:] = sh[rows, 1:].transpose(0, 2, 1)
            table[:, 9 + rest] = logits[rows]
            table[:, 10 + rest : 13 + rest] = log_scales[rows]
            table[:, 13 + rest :] = quats[rows]
            file.write(table.data)


def read_ply(path: Path) -> Splats:
    """The Gaussians of an INRIA PLY file, as static rows.

    Rows with NaN or infinity are dropped with a warning that counts them. Raises InputError, in one line, for anything
    else that is not such a file.
    """
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            head = file.read(MAX_HEADER)
            header = parse_header(path, head, ("vertex",))
            element = header.elements[0] if header.elements else None
            if element is None or element.count == 0:
                raise unreadable(path, KIND, "it declares no Gaussians")
            check_size(path, header, size, MAX_FILE)
            degree = _degree(path, element.row)
            columns = Columns(element.count, degree)
            file.seek(header.start)
            for rows in blocks(element.count):
                table = np.fromfile(file, dtype=element.row, count=rows.stop - rows.start)
                if len(table) != rows.stop - rows.start:
                    raise unreadable(path, KIND, f"it ended before its {element.count} Gaussians did")
                _fill(columns, table, degree)
    except OSError as error:
        raise unreadable(path, KIND, error.strerror or str(error)) from error
    return Splats(columns.table(path), notes=tuple(_notes(header.comments)))


def _degree(path: Path, row: np.dtype) -> int:
    """The degree of the colours of rows of this type, after checking that every property is there as float32."""
    fields = {name: row[name] for name in row.names or ()}
    rest = sum(name.startswith("f_rest_") for name in fields)
    degrees = {3 * ((degree + 1) ** 2 - 1): degree for degree in range(MAX_DEGREE + 1)}
    if rest not in degrees:
        counts = ", ".join(map(str, degrees))
        raise unreadable(path, KIND, f"it has {rest} f_rest properties (only {counts} make a full degree)")
    wanted = [*_MEANS, *_SH0, *(f"f_rest_{i}" for i in range(rest)), "opacity", *_SCALES, *_QUATS]
    missing = [name for name in wanted if name not in fields]
    if missing:
        text = f"it lacks the properties {', '.join(missing[:6])}{' ...' if len(missing) > 6 else ''}"
        raise unreadable(path, KIND, text)
    wrong = [name for name in wanted if fields[name] != np.dtype("<f4")]
    if wrong:
        raise unreadable(path, KIND, f"its property '{wrong[0]}' is not float32")
    return degrees[rest]


def _fill(columns: Columns, table: np.ndarray, degree: int) -> None:
    means, log_scales, quats, logits, sh = columns.block(len(table))
    for target, names in ((means, _MEANS), (log_scales, _SCALES), (quats, _QUATS), (sh[:, 0], _SH0)):
        for k, name in enumerate(names):
            target[:, k] = table[name]
    logits[:] = table["opacity"]
    bands = (degree + 1) ** 2 - 1
    for channel in range(3):
        for k in range(bands):
            sh[:, 1 + k, channel] = table[f"f_rest_{channel * bands + k}"]
    columns.take(len(table))


def _notes(comments: tuple[str, ...]) -> list[str]:
    """What the tools that state how a file is to be drawn say: it is not ours to draw another way silently."""
    spoken = {comment.lower() for comment in comments}
    if spoken & {"splatrendermode: mip", "antialiased 1"}:
        return [ANTIALIASED]
    return ["it holds 2D Gaussians; they are read as flat ones"] if "splatrendermode: 2dgs" in spoken else []
