"""The HTML page of a build report. Every text goes through `_e`; the page forbids itself any outside resource."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recon.report.markup import POLICY, STYLE, simulated_note
from recon.report.markup import data_uri as _data
from recon.report.markup import escape as _e
from recon.report.markup import number as _number
from recon.report.markup import table as _table
from recon.report.pictures import GAIN

Shown = tuple[str, float, float, bytes]  # camera, seconds, PSNR, JPEG


@dataclass(frozen=True)
class Pictures:
    """What the page shows besides numbers.

    cameras: the middle frame of each camera. worst: the worst frames. points: (seconds, PSNR) of all compared frames.
    film_camera, film: the mp4 of photo | render, None without an encoder.
    """

    cameras: list[Shown]
    worst: list[Shown]
    points: list[tuple[float, float]]
    film_camera: str
    film: bytes | None


def page(data: dict[str, Any], pictures: Pictures) -> str:
    """The whole document for the contents of report.json."""
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f'<meta http-equiv=Content-Security-Policy content="{POLICY}">',
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>Build report</title><style>{STYLE}</style></head><body>",
        "<h1>Build report</h1>",
        f"<p class=summary>{_summary(data)}</p>",
        f"<p>{_facts(data)}</p>",
        simulated_note(data),
        "<h2>Cameras</h2>",
        _table(["camera", "PSNR [dB]", "SSIM", "frames compared"], _camera_rows(data)),
        "<h2>PSNR over time</h2>",
        chart([(p["t"], p["psnr"]) for p in data["over_time"]], pictures.points),
        "<p>Dots: every compared frame. Line: their mean over time, each camera's own level taken out.</p>",
        f"<h2>Photo, render, difference ({GAIN} times)</h2>",
        _figures(pictures.cameras, "middle frame") or "<p>No frame was compared.</p>",
        "<h2>Film: photo and render</h2>",
        _film(pictures),
        "<h2>Worst frames</h2>",
        _figures(pictures.worst, "worst frame") or "<p>No frame was compared.</p>",
        *_objects(data),
        "<h2>Capture check</h2>",
        _list(data["findings"]) or "<p>Nothing found.</p>",
        "<h2>Stages</h2>",
        _table(["stage", "seconds", "measured"], _stage_rows(data)),
        "<h2>Versions</h2>",
        _table(["package", "version"], [[name, version] for name, version in data["versions"].items()], numbers=False),
        "<h2>Configuration</h2>",
        f"<pre>{_e(json.dumps(data['config'], indent=1))}</pre>",
        "<p>Scores compare the scene with the pictures it was built from; they do not say how new views look. Each is "
        "the mean over frames of -10 log10 MSE on 8-bit colours, over the pixels that the real picture covers.</p>",
        "</body></html>",
    ]
    return "\n".join(parts)


def _summary(data: dict[str, Any]) -> str:
    minutes, seconds = divmod(round(data["seconds"] or 0.0), 60)
    return (
        f"PSNR <b>{_number(data['psnr'], 2)} dB</b>, SSIM {_number(data['ssim'], 3)}, "
        f"<b>{data['gaussians']:,}</b> Gaussians, {minutes} min {seconds:02d} s, "
        f"peak memory {_number(data['peak_rss_mb'], 0)} MB"
    )


def _facts(data: dict[str, Any]) -> str:
    kinds = ", ".join(f"{count:,} {name}" for name, count in data["gaussians_by_kind"].items())
    bodies = ", ".join(f"{b['name']} ({b['kind']}, {b['gaussians']:,} Gaussians)" for b in data["bodies"]) or "none"
    start, end = data["time_range"]
    return (
        f"{data['iterations']:,} iterations of {_number(data['ms_per_iteration'], 1)} ms on {_e(data['device'])}, seed "
        f"{data['seed']}. {kinds}. Time {_number(start, 3)} to {_number(end, 3)} s. Unit: {_e(data['unit'])}, up: "
        f"{_e(data['up'])}. Bodies: {_e(bodies)}."
    )


def _objects(data: dict[str, Any]) -> list[str]:
    """The objects that were followed, if there are any."""
    heads = ["object", "moved [mm]", "sigma [mm]", "sigma [degrees]", "share seen", "share explained", "seen [s]"]
    rows = []
    for body in data["bodies"]:
        if "sigma_mm" in body:
            spans = ", ".join(f"{_number(a, 2)} to {_number(b, 2)}" for a, b in body["seen_s"])
            numbers = [_number(body[key], 1) for key in ("moved_mm", "sigma_mm", "sigma_deg")]
            rows.append([body["name"], *numbers, _number(body["visible"], 2), _number(body["explained"], 2), spans])
    return ["<h2>Objects</h2>", _table(heads, rows)] if rows else []


def _camera_rows(data: dict[str, Any]) -> list[list[str]]:
    return [
        [name, _number(row["psnr"], 2), _number(row["ssim"], 3), _number(row["frames"], 0)]
        for name, row in data["per_camera"].items()
    ]


def _stage_rows(data: dict[str, Any]) -> list[list[str]]:
    return [
        [s["name"], _number(s["seconds"], 1), ", ".join(f"{k} {_number(v, 2)}" for k, v in s["metrics"].items())]
        for s in data["stages"]
    ]


def _list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_e(text)}' for text in texts)}</ul>" if texts else ""


def _figures(shown: Sequence[Shown], what: str) -> str:
    return "".join(
        f'<figure><img src="{_data("image/jpeg", jpeg)}" alt="{_e(camera)}: photo, render, difference of the {what}">'
        f"<figcaption>{_e(camera)} at {_number(t, 3)} s: {_number(psnr, 2)} dB</figcaption></figure>"
        for camera, t, psnr, jpeg in shown
    )


def _film(pictures: Pictures) -> str:
    if pictures.film is None:
        return "<p>None: no frame was compared, or this installation of PyAV cannot encode H.264.</p>"
    return (
        f'<figure><video controls muted loop playsinline preload=metadata src="{_data("video/mp4", pictures.film)}" '
        f'aria-label="{_e(pictures.film_camera)}: photo and render"></video>'
        f"<figcaption>{_e(pictures.film_camera)}: photo left, render right</figcaption></figure>"
    )


def chart(line: Sequence[tuple[float, float]], points: Sequence[tuple[float, float]]) -> str:
    """An SVG of `line` through (seconds, PSNR) with `points` behind it, axes labelled at their ends."""
    if not line:
        return "<p>No frame was compared.</p>"
    width, height, left, right, top, bottom = 720, 240, 56, 12, 12, 34
    every = [*line, *points]
    t0, t1 = min(t for t, _ in every), max(t for t, _ in every)
    low, high = min(p for _, p in every), max(p for _, p in every)
    low, high = (low - 0.5, high + 0.5) if high - low < 1.0 else (low, high)

    def place(t: float, psnr: float) -> tuple[float, float]:
        x = left + (width - left - right) * ((t - t0) / (t1 - t0) if t1 > t0 else 0.5)
        return x, top + (height - top - bottom) * (high - psnr) / (high - low)

    dot = '<circle cx="{:.1f}" cy="{:.1f}" r="2.5" fill="currentColor" fill-opacity=".35" />'
    dots = "".join(dot.format(*place(*p)) for p in points)
    path = " ".join("{:.1f},{:.1f}".format(*place(*p)) for p in line)
    base = height - bottom
    label = f"PSNR over time, {low:.1f} to {high:.1f} dB, {t0:.2f} to {t1:.2f} seconds"
    return (
        f'<svg viewBox="0 0 {width} {height}" role=img aria-label="{label}">'
        f'<path d="M{left} {top}V{base}H{width - right}" fill=none stroke=currentColor />'
        f"<text x={left - 6} y={top + 10} text-anchor=end>{high:.1f}</text>"
        f"<text x={left - 6} y={base} text-anchor=end>{low:.1f} dB</text>"
        f"<text x={left} y={height - 12}>{t0:.2f} s</text>"
        f"<text x={width - right} y={height - 12} text-anchor=end>{t1:.2f} s</text>"
        f'{dots}<polyline points="{path}" fill=none stroke="var(--mark)" stroke-width=2 /></svg>'
    )
