"""A trained policy as a folder: `policy.json` says what it sees and does, `weights.safetensors` how."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recon.core.config import from_dict
from recon.core.errors import CorruptError, InputError, ReconError, UsageError
from recon.core.files import publishing, read_json, verify_folder, write_json
from recon.core.tensors import read_tensors, write_tensors
from rl.distributions import clip_action, sample
from rl.nets import ActorCritic, NetConfig
from rl.types import ActionSpec, Observation, ObsSpec, check_obs, pack

FORMAT, VERSION = "rl-policy", 1


class Policy:
    """What an evaluation or a robot runs: observation in, action out.

    Attributes:
        net: The network; its buffers hold the normalisation.
        meta: What the trainer recorded beside it (task, scene, seed, scores).
    """

    def __init__(self, net: ActorCritic, meta: dict[str, Any] | None = None) -> None:
        self.net, self.meta = net, meta or {}

    @property
    def obs(self) -> ObsSpec:
        """The observations it takes."""
        return self.net.obs

    @property
    def action(self) -> ActionSpec:
        """The actions it gives."""
        return self.net.action

    @torch.no_grad()
    def act(self, obs: Observation, deterministic: bool = True, generator: torch.Generator | None = None) -> np.ndarray:
        """Return actions float32 [N, A] in [-1, 1] for N observations.

        Args:
            obs: As the environment gives it; "privileged" is not read.
            deterministic: The mean action; otherwise a sample, drawn from `generator` (a CPU generator).

        Raises:
            InputError: The observation is not what the policy was trained on (camera, size or dtype).
        """
        check_obs(obs, self.net.obs, len(obs["proprio"]))
        packed = pack(obs, self.net.obs, self.net.config.image_size).to(self.net.device)
        action = self.net.mean(self.net.features(packed))
        if not deterministic:
            if generator is None:
                raise UsageError("a sampled action needs a generator", fix="Pass generator= or deterministic=True.")
            action = sample(action, self.net.log_std(), generator)
        return np.asarray(clip_action(action).cpu().numpy(), dtype=np.float32)


def save_policy(net: ActorCritic, folder: Path, meta: dict[str, Any] | None = None) -> Path:
    """Write the policy folder atomically and return it. `meta` must be plain JSON values."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "obs": dataclasses.asdict(net.obs),
        "action": dataclasses.asdict(net.action),
        "net": dataclasses.asdict(net.config),
        "meta": meta or {},
    }
    with publishing(Path(folder)) as stage:
        write_json(stage / "policy.json", header)
        write_tensors(stage / "weights.safetensors", net.state_dict())
    return Path(folder)


def load_policy(folder: Path, device: torch.device | str = "cpu") -> Policy:
    """Read a policy folder.

    Raises:
        InputError: Not a policy folder, or one of a newer version.
        CorruptError: A file changed since it was written, or weights do not fit the header.
    """
    folder = Path(folder)
    if not (folder / "policy.json").is_file():
        raise InputError(f"{folder} holds no policy", why="policy.json is missing")
    verify_folder(folder)
    header = read_json(folder / "policy.json")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{folder / 'policy.json'} is not a policy header", why=f'its "format" is not {FORMAT!r}')
    if header.get("version") != VERSION:
        raise InputError(f"{folder} has policy version {header.get('version')}", why=f"this program reads {VERSION}")
    try:
        obs = from_dict(ObsSpec, header["obs"])
        action = from_dict(ActionSpec, header["action"])
        config = from_dict(NetConfig, header["net"])
    except (KeyError, TypeError, ReconError) as error:
        raise InputError(f"{folder / 'policy.json'} does not describe a policy", why=str(error)) from error
    net = ActorCritic(obs, action, config, device=device)
    try:
        net.load_state_dict(read_tensors(folder / "weights.safetensors"))
    except RuntimeError as error:
        raise CorruptError(f"{folder / 'weights.safetensors'} does not fit policy.json", why=str(error)) from error
    meta = header.get("meta")
    return Policy(net.eval(), meta if isinstance(meta, dict) else {})
