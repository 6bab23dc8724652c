"""What SPZ files wrap their arrays in: nothing (first files), one gzip stream (versions 2, 3), zstd streams (4).

versions 2, 3   u32 magic "NGSP"  u32 version  u32 count  u8 degree  u8 fractionalBits  u8 flags  u8 reserved
version 4       u32 magic  u32 version  u32 count  u8 degree  u8 fractionalBits  u8 flags  u8 streams
                u32 offset of the table  12 bytes reserved; extensions; table of (u64 packed, u64 plain); the streams
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from recon.core.errors import UnavailableError
from recon.scene.formats.splats import MAX_COUNT, MAX_FILE, MAX_INFLATION, unreadable

KIND = "SPZ"
MAGIC = 0x5053474E
GZIP = b"\x1f\x8b"
HEADER = struct.Struct("<IIIBBBB")
HEADER4 = struct.Struct("<IIIBBBBI12x")
ENTRY = struct.Struct("<QQ")
PIECE = 1 << 20  # bytes read from the file at once
WINDOW = 1 << 27  # bytes of memory a zstd stream may ask for
ANTIALIASED, EXTENSIONS = 1, 2  # flags

Take = Callable[[int], bytes]


@dataclass(frozen=True)
class Header:
    """What an SPZ file says of itself."""

    version: int
    count: int
    degree: int
    fractional_bits: int
    flags: int

    @property
    def rotation_bytes(self) -> int:
        """Bytes of one rotation."""
        return 3 if self.version == 2 else 4

    @property
    def antialiased(self) -> bool:
        """Whether it is to be drawn with antialiasing."""
        return bool(self.flags & ANTIALIASED)

    @property
    def extensions(self) -> bool:
        """Whether it holds more than Gaussians."""
        return bool(self.flags & EXTENSIONS)

    @property
    def sizes(self) -> list[int]:
        """Bytes per Gaussian of each array, in the file's order."""
        bands = 3 * ((self.degree + 1) ** 2 - 1)
        return [9, 1, 3, 3, self.rotation_bytes, *([bands] if bands else [])]


def open_spz(path: Path, file: BinaryIO) -> tuple[Header, Callable[[int], Take]]:
    """(header, streams): each call of streams(bytes of the whole array) opens the next array to take bytes from.

    The header is checked against the file's size: a table of header.count Gaussians may be allocated.
    """
    size = os.fstat(file.fileno()).st_size
    if size > MAX_FILE:
        raise unreadable(path, KIND, f"it is larger than {MAX_FILE // 1024**3} GiB")
    head = file.read(HEADER4.size)
    file.seek(0)
    if head[:2] == GZIP:
        take = _inflating(path, file)
        return _one_stream(path, take, size * MAX_INFLATION)
    if len(head) < HEADER.size or head[:4] != MAGIC.to_bytes(4, "little"):
        raise unreadable(path, KIND, "it begins neither with a gzip stream nor with NGSP")
    if HEADER.unpack_from(head)[1] < 4:
        return _one_stream(path, _plain(path, file), size)
    return _many_streams(path, file, head, size)


def _one_stream(path: Path, take: Take, room: int) -> tuple[Header, Callable[[int], Take]]:
    magic, version, count, degree, bits, flags, _ = HEADER.unpack(take(HEADER.size))
    if magic != MAGIC:
        raise unreadable(path, KIND, "its stream does not begin with NGSP")
    header = _checked(path, Header(version, count, degree, bits, flags), room - HEADER.size, (2, 3))
    return header, lambda size: take


