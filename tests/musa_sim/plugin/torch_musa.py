"""Stands in for Moore Threads' `torch_musa` in tests: importing it registers a SIMULATED `musa` device with torch.

The device has the vendor's name, module and operator list, and the memory and kernels of the CPU. It shows whether code
keeps to the device it was given; it shows nothing of MUSA's kernels, precision or speed.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from tests.musa_sim.build import library, unsupported_reason
from tests.musa_sim.operators import offer_operators

SIMULATED = True
NAME = "MTT S5000 (simulated)"
DEVICES = 2

if unsupported_reason():
    raise ImportError(unsupported_reason())
torch.utils.rename_privateuse1_backend("musa")
torch.ops.load_library(str(library()))
_sim = torch.ops.musa_sim
_sim.start()


def _index(device: Any = None) -> int:
    """The ordinal of "musa:1", torch.device("musa"), 1 or None (the current one)."""
    if isinstance(device, str):
        device = torch.device(device)
    index = device.index if isinstance(device, torch.device) else device
    return current_device() if index is None else int(index)


def is_available() -> bool:
    """Always, once it is loaded."""
    return True


def is_initialized() -> bool:
    """Always: there is nothing to start."""
    return True


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    """Two, so that a tensor on the wrong one is found."""
    return DEVICES


def current_device() -> int:
    """Ordinal of this thread's device."""
    return int(_sim.current_device())


def set_device(device: Any) -> None:
    """Make it this thread's device."""
    _sim.set_device(_index(device))


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""


def get_device_name(device: Any = None) -> str:
    """Says that it is simulated."""
    return NAME


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """That of an S5000."""
    return (3, 1)


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors hold."""
    return int(_sim.memory(_index(device))[0])


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors held."""
    return int(_sim.memory(_index(device))[1])


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count the most anew."""
    _sim.reset_peak(_index(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of an S5000's 80 GB."""
    total = 80 * 10**9
    return total - memory_allocated(device), total


def manual_seed(seed: int) -> None:
    """Seed the current device's own generator."""
    _sim.seed(current_device(), seed)


def manual_seed_all(seed: int) -> None:
    """Seed every device's own generator."""
    for index in range(DEVICES):
        _sim.seed(index, seed)


def get_rng_state(device: Any = None) -> torch.Tensor:
    """State of the device's own generator."""
    state: torch.Tensor = _sim.rng_state(_index(device))
    return state


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Continue from `get_rng_state`."""
    _sim.set_rng_state(_index(device), state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may be asked for."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """As on an S5000."""
    return True


class device:
    """Context in which another device is this thread's; None or -1 leaves it."""

    def __init__(self, device: Any) -> None:
        self.wanted, self.before = device, -1

    def __enter__(self) -> None:
        self.before = current_device()
        if self.wanted not in (None, -1):
            set_device(self.wanted)

    def __exit__(self, *error: object) -> None:
        set_device(self.before)


class _Mudnn:
    """`torch.backends.mudnn`, whose TF32 switch is on until somebody turns it off, as on torch_musa."""

    allow_tf32 = True


torch._register_device_module("musa", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
torch.backends.mudnn = _Mudnn()  # type: ignore[attr-defined]
offer_operators()
print(f"{NAME}: a simulated device, not hardware", file=sys.stderr)
