"""Demonstrations by the expert -> a clone of them -> PPO from pixels. A generator of events; every stage resumes."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recon.core.config import dump_yaml, from_dict, load_yaml, to_dict
from recon.core.errors import UsageError, did_you_mean
from recon.core.events import Artifact, Event, Message, Progress, StageFinished, StageStarted
from recon.core.files import locked, read_json, sha256_file, write_bytes, write_json
from recon.core.seeding import numpy_generator
from recon.scene.folder import find_scene
from rl.bc import BCConfig, Demonstrations, clone
from rl.nets import NetConfig, build
from rl.policy import load_policy, save_policy
from rl.ppo import PPOConfig
from rl.runner import RunConfig
from rl.runner import train as improve
from rl.types import ActionSpec, Packed, obs_spec, pack
from sim2real.config import TrainOptions
from sim2real.env import SplatVectorEnv
from sim2real.lerobot.demos import demonstrations, fingerprint
from sim2real.place import Place, find_place
from sim2real.tasks.spec import bundled, load_task, with_captured
from sim2real.workcell import Workcell, chosen_cameras, open_workcell


@dataclass(frozen=True)
class DemoConfig:
    """Demonstrations.

    Attributes:
        episodes: Successful expert episodes kept.
        noise: Standard deviation of Gaussian noise on the executed (not the recorded) actions, so that the clone also
            sees how to come back.
    """

    episodes: int = 40
    noise: float = 0.2


@dataclass(frozen=True)
class Preset:
    """Everything about training that is not a path: `data/presets/sim2real_*.yaml`."""

    size: int = 64
    num_envs: int = 16
    demos: DemoConfig = field(default_factory=DemoConfig)
    net: NetConfig = field(default_factory=NetConfig)
    bc: BCConfig = field(default_factory=BCConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    run: RunConfig = field(default_factory=RunConfig)


PREFIX = "sim2real_"
PLACE = "place"  # in train.json: where the run was last worked at; it may be continued elsewhere


def load_preset(name_or_path: str) -> Preset:
    """A bundled preset by name, or one from a YAML file.

    Raises:
        UsageError: unknown name (the nearest is named), unknown key or wrong type.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        known = {n.removeprefix(PREFIX): p for n, p in bundled("presets").items() if n.startswith(PREFIX)}
        if name_or_path not in known:
            raise UsageError(f"there is no training preset {name_or_path!r}", fix=did_you_mean(name_or_path, known))
        path = known[name_or_path]
    return from_dict(Preset, load_yaml(path))


def train(options: TrainOptions) -> Iterator[Event]:
    """Run or continue a training; yields events, the last ones the policies' `Artifact`s."""
    scene = find_scene(options.scene)
    preset = _seeded(load_preset(options.preset), options.seed)
    place = find_place(options.device, options.backend)
    yield from place.notes()
    task = with_captured(load_task(options.task), options.bodies)
    out = options.out or Path("runs") / f"{scene.name}-{task.task}"
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        yield StageStarted("workcell")
        began = time.monotonic()
        cell = open_workcell(
            scene, task, robot=options.robot, backend=place.backend, device=str(place.drawing), scale=options.scale
        )
        names = [name.strip() for name in options.cameras.split(",") if name.strip()] or None
        cameras = chosen_cameras(cell, names)
        table = cell.world.bench.table.half
        yield StageFinished("workcell", time.monotonic() - began, {"gaussians": float(len(cell.static))})
        yield Message(
            "info",
            f"table {2 * table[0]:.2f} x {2 * table[1]:.2f} m, {len(cell.world.bench.boxes)} boxes on it; "
            f"{cell.world.arm.size} arm joints; cameras: {', '.join(cameras)}",
        )
        header = _header(options, preset, cell, cameras)
        if options.scale is not None:
            header["scale"] = options.scale
        if options.data is not None:
            header["data"] = fingerprint(options.data)
        _check_same(out, header)
        write_bytes(out / "config.yaml", dump_yaml(preset).encode())
        write_json(out / "train.json", header | {PLACE: place.facts()})
        yield from _stages(out, cell, preset, cameras, place, header, options.data)


def _seeded(preset: Preset, seed: int) -> Preset:
    return replace(preset, bc=replace(preset.bc, seed=seed), run=replace(preset.run, seed=seed))


def _header(options: TrainOptions, preset: Preset, cell: Workcell, cameras: tuple[str, ...]) -> dict[str, Any]:
    assert cell.source is not None
    return {
        "scene": cell.source.name,
        "scene_hash": sha256_file(cell.source / "manifest.json")[:16],
        "task": cell.task.plain(),
        "task_hash": cell.task.hash,
        "robot": str(options.robot) if options.robot is not None else None,
        "cameras": list(cameras),
        "size": preset.size,
        "seed": options.seed,
        "preset": to_dict(preset),
    }


