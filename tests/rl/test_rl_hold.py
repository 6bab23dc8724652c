"""Holding an action equals repeating it by hand, and never mixes two episodes."""

from __future__ import annotations

import numpy as np
import pytest

from recon.core.errors import UsageError
from rl.hold import HoldActions


def test_equals_repeating_the_action_by_hand(point_reach):
    held, plain = HoldActions(point_reach(6), 3, gamma=0.9), point_reach(6)
    held.reset(seed=1), plain.reset(seed=1)
    random = np.random.default_rng(0)
    ends = 0
    for _ in range(30):
        actions = random.uniform(-1, 1, (6, 2)).astype(np.float32)
        obs, reward, terminated, truncated, info = held.step(actions)
        expected, done = np.zeros(6), np.zeros(6, bool)
        finals = {}
        for i in range(3):
            plain_obs, r, ended, cut, details = plain.step(np.where(done[:, None], 0, actions))
            expected += np.where(done, 0, 0.9**i * r)
            for n in np.flatnonzero((ended | cut) & ~done):
                finals[n] = details["final_obs"]["proprio"][n].copy()
            done |= ended | cut
        assert np.allclose(reward, expected, atol=1e-6)
        assert np.array_equal(terminated | truncated, done)
        assert np.array_equal(obs["proprio"], plain_obs["proprio"])
        for n, row in finals.items():
            assert info["_final_obs"][n] and np.array_equal(info["final_obs"]["proprio"][n], row)
        ends += len(finals)
    assert ends > 5


def test_two_ends_within_one_hold_are_refused(point_reach):
    env = HoldActions(point_reach(2, limit=1), 2)
    env.reset(seed=0)
    with pytest.raises(UsageError, match="finished twice"):
        for _ in range(3):
            env.step(np.ones((2, 2), np.float32))
    with pytest.raises(UsageError, match="at least one"):
        HoldActions(point_reach(2), 0)
