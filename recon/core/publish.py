"""Atomic folders: stage, fsync, manifest, rename, fsync of the parent.

    with publishing(Path("scenes/bench")) as stage:
        write_json(stage / "scene.json", header)

After the block `scenes/bench` holds everything and a `manifest.json`; after an
exception, a kill or a power cut it holds what it held before.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recon.core.disk import (
    abandoned,
    fsync_path,
    inside,
    read_json,
    sha256_file,
    siblings,
    storage_error,
    write_json,
    writing,
)
from recon.core.errors import CorruptError, InputError, UnavailableError, UsageError

MANIFEST = "manifest.json"
_FORMAT = "recon-manifest"
_VERSION = 1


@contextmanager
def publishing(final: Path, overwrite: bool = True) -> Iterator[Path]:
    """Yield a staging folder beside `final`; on success it becomes `final` in one rename.

    A folder already there is exchanged atomically and then removed. Staging folders
    left by processes that died are removed first.

    Args:
        final: The folder to publish; its parents are made.
        overwrite: False refuses an existing `final`.

    Raises:
        UsageError: `final` exists and `overwrite` is False.
        InputError: `final` is a link or a file, or such a thing lies in the staging folder.
        StorageError: The disk is full, read-only or not ours.
    """
    final = Path(os.path.abspath(final))
    if final.is_symlink() or (final.exists() and not final.is_dir()):
        raise InputError(f"cannot publish {final}", why="a link or a file of that name is in the way")
    if final.exists() and not overwrite:
        raise UsageError(f"{final} exists already", fix="Choose another name or remove it.")
    with writing(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        restore_interrupted(final)
        remove_abandoned(final)
        stage, lock = _make_stage(final)
    try:
        yield stage
        with writing(final):
            write_manifest(stage)
            _move_into_place(stage, final)
    except OSError as error:
        if _concerns_writing(error, stage):
            raise storage_error(error, final) from error
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        os.close(lock)


def _concerns_writing(error: OSError, stage: Path) -> bool:
    """Tell a failed write into the staging folder from the caller's other troubles."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
        return True
    return isinstance(error.filename, (str, os.PathLike)) and stage in Path(error.filename).parents


def write_manifest(folder: Path) -> None:
    """Fsync every file below `folder`, then write and fsync its manifest.

    Raises:
        InputError: A link or special file is in the folder.
    """
    files: dict[str, Any] = {}
    for current, names, leaves in os.walk(folder):
        for name in sorted(leaves):
            path = Path(current) / name
            if not stat.S_ISREG(path.lstat().st_mode):
                raise InputError(f"cannot publish {path}", why="only regular files can be published")
            fsync_path(path)
            relative = path.relative_to(folder).as_posix()
            if relative != MANIFEST:
                files[relative] = {"size": path.stat().st_size, "sha256": sha256_file(path)}
        for name in names:
            if (Path(current) / name).is_symlink():
                raise InputError(f"cannot publish {Path(current) / name}", why="links cannot be published")
        names.sort()
        if Path(current) != folder:
            fsync_path(Path(current))
    ordered = {name: files[name] for name in sorted(files)}
    write_json(folder / MANIFEST, {"format": _FORMAT, "version": _VERSION, "files": ordered})


