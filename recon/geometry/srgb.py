"""The sRGB transfer function (IEC 61966-2-1); numbers keep their precision."""

from __future__ import annotations

import numpy as np


def to_linear(encoded: np.ndarray) -> np.ndarray:
    """Linear light of sRGB values in [0, 1], any shape."""
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def to_encoded(linear: np.ndarray) -> np.ndarray:
    """sRGB values of linear light in [0, 1], any shape."""
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * np.maximum(linear, 0.0) ** (1 / 2.4) - 0.055)
