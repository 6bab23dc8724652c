""".splat files (antimatter15), in and out: 32 bytes per Gaussian, no header, no view-dependent colour.

    mean 3 f32   scale 3 f32 (linear)   colour r g b u8 (0.5 + C0 f_dc)   opacity u8   rotation w x y z u8 (q 128 + 128)

Viewers draw the file while it loads, so the largest and least transparent come first. Axes are not stated.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recon.core.files import replacing
from recon.geometry.sh import sh0_to_rgb
from recon.scene.formats.splats import (
    LOGIT_OF_BYTE,
    MAX_COUNT,
    SH0_OF_BYTE,
    Columns,
    Splats,
    arrays,
    blocks,
    log_scale,
    require_static,
    sigmoid,
    to_byte,
    unreadable,
)
from recon.scene.gaussians import Gaussians

KIND = ".splat"
RECORD = np.dtype([("mean", "<f4", 3), ("scale", "<f4", 3), ("rgb", "u1", 3), ("opacity", "u1"), ("wxyz", "u1", 4)])
STEPS = "colour and opacity 1/255, rotation 1/128"


def write_splat(gaussians: Gaussians, path: Path) -> None:
    """Writes static Gaussians (atomically), largest first; bands above 0 are left out."""
    g = require_static(gaussians, path, KIND)
    weight = g.log_scales.detach().sum(1) + g.logit_opacities.detach().sigmoid().log()
    ordered = g.select(weight.argsort(descending=True, stable=True))
    with replacing(path) as file:
        for rows in blocks(len(ordered)):
            means, log_scales, quats, logits, sh = arrays(ordered, rows)
            record = np.empty(len(means), RECORD)
            record["mean"], record["scale"] = means, np.exp(log_scales)
            record["rgb"], record["opacity"] = to_byte(sh0_to_rgb(sh[:, 0])), to_byte(sigmoid(logits))
            record["wxyz"] = np.clip(np.rint(quats * 128.0 + 128.0), 0, 255)
            file.write(record.data)


def read_splat(path: Path) -> Splats:
    """The Gaussians of a .splat file as static rows; InputError when its size is not a whole number of records."""
    try:
        size = path.stat().st_size
        if size == 0 or size % RECORD.itemsize or size // RECORD.itemsize > MAX_COUNT:
            raise unreadable(path, KIND, f"it has {size} bytes, and a Gaussian has {RECORD.itemsize}")
        columns = Columns(size // RECORD.itemsize, 0)
        with path.open("rb") as file:
            for rows in blocks(columns.count):
                record = np.fromfile(file, RECORD, rows.stop - rows.start)
                if len(record) != rows.stop - rows.start:
                    raise unreadable(path, KIND, "it became shorter while it was read")
                means, log_scales, quats, logits, sh = columns.block(len(record))
                means[:], log_scales[:] = record["mean"], log_scale(record["scale"])
                quats[:] = (record["wxyz"].astype(np.float32) - 128.0) / 128.0
                logits[:], sh[:, 0] = LOGIT_OF_BYTE[record["opacity"]], SH0_OF_BYTE[record["rgb"]]
                columns.take(len(record))
    except OSError as error:
        raise unreadable(path, KIND, error.strerror or str(error)) from error
    return Splats(columns.table(path))
