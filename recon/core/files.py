"""Files and folders that survive a crash, a full disk or a hostile name.

This is the one place to import file handling from. Single files are handled in
`disk.py`, folders published as a whole in `publish.py`; here is also the way to the
bundled data.
"""

from __future__ import annotations

from pathlib import Path

from recon.core.disk import (
    MAX_JSON_BYTES,
    fsync_path,
    inside,
    parse_toml,
    read_bytes,
    read_json,
    read_toml,
    replacing,
    sha256_file,
    storage_error,
    write_bytes,
    write_json,
    writing,
)
from recon.core.errors import InputError, ReconError, did_you_mean
from recon.core.publish import MANIFEST, locked, publishing, remove_abandoned, verify_folder

__all__ = [
    "MANIFEST",
    "MAX_JSON_BYTES",
    "data_file",
    "data_root",
    "fsync_path",
    "inside",
    "locked",
    "parse_toml",
    "publishing",
    "read_bytes",
    "read_json",
    "read_toml",
    "remove_abandoned",
    "replacing",
    "sha256_file",
    "storage_error",
    "verify_folder",
    "write_bytes",
    "write_json",
    "writing",
]


def data_root() -> Path:
    """Return the folder of bundled data: `recon/_data` when installed, `data/` in the source tree.

    Raises:
        ReconError: Neither exists, so the installation is incomplete.
    """
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data"
    if installed.is_dir():
        return installed
    tree = package.parent / "data"
    if tree.is_dir() and (package.parent / "pyproject.toml").is_file():
        return tree
    raise ReconError("the bundled data is missing", why=f"neither {installed} nor {tree} exists", fix="Install again.")


def data_file(name: str) -> Path:
    """Return the path of a bundled file or folder such as "presets/default.yaml".

    Raises:
        InputError: There is no such file; names what there is.
    """
    root = data_root()
    path = inside(root, name)
    if not path.exists():
        folder = path.parent
        known = [str((folder / p.name).relative_to(root)) for p in folder.iterdir()] if folder.is_dir() else []
        raise InputError(f"no bundled file {name!r}", fix=did_you_mean(name, known))
    return path
