"""`recon check`: what is wrong with a recording, in half a minute, as messages, one page and JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from recon.calibrate.conventions import AS_WRITTEN
from recon.calibrate.rig import find_calibration, load_calibration
from recon.calibrate.sanity import agreement
from recon.capture.check import examine, refuse_unusable
from recon.capture.session import Capture, PictureSizes, open_capture
from recon.config import CheckConfig
from recon.core.errors import CalibrationError, InputError
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.geometry.rig import Rig
from recon.report.check_page import write_check


def check(config: CheckConfig) -> Iterator[Event]:
    """Yields one message per finding and the page's folder; raises InputError last when the capture is not usable."""
    if not config.videos.is_dir():
        raise InputError(f"{config.videos} is not a folder", why="--videos takes a folder of videos or picture folders")
    started = time.monotonic()
    yield StageStarted("check")
    rig, missing = _rig(config)
    if missing:
        yield Message("info", missing)
    cams = [name.strip() for name in config.cams.split(",") if name.strip()] or None
    with open_capture(config.videos, rig, cams, fps=config.fps, min_cameras=1) as capture:
        yield from capture.messages
        found = examine(capture, rig)
        for finding in found.findings:
            yield Message("warning" if finding.level == "error" else finding.level, str(finding))
        notes = [missing] if missing else [] if rig is None else _agreement(capture, rig)
        for note in [] if missing else notes:
            yield Message("info", note)
        out = config.out or Path("checks") / config.videos.resolve().parent.name
        write_check(out, capture, rig, found, notes)
    yield StageFinished("check", time.monotonic() - started, {"findings": float(len(found.findings))})
    yield Artifact("check", out / "check.html")
    refuse_unusable(found.findings)


def _rig(config: CheckConfig) -> tuple[Rig | None, str]:
    """(calibration, '') or (None, why there is none); one that was named must be readable."""
    if config.rig:
        return load_calibration(list(config.rig), PictureSizes(config.videos)).rig, ""
    try:
        return load_calibration(find_calibration(config.videos), PictureSizes(config.videos)).rig, ""
    except CalibrationError as error:
        return None, f"checked without a calibration: {error.what}"


def _agreement(capture: Capture, rig: Rig) -> list[str]:
    """How well calibration and pictures agree, in one sentence."""
    if len(capture.cameras) < 2:
        return []
    cameras = {name: rig.cameras[name] for name in capture.cameras}
    found = agreement(cameras, {name: stream.read(0) for name, stream in capture.cameras.items()})
    if not found.sure:
        return ["The first pictures have too few matches to compare the calibration with."]
    return [
        f"Calibration and pictures: {100 * found.share(AS_WRITTEN):.0f} % of {found.matches} matches between the first "
        f"pictures agree, to {found.error:.2f} pixels in the median."
    ]