def _check_same(out: Path, header: dict[str, Any]) -> None:
    """Refuse to continue a run that was started with something else."""
    if not (out / "train.json").is_file():
        return
    old = read_json(out / "train.json")
    known = old if isinstance(old, dict) else {}
    changed = [key for key in {**header, **known} if key != PLACE and known.get(key) != header.get(key)]
    if changed:
        raise UsageError(
            f"{out} holds a run with another {', '.join(changed)}",
            why="continuing it would mix two trainings",
            fix="Choose another --out, or delete that folder.",
        )


def _stages(
    out: Path, cell: Workcell, preset: Preset, cameras: tuple[str, ...], place: Place, header: dict[str, Any],
    data: Path | None,
) -> Iterator[Event]:  # fmt: skip
    env = SplatVectorEnv(cell, preset.num_envs, seed=header["seed"], cameras=cameras, size=preset.size)
    meta = {
        key: header[key] for key in ("scene", "scene_hash", "task", "task_hash", "robot", "cameras", "size", "seed")
    } | {PLACE: place.facts()}
    checkpoints = out / "checkpoints"
    if (out / "bc" / "policy.json").is_file():
        yield Message("info", f"the clone in {out / 'bc'} is complete")
        net = load_policy(out / "bc", place.device).net
    else:
        if data is not None:
            demos = yield from demonstrations(data, env, preset.net.image_size, preset.size)
        else:
            demos = yield from demonstrate(env, preset)
        first, _ = env.reset()
        net = build(
            obs_spec(first), ActionSpec(env.controller.size), preset.net, seed=header["seed"], device=place.device
        )
        yield from clone(net, demos, preset.bc, checkpoints / "bc")
        shown = int(demos.episode.max()) + 1
        save_policy(net, out / "bc", {**meta, "stage": "bc", "demonstrations": shown})
    yield Artifact("clone", out / "bc")
    if (out / "ppo" / "policy.json").is_file():
        yield Message("info", f"the policy in {out / 'ppo'} is complete")
    else:
        net.train()
        yield from improve(env, net, preset.ppo, preset.run, checkpoints=checkpoints / "ppo")
        save_policy(net, out / "ppo", {**meta, "stage": "ppo", "env_steps": preset.run.total_steps})
    yield Artifact("policy", out / "ppo")


def demonstrate(env: SplatVectorEnv, preset: Preset) -> Generator[Event, None, Demonstrations]:
    """Record successful expert episodes of the training split; returns `Demonstrations`.

    What is recorded is the expert's answer in each state; what is executed carries noise, whose draws depend on
    (seed, step) only. Episodes are kept in scenario order, so the set does not depend on which finished first.
    """
    config, seed = preset.demos, env.seed_value
    began = time.monotonic()
    yield StageStarted("demonstrate", config.episodes)
    observation, _ = env.reset(seed=seed)
    spec = obs_spec(observation)
    running: list[list[tuple[Packed, torch.Tensor]]] = [[] for _ in range(env.num_envs)]
    kept: list[tuple[int, list[tuple[Packed, torch.Tensor]]]] = []
    failed, step = 0, 0
    while len(kept) < config.episodes:
        actions = env.expert_action()
        packed = pack(observation, spec, preset.net.image_size)
        for row in range(env.num_envs):
            index = torch.tensor([row], device="cpu")
            running[row].append((packed.select(index), torch.from_numpy(actions[row : row + 1].copy())))
        noise = numpy_generator(seed, step, "demonstration noise").normal(0.0, config.noise, actions.shape)
        observation, _, terminated, truncated, info = env.step(actions + noise)
        step += 1
        for row in np.flatnonzero(terminated | truncated).tolist():
            if info["success"][row]:
                kept.append((int(info["final_scenario"][row]), running[row]))
            else:
                failed += 1
            running[row] = []
        if failed > 2 * config.episodes + 50:
            raise UsageError(
                f"the scripted expert fails at task {env.task.task!r} here",
                why=f"{failed} episodes failed, {len(kept)} succeeded",
                fix="Check the robot's base pose, the table of the scene, and the task's region and horizon.",
            )
        yield Progress("demonstrate", min(len(kept), config.episodes), config.episodes, {"failed": float(failed)})
    kept = sorted(kept, key=lambda item: item[0])[: config.episodes]
    yield StageFinished("demonstrate", time.monotonic() - began, {"failed": float(failed)})
    return _joined([episode for _, episode in kept])


def _joined(episodes: list[list[tuple[Packed, torch.Tensor]]]) -> Demonstrations:
    steps = [step for episode in episodes for step in episode]
    seen = Packed(*(torch.cat([getattr(p, name) for p, _ in steps]) for name in ("images", "proprio", "privileged")))
    labels = [torch.full((len(episode),), k, dtype=torch.int64, device="cpu") for k, episode in enumerate(episodes)]
    return Demonstrations(seen, torch.cat([action for _, action in steps]), torch.cat(labels))
