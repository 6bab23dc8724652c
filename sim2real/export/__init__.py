"""Other simulators: one module per target, each saying what it cannot carry."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from recon.core.errors import UsageError, did_you_mean
from recon.core.events import Artifact, Event, Message
from sim2real.config import ExportOptions

EXPORTERS = {"mujoco": "sim2real.export.mujoco"}


def export(options: ExportOptions) -> Iterator[Event]:
    """Write the scene for `options.to`; yields events, the last one the folder's `Artifact`."""
    from recon.scene.folder import find_scene

    if options.to not in EXPORTERS:
        raise UsageError(f"there is no export to {options.to!r}", fix=did_you_mean(options.to, EXPORTERS))
    module = importlib.import_module(EXPORTERS[options.to])
    scene = find_scene(options.scene)
    out = options.out or Path("exports") / f"{scene.name}-{options.to}"
    module.export(scene, out, robot=options.robot)
    for loss in module.LOSSES:
        yield Message("info", f"not carried: {loss}")
    yield Message("info", f"open it: {module.HOW_TO_OPEN.format(out=out)}")
    yield Artifact(options.to, out)
