"""OpenUSD files with ParticleField3DGaussianSplat prims, in (package usd-core, extra `usd`).

Only one layer is opened: what it refers to elsewhere is not followed. Prims under a transform that changes over
time become bodies, the others are placed in the world.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from recon.geometry.quaternion import matrix_to_quat
from recon.scene.formats.gltf_nodes import HERE, Place
from recon.scene.formats.gltf_read import floats, put
from recon.scene.formats.splats import MAX_COUNT, Columns, Splats, log_scale, logit, unreadable
from recon.scene.formats.usd import KIND, LIVING, PRIM, pxr
from recon.scene.gaussians import RESIDUAL, RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import BODY_KINDS, Body

MAX_BYTES = 8 * 2**30
MAX_PRIMS, MAX_KNOTS = 100_000, 1_000_000
EVEN = 1e-3


def read_usd(path: Path) -> Splats:
    """The Gaussians of a USD file in `rfu` (upAxis Z) or `rub` (upAxis Y) axes, bodies for what moves.

    InputError, in one line, for anything else; UnavailableError without usd-core.
    """
    u = pxr(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise unreadable(path, KIND, f"it is larger than {MAX_BYTES // 2**30} GiB")
        layer = u.Sdf.Layer.OpenAsAnonymous(str(path))
        if layer is None:
            raise unreadable(path, KIND, "usd-core cannot open it")
        if layer.GetCompositionAssetDependencies():
            raise unreadable(path, KIND, "it refers to other files, which are not followed")
        return _read(u, path, u.Usd.Stage.Open(layer, u.Usd.Stage.LoadNone))
    except OSError as error:
        raise unreadable(path, KIND, error.strerror or str(error)) from error
    except (RuntimeError, ValueError, TypeError) as error:  # what pxr.Tf raises, and odd values of attributes
        raise unreadable(path, KIND, _said(error)) from error


def _said(error: Exception) -> str:
    try:
        lines = str(error).strip().splitlines()
    except UnicodeDecodeError:  # usd-core quotes the file's own bytes
        lines = []
    return lines[-1].strip()[:160] if lines else "usd-core cannot read it"


def _read(u: SimpleNamespace, path: Path, stage: Any) -> Splats:
    tables: list[Gaussians] = []
    bodies: list[Body] = []
    notes: set[str] = set()
    owners: dict[str, int] = {}  # path of the prim that moves -> body
    own = stage.GetDefaultPrim().GetCustomDataByKey("recon") if stage.GetDefaultPrim() else None
    own = own if isinstance(own, dict) else {}
    second = stage.GetTimeCodesPerSecond() or 24.0
    size = max(path.stat().st_size, 1)
    total = 0
    for k, prim in enumerate(stage.Traverse()):
        if k > MAX_PRIMS:
            raise unreadable(path, KIND, f"it has more than {MAX_PRIMS} prims")
        words = prim.GetCustomDataByKey("recon")
        if isinstance(words, dict) and "kind" in words and prim != stage.GetDefaultPrim():
            _owner(u, path, prim, second, bodies, owners)
        if prim.GetTypeName() != PRIM:
            continue
        table = _table(u, path, prim, notes)
        total += len(table)
        if total > MAX_COUNT or total > 128 * size:
            raise unreadable(path, KIND, f"it declares {total} Gaussians, which it cannot hold")
        mover = next((p for p in _upwards(prim) if str(p.GetPath()) in owners or _varies(u, p)), None)
        if mover is None:
            tables.append(put(table, _place(u, path, prim, None)))
            continue
        number = _owner(u, path, mover, second, bodies, owners)
        inner = HERE
        for p in reversed([p for p in _upwards(prim) if str(p.GetPath()).startswith(f"{mover.GetPath()}/")]):
            inner = inner.of(_step(u, path, p, u.Usd.TimeCode.EarliestTime()))
        table = put(table, inner)
        ids = torch.full_like(table.object_id, number)
        tables.append(replace(table, object_id=ids, kind=torch.full_like(table.kind, RIGID)))
    if not tables:
        raise unreadable(path, KIND, f"it holds no {PRIM}")
    known = {body.name for body in bodies}
    kept = tuple(b if b.parent in known else replace(b, parent=None) for b in bodies)
    start, end = (float(own.get(key, code / second)) for key, code in
                  (("start", stage.GetStartTimeCode()), ("end", stage.GetEndTimeCode())))  # fmt: skip
    axes = "rub" if u.UsdGeom.GetStageUpAxis(stage) == u.UsdGeom.Tokens.y else "rfu"
    if not (np.isfinite([start, end]).all() and max(abs(start), abs(end)) < 1e9):
        start = end = 0.0
    metric = own.get("metric") is True
    return Splats(
        Gaussians.concat(tables) if len(tables) > 1 else tables[0],
        axes,
        tuple(sorted(notes)),
        kept,
        (start, max(start, end)),
        metric=metric,
    )


def _upwards(prim: Any) -> list[Any]:
    found = []
    while prim and not prim.IsPseudoRoot():
        found.append(prim)
        prim = prim.GetParent()
    return found


def _varies(u: SimpleNamespace, prim: Any) -> bool:
    return bool(prim.IsA(u.UsdGeom.Xformable)) and u.UsdGeom.Xformable(prim).TransformMightBeTimeVarying()


def _owner(u: SimpleNamespace, path: Path, prim: Any, second: float, bodies: list[Body], owners: dict[str, int]) -> int:
    """The number of the body that `prim` is; a new one when it is met first."""
    place = str(prim.GetPath())
    if place in owners:
        return owners[place]
    codes: set[float] = set()
    for p in _upwards(prim):
        if p.IsA(u.UsdGeom.Xformable):
            codes |= set(u.UsdGeom.Xformable(p).GetTimeSamples())
    times = np.array(sorted(codes))
    if len(times) > MAX_KNOTS or not np.isfinite(times).all():
        raise unreadable(path, KIND, "its transforms have too many time samples, or ones that are no times")
    track = None
    if len(times):
        places = [_place(u, path, prim, float(t)) for t in times]
        if max(abs(place.scale - 1) for place in places) > EVEN:
            raise unreadable(path, KIND, f"its prim {place[:60]} is scaled while it moves")
        positions = floats([p.position for p in places])
        track = Track(times / second, positions, floats([p.quat for p in places]))
    words = prim.GetCustomDataByKey("recon")
    words = words if isinstance(words, dict) else {}
    name, kind, parent = words.get("name", prim.GetName()), words.get("kind"), words.get("parent")
    usable = isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()
    if not usable or name in {body.name for body in bodies}:
        name = f"body {len(bodies) + 1}"
    parent = parent if isinstance(parent, str) and parent and parent != name else None
    bodies.append(Body(name, len(bodies) + 1, kind if kind in BODY_KINDS else "object", parent, track))
    owners[place] = len(bodies)
    return len(bodies)


def _place(u: SimpleNamespace, path: Path, prim: Any, code: float | None) -> Place:
    """Where a prim is in the world at a time code (None: without one)."""
    place = HERE
    for p in reversed(_upwards(prim)):
        place = place.of(_step(u, path, p, u.Usd.TimeCode.EarliestTime() if code is None else u.Usd.TimeCode(code)))
    return place


def _step(u: SimpleNamespace, path: Path, prim: Any, code: Any) -> Place:
    """One prim's own transform; translate and orient alone keep their bits."""
    if not prim.IsA(u.UsdGeom.Xformable):
        return HERE
    ops = u.UsdGeom.Xformable(prim).GetOrderedXformOps()
    names = [op.GetOpType() for op in ops]
    if not ops:
        return HERE
    kinds = u.UsdGeom.XformOp
    if names == [kinds.TypeTranslate, kinds.TypeOrient]:
        p, q = ops[0].Get(code), ops[1].Get(code)
        if p is not None and q is not None:
            quat = np.array([q.GetReal(), *q.GetImaginary()], np.float64)
            return Place(quat, np.array(p, np.float64), 1.0)
    # USD multiplies rows from the left: x' = x M
    matrix = np.array(u.UsdGeom.Xformable(prim).GetLocalTransformation(code), np.float64).T
    scales = np.linalg.norm(matrix[:3, :3], axis=0)
    mean = float(scales.mean())
    if not (np.isfinite(matrix).all() and mean > 1e-12 and (np.abs(scales - mean) <= EVEN * mean).all()):
        raise unreadable(path, KIND, f"its prim {str(prim.GetPath())[:60]} is scaled unevenly")
    if np.linalg.det(matrix[:3, :3] / mean) < 0.99:
        raise unreadable(path, KIND, f"its prim {str(prim.GetPath())[:60]} is sheared or mirrored")
    return Place(matrix_to_quat(matrix[:3, :3] / mean), matrix[:3, 3], 1.0 if abs(mean - 1) < 1e-7 else mean)


