"""Frames on disk: equal to what was decoded and undistorted, reused only when nothing changed."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.capture import build_store, open_capture, open_store
from recon.capture.session import Capture
from recon.capture.store import FrameStore, Undistorter
from recon.core.errors import InputError, StorageError
from recon.core.events import Message, StageFinished
from recon.geometry.camera import Camera, distort_map
from recon.geometry.rig import Rig
from tests.recon.capture.recordings import HEIGHT, WIDTH, camera, picture

Record = Callable[..., Path]


def stored(folder: Path, capture: Capture, cameras: dict[str, Camera], stride: int = 1) -> FrameStore:
    for _ in build_store(folder, capture, cameras, stride=stride):
        pass
    store = open_store(folder, capture, cameras, stride=stride)
    assert store is not None
    return store


def bent(rig: Rig) -> Rig:
    """The rig with lens distortion in cam01."""
    lens = replace(rig.cameras["cam01"], distortion=(-0.2, 0.05, 0.001, -0.001, 0.0))
    return replace(rig, cameras={**rig.cameras, "cam01": lens})


def test_windows_equal_the_decoded_frames(record: Record, rig: Rig, tmp_path: Path) -> None:
    capture = open_capture(record(), rig)
    store = stored(tmp_path / "work", capture, rig.cameras)
    rng = np.random.default_rng(0)
    for _ in range(50):
        name, frame = f"cam{rng.integers(4):02d}", int(rng.integers(12))
        y0, x0 = int(rng.integers(HEIGHT)), int(rng.integers(WIDTH))
        y1, x1 = int(rng.integers(y0 + 1, HEIGHT + 1)), int(rng.integers(x0 + 1, WIDTH + 1))
        expected = capture.cameras[name].read(frame)[y0:y1, x0:x1]
        assert np.array_equal(store.read(name, frame, (y0, y1, x0, x1)), expected)
    assert np.array_equal(store.cameras["cam02"].times, capture.cameras["cam02"].times)
    assert store.cameras["cam02"].valid.all()
    for window in ((0, HEIGHT + 1, 0, 4), (5, 5, 0, 4), (-1, 4, 0, 4), (0, 4, 0, WIDTH + 1)):
        with pytest.raises(IndexError, match="camera cam00: frame 0, window"):
            store.read("cam00", 0, window)
    with pytest.raises(IndexError, match="frame 12"):
        store.read("cam00", 12)


def test_undistorting_and_distorting_again_gives_the_picture_back(rig: Rig) -> None:
    real = bent(rig).cameras["cam01"]
    image = cv2.GaussianBlur(picture(5, 0), (0, 0), 2.0)
    eye = Undistorter(real)
    back = cv2.remap(eye.picture(image), distort_map(real, eye.camera) - np.float32(0.5), None, cv2.INTER_LINEAR)
    inner = np.s_[4:-4, 4:-4]
    assert np.abs(back[inner].astype(int) - image[inner]).max() <= 4
    assert not eye.valid.all()
    assert (eye.picture(np.full((HEIGHT, WIDTH, 3), 99, np.uint8))[~eye.valid] == 0).all()


def test_distortion_is_undone_in_the_store(record: Record, rig: Rig, tmp_path: Path) -> None:
    capture = open_capture(record(), rig)
    store = stored(tmp_path / "work", capture, bent(rig).cameras)
    eye = Undistorter(bent(rig).cameras["cam01"])
    assert np.array_equal(store.read("cam01", 4), eye.picture(capture.cameras["cam01"].read(4)))
    assert store.cameras["cam01"].camera.distortion == (0, 0, 0, 0, 0)
    assert np.array_equal(store.cameras["cam01"].valid, eye.valid)


def test_masks_are_kept(record_pictures: Record, tmp_path: Path) -> None:
    folder = record_pictures()
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[10:20, 30:50] = 7
    (tmp_path / "masks" / "cam01").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "masks" / "cam01" / "000002.png"), mask)
    store = stored(tmp_path / "work", open_capture(folder, None), {f"cam{k:02d}": camera(k) for k in range(3)})
    assert np.array_equal(store.read_mask("cam01", 2, (5, 25, 25, 60)), mask[5:25, 25:60])
    empty = store.read_mask("cam01", 0)
    assert empty is not None
    assert not empty.any()
    assert store.read_mask("cam00", 0) is None


def test_stride_takes_every_second_frame(record: Record, rig: Rig, tmp_path: Path) -> None:
    capture = open_capture(record(), rig)
    store = stored(tmp_path / "work", capture, rig.cameras, stride=2)
    assert store.num_frames("cam00") == 6
    assert np.array_equal(store.read("cam00", 2), capture.cameras["cam00"].read(4))
    assert store.cameras["cam00"].source_indices.tolist() == [0, 2, 4, 6, 8, 10]


def test_a_store_is_reused_only_for_the_same_recording_and_cameras(record: Record, rig: Rig, tmp_path: Path) -> None:
    folder = record()
    capture = open_capture(folder, rig)
    work = tmp_path / "work"
    assert open_store(work, capture, rig.cameras) is None
    stored(work, capture, rig.cameras).close()
    again = open_store(work, open_capture(folder, rig), rig.cameras)
    assert again is not None
    again.close()
    assert open_store(work, capture, bent(rig).cameras) is None
    assert open_store(work, capture, rig.cameras, stride=2) is None
    assert open_store(work, open_capture(folder, rig, offsets={"cam00": 0.1}), rig.cameras) is None
    (work / "cam00.rgb").write_bytes((work / "cam00.rgb").read_bytes()[:-1])
    assert open_store(work, capture, rig.cameras) is None


def test_an_interrupted_build_is_not_taken_for_a_store(record: Record, rig: Rig, tmp_path: Path) -> None:
    capture = open_capture(record(), rig)
    work = tmp_path / "work"
    stored(work, capture, rig.cameras).close()
    build = build_store(work, capture, rig.cameras)
    next(build), next(build)
    build.close()
    assert open_store(work, capture, rig.cameras) is None
    assert isinstance(list(build_store(work, capture, rig.cameras))[-1], StageFinished)


def test_a_disk_that_is_too_small_is_refused_beforehand(
    record: Record, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("recon.capture.store.shutil.disk_usage", lambda _: usage(10**6, 10**6 - 1000, 1000))
    with pytest.raises(StorageError, match=r"the decoded frames need 0\.0 GiB: 0\.0 GiB are free"):
        list(build_store(tmp_path / "work", open_capture(record(), rig), rig.cameras))
    assert not list((tmp_path / "work").glob("*.rgb"))


def damage(path: Path, share: float) -> None:
    """Overwrite the middle `share` of the compressed frames."""
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat") + 4
    middle, half = (start + len(data)) // 2, int(share * (len(data) - start) / 2)
    data[middle - half : middle + half] = bytes(2 * half)
    path.write_bytes(bytes(data))


def test_a_video_damaged_in_many_frames_is_refused_and_in_few_is_used(record: Record, rig: Rig, tmp_path: Path) -> None:
    folder = record(frames=60)
    damage(folder / "cam01.mp4", 0.02)
    capture = open_capture(folder, rig)
    events = list(build_store(tmp_path / "few", capture, rig.cameras))
    lost = [e.text for e in events if isinstance(e, Message)]
    store = open_store(tmp_path / "few", capture, rig.cameras)
    assert store is not None
    assert 54 <= store.num_frames("cam01") <= 60
    assert bool(lost) == (store.num_frames("cam01") < 60)
    damage(folder / "cam02.mp4", 0.9)
    with pytest.raises(InputError, match=r"cam02\.mp4: frame \d+ cannot be decoded"):
        list(build_store(tmp_path / "many", open_capture(folder, rig), rig.cameras))
