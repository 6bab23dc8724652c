"""The task that `bench_env` times: the scene's robot, a target to reach, three bodies lying about, a wrist camera."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sim2real.tasks.items import Init, Item, Region
from sim2real.tasks.mounts import Mount
from sim2real.tasks.spec import Control, Task, load_task
from sim2real.workcell import Workcell, open_workcell

HZ = 20  # control steps per second; physics steps are 2 ms
WRIST = "wrist"
BODIES = {
    "box": Item(Init("work"), "box", [0.05, 0.07, 0.04], color=(0.8, 0.15, 0.1)),
    "can": Item(Init("work"), "cylinder", [0.06, 0.09], color=(0.1, 0.5, 0.2)),
    "ball": Item(Init("work"), "sphere", [0.06], color=(0.9, 0.7, 0.1)),
}


def bench_task(captured: list[str]) -> Task:
    """Reach at 20 Hz among three bodies: captured ones where there are as many, else primitives of a task."""
    reach = load_task("reach")
    bodies = dict(BODIES)
    for name, body in zip(list(BODIES), captured, strict=False):
        bodies[name] = Item(Init(pose="scene"), scene=body)
    mount = Mount((-0.1, 0.0, -0.08), (0.0, 0.0, 0.1), up=(1.0, 0.0, 0.0), fov_deg=70, body="tool")
    return replace(
        reach, task="bench", horizon=48, control=Control(hz=HZ, max_delta=0.06), bodies=bodies,
        regions={"work": Region((0.4, 0.75), (-60, 60))}, cameras={WRIST: mount},
    )  # fmt: skip


def bench_cell(folder: Path, robot: Path | None) -> Workcell:
    """The scene with that task."""
    from recon.scene.folder import load_scene

    captured = [body.name for body in load_scene(folder).bodies if body.kind == "object"]
    return open_workcell(folder, bench_task(captured[:3]), robot=robot)
