"""Other simulators: one module per target, each saying what it cannot carry.

A target's module has ABOUT (one line), LOSSES, HOW_TO_OPEN ("{out}" stands for the folder) and write(cargo, folder),
which fills a staging folder. Everything they need is in `cargo.py`; the list of targets is TARGETS.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from recon.core.errors import UsageError, did_you_mean
from recon.core.events import Artifact, Event, Message
from sim2real.config import ExportOptions

TARGETS = {
    name: f"sim2real.export.{module}"
    for name, module in (
        ("mujoco", "mujoco"),
        ("mujoco-warp", "mujoco_warp"),
        ("usd", "usd"),
        ("newton", "newton"),
        ("robotwin", "sapien"),
        ("maniskill", "sapien"),
        ("genesis", "genesis"),
        ("pybullet", "pybullet"),
        ("lerobot-envhub", "lerobot_envhub"),
        ("rlinf", "rlinf"),
        ("discoverse", "discoverse"),
        ("gausscam", "gausscam"),
        ("polaris", "polaris"),
        ("spz", "spz"),
    )
}
LIST = "list"


def export(options: ExportOptions) -> Iterator[Event]:
    """Write the scene for every target of `options.to`; yields events, per target the folder's `Artifact` last."""
    if options.to == LIST:
        for name in TARGETS:
            yield Message("info", f"{name}: {target_module(name).ABOUT}")
        return
    from recon.scene.folder import find_scene

    names = list(dict.fromkeys(name.strip() for name in options.to.split(",") if name.strip()))
    if not names:
        raise UsageError("--to names no target", fix=f"Known are {', '.join(TARGETS)}.")
    modules = {name: target_module(name) for name in names}
    if options.scene is None:
        raise UsageError("no scene is given", fix="Pass --scene NAME.")
    scene = find_scene(options.scene)
    outs = {name: _folder(options, scene.name, name, len(names)) for name in names}
    from sim2real.export.cargo import load_cargo
    from sim2real.export.folder import publish, refuse_taken

    for out in outs.values():
        refuse_taken(out)
    cargo = load_cargo(scene, options.robot)
    for name, module in modules.items():
        publish(cargo, module, name, outs[name])
        for loss in module.LOSSES:
            yield Message("info", f"not carried: {loss}")
        yield Message("info", f"open it: {module.HOW_TO_OPEN.format(out=outs[name])}")
        yield Artifact(name, outs[name])


def target_module(name: str) -> ModuleType:
    """The module of a target. Raises UsageError for an unknown one."""
    if name not in TARGETS:
        raise UsageError(f"there is no export to {name!r}", fix=did_you_mean(name, [*TARGETS, LIST]))
    return importlib.import_module(TARGETS[name])


def _folder(options: ExportOptions, scene: str, name: str, count: int) -> Path:
    if options.out is None:
        return Path("exports") / f"{scene}-{name}"
    return options.out if count == 1 else options.out / name
