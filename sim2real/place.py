"""Where a command's networks are and where its pictures are drawn, as it works and as its reports tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from recon.core.device import device_label, device_notes, is_simulated, resolve_device, set_strict_precision
from recon.core.events import Message
from recon.render.backends import CPU, select_name


@dataclass(frozen=True)
class Place:
    """device: of the networks. drawing: of the splats. backend: the rasteriser that draws there, never "auto"."""

    device: torch.device
    drawing: torch.device
    backend: str

    def notes(self) -> Iterator[Message]:
        """What is said before the work: that a device is simulated, and where the work is when it is not all there."""
        yield from device_notes(self.device)
        if self.device.type != CPU:
            where = f"on {device_label(self.drawing)} with backend {self.backend}"
            yield Message("info", f"networks on {device_label(self.device)}, pictures drawn {where}")

    def facts(self) -> dict[str, Any]:
        """The same for a report, as plain values."""
        return {
            "device": device_label(self.device),
            "drawn_on": device_label(self.drawing),
            "renderer": self.backend,
            "simulated": is_simulated(self.device),
        }


def find_place(device: str, backend: str) -> Place:
    """Resolve --device and --backend, and turn TF32 off.

    Everything is on the device, but for the native rasteriser, which knows the CPU alone: who asks for it by name
    draws there, whatever the networks are on.

    Raises:
        UsageError: an unknown device or backend.
        UnavailableError: one that is not to be had here.
    """
    found = resolve_device(device)
    set_strict_precision()
    drawing = torch.device(CPU) if backend == CPU else found
    return Place(found, drawing, select_name(backend, drawing, torch.float32))
