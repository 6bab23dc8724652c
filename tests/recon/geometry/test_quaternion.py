from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recon.geometry.quaternion import (
    matrix_to_quat,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_slerp,
    quat_to_matrix,
)

numbers = st.floats(-1, 1, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
quats = arrays(np.float64, 4, elements=numbers).filter(lambda q: np.linalg.norm(q) > 1e-2)
vectors = arrays(np.float64, 3, elements=st.floats(-10, 10))
IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])


def same_rotation(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(quat_to_matrix(a), quat_to_matrix(b), atol=1e-12))


def conjugate(q: np.ndarray) -> np.ndarray:
    return q * [1, -1, -1, -1]


@given(quats, quats, quats)
def test_unit_quaternions_are_a_group(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    a, b, c = quat_normalize(a), quat_normalize(b), quat_normalize(c)
    np.testing.assert_allclose(quat_multiply(quat_multiply(a, b), c), quat_multiply(a, quat_multiply(b, c)), atol=1e-14)
    np.testing.assert_allclose(quat_multiply(a, IDENTITY), a)
    np.testing.assert_allclose(quat_multiply(IDENTITY, a), a)
    np.testing.assert_allclose(quat_multiply(a, conjugate(a)), IDENTITY, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(quat_multiply(a, b)), 1)


@given(quats, quats, vectors)
def test_matrices_follow_the_product(a: np.ndarray, b: np.ndarray, v: np.ndarray) -> None:
    together = quat_to_matrix(quat_multiply(a, b))
    np.testing.assert_allclose(together, quat_to_matrix(a) @ quat_to_matrix(b), atol=1e-13)
    np.testing.assert_allclose(together @ together.T, np.eye(3), atol=1e-13)
    assert np.linalg.det(together) == pytest.approx(1)
    np.testing.assert_allclose(quat_rotate(a, v), quat_to_matrix(a) @ v, atol=1e-12)


@given(quats)
def test_matrix_round_trip_and_sign(q: np.ndarray) -> None:
    back = matrix_to_quat(quat_to_matrix(q))
    assert back[0] >= 0
    assert same_rotation(back, q)


def test_half_turns_where_one_formula_would_divide_by_zero() -> None:
    for axis in np.eye(3):
        q = np.concatenate([[0.0], axis])
        assert same_rotation(matrix_to_quat(quat_to_matrix(q)), q)


def test_quarter_turn_about_z_takes_x_to_y() -> None:
    q = np.array([np.cos(np.pi / 4), 0, 0, np.sin(np.pi / 4)])
    np.testing.assert_allclose(quat_rotate(q, np.array([1.0, 0, 0])), [0, 1, 0], atol=1e-15)


@given(quats, quats, st.floats(0, 1))
def test_slerp_turns_at_constant_speed(a: np.ndarray, b: np.ndarray, w: float) -> None:
    def angle(p: np.ndarray, q: np.ndarray) -> float:
        return 2 * np.arctan2(np.linalg.norm(quat_multiply(conjugate(p), q)[1:]), abs(p @ q))

    a, b = quat_normalize(a), quat_normalize(b)
    middle = quat_slerp(a, b, w)
    assert angle(a, middle) == pytest.approx(w * angle(a, b), abs=2e-5)
    assert same_rotation(quat_slerp(a, b, 0.0), a)
    assert same_rotation(quat_slerp(a, b, 1.0), b)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_numpy_and_torch_agree_for_any_batch_shape(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b, v = rng.normal(size=(*shape, 4)), rng.normal(size=(*shape, 4)), rng.normal(size=(*shape, 3))
    w = rng.uniform(size=shape) if shape else 0.3
    ta, tb, tv = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(v)
    tw = torch.from_numpy(w) if shape else 0.3
    pairs = [
        (quat_normalize(a), quat_normalize(ta)),
        (quat_multiply(a, b), quat_multiply(ta, tb)),
        (quat_to_matrix(a), quat_to_matrix(ta)),
        (matrix_to_quat(quat_to_matrix(a)), matrix_to_quat(quat_to_matrix(ta))),
        (quat_rotate(a, v), quat_rotate(ta, tv)),
        (quat_slerp(a, b, w), quat_slerp(ta, tb, tw)),
    ]
    for ours, theirs in pairs:
        assert isinstance(theirs, torch.Tensor)
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_quaternion_is_no_rotation_with_finite_gradients(dtype: torch.dtype) -> None:
    q = torch.zeros(4, dtype=dtype, requires_grad=True)
    matrix = quat_to_matrix(q)
    assert torch.equal(matrix, torch.eye(3, dtype=dtype))
    matrix.sum().backward()
    assert q.grad is not None
    assert torch.isfinite(q.grad).all()


def test_gradients() -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    b.data[0] = a.data[0]  # the straight branch of slerp
    assert torch.autograd.gradcheck(quat_to_matrix, (a,))
    assert torch.autograd.gradcheck(lambda x, y: quat_slerp(x, y, 0.3), (a, b))
    assert torch.autograd.gradcheck(lambda x: matrix_to_quat(quat_to_matrix(x)), (a,))
