"""The page of a capture check: `check.html` (one file, nothing outside it) and `check.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recon.capture.check import Examined, flicker
from recon.capture.finding import Finding
from recon.capture.session import Capture
from recon.capture.survey import Look, jpeg
from recon.core.files import write_bytes, write_json, writing
from recon.geometry.rig import Rig
from recon.report.curves import curves, plan_view
from recon.report.markup import POLICY, STYLE, data_uri, escape, number, table

FORMAT, VERSION = "recon-check", 1
WORST = 12  # frames shown
REREAD = 6  # of them that must be decoded again
BADGE = """
.error{color:#b3261e}.warning{color:#8a5a00}.info{color:inherit}
@media (prefers-color-scheme:dark){.error{color:#ff8a80}.warning{color:#ffca66}}
.worst{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:0 1rem}
"""


def write_check(folder: Path, capture: Capture, rig: Rig | None, found: Examined, notes: list[str]) -> None:
    """Write both files into `folder`, which is made when missing.

    notes: further sentences to show, such as how calibration and pictures agree. Raises StorageError.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    data = check_data(capture, rig, found, notes)
    write_json(folder / "check.json", data)
    shown = worst_frames(capture, found)
    write_bytes(folder / "check.html", _page(data, capture, rig, found, shown).encode("utf-8"))


def check_data(capture: Capture, rig: Rig | None, found: Examined, notes: list[str]) -> dict[str, Any]:
    """The contents of check.json. Lengths are in the rig's unit; a number that is not known is null."""
    seen = found.coverage
    unit = "metre" if rig is not None and rig.units == "metres" else "unknown"
    cover = None
    if seen is not None:
        cover = {
            "views": seen.views,
            "shared": seen.shared,
            "radius": seen.radius,
            "distance": seen.distance,
            "accuracy": seen.accuracy if np.isfinite(seen.accuracy) else None,
            "pixel": seen.pixel,
            "unit": unit,
        }
    return {
        "format": FORMAT,
        "version": VERSION,
        "usable": not any(finding.level == "error" for finding in found.findings),
        "findings": [
            {"level": f.level, "camera": f.camera, "frame": f.frame, "text": f.text, "fix": f.fix}
            for f in found.findings
        ],
        "cameras": {name: _camera_data(name, look, capture, found) for name, look in found.looks.items()},
        "coverage": cover,
        "notes": notes,
    }


def _camera_data(name: str, look: Look, capture: Capture, found: Examined) -> dict[str, Any]:
    stream, offset, seen = capture.cameras[name], found.offsets.get(name), found.coverage
    shifts = [shift for shift in look.shifts if shift is not None]
    return {
        "width": stream.width,
        "height": stream.height,
        "rotation": stream.rotation,
        "frames": len(stream),
        "looked_at": len({*look.plan.stills, *look.plan.run}),
        "fps": float(1 / np.median(np.diff(stream.times))) if len(stream) > 1 else None,
        "start_s": float(stream.times[0]),
        "end_s": float(stream.times[-1]),
        "sharpness": float(np.median(look.sharpness)),
        "mean_level": float(np.mean(look.mean)),
        "white_share": float(np.mean(look.clipped)),
        "flicker": flicker(look),
        "repeated": len(look.repeated),
        "moved_px": max(shifts) if len(shifts) > 1 else None,
        "offset_s": offset.seconds if offset is not None and offset.sure else None,
        "sees": seen.shares[name] if seen is not None else None,
    }


def worst_frames(capture: Capture, found: Examined) -> list[tuple[str, bytes]]:
    """(caption, JPEG) of the frames that findings name, then of the least sharp and the whitest stills."""
    shown: dict[tuple[str, int], tuple[str, bytes]] = {}
    left = REREAD
    for finding in found.findings:
        if finding.camera is None or finding.frame is None or (finding.camera, finding.frame) in shown:
            continue
        picture = found.looks[finding.camera].shown.get(finding.frame)
        if picture is None and left > 0:
            left -= 1
            picture = jpeg(capture.cameras[finding.camera].read(finding.frame))
        if picture is not None:
            shown[finding.camera, finding.frame] = (_caption(finding, capture), picture)
    ranked = []
    for name, look in found.looks.items():
        usual = float(np.median(look.sharpness))
        for k, frame in enumerate(look.plan.stills):
            sharp = look.sharpness[k] / max(usual, 1e-9)
            badness = max(1.0 - sharp, look.clipped[k])
            why = f"sharpness {100 * sharp:.0f} % of its usual, {100 * look.clipped[k]:.1f} % white"
            ranked.append((badness, name, frame, why))
    for _, name, frame, why in sorted(ranked, reverse=True):
        if len(shown) >= WORST:
            break
        time = capture.cameras[name].times[frame]
        caption = f"{name}, frame {frame} at {time:.2f} s: {why}"
        shown.setdefault((name, frame), (caption, found.looks[name].shown[frame]))
    return list(shown.values())[:WORST]


def _caption(finding: Finding, capture: Capture) -> str:
    time = capture.cameras[str(finding.camera)].times[finding.frame]
    return f"{finding.camera}, frame {finding.frame} at {time:.2f} s: {finding.text}"


def _page(
    data: dict[str, Any], capture: Capture, rig: Rig | None, found: Examined, shown: list[tuple[str, bytes]]
) -> str:
    looks = found.looks
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f'<meta http-equiv=Content-Security-Policy content="{POLICY}">',
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>Capture check</title><style>{STYLE}{BADGE}</style></head><body>",
        "<h1>Capture check</h1>",
        f"<p class=summary>{escape(_verdict(data))}</p>",
        _findings(found.findings) or "<p>Nothing found.</p>",
        "".join(f"<p>{escape(note)}</p>" for note in [*data["notes"], *_measure(data)]),
        "<h2>Worst frames</h2>",
        f"<div class=worst>{''.join(_figure(caption, picture) for caption, picture in shown)}</div>",
        "<h2>Cameras</h2>",
        table(_COLUMNS, [[name, *_cells(row)] for name, row in data["cameras"].items()]),
        "<h2>Brightness of what stands still</h2>",
        curves({n: (k.signal.times, 100 * k.gain) for n, k in looks.items()}, "% of the camera's own median"),
        "<h2>How much moves</h2>",
        "<p>From a common clock all cameras rise and fall together.</p>",
        curves({n: (k.signal.times[1:], k.signal.motion[1:]) for n, k in looks.items()}, "grey levels per frame"),
        "<h2>Sharpness</h2>",
        curves({n: _sharp_curve(n, k, capture) for n, k in looks.items()}, "of the Laplacian against a coarse one"),
    ]
    if rig is not None and found.coverage is not None:
        cameras = [rig.cameras[name] for name in looks]
        parts += ["<h2>Where the cameras stand</h2>", plan_view(cameras, found.coverage.focus, found.coverage.radius)]
    return "\n".join([*parts, "</body></html>"])


def _sharp_curve(name: str, look: Look, capture: Capture) -> tuple[np.ndarray, np.ndarray]:
    return capture.cameras[name].times[look.plan.stills], np.array(look.sharpness)


def _verdict(data: dict[str, Any]) -> str:
    count = {level: sum(f["level"] == level for f in data["findings"]) for level in ("error", "warning")}
    cameras, frames = len(data["cameras"]), sum(row["frames"] for row in data["cameras"].values())
    what = f"{cameras} cameras, {frames} frames: "
    if count["error"]:
        return what + f"not usable as it is, {count['error']} to be put right first."
    return what + (f"usable, {count['warning']} to be improved." if count["warning"] else "usable.")


def _findings(findings: list[Finding]) -> str:
    items = "".join(f"<li class={f.level}><b>{escape(f.level)}</b> {escape(f.text)}. {escape(f.fix)}" for f in findings)
    return f"<ul>{items}</ul>" if items else ""


def _measure(data: dict[str, Any]) -> list[str]:
    cover = data["coverage"]
    if cover is None:
        return ["Without a calibration, coverage and the accuracy to be expected are not known."]
    distance = cover["distance"]
    text = (
        f"A place within {100 * cover['radius'] / distance:.0f} % of the cameras' distance around what they look at "
        f"is in the picture of {cover['views']:.1f} cameras on average; {100 * cover['shared']:.0f} % of such places "
        "are in three or more (what hides what is not known yet)."
    )
    if cover["accuracy"] is None:
        return [text]
    size, pixel = _length(cover["accuracy"], cover), _length(cover["pixel"], cover)
    return [
        text,
        f"Expected accuracy: a point found to half a pixel wherever it is in the picture is known to {size} in its "
        f"worst direction; a pixel covers {pixel} there.",
    ]


def _length(value: float, cover: Mapping[str, Any]) -> str:
    if cover["unit"] == "metre":
        return f"{1000 * value:.2f} mm"
    return f"{1000 * value / cover['distance']:.2f} thousandths of the cameras' distance"


_COLUMNS = (
    "camera", "size", "frames", "frames/s", "mean level", "white [%]", "flicker [%]", "sharpness", "moved [px]",
    "clock [ms]", "sees [%]",
)  # fmt: skip


def _cells(row: dict[str, Any]) -> list[str]:
    def scaled(value: float | None, factor: float, digits: int) -> str:
        return number(None if value is None else factor * value, digits)

    return [
        f"{row['width']}x{row['height']}" + (f" (turned {row['rotation']})" if row["rotation"] else ""),
        str(row["frames"]),
        number(row["fps"], 2),
        number(row["mean_level"], 0),
        scaled(row["white_share"], 100, 1),
        scaled(row["flicker"], 100, 2),
        number(row["sharpness"], 2),
        number(row["moved_px"], 1),
        scaled(row["offset_s"], 1000, 0),
        scaled(row["sees"], 100, 0),
    ]


def _figure(caption: str, picture: bytes) -> str:
    return (
        f'<figure><img src="{data_uri("image/jpeg", picture)}" alt="{escape(caption)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
