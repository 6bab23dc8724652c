"""LeRobot EnvHub entry: `make_env` for the scene in this folder. Needs recon4d with its extra `sim`.

lerobot-eval --env.type=hub --env.hub_path=USER/REPO --trust_remote_code=true ...
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCENE = Path(__file__).resolve().parent / "scene"


def make_env(n_envs: int = 1, use_async_envs: bool = False, cfg: Any = None) -> Any:
    """{suite: {task number: vector environment}}, with LeRobot's observation keys and SAME_STEP autoreset."""
    from sim2real.export import envhub_env

    return envhub_env.make_env(SCENE, n_envs, use_async_envs, cfg)
