"""RLinf plug-in: put this folder on PYTHONPATH and set RLINF_EXT_MODULE=rlinf_ext; then `env_type: splat`.

Needs recon4d with its extra `sim` in the workers' environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCENE = Path(__file__).resolve().parent / "scene"


def register() -> Any:
    """Called by every RLinf worker; returns the environment's class."""
    from sim2real.export import rlinf_env

    return rlinf_env.register(SCENE)
