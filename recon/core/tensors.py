"""Named tensors on disk: safetensors, no pickle, always from and to the CPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.core.disk import writing
from recon.core.errors import InputError

if TYPE_CHECKING:
    import torch

# safetensors names of the element types we write
_DTYPE_NAMES = {
    "torch.float64": "F64",
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.int16": "I16",
    "torch.int8": "I8",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file and fsync it; the same tensors give the same bytes.

    We write the format ourselves so that a full disk is an OSError with its reason and
    no second copy of the data is made. Layout: u64 header length, JSON header padded to
    8 bytes, raw little-endian data in the order of the (sorted) names.

    Raises:
        InputError: An element type that the format does not have.
        StorageError: The file cannot be written.
    """
    import torch

    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    flat: list[torch.Tensor] = []
    offset = 0
    # Wide types first keeps every tensor aligned to its element size.
    for name in sorted(tensors, key=lambda n: (-tensors[n].element_size(), n)):
        tensor = tensors[name].detach().to("cpu").contiguous()
        dtype = _DTYPE_NAMES.get(str(tensor.dtype))
        if dtype is None:
            raise InputError(f"cannot store tensor {name!r}", why=f"{tensor.dtype} has no place in the format")
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
        flat.append(tensor.reshape(-1).view(torch.uint8) if size else torch.empty(0, dtype=torch.uint8, device="cpu"))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with writing(path), path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for part in flat:
            file.write(part.numpy().data)
        file.flush()
        os.fsync(file.fileno())


def read_tensors(path: Path, max_bytes: int = 16 * 2**30) -> dict[str, torch.Tensor]:
    """Read a safetensors file into CPU tensors that own their memory.

    Raises:
        InputError: Missing, too large, or not a valid safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"cannot read {path}", why="no such file")
    if path.stat().st_size > max_bytes:
        raise InputError(f"refusing to read {path}", why=f"larger than {max_bytes / 2**30:g} GiB")
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a valid safetensors file", why=str(error)) from error
