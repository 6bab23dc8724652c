"""The sRGB curve against values of the standard, and against itself."""

from __future__ import annotations

import numpy as np
import pytest

from recon.geometry.srgb import to_encoded, to_linear


def test_known_values() -> None:
    assert to_linear(np.array([0.0, 0.04045, 0.5, 1.0])) == pytest.approx([0, 0.0031308, 0.2140411, 1], abs=1e-7)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_there_and_back_in_the_same_precision(kind: type) -> None:
    values = np.linspace(0, 1, 1001, dtype=kind)
    back = to_encoded(to_linear(values))
    assert back.dtype == kind and np.abs(back - values).max() < (1e-6 if kind is np.float32 else 1e-12) + 1e-8
