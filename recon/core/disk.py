"""One file at a time: bounded reads, atomic writes, names that stay in their folder.

Everything here is imported from `recon.core.files`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from recon.core.errors import InputError, StorageError

if sys.version_info >= (3, 11):
    import tomllib  # device-lint: allow M11 (tomli is the same on Python 3.10)
else:
    import tomli as tomllib

MAX_TOML_BYTES = 2**20
MAX_JSON_BYTES = 64 * 2**20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}


def storage_error(error: OSError, path: Path) -> StorageError:
    """Return the StorageError that explains why `path` could not be written."""
    why = error.strerror or str(error)
    if error.errno in _FULL:
        fix = "Free some space there or choose another output folder; what was complete before is untouched."
        return StorageError(f"cannot write {path}", why=f"no room left ({why})", fix=fix)
    if error.errno in _FORBIDDEN:
        fix = "Choose an output folder that you may write to."
        return StorageError(f"cannot write {path}", why=f"read-only or not permitted ({why})", fix=fix)
    return StorageError(f"cannot write {path}", why=why)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn any OSError inside the block into a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def sha256_file(path: Path) -> str:
    """Return the hex sha256 of a file, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def fsync_path(path: Path) -> None:
    """Flush a file or a folder to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inside(root: Path, relative: str | Path) -> Path:
    """Return `root / relative`, resolved, after proving that it stays in `root`.

    Raises:
        InputError: The name is absolute, empty, has `..` or odd characters, or a
            symlink on the way leads out of `root`.
    """
    text = str(relative)
    fix = "Names inside a folder must be relative and stay in it."
    parts = PurePosixPath(text).parts
    if not parts or text.startswith("/") or ".." in parts or "\0" in text or "\\" in text:
        raise InputError(f"refusing the file name {text!r} in {root}", why="it may lead outside the folder", fix=fix)
    try:
        base = root.resolve()
        target = (base / text).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: symlink loop before Python 3.13
        raise InputError(f"cannot follow {text!r} in {root}", why=str(error), fix=fix) from error
    if target != base and base not in target.parents:
        raise InputError(f"refusing the file name {text!r} in {root}", why="a link leads outside the folder", fix=fix)
    return target


@contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """Tell whether nobody is writing `path`: its writer would hold a lock, and locks die with their process."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield False  # somebody else removed it
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    try:
        yield free
    finally:
        os.close(lock)


def siblings(path: Path, suffix: str) -> list[Path]:
    """Return the working files or folders `.<name><suffix>` beside `path`; `suffix` may hold stars."""
    name = "".join(f"[{c}]" if c in "*?[" else c for c in path.name)
    return list(path.parent.glob(f".{name}{suffix}"))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data` atomically: temporary file, fsync, rename, fsync of the folder.

    Temporary files left by processes that died are removed.

    Raises:
        StorageError: The file cannot be written; what was there is untouched.
    """
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write piece by piece; it replaces `path` atomically when the block ends well.

    Raises:
        StorageError: The file cannot be written; what was there is untouched.
    """
    with writing(path):
        for leftover in siblings(path, ".*.tmp"):
            with abandoned(leftover) if not leftover.is_symlink() else nullcontext(True) as free:
                if free:
                    leftover.unlink(missing_ok=True)
        temporary, file = _make_temporary(path)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_path(path.parent)


def _make_temporary(path: Path) -> tuple[Path, BinaryIO]:
    """Make a new locked file beside `path`, never through a link."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:  # nobody took it for abandoned between open and lock
            return temporary, os.fdopen(descriptor, "wb")
        os.close(descriptor)


def write_json(path: Path, obj: Any) -> None:
    """Write `obj` as indented JSON, atomically. numpy arrays and scalars and paths are allowed.

    Raises:
        InputError: `obj` holds NaN, Inf or something JSON cannot express.
        StorageError: The file cannot be written.
    """
    try:
        text = json.dumps(obj, indent=2, allow_nan=False, default=_json_value)
    except (ValueError, TypeError) as error:
        raise InputError(f"cannot write {path} as JSON", why=str(error)) from error
    write_bytes(path, (text + "\n").encode())


def _json_value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch, arrays and scalars
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file of at most `max_bytes`.

    Raises:
        InputError: Missing, not a regular file, unreadable or too large.
    """
    try:
        if not path.is_file():
            raise InputError(f"cannot read {path}", why="no such file" if not path.exists() else "not a regular file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, max_bytes) + 1)  # not more than is there: read() takes that memory at once
    except OSError as error:
        raise InputError(f"cannot read {path}", why=error.strerror or str(error)) from error
    if len(data) > max_bytes:
        raise InputError(f"refusing to read {path}", why=f"larger than {max_bytes / 2**20:g} MiB")
    return data


def read_toml(path: Path, max_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """Read TOML: UTF-8, bounded size.

    Raises:
        InputError: The file is missing, too large or not TOML; names the file.
    """
    try:
        return parse_toml(read_bytes(path, max_bytes).decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid TOML", why=str(error)) from error


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """TOML from text; `where` names it in the InputError when it is none."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not valid TOML", why=str(error)) from error


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read strict JSON: UTF-8, no NaN or Inf, no repeated keys, bounded size and depth.

    Raises:
        InputError: The file is missing, too large or not such JSON; names file and line.
    """
    data = read_bytes(path, max_bytes)
    try:
        return json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            object_pairs_hook=_unique_keys,
        )
    except json.JSONDecodeError as error:
        why = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise InputError(f"{path} is not valid JSON", why=why) from error
    except RecursionError as error:
        raise InputError(f"{path} is not valid JSON", why="nested too deeply") from error
    except ValueError as error:  # UnicodeDecodeError and our own refusals
        raise InputError(f"{path} is not valid JSON", why=str(error)) from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} does not fit a number")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
    return result
