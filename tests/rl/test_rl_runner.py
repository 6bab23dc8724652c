"""The loop: it learns, it resumes exactly, it improves a clone that sees only pixels."""

from __future__ import annotations

import pytest
import torch

from recon.core.errors import UsageError
from recon.core.events import Message, Progress, StageFinished, StageStarted
from rl.bc import BCConfig, clone, record
from rl.nets import NetConfig, build
from rl.policy import Policy
from rl.ppo import PPOConfig
from rl.runner import RunConfig, train
from rl.types import ActionSpec, check_env

SMALL = NetConfig(image_size=16, cell=2, channels=4, hidden=(32,))


def fresh(env, config=SMALL, seed=0):
    return build(check_env(env, 2), ActionSpec(2), config, seed=seed)


def test_events_come_in_order_with_the_step_counts(point_reach):
    env = point_reach(4)
    events = list(train(env, fresh(env), PPOConfig(), RunConfig(total_steps=100, horizon=8)))
    assert isinstance(events[0], StageStarted) and events[0].total == 128
    assert [e.step for e in events if isinstance(e, Progress)] == [32, 64, 96, 128]
    assert isinstance(events[-1], StageFinished)
    assert {"reward", "explained_variance", "value_loss"} <= set(events[-1].metrics)


@pytest.mark.parametrize("encoder_lr", [0.0, 1e-4])
def test_resume_equals_an_undisturbed_run_bit_for_bit(point_reach, tmp_path, encoder_lr):
    ppo = PPOConfig(encoder_lr=encoder_lr, minibatch=32, warmup_iterations=1)
    run = RunConfig(total_steps=6 * 4 * 8, horizon=8, checkpoint_every=2, learn_proprio_stats=bool(encoder_lr))
    env = point_reach(4, size=16, privileged=True)
    straight, broken, resumed = fresh(env), fresh(env), fresh(env, seed=7)
    expected = [e.metrics for e in train(env, straight, ppo, run) if isinstance(e, Progress)]
    process = train(point_reach(4, size=16, privileged=True), broken, ppo, run, checkpoints=tmp_path)
    for event in process:
        if isinstance(event, Progress) and event.step == 3 * 4 * 8:  # between checkpoints: closing must save
            break
    process.close()
    other = point_reach(4, size=16, privileged=True)
    got = [e.metrics for e in train(other, resumed, ppo, run, checkpoints=tmp_path) if isinstance(e, Progress)]
    assert len(got) == 3
    for mine, theirs in zip(got, expected[3:], strict=True):
        assert {k: v for k, v in mine.items() if "time" not in k} == {
            k: v for k, v in theirs.items() if "time" not in k
        }
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_kill_loses_only_the_steps_since_the_last_checkpoint(point_reach, tmp_path):
    ppo, run = PPOConfig(minibatch=32), RunConfig(total_steps=5 * 32, horizon=8, checkpoint_every=2)
    env = point_reach(4)
    straight, killed, resumed = fresh(env), fresh(env), fresh(env)
    list(train(env, straight, ppo, run))
    process = train(point_reach(4), killed, ppo, run, checkpoints=tmp_path)
    while not (isinstance(event := next(process), Progress) and event.step == 3 * 32):
        continue
    frozen = sorted(tmp_path.glob("step_*"))[-1].name  # what a kill here would leave
    assert frozen == "step_000000002"
    copy = tmp_path.parent / "after_kill"
    copy.mkdir()
    (tmp_path / frozen).rename(copy / frozen)
    assert sum(isinstance(e, Progress) for e in train(point_reach(4), resumed, ppo, run, checkpoints=copy)) == 3
    assert all(
        torch.equal(a, b) for a, b in zip(straight.state_dict().values(), resumed.state_dict().values(), strict=True)
    )


def test_an_environment_without_states_resumes_with_a_warning(point_reach, tmp_path):
    class Stateless:
        def __init__(self, env):
            self.num_envs, self.metadata, self.reset, self.step = env.num_envs, env.metadata, env.reset, env.step

    run = RunConfig(total_steps=64, horizon=8, checkpoint_every=1)
    env = Stateless(point_reach(4))
    list(train(env, fresh(env), PPOConfig(), run, checkpoints=tmp_path))
    longer = RunConfig(total_steps=96, horizon=8, checkpoint_every=1)
    events = list(train(env, fresh(env), PPOConfig(), longer, checkpoints=tmp_path))
    assert any(isinstance(e, Message) and e.level == "warning" and "not bit-identical" in e.text for e in events)
    assert [e.step for e in events if isinstance(e, Progress)] == [96]


def test_an_environment_of_another_autoreset_mode_is_refused(point_reach):
    env = point_reach(2)
    net = fresh(env)
    env.metadata["autoreset_mode"] = "NEXT_STEP"
    with pytest.raises(UsageError, match="SAME_STEP"):
        list(train(env, net))


def test_other_settings_do_not_continue_a_checkpoint(point_reach, tmp_path):
    env, run = point_reach(4), RunConfig(total_steps=32, horizon=8, checkpoint_every=1)
    list(train(env, fresh(env), PPOConfig(), run, checkpoints=tmp_path))
    with pytest.raises(UsageError, match="other settings"):
        list(train(env, fresh(env), PPOConfig(gamma=0.5), run, checkpoints=tmp_path))


def test_solves_reaching_from_state(point_reach, score):
    env = point_reach(16)
    net = fresh(env, NetConfig(image_size=16, hidden=(64, 64), log_std=-0.5))
    untrained = score(env, Policy(net).act, 96)
    ppo = PPOConfig(lr=1e-3, prior_kl=0.0, target_kl=0.05, warmup_iterations=0, epochs=8, minibatch=128)
    list(train(env, net, ppo, RunConfig(total_steps=16_000, horizon=32)))
    trained = score(env, Policy(net).act, 96)
    assert untrained < 0.3
    assert trained > 0.9


def test_improves_a_partial_clone_from_pixels(point_reach, score):
    """Twelve demonstrations give a clone that often fails; PPO, seeing the same pictures, adds 15 points or more."""
    env = point_reach(16, size=32)
    net = fresh(env, NetConfig(image_size=32, cell=2, channels=16))
    demos = record(env, env.expert, 12, 32, seed=1)
    list(clone(net, demos, BCConfig(steps=200, minibatch=64, held_out=0.0)))
    before = score(env, Policy(net).act, 192)
    list(train(env, net, PPOConfig(), RunConfig(total_steps=9_000)))
    after = score(env, Policy(net).act, 192)
    assert 0.3 <= before <= 0.75
    assert after >= before + 0.15
