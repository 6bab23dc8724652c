"""Unit quaternions with their largest component dropped: what is left is small, and tells it."""

from __future__ import annotations

import math

import numpy as np

_OTHERS = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])  # row k: the components when k is dropped
RANGE = math.sqrt(0.5)  # no component but the largest can be further from zero


def drop_largest(quats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(index [N] of the dropped component, the other three [N, 3] in order) of unit `quats` [N, 4] in any order.

    The sign is the one that makes the dropped component positive.
    """
    index = np.abs(quats).argmax(1)
    rows = np.arange(len(quats))
    positive = np.where(quats[rows, index] < 0, -1, 1).astype(quats.dtype)
    return index, quats[rows[:, None], _OTHERS[index]] * positive[:, None]


def restore_largest(index: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The unit quaternions [N, 4] that `drop_largest` took apart (rounded others may make them slightly longer)."""
    quats = np.empty((len(index), 4), np.float32)
    rows = np.arange(len(index))
    quats[rows[:, None], _OTHERS[index]] = others
    # q_k = sqrt(1 - sum of the other squares)
    quats[rows, index] = np.sqrt(np.maximum(0.0, 1.0 - (others * others).sum(1)))
    return quats
