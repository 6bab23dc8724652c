"""What the folders of all targets have in common: Gaussians, scripts, a README that says what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from recon.core.errors import UsageError
from recon.core.files import MANIFEST, MAX_JSON_BYTES, publishing, read_bytes, write_bytes
from sim2real.export.cargo import Cargo
from sim2real.export.header import file_names
from sim2real.export.skins import write_skins

SCRIPTS = Path(__file__).parent / "loaders"
SPLATS = "splats"
EVERY_LOSS = (
    "what lives in time only (hands, shadows) and the recorded motion of bodies: they start where they were first seen",
    "tendons: a servo that pulls several joints is divided among them as if they moved together",
    "lens distortion: cameras are ideal pinholes with the same focal lengths and principal points",
)


def refuse_taken(out: Path) -> None:
    """UsageError when `out` is a folder with content that no export wrote; an earlier export is replaced as a whole."""
    if out.is_dir() and any(out.iterdir()) and not (out / MANIFEST).is_file():
        raise UsageError(f"{out} exists and holds something else", fix="Choose another folder with --out.")


def publish(cargo: Cargo, module: ModuleType, target: str, out: Path) -> None:
    """Write the folder of one target, all or nothing.

    Raises:
        UsageError: `out` holds something else. StorageError: it cannot be written.
    """
    refuse_taken(out)
    with publishing(out) as stage:
        module.write(cargo, stage)
        losses = [*EVERY_LOSS, *module.LOSSES]
        write_readme(cargo, stage, target, module.ABOUT, losses, module.HOW_TO_OPEN.format(out="."))


def write_splats(cargo: Cargo, folder: Path, suffix: str = ".ply") -> dict[str, str]:
    """`splats/<carrier>.ply`, each in its carrier's frame; returns carrier -> file relative to `folder`."""
    files = write_skins(cargo.skins, folder / SPLATS, file_names(cargo), suffix)
    return {name: f"{SPLATS}/{file}" for name, file in files.items()}


def copy_scripts(folder: Path, *names: str) -> None:
    """Some of the scripts in `loaders`, as they are."""
    for name in names:
        write_bytes(folder / name, read_bytes(SCRIPTS / name, MAX_JSON_BYTES))


def write_readme(cargo: Cargo, folder: Path, target: str, about: str, losses: Sequence[str], open_it: str) -> None:
    """README.md: how to open the folder, what is in it, what is not."""
    links = [name for name, skin in cargo.skins.items() if skin.kind == "link"]
    sources = sorted({cargo.skins[name].source for name in links})
    things = [f"`{t.name}` ({t.mass:.3g} kg, density {t.source})" for t in cargo.things] or ["none"]
    lines = [
        f"# {cargo.name} for {target}",
        "",
        f"{about}. Metres, kilograms, +z up, the table's top at z = {cargo.world.bench.top:.4f} m.",
        "",
        f"    {open_it}",
        "",
        f"- robot: {len(cargo.parts)} links; Gaussians {' and '.join(sources) or 'none'}",
        f"- bench: {len(cargo.fixed)} shapes that are hit; surface "
        + ("reconstructed" if cargo.bench_surface is not None else "of those shapes, as `recon mesh` was not run"),
        f"- bodies: {', '.join(things)}; friction is assumed, not measured",
        f"- cameras: {', '.join(cargo.rig.cameras)}",
        "- `scene.json`: all of this for programs; every path is relative to this folder",
        "",
        "Not carried:",
        "",
        *(f"- {loss}" for loss in losses),
        "",
    ]
    write_bytes(folder / "README.md", "\n".join(lines).encode("utf-8"))
