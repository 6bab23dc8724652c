"""Files made well, then damaged: what scripts/fuzz and a short test run through every reader."""

from __future__ import annotations

import io
import random
import struct
import time
import traceback
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recon.core.errors import ReconError
from recon.scene.formats.compressed_ply import read_compressed_ply, write_compressed_ply
from recon.scene.formats.fourdgs import write_fourdgs
from recon.scene.formats.fourdgs_read import read_fourdgs
from recon.scene.formats.gltf import write_gltf
from recon.scene.formats.gltf_read import read_gltf
from recon.scene.formats.ksplat import read_ksplat
from recon.scene.formats.ply import read_ply, write_ply
from recon.scene.formats.sog import read_sog, write_sog
from recon.scene.formats.splat import read_splat, write_splat
from recon.scene.formats.splats import Splats
from recon.scene.formats.spz import read_spz, write_spz
from recon.scene.formats.usd import write_usd
from recon.scene.formats.usd_read import read_usd
from recon.scene.formats.webp import encode_webp
from tests.recon.scene.formats.handmade import ksplat
from tests.recon.scene.make import scene, table

MAX_SECONDS, MAX_MEMORY = 1.0, 512 * 2**20
ODD_NUMBERS = (0, 1, 2, 255, 256, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


@dataclass
class Outcome:
    """Counts of one run."""

    files: int = 0
    read: int = 0
    refused: int = 0
    slowest: float = 0.0  # seconds
    peak: int = 0  # bytes
    failures: list[str] = field(default_factory=list)

    def plus(self, other: Outcome) -> Outcome:
        """Both runs together."""
        return Outcome(
            self.files + other.files, self.read + other.read, self.refused + other.refused,
            max(self.slowest, other.slowest), max(self.peak, other.peak), self.failures + other.failures,
        )  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{self.files} files, {self.read} read, {self.refused} refused, {len(self.failures)} failures, "
            f"slowest {self.slowest:.3f} s, peak {self.peak / 2**20:.1f} MiB"
        )


def _ply(path: Path) -> list[bytes]:
    found = []
    for degree in (0, 3):
        write_ply(table(5, degree), path)
        found.append(path.read_bytes())
    return found


def _compressed(path: Path) -> list[bytes]:
    found = []
    for count, degree in ((3, 0), (300, 1)):
        write_compressed_ply(table(count, degree), path)
        found.append(path.read_bytes())
    return found


def _splat(path: Path) -> list[bytes]:
    write_splat(table(5, 0), path)
    return [path.read_bytes()]


def _spz(path: Path) -> list[bytes]:
    found = []
    for version in (2, 3, 4):
        write_spz(table(6, 2), path, version)
        found.append(path.read_bytes())
    return found


def _sog(path: Path) -> list[bytes]:
    found = []
    for count, degree in ((3, 0), (70, 1)):
        write_sog(table(count, degree), path)
        found.append(path.read_bytes())
    return found


def _moving() -> Splats:
    s = scene()
    return Splats(s.gaussians, "luf", (), tuple(s.bodies), s.time_range, metric=True)


def _gltf(path: Path) -> list[bytes]:
    found = []
    for splats in (Splats(table(5, 1), "luf"), _moving()):
        write_gltf(splats, path)
        found.append(path.read_bytes())
    return found


def _fourdgs(path: Path) -> list[bytes]:
    found = []
    for splats in (Splats(table(5, 1)), _moving()):
        write_fourdgs(splats, path)
        found.append(path.read_bytes())
    return found


def _usd(path: Path) -> list[bytes]:
    path = path.with_suffix(".usda")  # damaged binary ones can crash usd-core itself
    found = []
    for splats in (Splats(table(5, 1)), _moving()):
        write_usd(splats, path)
        found.append(path.read_bytes())
    return found


# name -> (good files, reader)
TARGETS: dict[str, tuple[Callable[[Path], list[bytes]], Callable[[Path], Splats]]] = {
    "ply": (_ply, read_ply),
    "compressed-ply": (_compressed, read_compressed_ply),
    "splat": (_splat, read_splat),
    "4dgs": (_fourdgs, read_fourdgs),
    "usd": (_usd, read_usd),
    "gltf": (_gltf, read_gltf),
    "sog": (_sog, read_sog),
    "spz": (_spz, read_spz),
    "ksplat": (lambda path: [ksplat(level, degree) for level in (0, 1, 2) for degree in (0, 2)], read_ksplat),
}


