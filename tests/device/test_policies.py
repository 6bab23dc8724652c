"""Cloning, PPO, policies on disk: the CPU's bits on the simulated device, whichever of the two wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from recon.core.checkpoint import latest_checkpoint
from recon.core.events import Event, Progress
from rl.bc import BCConfig, clone, record
from rl.policy import load_policy, save_policy
from rl.runner import RunConfig, train
from rl.trial import IMPROVE, NET, RUN, Reach, curve, policy

CLONING = BCConfig(steps=4, minibatch=16, report_every=2, checkpoint_every=2)
CPU = torch.device("cpu")


def test_cloning_and_ppo_follow_the_same_curve(on_both, same) -> None:
    cpu, simulated = on_both(curve)
    same(cpu, simulated)
    assert len(cpu["policy_loss"]) == 2 and len(cpu["clone_loss"]) == 4


@pytest.mark.parametrize(("writer", "reader"), [("musa", "cpu"), ("cpu", "musa")])
def test_a_policy_acts_the_same_on_the_other_device(writer: str, reader: str, tmp_path: Path, musa) -> None:
    net = policy(torch.device(writer))
    save_policy(net, tmp_path / "policy")
    other = load_policy(tmp_path / "policy", torch.device(reader))
    assert other.net.device.type == reader
    seen, _ = Reach().reset(seed=3)
    mine = load_policy(tmp_path / "policy", torch.device(writer)).act(seen)
    assert np.array_equal(mine, other.act(seen))
    draws = [torch.Generator(device="cpu").manual_seed(1) for _ in range(2)]
    assert np.array_equal(
        other.act(seen, deterministic=False, generator=draws[0]),
        load_policy(tmp_path / "policy").act(seen, deterministic=False, generator=draws[1]),
    )


def cloned(device: torch.device, folder: Path, stop_after: int) -> dict[str, torch.Tensor]:
    """Weights after cloning, or when it was stopped after so many reports."""
    env, net = Reach(), policy(device)
    work = clone(net, record(env, env.expert, 4, NET.image_size), CLONING, folder)
    for _ in range(stop_after):
        while not isinstance(next(work), Progress):
            pass
    if stop_after:
        work.close()
    else:
        assert sum(isinstance(event, Progress) for event in work) >= 1
    return {name: value.cpu() for name, value in net.state_dict().items()}


@pytest.mark.parametrize(("first", "then"), [("musa", "cpu"), ("cpu", "musa")])
def test_cloning_begun_on_one_device_ends_the_same_on_another(
    first: str, then: str, tmp_path: Path, musa: torch.device, no_float64: None, same
) -> None:
    whole = cloned(CPU, tmp_path / "whole", 0)
    cloned(torch.device(first), tmp_path / "moved", 1)
    saved = latest_checkpoint(tmp_path / "moved")
    assert saved is not None and saved.step == 2
    same(whole, cloned(torch.device(then), tmp_path / "moved", 0))


class StatefulReach(Reach):
    """`Reach` that can be checkpointed: its random numbers depend on its step count alone."""

    def step(self, actions):
        self._random = np.random.default_rng(int(self._elapsed.sum()))
        return super().step(actions)

    def get_state(self) -> dict[str, np.ndarray]:
        return {"point": self._point, "target": self._target, "elapsed": self._elapsed}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self._point, self._target, self._elapsed = (state[k].copy() for k in ("point", "target", "elapsed"))


def weights_after(device: torch.device, folder: Path, iterations: int) -> dict[str, torch.Tensor]:
    net = policy(device)
    steps = iterations * RUN.horizon * Reach().num_envs
    events: Iterator[Event] = train(
        StatefulReach(), net, IMPROVE, RunConfig(total_steps=steps, horizon=RUN.horizon, checkpoint_every=1),
        checkpoints=folder,
    )  # fmt: skip
    assert sum(isinstance(event, Progress) for event in events) >= 1
    return {name: value.cpu() for name, value in net.state_dict().items()}


def test_ppo_begun_on_one_device_ends_the_same_on_another(tmp_path: Path, musa: torch.device, same) -> None:
    whole = weights_after(CPU, tmp_path / "whole", 3)
    weights_after(musa, tmp_path / "moved", 2)
    saved = latest_checkpoint(tmp_path / "moved")
    assert saved is not None and all(tensor.device.type == "cpu" for tensor in saved.tensors.values())
    same(whole, weights_after(CPU, tmp_path / "moved", 3))
    weights_after(CPU, tmp_path / "back", 2)
    same(whole, weights_after(musa, tmp_path / "back", 3))
