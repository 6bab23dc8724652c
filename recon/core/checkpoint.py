"""Checkpoints that a kill at any instant cannot lose.

    root/step_000001200/  tensors.safetensors  state.json  manifest.json
    root/latest           the newest folder's name, for people; loading does not trust it

Each step is published as a folder (see `publish.py`) and read back before an older
one is removed. Loading verifies hashes and walks back to the newest valid step.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.core.disk import read_json, write_bytes, write_json
from recon.core.errors import CorruptError, InputError, UsageError
from recon.core.publish import publishing, remove_abandoned, verify_folder
from recon.core.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    import torch

_STEP_NAME = re.compile(r"step_(\d{9,18})")


@dataclass(frozen=True)
class Checkpoint:
    """One saved step: CPU tensors by name and a JSON state.

    `skipped` says which newer checkpoints were damaged and why; show it to the person.
    """

    step: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]
    skipped: tuple[str, ...] = ()


def save_checkpoint(
    root: Path, step: int, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any], keep: int = 2
) -> Path:
    """Publish a checkpoint, verify it, then remove all but the newest `keep`.

    Args:
        root: Folder of the run's checkpoints; made if missing.
        step: Step number, 0 or more; a checkpoint of that step is replaced.
        tensors: Tensors on any device; stored as CPU tensors.
        state: JSON values (no NaN).
        keep: How many valid checkpoints remain, at least 1.

    Returns:
        The checkpoint's folder.

    Raises:
        UsageError: `step` is negative or `keep` below 1.
        StorageError: It could not be written; the earlier ones are untouched.
    """
    if step < 0 or keep < 1:
        raise UsageError(f"cannot save a checkpoint of step {step} keeping {keep}", why="step >= 0 and keep >= 1")
    folder = root / f"step_{step:09d}"
    with publishing(folder) as stage:
        write_tensors(stage / "tensors.safetensors", tensors)
        write_json(stage / "state.json", {"format": "recon-checkpoint", "version": 1, "step": step, "state": state})
    verify_folder(folder)
    write_bytes(root / "latest", f"{folder.name}\n".encode())
    _prune(root, step, keep)
    return folder


def latest_checkpoint(root: Path) -> Checkpoint | None:
    """Return the newest checkpoint whose every byte is as written, or None if there is none.

    Damaged ones are left in place and named in the result's `skipped`.

    Raises:
        CorruptError: There are checkpoints, but none is valid.
    """
    skipped: list[str] = []
    for folder in _folders(root):
        try:
            return _load(folder, tuple(skipped))
        except (CorruptError, InputError) as error:
            skipped.append(str(error))
    if skipped:
        fix = "Remove the folder to start again."
        raise CorruptError(f"no valid checkpoint in {root}", why="; ".join(skipped), fix=fix)
    return None


def _load(folder: Path, skipped: tuple[str, ...]) -> Checkpoint:
    verify_folder(folder)
    header = read_json(folder / "state.json")
    if not isinstance(header, dict) or header.get("format") != "recon-checkpoint":
        raise InputError(f"{folder / 'state.json'} is not a checkpoint")
    if header.get("version") != 1:
        raise InputError(f"{folder} has an unknown version", why=f"{header.get('version')!r}, this program knows 1")
    step, state = header.get("step"), header.get("state")
    if not isinstance(step, int) or not isinstance(state, dict):
        raise InputError(f"{folder / 'state.json'} is not a checkpoint", why="it needs an integer step and a state")
    return Checkpoint(step, read_tensors(folder / "tensors.safetensors"), state, skipped)


def _folders(root: Path) -> list[Path]:
    """Checkpoint folders below `root`, newest step first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if _STEP_NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.split("_")[1]), reverse=True)


def _prune(root: Path, step: int, keep: int) -> None:
    """Remove older checkpoints beyond `keep`; newer ones (of an abandoned branch) go as well.

    After falling back from a damaged step the run continues from an older one. What is
    numbered higher than the step just saved belongs to that abandoned past.
    """
    folders = _folders(root)
    newer = [folder for folder in folders if int(folder.name.split("_")[1]) > step]
    kept = [folder for folder in folders if folder not in newer]
    for folder in [*newer, *kept[keep:]]:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in kept[:keep]:
        remove_abandoned(folder)
