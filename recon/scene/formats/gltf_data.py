"""The data of a glTF file: its JSON, its buffers, and numbers out of them, all bounds proven first."""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from recon.core.errors import InputError
from recon.core.files import inside, read_bytes
from recon.scene.formats.gltf import BIN_CHUNK, JSON_CHUNK, KIND, MAGIC, WIDTHS
from recon.scene.formats.json_text import parse_json
from recon.scene.formats.splats import blocks, unreadable

MAX_JSON = 256 * 2**20  # bytes; a .gltf may hold its buffers in it
MAX_BUFFER = 4 * 2**30
# componentType -> number type, what a normalised one is divided by
TYPES = {
    5120: ("<i1", 127.0), 5121: ("<u1", 255.0), 5122: ("<i2", 32767.0), 5123: ("<u2", 65535.0), 5125: ("<u4", 1.0),
    5126: ("<f4", 1.0),
}  # fmt: skip
FLOATS, INTEGERS = 5126, 5125


@dataclass(frozen=True)
class Buffers:
    """A document and its buffers. size: bytes of all files together."""

    path: Path
    top: dict[str, Any]
    buffers: tuple[np.ndarray, ...]
    size: int

    def entry(self, name: str, index: Any) -> dict[str, Any]:
        """The object number `index` of the top-level list `name`."""
        entries = self.top.get(name)
        if type(index) is not int or not isinstance(entries, list) or not 0 <= index < len(entries):
            raise unreadable(self.path, KIND, f"it names number {str(index)[:20]} of its {name}, which it has not")
        if not isinstance(entries[index], dict):
            raise unreadable(self.path, KIND, f"number {index} of its {name} is not an object")
        entry: dict[str, Any] = entries[index]
        return entry

    def floats(self, accessor: Any, kind: str, label: str) -> np.ndarray:
        """float32 [N, width] ([N] of a SCALAR) of an accessor of that type."""
        entry = self.entry("accessors", accessor)
        component = entry.get("componentType")
        if entry.get("type") != kind or component not in TYPES:
            text = f"{str(entry.get('type'))[:20]} of type {str(component)[:20]}"
            raise unreadable(self.path, KIND, f"{label} are {text}, {kind} is wanted")
        if "sparse" in entry or "bufferView" not in entry:
            raise unreadable(self.path, KIND, f"{label} are sparse, which is not read")
        form, top = TYPES[component]
        width, count = WIDTHS[kind], _whole(entry.get("count"))
        item = np.dtype(form).itemsize
        view = self.entry("bufferViews", entry["bufferView"])
        buffer = _whole(view.get("buffer"))
        start, length = _whole(view.get("byteOffset", 0)), _whole(view.get("byteLength"))
        stride, offset = _whole(view.get("byteStride", width * item)), _whole(entry.get("byteOffset", 0))
        if min(count, buffer, start, length, offset) < 0 or count == 0 or stride < width * item:
            raise unreadable(self.path, KIND, f"{label} have a view that cannot be")
        if buffer >= len(self.buffers) or start + length > len(self.buffers[buffer]):
            raise unreadable(self.path, KIND, f"{label} lie outside their buffer")
        if offset + (count - 1) * stride + width * item > length:
            raise unreadable(self.path, KIND, f"{label} declare {count} entries, more than their view holds")
        raw = self.buffers[buffer][start + offset : start + offset + (count - 1) * stride + width * item]
        # Rows may lie at any byte, so they are copied, a bounded number at once.
        values = np.empty((count, width), np.float32)
        for rows in blocks(count):
            piece = raw[rows.start * stride : (rows.stop - 1) * stride + width * item].tobytes()
            values[rows] = np.ndarray((rows.stop - rows.start, width), form, piece, 0, (stride, item))
        if entry.get("normalized") is True and component not in (FLOATS, INTEGERS):
            values = np.maximum(values / np.float32(top), np.float32(-1.0))
        return values[:, 0] if width == 1 else values


