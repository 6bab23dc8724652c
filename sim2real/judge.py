"""`sim2real eval`: find the policies, play them on the same unseen scenarios, compare, report."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recon.core.config import from_dict, to_dict
from recon.core.errors import InputError, UsageError, did_you_mean
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.core.files import publishing, sha256_file
from recon.scene.folder import find_scene
from rl.policy import Policy, load_policy
from sim2real.config import EvalOptions
from sim2real.env import SplatVectorEnv
from sim2real.evaluate import Actor, Evaluation, compare, evaluate, expert, random_actor, zero
from sim2real.place import find_place
from sim2real.report import write_report
from sim2real.scenarios import save_set
from sim2real.tasks.spec import Task, load_task, with_captured
from sim2real.workcell import open_workcell

SCRIPTED = ("expert", "random", "zero")
SIZE = 64  # px, of the pictures shown to actors that do not look


@dataclass(frozen=True)
class Contestant:
    """Something to evaluate. meta: what the trainer recorded; hash: of its weights; folder: where it lies.

    Scripted ones have none of these.
    """

    name: str
    actor: Actor
    meta: dict[str, Any]
    hash: str = ""
    folder: Path | None = None


def judge(options: EvalOptions) -> Iterator[Event]:
    """Evaluate and report; yields events, the last ones the report's `Artifact`s."""
    if options.episodes is not None and options.episodes < 1:
        raise UsageError("--episodes must be at least 1", why=f"got {options.episodes}")
    scene = find_scene(options.scene)
    place = find_place(options.device, options.backend)
    yield from place.notes()
    fallback = Path("runs") / f"{scene.name}-{options.task or 'reach'}"
    policies = [contestant(options.policy, fallback, place.device, options.seed or 0)]
    baseline = options.baseline or _own_clone(policies[0])
    if baseline not in (None, "none"):
        policies.append(contestant(str(baseline), fallback, place.device, options.seed or 0))
    task = _task(options, policies)
    cameras, size, robot = _seen(policies)
    yield StageStarted("workcell")
    began = time.monotonic()
    cell = open_workcell(
        scene, task, robot=options.robot or robot, backend=place.backend, device=str(place.drawing), scale=options.scale
    )
    seed = task.eval.seed if options.seed is None else options.seed
    scenarios = cell.sampler.draw_set(seed, "eval", options.episodes or task.eval.episodes)
    yield StageFinished("workcell", time.monotonic() - began, {"rejected": scenarios.rejection_rate})
    yield from _warn_strangers(policies, sha256_file(scene / "manifest.json")[:16])
    results: list[Evaluation] = []
    for policy in policies:
        yield from evaluate(
            cell,
            scenarios,
            policy.actor,
            policy.name,
            cameras=cameras,
            size=size,
            videos=options.videos,
            done=results.append,
        )
    paired = compare(results[0], results[1]) if len(results) == 2 else None
    out = options.out or Path("runs") / f"{scene.name}-{task.task}" / "eval"
    protocol = {
        "scene": scene.name,
        "scene_hash": sha256_file(scene / "manifest.json")[:16],
        "task": task.task,
        "task_hash": task.hash,
        "control": task.control.mode,
        "hz": task.control.hz,
        "horizon": task.horizon,
        "hold": task.hold,
        "cameras": list(cameras),
        "image_size": size,
        "gaussians": len(cell.static) + len(cell.movers),
        "instruction": task.instruction[0],
        "bodies": {thing.name: thing.facts() for thing in cell.world.things},
        "randomize": to_dict(task.randomize) if task.randomize.any else "nothing",
        **place.facts(),
        "policies": [{"name": p.name, "weights": p.hash, "stage": p.meta.get("stage")} for p in policies],
        "versions": _versions(),
    }
    with publishing(out) as stage:
        write_report(stage, results, paired, scenarios, protocol)
        save_set(scenarios, stage / "scenarios.json")
    for result in results:
        r = result.rate
        yield Message(
            "info", f"{result.name}: {r.k}/{r.n} = {100 * r.rate:.1f} % [{100 * r.low:.1f}, {100 * r.high:.1f}]"
        )
    if paired is not None:
        yield Message(
            "info",
            f"{paired.verdict}: {100 * paired.difference:+.1f} points "
            f"[{100 * paired.low:+.1f}, {100 * paired.high:+.1f}], "
            f"exact McNemar p = {paired.p_value:.2g} on {paired.n} scenarios",
        )
    yield Artifact("report", out / "index.html")
    yield Artifact("numbers", out / "report.json")


def contestant(name: str, fallback: Path, device: torch.device, seed: int) -> Contestant:
    """A policy folder, a run folder, the name of a stage in the default run, or a scripted actor."""
    if name in SCRIPTED:
        return Contestant(name, {"expert": expert, "zero": zero, "random": random_actor(seed)}[name], {})
    tried = [Path(name), Path(name) / "ppo", Path(name) / "bc", fallback / name]
    folder = next((path for path in tried if (path / "policy.json").is_file()), None)
    if folder is None:
        raise InputError(f"there is no policy {name!r}", why="no policy.json there", fix=did_you_mean(name, SCRIPTED))
    policy = load_policy(folder, device)
    label = folder.name if folder.name in ("bc", "ppo") else str(folder)
    return Contestant(label, _actor(policy), policy.meta, sha256_file(folder / "weights.safetensors")[:16], folder)


def _own_clone(policy: Contestant) -> Path | None:
    """The clone that a run's improved policy started from, beside it in the run folder."""
    if policy.folder is None or policy.meta.get("stage") != "ppo":
        return None
    clone = policy.folder.parent / "bc"
    return clone if (clone / "policy.json").is_file() else None


def _actor(policy: Policy) -> Actor:
    def act(env: SplatVectorEnv, observation: dict[str, Any]) -> NDArray[np.float32]:
        return policy.act(observation)

    return act


def _task(options: EvalOptions, policies: list[Contestant]) -> Task:
    """The one task of all policies; --task may only repeat it."""
    tasks = {p.name: from_dict(Task, p.meta["task"]) for p in policies if "task" in p.meta}
    if options.task is not None:
        tasks["--task"] = with_captured(load_task(options.task), options.bodies)
    if len({task.hash for task in tasks.values()}) > 1:
        raise UsageError(
            "these policies cannot be compared",
            why=f"{' and '.join(tasks)} were made for different tasks (hashes differ)",
        )
    return next(iter(tasks.values()), None) or load_task("reach")


def _seen(policies: list[Contestant]) -> tuple[tuple[str, ...], int, str | None]:
    """Cameras, picture size and robot that the policies were trained with."""
    metas = [p.meta for p in policies if "cameras" in p.meta]
    if not metas:
        return (), SIZE, None
    seen = {(tuple(m["cameras"]), int(m["size"]), m.get("robot")) for m in metas}
    if len(seen) > 1:
        raise UsageError(
            "these policies cannot be compared", why="they were trained with different cameras, picture sizes or robots"
        )
    return next(iter(seen))


def _warn_strangers(policies: list[Contestant], scene_hash: str) -> Iterator[Event]:
    for policy in policies:
        trained_in = policy.meta.get("scene_hash")
        if trained_in is not None and trained_in != scene_hash:
            yield Message("warning", f"{policy.name} was trained in another scene or another build of this one")


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("recon4d", "torch", "mujoco", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions
