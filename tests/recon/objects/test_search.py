"""Bodies of a made-up recording: found and followed when one rigid thing moves, not invented when it bends."""

from __future__ import annotations

import numpy as np
import pytest

from recon.core.events import Message
from recon.fit.plate import make_plate
from recon.geometry.pose import angle_between
from recon.objects import shape
from recon.objects.body import FoundBody
from recon.objects.frames import BodyFrames
from recon.objects.hints import BodyHint
from recon.objects.search import find_objects
from tests.recon.objects.boxes import HALF, BoxFrames, Pose, turned


def pushed(t: float) -> np.ndarray:
    """At rest, then pushed by 27 cm and turned by 50 degrees, then at rest again."""
    s = float(np.clip((t - 0.7) / 0.5, 0.0, 1.0))
    return turned(-0.12 + 0.24 * s, 0.02 + 0.12 * s, 10 + 50 * s)


def search(frames: BoxFrames, hints: list[BodyHint] | None = None) -> tuple[list[FoundBody], list[str]]:
    """(bodies, messages)."""
    plates = [make_plate(frames, camera) for camera in range(len(frames.cameras))]
    events = find_objects(frames, plates, None, 0.02, hints or [])
    texts = []
    while True:
        try:
            event = next(events)
        except StopIteration as stop:
            return stop.value, texts
        if isinstance(event, Message):
            texts.append(event.text)


def errors(body: FoundBody, pose: Pose) -> tuple[np.ndarray, np.ndarray]:
    """(m, rad) [T] at the body's own instants, both frames tied in its first."""
    first = pose(float(body.times[0]))
    assert first is not None
    box_from_body = np.linalg.inv(body.poses[0]) @ first
    off, turn = [], []
    for t, found in zip(body.times, body.poses, strict=True):
        true = pose(float(t))
        assert true is not None
        guess = found @ box_from_body
        off.append(np.linalg.norm(guess[:3, 3] - true[:3, 3]))
        turn.append(angle_between(guess[:3, :3], true[:3, :3]))
    return np.array(off), np.array(turn)


@pytest.fixture(scope="module")
def found() -> tuple[BoxFrames, list[FoundBody]]:
    frames = BoxFrames(pushed)
    return frames, search(frames, [BodyHint("crate", np.array([-0.12, 0.02, 0.05]))])[0]


def test_a_pushed_box_is_found_and_followed(found: tuple[BoxFrames, list[FoundBody]]) -> None:
    _, bodies = found
    assert [body.name for body in bodies] == ["crate"]
    off, turn = errors(bodies[0], pushed)
    assert np.median(off[-6:]) < 0.004 and np.median(np.degrees(turn[-6:])) < 2.0
    assert off.max() < 0.012
    assert abs(np.linalg.norm(bodies[0].poses[-1, :3, 3] - bodies[0].poses[0, :3, 3]) - 0.268) < 0.006


def test_its_uncertainty_is_not_a_boast(found: tuple[BoxFrames, list[FoundBody]]) -> None:
    _, (body,) = found
    off, turn = errors(body, pushed)
    assert np.median(off[-6:] / body.position_sigma[-6:]) < 2.0
    assert np.median(turn[-6:] / body.rotation_sigma[-6:]) < 2.0
    assert (body.position_sigma < 0.02).all()


def test_its_shape_is_the_boxs(found: tuple[BoxFrames, list[FoundBody]]) -> None:
    _, (body,) = found
    extent = np.ptp(body.splats.points, axis=0)
    assert np.prod(extent) < 2.2 * np.prod(2 * HALF)  # of the box round a turned box
    assert body.summary()["seen_s"] == [[0.0, 1.5]]


def test_the_still_pictures_lose_it(found: tuple[BoxFrames, list[FoundBody]]) -> None:
    frames, bodies = found
    known = BodyFrames(frames, None, bodies)
    empty = BoxFrames(lambda t: None, count=1)
    for camera in range(len(frames.cameras)):
        plate = make_plate(known, camera)
        ghost = np.abs(plate.picture - empty.picture(camera, 0) / 255.0).max(-1) > 0.1
        assert (ghost & (plate.weight > 0)).mean() < 0.002


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of fewer cells: a quarter of the time."""
    monkeypatch.setattr(shape, "CELLS", 13)


@pytest.mark.usefixtures("coarse")
def test_a_thing_that_bends_is_no_body() -> None:
    frames = BoxFrames(lambda t: turned(-0.1 + 0.15 * t, 0.03 * np.sin(9 * t), 0), count=10, bend=1.5)
    bodies, _ = search(frames)
    assert bodies == []


@pytest.mark.usefixtures("coarse")
def test_a_box_that_leaves_the_view_ends() -> None:
    def leaving(t: float) -> np.ndarray | None:
        return turned(-0.05 + max(0.0, t - 0.5) * 2.2, 0.0, 20) if t < 1.2 else None

    bodies, _ = search(BoxFrames(leaving, count=12))
    assert len(bodies) == 1
    assert bodies[0].spans()[0][0] == 0.0 and 0.6 < bodies[0].spans()[-1][1] < 1.2
    assert errors(bodies[0], leaving)[0].max() < 0.03


def test_nothing_is_found_where_nothing_moves() -> None:
    frames = BoxFrames(lambda t: turned(0.0, 0.0, 0), count=4)
    bodies, texts = search(frames, [BodyHint("ghost", np.zeros(3))])
    assert bodies == [] and any("ghost" in text for text in texts)
