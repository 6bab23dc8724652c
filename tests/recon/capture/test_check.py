"""The capture check: each fault is found, named, and nothing is found in a good recording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.capture import Finding, check_capture, open_capture, refuse_unusable
from recon.capture.coverage import focus_point
from recon.capture.video import write_mp4
from recon.core.errors import InputError
from recon.geometry.pose import look_at
from recon.geometry.rig import Rig
from tests.recon.capture.recordings import FPS, camera, picture

Record = Callable[..., Path]


def findings(folder: Path, rig: Rig | None = None) -> list[Finding]:
    with open_capture(folder, rig) as capture:
        return check_capture(capture, rig)


def test_a_good_recording_has_no_findings(record: Record, rig: Rig) -> None:
    assert findings(record(), rig) == []


def test_a_black_camera_is_refused_by_name(record: Record) -> None:
    folder = record()
    write_mp4(folder / "cam02.mp4", (np.full((64, 96, 3), 3, np.uint8) for _ in range(12)), FPS)
    found = findings(folder)
    assert [(f.level, f.camera, f.frame) for f in found if f.level == "error"] == [("error", "cam02", 0)]
    with pytest.raises(InputError, match=r"camera cam02 is black in every frame looked at \(first: frame 0\)"):
        refuse_unusable(found)


def test_two_identical_cameras_are_refused_by_name(record: Record) -> None:
    folder = record()
    (folder / "cam03.mp4").write_bytes((folder / "cam01.mp4").read_bytes())
    with pytest.raises(InputError, match=r"cameras cam01 and cam03 show the same pictures \(frame 0 and others\)"):
        refuse_unusable(findings(folder))


def only(found: list[Finding], camera_name: str | None) -> Finding:
    assert [f.camera for f in found] == [camera_name], found
    assert found[0].level == "warning"
    refuse_unusable(found)
    return found[0]


def test_dark_and_overexposed_cameras_are_named(record: Record) -> None:
    folder = record()
    write_mp4(folder / "cam01.mp4", (picture(1, t) // 8 for t in range(12)), FPS)
    assert "camera cam01 is dark (mean level 13 of 255)" in [f.text for f in findings(folder)]
    folder = record()
    write_mp4(folder / "cam02.mp4", (np.maximum(picture(2, t), 100) // 100 * 255 for t in range(12)), FPS)
    assert "cam02 is overexposed" in next(f.text for f in findings(folder) if f.camera == "cam02")


def textured(k: int, t: int, blur: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(k)
    image = cv2.resize(rng.integers(20, 230, (128, 192, 3), dtype=np.uint8), (96, 64), interpolation=cv2.INTER_AREA)
    image[20:32, 4 + 3 * t : 16 + 3 * t] = 240
    return cv2.GaussianBlur(image, (0, 0), blur) if blur else image


def test_a_blurred_camera_is_named(tmp_path: Path) -> None:
    for k in range(4):
        frames = (textured(k, t, 4.0 if k == 1 else 0.0) for t in range(12))
        write_mp4(tmp_path / f"cam{k:02d}.mp4", frames, FPS)
    assert only(findings(tmp_path), "cam01").text == "camera cam01 is much less sharp than the others"


def test_repeated_and_frozen_pictures_are_named(record_pictures: Record) -> None:
    folder = record_pictures(frames=12)
    (folder / "cam01" / "000006.png").write_bytes((folder / "cam01" / "000005.png").read_bytes())
    found = only(findings(folder), "cam01")
    assert (found.frame, found.text) == (6, "camera cam01 repeats frames, such as 6 (1 of 12)")
    for t in range(12):
        (folder / "cam01" / f"{t:06d}.png").write_bytes((folder / "cam01" / "000005.png").read_bytes())
    assert only(findings(folder), "cam01").text == "camera cam01 stands still from frame 0 to 11"


def test_dropped_frames_are_named(record_pictures: Record) -> None:
    folder = record_pictures(frames=12)
    for t in (4, 5):
        (folder / "cam02" / f"{t:06d}.png").unlink()
    found = only(findings(folder), "cam02")
    assert found.frame == 4
    assert found.text == "camera cam02 dropped about 2 frames; the first gap is before frame 4 at 0.200 s"


def test_little_overlap_in_time_is_named(record: Record) -> None:
    with open_capture(record(), None, offsets={"cam01": 0.6}) as capture:
        found = only(check_capture(capture), "cam01")
    assert "all cameras together record 0.50 s of 1.10 s: cam01 starts last, cam00 ends first" in found.text


def test_a_frame_rate_unlike_the_calibration_is_named(record: Record, rig: Rig) -> None:
    found = findings(record(), replace(rig, fps=25.0))
    assert [f.text for f in found] == [f"camera {n} has 10.00 frames/s, its calibration says 25" for n in rig.cameras]


def test_a_camera_that_looks_elsewhere_is_named(record: Record, rig: Rig) -> None:
    away = camera(2).with_pose(look_at(camera(2).center, 2 * camera(2).center))
    found = only(findings(record(), replace(rig, cameras={**rig.cameras, "cam02": away})), "cam02")
    assert "does not see the place the others look at" in found.text


def test_the_focus_point_is_where_the_axes_meet(rig: Rig) -> None:
    target = np.array([0.3, -0.2, 0.1])
    aimed = [c.with_pose(look_at(c.center, target)) for c in rig.cameras.values()]
    assert np.allclose(focus_point(aimed), target, atol=1e-6)
