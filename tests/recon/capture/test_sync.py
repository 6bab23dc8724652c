"""Clocks that disagree, cameras that moved and lights that changed are found, with the right size."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.capture import check_capture, open_capture
from recon.capture.steady import shift
from recon.capture.sync import Signal, offsets
from recon.capture.video import write_mp4


def motion(t: np.ndarray) -> np.ndarray:
    """What moves: three bursts."""
    return 0.2 + 3 * sum(np.exp(-(((t - c) / 0.15) ** 2)) for c in (0.9, 1.7, 3.1))


def test_the_offset_of_a_late_camera_is_found_to_a_fifth_of_a_frame() -> None:
    rng = np.random.default_rng(0)
    times = np.arange(0, 4, 1 / 15)
    late = {"a": 0.0, "b": 0.0, "c": 0.03, "d": 0.0, "e": -0.2}
    # a clock that reads d too little shows what happens at t + d
    signals = {
        n: Signal(times, (1 + k) * motion(times + d) + 0.03 * rng.random(60)) for k, (n, d) in enumerate(late.items())
    }
    found = offsets(signals)
    assert all(found[name].sure for name in late)
    assert [found[name].seconds for name in late] == pytest.approx(list(late.values()), abs=0.013)


def test_noise_alone_tells_no_offsets() -> None:
    rng = np.random.default_rng(1)
    times = np.arange(0, 4, 1 / 15)
    found = offsets({name: Signal(times, rng.random(60)) for name in "abcd"})
    assert not any(offset.sure for offset in found.values())


def texture(seed: int) -> np.ndarray:
    small = np.random.default_rng(seed).integers(20, 180, (40, 60), dtype=np.uint8)
    return cv2.resize(small, (240, 160), interpolation=cv2.INTER_CUBIC)


def test_a_shifted_picture_is_measured_and_what_moves_in_front_is_outvoted() -> None:
    before = texture(0)
    after = np.roll(before, 3, axis=1)
    after[60:110, 80:150] = texture(1)[60:110, 80:150]
    found = shift(before, cv2.convertScaleAbs(after, alpha=0.8))
    assert found is not None and found.pixels == pytest.approx(3.0, abs=0.1)
    assert shift(before, texture(2)) is None


def record(folder: Path, change) -> Path:  # type: ignore[no-untyped-def]
    """Three cameras of 12 frames; change(camera, frame, picture) -> picture."""
    for k in range(3):
        frames = (np.repeat(change(k, t, texture(k))[..., None], 3, axis=2) for t in range(12))
        write_mp4(folder / f"cam{k}.mp4", frames, 10.0)
    return folder


def test_a_camera_that_was_bumped_stops_a_build(tmp_path: Path) -> None:
    folder = record(tmp_path, lambda k, t, p: np.roll(p, 4, axis=0) if k == 1 and t >= 6 else p)
    with open_capture(folder, None) as capture:
        errors = [f for f in check_capture(capture) if f.level == "error"]
    assert [f.camera for f in errors] == ["cam1"] and "has moved by frame" in errors[0].text


def test_light_that_is_switched_is_told_for_all_cameras_at_once(tmp_path: Path) -> None:
    folder = record(tmp_path, lambda k, t, p: (p * (0.6 if t >= 6 else 1.0)).astype(np.uint8))
    with open_capture(folder, None) as capture:
        errors = [f for f in check_capture(capture) if f.level == "error"]
    assert len(errors) == 1 and errors[0].text.startswith("the light changes by") and errors[0].frame == 6
