"""The PPO losses against hand-worked numbers; the update's guarantees."""

from __future__ import annotations

import pytest
import torch

from recon.core.errors import DivergedError, UsageError
from rl.nets import NetConfig, build
from rl.ppo import PPO, PPOConfig, policy_loss, value_loss
from rl.runner import RunConfig, Trainer
from rl.types import ActionSpec, check_env


def trainer(env, **ppo):
    spec = check_env(env, 2)
    net = build(spec, ActionSpec(2), NetConfig(image_size=16, cell=2, channels=4, hidden=(32,)))
    out = Trainer(env, net, PPOConfig(**{"warmup_iterations": 0, "minibatch": 64, **ppo}), RunConfig(horizon=16))
    out.start()
    return out


def weights(parameters):
    return [p.detach().clone() for p in parameters]


def test_policy_loss_golden_values():
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5])
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    # max(-1.5, -1.2), max(-.5, -.8), max(1.5, 1.2), max(.5, .8) = -1.2, -.5, 1.5, .8
    assert float(policy_loss(ratio, advantages, 0.2)) == pytest.approx((-1.2 - 0.5 + 1.5 + 0.8) / 4)


def test_policy_gradient_vanishes_only_where_clipping_helped():
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], requires_grad=True)
    policy_loss(ratio, torch.tensor([1.0, 1.0, -1.0, -1.0]), 0.2).backward()
    assert (ratio.grad == 0).tolist() == [True, False, False, True]


def test_value_loss_golden_values():
    values, returns, old = torch.tensor([3.0]), torch.tensor([4.0]), torch.tensor([1.0])
    assert float(value_loss(values, returns, old, 0.0)) == 0.5  # (3 - 4)^2 / 2
    assert float(value_loss(values, returns, old, 0.5)) == 3.125  # clipped to 1.5: (1.5 - 4)^2 / 2


def test_losses_gradcheck():
    g = torch.Generator().manual_seed(0)
    r, a, v, t, o = (torch.randn(6, generator=g, dtype=torch.float64) for _ in range(5))
    assert torch.autograd.gradcheck(lambda x: policy_loss(x.exp(), a, 0.2), (r.requires_grad_(),))
    assert torch.autograd.gradcheck(lambda x: value_loss(x, t, o, 0.3), (v.requires_grad_(),))


@pytest.mark.parametrize("encoder_lr", [0.0, 1e-4])
def test_the_ratio_is_one_before_the_first_step(point_reach, encoder_lr):
    from rl.distributions import log_prob

    run = trainer(point_reach(4, size=16), encoder_lr=encoder_lr)
    buffer, _ = run.rollout()
    batch = buffer.batch(torch.arange(len(buffer)), "cpu")
    features = run.net.features(batch.packed) if encoder_lr else batch.features
    ratio = torch.exp(log_prob(run.net.mean(features), run.net.log_std(), batch.actions) - batch.log_probs)
    assert torch.allclose(ratio, torch.ones_like(ratio), atol=1e-4)
    assert torch.allclose(batch.means, batch.prior_means, atol=1e-5)


def test_next_values_come_from_the_final_observation(point_reach):
    env = point_reach(4, limit=3)
    run = trainer(env)
    buffer, _ = run.rollout()
    ends = buffer.terminations | buffer.truncations
    inner = ~ends[:-1]
    assert torch.allclose(buffer.next_values[:-1][inner], buffer.values[1:][inner], atol=1e-6)
    assert not torch.allclose(buffer.next_values[:-1][~inner], buffer.values[1:][~inner], atol=1e-6)
    assert int(ends.sum()) >= 4 * 5


def test_warm_up_moves_the_critic_only(point_reach):
    run = trainer(point_reach(4, size=16), warmup_iterations=1)
    actor = weights([*run.net.actor_parameters(), *run.net.encoder_parameters()])
    critic = weights(run.net.critic_parameters())
    run.iterate()
    assert all(map(torch.equal, actor, [*run.net.actor_parameters(), *run.net.encoder_parameters()]))
    assert not all(map(torch.equal, critic, run.net.critic_parameters()))
    metrics = run.iterate()
    assert not all(map(torch.equal, actor, [*run.net.actor_parameters(), *run.net.encoder_parameters()]))
    assert metrics["policy_steps"] >= 1


def test_a_frozen_encoder_stays_and_a_trained_one_moves(point_reach):
    for rate, moves in ((0.0, False), (1e-3, True)):
        run = trainer(point_reach(4, size=16), encoder_lr=rate)
        before = weights(run.net.encoder_parameters())
        run.iterate()
        assert any(not torch.equal(a, b) for a, b in zip(before, run.net.encoder_parameters(), strict=True)) is moves


def test_target_kl_ends_the_update_early(point_reach):
    free = trainer(point_reach(8), lr=1e-2, target_kl=0.0, epochs=10).iterate()
    held = trainer(point_reach(8), lr=1e-2, target_kl=0.005, epochs=10).iterate()
    assert held["policy_steps"] < free["policy_steps"] == 20


def test_the_leash_holds_the_policy_near_the_prior(point_reach):
    strayed = []
    for weight in (0.0, 10.0):
        run = trainer(point_reach(8), prior_kl=weight, prior_half_life=0.0, target_kl=0.0, lr=3e-3)
        strayed.append([run.iterate() for _ in range(6)][-1]["prior_kl"])
    assert strayed[1] < 0.3 * strayed[0]


def test_leash_halves_every_half_life():
    config = PPOConfig(prior_kl=0.8, prior_half_life=5)
    assert [config.leash(k) for k in (0, 5, 10)] == pytest.approx([0.8, 0.4, 0.2])
    assert PPOConfig(prior_kl=0.8, prior_half_life=0).leash(100) == 0.8


def test_a_nan_reward_is_refused_and_no_weight_changes(point_reach):
    env = point_reach(4)
    run = trainer(env)
    before = weights(run.net.parameters())
    step = env.step

    def poisoned(actions):
        obs, reward, *rest = step(actions)
        reward[2] = float("nan")
        return obs, reward, *rest

    env.step = poisoned
    with pytest.raises(DivergedError, match="not finite"):
        run.iterate()
    assert all(map(torch.equal, before, run.net.parameters()))


def test_a_nan_loss_is_refused_before_the_step(point_reach):
    run = trainer(point_reach(4))
    buffer, _ = run.rollout()
    buffer.log_probs[3, 1] = float("nan")
    before = weights(run.net.actor_parameters())
    with pytest.raises(DivergedError, match="policy loss"):
        run.algorithm.update(buffer, run.net.log_std().detach(), run.prior.log_std(), 0, 0)
    assert all(torch.isfinite(p).all() for p in run.net.parameters())
    assert len(before) == len(run.net.actor_parameters())


@pytest.mark.parametrize("bad", [{"gamma": 1.1}, {"lr": 0.0}, {"minibatch": 0}, {"target_kl": -1.0}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        PPOConfig(**bad)


def test_optimiser_groups_have_their_own_rates(point_reach):
    run = trainer(point_reach(2, size=16), lr=1e-3, encoder_lr=1e-5)
    assert [g["lr"] for g in PPO(run.net, run.ppo_config).actor_optimiser.param_groups] == [1e-3, 1e-5]
