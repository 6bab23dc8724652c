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


def info(config: InfoConfig) -> Iterator[Event]:
    """One message per fact. Raises InputError or CorruptError when the folder is not a whole scene."""
    path = find_scene(config.scene)
    for label, text in facts(load_scene(path)).items():
        yield Message("info", f"{label}: {text}")
    if (path / MESHES).is_dir():
        for entry in read_meshes(path / MESHES):
            yield Message("info", f"mesh of {summary(entry)}")
