""".4dgs files with object tracks (profile `objects`), out: Gaussians that are born and fade, on one clock.

    01 header    profile, library, f64 duration, u64 count, f64 cutoff, model, 6 f64 box, u8 degree, u8 flags, map
    03 steps     scheme, 3 f64 origin, 8 f64 steps (position, log scale, rotation, colour, opacity, motion, time, log
                 sigma), u8 step of the bands, map of the errors they make
    04 windows   u32 count, pairs of f64
    20 frame     name, u8 hands, u8 up, u8 forward (0..5: +x +y +z -x -y -z), u8 unit, f64 metres
    24 objects   u32 count, u16 0; each u32 id, name, 3 f32, u8 0
    25 track     u32 id, u8 0 linear, u32 count; each f64 time, 4 f64 x y z w, 3 f64
    05 chunk     f64 from, f64 to, u32 level, u32 count, text, u64 size, u64 size, streams; 07 band  u8 degree, stream
    08 index     f64 from, f64 to, u64 offset, u64 length, u32 count, u32 bands; each u8 degree, u64 offset, u64 length
    02 footer    u64 start of the index, u64 0, u32 crc of the index

Colours are 0.5 + C0 f_dc as they are shown (sRGB), green, red - green, blue - green; opacities linear; times count from
the scene's start. Bodies' rows are in the body's frame, their tracks lead to the world.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from recon.core.files import replacing
from recon.geometry.quaternion import quat_normalize
from recon.geometry.sh import sh0_to_rgb
from recon.scene.formats import fourdgs_records as r
from recon.scene.formats.axes import RIGHT_UP_BACK as DIRECTIONS
from recon.scene.formats.compressed_ply import morton_order
from recon.scene.formats.quats import drop_largest
from recon.scene.formats.splats import Splats, arrays, doubles, sigmoid
from recon.scene.gaussians import RESIDUAL, RIGID, Gaussians
from recon.scene.motion import FADED
from recon.scene.scene import Body

STEPS = "position 15 um, log scale 1/512, rotation 1/8192, colour and opacity 1/4096, bands 1/32"
MODEL, SCHEME, PROFILE = "gaussian-birth", "uniform-v1", "objects"
PITCH = {
    "pos": 2.0**-16, "scale_log": 2.0**-9, "rot": 2.0**-13, "rgb": 2.0**-12, "alpha": 2.0**-12, "motion": 2.0**-14,
    "time": 2.0**-13, "sigma_log": 2.0**-9,
}  # fmt: skip
LARGEST = 2**30  # the largest number a stream holds
ROWS = 1 << 16  # of a chunk
WORDS = "recon"  # key of the header's map: what only we write and read
FRAME_AXES = {"rdf", "rub", "rfu", "luf", "flu"}


def write_fourdgs(splats: Splats, path: Path) -> None:
    """Writes Gaussians, bodies and tracks (atomically), in the axes that `splats` says (unstated: none are written)."""
    g = splats.gaussians.validate("the Gaussians to write")
    start, end = splats.time_range
    duration = max(end - start, 1e-3)
    steps, origin = _steps(g)
    means = g.means.detach().cpu().float().numpy()
    box = [*means.min(0), *means.max(0)] if len(g) else [0.0] * 6
    ours = {
        "start": start, "end": end,
        "bodies": {str(b.id): {"kind": b.kind, "parent": b.parent} for b in splats.bodies},
    }  # fmt: skip
    head = {"color_space": "srgb-rec709-display", WORDS: json.dumps(ours, allow_nan=False)}
    errors = {"pos": steps["pos"] / 2, "rgb": steps["rgb"] / 2, "alpha": steps["alpha"] / 2, "rot": steps["rot"] / 2}
    with replacing(path) as file:
        file.write(r.MAGIC)
        name, library = r.text(PROFILE if splats.bodies else ""), r.text("recon")
        file.write(
            r.record(
                r.HEADER, name, library, struct.pack("<dQd", duration, len(g), FADED), r.text(MODEL),
                r.doubles(*map(float, box)), struct.pack("<BB", g.degree, 0), r.words(head),
            )
        )  # fmt: skip
        file.write(
            r.record(
                r.QUANTIZATION, r.text(SCHEME), r.doubles(*origin, *steps.values()), b"\x01",
                r.words({key: repr(value) for key, value in errors.items()}),
            )
        )  # fmt: skip
        file.write(r.record(r.WINDOWS, struct.pack("<Idd", 1, 0.0, float("inf"))))
        file.write(_frame(splats) + _objects(splats.bodies))
        for body in splats.bodies:
            file.write(_track(body, start))
        index = b""
        order = morton_order(means) if len(g) else np.empty(0, np.int64)
        # What lives in time and what does not are apart: a player that seeks has less to skip.
        order = order[np.argsort(g.kind.cpu().numpy()[order] == RESIDUAL, kind="stable")]
        for first in range(0, len(g), ROWS):
            rows = g.select(torch.from_numpy(order[first : first + ROWS]))
            index += _chunk(file, rows, steps, origin, start, duration, bool(splats.bodies))
        place = file.tell()
        file.write(index)
        file.write(r.record(r.FOOTER, struct.pack("<QQI", place if index else 0, 0, zlib.crc32(index) if index else 0)))
        file.write(r.MAGIC)


def _steps(g: Gaussians) -> tuple[dict[str, float], list[float]]:
    """(steps by name, origin of the positions): as fine as said, coarser where a number would not fit."""
    steps = dict(PITCH)
    if len(g) == 0:
        return steps, [0.0] * 3
    means = doubles(g.means)
    while float((means.max(0) - means.min(0)).max()) / steps["pos"] > LARGEST:
        steps["pos"] *= 2
    living = g.kind == RESIDUAL
    if bool(living.any()):
        # Speeds of long-lived rows have a quarter of the step.
        while 4 * float(g.velocities[living].abs().max()) / steps["motion"] > LARGEST:
            steps["motion"] *= 2
        while 1024 * float(g.time_centers[living].abs().max()) / steps["time"] > LARGEST:
            steps["time"] *= 2
    return steps, means.min(0).tolist()


def _frame(splats: Splats) -> bytes:
    if splats.axes not in FRAME_AXES:
        return b""
    frame = np.array([DIRECTIONS[letter] for letter in splats.axes], np.float64).T  # columns x y z in right up back
    axes = [int(np.argmax(frame.T @ way)) if (frame.T @ way).max() > 0.5 else 3 + int(np.argmin(frame.T @ way))
            for way in (np.array([0.0, 1, 0]), np.array([0.0, 0, -1]))]  # fmt: skip
    unit, metres = (1, 1.0) if splats.metric else (0, 0.0)
    return r.record(r.FRAME, r.text("world"), struct.pack("<BBBBd", 1, *axes, unit, metres))


def _objects(bodies: tuple[Body, ...]) -> bytes:
    if not bodies:
        return b""
    entries = [struct.pack("<I", b.id) + r.text(b.name) + struct.pack("<3fB", 0, 0, 0, 0) for b in bodies]
    return r.record(r.OBJECTS, struct.pack("<IH", len(bodies), 0), *entries)


def _track(body: Body, start: float) -> bytes:
    track = body.track
    if track is None:
        return b""
    positions = doubles(track.positions)
    xyzw = quat_normalize(doubles(track.quats))[:, [1, 2, 3, 0]]
    knots = [r.doubles(t - start, *q, *p) for t, q, p in zip(track.times, xyzw, positions, strict=True)]
    return r.record(r.TRACK, struct.pack("<IBI", body.id, 0, len(knots)), *knots)


def _chunk(
    file: BinaryIO, g: Gaussians, steps: dict[str, float], origin: list[float], start: float, duration: float,
    objects: bool,
) -> bytes:  # fmt: skip
    """Writes one chunk and its bands; returns its record of the index."""
    streams = b"".join(r.stream(k, v) for k, v in _columns(g, steps, np.array(origin), start, objects))
    head = struct.pack("<ddII", 0.0, duration, 0, len(g)) + r.text("") + struct.pack("<QQ", len(streams), len(streams))
    place = file.tell()
    size = file.write(r.record(r.CHUNK, head, streams))
    bands = []
    sh = arrays(g, slice(None))[4]
    for degree in range(1, g.degree + 1):
        first, last = r.BANDS[degree]
        codes = np.clip(np.rint((sh[:, 1 + first : 1 + last] - r.SH_LOW) / r.SH_STEP), 0, 255)
        # all red, all green, all blue
        data = r.record(r.BAND, bytes([degree]), r.stream(r.BAND, codes.transpose(0, 2, 1).reshape(len(g), -1)))
        bands.append(struct.pack("<BQQ", degree, file.tell(), len(data)))
        file.write(data)
    return r.record(r.INDEX, struct.pack("<ddQQII", 0.0, duration, place, size, len(g), len(bands)), *bands)


def _columns(
    g: Gaussians, steps: dict[str, float], origin: np.ndarray, start: float, objects: bool
) -> list[tuple[int, np.ndarray]]:
    """(attribute, whole numbers) of all columns."""
    means, log_scales, quats, logits, sh = arrays(g, slice(None))
    index, others = drop_largest(quats[:, [1, 2, 3, 0]].astype(np.float64))
    colours = np.rint(sh0_to_rgb(sh[:, 0]).astype(np.float64) / steps["rgb"]).astype(np.int64)
    green = colours[:, 1:2]
    forever = (g.kind != RESIDUAL).cpu().numpy()
    log_sigma = np.where(forever, 0.0, np.clip(doubles(g.log_durations), -40.0, 40.0))
    sigma_bin = np.rint(log_sigma / steps["sigma_log"]).astype(np.int64)
    sigma = np.exp(sigma_bin * steps["sigma_log"])
    speed = np.where(forever[:, None], 0.0, doubles(g.velocities))
    centre = np.where(forever, 0.0, doubles(g.time_centers) - start)
    columns = [
        (r.POSITION, (means.astype(np.float64) - origin) / steps["pos"]),
        (r.SCALE, np.clip(log_scales.astype(np.float64), -60.0, 60.0) / steps["scale_log"]),
        (r.LARGEST, index),
        (r.ROTATION, others / steps["rot"]),
        (r.COLOUR, np.concatenate([green, colours[:, :1] - green, colours[:, 2:] - green], 1)),
        (r.OPACITY, sigmoid(logits.astype(np.float64)) / steps["alpha"]),
        (r.MOTION, speed / r.motion_step(steps["motion"], sigma, forever, FADED)[:, None]),
        (r.CENTRE, centre / r.centre_step(steps["time"], sigma, forever)),
        (r.SIGMA, sigma_bin),
        (r.FLAGS, forever.astype(np.int64) * r.NEVER_FADES),
        (r.WINDOW, np.zeros(len(g), np.int64)),
    ]
    if objects:
        columns.append((r.OBJECT, np.where((g.kind == RIGID).cpu(), g.object_id.cpu(), 0)))
    return [(attribute, np.rint(values).astype(np.int64)) for attribute, values in columns]
