"""What the trainer and an environment agree on: observations, flags, information.

The protocol is Gymnasium's `VectorEnv` with SAME_STEP autoreset, checked and not
assumed, because a silent difference here trains a wrong policy without an error:

* an environment that finishes is reset inside the same `step`; the returned
  observation is the first one of the next episode;
* the observation in which the episode ended is always given, in
  `info["final_obs"]` (same structure as an observation, N rows) for the rows
  where `info["_final_obs"]` is true;
* `terminated` (the task ended) and `truncated` (time ran out) stay separate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from recon.core.errors import InputError, UsageError

Observation = dict[str, Any]
"""{"rgb": {camera: uint8 [N, H, W, 3]}, "proprio": float32 [N, P]} and optionally "privileged": float32 [N, S].

"privileged" is simulator truth for the critic only; the policy never sees it and runs without it.
"""


class VectorEnv(Protocol):
    """N environments stepped together; arrays are NumPy arrays or CPU tensors."""

    num_envs: int
    metadata: dict[str, Any]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """Start N episodes; return (observation, info)."""

    def step(self, actions: Any) -> tuple[Observation, Any, Any, Any, dict[str, Any]]:
        """Apply actions float32 [N, A] in [-1, 1].

        Returns (observation, rewards [N], terminated bool [N], truncated bool [N], info).
        `info["success"]` bool [N], where given, holds for the rows that finished.
        """


class StatefulVectorEnv(VectorEnv, Protocol):
    """A `VectorEnv` that can be checkpointed: what exact resume needs."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Return everything the next `step` depends on, as named numeric arrays."""

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what `get_state` returned."""


@dataclass(frozen=True)
class ObsSpec:
    """Shapes of one environment's observation.

    Attributes:
        cameras: (name, height [px], width [px]) in the order in which the network reads them.
        proprio: Number of proprioceptive values, P.
        privileged: Number of critic-only values, S; 0 when there are none.
    """

    cameras: tuple[tuple[str, int, int], ...]
    proprio: int
    privileged: int = 0


@dataclass(frozen=True)
class ActionSpec:
    """Actions are float32 [size] in [-1, 1]; `hold` environment steps are taken per decision."""

    size: int
    hold: int = 1


def obs_spec(obs: Observation) -> ObsSpec:
    """Read the shapes off a batched observation."""
    rgb = obs.get("rgb", {})
    cameras = tuple((name, int(image.shape[1]), int(image.shape[2])) for name, image in rgb.items())
    privileged = obs.get("privileged")
    return ObsSpec(cameras, int(obs["proprio"].shape[1]), 0 if privileged is None else int(privileged.shape[1]))


def check_obs(obs: Observation, spec: ObsSpec, num_envs: int, where: str = "observation") -> None:
    """Raise InputError naming the entry whose presence, shape or dtype is not as `spec` says."""
    rgb = obs.get("rgb", {})
    for name, height, width in spec.cameras:
        if name not in rgb:
            raise InputError(f"{where} lacks camera {name!r}", why=f"it has {sorted(rgb) or 'none'}")
        _check_array(rgb[name], (num_envs, height, width, 3), "uint8", f"{where} rgb[{name!r}]")
    _check_array(obs.get("proprio"), (num_envs, spec.proprio), "float32", f"{where} proprio")
    if spec.privileged and "privileged" in obs:
        _check_array(obs["privileged"], (num_envs, spec.privileged), "float32", f"{where} privileged")


def _check_array(array: Any, shape: tuple[int, ...], dtype: str, where: str) -> None:
    if array is None:
        raise InputError(f"{where} is missing")
    found = tuple(array.shape), str(array.dtype).replace("torch.", "")
    if found != (shape, dtype):
        raise InputError(f"{where} is {found[1]} {list(found[0])}", why=f"expected {dtype} {list(shape)}")


def check_autoreset(env: VectorEnv) -> None:
    """Raise UsageError unless the environment declares SAME_STEP autoreset."""
    mode = env.metadata.get("autoreset_mode")
    if getattr(mode, "name", mode) != "SAME_STEP":
        raise UsageError(
            f"the environment's autoreset mode is {mode}",
            why="the trainer bootstraps from final observations, which only SAME_STEP gives",
            fix='Set metadata["autoreset_mode"] = AutoresetMode.SAME_STEP and fill info["final_obs"].',
        )


def check_env(env: VectorEnv, action_size: int, steps: int = 3, seed: int = 0) -> ObsSpec:
    """Reset, take random steps and refuse an environment that breaks the protocol.

    Raises:
        UsageError: The autoreset mode is not SAME_STEP, or a finished row has no final observation.
        InputError: A shape or dtype changes between steps or is not the protocol's.
    """
    check_autoreset(env)
    obs, _ = env.reset(seed=seed)
    spec = obs_spec(obs)
    check_obs(obs, spec, env.num_envs)
    random = np.random.default_rng(seed)
    for _ in range(steps):
        actions = random.uniform(-1.0, 1.0, (env.num_envs, action_size)).astype(np.float32)
        obs, rewards, terminated, truncated, info = env.step(actions)
        check_obs(obs, spec, env.num_envs)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            _check_array(flag, (env.num_envs,), "bool", name)
        if tuple(rewards.shape) != (env.num_envs,):
            raise InputError(f"rewards have shape {list(rewards.shape)}", why=f"expected [{env.num_envs}]")
        final_observation(info, np.asarray(terminated) | np.asarray(truncated), spec)
    return spec


def final_observation(info: dict[str, Any], finished: np.ndarray, spec: ObsSpec) -> Observation | None:
    """Return `info["final_obs"]` when any row finished (else None), after checking it covers those rows."""
    if not finished.any():
        return None
    mask = info.get("_final_obs")
    if "final_obs" not in info or mask is None or not np.asarray(mask)[finished].all():
        rows = np.flatnonzero(finished).tolist()
        raise UsageError(
            f"environments {rows} finished without a final observation",
            fix='Fill info["final_obs"] and info["_final_obs"] for every finished environment.',
        )
    final: Observation = info["final_obs"]
    check_obs(final, spec, len(finished), "final_obs")
    return final


@dataclass
class Packed:
    """An observation batch as the networks take it.

    Attributes:
        images: uint8 [B, K, h, w, 3], K cameras reduced to the network's size; K may be 0.
        proprio: float32 [B, P].
        privileged: float32 [B, S]; S may be 0.
    """

    images: torch.Tensor
    proprio: torch.Tensor
    privileged: torch.Tensor

    def __len__(self) -> int:
        return len(self.proprio)

    def select(self, rows: torch.Tensor) -> Packed:
        """Return the given rows (index or mask)."""
        return Packed(self.images[rows], self.proprio[rows], self.privileged[rows])

    def to(self, device: torch.device | str) -> Packed:
        """Return it on `device`."""
        return Packed(self.images.to(device), self.proprio.to(device), self.privileged.to(device))


def pack(obs: Observation, spec: ObsSpec, image_size: int) -> Packed:
    """Reduce an observation to CPU tensors: images to `image_size` squares by area averaging."""
    proprio = torch.as_tensor(obs["proprio"], dtype=torch.float32, device="cpu")
    rows = len(proprio)
    images = [shrink(torch.as_tensor(obs["rgb"][name], device="cpu"), image_size) for name, _, _ in spec.cameras]
    if images:
        stacked = torch.stack(images, dim=1)
    else:
        stacked = torch.zeros((rows, 0, image_size, image_size, 3), dtype=torch.uint8, device="cpu")
    if spec.privileged and "privileged" in obs:
        privileged = torch.as_tensor(obs["privileged"], dtype=torch.float32, device="cpu")
    else:
        privileged = torch.zeros((rows, spec.privileged), dtype=torch.float32, device="cpu")
    return Packed(stacked, proprio, privileged)


def shrink(images: torch.Tensor, size: int) -> torch.Tensor:
    """Area-average uint8 [N, H, W, 3] to [N, size, size, 3], rounded to nearest.

    Whole factors run in integers (exact, and the fast path); others average in float32.
    """
    height, width = images.shape[1:3]
    if (height, width) == (size, size):
        return images
    if height % size == 0 and width % size == 0:
        down, across = height // size, width // size
        total = torch.zeros((len(images), size, size, 3), dtype=torch.int32, device=images.device)
        for row in range(down):
            for column in range(across):
                total += images[:, row::down, column::across]
        count = down * across
        return torch.div(total + count // 2, count, rounding_mode="floor").to(torch.uint8)
    area = torch.nn.functional.adaptive_avg_pool2d(images.permute(0, 3, 1, 2).float(), size)
    return area.permute(0, 2, 3, 1).add(0.5).floor().clamp(0, 255).to(torch.uint8)
