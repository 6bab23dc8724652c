"""Measuring a built scene against its recordings, and writing `index.html` and `report.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from recon.core.device import device_label, is_simulated
from recon.core.files import write_bytes, write_json, writing
from recon.fit.data import Frames
from recon.report.page import Pictures, page
from recon.report.pictures import film, triptych, within
from recon.report.scores import (
    Draw,
    FrameScore,
    checked_draw,
    choose_frames,
    mean_of,
    over_time,
    per_camera,
    score_frame,
    worst_frames,
)
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC
from recon.scene.scene import Scene

FORMAT, VERSION = "recon-report", 1
WORST = 6  # frames listed and shown
KINDS = {"static": STATIC, "rigid": RIGID, "residual": RESIDUAL}


@dataclass(frozen=True)
class BuildRecord:
    """What a build knows of itself.

    config: plain values. stages: (name, seconds, metrics) in order. seconds: the whole build so far.
    peak_rss_mb: MB of 10^6 bytes. findings: the capture check, one text each. versions: package -> version.
    """

    config: dict[str, Any]
    stages: list[tuple[str, float, dict[str, float]]]
    iterations: int
    ms_per_iteration: float
    seconds: float
    peak_rss_mb: float
    seed: int
    findings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def write_report(
    folder: Path, scene: Scene, frames: Frames, record: BuildRecord, *, device: torch.device, draw: Draw
) -> None:
    """Write `index.html` (one file, nothing outside it) and `report.json` into `folder`, which is made when missing.

    frames: the recordings the scene was built from, undistorted. device: where scores are computed.
    draw: (camera index of `frames`, seconds) -> uint8 [H, W, 3] of the scene, in the camera's ideal grid and colours.
    Compares at most 60 frames, and draws 45 for the film.
    Raises StorageError when the folder cannot be written, UsageError when `draw` gives other picture sizes.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    chosen = choose_frames([frames.num_frames(camera) for camera in range(len(frames.names))])
    scores, panels = _compare(frames, chosen, device, draw)
    worst = worst_frames(scores, WORST)
    middles = [s for s in scores if s.frame == frames.num_frames(s.camera) // 2]
    shown = list(dict.fromkeys((s.camera, s.frame) for s in (*middles, *worst)))
    small = dict(zip(shown, within([panels[key] for key in shown]), strict=True))
    typical = _typical_camera(scores)
    movie = film(frames, typical, draw, folder) if typical is not None else None
    data = report_data(scene, frames.names, record, scores, worst)
    data |= {"device": device_label(device), "simulated": is_simulated(device)}
    pictures = Pictures(
        [(frames.names[s.camera], s.t, s.psnr, small[s.camera, s.frame]) for s in middles],
        [(frames.names[s.camera], s.t, s.psnr, small[s.camera, s.frame]) for s in worst],
        [(s.t, s.psnr) for s in scores if math.isfinite(s.psnr)],
        frames.names[typical] if typical is not None else "",
        movie,
    )
    write_json(folder / "report.json", data)
    write_bytes(folder / "index.html", page(data, pictures).encode("utf-8"))


def report_data(
    scene: Scene, names: list[str], record: BuildRecord, scores: list[FrameScore], worst: list[FrameScore]
) -> dict[str, Any]:
    """The contents of report.json. Numbers that are not finite become null."""
    kind = scene.gaussians.kind
    owner = scene.gaussians.object_id
    data = {
        "format": FORMAT,
        "version": VERSION,
        "psnr": mean_of([s.psnr for s in scores]),
        "ssim": mean_of([s.ssim for s in scores]),
        "frames_compared": len(scores),
        "gaussians": len(scene.gaussians),
        "gaussians_by_kind": {name: int((kind == value).sum()) for name, value in KINDS.items()},
        "iterations": record.iterations,
        "ms_per_iteration": record.ms_per_iteration,
        "seconds": record.seconds,
        "peak_rss_mb": record.peak_rss_mb,
        "seed": record.seed,
        "time_range": list(scene.time_range),
        "unit": "metre" if scene.metric else "unknown",
        "up": scene.up,
        "bodies": [
            {"name": b.name, "kind": b.kind, "gaussians": int((owner == b.id).sum()), **_tracked(scene, b.name)}
            for b in scene.bodies
        ],
        "per_camera": per_camera(scores, names),
        "over_time": over_time(scores),
        "worst_frames": [{"camera": names[s.camera], "frame": s.frame, "t": s.t, "psnr": s.psnr} for s in worst],
        "findings": list(record.findings),
        "stages": [{"name": name, "seconds": s, "metrics": dict(metrics)} for name, s, metrics in record.stages],
        "config": record.config,
        "versions": dict(record.versions),
    }
    plain: dict[str, Any] = plain_values(data)
    return plain


def _tracked(scene: Scene, name: str) -> dict[str, Any]:
    """What is known of an object's track; empty for other bodies."""
    facts = scene.provenance.get("objects", {}).get(name, {})
    return {key: value for key, value in facts.items() if key != "sigmas"}


def plain_values(value: Any) -> Any:
    """The same nested value with text keys, paths as text, and null for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def _compare(
    frames: Frames, chosen: list[tuple[int, int]], device: torch.device, draw: Draw
) -> tuple[list[FrameScore], dict[tuple[int, int], bytes]]:
    """Scores of the chosen frames, and their panels as JPEG."""
    scores, panels = [], {}
    for camera, frame in chosen:
        t, valid = float(frames.times[camera][frame]), frames.valid(camera)
        photo = frames.picture(camera, frame)
        drawn = checked_draw(draw, camera, t, photo)
        psnr, ssim = score_frame(photo, drawn, valid, device)
        scores.append(FrameScore(camera, frame, t, psnr, ssim))
        panels[camera, frame] = triptych(photo, drawn, valid)
    return scores, panels


def _typical_camera(scores: list[FrameScore]) -> int | None:
    """The camera whose PSNR is the median of all cameras; None without scores."""
    level = {camera: mean_of([s.psnr for s in scores if s.camera == camera]) for camera in {s.camera for s in scores}}
    ranked = sorted(level, key=lambda camera: (level[camera] if math.isfinite(level[camera]) else math.inf, camera))
    return ranked[(len(ranked) - 1) // 2] if ranked else None
