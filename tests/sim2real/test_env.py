"""The environment's contract: protocol, determinism, exact state, what the reward and success mean."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import sim2real
from recon.core.errors import InputError, UsageError
from rl.types import check_env
from sim2real.env import SplatVectorEnv

SIZE = 32


def _actions(n: int, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, n, 6)).astype(np.float32)


def _same(a, b) -> None:
    assert a.keys() == b.keys()
    for key in a:
        if isinstance(a[key], dict):
            _same(a[key], b[key])
        else:
            np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.fixture(scope="module")
def short(cell):
    """The same cell with a horizon of five steps."""
    return replace(cell, task=replace(cell.task, horizon=5))


def test_protocol_spaces_and_same_step_autoreset(short) -> None:
    env = SplatVectorEnv(short, 3, cameras=["cam00"], size=SIZE)
    spec = check_env(env, 6, steps=12)
    assert spec.cameras == (("cam00", SIZE, SIZE),) and spec.proprio == 15 and spec.privileged == 7
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert env.action_space.shape == (3, 6)


def test_final_observation_is_the_one_the_episode_ended_in(short) -> None:
    env, twin = (SplatVectorEnv(short, 2, cameras=["cam00"], size=SIZE, seed=4) for _ in range(2))
    long = SplatVectorEnv(replace(short, task=replace(short.task, horizon=50)), 2, cameras=["cam00"], size=SIZE, seed=4)
    first, _ = env.reset()
    long.reset()
    for k, action in enumerate(_actions(2, 5)):
        observation, _, terminated, truncated, info = env.step(action)
        unbroken, *_ = long.step(action)
        assert truncated.all() == (k == 4) and not terminated.any()
    _same(info["final_obs"]["rgb"], unbroken["rgb"])
    np.testing.assert_array_equal(info["final_obs"]["proprio"], unbroken["proprio"])
    assert info["_final_obs"].all() and (info["final_scenario"] == [0, 1]).all() and (info["scenario"] == [2, 3]).all()
    # the observation returned is that of scenarios 2 and 3, as if they had come first
    twin.reset(options={"scenarios": [short.sampler.draw(4, "train", i) for i in (2, 3)]})
    _same(observation, twin.observe())
    assert not np.array_equal(observation["rgb"]["cam00"], first["rgb"]["cam00"])


def test_an_environment_does_not_depend_on_its_neighbours(short) -> None:
    one, many = (SplatVectorEnv(short, n, cameras=["cam00"], size=SIZE) for n in (1, 5))
    scenarios = short.sampler.draw_set(0, "eval", 5).scenarios
    one.reset(options={"scenarios": scenarios[3:4]})
    many.reset(options={"scenarios": scenarios})
    for action in _actions(5, 4):
        a, ra, *_ = one.step(action[3:4])
        b, rb, *_ = many.step(action)
        assert np.array_equal(a["rgb"]["cam00"][0], b["rgb"]["cam00"][3])
        assert np.array_equal(a["proprio"][0], b["proprio"][3]) and ra[0] == rb[3]


def test_state_continues_bit_for_bit_even_across_autoreset(short) -> None:
    env = SplatVectorEnv(short, 2, cameras=["cam00"], size=SIZE, seed=9)
    env.reset()
    actions = _actions(2, 12, seed=2)
    for action in actions[:3]:
        env.step(action)
    state = env.get_state()
    expected = [env.step(action)[:2] for action in actions[3:]]
    other = SplatVectorEnv(short, 2, cameras=["cam00"], size=SIZE, seed=0)
    other.reset()
    other.set_state(state)
    for action, (observation, reward) in zip(actions[3:], expected, strict=True):
        again, reward_again, *_ = other.step(action)
        _same(observation, again)
        np.testing.assert_array_equal(reward, reward_again)
    with pytest.raises(InputError, match="does not fit this environment"):
        SplatVectorEnv(short, 3).set_state(state)


def test_equal_seeds_give_equal_worlds_and_others_do_not(short) -> None:
    a, b, c = (SplatVectorEnv(short, 2, seed=s) for s in (1, 1, 2))
    targets = [env.reset()[0]["privileged"] for env in (a, b, c)]
    np.testing.assert_array_equal(targets[0], targets[1])
    assert not np.array_equal(targets[0], targets[2])


def test_actions_move_the_joints_they_name_by_what_they_say(cell) -> None:
    env = SplatVectorEnv(cell, 6)
    observation, _ = env.reset()
    before = observation["proprio"][:, :6]
    for _ in range(10):
        observation, *_ = env.step(np.eye(6) * 0.3)
    for _ in range(6):
        observation, *_ = env.step(np.zeros((6, 6)))
    moved = observation["proprio"][:, :6] - before
    expected = np.eye(6) * 10 * 0.3 * cell.task.control.max_delta
    assert moved == pytest.approx(expected, abs=0.02)


def test_reward_success_and_hold(cell) -> None:
    env = SplatVectorEnv(cell, 4)
    env.reset()
    previous, near, ended = env.distance(), np.zeros(4, int), np.zeros(4, bool)
    spec = cell.task.reward
    for _ in range(cell.task.horizon):
        action = env.expert_action()
        _, reward, terminated, truncated, info = env.step(action)
        distance, fresh = info["distance"], ~ended
        near = np.where(distance < cell.task.success["dist"], near + 1, 0)
        success = near >= cell.task.hold
        assert np.array_equal(info["success"][fresh], success[fresh]) and np.array_equal(
            terminated[fresh], success[fresh]
        )
        expected = (previous - distance) / spec.scale + spec.success_bonus * success
        expected -= spec.action_penalty * np.mean(action.astype(float) ** 2, axis=1)
        assert reward[fresh] == pytest.approx(expected[fresh], abs=1e-6)
        ended |= terminated | truncated
        previous = distance
        if ended.all():
            return
    raise AssertionError("the expert did not finish")


def test_bad_actions_are_refused_and_large_ones_clipped(cell) -> None:
    env = SplatVectorEnv(cell, 2)
    env.reset()
    with pytest.raises(UsageError, match="action of environment 1 is not finite"):
        env.step(np.array([[0.0] * 6, [np.nan] * 6]))
    with pytest.raises(UsageError, match=r"shape \[2, 5\]"):
        env.step(np.zeros((2, 5)))
    twin = SplatVectorEnv(cell, 2)
    twin.reset()
    a, b = env.step(np.full((2, 6), 9.0)), twin.step(np.ones((2, 6)))
    np.testing.assert_array_equal(a[0]["proprio"], b[0]["proprio"])


def test_a_simulation_that_diverges_ends_its_episode_and_spares_the_others(cell) -> None:
    env = SplatVectorEnv(cell, 2, cameras=["cam00"], size=SIZE)
    env.reset()
    env._state["qvel"][0] = 1e12
    observation, reward, terminated, truncated, info = env.step(np.zeros((2, 6)))
    assert info["diverged"].tolist() == [True, False] and terminated.tolist() == [True, False]
    assert not info["success"][0] and np.isfinite(reward).all()
    assert np.isfinite(observation["proprio"]).all() and np.isfinite(info["final_obs"]["proprio"]).all()
    assert info["scenario"][0] == 2


def test_make_vec_from_a_scene_and_from_a_cell(scene, cell, robot) -> None:
    env = sim2real.make_vec(scene, "reach", 2, seed=3, robot=robot, cameras=(), size=SIZE)
    twin = sim2real.make_vec(cell, num_envs=2, seed=3, cameras=())
    _same(env.reset()[0], twin.reset()[0])
    with pytest.raises(UsageError, match="num_envs >= 1"):
        sim2real.make_vec(cell, num_envs=0)


def test_a_scene_of_unknown_scale_is_refused(scene, robot) -> None:
    for change in ({"metric": False}, {"up": "unknown"}):
        with pytest.raises(InputError, match="its scale or its up axis is unknown"):
            sim2real.make_vec(replace(scene, **change), robot=robot)
    homeless = replace(scene, rig=replace(scene.rig, robot=replace(scene.rig.robot, world_from_base=None)))
    with pytest.raises(InputError, match="unknown where the robot stands"):
        sim2real.make_vec(homeless, robot=robot)
    with pytest.raises(InputError, match="robot file arm.xml of this scene was not found"):
        sim2real.make_vec(scene)
