"""Fewer Gaussians for small pictures: what is merged, what is left alone, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recon.core.errors import UsageError
from sim2real.detail import coarser
from sim2real.draw import Splats
from sim2real.env import SplatVectorEnv

EYE = np.zeros(3)


def splats(means: list, scales: list, opacities: list, grey: list) -> Splats:
    sh = np.zeros((len(means), 1, 3))
    sh[:, 0] = np.array(grey)[:, None]
    columns = (means, np.tile([1.0, 0, 0, 0], (len(means), 1)), scales, opacities, sh)
    return Splats(*(torch.tensor(np.array(a), dtype=torch.float32) for a in columns))


def test_two_that_share_a_cell_become_their_moments() -> None:
    pair = splats([[0.011, 0.001, 1], [0.013, 0.001, 1]], [[1e-3] * 3] * 2, [0.4, 0.4], [0.0, 1.0])
    one = coarser(pair, EYE, focal=50.0, pixels=1.0)  # cells of 1/64 m at 1 m
    assert len(one) == 1
    assert one.means[0].tolist() == pytest.approx([0.012, 0.001, 1.0])
    # variance along x: 1e-6 of their own and 1e-6 of their distance; the others are their own
    assert sorted(one.scales[0].tolist()) == pytest.approx([1e-3, 1e-3, np.sqrt(2e-6)], rel=1e-3)
    assert float(one.opacities[0]) == pytest.approx(0.8 / np.sqrt(2), rel=1e-3)
    assert one.sh[0, 0].tolist() == pytest.approx([0.5] * 3)


def test_what_is_alone_large_or_far_apart_stays_as_it_is() -> None:
    few = splats(
        [[0.001, 0.001, 1], [0.5, 0, 1], [0.003, 0.001, 1]],
        [[1e-3] * 3, [1e-3] * 3, [0.05] * 3],
        [0.5] * 3,
        [0.1, 0.2, 0.3],
    )
    kept = coarser(few, EYE, focal=50.0, pixels=1.0)
    assert all(torch.equal(getattr(kept, f), getattr(few, f)) for f in Splats.__dataclass_fields__)
    assert coarser(few, EYE, focal=50.0, pixels=0.0) is few


def test_detail_costs_what_it_says_and_none_is_exact(cell) -> None:
    exact, rough, rougher = (
        SplatVectorEnv(cell, 2, cameras=["cam00"], size=48, detail=detail) for detail in (0.0, 0.7, 3.0)
    )
    (a, info), (b, told), (_, more) = (env.reset(seed=1) for env in (exact, rough, rougher))
    assert "detail" not in info
    fine, coarse = told["detail"]["cam00"], more["detail"]["cam00"]
    assert coarse["gaussians"] < fine["gaussians"] < fine["of"] == len(cell.static)
    assert 20 < coarse["psnr"] < fine["psnr"] < 60
    error = np.mean((a["rgb"]["cam00"] / 255.0 - b["rgb"]["cam00"] / 255.0) ** 2)
    assert -10 * np.log10(error) == pytest.approx(fine["psnr"], abs=3)
    with pytest.raises(UsageError, match="detail is -1"):
        SplatVectorEnv(cell, 1, cameras=["cam00"], size=48, detail=-1)
