"""What is wrong with frame times: gaps, rates, little overlap, clocks that disagree with what moves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recon.capture.finding import Finding
from recon.capture.session import Capture
from recon.capture.sync import Offset
from recon.geometry.rig import Rig

GAP = 1.6  # frame distances that mean a dropped frame, in median distances
OVERLAP = 0.8  # of the shortest recording that all cameras should share
LATE = 0.25  # frames that a clock may be off


def frame_steps(capture: Capture) -> dict[str, float]:
    """Median seconds between frames, by camera; 0 for a single frame."""
    return {n: float(np.median(np.diff(s.times))) if len(s) > 1 else 0.0 for n, s in capture.cameras.items()}


def timing_findings(capture: Capture, rig: Rig | None) -> list[Finding]:
    """Single frames, gaps, rates that differ from the calibration's or from each other, little common time."""
    found = []
    steps = frame_steps(capture)
    for name, stream in capture.cameras.items():
        if len(stream) < 2:
            found.append(Finding("warning", name, 0, f"camera {name} has a single frame", "Only its still part helps."))
            continue
        gaps = np.diff(stream.times) / steps[name]
        dropped = np.flatnonzero(gaps > GAP)
        if dropped.size:
            first = int(dropped[0]) + 1
            lost = int(np.round(gaps[dropped] - 1).sum())
            text = (
                f"camera {name} dropped about {lost} frames; the first gap is before frame {first} "
                f"at {stream.times[first]:.3f} s"
            )
            found.append(Finding("warning", name, first, text, "Gaps are tolerated; lower the recording rate."))
        if rig is not None and rig.fps and abs(1 / steps[name] - rig.fps) > 0.05 * rig.fps:
            text = f"camera {name} has {1 / steps[name]:.2f} frames/s, its calibration says {rig.fps:g}"
            found.append(Finding("warning", name, None, text, "Check the recording, or --fps for pictures."))
    rates = sorted({round(1 / step, 1) for step in steps.values() if step > 0})
    if len(rates) > 1:
        found.append(Finding("info", None, None, f"frame rates differ: {', '.join(f'{r:g}' for r in rates)} frames/s"))
    return found + _overlap(capture)


def _overlap(capture: Capture) -> list[Finding]:
    streams = capture.cameras.values()
    begin = max(streams, key=lambda s: float(s.times[0]))
    end = min(streams, key=lambda s: float(s.times[-1]))
    common = float(end.times[-1] - begin.times[0])
    shortest = min(float(s.times[-1] - s.times[0]) for s in streams)
    longest = max(float(s.times[-1] - s.times[0]) for s in streams)
    if min(shortest, common) < OVERLAP * longest:
        text = (
            f"all cameras together record {common:.2f} s of {longest:.2f} s: "
            f"{begin.name} starts last, {end.name} ends first"
        )
        return [Finding("warning", begin.name, 0, text, "Check the clock offsets.")]
    return []


def clock_findings(offsets: Mapping[str, Offset], steps: Mapping[str, float]) -> list[Finding]:
    """Cameras whose clock is off by more than LATE frames, where what moves tells."""
    found = []
    for name, offset in offsets.items():
        if not offset.sure or abs(offset.seconds) <= LATE * steps[name]:
            continue
        way = "early" if offset.seconds > 0 else "late"
        text = f"the times of camera {name} are about {1000 * abs(offset.seconds):.0f} ms too {way} against the others'"
        found.append(
            Finding("warning", name, None, text, "Start the cameras by one trigger, or correct its time stamps.")
        )
    return found
