from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.damage import TARGETS, fuzz


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_damaged_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    if name == "spz":
        pytest.importorskip("zstandard")
    if name == "usd":
        pytest.importorskip("pxr")
    outcome = fuzz(name, tmp_path, seed=1, files=60 if name in ("gltf", "usd") else 120)
    assert not outcome.failures, outcome.failures[0]
    assert outcome.refused > 15 and outcome.read > 5
