"""Checkpoints and tensor files: nothing is lost to a kill, nothing damaged is used."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from recon.core.checkpoint import latest_checkpoint, save_checkpoint
from recon.core.errors import CorruptError, InputError, UsageError
from recon.core.tensors import read_tensors, write_tensors
from tests.recon.core.child import killed_at, left_over, outcome

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
]  # fmt: skip


def save(root: Path, step: int, keep: int = 2) -> None:
    """Save a checkpoint whose every part tells its step."""
    save_checkpoint(root, step, {"w": torch.full((50, 3), float(step), device="cpu")}, {"step": step}, keep)


def load(root: Path) -> int | None:
    """Load the newest valid checkpoint and return the one step that all its parts tell."""
    checkpoint = latest_checkpoint(root)
    if checkpoint is None:
        return None
    assert checkpoint.state == {"step": checkpoint.step}
    assert torch.equal(checkpoint.tensors["w"], torch.full((50, 3), float(checkpoint.step)))
    return checkpoint.step


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "none") is None
    assert latest_checkpoint(tmp_path) is None


def test_the_newest_is_loaded_and_old_ones_go(tmp_path: Path) -> None:
    for step in (0, 10, 200, 3000):
        save(tmp_path, step)
    assert load(tmp_path) == 3000
    assert sorted(os.listdir(tmp_path)) == ["latest", "step_000000200", "step_000003000"]
    assert (tmp_path / "latest").read_text() == "step_000003000\n"


def test_a_step_can_be_saved_again(tmp_path: Path) -> None:
    save(tmp_path, 5)
    save(tmp_path, 5)
    assert load(tmp_path) == 5


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_newest_falls_back_and_says_so(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / "step_000000002" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    assert load(tmp_path) == 1
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None and len(checkpoint.skipped) == 1 and "step_000000002" in checkpoint.skipped[0]


def test_the_pointer_is_not_trusted(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "latest").write_text("../../etc\n")
    assert load(tmp_path) == 1


def test_only_damaged_ones_are_an_error(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "step_000000001" / "manifest.json").unlink()
    with pytest.raises(CorruptError, match="no valid checkpoint"):
        latest_checkpoint(tmp_path)


def test_saving_after_a_fall_back_drops_the_abandoned_branch(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 9)
    (tmp_path / "step_000000009" / "state.json").write_text("{}")
    assert load(tmp_path) == 1
    save(tmp_path, 2)
    assert load(tmp_path) == 2


@pytest.mark.parametrize(("step", "keep"), [(-1, 2), (0, 0)])
def test_senseless_arguments_are_refused(tmp_path: Path, step: int, keep: int) -> None:
    with pytest.raises(UsageError):
        save_checkpoint(tmp_path, step, {}, {}, keep)


def test_a_kill_at_any_file_operation_loses_at_most_the_step_being_saved(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    count = 1
    while killed_at(count, lambda: save(tmp_path, 3)):
        assert load(tmp_path) in (2, 3), f"after a kill at operation {count}"
        count += 1
    assert count > 30
    assert load(tmp_path) == 3


def test_random_kills_never_lose_an_announced_step(tmp_path: Path) -> None:
    rng = random.Random(0)
    begin = time.monotonic()
    save(tmp_path, 1)
    one_save = time.monotonic() - begin
    announced, between = 1, 0
    for _ in range(25):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            step = announced
            while True:
                step += 1
                save(tmp_path, step)
                os.write(writer, f"{step}\n".encode())
        os.close(writer)
        time.sleep(rng.uniform(0.1, 3.0) * one_save)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with os.fdopen(reader, "rb") as file:
            steps = file.read().split()
        announced = int(steps[-1]) if steps else announced
        found = load(tmp_path)
        assert found is not None and found >= announced
        announced = found
        between += bool(left_over(tmp_path))
    assert announced > 1 and between > 0, "no kill came while a checkpoint was being written"
    save(tmp_path, announced + 1)
    assert left_over(tmp_path) == []


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1)

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        save_checkpoint(tmp_path, 2, {"w": torch.zeros(100_000, device="cpu")}, {})

    result = outcome(work)
    assert result.startswith("StorageError") and "no room left" in result
    assert load(tmp_path) == 1
    assert sorted(os.listdir(tmp_path)) == ["latest", "step_000000001"]


@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=5),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=5, max_size=5),
    seed=st.integers(0, 2**31),
)
def test_tensors_come_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[list[int]], dtypes: list[torch.dtype], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        f"t{i}": torch.randint(0, 2, shape, generator=generator).to(dtype)
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=False))
    }
    path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    write_tensors(path, tensors, {"unit": "m"})
    for loaded in (read_tensors(path), load_file(path)):  # ours, and the official reader
        assert loaded.keys() == tensors.keys()
        assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
        assert all(loaded[name].dtype == tensors[name].dtype for name in tensors)


def test_files_of_the_official_writer_are_read(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(4, 3), "b": torch.arange(5)}
    save_file(tensors, tmp_path / "x.safetensors")
    assert torch.equal(read_tensors(tmp_path / "x.safetensors")["a"], tensors["a"])


def test_views_and_strides_are_stored_by_value(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    write_tensors(tmp_path / "x", {"t": base.T, "row": base[1], "grad": base.clone().requires_grad_()})
    loaded = read_tensors(tmp_path / "x")
    assert torch.equal(loaded["t"], base.T) and torch.equal(loaded["row"], base[1])


def test_equal_tensors_make_equal_bytes(tmp_path: Path) -> None:
    a, b = torch.ones(3), torch.zeros(2, dtype=torch.uint8)
    write_tensors(tmp_path / "x", {"a": a, "b": b})
    write_tensors(tmp_path / "y", {"b": b, "a": a})
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="complex64"):
        write_tensors(tmp_path / "x", {"a": torch.zeros(1, dtype=torch.complex64)})


@given(cut=st.integers(0, 200), data=st.binary(max_size=60))
def test_garbage_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int, data: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / "x.safetensors"
    write_tensors(path, {"a": torch.ones(9)})
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] + data)
    if path.read_bytes() != whole:
        try:
            read_tensors(path)
        except InputError as error:
            assert "x.safetensors" in str(error)


def test_a_large_or_missing_file_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"a": torch.ones(1000)})
    with pytest.raises(InputError, match="larger"):
        read_tensors(tmp_path / "x", max_bytes=1000)
    with pytest.raises(InputError, match="no such file"):
        read_tensors(tmp_path / "y")
