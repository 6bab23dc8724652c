"""The one module that knows device vendors.

Everywhere else a device is a `torch.device` that was handed in. `resolve_device`
turns a name into one or says why not and what to do about it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recon.core.errors import UnavailableError, UsageError, did_you_mean
from recon.core.events import Message

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Vendor:
    """What differs between makers of accelerators.

    Attributes:
        name: Device string of torch, without an index.
        plugin: Package whose import registers the device, "" if torch has it built in.
        visible_variable: Environment variable that hides devices, "" for the CPU.
        collective: torch.distributed backend.
        fix: What to do when the device is missing.

    The device's torch module is `torch.<name>`: memory, synchronisation and names are asked of it.
    """

    name: str
    plugin: str
    visible_variable: str
    collective: str
    fix: str


VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        Vendor("cpu", "", "", "gloo", ""),
        Vendor(
            "cuda",
            "",
            "CUDA_VISIBLE_DEVICES",
            "nccl",
            "Install a torch build with CUDA and NVIDIA's driver, or use --device cpu.",
        ),
        Vendor(
            "musa",
            "torch_musa",
            "MUSA_VISIBLE_DEVICES",
            "mccl",
            "Install torch_musa from Moore Threads for your torch version, or use --device cpu.",
        ),
    )
}
_PREFERENCE = ("cuda", "musa", "cpu")


@dataclass(frozen=True)
class DeviceInfo:
    """What is known about one vendor on this machine; `reason` and `fix` are empty when available.

    simulated: the device is a stand-in on the host's processor, see `is_simulated`.
    """

    name: str
    available: bool
    count: int
    description: str
    reason: str = ""
    fix: str = ""
    simulated: bool = False


def resolve_device(name: str = "auto") -> torch.device:
    """Return the torch device for "auto", "cpu", "cuda", "cuda:1", "musa", ...

    "auto" takes the first vendor that works, accelerators before the CPU. A device
    that was named and is missing is an error, never a silent fallback.

    Raises:
        UsageError: The name is unknown.
        UnavailableError: The device is not there; says why and what to do.
    """
    import torch

    if name == "auto":
        for candidate in _PREFERENCE:
            if describe_device(candidate).available:
                return torch.device(candidate)
    vendor_name, _, index = name.partition(":")
    if vendor_name not in VENDORS or (index and not index.isdecimal()) or name.endswith(":"):
        raise UsageError(f"unknown device {name!r}", fix=did_you_mean(vendor_name, ["auto", *VENDORS]))
    info = describe_device(vendor_name)
    if not info.available:
        raise UnavailableError(f"device {name!r} is not available", why=info.reason, fix=info.fix)
    if index and int(index) >= info.count:
        fix = f"Use an index below {info.count} or look at {VENDORS[vendor_name].visible_variable or 'the name'}."
        raise UnavailableError(f"device {name!r} is not available", why=f"{info.count} visible", fix=fix)
    return torch.device(name)


def describe_devices() -> list[DeviceInfo]:
    """Return one entry per known vendor, available or not, for `recon doctor`."""
    return [describe_device(name) for name in VENDORS]


def describe_device(name: str) -> DeviceInfo:
    """Return what is known about vendor `name` here, by its own runtime's answer."""
    vendor = VENDORS[name]
    if name == "cpu":
        return DeviceInfo(name, True, 1, f"{os.cpu_count() or 1} cores")
    reason = _missing(vendor)
    runtime = _runtime(vendor)
    if reason or runtime is None:
        return DeviceInfo(name, False, 0, "", reason or "its runtime did not load", vendor.fix)
    try:
        count = int(runtime.device_count()) if runtime.is_available() else 0
        description = str(runtime.get_device_name(0)) if count else ""
    except (RuntimeError, AttributeError, AssertionError) as error:
        return DeviceInfo(name, False, 0, "", f"its runtime failed ({error})", vendor.fix)
    if not count:
        hidden = os.environ.get(vendor.visible_variable)
        why = f"{vendor.visible_variable}={hidden!r} hides them" if hidden is not None else "no such device was found"
        return DeviceInfo(name, False, 0, "", why, vendor.fix)
    return DeviceInfo(name, True, count, description, simulated=_says_simulated(runtime))


def is_simulated(device: torch.device) -> bool:
    """Whether `device` is a stand-in on the host's processor: the module torch has for it holds a true `SIMULATED`."""
    return _says_simulated(_runtime(VENDORS[device.type]))


def device_label(device: torch.device) -> str:
    """Return the device as people and reports are told of it: "cuda:1", "musa (simulated)"."""
    return f"{device} (simulated)" if is_simulated(device) else str(device)


def device_notes(device: torch.device) -> Iterator[Message]:
    """What a command says of its device before it works there: nothing of a real one."""
    if is_simulated(device):
        yield Message("warning", f"the device {device} is simulated on the CPU: nothing here runs on real hardware")


def synchronize(device: torch.device) -> None:
    """Wait until all work queued on `device` is done; nothing to do on the CPU. For timing."""
    runtime = _runtime(VENDORS[device.type])
    if runtime is not None:
        runtime.synchronize(device)


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes: held by tensors now, the most that they held, not used by anybody, and all there are. Zeros on the CPU."""

    allocated: int = 0
    peak: int = 0
    free: int = 0
    total: int = 0


def memory_bytes(device: torch.device) -> DeviceMemory:
    """Return the state of a device's own memory; see `recon doctor` for the CPU's."""
    runtime = _runtime(VENDORS[device.type])
    if runtime is None:
        return DeviceMemory()
    free, total = runtime.mem_get_info(device)
    return DeviceMemory(
        int(runtime.memory_allocated(device)), int(runtime.max_memory_allocated(device)), int(free), int(total)
    )


def peak_memory_bytes(device: torch.device) -> int:
    """Return the largest memory [bytes] that torch held on `device`; 0 on the CPU."""
    return memory_bytes(device).peak


def seed_all(seed: int) -> None:
    """Seed the generators that torch keeps for the CPU and for every device.

    Our own code draws from `recon.core.seeding` instead; this is for code that cannot be told.
    """
    import torch

    torch.manual_seed(seed)  # seeds a registered device's generators too


def set_strict_precision() -> None:
    """Turn TF32 off wherever torch has such a switch, so that all devices compute the same float32."""
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    musa_backend = getattr(torch.backends, "mudnn", None)
    if musa_backend is not None:
        musa_backend.allow_tf32 = False


def collective_backend(device: torch.device) -> str:
    """Return the torch.distributed backend for processes that each hold such a device."""
    return VENDORS[device.type].collective


def _missing(vendor: Vendor) -> str:
    """Import the vendor's plugin if it needs one; return why that failed, or ""."""
    import torch

    if not vendor.plugin or hasattr(torch, vendor.name):
        return ""  # built in, or registered already
    if importlib.util.find_spec(vendor.plugin) is None:
        return f"the package {vendor.plugin} is not installed"
    try:
        importlib.import_module(vendor.plugin)
    except (ImportError, OSError, RuntimeError) as error:  # OSError: the driver's library is not in this container
        return f"the package {vendor.plugin} does not load ({error})"
    return ""


def _says_simulated(runtime: Any) -> bool:
    return bool(getattr(runtime, "SIMULATED", False))


def _runtime(vendor: Vendor) -> Any:
    """Return torch's module for the vendor (`torch.<name>`), None for the CPU or if absent."""
    import torch

    return None if vendor.name == "cpu" else getattr(torch, vendor.name, None)
