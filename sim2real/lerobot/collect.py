"""`sim2real collect`: play the expert or a policy and keep what it saw and did as a data set.

Finished episodes are kept one by one in a working folder beside the data set, so a stop of any kind costs the running
ones only. An episode follows from (seed, scenario) alone: neither the number of environments nor a stop between
changes a frame.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recon.core.config import from_dict
from recon.core.errors import UsageError
from recon.core.events import Artifact, Event, Message, Progress, StageFinished, StageStarted
from recon.core.files import locked, publishing, read_json, sha256_file, write_json
from recon.scene.folder import find_scene
from sim2real.config import CollectOptions
from sim2real.env import SplatVectorEnv
from sim2real.evaluate import Actor
from sim2real.judge import Contestant, contestant
from sim2real.lerobot.assembly import assemble
from sim2real.lerobot.recorder import Recorder, features_of, kept_collection
from sim2real.place import Place, find_place
from sim2real.scenarios import Scenario
from sim2real.tasks.spec import Task, load_task, with_captured
from sim2real.workcell import Workcell, chosen_cameras, open_workcell

SIZE = 128  # px


@dataclass(frozen=True)
class Plan:
    """What decides every frame of the data set. header: the same as plain values, but for the place."""

    cell: Workcell
    actor: Actor
    cameras: tuple[str, ...]
    size: int
    noise: float
    seed: int
    failures: bool
    header: dict[str, Any]
    place: Place


def collect(options: CollectOptions) -> Iterator[Event]:
    """Record or continue; yields events, the last one the data set's `Artifact`.

    Raises:
        UsageError: the folder is there already, the working folder belongs to another collection, or too few succeed.
    """
    _check(options)
    scene = find_scene(options.scene)
    place = find_place(options.device, options.backend)
    yield from place.notes()
    fallback = Path("runs") / f"{scene.name}-{options.task or 'reach'}"
    player = contestant(options.policy, fallback, place.device, options.seed)
    yield StageStarted("workcell")
    began = time.monotonic()
    plan = _plan(options, scene, player, place)
    yield StageFinished("workcell", time.monotonic() - began, {"gaussians": float(len(plan.cell.static))})
    out = options.out or Path("datasets") / f"{scene.name}-{plan.cell.task.task}"
    if out.exists():
        raise UsageError(f"{out} exists already", fix="Choose another --out, or remove it.")
    work = out.with_name(f".{out.name}.collect")
    with locked(work):
        _check_same(work, out, plan.header)
        write_json(work / "collect.json", plan.header)
        kept = yield from _play(plan, work, options.episodes, options.num_envs)
        yield from _publish(plan, work, kept, out)
    shutil.rmtree(work)
    yield Artifact("data set", out)


def _check(options: CollectOptions) -> None:
    if options.episodes < 1 or options.num_envs < 1:
        raise UsageError("--episodes and --num-envs must be at least 1")
    if options.policy == "random":
        raise UsageError("random actions cannot be continued after a stop", fix="Use --policy zero --noise 1.")
    if not 0.0 <= options.noise <= 10.0:
        raise UsageError(f"--noise is {options.noise}", why="0 to 10 are possible; 1 is a full action")
    if options.size is not None and (options.size < 16 or options.size % 2):
        raise UsageError(f"--size is {options.size}", why="the sides of a video must be even, and at least 16 px")


def _plan(options: CollectOptions, scene: Path, player: Contestant, place: Place) -> Plan:
    meta = player.meta
    if "task" in meta:
        task = from_dict(Task, meta["task"])
        if options.task is not None and with_captured(load_task(options.task), options.bodies).hash != task.hash:
            raise UsageError(f"{player.name} was trained for another task than {options.task!r}")
    else:
        task = with_captured(load_task(options.task or "reach"), options.bodies)
    size = options.size or int(meta.get("size", SIZE))
    if size != meta.get("size", size):
        raise UsageError(f"--size is {size}", why=f"{player.name} was trained on pictures of {meta['size']} px")
    robot = options.robot or meta.get("robot")
    cell = open_workcell(
        scene, task, robot=robot, backend=place.backend, device=str(place.drawing), scale=options.scale
    )
    named = [name.strip() for name in options.cameras.split(",") if name.strip()]
    cameras = chosen_cameras(cell, list(dict.fromkeys([*meta.get("cameras", []), *named])) or None)
    header = {
        "scene": scene.name,
        "scene_hash": sha256_file(scene / "manifest.json")[:16],
        "task": task.plain(),
        "task_hash": task.hash,
        "robot": sha256_file(cell.robot)[:16],
        "policy": player.name,
        "weights": player.hash,
        "cameras": list(cameras),
        "size": size,
        "noise": options.noise,
        "seed": options.seed,
        "failures": options.failures,
        "split": "train",
    }
    if options.scale is not None:
        header["scale"] = options.scale
    return Plan(cell, player.actor, cameras, size, options.noise, options.seed, options.failures, header, place)


def _check_same(work: Path, out: Path, header: dict[str, Any]) -> None:
    if not (work / "collect.json").is_file():
        return
    old = read_json(work / "collect.json")
    changed = [key for key in header if not isinstance(old, dict) or old.get(key) != header[key]]
    if changed:
        raise UsageError(
            f"{out} was begun with another {', '.join(changed)}",
            why="continuing would mix two collections",
            fix=f"Choose another --out, or remove {work}.",
        )


def _play(plan: Plan, work: Path, episodes: int, num_envs: int) -> Generator[Event, None, list[int]]:
    """Play scenarios 0, 1, ... until enough episodes are kept; returns their scenarios, in order."""
    began = time.monotonic()
    yield StageStarted("collect", episodes)
    env = SplatVectorEnv(plan.cell, min(num_envs, episodes), seed=plan.seed, cameras=plan.cameras, size=plan.size)
    recorder = Recorder(env, plan.actor, work, plan.noise, plan.failures)
    if recorder.known:
        yield Message("info", f"{len(recorder.kept)} episodes are there already")
    frontier = 0
    while True:
        # Every scenario below the frontier has been played, so those kept do not depend on which ended first.
        kept = [k for k in recorder.kept if k < frontier]
        if len(kept) >= episodes:
            break
        if frontier - len(kept) > 2 * episodes + 50:
            raise UsageError(
                f"{plan.header['policy']} fails too often at task {plan.cell.task.task!r} here",
                why=f"{frontier - len(kept)} episodes failed, {len(kept)} succeeded",
                fix="Keep failures with --failures, or take another policy.",
            )
        numbers = range(frontier, frontier + episodes - len(kept))
        for _ in recorder.play(_undone(plan, recorder, numbers)):
            yield Progress("collect", min(len(recorder.kept), episodes), episodes, {"failed": float(recorder.failed)})
        frontier = numbers.stop
    yield StageFinished("collect", time.monotonic() - began, {"failed": float(frontier - len(kept))})
    return kept[:episodes]


def _undone(plan: Plan, recorder: Recorder, numbers: range) -> list[Scenario]:
    return [plan.cell.sampler.draw(plan.seed, "train", k) for k in numbers if k not in recorder.known]


def _publish(plan: Plan, work: Path, kept: list[int], out: Path) -> Iterator[Event]:
    began = time.monotonic()
    yield StageStarted("assemble", len(kept))
    cell = plan.cell
    features = features_of(cell.task, cell.world.arm.joints, plan.cameras, plan.size)
    collection = kept_collection(work, kept, features, cell.task.control.hz, cell.task.instruction[0])
    with publishing(out, overwrite=False) as stage:
        for done in assemble(collection, stage, cell.robot.stem):
            yield Progress("assemble", done, len(kept))
        write_json(stage / "meta" / "sim2real.json", plan.header | {"scenarios": kept, "place": plan.place.facts()})
    seconds = time.monotonic() - began
    yield StageFinished("assemble", seconds, {"frames": float(collection.info.frames)})
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    yield Message("info", f"{len(kept)} episodes, {collection.info.frames} frames, {size / 2**20:.1f} MiB")
