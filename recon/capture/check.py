"""The capture check: what is wrong with a recording, found in seconds, before the long work.

Looks at a bounded number of frames of every camera (exposure, sharpness, flicker, lights, black or identical cameras,
repeated frames, cameras that move), at all frame times (rate, gaps, overlap), at what moves (whether the clocks agree)
and, with a calibration, at what the cameras see together and how well that can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from recon.capture.coverage import Coverage, coverage
from recon.capture.finding import Finding
from recon.capture.session import Capture
from recon.capture.survey import Look, look_at_camera, plans
from recon.capture.sync import Offset, offsets
from recon.capture.timing import clock_findings, frame_steps, timing_findings
from recon.core.errors import InputError
from recon.geometry.camera import Camera, project
from recon.geometry.rig import Rig

BLACK_BRIGHT = 20.0  # 8-bit levels: a black camera's 99th percentile
IDENTICAL = 1.0  # 8-bit levels, mean absolute difference of thumbnails
DARK, BRIGHT = 35.0, 235.0  # mean level
CLIPPED_SHARE = 0.25  # of pixels at 254 or more
BLUR_RATIO = 0.2  # of the median camera's sharpness
FLICKER = 0.015  # of the brightness
STEP, SWITCH = 0.08, 0.25  # of the brightness: a change that is told, and one that a whole build would suffer from
SIDE_FRAMES = 3  # frames on each side of a change
MOVED = 0.004  # of the picture's longer side
JITTER = 0.0008  # of it, from frame to frame
FEW_SHARED = 0.4  # of the workspace should be seen by enough cameras
ROUGH = 0.01  # of the distance to the cameras
LEAVE_OUT = "Fix the camera, or leave it out with --cams."


@dataclass(frozen=True, eq=False)
class Examined:
    """findings: errors first. looks, offsets: by camera (offsets where what moves tells). coverage: with a rig."""

    findings: list[Finding]
    looks: dict[str, Look]
    offsets: dict[str, Offset]
    coverage: Coverage | None


def examine(capture: Capture, rig: Rig | None = None) -> Examined:
    """Everything there is to find, in bounded time and memory; raises InputError where a frame cannot be read."""
    chosen = plans(capture.cameras)
    with ThreadPoolExecutor(2) as pool:  # decoding and OpenCV leave Python's lock alone
        futures = {name: pool.submit(look_at_camera, stream, chosen[name]) for name, stream in capture.cameras.items()}
        looks = {name: future.result() for name, future in futures.items()}
    clocks = offsets({name: look.signal for name, look in looks.items()})
    findings = [f for name, look in looks.items() for f in _picture(name, look, _usual(looks))]
    findings += _identical(looks)
    findings += _lights(looks)
    findings += [f for name, look in looks.items() for f in _steady(name, look, capture)]
    findings += timing_findings(capture, rig)
    findings += clock_findings(clocks, frame_steps(capture))
    findings += [f for name in looks for f in _turned(name, capture)]
    if not all(plan.whole for plan in chosen.values()):
        findings.append(_sampled(capture, looks))
    seen: Coverage | None = None
    if rig is not None and len(looks) >= 2:
        cameras = {name: rig.cameras[name] for name in looks}
        seen = coverage(cameras)
        findings += _coverage(cameras, seen)
    order = {"error": 0, "warning": 1, "info": 2}
    return Examined(sorted(findings, key=lambda finding: order[finding.level]), looks, clocks, seen)


def check_capture(capture: Capture, rig: Rig | None = None) -> list[Finding]:
    """All findings of `examine`, errors first."""
    return examine(capture, rig).findings


def refuse_unusable(findings: list[Finding]) -> None:
    """Raise InputError for the first finding of level 'error'."""
    for finding in findings:
        if finding.level == "error":
            raise InputError(finding.text, fix=finding.fix)


def _usual(looks: Mapping[str, Look]) -> float:
    return float(np.median([np.median(look.sharpness) for look in looks.values()]))


def flicker(look: Look) -> float:
    """Standard deviation of the brightness from frame to frame, relative: second differences know no slow change."""
    if len(look.gain) < 8:
        return 0.0
    # var(g[t-1] - 2 g[t] + g[t+1]) = 6 var(g) for independent g
    second = np.diff(look.gain, 2)
    return float(1.4826 * np.median(np.abs(second - np.median(second))) / np.sqrt(6))


def light_steps(look: Look) -> list[tuple[int, float]]:
    """(frame, ratio of brightness after and before) of the sudden changes in the run, and between stills outside it."""
    found = []
    gain, n = look.gain, SIDE_FRAMES
    after = np.array([np.median(gain[t : t + n]) for t in range(n, len(gain) - n + 1)])
    before = np.array([np.median(gain[t - n : t]) for t in range(n, len(gain) - n + 1)])
    ratio = after / np.maximum(before, 1e-3)
    size = np.abs(np.log(ratio))
    while size.size and size.max() > np.log1p(STEP):
        k = int(np.argmax(size))
        # several windows see one change: it is where the brightness itself jumps most
        near = np.arange(max(1, k + 1), min(k + 2 * n, len(gain)))
        frame = near[int(np.argmax(np.abs(np.log(np.maximum(gain[near], 1e-3) / np.maximum(gain[near - 1], 1e-3)))))]
        found.append((look.plan.run[frame], float(ratio[k])))
        size[max(0, k - 2 * n) : k + 2 * n + 1] = 0.0
    if not look.plan.whole:
        found += _between_stills(look)
    return sorted(found)


def _between_stills(look: Look) -> list[tuple[int, float]]:
    found = []
    for k in range(1, len(look.thumbs)):
        lit = look.thumbs[k - 1] > 16.0
        if lit.any():
            ratio = float(np.median(look.thumbs[k][lit] / look.thumbs[k - 1][lit]))
            if abs(np.log(max(ratio, 1e-3))) > np.log1p(STEP):
                found.append((look.plan.stills[k], ratio))
    return found


def _picture(name: str, look: Look, usual: float) -> list[Finding]:
    first = look.plan.stills[0]
    if look.bright < BLACK_BRIGHT:
        text = f"camera {name} is black in every frame looked at (first: frame {first})"
        return [Finding("error", name, first, text, f"Remove the lens cap. {LEAVE_OUT}")]
    found = []
    mean, clipped = float(np.mean(look.mean)), float(np.mean(look.clipped))
    if mean < DARK:
        text = f"camera {name} is dark (mean level {mean:.0f} of 255)"
        found.append(Finding("warning", name, None, text, "Use more light or a longer exposure."))
    if mean > BRIGHT or clipped > CLIPPED_SHARE:
        text = f"camera {name} is overexposed ({100 * clipped:.0f} % of pixels are white)"
        found.append(Finding("warning", name, None, text, "Use a shorter exposure."))
    if float(np.median(look.sharpness)) < BLUR_RATIO * usual:
        text = f"camera {name} is much less sharp than the others"
        found.append(Finding("warning", name, None, text, "Focus it, and clean the lens."))
    if flicker(look) > FLICKER:
        text = f"camera {name} flickers: its brightness changes by {100 * flicker(look):.1f} % from frame to frame"
        fix = "Lock the exposure, and make it a multiple of the lamps' period (1/50 s or 1/60 s)."
        found.append(Finding("warning", name, None, text, fix))
    return found + _repeats(name, look)


def _repeats(name: str, look: Look) -> list[Finding]:
    again, run = look.repeated, look.plan.run
    if len(run) > 2 and len(again) == len(run) - 1:
        text = f"camera {name} stands still from frame {run[0]} to {run[-1]}"
        return [Finding("warning", name, again[0], text, LEAVE_OUT)]
    if again:
        text = f"camera {name} repeats frames, such as {again[0]} ({len(again)} of {len(run)})"
        fix = "Its true frame rate is lower than recorded; record at that rate."
        return [Finding("warning", name, again[0], text, fix)]
    return []


def _identical(looks: Mapping[str, Look]) -> list[Finding]:
    found = []
    names = [name for name, look in looks.items() if look.bright >= BLACK_BRIGHT]
    for k, a in enumerate(names):
        for b in names[k + 1 :]:
            first, second = looks[a].thumbs, looks[b].thumbs
            if first.shape == second.shape and np.abs(first - second).mean() < IDENTICAL:
                text = f"cameras {a} and {b} show the same pictures (frame {looks[a].plan.stills[0]} and others)"
                fix = "One file was copied twice: replace it, or leave one out with --cams."
                found.append(Finding("error", b, looks[b].plan.stills[0], text, fix))
    return found


def _lights(looks: Mapping[str, Look]) -> list[Finding]:
    steps = {name: light_steps(look) for name, look in looks.items()}
    changed = [name for name in looks if steps[name]]
    if 2 * len(changed) > len(looks) > 1:
        sizes = {name: max(steps[name], key=lambda step: abs(np.log(step[1]))) for name in changed}
        size = float(np.median([abs(np.log(ratio)) for _, ratio in sizes.values()]))
        name, (frame, _) = min(sizes.items(), key=lambda item: item[1][0])
        text = (
            f"the light changes by {100 * np.expm1(size):.0f} % in {len(changed)} of {len(looks)} cameras "
            f"(camera {name} at frame {frame})"
        )
        fix = "Keep lamps and curtains as they are, lock the exposure, or cut the recordings there."
        return [Finding("error" if size > np.log1p(SWITCH) else "warning", name, frame, text, fix)]
    return [
        Finding(
            "warning", name, steps[name][0][0],
            f"camera {name} changes its brightness by {100 * abs(steps[name][0][1] - 1):.0f} % at frame "
            f"{steps[name][0][0]}",
            "Lock its exposure and white balance.",
        )
        for name in changed
    ]  # fmt: skip


def _steady(name: str, look: Look, capture: Capture) -> list[Finding]:
    stream = capture.cameras[name]
    side = max(stream.width, stream.height)
    known = [(i, s) for i, s in zip(look.plan.stills, look.shifts, strict=True) if s is not None]
    moved = [(i, s) for i, s in known if s > MOVED * side]
    fix = f"Cameras must stand still: clamp it and record again, or cut the recordings before that. {LEAVE_OUT}"
    if moved:
        frame, pixels = moved[0]
        text = f"camera {name} has moved by frame {frame}: its still part by {pixels:.1f} pixels"
        return [Finding("error", name, frame, text, fix)]
    if len(known) < 2 < len(look.shifts) and look.jitter is not None and look.jitter > JITTER * side:
        text = f"camera {name} moves all the time, by {look.jitter:.1f} pixels from frame to frame"
        return [Finding("error", name, look.plan.stills[0], text, fix)]
    return []


def _turned(name: str, capture: Capture) -> list[Finding]:
    stream = capture.cameras[name]
    if not stream.rotation:
        return []
    text = f"camera {name} asks to be turned by {stream.rotation} degrees; done: {stream.width}x{stream.height}"
    return [Finding("info", name, None, text, "Its calibration must be for the turned picture.")]


def _sampled(capture: Capture, looks: Mapping[str, Look]) -> Finding:
    name, look = min(looks.items(), key=lambda item: len(item[1].plan.run) / max(1, len(capture.cameras[item[0]])))
    times = capture.cameras[name].times
    run, stills = look.plan.run, len(look.plan.stills)
    text = f"long recording: looked at {stills} stills per camera and at {times[run[0]]:.2f} to {times[run[-1]]:.2f} s"
    return Finding("info", None, None, text)


def _coverage(cameras: Mapping[str, Camera], seen: Coverage) -> list[Finding]:
    found = []
    for name, camera in cameras.items():
        uv, depth = project(camera, seen.focus[None])
        if not (depth[0] > 0 and 0 <= uv[0, 0] <= camera.width and 0 <= uv[0, 1] <= camera.height):
            text = f"camera {name} does not see the place the others look at"
            fix = "Check its pose in the calibration, and that the file belongs to this camera."
            found.append(Finding("warning", name, None, text, fix))
    if found:
        return found
    if seen.shared < FEW_SHARED and len(cameras) > 2:
        text = f"only {100 * seen.shared:.0f} % of the place the cameras look at is seen by three of them"
        found.append(Finding("warning", None, None, text, "Turn the cameras to one place, or use wider lenses."))
    elif seen.accuracy > ROUGH * seen.distance:
        text = f"depth is uncertain: {100 * seen.accuracy / seen.distance:.1f} % of the distance"
        found.append(Finding("warning", None, None, text, "Place the cameras further apart around the place."))
    return found
