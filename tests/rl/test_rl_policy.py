"""A policy folder: what was saved acts the same; what was damaged is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from recon.core.errors import CorruptError, InputError, ReconError, UsageError
from rl.nets import NetConfig, build
from rl.policy import Policy, load_policy, save_policy
from rl.types import ActionSpec, obs_spec


@pytest.fixture
def saved(point_reach, tmp_path):
    env = point_reach(3, size=16, privileged=True)
    obs, _ = env.reset(seed=0)
    net = build(
        obs_spec(obs), ActionSpec(2, hold=2), NetConfig(image_size=16, cell=2, channels=4, hidden=(16,)), seed=5
    )
    net.proprio_stats.update(torch.randn(50, 2) * 3 + 1)
    return env, obs, net, save_policy(net, tmp_path / "policy", {"task": "reach", "score": 0.5})


def test_round_trip_acts_bit_for_bit_the_same(saved):
    _, obs, net, folder = saved
    policy = load_policy(folder)
    assert np.array_equal(policy.act(obs), Policy(net).act(obs))
    assert (policy.obs, policy.action, policy.meta) == (net.obs, net.action, {"task": "reach", "score": 0.5})
    assert policy.action.hold == 2


def test_a_policy_acts_without_privileged_state(saved):
    _, obs, net, _ = saved
    blind = {key: value for key, value in obs.items() if key != "privileged"}
    assert np.array_equal(Policy(net).act(blind), Policy(net).act(obs))


def test_samples_follow_their_generator_and_stay_in_the_box(saved):
    _, obs, net, _ = saved
    with torch.no_grad():
        net.log_std_free.fill_(1.0)
    policy = Policy(net)
    draw = [policy.act(obs, deterministic=False, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert np.array_equal(draw[0], draw[1]) and not np.array_equal(draw[0], draw[2])
    assert draw[0].dtype == np.float32 and np.abs(draw[0]).max() <= 1.0
    with pytest.raises(UsageError, match="generator"):
        policy.act(obs, deterministic=False)


def test_another_camera_or_size_is_refused(saved, point_reach):
    *_, net, _ = saved
    other, _ = point_reach(3, size=32).reset(seed=0)
    with pytest.raises(InputError, match=r"\[3, 16, 16, 3\]"):
        Policy(net).act(other)
    with pytest.raises(InputError, match="lacks camera 'top'"):
        Policy(net).act({"rgb": {}, "proprio": np.zeros((3, 2), np.float32)})


@pytest.mark.parametrize("name", ["policy.json", "weights.safetensors"])
def test_a_flipped_byte_is_found(saved, name):
    path = saved[-1] / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptError, match=name):
        load_policy(saved[-1])


def test_what_is_no_policy_is_refused(tmp_path, saved):
    with pytest.raises(InputError, match="holds no policy"):
        load_policy(tmp_path / "nowhere")
    header = json.loads((saved[-1] / "policy.json").read_text())
    for change, message in [
        ({"format": "other"}, "not a policy header"),
        ({"version": 99}, "version 99"),
        ({"net": {**header["net"], "channels": 8}}, "does not fit"),
        ({"net": {**header["net"], "chanels": 8}}, "does not describe"),
    ]:
        rewrite(saved[-1], {**header, **change})
        with pytest.raises(ReconError, match=message):
            load_policy(saved[-1])


def rewrite(folder, header):
    """Change the header as a program of ours would: with a manifest that agrees."""
    from recon.core.publish import write_manifest

    (folder / "policy.json").write_text(json.dumps(header))
    (folder / "manifest.json").unlink()
    write_manifest(folder)
