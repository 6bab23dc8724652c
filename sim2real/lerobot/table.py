"""Parquet <-> numpy, with what a file declares held against what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.core.files import replacing
from sim2real.lerobot.layout import MAX_FRAMES, Feature, numpy_dtype


def open_table(path: Path, columns: Sequence[str] | None = None, max_rows: int = MAX_FRAMES) -> pa.Table:
    """Read a parquet file, all of it or some columns.

    Raises:
        InputError: missing, damaged, longer than `max_rows`, or without one of the columns.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing")
    try:
        with pq.ParquetFile(path) as file:
            known = file.schema_arrow.names
            for name in columns or ():
                if name not in known:
                    raise InputError(f"{path} has no column {name!r}", why=f"it has {', '.join(known)}")
            if file.metadata.num_rows > max_rows:
                raise InputError(f"{path} has {file.metadata.num_rows} rows", why=f"at most {max_rows} were announced")
            return file.read(columns=None if columns is None else list(columns))
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error).split("\n")[0][:160]
        raise InputError(f"{path} cannot be read as parquet", why=why, fix="Copy the file again.") from error


def values(table: pa.Table, feature: Feature, path: Path) -> NDArray[Any]:
    """A column as numpy [rows, *shape].

    Raises:
        InputError: its type or shape is not what info.json says, or a value is missing.
    """
    column: Any = table.column(feature.name).combine_chunks()
    rows, shape = len(column), list(feature.shape)
    found: list[int] = []
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if array.null_count:
            raise InputError(f"{path}: column {feature.name!r} has empty places")
        if not pa.types.is_list(array.type) and not pa.types.is_fixed_size_list(array.type) and not (
            pa.types.is_large_list(array.type)
        ):  # fmt: skip
            break
        outer, array = len(array), array.flatten()
        side = len(array) // max(outer, 1)
        lengths = outer * side == len(array)
        if not lengths:
            side = -1
        found.append(side)
    shaped = found or [1]
    wrong = f"{path}: column {feature.name!r} is {array.type} {shaped}"
    if shaped != shape:
        raise InputError(wrong, why=f"info.json says {feature.dtype} {shape}")
    if array.type != pa.from_numpy_dtype(numpy_dtype(feature)):
        raise InputError(wrong, why=f"info.json says {feature.dtype} {shape}")
    return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(rows, *shape)


def arrow(array: NDArray[Any]) -> pa.Array:
    """numpy [rows, *shape] as a column: plain numbers where one frame has one, else nested fixed lists."""
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    if array.shape[1:] in ((), (1,)):
        return flat
    for side in reversed(array.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, side)
    return flat


def frame_table(columns: Mapping[str, NDArray[Any]]) -> pa.Table:
    """Columns [rows, *shape] as one table."""
    return pa.table({name: arrow(array) for name, array in columns.items()})


def write_table(path: Path, table: pa.Table) -> None:
    """Write a parquet file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        pq.write_table(table, file, compression="snappy")
