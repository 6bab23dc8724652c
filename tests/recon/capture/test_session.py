"""Opening a capture: names, clocks, masks, and every way it can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.capture import match_cameras, open_capture
from recon.core.errors import InputError
from recon.geometry.rig import Rig
from tests.recon.capture.recordings import FPS, HEIGHT, WIDTH, camera, picture

Record = Callable[..., Path]


def test_one_video_per_camera(record: Record, rig: Rig) -> None:
    with open_capture(record(), rig) as capture:
        assert list(capture.cameras) == ["cam00", "cam01", "cam02", "cam03"]
        stream = capture.cameras["cam02"]
        assert (stream.name, stream.width, stream.height, len(stream)) == ("cam02", WIDTH, HEIGHT, 12)
        assert np.allclose(stream.times, np.arange(12) / FPS)
        assert np.abs(stream.read(5).astype(int) - picture(2, 5)).mean() < 6
        assert not capture.messages


def test_one_image_folder_per_camera(record_pictures: Record, rig: Rig) -> None:
    capture = open_capture(record_pictures(), rig, ["cam00", "cam01", "cam02"], fps=20.0)
    assert np.array_equal(capture.cameras["cam01"].read(3), picture(1, 3))
    assert np.allclose(capture.cameras["cam01"].times, np.arange(6) / 20)
    assert "20 frames/s assumed" in capture.messages[0].text


def test_missing_picture_numbers_leave_gaps_in_time(record_pictures: Record) -> None:
    folder = record_pictures()
    (folder / "cam01" / "000002.png").unlink()
    (folder / "cam02" / "000000.png").unlink()
    capture = open_capture(folder, None, fps=10.0)
    assert np.allclose(capture.cameras["cam01"].times, [0, 0.1, 0.3, 0.4, 0.5])
    assert np.allclose(capture.cameras["cam02"].times, [0.1, 0.2, 0.3, 0.4, 0.5])
    assert np.array_equal(capture.cameras["cam01"].read(2), picture(1, 3))


def test_timestamps_csv_sets_the_clock(record_pictures: Record) -> None:
    folder = record_pictures(frames=3)
    rows = [f"cam{k:02d},{t * 0.25 + 0.01 * k}" for k in range(3) for t in range(3)]
    (folder / "timestamps.csv").write_text("camera,time_s\n" + "\n".join(rows))
    capture = open_capture(folder, None)
    assert np.allclose(capture.cameras["cam02"].times, [0.02, 0.27, 0.52])
    assert not capture.messages


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("camera,time_s\ncam00,0\ncam00,x\ncam00,1\n", r"timestamps\.csv: line 3: 'x' is not a time"),
        ("camera,time_s\ncam00,0\ncam00,nan\ncam00,1\n", r"timestamps\.csv: line 3: 'nan' is not a time"),
        ("camera,time_s\ncam00,0\ncam00,1\n", r"camera cam00 has no time for frame 2: 2 rows for 3 pictures"),
        ("camera,time_s\ncam00,0\ncam00,2\ncam00,1\n", r"camera cam00: time does not increase at frame 2"),
        ("camera,when\ncam00,0\n", r"timestamps\.csv: no time column"),
    ],
)
def test_bad_timestamps_are_refused(record_pictures: Record, table: str, message: str) -> None:
    folder = record_pictures(frames=3)
    (folder / "timestamps.csv").write_text(table)
    with pytest.raises(InputError, match=message):
        open_capture(folder, None)


def test_clock_offsets_are_added(record: Record, rig: Rig) -> None:
    capture = open_capture(record(), rig, offsets={"cam01": 0.25})
    assert capture.cameras["cam01"].times[0] == pytest.approx(0.25)
    assert capture.cameras["cam00"].times[0] == 0
    assert capture.time_range == (0.0, pytest.approx(1.35))


def test_no_overlap_in_time_names_both_cameras(record: Record, rig: Rig) -> None:
    with pytest.raises(InputError, match=r"cameras cam00 and cam01 do not overlap in time: cam00 ends at 1\.100 s"):
        open_capture(record(), rig, offsets={"cam01": 5.0})


def test_masks_beside_the_pictures_are_found(record_pictures: Record) -> None:
    folder = record_pictures()
    (folder.parent / "seg" / "cam01").mkdir(parents=True)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[3:9, 5:20] = 255
    cv2.imwrite(str(folder.parent / "seg" / "cam01" / "000004.png"), mask)
    capture = open_capture(folder, None)
    found = capture.cameras["cam01"].read_mask(4)
    assert found is not None
    assert np.array_equal(found, mask)
    assert capture.cameras["cam01"].read_mask(3) is None
    assert not capture.cameras["cam00"].has_masks


def test_masks_of_another_size_are_refused(record_pictures: Record, tmp_path: Path) -> None:
    folder = record_pictures()
    (tmp_path / "m" / "cam00").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "m" / "cam00" / "000001.png"), np.zeros((5, 5), np.uint8))
    capture = open_capture(folder, None, masks=tmp_path / "m")
    with pytest.raises(InputError, match=r"mask of camera cam00, frame 1 is 5x5, its picture 96x64"):
        capture.cameras["cam00"].read_mask(1)


def test_calibrated_camera_without_recording_is_named(record: Record, rig: Rig) -> None:
    with pytest.raises(InputError, match=r"has camera cam03 without a recording.*--cams cam00,cam01,cam02"):
        open_capture(record(count=3), rig)


def test_cams_chooses(record: Record, rig: Rig) -> None:
    assert list(open_capture(record(count=3), rig, ["cam02", "cam00", "cam01"]).cameras) == ["cam00", "cam01", "cam02"]
    with pytest.raises(InputError, match=r"--cams: no camera 'cam9' in the calibration"):
        open_capture(record(count=3), rig, ["cam9"])


def test_recording_without_calibration_is_left_out_loudly(record: Record) -> None:
    rig = Rig({f"cam{k:02d}": camera(k) for k in range(3)})
    capture = open_capture(record(count=4), rig)
    assert list(capture.cameras) == ["cam00", "cam01", "cam02"]
    assert [m.level for m in capture.messages] == ["warning"]
    assert "LEFT OUT: camera cam03" in capture.messages[0].text


def test_fewer_than_three_cameras_are_refused(record: Record) -> None:
    with pytest.raises(InputError, match=r"2 calibrated cameras have a recording, at least 3 are needed"):
        open_capture(record(count=4), Rig({f"cam{k:02d}": camera(k) for k in range(2)}))
    with pytest.raises(InputError, match=r"2 recordings, at least 3 cameras are needed"):
        open_capture(record(count=4), None, ["cam00", "cam01"])


def test_test_cameras_never_enter(record: Record, rig: Rig) -> None:
    held_out = replace(rig, roles={**rig.roles, "cam01": "test"})
    folder = record()
    (folder / "cam01.mp4").write_bytes(b"never looked at")
    assert list(open_capture(folder, held_out).cameras) == ["cam00", "cam02", "cam03"]
    with pytest.raises(InputError, match=r"camera 'cam01' has the role 'test'"):
        match_cameras(["cam00", "cam01"], held_out, ["cam01"])
    assert match_cameras(["cam01"], held_out, role="test", min_cameras=1).names == ["cam01"]


def test_size_that_differs_from_the_calibration_is_refused(record: Record, rig: Rig) -> None:
    wrong = replace(rig, cameras={**rig.cameras, "cam01": replace(rig.cameras["cam01"], width=WIDTH * 2)})
    with pytest.raises(InputError, match=r"cam01\.mp4: camera cam01 has 96x64 pictures, its calibration is for 192x64"):
        open_capture(record(), wrong)


def test_unreadable_picture_names_file_and_frame(record_pictures: Record) -> None:
    folder = record_pictures()
    (folder / "cam01" / "000003.png").write_bytes(b"\x89PNG damaged")
    capture = open_capture(folder, None)
    with pytest.raises(InputError, match=r"cam01/000003\.png: frame 3 cannot be read"):
        capture.cameras["cam01"].read(3)


def test_link_out_of_the_folder_is_refused(record: Record, tmp_path: Path) -> None:
    folder = record(count=3)
    (tmp_path / "elsewhere.mp4").write_bytes((folder / "cam00.mp4").read_bytes())
    (folder / "cam03.mp4").symlink_to(tmp_path / "elsewhere.mp4")
    with pytest.raises(InputError, match=r"cam03\.mp4.*leads outside the folder"):
        open_capture(folder, None)


def test_two_recordings_of_one_camera_are_refused(record: Record) -> None:
    folder = record(count=3)
    (folder / "cam01.mov").write_bytes((folder / "cam01.mp4").read_bytes())
    with pytest.raises(InputError, match=r"camera cam01 has two recordings: cam01\.mov and cam01\.mp4"):
        open_capture(folder, None)


def test_a_folder_without_recordings_suggests_the_right_one(record: Record, tmp_path: Path) -> None:
    folder = record(count=3)
    with pytest.raises(InputError, match=rf"no recordings.*Did you mean {folder}"):
        open_capture(folder.parent, None)
    with pytest.raises(InputError, match="no such folder"):
        open_capture(tmp_path / "nowhere", None)


def test_the_cache_is_bounded_and_shared(record: Record, rig: Rig) -> None:
    frame = WIDTH * HEIGHT * 3
    capture = open_capture(record(), rig, cache_bytes=5 * frame)
    streams = list(capture.cameras.values())
    for t in range(12):
        for stream in streams:
            stream.read(t)
    assert streams[0]._cache is streams[1]._cache
    assert streams[0]._cache.bytes == 5 * frame
    assert streams[3].read(11) is streams[3].read(11)
    assert np.array_equal(streams[1].read_many([7, 2, 7])[0], streams[1].read(7))
    with pytest.raises(IndexError, match="frame 12 of 12"):
        streams[0].read(12)
