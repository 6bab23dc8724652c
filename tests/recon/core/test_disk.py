"""Single files: strict bounded reading, atomic writing, names that stay inside."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.core import files
from recon.core.errors import InputError, ReconError
from recon.core.files import data_file, data_root, inside, read_bytes, read_json, sha256_file, write_bytes, write_json
from tests.recon.core.child import become_nobody, killed_at, left_over, outcome

finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=10)  # each one waits for the disk
@given(value=st.lists(plain, max_size=20))
def test_json_comes_back_as_it_went(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("json") / "x.json"
    write_json(path, value)
    assert read_json(path) == value


def test_numpy_and_paths_have_a_json_form(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": np.arange(3), "b": np.float32(0.5), "p": Path("a/b")})
    assert read_json(tmp_path / "x.json") == {"a": [0, 1, 2], "b": 0.5, "p": "a/b"}


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": np.array([np.nan])}, object()])
def test_what_json_cannot_hold_is_not_written(tmp_path: Path, value: object) -> None:
    with pytest.raises(InputError, match=r"x\.json"):
        write_json(tmp_path / "x.json", value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "line 1"),
        (b'{\n "a": 1,\n "b" 2}', "line 3"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b"[-Infinity]", "not a number"),
        (b"[1e999]", "does not fit"),
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b"\xff\xfe", "utf-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_json_is_refused_with_its_reason(tmp_path: Path, text: bytes, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"x\.json.*not valid JSON") as caught:
        read_json(path)
    assert reason in str(caught.value)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps("x" * 100))
    with pytest.raises(InputError, match="larger than"):
        read_json(tmp_path / "x.json", max_bytes=50)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    for name, reason in (("pipe", "not a regular file"), (".", "not a regular file"), ("none", "no such file")):
        with pytest.raises(InputError, match=reason):
            read_bytes(tmp_path / name, 100)


def test_a_kill_while_writing_leaves_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_bytes(path, b"old")
    step = 1
    while killed_at(step, lambda: write_bytes(path, b"new")):
        assert path.read_bytes() in (b"old", b"new")
        step += 1
    assert step > 4 and path.read_bytes() == b"new"


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".x.planted.tmp").symlink_to(victim)
    (tmp_path / "x").symlink_to(victim)
    write_bytes(tmp_path / "x", b"new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "x").read_bytes() == b"new" and not (tmp_path / "x").is_symlink()


def test_a_forbidden_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)

    def work() -> None:
        become_nobody()
        write_json(tmp_path / "x.json", {})

    result = outcome(work)
    tmp_path.chmod(0o755)
    assert result.startswith("StorageError") and "x.json" in result and "not permitted" in result
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "", ".", "a\\..\\x", "a\0b", "a/.."])
def test_names_that_may_leave_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="refusing the file name"):
        inside(tmp_path, name)


def test_links_that_leave_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("s")
    (root / "file").symlink_to("../secret")
    (root / "up").symlink_to("..")
    (root / "chain").symlink_to("up")
    for name in ("file", "up/secret", "chain/secret", "chain"):
        with pytest.raises(InputError, match="leads outside"):
            inside(root, name)


def test_a_circle_of_links_is_refused_or_harmless(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    try:
        found = inside(tmp_path, "a")
    except InputError:
        return
    assert tmp_path.resolve() in found.parents and not found.exists()


def test_names_and_links_that_stay_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert inside(tmp_path, "new/file.bin") == tmp_path.resolve() / "new" / "file.bin"
    assert inside(tmp_path, "link/x") == tmp_path.resolve() / "real" / "x"


@given(name=st.text(max_size=30))
def test_no_name_leaves_the_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("root")
    try:
        found = inside(root, name)
    except InputError:
        return
    assert root.resolve() in found.parents


def test_sha256_is_the_standard_one(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256_file(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_bundled_data_is_found_and_a_wrong_name_is_answered() -> None:
    assert data_root().is_dir()
    known = next(path for path in sorted(data_root().iterdir()) if not path.name.startswith("."))
    assert data_file(known.name) == known.resolve()
    with pytest.raises(InputError, match=f"Did you mean {known.name!r}"):
        data_file(known.name + "x")
    with pytest.raises(InputError, match="refusing"):
        data_file("../pyproject.toml")


def test_bundled_data_is_found_in_a_wheel_and_in_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "__file__", str(tmp_path / "recon" / "core" / "files.py"))
    (tmp_path / "data").mkdir()  # a stranger's folder: no project file beside it
    with pytest.raises(ReconError, match="bundled data is missing"):
        data_root()
    (tmp_path / "pyproject.toml").touch()
    assert data_root() == tmp_path.resolve() / "data"
    (tmp_path / "recon" / "_data").mkdir(parents=True)
    assert data_root() == tmp_path.resolve() / "recon" / "_data"
