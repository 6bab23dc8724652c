"""Cloning: a linear expert is copied, whole episodes are kept, resuming is exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recon.core.errors import DivergedError, InputError, UsageError
from recon.core.events import Progress, StageFinished
from rl.bc import BCConfig, Demonstrations, action_error, clone, random_shift, record
from rl.nets import NetConfig, build
from rl.types import ActionSpec, ObsSpec, Packed

SPEC = ObsSpec((), proprio=4)


def linear_demos(count=800):
    g = torch.Generator().manual_seed(0)
    seen = torch.randn(count, 4, generator=g) * torch.tensor([1.0, 10.0, 0.1, 1.0])
    actions = torch.stack([0.3 * seen[:, 0] - 0.02 * seen[:, 1], 2.0 * seen[:, 2] + 0.1 * seen[:, 3]], dim=1)
    packed = Packed(torch.zeros(count, 0, 16, 16, 3, dtype=torch.uint8), seen, torch.zeros(count, 0))
    return Demonstrations(packed, actions, torch.arange(count) // 20)


def fresh(seed=0):
    return build(SPEC, ActionSpec(2), NetConfig(image_size=16, hidden=(64,)), seed=seed)


def test_clones_a_linear_expert_on_held_out_episodes():
    demos, net = linear_demos(), fresh()
    variance = float(demos.actions.var(dim=0).mean())
    events = list(clone(net, demos, BCConfig(steps=400, minibatch=64, lr=3e-3)))
    finished = events[-1]
    assert isinstance(finished, StageFinished)
    assert finished.metrics["validation_loss"] < 0.02 * variance
    losses = [e.metrics["loss"] for e in events if isinstance(e, Progress)]
    assert losses[-1] < 0.1 * losses[0]


def test_split_keeps_episodes_whole():
    demos = linear_demos()
    train, held = demos.split(0.25, seed=1)
    assert len(train) + len(held) == len(demos)
    assert not set(demos.episode[train].tolist()) & set(demos.episode[held].tolist())
    assert len(held) == 200


def test_resume_equals_an_undisturbed_run_bit_for_bit(tmp_path):
    demos, config = linear_demos(200), BCConfig(steps=60, minibatch=16, checkpoint_every=20, report_every=20)
    straight, broken, resumed = fresh(), fresh(), fresh(seed=9)
    list(clone(straight, demos, config))
    run = clone(broken, demos, config, tmp_path)
    for event in run:
        if isinstance(event, Progress) and event.step == 40:
            break
    run.close()
    steps = [e.step for e in clone(resumed, demos, config, tmp_path) if isinstance(e, Progress)]
    assert steps == [60]
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    with pytest.raises(UsageError, match="another configuration"):
        list(clone(fresh(), demos, BCConfig(steps=60, lr=1.0), tmp_path))


def test_record_keeps_successful_episodes_evenly(point_reach):
    env = point_reach(4, size=16)
    demos = record(env, env.expert, 10, 16, seed=3)
    assert torch.unique(demos.episode).tolist() == list(range(10))
    assert demos.seen.images.shape[1:] == (1, 16, 16, 3)
    for k in range(10):
        steps = demos.seen.proprio[demos.episode == k]
        moved = (steps[1:] - steps[:-1]) / 0.2
        assert torch.allclose(moved, demos.actions[demos.episode == k][:-1], atol=1e-4)


def test_an_expert_that_never_succeeds_is_reported(point_reach):
    env = point_reach(2)
    with pytest.raises(InputError, match="0 of 2 episodes"):
        record(env, lambda obs: np.zeros((2, 2)), 2, 16, max_steps=200)


def test_nan_demonstrations_are_refused():
    demos = linear_demos(100)
    demos.actions[:] = float("nan")
    with pytest.raises(DivergedError, match="cloning loss"):
        list(clone(fresh(), demos, BCConfig(steps=5)))


def test_random_shift_moves_each_picture_as_a_whole():
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16, 1).expand(6, 2, 16, 16, 3)
    out = random_shift(images, 0.125, torch.Generator().manual_seed(0))
    offsets = set()
    for picture in out.flatten(0, 1)[..., 0].int():
        inner = picture[4:12, 4:12] - images[0, 0, 4:12, 4:12, 0].int()
        assert (inner == inner[0, 0]).all()
        offsets.add(int(inner[0, 0]))
    assert len(offsets) > 4
    assert max(abs(o) for o in offsets) <= 2 * 16 + 2
    assert random_shift(images, 0.0, torch.Generator()) is images


def test_action_error_is_the_mean_square():
    demos, net = linear_demos(50), fresh()
    with torch.no_grad():
        net.actor_out.weight.zero_()
    expected = float(demos.actions.square().mean())
    assert action_error(net, demos, torch.arange(50), chunk=7) == pytest.approx(expected, rel=1e-5)
