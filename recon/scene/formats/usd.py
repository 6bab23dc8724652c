"""OpenUSD files with ParticleField3DGaussianSplat prims, out (package usd-core, extra `usd`).

    /World                          Xform, default prim; custom data `recon`: start, metric
    /World/still                    Gaussians of the world
    /World/living                   what lives in time: positions and opacities sampled at every frame time
    /World/<body>                   Xform: translate and orient sampled at the track's knots; data: name, kind, parent
    /World/<body>/gaussians         Gaussians in the body's frame
    of each   point3f[] positions, quatf[] orientations (unit), float3[] scales (linear), float[] opacities (0..1),
              radiance:sphericalHarmonicsDegree and ...Coefficients float3[] (per Gaussian, DC first)

Axes are rfu (z up) by definition: upAxis Z. A time code is a second. `recon:` attributes of /World/living keep
velocities, centres and log durations, which USD has no word for.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from recon.core.errors import ReconError, UnavailableError
from recon.core.files import writing
from recon.geometry.quaternion import quat_normalize
from recon.scene.formats.splats import Splats, arrays, doubles, sigmoid
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC, Gaussians
from recon.scene.motion import temporal_factor
from recon.scene.scene import Body

KIND = "USD"
AXES = "rfu"
STEPS = "rotations are made unit, scales and opacities are stored linear"
PRIM = "ParticleField3DGaussianSplat"
SAMPLES = 30.0  # per second, of what lives in time, where no frame times are known
MAX_SAMPLES = 10_000
LIVING = {"velocities": 3, "timeCenters": 1, "logDurations": 1}  # of `recon:`


def pxr(path: Path) -> SimpleNamespace:
    """The modules of usd-core; UnavailableError naming the extra when it is not there."""
    try:
        from pxr import Gf, Sdf, Usd, UsdGeom, UsdVol, Vt
    except ImportError as error:
        fix = "Install it (pip install 'recon4d[usd]')."
        raise UnavailableError(f"{path} is a USD file", why="usd-core is not installed", fix=fix) from error
    if not hasattr(UsdVol, PRIM):
        why = f"this usd-core does not know {PRIM}"
        raise UnavailableError(f"{path} is a USD file", why=why, fix="Install usd-core 26.5 or newer.")
    return SimpleNamespace(Gf=Gf, Sdf=Sdf, Usd=Usd, UsdGeom=UsdGeom, UsdVol=UsdVol, Vt=Vt)


def write_usd(splats: Splats, path: Path) -> None:
    """Writes a .usdc, .usda or .usd file (atomically), whose world is taken to be in `rfu` axes already.

    What lives in time is sampled at `splats.frame_times`. UnavailableError without usd-core.
    """
    u = pxr(path)
    g = splats.gaussians.validate("the Gaussians to write")
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}.tmp{path.suffix}")
    with writing(path):
        try:
            try:
                stage = u.Usd.Stage.CreateNew(str(temporary))
                _stage(u, stage, splats, g)
                stage.GetRootLayer().Save()
            except RuntimeError as error:  # what pxr.Tf raises
                raise ReconError(f"cannot write {path}", why=str(error).splitlines()[0][:200]) from error
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _stage(u: SimpleNamespace, stage: Any, splats: Splats, g: Gaussians) -> None:
    start, end = splats.time_range
    u.UsdGeom.SetStageUpAxis(stage, u.UsdGeom.Tokens.z)
    u.UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    stage.SetTimeCodesPerSecond(1.0)
    stage.SetFramesPerSecond(SAMPLES)
    if splats.bodies or splats.moves:
        stage.SetStartTimeCode(start)
        stage.SetEndTimeCode(end)
    world = u.UsdGeom.Xform.Define(stage, "/World")
    stage.SetDefaultPrim(world.GetPrim())
    world.GetPrim().SetCustomDataByKey("recon", {"start": float(start), "end": float(end), "metric": splats.metric})
    still, living = g.select(g.kind == STATIC), g.select(g.kind == RESIDUAL)
    if len(still):
        define_gaussians(u, stage, "/World/still", still)
    if len(living):
        _living(u, stage, living, list(splats.frame_times) or _regular(start, end))
    used = {"still", "living"}
    for body in splats.bodies:
        name = re.sub(r"\W", "_", body.name, flags=re.ASCII)
        name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
        name = name if name not in used else f"{name}_{body.id}"
        used.add(name)
        _body(u, stage, f"/World/{name}", body)
        rows = g.select((g.kind == RIGID) & (g.object_id == body.id))
        if len(rows):
            define_gaussians(u, stage, f"/World/{name}/gaussians", rows)


def _regular(start: float, end: float) -> list[float]:
    count = min(MAX_SAMPLES, max(2, round((end - start) * SAMPLES) + 1))
    return [start] if end <= start else np.linspace(start, end, count).tolist()


def _body(u: SimpleNamespace, stage: Any, place: str, body: Body) -> None:
    prim = u.UsdGeom.Xform.Define(stage, place)
    words = {"name": body.name, "kind": body.kind, "id": body.id, "parent": body.parent or ""}
    prim.GetPrim().SetCustomDataByKey("recon", words)
    if body.track is None:
        return
    translate = prim.AddTranslateOp(u.UsdGeom.XformOp.PrecisionFloat)
    orient = prim.AddOrientOp(u.UsdGeom.XformOp.PrecisionFloat)
    positions = body.track.positions.detach().cpu().float().numpy()
    quats = quat_normalize(doubles(body.track.quats)).astype(np.float32)
    for t, p, q in zip(body.track.times, positions, quats, strict=True):
        translate.Set(u.Gf.Vec3f(*map(float, p)), float(t))
        orient.Set(u.Gf.Quatf(float(q[0]), *map(float, q[1:])), float(t))


def define_gaussians(u: SimpleNamespace, stage: Any, place: str, g: Gaussians) -> Any:
    """A ParticleField prim at `place` with the rows' columns (in the prim's frame), and the box round them."""
    means, log_scales, quats, logits, sh = arrays(g, slice(None))
    prim = getattr(u.UsdVol, PRIM).Define(stage, place)
    scales = np.exp(log_scales.astype(np.float64)).astype(np.float32)
    prim.CreatePositionsAttr(u.Vt.Vec3fArray.FromNumpy(np.ascontiguousarray(means)))
    xyzw = np.ascontiguousarray(quats[:, [1, 2, 3, 0]])  # in memory the real part is last
    prim.CreateOrientationsAttr(u.Vt.QuatfArray.FromNumpy(xyzw))
    prim.CreateScalesAttr(u.Vt.Vec3fArray.FromNumpy(scales))
    prim.CreateOpacitiesAttr(u.Vt.FloatArray.FromNumpy(sigmoid(logits.astype(np.float64)).astype(np.float32)))
    prim.CreateRadianceSphericalHarmonicsDegreeAttr(g.degree)
    flat = np.ascontiguousarray(sh.reshape(-1, 3))
    prim.CreateRadianceSphericalHarmonicsCoefficientsAttr(u.Vt.Vec3fArray.FromNumpy(flat))
    reach = 3.0 * scales.max(1, keepdims=True)
    box = np.stack([(means - reach).min(0), (means + reach).max(0)]).astype(np.float32)
    prim.CreateExtentAttr(u.Vt.Vec3fArray.FromNumpy(box))
    return prim


def _living(u: SimpleNamespace, stage: Any, g: Gaussians, times: list[float]) -> None:
    prim = define_gaussians(u, stage, "/World/living", g)
    positions, opacities = prim.GetPositionsAttr(), prim.GetOpacitiesAttr()
    for t in times:
        # x = mu + v (t - t_c); opacity = sigmoid(o) exp(-((t - t_c) / sigma)^2 / 2)
        means = g.means + g.velocities * (t - g.time_centers)[:, None]
        shares = g.logit_opacities.sigmoid() * temporal_factor(g, t)
        positions.Set(u.Vt.Vec3fArray.FromNumpy(means.detach().cpu().float().contiguous().numpy()), t)
        opacities.Set(u.Vt.FloatArray.FromNumpy(shares.detach().cpu().float().contiguous().numpy()), t)
    kept = (("velocities", g.velocities), ("timeCenters", g.time_centers), ("logDurations", g.log_durations))
    for name, column in kept:
        values = column.detach().cpu().float().contiguous().numpy()
        wide = LIVING[name] == 3
        kind = u.Sdf.ValueTypeNames.Float3Array if wide else u.Sdf.ValueTypeNames.FloatArray
        made = prim.GetPrim().CreateAttribute(f"recon:{name}", kind)
        made.Set((u.Vt.Vec3fArray if wide else u.Vt.FloatArray).FromNumpy(values))
