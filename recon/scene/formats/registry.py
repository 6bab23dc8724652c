"""All formats of Gaussian files: how to tell them, read them, write them, and what they cannot carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recon.core.errors import InputError, UsageError, did_you_mean
from recon.scene.formats import compressed_ply, fourdgs, gltf, sog, splat, spz, usd
from recon.scene.formats.axes import UNSTATED
from recon.scene.formats.compressed_ply import read_compressed_ply, write_compressed_ply
from recon.scene.formats.fourdgs import write_fourdgs
from recon.scene.formats.fourdgs_read import read_fourdgs
from recon.scene.formats.fourdgs_records import MAGIC
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
from recon.scene.gaussians import Gaussians

Reader = Callable[[Path], Splats]
Writer = Callable[[Gaussians, Path], None]
MovingWriter = Callable[[Splats, Path], None]


@dataclass(frozen=True)
class Format:
    """One format of Gaussians. axes: those its definition prescribes; UNSTATED: files do not say."""

    name: str  # of --to
    suffix: str
    read: Reader
    write: Writer | None  # None: only read
    axes: str = UNSTATED
    degree: int = 3  # the highest band of view-dependent colour it holds
    steps: str = ""  # what its numbers are rounded to; "": nothing, it keeps every bit
    write_moving: MovingWriter | None = None  # of formats that hold bodies on their tracks
    other_suffixes: tuple[str, ...] = ()
    states_axes: bool = False  # its files say which axes they are in, and may be in any
    holds_time: bool = False  # whether what lives in time only keeps doing so

    @property
    def writable(self) -> bool:
        """Whether it is written, not only read."""
        return self.write is not None or self.write_moving is not None

    def save(self, splats: Splats, path: Path) -> None:
        """Write (atomically); a format without motion takes static rows only."""
        if self.write_moving is not None:
            self.write_moving(splats, path)
        else:
            assert self.write is not None
            self.write(splats.gaussians, path)


HABIT = "rdf"  # the axes of files that do not say, by what most tools write into them
FORMATS = {
    one.name: one
    for one in (
        Format("compressed-ply", ".compressed.ply", read_compressed_ply, write_compressed_ply,
               steps=compressed_ply.STEPS),
        Format("ply", ".ply", read_ply, write_ply),
        Format("splat", ".splat", read_splat, write_splat, degree=0, steps=splat.STEPS),
        Format("ksplat", ".ksplat", read_ksplat, None),
        Format("sog", ".sog", read_sog, write_sog, steps=sog.STEPS),
        Format("4dgs", ".4dgs", read_fourdgs, None, steps=fourdgs.STEPS, write_moving=write_fourdgs, holds_time=True,
               states_axes=True),
        Format("gltf", ".glb", read_gltf, None, axes=gltf.AXES, steps=gltf.STEPS, write_moving=write_gltf),
        Format("usd", ".usdc", read_usd, None, axes=usd.AXES, steps=usd.STEPS, write_moving=write_usd, holds_time=True,
               other_suffixes=(".usda", ".usd")),
        Format("spz", ".spz", read_spz, write_spz, axes=spz.AXES, steps=spz.STEPS),
    )
}  # fmt: skip


def format_of(path: Path) -> Format:
    """The format that the name of a file to be written asks for (the longest suffix wins)."""
    found = [one for one in FORMATS.values() if path.name.lower().endswith((one.suffix, *one.other_suffixes))]
    if not found:
        suffixes = ", ".join(one.suffix for one in FORMATS.values())
        raise UsageError(f"{path}: its format is not known from its name", fix=f"Known endings: {suffixes}; or --to.")
    return max(found, key=lambda one: len(one.suffix))


def named_format(name: str) -> Format:
    """The format called `name`; UsageError otherwise."""
    if name not in FORMATS:
        raise UsageError(f"no format is called {name!r}", fix=did_you_mean(name, FORMATS))
    return FORMATS[name]


def read_splats(path: Path) -> tuple[Format, Splats]:
    """(format, content) of a file of Gaussians, told by what it contains, else by its name.

    Raises InputError when it is none or damaged.
    """
    one = _sniffed(path) or format_of(path)
    return one, one.read(path)


def _sniffed(path: Path) -> Format | None:
    if path.is_dir() or path.name == sog.META:
        return FORMATS["sog"] if (path / sog.META).is_file() or path.is_file() else None
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise InputError(f"cannot read {path}", why=error.strerror or str(error)) from error
    if head.startswith(b"ply"):
        return FORMATS["compressed-ply" if b"\nelement chunk " in head else "ply"]
    if head.startswith((b"NGSP", b"\x1f\x8b")):
        return FORMATS["spz"]
    if head.startswith((b"PXR-USDC", b"#usda")):
        return FORMATS["usd"]
    if head.startswith(MAGIC):
        return FORMATS["4dgs"]
    if head.startswith(b"glTF") or (path.suffix.lower() == ".gltf" and head.lstrip().startswith(b"{")):
        return FORMATS["gltf"]
    return FORMATS["sog"] if head.startswith(b"PK\x03\x04") else None


def cannot_carry(one: Format, gaussians: Gaussians) -> list[str]:
    """Sentences on what of these Gaussians is lost in that format; none when every number keeps its bits."""
    lost = []
    if gaussians.degree > one.degree:
        lost.append(f"view-dependent colour: bands above {one.degree} of {gaussians.degree} are left out")
    if one.steps:
        lost.append(f"exact numbers: {one.steps}")
    return lost
