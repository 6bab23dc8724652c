"""The capture check: what is wrong with a recording, found in seconds, before the long work.

Looks at a few frames of every camera (exposure, sharpness, black or identical cameras, repeated frames), at all frame
times (rate, gaps, overlap) and, with a calibration, at whether the cameras look at the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from recon.capture.plate import evenly
from recon.capture.session import Capture
from recon.capture.stream import CameraStream
from recon.core.errors import InputError
from recon.core.events import Level
from recon.geometry.camera import Camera, project
from recon.geometry.rig import Rig

SAMPLES = 5  # evenly spaced frames per camera for exposure and sharpness
RUN = 12  # consecutive frames per camera for repeated ones
THUMB = (64, 48)
BLACK_BRIGHT = 20.0  # 8-bit levels: a black camera's 99th percentile
IDENTICAL = 1.0  # 8-bit levels, mean absolute difference of thumbnails
DARK, BRIGHT = 35.0, 235.0  # mean level
CLIPPED_SHARE = 0.25  # of pixels at 254 or more
BLUR_RATIO = 0.2  # of the median camera's sharpness
GAP = 1.6  # frame distances that mean a dropped frame, in median distances
OVERLAP = 0.8  # of the shortest recording that all cameras should share


@dataclass(frozen=True)
class Finding:
    """One thing noticed. level 'error': not usable; 'warning': usable, worse result; 'info'.

    camera and frame say where (None: all, or no single one); text says what, fix what to do.
    """

    level: Level
    camera: str | None
    frame: int | None
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.text}. {self.fix}" if self.fix else self.text


@dataclass(frozen=True)
class _Look:
    """What the sampled frames of one camera look like."""

    frames: list[int]
    thumbs: np.ndarray  # [S, 48, 64] float32 grey levels
    mean: float
    bright: float  # 99th percentile
    clipped: float  # share of pixels
    sharpness: float
    repeated: list[int]  # frames equal to the one before


def check_capture(capture: Capture, rig: Rig | None = None) -> list[Finding]:
    """All findings, errors first. Reads about 17 frames per camera; raises InputError where that fails."""
    looks = {name: _look(stream) for name, stream in capture.cameras.items()}
    findings = _pictures(looks)
    findings += _identical(looks)
    findings += _clocks(capture, rig)
    if rig is not None:
        findings += _coverage({name: rig.cameras[name] for name in capture.cameras})
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(findings, key=lambda finding: order[finding.level])


def refuse_unusable(findings: list[Finding]) -> None:
    """Raise InputError for the first finding of level 'error'."""
    for finding in findings:
        if finding.level == "error":
            raise InputError(finding.text, fix=finding.fix)


def _look(stream: CameraStream) -> _Look:
    chosen = [int(i) for i in evenly(len(stream), SAMPLES)]
    start = max(0, len(stream) // 2 - RUN // 2)
    run = range(start, min(start + RUN, len(stream)))
    images: dict[int, np.ndarray] = {}
    repeated = []
    for i in sorted({*chosen, *run}):  # in one pass forward, which a video decoder likes best
        images[i] = stream.read(i)
        if i in run and i - 1 in run and np.array_equal(images[i], images[i - 1]):
            repeated.append(i)
        if i - 1 in images and i - 1 not in chosen:
            del images[i - 1]
    seen = [images[i] for i in chosen]
    grey = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in seen]
    thumbs = np.stack([cv2.resize(g, THUMB, interpolation=cv2.INTER_AREA) for g in grey]).astype(np.float32)
    return _Look(
        frames=chosen,
        thumbs=thumbs,
        mean=float(np.mean([g.mean() for g in grey])),
        bright=float(np.max([np.percentile(g, 99) for g in grey])),
        clipped=float(np.mean([(image >= 254).all(axis=2).mean() for image in seen])),
        sharpness=float(np.median([_sharpness(g) for g in grey])),
        repeated=repeated,
    )


def _sharpness(grey: np.ndarray) -> float:
    """Energy of the Laplacian over that of a coarse one: falls with blur, and little with contrast or noise level."""
    fine = cv2.Laplacian(cv2.GaussianBlur(grey, (0, 0), 0.7), cv2.CV_32F)
    coarse = cv2.Laplacian(cv2.GaussianBlur(grey, (0, 0), 3.0), cv2.CV_32F)
    return float(fine.var() / max(float(coarse.var()), 1e-3))


def _pictures(looks: Mapping[str, _Look]) -> list[Finding]:
    found = []
    leave_out = "Fix the camera, or leave it out with --cams."
    usual = float(np.median([look.sharpness for look in looks.values()]))
    for name, look in looks.items():
        if look.bright < BLACK_BRIGHT:
            text = f"camera {name} is black in every frame looked at (first: frame {look.frames[0]})"
            found.append(Finding("error", name, look.frames[0], text, f"Remove the lens cap. {leave_out}"))
            continue
        if look.mean < DARK:
            found.append(
                Finding(
                    "warning",
                    name,
                    None,
                    f"camera {name} is dark (mean level {look.mean:.0f} of 255)",
                    "Use more light or a longer exposure.",
                )
            )
        if look.mean > BRIGHT or look.clipped > CLIPPED_SHARE:
            found.append(
                Finding(
                    "warning",
                    name,
                    None,
                    f"camera {name} is overexposed ({100 * look.clipped:.0f} % of pixels are white)",
                    "Use a shorter exposure.",
                )
            )
        if look.sharpness < BLUR_RATIO * usual:
            found.append(
                Finding(
                    "warning",
                    name,
                    None,
                    f"camera {name} is much less sharp than the others",
                    "Focus it, and clean the lens.",
                )
            )
        if len(look.repeated) >= RUN - 1:
            found.append(
                Finding(
                    "warning",
                    name,
                    look.repeated[0],
                    f"camera {name} stands still from frame {look.repeated[0] - 1} to {look.repeated[-1]}",
                    leave_out,
                )
            )
        elif look.repeated:
            found.append(
                Finding(
                    "warning",
                    name,
                    look.repeated[0],
                    f"camera {name} repeats frames, such as {look.repeated[0]}",
                    "Its true frame rate is lower than recorded; record at that rate.",
                )
            )
    return found


def _identical(looks: Mapping[str, _Look]) -> list[Finding]:
    found = []
    names = [name for name, look in looks.items() if look.bright >= BLACK_BRIGHT]
    for k, a in enumerate(names):
        for b in names[k + 1 :]:
            first, second = looks[a].thumbs, looks[b].thumbs
            if first.shape == second.shape and np.abs(first - second).mean() < IDENTICAL:
                text = f"cameras {a} and {b} show the same pictures (frame {looks[a].frames[0]} and others)"
                found.append(
                    Finding(
                        "error",
                        b,
                        looks[b].frames[0],
                        text,
                        "One file was copied twice: replace it, or leave one out with --cams.",
                    )
                )
    return found


def _clocks(capture: Capture, rig: Rig | None) -> list[Finding]:
    found = []
    steps = {n: float(np.median(np.diff(s.times))) if len(s) > 1 else 0.0 for n, s in capture.cameras.items()}
    for name, stream in capture.cameras.items():
        if len(stream) < 2:
            found.append(Finding("warning", name, 0, f"camera {name} has a single frame", "Only its still part helps."))
            continue
        gaps = np.diff(stream.times) / steps[name]
        dropped = np.flatnonzero(gaps > GAP)
        if dropped.size:
            first = int(dropped[0]) + 1
            lost = int(np.round(gaps[dropped] - 1).sum())
            found.append(
                Finding(
                    "warning",
                    name,
                    first,
                    f"camera {name} dropped about {lost} frames; the first gap is before frame {first} "
                    f"at {stream.times[first]:.3f} s",
                    "Gaps are tolerated; lower the recording rate.",
                )
            )
        if rig is not None and rig.fps and abs(1 / steps[name] - rig.fps) > 0.05 * rig.fps:
            found.append(
                Finding(
                    "warning",
                    name,
                    None,
                    f"camera {name} has {1 / steps[name]:.2f} frames/s, its calibration says {rig.fps:g}",
                    "Check the recording, or --fps for pictures.",
                )
            )
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


def _coverage(cameras: Mapping[str, Camera]) -> list[Finding]:
    if len(cameras) < 2:
        return []
    focus = focus_point(list(cameras.values()))
    blind = []
    for name, camera in cameras.items():
        uv, depth = project(camera, focus[None])
        if not (depth[0] > 0 and 0 <= uv[0, 0] <= camera.width and 0 <= uv[0, 1] <= camera.height):
            blind.append(name)
    return [
        Finding(
            "warning",
            name,
            None,
            f"camera {name} does not see the place the others look at",
            "Check its pose in the calibration, and that the file belongs to this camera.",
        )
        for name in blind
    ]


def focus_point(cameras: list[Camera]) -> np.ndarray:
    """The point [3] nearest to all optical axes: minimises sum |(I - d d^T)(x - c)|^2; robust to one wrong camera."""
    centres = np.stack([camera.center for camera in cameras])
    axes = np.stack([camera.cam_from_world[2, :3] for camera in cameras])
    weights = np.ones(len(cameras))
    point = centres.mean(axis=0)
    for _ in range(10):  # reweighted by distance, so that one stray axis does not pull the point away
        across = np.eye(3) - axes[:, :, None] * axes[:, None, :]  # [C, 3, 3]
        system = np.einsum("c,cij->ij", weights, across)
        right = np.einsum("c,cij,cj->i", weights, across, centres)
        point = np.linalg.solve(system + 1e-9 * np.eye(3), right + 1e-9 * centres.mean(axis=0))
        distance = np.linalg.norm(np.einsum("cij,cj->ci", across, point - centres), axis=1)
        weights = 1.0 / np.maximum(distance, 1e-3 * np.linalg.norm(centres - point, axis=1).mean())
    return point
