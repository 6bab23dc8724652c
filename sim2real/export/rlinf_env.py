"""The environment as an RLinf worker calls it.

Constructor (cfg, num_envs, seed_offset, total_num_processes, worker_info); reset, step(auto_reset), chunk_step,
update_reset_state_ids; observations {main_images, wrist_images, extra_view_images, states, task_descriptions}. A group
is `group_size` environments in a row that start from the same scenario. All tensors are on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recon.core.errors import UsageError
from recon.core.seeding import numpy_generator
from sim2real.export.held import HeldEnv
from sim2real.scenarios import Split
from sim2real.workcell import chosen_cameras, open_workcell

Tensor = torch.Tensor
IDS = 1 << 20  # scenarios a worker draws from when they are not fixed


class SplatRlinfEnv:
    """N environments of one task.

    cfg: a mapping or an object with RLinf's keys, and `init_params` {scene, task, cameras, size}; the scene is that of
    the exported folder by default.
    """

    def __init__(
        self, cfg: Any, num_envs: int, seed_offset: int = 0, total_num_processes: int = 1, worker_info: Any = None,
        scene: Path | None = None,
    ) -> None:  # fmt: skip
        self.cfg, self.num_envs = cfg, num_envs
        self.group_size = int(_value(cfg, "group_size", 1))
        if num_envs % self.group_size:
            raise UsageError(f"{num_envs} environments do not make groups of {self.group_size}")
        init = _value(cfg, "init_params", {}) or {}
        folder = _value(init, "scene", None) or scene
        if folder is None:
            raise UsageError("no scene is given", fix="Set init_params.scene.")
        cell = open_workcell(Path(folder), _value(init, "task", "reach"))
        horizon = _value(cfg, "max_episode_steps", None)
        if horizon:
            cell = replace(cell, task=replace(cell.task, horizon=int(horizon)))
        names = _value(init, "cameras", None)
        self.cameras = chosen_cameras(cell, list(names) if names else None)
        self.auto_reset = bool(_value(cfg, "auto_reset", True))
        self.ignore_terminations = bool(_value(cfg, "ignore_terminations", False))
        self.use_rel_reward = bool(_value(cfg, "use_rel_reward", False))
        self.reward_coef = float(_value(cfg, "reward_coef", 1.0))
        self.fixed_ids = bool(_value(cfg, "use_fixed_reset_state_ids", False))
        self.seed = int(_value(cfg, "seed", 0)) + seed_offset
        self.total_num_processes, self.worker_info = total_num_processes, worker_info
        self.split: Split = "eval" if _value(cfg, "is_eval", False) else "train"
        self.env = HeldEnv(cell, num_envs, seed=int(_value(cfg, "seed", 0)), cameras=self.cameras,
                           size=int(_value(init, "size", 128)), split=self.split)  # fmt: skip
        self.task_descriptions = [cell.task.instruction[0]] * num_envs
        self.is_start = True
        self._draws = 0
        self._previous = np.zeros(num_envs)
        self._clear(np.arange(num_envs))
        self.reset_state_ids = torch.zeros(num_envs, dtype=torch.int64, device="cpu")
        self.update_reset_state_ids()

    # ------------------------------------------------------------------ episodes

    def update_reset_state_ids(self) -> None:
        """A new draw of initial states: one scenario per group; the same ones every time when they are fixed."""
        groups = self.num_envs // self.group_size
        draw = 0 if self.fixed_ids else self._draws
        ids = numpy_generator(self.seed, draw, "rlinf scenarios").integers(0, IDS, groups)
        self._draws += 1
        self.reset_state_ids = torch.from_numpy(np.repeat(ids, self.group_size))
        self._play()

    def _play(self) -> None:
        draw = self.env.cell.sampler.draw
        known = {i: draw(self.env.seed_value, self.split, i) for i in set(self.reset_state_ids.tolist())}
        self.env.play([known[i] for i in self.reset_state_ids.tolist()])

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start episodes in the environments options["env_idx"], or in all. episode_id in options chooses scenarios."""
        rows = np.arange(self.num_envs)
        if options and options.get("env_idx") is not None:
            rows = np.asarray(options["env_idx"], np.int64).reshape(-1)
        if seed is not None:
            self.env.seed_value = int(seed)
        if options and options.get("episode_id") is not None:
            chosen = torch.as_tensor(np.asarray(options["episode_id"], np.int64).reshape(-1), device="cpu")
            self.reset_state_ids[torch.from_numpy(rows)] = chosen
        self._play()
        observation = self.env.start(rows)
        self._clear(rows)
        self.is_start = False
        return self._wrapped(observation), {}

    def _clear(self, rows: NDArray[np.int64]) -> None:
        if not hasattr(self, "_return"):
            self._return, self._length = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
            self._once, self._failed = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for table in (self._return, self._length, self._once, self._failed, self._previous):
            table[rows] = 0

    # ------------------------------------------------------------------ steps

    def step(
        self, actions: Any = None, auto_reset: bool = True
    ) -> tuple[dict[str, Any], Tensor | None, Tensor, Tensor, dict[str, Any]]:
        """(observation, reward [N], terminated [N], truncated [N], infos). Without actions: a reset of everything."""
        if actions is None:
            observation, empty = self.reset()
            none = torch.zeros(self.num_envs, dtype=torch.bool, device="cpu")
            return observation, None, none, none.clone(), empty
        raw, reward, terminated, truncated, info = self.env.step(_numpy(actions))
        reward = self.reward_coef * reward
        if self.use_rel_reward:
            reward, self._previous = reward - self._previous, reward
        self._return += reward
        self._length += 1
        self._once |= info["success"]
        self._failed |= info["diverged"]
        observation = self._wrapped(raw)
        infos: dict[str, Any] = {"episode": self._episode_info(info["success"])}
        if self.ignore_terminations:
            terminated = np.zeros_like(terminated)
        if auto_reset and self.auto_reset and (terminated | truncated).any():
            observation, infos = self._restarted(terminated | truncated, observation, infos)
        return observation, _tensor(reward), torch.from_numpy(terminated), torch.from_numpy(truncated), infos

    def chunk_step(
        self, chunk_actions: Any
    ) -> tuple[list[dict[str, Any]], Tensor, Tensor, Tensor, list[dict[str, Any]]]:
        """Actions [N, C, D] in a row: (observations, rewards [N, C], terminated [N, C], truncated [N, C], infos).

        Inner steps never reset. With auto_reset or ignore_terminations a chunk's flags are gathered in its last column;
        else they stay where they arose. With auto_reset what has ended starts again.
        """
        actions = _numpy(chunk_actions)
        steps = [self.step(actions[:, k], auto_reset=False) for k in range(actions.shape[1])]
        observations, infos = [s[0] for s in steps], [s[4] for s in steps]
        rewards = torch.stack([s[1] for s in steps if s[1] is not None], dim=1)
        terminated, truncated = torch.stack([s[2] for s in steps], dim=1), torch.stack([s[3] for s in steps], dim=1)
        ended = (terminated | truncated).any(dim=1)
        if self.auto_reset and bool(ended.any()):
            observations[-1], infos[-1] = self._restarted(ended.numpy(), observations[-1], infos[-1])
        if self.auto_reset or self.ignore_terminations:
            terminated, truncated = _last(terminated), _last(truncated)
        return observations, rewards, terminated, truncated, infos

    def _restarted(
        self, done: NDArray[np.bool_], observation: dict[str, Any], infos: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        rows = np.flatnonzero(done)
        if not self.fixed_ids:
            self.update_reset_state_ids()
        fresh, _ = self.reset(options={"env_idx": rows})
        mask = torch.from_numpy(done.copy())
        return fresh, {"final_observation": observation, "final_info": infos, "_final_info": mask,
                       "_final_observation": mask, "_elapsed_steps": mask}  # fmt: skip

    # ------------------------------------------------------------------ what is told

    def _wrapped(self, raw: dict[str, Any]) -> dict[str, Any]:
        images = [torch.from_numpy(raw["rgb"][name].copy()) for name in self.cameras]
        return {
            "main_images": images[0],
            "wrist_images": None,
            "extra_view_images": torch.stack(images[1:], dim=1) if len(images) > 1 else None,
            "states": torch.from_numpy(raw["proprio"].copy()),
            "task_descriptions": list(self.task_descriptions),
        }

    def _episode_info(self, success: NDArray[np.bool_]) -> dict[str, Tensor]:
        return {
            "success_once": torch.from_numpy(self._once.copy()),
            "success_at_end": torch.from_numpy(success.copy()),
            "fail_once": torch.from_numpy(self._failed.copy()),
            "return": _tensor(self._return),
            "episode_len": torch.from_numpy(self._length.copy()),
            "reward": _tensor(self._return / np.maximum(self._length, 1)),
        }

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Everything the next step depends on."""
        own = {name: getattr(self, f"_{name}").copy() for name in ("return", "length", "once", "failed", "previous")}
        return self.env.get_state() | {f"rlinf/{name}": value for name, value in own.items()}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from what get_state returned."""
        self.env.set_state({name: value for name, value in state.items() if not name.startswith("rlinf/")})
        for name in ("return", "length", "once", "failed", "previous"):
            setattr(self, f"_{name}", state[f"rlinf/{name}"].copy())

    def close(self) -> None:
        """Free the simulator."""
        self.env.close()


def register(scene: Path) -> type:
    """Make `env_type: splat` known to RLinf in this process; returns the class.

    Its list of environments is closed: the enumeration gets a member and its look-up is wrapped.
    """

    class SceneEnv(SplatRlinfEnv):
        """The environment of one exported folder."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{"scene": scene, **kwargs})

    import rlinf.envs as envs

    kinds = envs.SupportedEnvType
    if "splat" not in kinds._value2member_map_:
        member = object.__new__(kinds)
        member._name_, member._value_ = "SPLAT", "splat"
        kinds._member_map_["SPLAT"] = kinds._value2member_map_["splat"] = member
        kinds._member_names_.append("SPLAT")
    look_up = envs.get_env_cls
    spoken = kinds("splat")

    def get_env_cls(env_type: Any, *args: Any, **kwargs: Any) -> Any:
        if env_type in ("splat", spoken):
            return SceneEnv
        return look_up(env_type, *args, **kwargs)

    envs.get_env_cls = get_env_cls
    return SceneEnv


def _value(cfg: Any, key: str, default: Any) -> Any:
    found = cfg.get(key, default) if hasattr(cfg, "get") else getattr(cfg, key, default)
    return default if found is None else found


def _numpy(actions: Any) -> NDArray[np.float64]:
    if isinstance(actions, torch.Tensor):
        actions = actions.detach().cpu().numpy()
    return np.asarray(actions, np.float64)


def _tensor(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float32).copy())


def _last(flags: Tensor) -> Tensor:
    """[N, C] with any of a row in its last column."""
    gathered = torch.zeros_like(flags)
    gathered[:, -1] = flags.any(dim=1)
    return gathered