def _many_streams(path: Path, file: BinaryIO, head: bytes, size: int) -> tuple[Header, Callable[[int], Take]]:
    if len(head) < HEADER4.size:
        raise unreadable(path, KIND, "it ends inside its header")
    _, version, count, degree, bits, flags, streams, table = HEADER4.unpack(head)
    header = _checked(path, Header(version, count, degree, bits, flags), size * MAX_INFLATION, (4,))
    if streams != len(header.sizes) or not HEADER4.size <= table <= size - streams * ENTRY.size:
        raise unreadable(path, KIND, f"it says that its {streams} streams are listed at byte {table}, of {size}")
    file.seek(table)
    entries = [ENTRY.unpack(file.read(ENTRY.size)) for _ in range(streams)]
    start = table + streams * ENTRY.size
    if start + sum(packed for packed, _ in entries) > size:
        raise unreadable(path, KIND, "it ends before its streams do")
    if [plain for _, plain in entries] != [count * each for each in header.sizes]:
        raise unreadable(path, KIND, f"its streams have not the sizes of {count} Gaussians of degree {degree}")
    places = iter([(start + sum(packed for packed, _ in entries[:k]), entries[k][0]) for k in range(streams)])
    return header, lambda plain: _zstd_stream(path, file, *next(places))


def _checked(path: Path, header: Header, room: int, versions: tuple[int, ...]) -> Header:
    if header.version not in versions:
        raise unreadable(path, KIND, f"its version is {header.version}; versions 2, 3 and 4 are read")
    if not 0 < header.count <= MAX_COUNT or header.count * sum(header.sizes) > room:
        raise unreadable(path, KIND, f"its header declares {header.count} Gaussians, which it cannot hold")
    if header.degree > 4 or header.fractional_bits > 23:
        why = f"its colours have degree {header.degree} and its positions {header.fractional_bits} fractional bits"
        raise unreadable(path, KIND, why)
    return header


def _plain(path: Path, file: BinaryIO) -> Take:
    def take(size: int) -> bytes:
        """Exactly `size` more bytes; InputError when there are fewer."""
        data = file.read(size)
        if len(data) != size:
            raise unreadable(path, KIND, "it ends before its Gaussians do")
        return data

    return take


def _inflating(path: Path, file: BinaryIO) -> Take:
    inflater = zlib.decompressobj(31)

    def take(size: int) -> bytes:
        """Exactly `size` more bytes; InputError when there are fewer."""
        parts, missing = [], size
        while missing > 0:
            source = inflater.unconsumed_tail or file.read(PIECE)
            if not source or inflater.eof:
                raise unreadable(path, KIND, "its gzip stream ends before its Gaussians do")
            try:
                part = inflater.decompress(source, missing)
            except zlib.error as error:
                raise unreadable(path, KIND, f"its gzip stream is damaged ({error})") from error
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    return take


def _zstd_stream(path: Path, file: BinaryIO, start: int, packed: int) -> Take:
    zstd = _zstd(path)
    file.seek(start)
    reader = zstd.ZstdDecompressor(max_window_size=WINDOW).stream_reader(file.read(packed))

    def take(size: int) -> bytes:
        """Exactly `size` more bytes; InputError when there are fewer."""
        try:
            data = bytes(reader.read(size))
        except zstd.ZstdError as error:
            raise unreadable(path, KIND, f"a zstd stream is damaged ({error})") from error
        if len(data) != size:
            raise unreadable(path, KIND, "a zstd stream ends before its Gaussians do")
        return data

    return take


def write_zstd(path: Path, file: BinaryIO, header: tuple[Any, ...], arrays: list[Any]) -> None:
    """Header, table and streams of version 4. header: the fields up to the flags; arrays: iterables of bytes."""
    zstd = _zstd(path)
    file.write(HEADER4.pack(*header, len(arrays), HEADER4.size))
    file.write(bytes(ENTRY.size * len(arrays)))
    entries = []
    for array in arrays:
        entries.append(_packed(zstd, file, array))
    file.seek(HEADER4.size)
    for entry in entries:
        file.write(ENTRY.pack(*entry))


def _packed(zstd: ModuleType, file: BinaryIO, array: Iterable[bytes]) -> tuple[int, int]:
    """(packed, plain) bytes of one stream written."""
    packer = zstd.ZstdCompressor(level=3).compressobj()
    packed = plain = 0
    for piece in array:
        plain += len(piece)
        packed += file.write(packer.compress(piece))
    packed += file.write(packer.flush())
    return packed, plain


def _zstd(path: Path) -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        fix = "Install it (pip install zstandard), or use version 3."
        raise UnavailableError(f"{path} is SPZ version 4", why="zstandard is not installed", fix=fix) from error
    return zstandard
