"""Hints on bodies: what is read, and what is refused with its place named."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.core.errors import ReconError
from recon.objects.hints import read_hints


def test_names_seeds_and_times_are_read(tmp_path: Path) -> None:
    file = tmp_path / "bodies.yaml"
    file.write_text("bodies:\n- name: cube\n  seed: [0.1, 0.2, 0]\n  time: 2.5\n- {name: box, seed: [0, 0, 0.1]}\n")
    cube, box = read_hints(file)
    assert (cube.name, cube.seed.tolist(), cube.time) == ("cube", [0.1, 0.2, 0.0], 2.5)
    assert (box.name, box.time) == ("box", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("things: []", "no list 'bodies'"),
        ("bodies: 3", "no list 'bodies'"),
        ("bodies: []\nmore: 1", "unknown field 'more'"),
        ("bodies: [cube]", r"bodies\[0\] is not a body"),
        ("bodies:\n- {name: a, seed: [0, 0, 0], sede: 1}", "unknown field 'sede'"),
        ("bodies:\n- {seed: [0, 0, 0]}", r"bodies\[0\]: name"),
        ("bodies:\n- {name: a, seed: [0, 0]}", "three numbers"),
        ("bodies:\n- {name: a, seed: [0, 0, .nan]}", "three numbers"),
        ("bodies:\n- {name: a, seed: [0, 0, 0], time: soon}", "number, seconds"),
        ("bodies:\n- {name: a, seed: [0, 0, 0]}\n- {name: a, seed: [0, 0, 1]}", "listed twice"),
        ("bodies: [\n", "bodies.yaml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bodies.yaml"
    file.write_text(text)
    with pytest.raises(ReconError, match=said):
        read_hints(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReconError, match="none.yaml"):
        read_hints(tmp_path / "none.yaml")
