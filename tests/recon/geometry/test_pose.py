from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import expm

from recon.core.errors import InputError
from recon.geometry.pose import (
    invert_pose,
    is_rigid,
    look_at,
    nearest_rotation,
    se3_exp,
    so3_exp,
    so3_log,
    split_similarity,
    umeyama,
)

twists = arrays(np.float64, 6, elements=st.floats(-3, 3))


def as_algebra(twist: np.ndarray) -> np.ndarray:
    rho, (x, y, z) = twist[:3], twist[3:]
    algebra = np.zeros((4, 4))
    algebra[:3, :3] = [[0, -z, y], [z, 0, -x], [-y, x, 0]]
    algebra[:3, 3] = rho
    return algebra


@given(twists)
def test_se3_exp_is_the_matrix_exponential(twist: np.ndarray) -> None:
    np.testing.assert_allclose(se3_exp(twist), expm(as_algebra(twist)), atol=1e-12)
    assert is_rigid(se3_exp(twist), 1e-12)


@given(twists, st.floats(-12, 0))
def test_se3_exp_keeps_its_digits_for_small_angles(twist: np.ndarray, exponent: float) -> None:
    small = twist * 10.0**exponent
    # entries may be differences of terms as large as the twist
    np.testing.assert_allclose(se3_exp(small), expm(as_algebra(small)), rtol=1e-12, atol=1e-14 * np.linalg.norm(small))


@given(twists, twists, twists)
def test_poses_are_a_group(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    a, b, c = se3_exp(a), se3_exp(b), se3_exp(c)
    np.testing.assert_allclose((a @ b) @ c, a @ (b @ c), atol=1e-12)
    np.testing.assert_allclose(invert_pose(a) @ a, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(invert_pose(a @ b), invert_pose(b) @ invert_pose(a), atol=1e-12)
    np.testing.assert_allclose(invert_pose(invert_pose(a)), a, atol=1e-12)


def test_torch_twins_and_gradients_at_zero() -> None:
    batch = np.random.default_rng(0).normal(size=(4, 6))
    batch[0] = 0
    tensor = torch.from_numpy(batch).requires_grad_()
    np.testing.assert_allclose(se3_exp(tensor).detach().numpy(), se3_exp(batch), atol=1e-14)
    np.testing.assert_allclose(invert_pose(se3_exp(tensor)).detach().numpy(), invert_pose(se3_exp(batch)), atol=1e-14)
    assert torch.autograd.gradcheck(se3_exp, (tensor,))
    assert torch.autograd.gradcheck(lambda x: invert_pose(se3_exp(x)), (tensor,))


def test_look_at() -> None:
    pose = look_at(np.array([0.0, -2.0, 0.5]), np.array([0.0, 0.0, 0.5]))
    assert is_rigid(pose, 1e-12)
    local = pose[:3, :3] @ [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.5, 1.5]] + pose[:3, 3:]
    np.testing.assert_allclose(local, [[0, 1, 0], [0, 0, -1], [2, 2, 2]], atol=1e-12)  # up is -y, right is +x
    with pytest.raises(InputError, match="line of sight"):
        look_at(np.zeros(3), np.array([0.0, 0.0, 1.0]))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p.__setitem__((0, 0), np.nan),
        lambda p: p.__setitem__((slice(0, 3), slice(0, 3)), -p[:3, :3]),
        lambda p: p.__setitem__((slice(0, 3), slice(0, 3)), 1.01 * p[:3, :3]),
        lambda p: p.__setitem__((3, 0), 0.5),
    ],
)
def test_what_is_not_rigid(spoil) -> None:  # type: ignore[no-untyped-def]
    pose = se3_exp(np.arange(6) / 3.0)
    assert is_rigid(pose)
    spoil(pose)
    assert not is_rigid(pose)


@given(twists, st.floats(0.1, 10), st.booleans())
def test_umeyama_finds_the_similarity(twist: np.ndarray, scale: float, with_scale: bool) -> None:
    truth = se3_exp(twist)
    if with_scale:
        truth[:3, :3] *= scale
    a = np.random.default_rng(0).normal(size=(12, 3))
    found = umeyama(a, a @ truth[:3, :3].T + truth[:3, 3], with_scale)
    np.testing.assert_allclose(found, truth, atol=1e-10)
    if with_scale:
        assert split_similarity(found)[0] == pytest.approx(scale)


def test_umeyama_never_mirrors_and_refuses_a_line() -> None:
    a = np.random.default_rng(0).normal(size=(12, 3))
    assert np.linalg.det(umeyama(a, a * [1, 1, -1], True)[:3, :3]) > 0
    with pytest.raises(InputError, match="one line"):
        umeyama(np.outer(np.arange(4.0), [1, 2, 3]), np.outer(np.arange(4.0), [1, 2, 3]), False)
    with pytest.raises(InputError, match="shapes"):
        umeyama(a[:2], a[:2], False)


def test_similarities_that_are_none() -> None:
    for bad in (
        np.diag([1.0, 1, -1, 1]),
        np.diag([1.0, 2, 1, 1]),
        np.zeros((4, 4)),
        np.full((4, 4), np.nan),
        np.eye(3),
    ):
        with pytest.raises(InputError, match="similarity"):
            split_similarity(bad)


def test_nearest_rotation_of_a_rounded_one() -> None:
    rotation = se3_exp(np.arange(6) / 3.0)[:3, :3]
    near = nearest_rotation(np.round(rotation, 3))
    np.testing.assert_allclose(near @ near.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(near, rotation, atol=1e-3)


def test_rotation_vectors_are_inverse_to_rotations() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        axis = rng.normal(size=3)
        vector = axis / np.linalg.norm(axis) * rng.uniform(0, np.pi - 1e-6)
        assert so3_log(so3_exp(vector)) == pytest.approx(vector, abs=1e-6)
    half = so3_exp(np.array([0.0, np.pi, 0]))
    assert np.abs(so3_log(half)) == pytest.approx([0, np.pi, 0], abs=1e-6)
