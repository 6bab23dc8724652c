"""Inline SVG: curves over time, one per camera, and where cameras stand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recon.geometry.camera import Camera
from recon.report.markup import escape

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 34
POINTS = 400  # of a curve, at most
SIDE = 420


def curves(series: Mapping[str, tuple[np.ndarray, np.ndarray]], unit: str) -> str:
    """An SVG of several curves {name: (seconds [N], values [N])} with axes labelled at their ends, and their names."""
    kept = {name: _thinned(*pair) for name, pair in series.items() if len(pair[0])}
    if not kept:
        return "<p>Nothing to draw.</p>"
    t0, t1 = min(t.min() for t, _ in kept.values()), max(t.max() for t, _ in kept.values())
    low, high = min(v.min() for _, v in kept.values()), max(v.max() for _, v in kept.values())
    room = 0.05 * (high - low) or 0.5
    low, high = low - room, high + room
    base = HEIGHT - BOTTOM
    lines = []
    for k, (name, (t, v)) in enumerate(kept.items()):
        x = LEFT + (WIDTH - LEFT - RIGHT) * ((t - t0) / (t1 - t0) if t1 > t0 else np.full(len(t), 0.5))
        y = TOP + (base - TOP) * (high - v) / (high - low)
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        lines.append(
            f'<polyline points="{path}" fill=none stroke="{_colour(k, len(kept))}" stroke-width=1.2>'
            f"<title>{escape(name)}</title></polyline>"
        )
    label = f"{unit}, {low:.2f} to {high:.2f}, {t0:.2f} to {t1:.2f} seconds, {len(kept)} cameras"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="{escape(label)}">'
        f'<path d="M{LEFT} {TOP}V{base}H{WIDTH - RIGHT}" fill=none stroke=currentColor />'
        f"<text x={LEFT - 6} y={TOP + 10} text-anchor=end>{high:.4g}</text>"
        f"<text x={LEFT - 6} y={base} text-anchor=end>{low:.4g}</text>"
        f"<text x={LEFT} y={HEIGHT - 12}>{t0:.2f} s</text>"
        f"<text x={(LEFT + WIDTH) / 2} y={HEIGHT - 12} text-anchor=middle>{escape(unit)}</text>"
        f"<text x={WIDTH - RIGHT} y={HEIGHT - 12} text-anchor=end>{t1:.2f} s</text>{''.join(lines)}</svg>"
        f"<p>{_legend(list(kept))}</p>"
    )


def _thinned(t: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    step = max(1, -(-len(t) // POINTS))
    return np.asarray(t)[::step], np.asarray(v)[::step]


def _colour(index: int, count: int) -> str:
    return f"hsl({360 * index // max(1, count)} 65% 45%)"


def _legend(names: list[str]) -> str:
    return " ".join(
        f'<span style="white-space:nowrap"><span style="color:{_colour(k, len(names))}">&#9632;</span> '
        f"{escape(name)}</span>"
        for k, name in enumerate(names)
    )


def plan_view(cameras: list[Camera], focus: np.ndarray, radius: float) -> str:
    """An SVG of the cameras, where they look, and the ball of `radius` around `focus` [3], seen along the direction in
    which the cameras are spread least."""
    centres = np.stack([camera.center for camera in cameras])
    axes = np.linalg.svd(centres - centres.mean(0))[2][:2]  # [2, 3]
    flat = (centres - focus) @ axes.T
    ahead = np.stack([camera.cam_from_world[2, :3] for camera in cameras]) @ axes.T
    reach = float(np.abs(flat).max()) * 1.25 or 1.0
    scale = SIDE / 2 / reach
    marks = []
    for k, (camera, place, way) in enumerate(zip(cameras, flat * scale + SIDE / 2, ahead * 40, strict=True)):
        colour = _colour(k, len(cameras))
        marks.append(
            f'<path d="M{place[0]:.1f} {place[1]:.1f}l{way[0]:.1f} {way[1]:.1f}" stroke="{colour}" stroke-width=2 />'
            f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r=4 fill="{colour}" />'
            f"<text x={place[0] + 6:.1f} y={place[1] - 6:.1f}>{escape(camera.name)}</text>"
        )
    ball = f'<circle cx="{SIDE / 2}" cy="{SIDE / 2}" r="{radius * scale:.1f}" fill=none stroke=currentColor />'
    style = 'style="max-width:28rem"'
    head = f'<svg viewBox="0 0 {SIDE} {SIDE}" {style} role=img aria-label="plan of the cameras">'
    return f"{head}{ball}{''.join(marks)}</svg>"
