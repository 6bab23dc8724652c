"""The build report: one page that needs nothing else, and numbers that are right."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recon.core.errors import StorageError, UsageError
from recon.core.files import read_json
from recon.geometry.camera import Camera
from recon.render.losses import ssim
from recon.report import BuildRecord, write_report
from recon.report.pictures import encode, smallest_of, triptych, within
from recon.report.scores import (
    MAX_FRAMES,
    MAX_PSNR,
    FrameScore,
    choose_frames,
    over_time,
    per_camera,
    score_frame,
    worst_frames,
)
from recon.scene.scene import Scene
from tests.recon.scene.make import scene

WIDTH, HEIGHT, CAMERAS, FRAMES = 48, 32, 3, 8
EVIL = "<script>alert(1)</script>&'\""
CPU = torch.device("cpu")
KEYS = """iterations ms_per_iteration gaussians seconds peak_rss_mb seed stages per_camera over_time worst_frames config
versions findings bodies unit up""".split()


@dataclass
class Recorded:
    """Frames of smooth random pictures; `error` 8-bit levels are what frame k of camera c is drawn wrong by."""

    names: list[str]
    frames: int = FRAMES
    valid_columns: int = WIDTH
    cameras: list[Camera] = field(init=False)
    times: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self.cameras = [Camera(name, WIDTH, HEIGHT, 40.0, 40.0, WIDTH / 2, HEIGHT / 2) for name in self.names]
        self.times = [np.arange(self.frames) * 0.25 + 0.01 * c for c in range(len(self.names))]

    def num_frames(self, camera: int) -> int:
        return self.frames

    def picture(self, camera: int, frame: int) -> np.ndarray:
        ramp = np.linspace(40, 200, WIDTH)[None, :, None] + np.zeros((HEIGHT, WIDTH, 3))
        return (ramp + 3 * frame).astype(np.uint8)

    def mask(self, camera: int, frame: int) -> np.ndarray | None:
        return None

    def valid(self, camera: int) -> np.ndarray:
        covered = np.zeros((HEIGHT, WIDTH), dtype=bool)
        covered[:, : self.valid_columns] = True
        return covered

    def error(self, camera: int, frame: int) -> int:
        return 2 + camera + (10 if (camera, frame) == (1, 4) else 0)

    def draw(self, camera: int, t: float) -> np.ndarray:
        frame = int(np.argmin(np.abs(self.times[camera] - t)))
        drawn = self.picture(camera, frame) + self.error(camera, frame)
        drawn[:, self.valid_columns :] = 0  # wrong where the real picture does not reach: must not count
        return drawn.astype(np.uint8)


def record(**changes: Any) -> BuildRecord:
    plain = BuildRecord(
        config={"videos": Path("cams"), "fit": {"budget": 60000}, "note": EVIL},
        stages=[("static", 12.5, {"psnr": 27.25, "bad": math.nan}), ("joint", 30.0, {})],
        iterations=12_000,
        ms_per_iteration=55.5,
        seconds=601.2,
        peak_rss_mb=1900.0,
        seed=7,
        findings=["camera c1 is dark", EVIL],
        versions={"torch": "2.13", EVIL: EVIL},
    )
    return replace(plain, **changes)


class Tags(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "report"
    frames = Recorded(["c0", EVIL, "c2"], valid_columns=40)
    write_report(folder, scene(), frames, record(), device=CPU, draw=frames.draw)
    return folder


def test_the_json_says_what_was_measured(written: Path) -> None:
    data = read_json(written / "report.json")
    assert set(KEYS) <= set(data)
    assert (data["iterations"], data["seed"], data["gaussians"]) == (12_000, 7, 12)
    assert data["gaussians_by_kind"] == {"static": 4, "rigid": 4, "residual": 4}
    assert [(b["name"], b["kind"], b["gaussians"]) for b in data["bodies"]] == [
        ("arm", "link", 2),
        ("cup", "object", 2),
    ]
    assert (data["unit"], data["up"]) == ("metre", "z")
    assert data["stages"][0] == {"name": "static", "seconds": 12.5, "metrics": {"psnr": 27.25, "bad": None}}
    assert data["config"]["videos"] == "cams"
    assert list(data["per_camera"]) == ["c0", EVIL, "c2"]
    expected = -20 * math.log10(2 / 255)
    assert data["per_camera"]["c0"]["psnr"] == pytest.approx(expected, abs=1e-4)
    assert 0.8 < data["per_camera"]["c0"]["ssim"] < 1
    assert data["psnr"] < expected


def test_the_worst_frame_comes_first(written: Path) -> None:
    worst = read_json(written / "report.json")["worst_frames"]
    assert (worst[0]["camera"], worst[0]["frame"]) == (EVIL, 4)
    assert worst[0]["t"] == pytest.approx(1.01)
    assert worst[0]["psnr"] == pytest.approx(-20 * math.log10(13 / 255), abs=1e-4)
    assert [w["psnr"] for w in worst] == sorted(w["psnr"] for w in worst)


def test_the_course_over_time_shows_the_bad_moment(written: Path) -> None:
    course = read_json(written / "report.json")["over_time"]
    lowest = min(course, key=lambda point: point["psnr"])
    assert abs(lowest["t"] - 1.01) < 0.2
    assert [p["t"] for p in course] == sorted(p["t"] for p in course)


def test_the_page_needs_nothing_from_outside(written: Path) -> None:
    page = (written / "index.html").read_text()
    tags = Tags(page).tags
    links = [a[key] for _, a in tags for key in ("src", "href", "data", "poster", "srcset") if key in a]
    assert links and all(link is not None and link.startswith("data:") for link in links)
    assert "url(" not in page and "@import" not in page and "http" not in page.replace("http-equiv", "")
    policy = next(a["content"] for tag, a in tags if tag == "meta" and "content" in a and "http-equiv" in a)
    assert policy is not None and "default-src 'none'" in policy
    assert sorted(path.name for path in written.iterdir()) == ["index.html", "report.json"]


def test_the_page_escapes_every_text(written: Path) -> None:
    page = (written / "index.html").read_text()
    parsed = Tags(page)
    assert "script" not in {tag for tag, _ in parsed.tags}
    assert EVIL in "".join(parsed.words)  # the camera's name, the finding, the version: shown as they are
    assert all(set(a) <= {"src", "alt"} for tag, a in parsed.tags if tag == "img")


def test_the_page_shows_pictures_film_chart_and_numbers(written: Path) -> None:
    parsed = Tags((written / "index.html").read_text())
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("img") == CAMERAS + 6  # middle frames, worst frames
    assert tags.count("video") == 1 and tags.count("polyline") == 1
    text = " ".join(parsed.words)
    for piece in ("10 min 01 s", "1,900 MB", "12,000", "static", "27.25", "torch", "60000", "camera c1 is dark"):
        assert piece in text


def test_the_pictures_are_photo_render_and_difference(written: Path) -> None:
    import base64

    import cv2

    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', (written / "index.html").read_text())
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(found[0]), np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (HEIGHT, 3 * WIDTH, 3)
    photo, drawn, difference = np.hsplit(picture.astype(float), 3)
    assert np.abs(drawn - photo)[:, 4:36].mean() == pytest.approx(2, abs=1)
    assert difference[:, 4:36].mean() == pytest.approx(8, abs=1.5)
    assert difference[:, 42:].mean() < 1  # outside the real picture


def test_the_film_plays_at_its_true_speed(written: Path, tmp_path: Path) -> None:
    import base64

    from recon.capture.video import VideoFile

    (data,) = re.findall(r'src="data:video/mp4;base64,([^"]+)"', (written / "index.html").read_text())
    (tmp_path / "film.mp4").write_bytes(base64.b64decode(data))
    film = VideoFile(tmp_path / "film.mp4")
    assert (film.width, film.height, len(film)) == (2 * WIDTH, HEIGHT, FRAMES)
    assert film.times[-1] - film.times[0] == pytest.approx(0.25 * (FRAMES - 1), abs=0.01)
    film.close()


def test_a_scene_with_one_equal_frame_is_reported(tmp_path: Path) -> None:
    frames = Recorded(["only"], frames=1)
    plain: Scene = replace(scene(), metric=False, up="unknown")
    write_report(tmp_path, plain, frames, record(), device=CPU, draw=lambda c, t: frames.picture(c, 0))
    data = read_json(tmp_path / "report.json")
    assert data["psnr"] == MAX_PSNR and data["ssim"] == pytest.approx(1.0, abs=1e-5)
    assert (data["unit"], data["up"], len(data["over_time"])) == ("unknown", "unknown", 1)


def test_without_frames_there_is_still_a_report(tmp_path: Path) -> None:
    frames = Recorded(["a"], frames=0)
    write_report(tmp_path, scene(), frames, record(), device=CPU, draw=frames.draw)
    data = read_json(tmp_path / "report.json")
    assert data["psnr"] is None and data["per_camera"] == {} and data["over_time"] == []
    assert "No frame was compared" in (tmp_path / "index.html").read_text()


def test_a_render_of_another_size_is_refused(tmp_path: Path) -> None:
    frames = Recorded(["a"])
    with pytest.raises(UsageError, match="its photo is uint8"):
        write_report(
            tmp_path, scene(), frames, record(), device=CPU, draw=lambda c, t: np.zeros((4, 4, 3), dtype=np.uint8)
        )


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    frames = Recorded(["a"], frames=1)
    with pytest.raises(StorageError, match="file"):
        write_report(tmp_path / "file" / "report", scene(), frames, record(), device=CPU, draw=frames.draw)


@given(st.lists(st.integers(0, 200), max_size=90))
def test_frames_are_chosen_evenly_and_within_bounds(counts: list[int]) -> None:
    chosen = choose_frames(counts)
    assert len(chosen) <= MAX_FRAMES and len(set(chosen)) == len(chosen)
    assert all(0 <= frame < counts[camera] for camera, frame in chosen)
    filled = [c for c, count in enumerate(counts) if count]
    cameras = {camera for camera, _ in chosen}
    assert len(cameras) == min(len(filled), MAX_FRAMES)
    assert all((camera, counts[camera] // 2) in chosen for camera in cameras)
    each = MAX_FRAMES // max(1, len(filled))
    if each >= 4:  # no part of a long recording is passed over
        for camera in cameras:
            frames = [0, *(f for c, f in chosen if c == camera), counts[camera] - 1]
            assert max(np.diff(frames)) <= 2.5 * counts[camera] / each + 1


@given(st.integers(0, 2**32 - 1), st.integers(11, WIDTH))
def test_scores_equal_the_plain_formulas(seed: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 256, (2, HEIGHT, WIDTH, 3), dtype=np.uint8)
    valid = np.zeros((HEIGHT, WIDTH), dtype=bool)
    valid[:, :columns] = True
    psnr, _ = score_frame(a, b, valid, CPU)
    mse = ((a[:, :columns].astype(np.float64) - b[:, :columns]) ** 2).mean() / 255**2
    assert psnr == pytest.approx(-10 * math.log10(mse), abs=1e-4)
    _, similarity = score_frame(a, b, np.ones_like(valid), CPU)
    assert similarity == pytest.approx(ssim(*(torch.from_numpy(x / np.float32(255)) for x in (a, b))), abs=1e-4)


def test_scores_that_cannot_be_had_are_nan() -> None:
    a = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    nothing = score_frame(a, a, np.zeros((HEIGHT, WIDTH), dtype=bool), CPU)
    small = score_frame(a[:5], a[:5], np.ones((5, WIDTH), dtype=bool), CPU)
    assert all(map(math.isnan, nothing)) and small[0] == MAX_PSNR and math.isnan(small[1])


def test_a_good_camera_does_not_make_a_good_moment() -> None:
    scores = [FrameScore(c, k, 1.0 * k + 0.5 * c, 20.0 + 10 * c, 0.9) for c in range(2) for k in range(4)]
    assert [p["psnr"] for p in over_time(scores)] == pytest.approx([25.0] * 8)
    means = per_camera(scores, ["a", "b", "absent"])
    assert {name: row["psnr"] for name, row in means.items()} == {"a": 20.0, "b": 30.0}
    assert [s.camera for s in worst_frames(scores, 3)] == [0, 0, 0]


def test_pictures_and_films_are_kept_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (2, 120, 160, 3), dtype=np.uint8)
    panels = [triptych(noise[0], noise[1], np.ones((120, 160), dtype=bool))] * 3
    bound = sum(map(len, panels)) // 4
    assert sum(map(len, within(panels, bound))) <= bound
    assert within(panels, 10**9) == panels
    tried: list[int] = []

    def make(quality: int) -> bytes:
        tried.append(quality)
        return encode(noise, 5.0, quality, tmp_path)

    finest = len(encode(noise, 5.0, 28, tmp_path))
    assert len(smallest_of(make, finest - 1)) < finest
    assert tried[:2] == [28, 36]
    assert list(tmp_path.iterdir()) == []


def test_the_report_is_deterministic(written: Path, tmp_path: Path) -> None:
    frames = Recorded(["c0", EVIL, "c2"], valid_columns=40)
    write_report(tmp_path, scene(), frames, record(), device=CPU, draw=frames.draw)
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads((written / "report.json").read_text())
    assert (tmp_path / "index.html").read_bytes() == (written / "index.html").read_bytes()
