"""Act in reconstructed scenes: environments, policies, evaluation, other simulators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim2real.env import SplatVectorEnv as SplatVectorEnv
    from sim2real.make import make_vec as make_vec

__all__ = ["SplatVectorEnv", "make_vec"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # imported on first use: `sim2real --help` must not load torch
        from sim2real import env, make

        return getattr(make if name == "make_vec" else env, name)
    raise AttributeError(f"module 'sim2real' has no attribute {name!r}")
