"""The evaluation report: one HTML file that needs no network, and the same facts as JSON."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recon.core.files import write_bytes, write_json
from recon.report.markup import simulated_note
from sim2real.evaluate import Episode, Evaluation
from sim2real.scenarios import ScenarioSet
from sim2real.stats import Paired

FORMAT, VERSION = "sim2real-eval", 1
FPS = 20

METHOD = """Success rates carry exact (Clopper-Pearson) 95 % intervals. Policies met the same scenarios; the paired
test is McNemar's exact test, the interval of the difference is Bonett and Price's. These hold for a fixed number of
scenarios; the e-value also holds when you stop whenever you like. All of this is simulation."""

STYLE = """
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--bad:#b42318}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums}
td.yes{color:var(--good);font-weight:600}td.no{color:var(--bad)}
.bar{position:relative;height:1.4rem;background:var(--line);border-radius:3px;min-width:12rem}
.bar i{position:absolute;top:0;bottom:0;background:#4a7ebb88}
.bar b{position:absolute;top:0;bottom:0;width:2px;background:currentColor}
figure{display:inline-block;margin:.5rem;vertical-align:top}figcaption{font-size:.85rem}
video{width:240px;height:240px;background:#000}.verdict{font-size:1.2rem;font-weight:600}
pre{overflow:auto;font-size:.8rem;border:1px solid var(--line);padding:.6rem}
"""


def write_report(
    out: Path,
    evaluations: Sequence[Evaluation],
    paired: Paired | None,
    scenarios: ScenarioSet,
    protocol: dict[str, Any],
) -> None:
    """Write `index.html` and `report.json` into the folder `out`.

    Args:
        evaluations: The policy, and after it the baseline if there is one; same scenarios, same order.
        paired: Their comparison, policy minus baseline.
        protocol: Plain values that say how the numbers were taken.
    """
    data = {
        "format": FORMAT,
        "version": VERSION,
        "protocol": protocol,
        "scenarios": {
            "hash": scenarios.hash,
            "split": scenarios.split,
            "seed": scenarios.seed,
            "count": len(scenarios.scenarios),
            "rejection_rate": scenarios.rejection_rate,
        },
        "policies": [e.to_json() for e in evaluations],
        "paired": asdict(paired) if paired is not None else None,
    }
    write_json(out / "report.json", data)
    write_bytes(out / "index.html", page(data, evaluations).encode())


def page(data: dict[str, Any], evaluations: Sequence[Evaluation]) -> str:
    """The whole HTML document."""
    protocol = data["protocol"]
    title = f"{protocol['task']} in {protocol['scene']}"
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{_e(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>Evaluation: {_e(title)}</h1>",
        simulated_note(protocol),
        _summary(data),
        _comparison(data),
        "<h2>Rollouts</h2>",
        "".join(_videos(e) for e in evaluations) or "<p>No scenario was filmed.</p>",
        "<h2>Every scenario</h2>",
        _table(evaluations),
        f"<h2>Protocol</h2><p>{METHOD}</p>",
        f"<pre>{_e(json.dumps({**protocol, 'scenario_set': data['scenarios']}, indent=1))}</pre>",
        "</body></html>",
    ]
    return "\n".join(parts)


def _summary(data: dict[str, Any]) -> str:
    rows = []
    for policy in data["policies"]:
        r = policy["rate"]
        rows.append(
            f"<tr><th scope=row>{_e(policy['name'])}</th><td>{r['k']} / {r['n']}</td><td>{100 * r['rate']:.1f} %</td>"
            f"<td>{100 * r['low']:.1f} to {100 * r['high']:.1f} %</td><td>{_bar(r)}</td>"
            f"<td>{policy['diverged']}</td></tr>"
        )
    head = "<tr><th>policy<th>successes<th>rate<th>95 % interval<th><th>diverged, not counted</tr>"
    return f"<h2>Success</h2><table>{head}{''.join(rows)}</table>"


def _bar(r: dict[str, Any]) -> str:
    low, high, rate = (100 * r[key] for key in ("low", "high", "rate"))
    label = f"{rate:.1f} percent, interval {low:.1f} to {high:.1f}"
    return (
        f"<div class=bar role=img aria-label='{label}'><i style='left:{low:.2f}%;width:{high - low:.2f}%'></i>"
        f"<b style='left:{rate:.2f}%'></b></div>"
    )


def _comparison(data: dict[str, Any]) -> str:
    p = data["paired"]
    if p is None:
        return ""
    a, b = (_e(policy["name"]) for policy in data["policies"][:2])
    words = {
        "BETTER": f"{a} is better than {b}",
        "WORSE": f"{a} is worse than {b}",
        "UNDERPOWERED": "no difference can be claimed with this many scenarios",
        "SAME OUTCOMES": "both had the same outcome in every scenario",
    }
    return (
        f"<h2>{a} against {b}, same {p['n']} scenarios</h2><p class=verdict>{p['verdict']}: {words[p['verdict']]}</p>"
        f"<table><tr><th>difference<th>95 % interval<th>exact p<th>e-value<th>only {a}<th>only {b}<th>both<th>neither"
        f"<th>detectable difference (80 % power)</tr><tr><td>{100 * p['difference']:+.1f} points"
        f"<td>{100 * p['low']:+.1f} to {100 * p['high']:+.1f}<td>{p['p_value']:.2g}<td>{p['e_value']:.3g}"
        f"<td>{p['only_a']}<td>{p['only_b']}<td>{p['both']}<td>{p['neither']}"
        f"<td>{100 * p['minimum_detectable']:.1f} points</tr></table>"
    )


def _videos(evaluation: Evaluation) -> str:
    by_index = {e.scenario: e for e in evaluation.episodes}
    figures = []
    for index, frames in evaluation.videos.items():
        episode = by_index[index]
        outcome = "success" if episode.success else "failure"
        source = "data:video/mp4;base64," + base64.b64encode(encode_mp4(frames)).decode()
        figures.append(
            f"<figure><video controls muted loop playsinline preload=metadata src='{source}' "
            f"aria-label='{_e(evaluation.name)}, scenario {index}: {outcome}'></video>"
            f"<figcaption>{_e(evaluation.name)}, scenario {index}: {outcome} after {episode.steps} steps, "
            f"{100 * episode.distance:.1f} cm away</figcaption></figure>"
        )
    return f"<div>{''.join(figures)}</div>" if figures else ""


def _table(evaluations: Sequence[Evaluation]) -> str:
    columns = "".join(f"<th>{_e(e.name)}<th>steps<th>ends at<th>closest" for e in evaluations)
    rows = []
    for episodes in zip(*(e.episodes for e in evaluations), strict=True):
        cells = "".join(_cells(e) for e in episodes)
        rows.append(f"<tr><td>{episodes[0].scenario}{cells}</tr>")
    return f"<table><tr><th>scenario{columns}</tr>{''.join(rows)}</table>"


def _cells(e: Episode) -> str:
    word, kind = ("diverged", "no") if e.diverged else ("success", "yes") if e.success else ("failure", "no")
    return f"<td class={kind}>{word}<td>{e.steps}<td>{100 * e.distance:.1f} cm<td>{100 * e.closest:.1f} cm"


def encode_mp4(frames: NDArray[np.uint8], fps: int = FPS) -> bytes:
    """H.264 in MP4 of frames [T, H, W, 3] uint8 RGB with even sides: what every browser plays from a file."""
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "26", "preset": "veryfast", "threads": "1"})
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def _e(text: object) -> str:
    return html.escape(str(text))
