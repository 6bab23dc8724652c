"""What varies: nothing unless a task says so; looks never move things; delays and lost frames are what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recon.core.errors import UsageError
from recon.geometry.srgb import to_encoded, to_linear
from sim2real.env import SplatVectorEnv
from sim2real.look import draw_look
from sim2real.scenarios import Sampler
from sim2real.tasks.spec import load_task
from sim2real.tasks.variation import CameraNoise, LightNoise, PhysicsNoise, Randomize, SensorNoise, TimingNoise
from sim2real.workcell import open_workcell

SIZE = 32
EVERYTHING = Randomize(
    CameraNoise(0.02, 2.0, 0.05), LightNoise(0.5, 0.1, 0.2, 0.3), SensorNoise(0.03, 1.0),
    PhysicsNoise((0.5, 1.5), (0.5, 2.0)), TimingNoise((0, 3), (0, 2), 0.2), 1.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def push(scene, robot):
    return open_workcell(scene, "push", robot=robot)


def varied(cell, randomize: Randomize):
    """The same cell with a task that varies so."""
    task = replace(cell.task, randomize=randomize)
    return replace(cell, task=task, sampler=Sampler(cell.world, task))


def picture(cell, count: int = 1, steps: int = 0) -> np.ndarray:
    env = SplatVectorEnv(cell, count, cameras=["cam00"], size=SIZE)
    observation, _ = env.reset(seed=4)
    for _ in range(steps):
        observation, *_ = env.step(np.zeros((count, env.controller.size)))
    return observation["rgb"]["cam00"]


def test_nothing_varies_unless_it_is_asked_for(push) -> None:
    assert not push.task.randomize.any and push.sampler.draw(0, "train", 0).variation == 0
    assert not load_task("reach").randomize.any


def test_looks_change_pictures_and_move_nothing(push) -> None:
    cell = varied(push, EVERYTHING)
    a, b = push.sampler.draw(0, "eval", 3), cell.sampler.draw(0, "eval", 3)
    assert a == replace(b, variation=0) and b.variation != 0
    assert np.abs(picture(push).astype(int) - picture(cell)).mean() > 3


@pytest.mark.parametrize(
    "randomize, low, high",
    [
        (Randomize(light=LightNoise(exposure_ev=1.0)), 1, 80),
        (Randomize(light=LightNoise(white_balance=0.5)), 0.5, 60),
        (Randomize(light=LightNoise(gamma=0.5)), 0.5, 80),
        (Randomize(light=LightNoise(tint=0.8)), 0.5, 120),
        (Randomize(sensor=SensorNoise(noise=0.2)), 0.5, 60),
        (Randomize(sensor=SensorNoise(blur_px=3.0)), 0.3, 60),
        (Randomize(camera=CameraNoise(position=0.05)), 0.5, 80),
        (Randomize(camera=CameraNoise(rotation_deg=3.0)), 0.5, 80),
        (Randomize(camera=CameraNoise(focal=0.2)), 0.5, 80),
        (Randomize(background=1.0), 0.5, 120),
    ],
)
def test_every_kind_of_look_reaches_the_pixels(push, randomize: Randomize, low: float, high: float) -> None:
    changed = np.abs(picture(push).astype(int) - picture(varied(push, randomize))).mean()
    assert low < changed < high


def test_light_is_the_factor_it_says(push) -> None:
    look = draw_look(11, "cam00", Randomize(light=LightNoise(exposure_ev=1.0)))
    assert look.gains == pytest.approx(np.full(3, look.gains[0])) and 0.5 <= look.gains[0] <= 2
    values = np.linspace(0, 1, 7, dtype=np.float32)
    assert to_encoded(to_linear(values)) == pytest.approx(values, abs=1e-5)
    assert draw_look(11, "cam00", EVERYTHING).gains == pytest.approx(draw_look(11, "cam01", EVERYTHING).gains)


def test_a_background_leaves_the_table_as_it_is(push) -> None:
    env, twin = (
        SplatVectorEnv(c, 1, cameras=["cam00"], size=SIZE) for c in (push, varied(push, Randomize(background=1.0)))
    )
    env.reset(seed=4)
    twin.reset(seed=4)
    twin.observe()
    base, own = env.painters["cam00"], twin.variety._looks[0]["cam00"][1]
    means = base.view.static.means.numpy()
    on = np.abs(means[:, 2]) < 0.01
    full = own.view.static.means.numpy()
    kept = (np.abs(full[:, :2]) < 0.3).all(axis=1) & (np.abs(full[:, 2]) < 0.01)
    from sim2real.draw import make_view

    plain = make_view(base.view.camera, push.static, cull=False).rgb.numpy()
    np.testing.assert_array_equal(own.view.rgb.numpy()[kept], plain[kept])
    assert on.any() and np.abs(own.view.rgb.numpy() - plain)[~kept].max() > 0.1


def test_varied_episodes_are_the_same_for_one_and_many(push) -> None:
    cell = varied(push, EVERYTHING)
    scenarios = cell.sampler.draw_set(0, "eval", 3).scenarios
    one, many = (SplatVectorEnv(cell, n, cameras=["cam00"], size=SIZE) for n in (1, 3))
    one.reset(options={"scenarios": scenarios[1:2]})
    many.reset(options={"scenarios": scenarios})
    for _ in range(12):
        x, *_ = one.step(one.expert_action())
        y, *_ = many.step(many.expert_action())
        for name in ("proprio", "privileged"):
            np.testing.assert_array_equal(x[name][0], y[name][1], err_msg=name)
        np.testing.assert_array_equal(x["rgb"]["cam00"][0], y["rgb"]["cam00"][1])


def test_a_varied_state_continues_bit_for_bit(push) -> None:
    cell = varied(push, EVERYTHING)
    env, other = (SplatVectorEnv(cell, 2, cameras=["cam00"], size=SIZE, seed=s) for s in (1, 2))
    env.reset()
    other.reset()
    for _ in range(6):
        env.step(env.expert_action())
    other.set_state(env.get_state())
    for _ in range(6):
        a, b = env.step(env.expert_action()), other.step(other.expert_action())
        np.testing.assert_array_equal(a[0]["rgb"]["cam00"], b[0]["rgb"]["cam00"])
        np.testing.assert_array_equal(a[0]["proprio"], b[0]["proprio"])


def test_observations_come_late_by_the_steps_drawn(push) -> None:
    cell = varied(push, Randomize(timing=TimingNoise(observation=(2, 2))))
    late, prompt = (SplatVectorEnv(c, 1, cameras=["cam00"], size=SIZE) for c in (cell, push))
    late.reset(seed=4)
    frames = [prompt.reset(seed=4)[0]]
    for k in range(8):
        action = prompt.expert_action()
        frames.append(prompt.step(action)[0])
        seen, *_ = late.step(action)
        then = frames[max(0, k + 1 - 2)]
        np.testing.assert_array_equal(seen["rgb"]["cam00"], then["rgb"]["cam00"])
        np.testing.assert_array_equal(seen["proprio"], then["proprio"])


def test_actions_come_late_by_the_steps_drawn(push) -> None:
    cell = varied(push, Randomize(timing=TimingNoise(action=(3, 3))))
    late, prompt = SplatVectorEnv(cell, 1), SplatVectorEnv(push, 1)
    late.reset(seed=4)
    prompt.reset(seed=4)
    move = np.zeros((1, 7))
    move[0, 0], move[0, 6] = 1.0, 1.0
    start = late.points()["tcp"].copy()
    for _ in range(3):
        late.step(move)
    assert np.abs(late.points()["tcp"] - start).max() < 1e-3
    for _ in range(3):
        late.step(move)
        prompt.step(move)
    assert late.points()["tcp"] == pytest.approx(prompt.points()["tcp"], abs=1e-3)


def test_lost_frames_show_the_one_before(push) -> None:
    cell = varied(push, Randomize(timing=TimingNoise(drop=0.5)))
    env = SplatVectorEnv(cell, 1, cameras=["cam00"], size=SIZE)
    last, _ = env.reset(seed=4)
    same = []
    for _ in range(20):
        observation, *_ = env.step(np.full((1, 7), 0.5))
        same.append(np.array_equal(observation["rgb"]["cam00"], last["rgb"]["cam00"]))
        last = observation
    assert 3 <= sum(same) <= 17


def test_friction_and_mass_are_the_episodes_own(push) -> None:
    cell = varied(push, Randomize(physics=PhysicsNoise((0.25, 0.25), (3.0, 3.0))))
    env = SplatVectorEnv(cell, 2)
    env.reset(seed=4)
    body = int(cell.world.model.body("thing_puck").id)
    own = np.flatnonzero(cell.world.model.geom_bodyid == body)
    assert env._batch.expand("body_mass")[:, body] == pytest.approx(3 * cell.world.model.body_mass[body])
    friction = env._batch.expand("geom_friction")[:, own]
    assert friction == pytest.approx(0.25 * np.tile(cell.world.model.geom_friction[own], (2, 1, 1)))


@pytest.mark.parametrize(
    "change, message",
    [
        ("randomize: {camera: {positon: 0.1}}", "unknown key 'randomize.camera.positon'.*Did you mean 'position'"),
        ("randomize: {sensor: {noise: 3}}", "sensor noise must lie within 0..0.5"),
        ("randomize: {timing: {observation: [3, 1]}}", "two ascending numbers of steps"),
        ("randomize: {physics: {mass: [0, 1]}}", "physics factors"),
    ],
)
def test_wrong_blocks_are_refused(tmp_path, change: str, message: str) -> None:
    from recon.core.files import data_root

    path = tmp_path / "push.yaml"
    path.write_text((data_root() / "tasks" / "push.yaml").read_text() + change + "\n")
    with pytest.raises(UsageError, match=message):
        load_task(str(path))
