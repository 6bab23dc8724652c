"""The environment as LeRobot's evaluation calls it: single environments in a Gymnasium vector, its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from sim2real.export.held import HeldEnv
from sim2real.workcell import Workcell, chosen_cameras, open_workcell

SIZE = 128  # px, of the square pictures


class LeRobotEnv(gymnasium.Env):
    """One environment. Observation: {"pixels": {camera: uint8 [H, W, 3]}, "agent_pos": float32 [2 A + 3]}.

    agent_pos and the action are those of `sim2real collect`'s data sets. Success: info["is_success"].
    """

    def __init__(self, cell: Workcell, cameras: tuple[str, ...], size: int = SIZE, seed: int = 0) -> None:
        self._env = HeldEnv(cell, 1, seed=seed, cameras=cameras, size=size, split="eval")
        self._max_episode_steps = cell.task.horizon
        self.task, self.task_description = cell.task.task, cell.task.instruction[0]
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": cell.task.control.hz}
        self.render_mode = "rgb_array"
        single: Any = self._env.single_observation_space
        self.observation_space = gymnasium.spaces.Dict({"pixels": single["rgb"], "agent_pos": single["proprio"]})
        self.action_space = self._env.single_action_space
        self._last: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The next evaluation scenario, or the first one of `seed`."""
        super().reset(seed=seed)
        observation, _ = self._env.reset(seed=seed, options=options)
        return self._single(observation), {"is_success": False}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One control step."""
        observation, reward, terminated, truncated, info = self._env.step(np.asarray(action, np.float32)[None])
        told = {"is_success": bool(info["success"][0]), "distance": float(info["distance"][0])}
        return self._single(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), told

    def render(self) -> NDArray[np.uint8]:
        """The first camera's picture."""
        picture: NDArray[np.uint8] = next(iter(self._last["pixels"].values()))
        return picture

    def _single(self, observation: dict[str, Any]) -> dict[str, Any]:
        pixels = {name: images[0] for name, images in observation["rgb"].items()}
        self._last = {"pixels": pixels, "agent_pos": observation["proprio"][0]}
        return self._last


def make_env(
    scene: Path, n_envs: int = 1, use_async_envs: bool = False, cfg: Any = None, task: str = "reach"
) -> dict[str, dict[int, VectorEnv]]:
    """{suite: {task number: vector environment}}. cfg may have `task`, `camera_name` (commas) and `size`.

    Raises UsageError for an unknown task or camera.
    """
    cell = open_workcell(scene, getattr(cfg, "task", None) or task)
    asked = getattr(cfg, "camera_name", None)
    cameras = chosen_cameras(cell, [name.strip() for name in asked.split(",")] if asked else None)
    size = int(getattr(cfg, "size", None) or SIZE)

    def one(number: int) -> Any:
        return lambda: LeRobotEnv(cell, cameras, size, seed=number)

    kind = AsyncVectorEnv if use_async_envs else SyncVectorEnv
    vector = kind([one(k) for k in range(n_envs)], autoreset_mode=AutoresetMode.SAME_STEP)
    return {scene.resolve().parent.name: {0: vector}}
