"""`recon info`: what is in a scene folder, in a few lines or as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from recon.config import InfoConfig
from recon.core.events import Event, Message
from recon.mesh.folder import MESHES, read_meshes, summary
from recon.scene.folder import find_scene, load_scene
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC
from recon.scene.scene import Scene


def facts(scene: Scene) -> dict[str, str]:
    """Label -> text of what a person wants to know of a scene."""
    kind = scene.gaussians.kind
    kinds = {"static": STATIC, "rigid": RIGID, "residual": RESIDUAL}
    counts = ", ".join(f"{int((kind == value).sum())} {name}" for name, value in kinds.items())
    start, end = scene.time_range
    return {
        "Gaussians": f"{len(scene.gaussians)} ({counts}), SH degree {scene.gaussians.degree}",
        "time": f"{start:.3f} to {end:.3f} s",
        "cameras": f"{len(scene.rig.cameras)} ({', '.join(scene.rig.cameras)})",
        "bodies": ", ".join(f"{body.name} ({body.kind})" for body in scene.bodies) or "none",
        "unit": "metres" if scene.metric else "scale unknown (recon build --rig-unit tells it)",
        "up": "+z, table top at z = 0" if scene.up == "z" else "unknown: the rig's own world",
    }


def object_lines(scene: Scene) -> list[str]:
    """One line on each object that was found: how far it moved, how well it is known, when it was seen."""
    lines = []
    for name, facts in scene.provenance.get("objects", {}).items():
        spans = ", ".join(f"{start:.2f} to {end:.2f} s" for start, end in facts["seen_s"])
        lines.append(
            f"{name}: moved by {facts['moved_mm']:.0f} mm, known to {facts['sigma_mm']:.1f} mm and "
            f"{facts['sigma_deg']:.1f} degrees, {100 * facts['visible']:.0f} % of it seen, from {spans}"
        )
    return lines


def info(config: InfoConfig) -> Iterator[Event]:
    """One message per fact. Raises InputError or CorruptError when the folder is not a whole scene."""
    path = find_scene(config.scene)
    scene = load_scene(path)
    for label, text in facts(scene).items():
        yield Message("info", f"{label}: {text}")
    for line in object_lines(scene):
        yield Message("info", f"object {line}")
    if (path / MESHES).is_dir():
        for entry in read_meshes(path / MESHES):
            yield Message("info", f"mesh of {summary(entry)}")
