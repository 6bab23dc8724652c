"""The header of binary PLY files: elements in order, each with its count and row type."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recon.scene.formats.splats import unreadable

MAX_HEADER = 64 * 1024  # bytes
MAX_PROPERTIES = 512
KIND = "Gaussian PLY"
_TYPES = {
    "char": "i1", "uchar": "u1", "short": "<i2", "ushort": "<u2", "int": "<i4", "uint": "<u4",
    "int8": "i1", "uint8": "u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
    "float": "<f4", "float32": "<f4", "double": "<f8", "float64": "<f8",
}  # fmt: skip


@dataclass
class Element:
    """One table of the file: `count` rows of `row`."""

    name: str
    count: int
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def row(self) -> np.dtype:
        """The row's type, packed as in the file."""
        return np.dtype(list(self.properties.items()))


@dataclass(frozen=True)
class Header:
    """elements: in the file's order. start: offset of the first row. comments: without the word itself."""

    elements: tuple[Element, ...]
    start: int
    comments: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes that a file of this header has."""
        return self.start + sum(element.count * element.row.itemsize for element in self.elements)


def parse_header(path: Path, head: bytes, names: tuple[str, ...]) -> Header:
    """The header at the start of `head`; only elements called `names` are accepted. InputError otherwise."""
    match = re.search(rb"\r?\nend_header\r?\n", head[:MAX_HEADER])
    if not head.startswith((b"ply\n", b"ply\r\n")):
        raise unreadable(path, KIND, "it does not start with 'ply'")
    if match is None:
        raise unreadable(path, KIND, f"its header does not end within {MAX_HEADER // 1024} KiB")
    try:
        lines = head[: match.start()].decode("ascii").splitlines()[1:]
    except UnicodeDecodeError as error:
        raise unreadable(path, KIND, "its header is not ASCII") from error
    form = ""
    elements: list[Element] = []
    comments: list[str] = []
    for line in lines:
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            comments.append(" ".join(words[1:]))
        elif words[0] == "format" and len(words) == 3 and not form:
            form = words[1]
        elif words[0] == "element" and len(words) == 3:
            elements.append(_element(path, words, names, {element.name for element in elements}))
        elif words[0] == "property" and elements:
            _add_property(path, words, elements[-1].properties)
        else:
            raise unreadable(path, KIND, f"its header has the line {line[:60]!r}")
    if form != "binary_little_endian":
        raise unreadable(path, KIND, f"its data are {form[:40] or 'of no stated format'}, not binary_little_endian")
    return Header(tuple(elements), match.end(), tuple(comments))


def check_size(path: Path, header: Header, size: int, limit: int) -> None:
    """InputError unless a file of `size` bytes is what the header says, and at most `limit`."""
    if size > limit:
        raise unreadable(path, KIND, f"it is larger than {limit // 1024**3} GiB")
    if size != header.size:
        said = " and ".join(f"{e.count} {e.name} rows of {e.row.itemsize} bytes" for e in header.elements)
        if len(header.elements) == 1:
            element = header.elements[0]
            held = (size - header.start) / max(1, element.row.itemsize)
            said = f"{element.count} Gaussians of {element.row.itemsize} bytes"
            raise unreadable(path, KIND, f"its header declares {said}, it holds {held:.6g}")
        raise unreadable(path, KIND, f"its header declares {said}: {header.size} bytes, it has {size}")


def _element(path: Path, words: list[str], names: tuple[str, ...], seen: set[str]) -> Element:
    if words[1] not in names or words[1] in seen:
        wanted = f"its only element must be {names[0]!r}" if len(names) == 1 else f"its elements are {', '.join(names)}"
        raise unreadable(path, KIND, f"{wanted}, found {words[1][:40]!r}")
    if not re.fullmatch(r"\d{1,12}", words[2]):
        raise unreadable(path, KIND, f"its number of Gaussians is {words[2][:40]!r}")
    return Element(words[1], int(words[2]))


def _add_property(path: Path, words: list[str], properties: dict[str, str]) -> None:
    if len(words) != 3 or words[1] not in _TYPES:
        why = f"its property {' '.join(words[1:])[:60]!r} is not a single number of a known type"
        raise unreadable(path, KIND, why)
    if words[2] in properties or len(properties) >= MAX_PROPERTIES:
        why = f"its property {words[2][:40]!r} comes twice, or there are more than {MAX_PROPERTIES}"
        raise unreadable(path, KIND, why)
    properties[words[2]] = _TYPES[words[1]]
