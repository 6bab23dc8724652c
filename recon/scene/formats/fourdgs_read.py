""".4dgs files of the model `gaussian-birth`, in: records one after the other, chunk by chunk."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from recon.geometry.sh import rgb_to_sh0
from recon.scene.formats import fourdgs_records as r
from recon.scene.formats.axes import KNOWN, UNSTATED
from recon.scene.formats.axes import RIGHT_UP_BACK as DIRECTIONS
from recon.scene.formats.fourdgs import MODEL, SCHEME, WORDS
from recon.scene.formats.quats import restore_largest
from recon.scene.formats.splats import MAX_COUNT, Columns, Splats, logit, unreadable
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import BODY_KINDS, Body

PER_BYTE = 128  # Gaussians a byte of a file may stand for: streams of one value for all take almost nothing
MAX_RECORD = 2**30
MAX_BODIES, MAX_KNOTS = 100_000, 1_000_000
STEP_NAMES = ("pos", "scale_log", "rot", "rgb", "alpha", "motion", "time", "sigma_log")
NEEDED = {r.POSITION, r.SCALE, r.LARGEST, r.ROTATION, r.COLOUR, r.OPACITY}


@dataclass
class _File:
    """What was read so far."""

    path: Path
    size: int
    count: int = -1
    degree: int = 0
    cutoff: float = 0.05
    words: dict[str, str] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    duration: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    origin: np.ndarray = field(default_factory=lambda: np.zeros(3))
    columns: Columns | None = None
    time: np.ndarray | None = None  # [N, 6] velocity, centre, log sigma, whether it lives in time
    objects: np.ndarray | None = None  # [N] int64
    windows: np.ndarray = field(default_factory=lambda: np.array([[0.0, np.inf]]))  # [W, 2] seconds
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # [N] whether seen in the first window
    filled: int = 0  # rows
    band_of: tuple[int, int] = (0, 0)  # rows of the last chunk
    axes: str = UNSTATED
    metric: bool = False
    names: dict[int, str] = field(default_factory=dict)
    tracks: dict[int, Track] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)

    def bad(self, why: str) -> Exception:
        """The error of this file."""
        return unreadable(self.path, r.KIND, why)


def read_fourdgs(path: Path) -> Splats:
    """The Gaussians, bodies and tracks of a .4dgs file. InputError, in one line, for anything else."""
    try:
        with path.open("rb") as file:
            found = _File(path, path.stat().st_size)
            if file.read(len(r.MAGIC)) != r.MAGIC:
                raise found.bad("it does not start with the magic of version 1")
            while _record(found, file):
                pass
    except OSError as error:
        raise unreadable(path, r.KIND, error.strerror or str(error)) from error
    if found.columns is None or found.filled != found.count:
        raise found.bad(f"it declares {found.count} Gaussians and holds {found.filled}")
    return _splats(found)


def _record(found: _File, file: BinaryIO) -> bool:
    """Reads one record; False after the footer."""
    head = file.read(r.RECORD.size)
    if len(head) < r.RECORD.size:
        raise found.bad("it ends before its footer")
    kind, length = r.RECORD.unpack(head)
    if length > found.size - file.tell():
        raise found.bad(f"a record of {length} bytes does not fit into it")
    known = {
        r.HEADER: _header, r.QUANTIZATION: _quantization, r.CHUNK: _chunk, r.BAND: _band, r.FRAME: _frame,
        r.OBJECTS: _objects, r.TRACK: _track, r.WINDOWS: _windows,
    }  # fmt: skip
    if kind not in known:
        if kind == 0x10:
            raise found.bad("it holds differences of key frames; of them only `gaussian-birth` files are free")
        file.seek(length, 1)
        return kind != r.FOOTER
    if length > MAX_RECORD:
        raise found.bad(f"a record has {length} bytes")
    known[kind](found, r.Fields(found.path, file.read(length)))
    return True


def _header(found: _File, fields: r.Fields) -> None:
    if found.columns is not None:
        raise found.bad("it has two headers")
    fields.text(), fields.text()
    found.duration, found.count, found.cutoff = fields.take("dQd")
    model = fields.text()
    fields.take("6d")
    found.degree, _ = fields.take("BB")
    found.words = fields.words()
    if model != MODEL:
        raise found.bad(f"its model is {model[:40]!r}; {MODEL} is read")
    if not 0 < found.count <= min(MAX_COUNT, PER_BYTE * found.size) or found.degree > 3:
        raise found.bad(f"it declares {found.count} Gaussians of degree {found.degree}, which it cannot hold")
    if not 0 < found.cutoff <= 1 or not abs(found.duration) < 1e9:
        raise found.bad("its cutoff or duration cannot be")
    if found.words.get("color_space", "srgb-rec709-display") != "srgb-rec709-display":
        found.notes.add(f"its colours are {found.words['color_space'][:40]}; they are taken as they are")
    try:
        ours = json.loads(found.words.get(WORDS, "{}"))
    except (ValueError, RecursionError):
        ours = {}
    found.ours = ours if isinstance(ours, dict) else {}
    found.columns = Columns(found.count, found.degree)
    found.columns.sh[:] = 0
    found.time = np.zeros((found.count, 6), np.float32)
    found.objects, found.kept = np.zeros(found.count, np.int64), np.zeros(found.count, bool)


def _windows(found: _File, fields: r.Fields) -> None:
    (count,) = fields.take("I")
    windows = np.frombuffer(fields.bytes(16 * count), "<f8").reshape(count, 2)
    if count == 0 or np.isnan(windows).any():
        raise found.bad("its windows of time cannot be")
    found.windows = windows


def _quantization(found: _File, fields: r.Fields) -> None:
    scheme = fields.text()
    found.origin = np.array(fields.take("3d"))
    steps = fields.take("8d")
    if scheme != SCHEME or not np.isfinite(found.origin).all() or not all(0 < step < 1e9 for step in steps):
        raise found.bad(f"its numbers are rounded by {scheme[:40]!r} with steps that are not read")
    found.steps = dict(zip(STEP_NAMES, steps, strict=True))


def _chunk(found: _File, fields: r.Fields) -> None:
    if found.columns is None or found.time is None or found.objects is None or not found.steps:
        raise found.bad("a chunk comes before what explains it")
    _, _, _, rows = fields.take("ddII")
    packing = fields.text()
    fields.take("QQ")
    if packing or not 0 < rows <= found.count - found.filled:
        raise found.bad(f"a chunk declares {rows} Gaussians, {found.count - found.filled} are left, or is packed")
    columns: dict[int, np.ndarray] = {}
    while fields.left:
        attribute, values = fields.stream(r.CHANNELS, rows)
        columns[attribute] = values
    if NEEDED - set(columns):
        raise found.bad(f"a chunk lacks the attribute {min(NEEDED - set(columns))}")
    _fill(found, columns, slice(found.filled, found.filled + rows))
    found.band_of = (found.filled, rows)
    found.filled += rows


def _fill(found: _File, columns: dict[int, np.ndarray], rows: slice) -> None:
    table, steps = found.columns, found.steps
    assert table is not None and found.time is not None and found.objects is not None
    with np.errstate(over="ignore", invalid="ignore"):  # such rows are dropped
        table.means[rows] = columns[r.POSITION] * steps["pos"] + found.origin
        table.log_scales[rows] = columns[r.SCALE] * steps["scale_log"]
        largest = columns[r.LARGEST][:, 0]
        if largest.min() < 0 or largest.max() > 3:
            raise found.bad("a rotation's largest component is none of four")
        others = np.clip(columns[r.ROTATION] * steps["rot"], -1.0, 1.0).astype(np.float32)
        table.quats[rows] = restore_largest(largest, others)[:, [3, 0, 1, 2]]
        green, red, blue = columns[r.COLOUR].T
        table.sh[rows, 0] = rgb_to_sh0(np.stack([red + green, green, blue + green], 1) * steps["rgb"])
        table.logit_opacities[rows] = logit(columns[r.OPACITY][:, 0] * steps["alpha"])
        zero = np.zeros((rows.stop - rows.start, 3), np.int64)
        forever = (columns.get(r.FLAGS, zero + r.NEVER_FADES)[:, 0] & r.NEVER_FADES) != 0
        log_sigma = columns.get(r.SIGMA, zero)[:, 0] * steps["sigma_log"]
        sigma = np.maximum(np.exp(np.clip(log_sigma, -60.0, 60.0)), 1e-30)
        time = found.time[rows]
        time[:, :3] = (
            columns.get(r.MOTION, zero) * r.motion_step(steps["motion"], sigma, forever, found.cutoff)[:, None]
        )
        time[:, 3] = columns.get(r.CENTRE, zero)[:, 0] * r.centre_step(steps["time"], sigma, forever)
        time[:, 4], time[:, 5] = log_sigma, ~forever
    window = columns.get(r.WINDOW, zero)[:, 0]
    if window.min() < 0 or window.max() >= len(found.windows):
        raise found.bad(f"a Gaussian is seen in window {window.max()} of {len(found.windows)}")
    found.kept[rows] = found.windows[window, 0] <= found.windows[:, 0].min()
    if not found.kept[rows].all() or (found.windows[window, 1] < found.duration).any():
        found.notes.add("it cuts Gaussians off at windows of time; those of its first window are read, as uncut")
    if forever.any() and np.abs(time[forever, :3]).max() > 0:
        found.notes.add("some of its Gaussians move for ever; they are read as standing still")
    if r.OBJECT in columns:
        found.objects[rows] = columns[r.OBJECT][:, 0]


def _band(found: _File, fields: r.Fields) -> None:
    (degree,) = fields.take("B")
    start, rows = found.band_of
    if found.columns is None or degree not in r.BANDS or degree > found.degree or rows == 0:
        raise found.bad(f"it has colours of band {degree}, which its header does not declare")
    first, last = r.BANDS[degree]
    _, values = fields.stream(None, rows, 3 * (last - first))
    bands = values.reshape(rows, 3, last - first).transpose(0, 2, 1)
    found.columns.sh[start : start + rows, 1 + first : 1 + last] = bands * r.SH_STEP + r.SH_LOW


def _frame(found: _File, fields: r.Fields) -> None:
    fields.text()
    hands, up, forward, unit, metres = fields.take("BBBBd")
    ways = {}
    for axes in KNOWN:
        frame = np.array([DIRECTIONS[letter] for letter in axes], np.float64).T
        ways[axes] = tuple(int(np.argmax([*(frame.T @ way), *(-frame.T @ way)])) for way in ((0, 1, 0), (0, 0, -1)))
    same = [axes for axes in KNOWN if ways[axes] == (up, forward) and axes != "ruf"]
    if hands == 2 or (hands == 1 and not same):
        found.notes.add("the way its axes point is none we have a name for")
    elif same:
        found.axes = same[0]
    found.metric = unit == 1 or metres == 1.0


def _objects(found: _File, fields: r.Fields) -> None:
    count, width = fields.take("IH")
    if count > min(MAX_BODIES, len(fields.data)):
        raise found.bad(f"it declares {count} objects, which it cannot hold")
    for _ in range(count):
        (number,) = fields.take("I")
        found.names[number] = fields.text()[:200]
        fields.take("3f")
        if fields.take("B")[0]:
            fields.take("9f")
        if width and fields.take("B")[0]:
            fields.bytes(4 * width)


def _track(found: _File, fields: r.Fields) -> None:
    number, form, count = fields.take("IBI")
    if form != 0:
        found.notes.add("its tracks go in steps; they are read as straight between their knots")
    if count == 0:
        return
    if count > MAX_KNOTS or number == 0 or number >= 2**31 or number in found.tracks:
        raise found.bad(f"its track of object {number} with {count} knots cannot be")
    knots = np.frombuffer(fields.bytes(64 * count), "<f8").reshape(count, 8)
    times = knots[:, 0]
    good = np.isfinite(knots).all() and (np.diff(times) > 0).all() and np.abs(knots).max() < 1e9
    if not good or (np.abs(knots[:, 1:5]).sum(1) == 0).any():
        raise found.bad(f"the knots of the track of object {number} are not in order")
    quats, positions = knots[:, [4, 1, 2, 3]].astype(np.float32), knots[:, 5:].astype(np.float32)
    found.tracks[number] = Track(times, torch.from_numpy(positions), torch.from_numpy(quats))


def _splats(found: _File) -> Splats:
    assert found.columns is not None and found.time is not None and found.objects is not None
    start = _number(found.ours.get("start"), 0.0)
    finite = np.isfinite(found.time).all(1) & np.isfinite(found.columns.means).all(1)
    found.columns.means[~finite] = np.nan  # their rows go together
    whole = np.isfinite(found.columns.means).all(1) & np.isfinite(found.columns.log_scales).all(1)
    whole &= np.isfinite(found.columns.sh).reshape(found.count, -1).all(1)
    found.columns.take(found.count)
    g = found.columns.table(found.path)
    time, objects = found.time[whole], found.objects[whole]
    bodies = _bodies(found, np.unique(objects).tolist(), start)
    numbers = {body.id for body in bodies}
    rigid = np.isin(objects, list(numbers))
    living = (time[:, 5] > 0) & ~rigid
    if ((time[:, 5] > 0) & rigid).any():
        found.notes.add("some Gaussians of its objects fade; they are read as staying")
    kind = np.where(rigid, RIGID, np.where(living, RESIDUAL, STATIC)).astype(np.uint8)
    g = _in_time(g, time, np.where(rigid, objects, 0), kind, start)
    kept = found.kept[whole]
    if not kept.all():
        g = g.select(torch.from_numpy(kept))
    end = max(start, _number(found.ours.get("end"), start + found.duration))
    return Splats(g, found.axes, tuple(sorted(found.notes)), bodies, (start, end), metric=found.metric)


def _in_time(g: Gaussians, time: np.ndarray, objects: np.ndarray, kind: np.ndarray, start: float) -> Gaussians:
    living = torch.from_numpy(kind == RESIDUAL)
    columns = torch.from_numpy(time)
    zero = torch.zeros_like(g.logit_opacities)
    return replace(
        g, kind=torch.from_numpy(kind), object_id=torch.from_numpy(objects.astype(np.int32)),
        velocities=torch.where(living[:, None], columns[:, :3], torch.zeros_like(g.means)),
        time_centers=torch.where(living, columns[:, 3] + start, zero),
        log_durations=torch.where(living, columns[:, 4], zero),
    )  # fmt: skip


def _bodies(found: _File, used: list[int], start: float) -> tuple[Body, ...]:
    numbers = sorted(({*found.names, *found.tracks, *used}) - {0})
    if any(not 0 < number < 2**31 for number in numbers):
        raise found.bad(f"it has an object of the number {numbers[0]}")
    words = found.ours.get("bodies")
    words = words if isinstance(words, dict) else {}
    names: dict[int, str] = {}
    for number in numbers:
        name = found.names.get(number, "")
        usable = name and name.isprintable() and name not in names.values()
        names[number] = name if usable else f"object {number}"
    bodies = []
    for number in numbers:
        own = words.get(str(number))
        own = own if isinstance(own, dict) else {}
        kind, parent, track = own.get("kind"), own.get("parent"), found.tracks.get(number)
        if track is not None:
            track = Track(track.times + start, track.positions, track.quats)
        kind = kind if kind in BODY_KINDS else "object"
        parent = parent if parent in names.values() and parent != names[number] else None
        bodies.append(Body(names[number], number, kind, parent, track))
    return tuple(bodies)


def _number(value: Any, other: float) -> float:
    return float(value) if type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e9 else other
