"""Operators replayed: every kind of call that our fit and trainer make, on the CPU and on a device, side by side.

`data/doctor/operators.jsonl` holds one call per line, recorded by the device suite on the simulated musa device:

    {"op": "aten::add.Tensor", "args": [{"tensor": "Float", "shape": [3, 4], "low": -1.0, "high": 2.0}, ...]}

Tensors are made again from their ranges, with fixed random numbers. The recorded calls are small: what a device gets
wrong only for large tensors is not found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recon.core.files import data_file
from recon.core.seeding import torch_generator

RELATIVE, ABSOLUTE = 1e-4, 1e-5  # float32 results may differ by this much
DTYPES = {
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Double": torch.float64,  # device-lint: allow M06 (named, so that a recorded call can be refused)
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}


@dataclass(frozen=True)
class Replay:
    """One call on both. error: largest difference over the allowed one (1 is fine). failure: why it did not run."""

    op: str
    error: float
    failure: str = ""

    @property
    def ok(self) -> bool:
        """Ran, and agrees."""
        return not self.failure and self.error <= 1.0


def recorded() -> list[dict[str, Any]]:
    """The recorded calls."""
    return [json.loads(line) for line in data_file("doctor/operators.jsonl").read_text().splitlines()]


def replay_all(device: torch.device) -> Iterator[Replay]:
    """Replay every recorded call on `device`."""
    for index, call in enumerate(recorded()):
        yield replay(call, device, index)


def replay(call: dict[str, Any], device: torch.device, seed: int = 0) -> Replay:
    """Make one call on the CPU and on `device`, from the same values; compare what it returns and what it writes."""
    results = []
    for place in (torch.device("cpu"), device):
        generator = torch_generator(seed, 0, call["op"])
        try:
            results.append(_run(call, place, generator))
        except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
            return Replay(call["op"], 0.0, f"{place}: {str(error).splitlines()[0][:200]}")
    if any(isinstance(argument, dict) and "generator" in argument for argument in call["args"]):
        shapes = [[(tuple(t.shape), t.dtype) for t in tensors] for tensors in results]
        return Replay(call["op"], 0.0, "" if shapes[0] == shapes[1] else "another shape or type")
    if len(results[0]) != len(results[1]):
        return Replay(call["op"], 0.0, f"{len(results[1])} results, not {len(results[0])}")
    return Replay(call["op"], max((_error(a, b) for a, b in zip(*results, strict=True)), default=0.0))


def _run(call: dict[str, Any], device: torch.device, generator: torch.Generator) -> list[Tensor]:
    """All tensors after the call: arguments first (one may have been written to), then results."""
    name, _, overload = call["op"].removeprefix("aten::").partition(".")
    operator = getattr(getattr(torch.ops.aten, name), overload or "default")
    values = [_argument(value, device, generator) for value in call["args"]]
    arguments = operator._schema.arguments
    plain = [v for v, a in zip(values, arguments, strict=True) if not a.kwarg_only]
    named = {a.name: v for v, a in zip(values, arguments, strict=True) if a.kwarg_only}
    with torch.no_grad():
        returned = operator(*plain, **named)
    return [*_tensors(values), *_tensors(returned)]


def _argument(value: Any, device: torch.device, generator: torch.Generator) -> Any:
    if isinstance(value, list):
        return [_argument(entry, device, generator) for entry in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return _tensor(value, generator).to(device) if not value.get("stride") else _strided(value, device, generator)
    if "dtype" in value:
        return DTYPES[value["dtype"]]
    if "device" in value:
        return device
    if "generator" in value:
        return torch_generator(0, 0, "replay", device)
    if "float" in value:
        return float(value["float"])
    raise TypeError(f"an argument that cannot be made again: {value}")


def _tensor(value: dict[str, Any], generator: torch.Generator, count: int | None = None) -> Tensor:
    """Random numbers in the recorded range, on the CPU: in the recorded shape, or `count` of them in a row."""
    shape = value["shape"] if count is None else [count]
    dtype, low, high = DTYPES[value["tensor"]], value.get("low", 0.0), value.get("high", 1.0)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator, device="cpu") < 0.5 * (low + high)
    if not dtype.is_floating_point:
        return torch.randint(int(low), int(high) + 1, shape, generator=generator, dtype=dtype, device="cpu")
    return (low + (high - low) * torch.rand(shape, generator=generator, device="cpu")).clamp(low, high).to(dtype)


def _strided(value: dict[str, Any], device: torch.device, generator: torch.Generator) -> Tensor:
    shape, stride = value["shape"], value["stride"]
    count = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if all(shape) else 0
    return _tensor(value, generator, count).to(device).as_strided(shape, stride)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value.detach().to("cpu")]
    return [t for entry in value for t in _tensors(entry)] if isinstance(value, (list, tuple)) else []


def _error(expected: Tensor, found: Tensor) -> float:
    """Largest |difference| / (ABSOLUTE + RELATIVE |expected|); infinite for another shape, type or whole number."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(expected, found) else float("inf")
    if expected.numel() == 0:
        return 0.0
    expected, found = expected.float(), found.float()
    alike = (expected == found) | (expected.isnan() & found.isnan())
    error = (expected - found).abs() / (ABSOLUTE + RELATIVE * expected.abs())
    return float(torch.where(alike, torch.zeros_like(error), error.nan_to_num(nan=float("inf"))).max())
