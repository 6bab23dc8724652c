"""Video files: order, times, rotation, damage."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from recon.capture.video import VideoFile, write_mp4
from recon.core.errors import InputError, StorageError
from tests.recon.capture.recordings import picture


def numbered(frame: int) -> np.ndarray:
    """uint8 [64, 96, 3] whose grey level tells its number."""
    return np.full((64, 96, 3), 10 + 4 * frame, dtype=np.uint8)


def number_of(image: np.ndarray) -> int:
    return round((float(image.mean()) - 10) / 4)


def write_vfr(path: Path, times_ms: list[int], gop: int = 12) -> None:
    """Frames at given milliseconds, with B-frames."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=1000, options={"bf": "2", "g": str(gop)})
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for k, ms in enumerate(times_ms):
            frame = av.VideoFrame.from_ndarray(numbered(k), format="rgb24")
            frame.pts, frame.time_base = ms, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def test_frames_come_back_as_written(tmp_path: Path) -> None:
    assert write_mp4(tmp_path / "a.mp4", (picture(1, t) for t in range(5)), 10.0, quality=1) == 5
    video = VideoFile(tmp_path / "a.mp4")
    assert (video.width, video.height, len(video)) == (96, 64, 5)
    assert np.allclose(video.times, np.arange(5) / 10)
    for t in range(5):
        assert np.abs(video.read(t).astype(int) - picture(1, t)).mean() < 4  # 4:2:0 chroma and compression


def test_random_access_equals_sequential_with_b_frames_and_uneven_times(tmp_path: Path) -> None:
    times = np.cumsum([0, *np.random.default_rng(0).integers(20, 90, 59)]).tolist()
    write_vfr(tmp_path / "v.mp4", times)
    video = VideoFile(tmp_path / "v.mp4")
    assert np.allclose(video.times, np.array(times) / 1000, atol=1e-4)
    order = np.random.default_rng(1).permutation(60)
    assert [number_of(video.read(int(i))) for i in order] == order.tolist()
    assert [(i, number_of(image)) for i, image in video.frames()] == [(i, i) for i in range(60)]


def test_a_long_jump_seeks_and_lands_on_the_frame(tmp_path: Path) -> None:
    write_mp4(tmp_path / "long.mp4", (numbered(k % 60) for k in range(400)), 30.0)
    video = VideoFile(tmp_path / "long.mp4")
    for k in (390, 3, 200, 201, 120, 399):
        assert number_of(video.read(k)) == k % 60


@pytest.mark.parametrize("rotation", [0, 90, 180, -90])
def test_display_rotation_is_applied_once_as_opencv_does(tmp_path: Path, rotation: int) -> None:
    path = tmp_path / "r.mp4"
    write_mp4(path, (picture(2, t) for t in range(3)), 10.0, rotation=rotation)
    video = VideoFile(path)
    ok, expected = cv2.VideoCapture(str(path)).read()
    assert ok
    assert video.read(0).shape == expected.shape
    assert (video.width, video.height) == ((96, 64) if rotation % 180 == 0 else (64, 96))
    assert np.abs(video.read(0).astype(int) - expected[..., ::-1]).mean() < 3


def test_missing_video_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.mp4: no such video.*--cams"):
        VideoFile(tmp_path / "gone.mp4")


def test_unreadable_video_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"not a video" * 100)
    with pytest.raises(InputError, match=r"bad\.mp4: cannot be opened as a video"):
        VideoFile(tmp_path / "bad.mp4")


def test_an_mp4_cut_in_half_is_refused_with_the_frame(tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    rng = np.random.default_rng(0)
    write_mp4(path, (rng.integers(0, 255, (64, 96, 3), dtype=np.uint8) for _ in range(60)), 10.0)
    data = path.read_bytes()  # the index is at the front, so the container still promises 60 frames
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"cut\.mp4: truncated at frame \d+: the container promises 60 frames"):
        VideoFile(path)


def test_an_mp4_cut_near_its_end_loses_only_its_last_frames(tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    rng = np.random.default_rng(0)
    write_mp4(path, (rng.integers(0, 255, (64, 96, 3), dtype=np.uint8) for _ in range(60)), 10.0)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * 0.97)])
    video = VideoFile(path)
    assert 54 <= len(video) < 60
    assert video.claimed == 60
    assert len(list(video.frames())) >= 54


def test_an_mp4_without_its_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noindex.mp4"
    with av.open(str(path), "w") as container:  # the index goes to the end
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for k in range(30):
            frame = av.VideoFrame.from_ndarray(picture(0, k), format="rgb24")
            frame.pts = k
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    path.write_bytes(path.read_bytes()[:-600])
    with pytest.raises(InputError, match=r"noindex\.mp4: cannot be opened as a video.*record or copy it again"):
        VideoFile(path)


def test_writing_nothing_or_into_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frame to write"):
        write_mp4(tmp_path / "none.mp4", [], 10.0)
    with pytest.raises(StorageError, match="cannot be written"):
        write_mp4(tmp_path / "no" / "folder.mp4", [numbered(0)], 10.0)
    with pytest.raises(InputError, match="frame 1 is 48x32, the first 96x64"):
        write_mp4(tmp_path / "two.mp4", [numbered(0), np.zeros((32, 48, 3), np.uint8)], 10.0)
