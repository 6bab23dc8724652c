"""Where the bodies of a fit are over time, as tensors a model can index by row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recon.geometry.quaternion import quat_normalize
from recon.scene.motion import Track

KEPT = 4096  # instants whose poses are remembered

Poses = tuple[Tensor, Tensor, Tensor]


class BodyMotion:
    """Poses of B bodies, world from body, from their tracks."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self.tracks = list(tracks)
        self._known: dict[float, Poses] = {}

    def at(self, t: float, device: torch.device) -> Poses:
        """(rotations [B, 3, 3], positions [B, 3], unit quats [B, 4] wxyz) at t [s], float32 on `device`."""
        found = self._known.get(t)
        if found is None:
            rotations, positions, quats = zip(*(track.at(t) for track in self.tracks), strict=True)
            parts = torch.stack(rotations), torch.stack(positions), quat_normalize(torch.stack(quats))
            found = parts[0].to(device).float(), parts[1].to(device).float(), parts[2].to(device).float()
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[t] = found
        return found