def open_gltf(path: Path) -> tuple[dict[str, Any], Buffers]:
    """(document, its buffers); InputError for anything that is no glTF 2.0 file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(12)
            if len(head) == 12 and struct.unpack("<I", head[:4])[0] == MAGIC:
                top, binary = _binary(path, file, head, size)
            else:
                top, binary = parse_json(read_bytes(path, MAX_JSON), path, KIND), None
    except OSError as error:
        raise unreadable(path, KIND, error.strerror or str(error)) from error
    asset = top.get("asset")
    if not isinstance(asset, dict) or not str(asset.get("version", "")).startswith("2."):
        raise unreadable(path, KIND, "it does not say that it is glTF 2")
    required = top.get("extensionsRequired", [])
    unknown = [name for name in required if name != "KHR_gaussian_splatting"] if isinstance(required, list) else []
    if unknown:
        raise unreadable(path, KIND, f"it requires the extension {str(unknown[0])[:60]}, which is not read")
    listed = top.get("buffers", [])
    if not isinstance(listed, list) or len(listed) > 64:
        raise unreadable(path, KIND, "its list of buffers cannot be")
    buffers = [_buffer(path, k, entry, binary) for k, entry in enumerate(listed)]
    return top, Buffers(path, top, tuple(buffers), max(size, sum(map(len, buffers))))


def _binary(path: Path, file: Any, head: bytes, size: int) -> tuple[dict[str, Any], np.ndarray | None]:
    _, version, length = struct.unpack("<III", head)
    if version != 2 or length > size:
        raise unreadable(path, KIND, f"its header says version {version} and {length} bytes, it has {size}")
    start = file.read(8)
    if len(start) < 8:
        raise unreadable(path, KIND, "it ends before its JSON")
    text, kind = struct.unpack("<II", start)
    if kind != JSON_CHUNK or text > min(MAX_JSON, size - 20):
        raise unreadable(path, KIND, "its first chunk is not JSON, or longer than the file")
    top = parse_json(file.read(text), path, KIND)
    start = file.read(8)
    if len(start) < 8:
        return top, None
    held, kind = struct.unpack("<II", start)
    if kind != BIN_CHUNK or held > size - file.tell():
        raise unreadable(path, KIND, "its second chunk is not binary, or longer than the file")
    return top, np.memmap(path, np.uint8, "r", file.tell(), (held,)) if held else np.empty(0, np.uint8)


def _buffer(path: Path, k: int, entry: Any, binary: np.ndarray | None) -> np.ndarray:
    if not isinstance(entry, dict):
        raise unreadable(path, KIND, f"its buffer {k} is not an object")
    length, uri = _whole(entry.get("byteLength")), entry.get("uri")
    if uri is None and k == 0 and binary is not None:
        data = binary
    elif isinstance(uri, str) and uri.startswith("data:"):
        try:
            data = np.frombuffer(base64.b64decode(uri.partition(";base64,")[2], validate=True), np.uint8)
        except binascii.Error as error:
            raise unreadable(path, KIND, f"its buffer {k} is not base64") from error
    elif isinstance(uri, str) and ":" not in uri:
        try:
            data = np.frombuffer(read_bytes(inside(path.parent, unquote(uri)), MAX_BUFFER), np.uint8)
        except InputError as error:
            raise unreadable(path, KIND, f"its buffer {k} cannot be read ({error.what[:100]})") from error
    else:
        raise unreadable(path, KIND, f"its buffer {k} is neither in the file nor beside it")
    if not 0 <= length <= len(data):
        raise unreadable(path, KIND, f"its buffer {k} declares {length} bytes and has {len(data)}")
    return data[:length]


def _whole(value: Any) -> int:
    """The value when it is a whole number that can be one of bytes; -1 otherwise."""
    return value if type(value) is int and 0 <= value < 2**40 else -1