def damaged(good: bytes, rng: random.Random) -> bytes:
    """`good` with a few bytes, numbers or its end changed; what is inside a gzip stream is damaged there."""
    if good[:2] == b"\x1f\x8b" and rng.random() < 0.7:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        return packer.compress(damaged(zlib.decompress(good, 31), rng)) + packer.flush()
    if good[:2] == b"PK" and rng.random() < 0.8:
        return repacked(good, rng)
    if good[:5] == b"#usda" and rng.random() < 0.7:
        return other_digits(good, rng)
    if good[:4] == b"glTF" and rng.random() < 0.7:
        return other_glb(good, rng)
    data = bytearray(good)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(max(1, len(data)))
        near_start = rng.randrange(min(len(data), 64) or 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[at] = rng.randrange(256)
        elif kind == 1 and len(data) >= near_start + 4:
            struct.pack_into("<I", data, near_start, rng.choice(ODD_NUMBERS))
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
        elif len(data) >= at + 4:
            struct.pack_into("<I", data, at, rng.choice(ODD_NUMBERS))
    return bytes(data)


def other_glb(good: bytes, rng: random.Random) -> bytes:
    """A .glb with a few digits of its JSON or a few numbers changed; its chunks stay what they are."""
    (length,) = struct.unpack_from("<I", good, 12)
    head, text, rest = good[:20], good[20 : 20 + length], bytearray(good[20 + length :])
    if rng.random() < 0.5:
        return head + other_digits(text, rng) + rest
    for _ in range(rng.randint(1, 5)):
        struct.pack_into(
            "<I", rest, rng.randrange(8, len(rest) - 4), rng.choice((*ODD_NUMBERS, 0x7F800000, 0x7FC00000))
        )
    return head + text + rest


def other_digits(text: bytes, rng: random.Random) -> bytes:
    """JSON with a few digits changed: it stays JSON."""
    data = bytearray(text)
    places = [k for k, c in enumerate(data) if 48 <= c <= 57]
    for at in rng.choices(places, k=rng.randint(1, 5)):
        data[at] = rng.randrange(49, 58)
    return bytes(data)


def repacked(good: bytes, rng: random.Random) -> bytes:
    """A zip archive of which one member is damaged, and every checksum right."""
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = rng.choice(list(members))
    if chosen.endswith(".webp") and rng.random() < 0.6:
        shape = (4 * rng.randint(1, 3), rng.choice((4, 8, 12, 192)), 4)
        members[chosen] = encode_webp(np.random.default_rng(rng.randrange(2**32)).integers(0, 256, shape, np.uint8))
    elif chosen == "meta.json" and rng.random() < 0.6:
        members[chosen] = other_digits(members[chosen], rng)
    else:
        members[chosen] = damaged(members[chosen], rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def fuzz(name: str, folder: Path, *, seed: int, seconds: float = float("inf"), files: int = 2**62) -> Outcome:
    """Damaged files of one format until the time is over or there were enough; a seed gives the same ones."""
    make, read = TARGETS[name]
    path = folder / f"damaged.{'usda' if name == 'usd' else name}"
    good = make(path)
    rng = random.Random(f"{seed} {name}")
    outcome = Outcome()
    end = time.monotonic() + seconds
    while time.monotonic() < end and outcome.files < files:
        path.write_bytes(damaged(rng.choice(good), rng))
        one(read, path, outcome)
    return outcome


def one(read: Callable[[Path], Splats], path: Path, outcome: Outcome) -> None:
    """Read one file and count what came of it."""
    outcome.files += 1
    tracemalloc.start()
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows that were dropped
            read(path).gaussians.validate()
        outcome.read += 1
    except ReconError as error:
        outcome.refused += 1
        if "\n" in str(error) or len(str(error)) > 1000:
            outcome.failures.append(f"not one line: {error}")
    except Exception:
        outcome.failures.append(f"{path.read_bytes()[:2000].hex()}\n{traceback.format_exc()}")
    spent, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    outcome.slowest, outcome.peak = max(outcome.slowest, spent), max(outcome.peak, peak)
    if spent > MAX_SECONDS or peak > MAX_MEMORY:
        outcome.failures.append(f"{spent:.2f} s, {peak} bytes: {path.read_bytes()[:2000].hex()}")
