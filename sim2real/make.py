"""Vector environments made in one call: in this process, in workers, or in Ray actors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.core.errors import UsageError
from sim2real.env import SplatVectorEnv
from sim2real.scenarios import Split
from sim2real.workcell import Workcell, chosen_cameras, open_workcell

if TYPE_CHECKING:
    from sim2real.crew import CrewVectorEnv


def make_vec(
    scene: Any, task: Any = "reach", num_envs: int = 1, *, seed: int = 0, cameras: Sequence[str] | None = None,
    size: int = 128, robot: Any = None, split: Split = "train", backend: str = "auto", device: str = "cpu",
    sights: Sequence[str] = ("rgb",), detail: float = 0.0, workers: int = 0, ray: bool = False,
) -> SplatVectorEnv | CrewVectorEnv:  # fmt: skip
    """A vector environment of `task` in `scene`.

    Args:
        scene: A scene, a scene folder, or a `Workcell` made before (its task and robot are then used).
        task: A `Task`, the name of a bundled one, or a YAML file.
        num_envs: Environments stepped together; they share the splats.
        seed: Of the scenario stream.
        cameras: Cameras of the rig or of the task to draw; None takes the rig's that sees the task best, () none.
        size: Side of the square pictures, pixels.
        robot: MJCF or URDF file instead of the scene's own robot.
        split: "train" or "eval": two streams of scenarios without common members.
        sights: What the cameras give: "rgb", "depth", "segmentation", "flow".
        detail: px within which static Gaussians are drawn as one: faster, not exact; 0 draws them all. What it costs
            is in the info of `reset`: {"detail": {camera: {"psnr": dB, "gaussians": ..., "of": ...}}}.
        workers: Processes that the environments are spread over; 0 is this one. They need a scene in a folder.
        ray: Ray actors instead of processes.

    Raises:
        UsageError: workers for a scene that is in no folder, or more of them than environments.
        UnavailableError: Ray is not installed.
    """
    if workers or ray:
        return _crew(
            scene, task, num_envs, max(1, workers), ray,
            {"robot": robot, "backend": backend, "device": device},
            {"seed": seed, "cameras": cameras, "size": size, "split": split, "sights": sights, "detail": detail},
        )  # fmt: skip
    cell = scene if isinstance(scene, Workcell) else open_workcell(
        scene, task, robot=robot, backend=backend, device=device
    )  # fmt: skip
    return SplatVectorEnv(
        cell, num_envs, seed=seed, cameras=chosen_cameras(cell, cameras), size=size, split=split, sights=sights,
        detail=detail,
    )  # fmt: skip


def _crew(
    scene: Any, task: Any, num_envs: int, workers: int, ray: bool, cell: dict[str, Any], env: dict[str, Any]
) -> CrewVectorEnv:
    from sim2real.crew import CrewVectorEnv
    from sim2real.tasks.spec import load_task

    if isinstance(scene, Workcell):
        scene, task, cell["robot"], cell["backend"] = scene.source, scene.task, scene.robot, scene.backend
    if not isinstance(scene, (str, Path)):
        raise UsageError("workers open the scene themselves", why="this one is in no folder", fix="Save it first.")
    spec = load_task(task) if isinstance(task, str) else task
    cell["robot"] = None if cell["robot"] is None else str(Path(cell["robot"]).resolve())
    opening = {"scene": str(Path(scene).resolve()), "task": spec.plain(), "cell": cell, "env": env}
    return CrewVectorEnv(opening, num_envs, workers, ray=ray)
