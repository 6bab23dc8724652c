"""A published folder is whole, whatever happens while it is written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.core import publish
from recon.core.errors import CorruptError, InputError, StorageError, UnavailableError, UsageError
from recon.core.files import MANIFEST, locked, publishing, verify_folder, write_json
from tests.recon.core.child import become_nobody, killed_at, left_over, outcome


def publish_version(final: Path, version: int, size: int = 1000) -> None:
    """Publish a folder all of whose files tell the same version."""
    with publishing(final) as stage:
        write_json(stage / "header.json", {"version": version})
        (stage / "sub").mkdir()
        (stage / "sub" / "data.bin").write_bytes(bytes([version]) * size)


def read_version(final: Path) -> int:
    """Verify the folder and return the one version that its files tell."""
    assert set(verify_folder(final)) == {"header.json", "sub/data.bin"}
    (version,) = set((final / "sub" / "data.bin").read_bytes())
    assert f'"version": {version}' in (final / "header.json").read_text()
    return version


def test_a_folder_appears_with_its_manifest(tmp_path: Path) -> None:
    publish_version(tmp_path / "deep" / "scene", 1)
    assert read_version(tmp_path / "deep" / "scene") == 1
    assert os.listdir(tmp_path / "deep") == ["scene"]


def test_publishing_again_replaces_the_folder(tmp_path: Path) -> None:
    publish_version(tmp_path / "scene", 1)
    publish_version(tmp_path / "scene", 2)
    assert read_version(tmp_path / "scene") == 2
    assert os.listdir(tmp_path) == ["scene"]


def test_overwrite_false_refuses(tmp_path: Path) -> None:
    publish_version(tmp_path / "scene", 1)
    with pytest.raises(UsageError, match="exists already"), publishing(tmp_path / "scene", overwrite=False):
        pytest.fail("the block must not run")
    assert read_version(tmp_path / "scene") == 1


def test_an_exception_leaves_what_was_there(tmp_path: Path) -> None:
    publish_version(tmp_path / "scene", 1)
    with pytest.raises(RuntimeError, match="no"), publishing(tmp_path / "scene") as stage:
        (stage / "half").write_text("half")
        raise RuntimeError("no")
    assert read_version(tmp_path / "scene") == 1
    assert os.listdir(tmp_path) == ["scene"]


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_a_kill_at_any_file_operation_leaves_old_or_new(
    tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(publish, "_exchange", lambda a, b: False)
    final = tmp_path / "scene"
    publish_version(final, 1)
    steps = 0
    while killed_at(steps + 1, lambda: publish_version(final, 2)):
        steps += 1
        assert read_version(final) in (1, 2), f"after a kill at operation {steps}"
    assert steps > 20
    assert read_version(final) == 2
    publish_version(final, 3)
    assert read_version(final) == 3
    assert left_over(tmp_path) == []


def test_a_kill_while_the_first_version_is_written_leaves_nothing_or_all(tmp_path: Path) -> None:
    final = tmp_path / "scene"
    steps = 0
    while killed_at(steps + 1, lambda: publish_version(final, 2)):
        steps += 1
        if final.exists():
            assert read_version(final) == 2
    assert steps > 15


def test_a_living_writer_is_not_cleaned_away(tmp_path: Path) -> None:
    final = tmp_path / "scene"
    with publishing(final) as stage:
        (stage / "file").write_text("mine")
        assert outcome(lambda: publish_version(final, 1)) == "ok"
        assert (stage / "file").read_text() == "mine"
    assert set(verify_folder(final)) == {"file"}


def test_a_full_disk_is_named_and_costs_nothing(tmp_path: Path) -> None:
    final = tmp_path / "scene"
    publish_version(final, 1)

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        publish_version(final, 2, size=100_000)

    result = outcome(work)
    assert result.startswith("StorageError") and "no room left" in result and "scene" in result
    assert read_version(final) == 1
    assert os.listdir(tmp_path) == ["scene"]


def test_a_full_file_system_is_named_and_costs_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        publish_version(disk / "scene", 1)
        with pytest.raises(StorageError, match="no room left"):
            publish_version(disk / "scene", 2, size=1_000_000)
        assert read_version(disk / "scene") == 1
        assert os.listdir(disk) == ["scene"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    for parent in (tmp_path, *list(tmp_path.parents)[:2]):
        parent.chmod(0o755)

    def work() -> None:
        become_nobody()
        publish_version(folder / "scene", 1)

    result = outcome(work)
    assert result.startswith("StorageError") and "not permitted" in result and str(folder) in result


def test_the_callers_own_troubles_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), publishing(tmp_path / "scene"):
        (tmp_path / "no such input").read_bytes()


@pytest.mark.parametrize("target", ["/etc/passwd", "header.json"])
def test_links_are_not_published(tmp_path: Path, target: str) -> None:
    with pytest.raises(InputError, match="regular files"), publishing(tmp_path / "scene") as stage:
        (stage / "link").symlink_to(target)
    assert os.listdir(tmp_path) == []


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "scene").symlink_to("elsewhere")
    with pytest.raises(InputError, match="in the way"):
        publish_version(tmp_path / "scene", 1)


@given(data=st.data())
def test_a_flipped_bit_never_passes_unseen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    final = tmp_path_factory.mktemp("flip") / "scene"
    publish_version(final, 7, size=64)
    hashes = verify_folder(final)
    name = data.draw(st.sampled_from([*hashes, MANIFEST]))
    content = bytearray((final / name).read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    (final / name).write_bytes(content)
    if name == MANIFEST:
        try:  # a changed blank may still mean the same; nothing else may
            assert verify_folder(final) == hashes
        except CorruptError:
            return
    else:
        with pytest.raises(CorruptError, match=name):
            verify_folder(final)


@given(data=st.data())
def test_a_truncated_file_never_passes_unseen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    final = tmp_path_factory.mktemp("cut") / "scene"
    publish_version(final, 7, size=64)
    name = data.draw(st.sampled_from(["header.json", "sub/data.bin", MANIFEST]))
    content = (final / name).read_bytes()
    (final / name).write_bytes(content[: data.draw(st.integers(0, len(content) - 2))])
    with pytest.raises(CorruptError):
        verify_folder(final)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    publish_version(tmp_path / "scene", 1)
    (tmp_path / "scene" / "header.json").unlink()
    with pytest.raises(CorruptError, match=r"header\.json.*missing"):
        verify_folder(tmp_path / "scene")


def test_a_manifest_may_not_point_outside(tmp_path: Path) -> None:
    publish_version(tmp_path / "scene", 1)
    files = {"../secret": {"size": 1, "sha256": "0"}}
    write_json(tmp_path / "scene" / MANIFEST, {"format": "recon-manifest", "version": 1, "files": files})
    with pytest.raises(CorruptError, match=r"\.\./secret"):
        verify_folder(tmp_path / "scene")


def test_an_unknown_manifest_version_is_refused(tmp_path: Path) -> None:
    publish_version(tmp_path / "scene", 1)
    write_json(tmp_path / "scene" / MANIFEST, {"format": "recon-manifest", "version": 2, "files": {}})
    with pytest.raises(CorruptError, match="version 2"):
        verify_folder(tmp_path / "scene")


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    def work() -> None:
        with locked(tmp_path):
            pytest.fail("both processes hold the folder")

    with locked(tmp_path):
        result = outcome(work)
    assert result.startswith("UnavailableError") and f"process {os.getpid()} on" in result
    with locked(tmp_path):
        pass
    assert UnavailableError.exit_code == 5


def test_a_killed_owner_holds_no_lock(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        with locked(tmp_path):
            time.sleep(60)
        os._exit(0)
    deadline = time.monotonic() + 10
    while not (tmp_path / ".lock").exists() or not (tmp_path / ".lock").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    with pytest.raises(UnavailableError), locked(tmp_path):
        pytest.fail("the other process still holds it")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with locked(tmp_path):
        pass
