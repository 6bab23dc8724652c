"""Evaluation: every scenario once, pairing, infrastructure failures kept apart, an offline report with a JSON twin."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from sim2real.evaluate import Episode, Evaluation, compare, evaluate, expert, random_actor, zero
from sim2real.report import encode_mp4, page, write_report


def _run(cell, scenarios, actor, name, **options) -> Evaluation:
    results: list[Evaluation] = []
    settings = {"cameras": (), "size": 32, "num_envs": 4} | options
    for _ in evaluate(cell, scenarios, actor, name, done=results.append, **settings):
        pass
    return results[0]


@pytest.fixture(scope="module")
def scenarios(cell):
    return cell.sampler.draw_set(0, "eval", 10)


def test_expert_solves_what_random_and_zero_do_not(cell, scenarios) -> None:
    best = _run(cell, scenarios, expert, "expert")
    assert best.rate.k == best.rate.n == 10
    assert [e.scenario for e in best.episodes] == list(range(10))
    assert all(e.closest <= e.distance < cell.task.success["dist"] for e in best.episodes)
    for actor in (zero, random_actor(0)):
        worst = _run(cell, scenarios, actor, "other")
        assert worst.rate.k == 0 and all(e.steps == cell.task.horizon for e in worst.episodes)
    assert compare(best, worst).only_a == 10


def test_results_do_not_depend_on_the_number_of_environments(cell, scenarios) -> None:
    one, many = (_run(cell, scenarios, expert, "expert", num_envs=n).episodes for n in (1, 7))
    assert one == many


def test_diverged_episodes_count_for_nobody() -> None:
    good = Episode(0, True, 5, 1.0, 0.01, 0.01, False)
    bad = replace(good, success=False)
    broken = replace(good, success=False, diverged=True)
    a = Evaluation("a", [good, good, broken], 1.0, 15)
    b = Evaluation("b", [bad, broken, good], 1.0, 15)
    assert (a.rate.k, a.rate.n) == (2, 2) and a.to_json()["diverged"] == 1
    paired = compare(a, b)
    assert paired.n == 1 and paired.only_a == 1


def test_report_is_one_offline_file_with_playable_videos_and_a_twin(cell, scenarios, tmp_path: Path) -> None:
    a = _run(cell, scenarios, expert, "the <expert>", videos=2)
    b = _run(cell, scenarios, zero, "zero", videos=1)
    assert set(a.videos) == {0, 1} and len(a.videos[0]) == a.episodes[0].steps
    protocol = {"scene": "made-up", "task": "reach", "hz": 20}
    write_report(tmp_path, [a, b], compare(a, b), scenarios, protocol)
    text = (tmp_path / "index.html").read_text()
    assert "<expert>" not in text and "the &lt;expert&gt;" in text
    assert "10 / 10" in text and "BETTER" in text and scenarios.hash in text
    assert not re.search(r"(src|href)=['\"]?(https?:|//|/|\.)", text)  # nothing is fetched
    videos = re.findall(r"data:video/mp4;base64,([A-Za-z0-9+/=]+)", text)
    assert len(videos) == 3
    with av.open(io.BytesIO(base64.b64decode(videos[0]))) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        assert len(list(container.decode(video=0))) == len(a.videos[0])
    twin = json.loads((tmp_path / "report.json").read_text())
    assert twin["policies"][0]["rate"]["k"] == 10 and twin["paired"]["only_a"] == 10
    assert len(twin["policies"][1]["episodes"]) == 10 and twin["scenarios"]["hash"] == scenarios.hash


def test_videos_keep_the_picture() -> None:
    frames = np.zeros((6, 32, 48, 3), np.uint8)
    frames[:, :, :24] = (200, 40, 40)
    with av.open(io.BytesIO(encode_mp4(frames))) as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(decoded) == 6
    assert np.abs(decoded[3][:, 2:20].astype(int) - (200, 40, 40)).mean() < 8


def test_a_report_of_one_policy_has_no_comparison() -> None:
    only = Evaluation("solo", [Episode(0, True, 5, 1.0, 0.01, 0.01, False)], 1.0, 5)
    data = {"protocol": {"scene": "s", "task": "t"}, "policies": [only.to_json()], "paired": None, "scenarios": {}}
    assert "against" not in page(data, [only])
