"""Mass, centre and inertia of a body of one density, which nobody can see: it is declared, and said to be so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import trimesh

from recon.core.errors import UsageError
from recon.mesh.depth import Array

DENSITIES = (1.0, 30_000.0)  # kg/m^3 that are believed
ASSUMED = 1000.0  # kg/m^3 where nobody declares one


@dataclass(frozen=True, eq=False)
class MassProperties:
    """kg, m and kg m^2 in the body's frame; `inertia` [3, 3] is about the centre of mass. volume_from: 'surface' or,
    where that is not closed, 'pieces' (which may overlap a little). declared: the density was given."""

    density: float
    declared: bool
    volume: float
    mass: float
    center: Array
    inertia: Array
    volume_from: str

    @property
    def source(self) -> str:
        """How the density is known."""
        return f"{'declared' if self.declared else 'assumed'}, not measured"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "density": self.density,
            "density_source": self.source,
            "volume": self.volume,
            "volume_source": self.volume_from,
            "mass": self.mass,
            "center": self.center.tolist(),
            "inertia": self.inertia.tolist(),
        }


def mass_properties(
    surface: trimesh.Trimesh, pieces: list[trimesh.Trimesh], declared: float | None = None
) -> MassProperties:
    """Of the closed `surface`, or of `pieces` where it is not closed.

    declared: kg/m^3, ASSUMED when None. Raises UsageError for an absurd one.
    """
    density = ASSUMED if declared is None else declared
    if not DENSITIES[0] <= density <= DENSITIES[1]:
        raise UsageError(f"a density of {density:g} kg/m^3", fix=f"Give {DENSITIES[0]:g} to {DENSITIES[1]:g}.")
    closed = bool(surface.is_volume)
    parts = [surface] if closed else pieces
    volumes = np.array([part.volume for part in parts])
    centers = np.array([part.center_mass for part in parts])
    volume = float(volumes.sum())
    center = volumes @ centers / volume
    # I = sum over parts of I_part + m (|d|^2 - d d^T), d from the common centre (parallel axes)
    inertia = np.zeros((3, 3))
    for part, v, c in zip(parts, volumes, centers, strict=True):
        d = c - center
        inertia += density * (np.asarray(part.moment_inertia) / part.density + v * (d @ d * np.eye(3) - np.outer(d, d)))
    return MassProperties(
        density,
        declared is not None,
        volume,
        density * volume,
        center,
        (inertia + inertia.T) / 2,
        "surface" if closed else "pieces",
    )
