"""Observations, states and settings as bytes: a JSON head, then the arrays as they lie in memory. Nothing runs code.

8 bytes   length of the head, little-endian
head      JSON; an array stands there as {"array": [dtype, shape]}, whole numbers as keys as {"numbered": [[k, v], ..]}
arrays    in the order in which the head names them
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from recon.core.errors import CorruptError

LENGTH = 8


def packed(value: Any) -> bytes:
    """The bytes of nested dicts, lists, plain values and arrays."""
    arrays: list[np.ndarray[Any, Any]] = []

    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            arrays.append(np.ascontiguousarray(item))
            return {"array": [item.dtype.str, list(item.shape)]}
        if isinstance(item, np.generic):
            return item.item()
        if isinstance(item, dict):
            if item and all(isinstance(key, int) for key in item):
                return {"numbered": [[key, plain(one)] for key, one in item.items()]}
            return {str(key): plain(one) for key, one in item.items()}
        if isinstance(item, (list, tuple)):
            return [plain(one) for one in item]
        return item

    head = json.dumps(plain(value)).encode()
    return b"".join([len(head).to_bytes(LENGTH, "little"), head, *(array.tobytes() for array in arrays)])


def unpacked(data: bytes) -> Any:
    """What `packed` was given; tuples come back as lists. Raises CorruptError for other bytes."""
    end = LENGTH + int.from_bytes(data[:LENGTH], "little")
    at = end

    def whole(item: Any) -> Any:
        nonlocal at
        if isinstance(item, list):
            return [whole(one) for one in item]
        if not isinstance(item, dict):
            return item
        if item.keys() == {"array"}:
            kind, shape = item["array"]
            dtype = np.dtype(kind)
            count = int(np.prod(shape))
            array = np.frombuffer(data, dtype, count, at).reshape(shape).copy()
            at += count * dtype.itemsize
            return array
        if item.keys() == {"numbered"}:
            return {int(key): whole(one) for key, one in item["numbered"]}
        return {key: whole(one) for key, one in item.items()}

    try:
        return whole(json.loads(data[LENGTH:end]))
    except (ValueError, TypeError) as error:
        raise CorruptError("a message between processes cannot be read", why=str(error)) from error