def _table(u: SimpleNamespace, path: Path, prim: Any, notes: set[str]) -> Gaussians:
    """The rows of one prim; what is sampled in time is taken at its first sample."""
    splat = getattr(u.UsdVol, PRIM)(prim)
    living = {name: prim.GetAttribute(f"recon:{name}") for name in LIVING}
    lives = all(attribute for attribute in living.values())

    def column(names: tuple[str, ...], width: int, label: str) -> np.ndarray:
        for name in names:
            attribute = getattr(splat, f"Get{name}Attr")()
            if not attribute or not attribute.HasAuthoredValue():
                continue
            value = attribute.Get(u.Usd.TimeCode.Default())
            if value is None:
                notes.add("what it samples over time is taken at the first sample")
                value = attribute.Get(u.Usd.TimeCode.EarliestTime())
            elif attribute.GetNumTimeSamples() > 1 and not lives:
                notes.add("what it samples over time is taken as it is without a time")
            values = np.array(value, np.float32)
            if values.size and values.size % width == 0:
                return values.reshape(-1, width)
        raise unreadable(path, KIND, f"its prim {str(prim.GetPath())[:60]} has no {label}")

    means = column(("Positions", "Positionsh"), 3, "positions")
    count = len(means)
    degree = splat.GetRadianceSphericalHarmonicsDegreeAttr().Get() or 0
    if not 0 <= degree <= 3 or count > MAX_COUNT:
        raise unreadable(path, KIND, f"its colours have degree {degree}")
    columns = Columns(count, degree)
    columns.means[:] = means
    # numpy sees a quaternion as i j k r
    quats = column(("Orientations", "Orientationsh"), 4, "orientations")
    scales = column(("Scales", "Scalesh"), 3, "scales")
    shares = column(("Opacities", "Opacitiesh"), 1, "opacities")
    names = ("RadianceSphericalHarmonicsCoefficients", "RadianceSphericalHarmonicsCoefficientsh")
    sh = column(names, 3, "colours")
    lengths = {len(quats), len(scales), len(shares), len(sh) / columns.sh.shape[1]}
    if lengths != {count}:
        raise unreadable(path, KIND, f"the columns of its prim {str(prim.GetPath())[:60]} differ in length")
    columns.quats[:] = quats[:, [3, 0, 1, 2]]
    columns.log_scales[:] = log_scale(scales)
    columns.logit_opacities[:] = logit(shares[:, 0])
    columns.sh[:] = sh.reshape(columns.sh.shape)
    columns.take(count)
    g = columns.table(path)
    if not lives:
        return g
    kept = [np.array(living[name].Get(), np.float32).reshape(-1, width) for name, width in LIVING.items()]
    if any(len(values) != len(g) for values in kept) or not all(np.isfinite(values).all() for values in kept):
        notes.add("what it says of time is damaged and left out")
        return g
    velocities, centres, durations = (torch.from_numpy(values) for values in kept)
    return replace(
        g, kind=torch.full_like(g.kind, RESIDUAL), velocities=velocities, time_centers=centres[:, 0],
        log_durations=durations[:, 0],
    )  # fmt: skip