def verify_folder(folder: Path) -> dict[str, str]:
    """Check every file of a published folder against its manifest; return name -> sha256.

    Files that the manifest does not list are ignored.

    Raises:
        InputError: There is no such folder.
        CorruptError: The manifest is missing or unreadable, or a file is missing, has
            another size or another hash; names the file.
    """
    restore_interrupted(folder)
    if not folder.is_dir():
        raise InputError(f"cannot open {folder}", why="no such folder")
    fix = "Restore the folder from a copy or make it again."
    if not (folder / MANIFEST).is_file():
        raise CorruptError(f"{folder} is not complete", why=f"it has no {MANIFEST}", fix=fix)
    try:
        entries = _manifest_entries(read_json(folder / MANIFEST))
        for name, (size, digest) in entries.items():
            path = inside(folder, name)
            if not path.is_file():
                raise CorruptError(f"{folder / name} is damaged", why="the file is missing", fix=fix)
            if path.stat().st_size != size:
                why = f"{path.stat().st_size} bytes where the manifest says {size}"
                raise CorruptError(f"{folder / name} is damaged", why=why, fix=fix)
            if sha256_file(path) != digest:
                raise CorruptError(f"{folder / name} is damaged", why="its sha256 differs from the manifest", fix=fix)
    except InputError as error:
        raise CorruptError(f"{folder / MANIFEST} is damaged", why=str(error), fix=fix) from error
    except OSError as error:
        raise CorruptError(f"{folder} cannot be read", why=str(error), fix=fix) from error
    return {name: digest for name, (_, digest) in entries.items()}


def _manifest_entries(data: Any) -> dict[str, tuple[int, str]]:
    """Return name -> (size, sha256) after checking the manifest's schema."""
    if not isinstance(data, dict) or data.get("format") != _FORMAT or not isinstance(data.get("files"), dict):
        raise InputError("not a manifest", why=f'"format" must be "{_FORMAT}" with a "files" table')
    if data.get("version") != _VERSION:
        raise InputError("unknown manifest", why=f"version {data.get('version')!r}, this program knows {_VERSION}")
    entries: dict[str, tuple[int, str]] = {}
    for name, entry in data["files"].items():
        size = entry.get("size") if isinstance(entry, dict) else None
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if not isinstance(size, int) or not isinstance(digest, str):
            raise InputError("not a manifest", why=f"entry {name!r} needs size and sha256")
        entries[name] = (size, digest)
    return entries


def _make_stage(final: Path) -> tuple[Path, int]:
    """Make a staging folder and lock it; the lock tells others that its owner is alive."""
    while True:
        stage = final.with_name(f".{final.name}.stage-{secrets.token_hex(6)}")
        stage.mkdir()
        lock = os.open(stage, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stage.is_dir():  # nobody took it for abandoned between mkdir and lock
            return stage, lock
        os.close(lock)


def remove_abandoned(final: Path) -> list[Path]:
    """Remove staging and replaced folders of `final` whose process is gone; return them."""
    removed = []
    for folder in siblings(final, ".stage-*") + siblings(final, ".old-*"):
        with abandoned(folder) as free:
            if free:
                shutil.rmtree(folder)
                removed.append(folder)
    return removed


def _move_into_place(stage: Path, final: Path) -> None:
    """Rename `stage` to `final`, exchanging it with a folder that is already there."""
    if not final.exists():
        os.rename(stage, final)
    elif not _exchange(stage, final):
        # No atomic exchange here: between the two renames only the old name is missing,
        # and restore_interrupted() puts it back if we die there.
        old = final.with_name(f".{final.name}.old-{secrets.token_hex(6)}")
        os.rename(final, old)
        os.rename(stage, final)
        shutil.rmtree(old, ignore_errors=True)
    fsync_path(final.parent)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names atomically (Linux renameat2); False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    at_cwd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(b))


def restore_interrupted(final: Path) -> None:
    """Put back the previous folder if a process died between the two renames of a replacement."""
    if final.exists() or not final.parent.is_dir():
        return
    old = sorted(siblings(final, ".old-*"), key=lambda path: path.stat().st_mtime)
    if old:
        with writing(final):
            os.rename(old[-1], final)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; the system frees it when the process ends, however it ends.

    Raises:
        UnavailableError: Another process holds it; names that process.
        StorageError: The folder cannot be written.
    """
    path = folder / ".lock"
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 64, 0).decode(errors="replace").strip() or "unknown"
            fix = "Wait for it or choose another output folder."
            raise UnavailableError(f"{folder} is in use", why=f"by process {owner}", fix=fix) from error
        with writing(path):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        yield
    finally:
        os.close(lock)
