from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation, Slerp

from recon.core.errors import InputError
from recon.geometry.convert import xyzw_from_wxyz
from recon.geometry.quaternion import quat_multiply, quat_normalize, quat_to_matrix
from recon.geometry.sh import eval_sh, rotate_sh
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC, Gaussians
from recon.scene.motion import BodyPoses, Track, freeze, pose_gaussians
from tests.recon.scene.make import moving_table, table, track

POSES: BodyPoses = {
    1: (torch.tensor([0.9, 0.1, -0.4, 0.2]), torch.tensor([0.5, -1.0, 2.0])),
    2: (torch.tensor([0.1, 0.7, 0.3, -0.5]), torch.tensor([-0.5, 0.3, 0.1])),
    7: (torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(3)),  # a body without Gaussians
}


def pose_row(g: Gaussians, i: int, poses: BodyPoses, t: float) -> tuple[torch.Tensor, ...]:
    """The slow twin: one row at a time, by the definition."""
    mean, quat, sh = g.means[i], g.quats[i], g.sh[i : i + 1]
    opacity = torch.sigmoid(g.logit_opacities[i])
    if g.kind[i] == RIGID:
        q, p = poses[int(g.object_id[i])]
        rotation = quat_to_matrix(q)
        mean, quat, sh = rotation @ mean + p, quat_multiply(quat_normalize(q), quat), rotate_sh(sh, rotation)
    if g.kind[i] == RESIDUAL:
        dt = t - float(g.time_centers[i])
        mean = mean + g.velocities[i] * dt
        opacity = opacity * math.exp(-0.5 * (dt / math.exp(float(g.log_durations[i]))) ** 2)
    return mean, quat, torch.exp(g.log_scales[i]), opacity, sh[0]


@pytest.mark.parametrize("degree", [0, 1, 3])
@given(t=st.floats(-1, 3))
def test_equals_one_row_at_a_time(degree: int, t: float) -> None:
    g = moving_table(degree)
    posed = pose_gaussians(g, POSES, t)
    rows = [pose_row(g, i, POSES, t) for i in range(len(g))]
    for name, column in zip(("means", "quats", "scales", "opacities", "sh"), zip(*rows, strict=True), strict=True):
        torch.testing.assert_close(getattr(posed, name), torch.stack(column), atol=2e-5, rtol=1e-5)
    assert posed.rows is None
    assert len(posed) == 12


def test_a_turned_body_looks_the_same_from_a_camera_turned_with_it() -> None:
    g = moving_table(3, torch.float64).of_body(2)
    rotation = quat_to_matrix(POSES[2][0].double())
    d = torch.nn.functional.normalize(torch.randn(len(g), 3, dtype=torch.float64), dim=-1)
    posed = pose_gaussians(g, POSES, 0.0)
    torch.testing.assert_close(eval_sh(3, posed.sh, d @ rotation.T), eval_sh(3, g.sh, d), atol=1e-6, rtol=0)


def test_static_rows_keep_their_bits() -> None:
    g = moving_table()
    posed = pose_gaussians(g, POSES, 0.7)
    static = g.kind == STATIC
    assert torch.equal(posed.means[static], g.means[static])
    assert torch.equal(posed.sh[static], g.sh[static])
    assert torch.equal(posed.quats[static], g.quats[static])


def test_without_a_time_what_lives_in_time_is_not_there() -> None:
    g = moving_table()
    posed = pose_gaussians(g, POSES, None)
    assert (posed.opacities[g.kind == RESIDUAL] == 0).all()
    assert (posed.opacities[g.kind != RESIDUAL] > 0).all()
    assert len(pose_gaussians(g, POSES, None, drop_faded=True)) == 8


def test_faded_rows_are_dropped_only_when_asked() -> None:
    g = moving_table()
    full, short = pose_gaussians(g, POSES, 0.8), pose_gaussians(g, POSES, 0.8, drop_faded=True)
    factor = torch.exp(-0.5 * ((0.8 - g.time_centers) / math.exp(-1)) ** 2)
    kept = torch.nonzero((g.kind != RESIDUAL) | (factor >= 0.05))[:, 0]
    assert 8 < len(kept) < 12
    assert short.rows is not None
    assert torch.equal(short.rows, kept)
    torch.testing.assert_close(short.means, full.means[kept])
    torch.testing.assert_close(short.opacities, full.opacities[kept])


