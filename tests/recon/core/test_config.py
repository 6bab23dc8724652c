"""YAML and dataclasses: wrong names are answered with the right ones, values never become code."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.core.config import dump_yaml, from_dict, load_yaml, to_dict
from recon.core.errors import InputError, UsageError


class Backend(enum.Enum):
    """An enumeration in a configuration."""

    CPU = "cpu"
    REFERENCE = "reference"


@dataclass(frozen=True)
class Rates:
    """A nested table."""

    means: float = 1e-3
    colour: float = 2.5e-3


@dataclass(frozen=True)
class Settings:
    """One field of every kind that a configuration may hold."""

    steps: int = 100
    name: str = "default"
    fast: bool = False
    lr: Rates = field(default_factory=Rates)
    size: tuple[int, int] = (640, 480)
    cameras: list[str] = field(default_factory=list)
    times: tuple[float, ...] = ()
    out: Path | None = None
    mode: Literal["train", "eval"] = "train"
    backend: Backend = Backend.CPU
    weights: dict[str, float] = field(default_factory=dict)
    seed: int | None = 0
    extra: Any = None

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError("steps must not be negative")


def load(tmp_path: Path, text: str) -> Settings:
    """Write `text` as a YAML file and read it as Settings."""
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return from_dict(Settings, load_yaml(path))


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=10)
finite = st.floats(allow_nan=False, allow_infinity=False)
settings_values = st.builds(
    Settings,
    steps=st.integers(0, 10**9),
    name=names,
    fast=st.booleans(),
    lr=st.builds(Rates, means=finite, colour=finite),
    size=st.tuples(st.integers(1, 9999), st.integers(1, 9999)),
    cameras=st.lists(names, max_size=3),
    times=st.lists(finite, max_size=3).map(tuple),
    out=st.none() | st.sampled_from([Path("a/b"), Path("/c d")]),
    mode=st.sampled_from(["train", "eval"]),
    backend=st.sampled_from(Backend),
    weights=st.dictionaries(names, finite, max_size=3),
    seed=st.none() | st.integers(),
)


@given(value=settings_values)
def test_a_written_configuration_reads_back_the_same(tmp_path_factory: pytest.TempPathFactory, value: Settings) -> None:
    path = tmp_path_factory.mktemp("config") / "run.yaml"
    path.write_text(dump_yaml(value), encoding="utf-8")
    assert from_dict(Settings, load_yaml(path)) == value
    assert from_dict(Settings, to_dict(value)) == value


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Settings()


def test_scientific_numbers_need_no_point(tmp_path: Path) -> None:
    assert load(tmp_path, "lr: {means: 1e-4, colour: 2}").lr == Rates(1e-4, 2.0)


def test_an_unknown_key_is_answered_with_line_and_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, "steps: 5\nlr:\n  meens: 0.1\n")
    text = str(caught.value)
    assert "unknown key 'lr.meens'" in text and "run.yaml:3" in text and "Did you mean 'means'?" in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("steps: many", "'steps' must be int"),
        ("steps: 1.5", "'steps' must be int"),
        ("steps: true", "'steps' must be int"),
        ("fast: 1", "'fast' must be bool"),
        ("name: 3", "'name' must be str"),
        ("lr: 3", "lr must be a table"),
        ("lr: {means: high}", "'lr.means' must be float"),
        ("size: [640]", "'size' must have 2 entries"),
        ("size: 640", "'size' must be a list"),
        ("cameras: [a, 2]", "'cameras[1]' must be str"),
        ("weights: {a: b}", "'weights.a' must be float"),
        ("mode: trane", "Did you mean 'train'?"),
        ("backend: cpuu", "Did you mean 'cpu'?"),
        ("seed: x", "'seed' must be int"),
        ("steps: -1", "steps must not be negative"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert reason in str(caught.value)


def test_a_missing_key_without_a_default_is_named() -> None:
    @dataclass
    class Needs:
        camera: str

    Needs.__init__.__globals__["Needs"] = Needs
    with pytest.raises(UsageError, match="missing key 'camera'"):
        from_dict(Needs, {})


@pytest.mark.parametrize(
    "text",
    [
        "name: !!python/object/apply:os.system ['touch owned']",
        "name: !!python/name:os.system",
        "_target_: os.system",
        "class_name: os.system",
    ],
)
def test_a_file_cannot_name_code(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        load(tmp_path, text)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &x [1]\nb: *x", "aliases"),
        ("extra: " + "[" * 5000, "nested too deeply"),
        ("steps: 1\nsteps: 2", "appears twice"),
        ("steps: [1", "run.yaml:1"),
        ("1: 2", "is not text"),
        ("- a\n- b", "`key: value`"),
        ("name: 2020-13-45", "run.yaml"),
    ],
)
def test_bad_yaml_is_refused_with_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert reason in str(caught.value)


def test_a_large_or_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_text("#" * (2**20 + 1))
    for name in ("big.yaml", "none.yaml"):
        with pytest.raises(InputError, match=name):
            load_yaml(tmp_path / name)
