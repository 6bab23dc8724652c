"""Which rasteriser draws: chosen by name and device, refused here with the reason when it cannot run.

A backend is one class with a `name` and `rasterize(RasterInputs) -> Rendering`:

    reference   pure torch, any device and dtype, any gradient; slow
    cpu         native code; float32 tensors on the CPU; no gradient to the intrinsics
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Protocol

import torch

from recon.core.errors import UnavailableError, UsageError, did_you_mean
from recon.render.types import RasterInputs, Rendering

log = logging.getLogger(__name__)

AUTO = "auto"
REFERENCE = "reference"
CPU = "cpu"
NAMES = (AUTO, CPU, REFERENCE)
NATIVE_TILE = 16  # pixels a side, fixed in the native kernels


class Backend(Protocol):
    """What `select` returns."""

    name: str

    def rasterize(self, inputs: RasterInputs) -> Rendering:
        """Draw validated inputs."""
        ...


def select(
    name: str,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    *,
    intrinsics_grad: bool = False,
    tile_size: int = NATIVE_TILE,
) -> Backend:
    """The backend called `name` for tensors of `dtype` on `device`; "auto" takes the fastest that fits.

    intrinsics_grad: whether Ks needs a gradient. Raises UsageError for an unknown name, and UnavailableError with the
    reason and the fix when the named backend cannot serve these tensors.
    """
    misfit = None
    if intrinsics_grad:
        misfit = "Ks requires a gradient, which it does not compute. Use --backend reference, or detach Ks"
    elif tile_size != NATIVE_TILE:
        misfit = f"tile_size is {tile_size} and its tiles have {NATIVE_TILE} pixels a side. Use --backend reference"
    return _native() if _choose(name, device, dtype, misfit) == CPU else _reference()


def select_name(name: str, device: torch.device, dtype: torch.dtype) -> str:
    """Like `select`, for the other native operations (loss, optimiser): "cpu" or "reference"."""
    return _choose(name, device, dtype, None)


def _choose(name: str, device: torch.device, dtype: torch.dtype, misfit: str | None) -> str:
    """`misfit`: a reason of the caller's against the native backend."""
    if name not in NAMES:
        raise UsageError(f"no rasteriser backend is called {name!r}", fix=did_you_mean(name, NAMES))
    if name == REFERENCE:
        return REFERENCE
    reason = misfit or _native_misfit(device, dtype)
    if reason is None:
        return CPU
    if name == AUTO:
        return REFERENCE
    raise UnavailableError(f"the {name!r} rasteriser backend cannot be used here", why=reason)


def describe_backends() -> dict[str, str | None]:
    """For each backend None when it runs on this machine, else the reason why not with its fix."""
    return {CPU: native_unavailable(), REFERENCE: None}


@lru_cache(maxsize=1)
def native_unavailable() -> str | None:
    """None when the native code can be loaded and run here, else the reason with its fix. Logged once."""
    from recon.render.backends import cpu

    reason = cpu.unavailable_reason()
    if reason is not None:
        log.warning("native rasteriser not available, drawing with plain torch instead (much slower): %s", reason)
    return reason


def _native_misfit(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the native backend cannot serve such tensors, with the fix; None when it can."""
    if device.type != CPU:
        return f"the tensors are on {device}. Use --backend reference, or move the tensors to the CPU"
    if dtype != torch.float32:
        return f"the tensors are {dtype} and it draws float32. Use --backend reference, or convert the tensors"
    return native_unavailable()


@lru_cache(maxsize=1)
def _reference() -> Backend:
    from recon.render.backends.reference import ReferenceBackend

    return ReferenceBackend()


@lru_cache(maxsize=1)
def _native() -> Backend:
    from recon.render.autograd import NativeBackend

    return NativeBackend()