def test_a_body_without_a_pose_is_an_error() -> None:
    with pytest.raises(InputError, match=r"body 2 has Gaussians but no pose: poses are given for bodies \[1\]"):
        pose_gaussians(moving_table(), {1: POSES[1]}, 0.0)
    with pytest.raises(InputError, match="body 1 has Gaussians but no pose"):
        pose_gaussians(moving_table(), {}, 0.0)
    assert len(pose_gaussians(table(3), {}, 0.0)) == 3


def test_gradients_reach_the_table_and_the_poses() -> None:
    g = moving_table(2, torch.float64)
    names = ("means", "quats", "log_scales", "logit_opacities", "sh", "time_centers", "log_durations", "velocities")

    def run(q1: torch.Tensor, p1: torch.Tensor, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved = replace(g, **dict(zip(names, columns, strict=True)))
        poses = {1: (q1, p1), 2: tuple(x.double() for x in POSES[2])}
        posed = pose_gaussians(moved, poses, 0.9)  # type: ignore[arg-type]
        return posed.means, posed.quats, posed.scales, posed.opacities, posed.sh

    inputs = [POSES[1][0].double(), POSES[1][1].double(), *(getattr(g, name) for name in names)]
    assert torch.autograd.gradcheck(run, [x.clone().requires_grad_() for x in inputs], fast_mode=True)


def test_frozen_is_posed_in_storage_form() -> None:
    g = moving_table()
    posed, frozen = pose_gaussians(g, POSES, 1.6, drop_faded=True), freeze(g, POSES, 1.6).validate()
    again = pose_gaussians(frozen, {}, None)
    for name in ("means", "quats", "scales", "sh"):
        assert torch.equal(getattr(again, name), getattr(posed, name))
    torch.testing.assert_close(again.opacities, posed.opacities)
    assert torch.equal(frozen.logit_opacities[:8], g.logit_opacities[:8])
    assert (frozen.kind == STATIC).all()


def test_track_agrees_with_scipys_slerp_and_stands_still_outside() -> None:
    moving = track(3, knots=5)
    slerp = Slerp(moving.times, Rotation.from_quat(xyzw_from_wxyz(moving.quats.double().numpy())))
    for t in np.linspace(0, 2, 23):
        rotation, position, quat = moving.at(float(t))
        np.testing.assert_allclose(rotation, slerp(t).as_matrix(), atol=1e-5)
        expected = [np.interp(t, moving.times, moving.positions[:, k]) for k in range(3)]
        np.testing.assert_allclose(position, expected, atol=1e-6)
        assert float(quat.norm()) == pytest.approx(1)
    for t, knot in ((-5.0, 0), (0.0, 0), (2.0, -1), (99.0, -1)):
        rotation, position, _ = moving.at(t)
        torch.testing.assert_close(position, moving.positions[knot])
        torch.testing.assert_close(rotation, quat_to_matrix(moving.quats[knot]))


def test_a_track_of_one_knot_stands() -> None:
    still = track(3, knots=1)
    for t in (-1.0, 0.0, 5.0):
        torch.testing.assert_close(still.at(t)[1], still.positions[0])


@pytest.mark.parametrize(
    ("times", "positions", "message"),
    [
        ([], torch.zeros(0, 3), "no usable times"),
        ([0.0, 0.0], torch.zeros(2, 3), "increasing"),
        ([0.0, float("nan")], torch.zeros(2, 3), "finite"),
        ([0.0, 1.0], torch.zeros(3, 3), "positions of shape"),
        ([0.0, 1.0], torch.full((2, 3), float("inf")), "positions"),
    ],
)
def test_bad_tracks(times: list[float], positions: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Track(np.array(times), positions, torch.ones(len(times), 4))
