"""The temporal median against its obvious twin, and what it removes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.capture import build_store, open_capture, open_store, temporal_plate
from recon.capture.plate import evenly, lower_median, median_and_mad
from recon.geometry.rig import Rig


@given(st.integers(1, 70), st.integers(0, 2**31), st.sampled_from([np.uint8, np.uint16]))
def test_the_selection_network_finds_the_lower_median(count: int, seed: int, dtype: type) -> None:
    stack = np.random.default_rng(seed).integers(0, 40, (count, 3, 5)).astype(dtype)
    before = stack.copy()
    assert np.array_equal(lower_median(stack), np.sort(stack, axis=0)[(count - 1) // 2])
    assert np.array_equal(stack, before)


def test_median_and_mad_equal_numpys() -> None:
    stack = np.random.default_rng(3).integers(0, 256, (21, 40, 7, 3), dtype=np.uint8)
    median, mad = median_and_mad(stack)
    expected = np.median(stack, axis=0)
    assert np.array_equal(median, expected)
    assert np.allclose(mad, np.median(np.abs(stack - expected).mean(-1), axis=0) / 255, atol=1e-6)


def test_what_moves_is_gone_and_the_store_agrees_with_the_stream(
    record: Callable[..., Path], rig: Rig, tmp_path: Path
) -> None:
    capture = open_capture(record(frames=12), rig)
    median, mad = temporal_plate(capture.cameras["cam00"])
    assert median.dtype == np.uint8
    assert mad.dtype == np.float32
    assert median[22:30, 10:70].max() < 225  # the square is 240
    assert mad.max() < 0.1
    list(build_store(tmp_path / "w", capture, rig.cameras))
    store = open_store(tmp_path / "w", capture, rig.cameras)
    assert store is not None
    again, mad_again = temporal_plate(store, "cam00")
    assert np.array_equal(again, median)
    assert np.array_equal(mad_again, mad)
    with pytest.raises(ValueError, match="camera's name"):
        temporal_plate(store)


@given(st.integers(1, 5000), st.integers(2, 100))
def test_even_samples_span_the_recording(total: int, most: int) -> None:
    chosen = evenly(total, most)
    assert len(chosen) == min(total, most)
    assert chosen[0] == 0
    assert chosen[-1] == total - 1
