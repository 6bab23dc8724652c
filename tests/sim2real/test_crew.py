"""Environments in worker processes and Ray actors: the bits of one process; a killed worker is started again."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sim2real
from recon.core.errors import CorruptError, UsageError
from recon.scene.folder import save_scene
from rl.types import check_env
from sim2real.env import SplatVectorEnv
from sim2real.tasks.mounts import Mount
from sim2real.tasks.spec import load_task
from sim2real.wire import packed, unpacked

WRIST = Mount((-0.12, 0.0, -0.05), (0.0, 0.0, 0.08), up=(1, 0, 0), body="tool")
SETTINGS = {"cameras": ["cam00", "wrist"], "size": 24, "seed": 7, "sights": ("rgb", "depth")}


@pytest.fixture(scope="module")
def task():
    return replace(load_task("reach"), horizon=4, cameras={"wrist": WRIST})


@pytest.fixture(scope="module")
def folder(scene, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("crew") / "bench"
    save_scene(scene, path)
    return path


@pytest.fixture(scope="module")
def crew(folder, task, robot):
    env = sim2real.make_vec(folder, task, 3, robot=robot, workers=2, **SETTINGS)
    yield env
    env.close()


def same(a, b) -> None:
    assert a.keys() == b.keys()
    for key in a:
        if isinstance(a[key], dict):
            same(a[key], b[key])
        else:
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)


def compare(crew, alone: SplatVectorEnv, steps: int) -> None:
    """Steps both; everything they tell must be the same."""
    rng = np.random.default_rng(1)
    for _ in range(steps):
        action = rng.uniform(-1, 1, (3, 6))
        (a, *rest, told), (b, *others, wanted) = crew.step(action), alone.step(action)
        same(a, b)
        for x, y in zip(rest, others, strict=True):
            np.testing.assert_array_equal(x, y)
        assert not told.pop("lost").any()
        same(told, wanted)
        np.testing.assert_array_equal(crew.expert_action(), alone.expert_action())


def test_workers_give_the_bits_of_one_process(crew, folder, task, robot) -> None:
    alone = sim2real.make_vec(folder, task, 3, robot=robot, **SETTINGS)
    assert crew.single_observation_space == alone.single_observation_space
    assert crew.single_action_space == alone.single_action_space
    (a, told), (b, wanted) = crew.reset(), alone.reset()
    same(a, b)
    assert not told.pop("lost").any()
    same(told, wanted)
    compare(crew, alone, 6)  # past the end of the episodes
    same(crew.get_state(), alone.get_state())
    crew.set_state(alone.get_state())
    compare(crew, alone, 3)
    scenarios = alone.cell.sampler.draw_set(0, "eval", 4).scenarios
    same(crew.reset(options={"scenarios": scenarios})[0], alone.reset(options={"scenarios": scenarios})[0])
    compare(crew, alone, 5)
    check_env(crew, 6, steps=5)


def test_a_worker_that_is_killed_starts_its_episodes_again_and_marks_them(crew, folder, task, robot) -> None:
    twin = sim2real.make_vec(folder, task, 3, robot=robot, **SETTINGS)
    draws = twin.cell.sampler.draw_set(3, "eval", 6).scenarios
    first, _ = crew.reset(options={"scenarios": draws})
    for _ in range(5):  # the second episodes run
        before = crew.step(np.full((3, 6), 0.1))
    started = crew.restarts
    crew.crew[1].process.kill()
    observation, reward, terminated, truncated, info = crew.step(np.full((3, 6), 0.1))
    assert crew.restarts == started + 1
    assert info["lost"].tolist() == info["diverged"].tolist() == truncated.tolist() == [False, True, True]
    assert not info["success"].any() and not terminated.any() and (reward[1:] == 0).all()
    np.testing.assert_array_equal(info["final_obs"]["rgb"]["cam00"][1:], before[0]["rgb"]["cam00"][1:])
    # the same scenarios again, from their beginning; the other environment goes on
    assert info["scenario"].tolist() == before[4]["scenario"].tolist() == [3, 4, 5]
    fresh, _ = twin.reset(options={"scenarios": draws[3:]})
    np.testing.assert_array_equal(observation["rgb"]["cam00"][1:], fresh["rgb"]["cam00"][1:])
    assert not np.array_equal(observation["rgb"]["cam00"][0], fresh["rgb"]["cam00"][0])
    crew.crew[0].process.kill()  # and in a reset nothing is lost
    again, info = crew.reset(options={"scenarios": draws})
    same(again, first)


def test_mistakes_are_told_as_in_one_process(crew, folder, task, robot, scene) -> None:
    crew.reset()
    with pytest.raises(UsageError, match="action of environment 1 is not finite"):
        crew.step(np.array([[0.0] * 6, [np.nan] * 6, [0.0] * 6]))
    with pytest.raises(UsageError, match="in no folder"):
        sim2real.make_vec(scene, task, 2, robot=robot, workers=2)
    with pytest.raises(UsageError, match="3 workers for 2 environments"):
        sim2real.make_vec(folder, task, 2, robot=robot, workers=3)
    with pytest.raises(UsageError, match="no camera 'cam0'.*Did you mean"):
        sim2real.make_vec(folder, task, 1, robot=robot, workers=1, cameras=["cam0"])


def test_a_renderer_that_fails_does_not_stop_the_physics(cell, monkeypatch, caplog) -> None:
    env, twin = (SplatVectorEnv(cell, 2, cameras=["cam00"], size=24) for _ in range(2))
    env.reset(seed=1), twin.reset(seed=1)
    fresh = replace(cell, _painters={})
    blind = SplatVectorEnv(fresh, 2, cameras=["cam00"], size=24)

    def broken(worlds) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(blind.painters["cam00"], "pictures", broken)
    blind.reset(seed=1)
    a, b = blind.step(np.full((2, 6), 0.5)), twin.step(np.full((2, 6), 0.5))
    np.testing.assert_array_equal(a[0]["proprio"], b[0]["proprio"])
    assert a[4]["blind"].all() and "blind" not in b[4] and not a[0]["rgb"]["cam00"].any()
    assert "no rgb of environments [0, 1]" in caplog.text and "no room" in caplog.text
    monkeypatch.undo()
    assert blind.step(np.zeros((2, 6)))[0]["rgb"]["cam00"].any()


def test_messages_keep_every_bit_and_refuse_what_is_none() -> None:
    value = {
        "a": np.array([[1.5, np.nan]], np.float32),
        "b": [1, "x", None, {3: "scene", -1: "nothing"}],
        "c": np.arange(3),
    }
    value |= {"empty": np.zeros((0, 4), bool), "number": np.float64(0.1), "deep": {"d": np.array([True])}}
    back = unpacked(packed(value))
    np.testing.assert_array_equal(back["a"], value["a"])
    assert back["b"] == value["b"] and back["number"] == 0.1 and back["deep"]["d"].all()
    assert back["empty"].shape == (0, 4) and back["empty"].dtype == bool
    for bad in (b"", b"\x05\0\0\0\0\0\0\0hello", packed(value)[:-1]):
        with pytest.raises(CorruptError, match="cannot be read"):
            unpacked(bad)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (pip install '.[ray]')")
def test_ray_actors_give_the_bits_of_one_process(folder, task, robot) -> None:
    env = sim2real.make_vec(folder, task, 3, robot=robot, workers=2, ray=True, **SETTINGS)
    alone = sim2real.make_vec(folder, task, 3, robot=robot, **SETTINGS)
    same(env.reset()[0], alone.reset()[0])
    compare(env, alone, 5)
    env.crew[0].stop()
    *_, info = env.step(np.zeros((3, 6)))
    assert info["lost"].tolist() == [True, False, False]
    env.close()
