"""Solid primitives as a task declares them: their pieces to collide with, and flat Gaussians on their surface.

A box, a cylinder (upright along its own z), a ball, and a socket: a block with a square hole from above. Every surface
is a lattice of points with outward normals, so the same declaration always gives the same Gaussians.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Kind = Literal["box", "cylinder", "sphere", "socket"]

POINTS = 500  # surface Gaussians of one thing, about
TANGENT = 0.62  # standard deviation along the surface, of the spacing: neighbours overlap enough to be opaque
NORMAL = 0.08  # and across it
OPACITY = 0.98
FLOOR = 0.006  # m, of the bottom of a socket's hole


@dataclass(frozen=True, eq=False)
class Piece:
    """A convex piece in its body's frame. kind: box (half extents), cylinder (radius, half height), sphere (radius) or
    hull (vertices [V, 3] m). at: its centre, m."""

    kind: Literal["box", "cylinder", "sphere", "hull"]
    size: tuple[float, ...] = ()
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    vertices: Array | None = None

    def corners(self) -> Array:
        """Points [V, 3] whose hull, grown by `rounding`, is the piece (a cylinder's rims have 24 points each)."""
        if self.kind == "hull":
            assert self.vertices is not None
            return self.vertices
        if self.kind == "sphere":
            local = np.zeros((1, 3))
        elif self.kind == "box":
            local = _signs() * np.asarray(self.size)
        else:
            turn = 2 * np.pi * np.arange(24) / 24
            rim = np.stack([np.cos(turn), np.sin(turn)], axis=1) * self.size[0]
            local = np.concatenate([np.column_stack([rim, np.full(24, z)]) for z in (-self.size[1], self.size[1])])
        return local + np.asarray(self.at)

    @property
    def rounding(self) -> float:
        """m, by which `corners` must be grown: a ball's radius."""
        return self.size[0] if self.kind == "sphere" else 0.0

    @property
    def volume(self) -> float:
        """m^3; of a hull that of its bounding box, since hulls come with masses of their own."""
        if self.kind == "box":
            return float(8 * np.prod(self.size))
        if self.kind == "cylinder":
            return math.pi * self.size[0] ** 2 * 2 * self.size[1]
        if self.kind == "sphere":
            return 4 / 3 * math.pi * self.size[0] ** 3
        assert self.vertices is not None
        return float(np.prod(np.ptp(self.vertices, axis=0)))

    def inertia(self) -> Array:
        """[3] m^2 about its own centre per kilogram, along its axes."""
        if self.kind == "sphere":
            return np.full(3, 0.4 * self.size[0] ** 2)
        if self.kind == "cylinder":
            r, h = self.size[0], 2 * self.size[1]
            across = (3 * r * r + h * h) / 12
            return np.array([across, across, r * r / 2])
        x, y, z = 2 * np.asarray(self.size)
        return np.array([y * y + z * z, x * x + z * z, x * x + y * y]) / 12


@dataclass(frozen=True, eq=False)
class Surface:
    """Points [P, 3] m, outward unit normals [P, 3], spacing [P] m between neighbours."""

    points: Array
    normals: Array
    spacing: Array


def pieces_of(kind: Kind, size: tuple[float, ...], hole: float = 0.0) -> tuple[Piece, ...]:
    """The pieces of a primitive of full `size`: box and socket [x, y, z], cylinder [diameter, height], ball [diameter].

    hole: side of a socket's square hole, m.
    """
    if kind == "box":
        x, y, z = size
        return (Piece("box", (x / 2, y / 2, z / 2)),)
    if kind == "cylinder":
        return (Piece("cylinder", (size[0] / 2, size[1] / 2)),)
    if kind == "sphere":
        return (Piece("sphere", (size[0] / 2,)),)
    x, y, z = size
    wall = ((x - hole) / 4, (y - hole) / 4)  # half thicknesses
    return (
        Piece("box", (wall[0], y / 2, z / 2), (-(x - 2 * wall[0]) / 2, 0, 0)),
        Piece("box", (wall[0], y / 2, z / 2), ((x - 2 * wall[0]) / 2, 0, 0)),
        Piece("box", (hole / 2, wall[1], z / 2), (0, -(y - 2 * wall[1]) / 2, 0)),
        Piece("box", (hole / 2, wall[1], z / 2), (0, (y - 2 * wall[1]) / 2, 0)),
        Piece("box", (hole / 2, hole / 2, FLOOR / 2), (0, 0, -z / 2 + FLOOR / 2)),
    )


def surface_of(pieces: tuple[Piece, ...], points: int = POINTS) -> Surface:
    """A lattice of about `points` points over all pieces; those inside another piece are left out."""
    area = sum(_area(piece) for piece in pieces)
    spacing = math.sqrt(area / points)
    parts = [_lattice(piece, spacing) for piece in pieces]
    kept = []
    for piece, part in zip(pieces, parts, strict=True):
        hidden = np.zeros(len(part.points), bool)
        for other in pieces:
            if other is not piece and other.kind == "box":
                hidden |= np.all(np.abs(part.points - np.asarray(other.at)) <= np.asarray(other.size) + 1e-6, axis=1)
        keep = ~hidden
        kept.append(Surface(part.points[keep], part.normals[keep], part.spacing[keep]))
    return Surface(*(np.concatenate([getattr(k, f) for k in kept]) for f in ("points", "normals", "spacing")))


def unit_sphere(count: int) -> Array:
    """[count, 3] unit vectors, evenly in all directions (Fibonacci lattice)."""
    i = np.arange(count) + 0.5
    polar, turn = np.arccos(1 - 2 * i / count), np.pi * (1 + math.sqrt(5)) * i
    return np.stack([np.sin(polar) * np.cos(turn), np.sin(polar) * np.sin(turn), np.cos(polar)], axis=1)


def disc_of(radius: float, points: int = 160) -> Surface:
    """A flat disc that faces up, in the plane z = 0: a place shown on a table."""
    i = np.arange(points) + 0.5
    r, turn = radius * np.sqrt(i / points), np.pi * (1 + math.sqrt(5)) * i
    places = np.stack([r * np.cos(turn), r * np.sin(turn), np.zeros(points)], axis=1)
    return Surface(places, np.tile([0.0, 0, 1], (points, 1)), np.full(points, radius * math.sqrt(np.pi / points)))


def quats_along(normals: Array) -> Array:
    """[P, 4] wxyz of the shortest turns that carry z to the normals."""
    # q = (1 + z . n, z x n), normalised; upside down it is half a turn about x
    x, y, z = normals.T
    quats = np.stack([1 + z, -y, x, np.zeros_like(z)], axis=1)
    quats[z < -1 + 1e-9] = [0.0, 1.0, 0.0, 0.0]
    return quats / np.linalg.norm(quats, axis=1, keepdims=True)


def _signs() -> Array:
    return np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)], float)


def _area(piece: Piece) -> float:
    if piece.kind == "box":
        x, y, z = 2 * np.asarray(piece.size)
        return float(2 * (x * y + y * z + x * z))
    if piece.kind == "cylinder":
        r, h = piece.size[0], 2 * piece.size[1]
        return 2 * math.pi * r * (r + h)
    return 4 * math.pi * piece.size[0] ** 2


def _lattice(piece: Piece, spacing: float) -> Surface:
    if piece.kind == "box":
        parts = [_face(np.asarray(piece.size), axis, side, spacing) for axis in range(3) for side in (-1, 1)]
    elif piece.kind == "cylinder":
        parts = _barrel(piece.size[0], piece.size[1], spacing)
    else:
        parts = [_ball(piece.size[0], spacing)]
    at = np.asarray(piece.at)
    return Surface(
        np.concatenate([p.points for p in parts]) + at,
        np.concatenate([p.normals for p in parts]),
        np.concatenate([p.spacing for p in parts]),
    )


def _face(half: Array, axis: int, side: int, spacing: float) -> Surface:
    u, v = (k for k in range(3) if k != axis)
    counts = [max(2, round(2 * half[k] / spacing)) for k in (u, v)]
    grid = [half[k] * ((np.arange(n) + 0.5) * 2 / n - 1) for k, n in zip((u, v), counts, strict=True)]
    a, b = (m.ravel() for m in np.meshgrid(*grid, indexing="ij"))
    points = np.zeros((len(a), 3))
    points[:, u], points[:, v], points[:, axis] = a, b, side * half[axis]
    normals = np.zeros((len(a), 3))
    normals[:, axis] = side
    step = math.sqrt(4 * half[u] * half[v] / len(a))
    return Surface(points, normals, np.full(len(a), step))


def _barrel(radius: float, half: float, spacing: float) -> list[Surface]:
    rings, around = max(2, round(2 * half / spacing)), max(8, round(2 * math.pi * radius / spacing))
    turn = 2 * np.pi * (np.arange(around)[None] + 0.5 * (np.arange(rings) % 2)[:, None]) / around
    z = np.repeat(half * ((np.arange(rings) + 0.5) * 2 / rings - 1), around)
    normal = np.stack([np.cos(turn).ravel(), np.sin(turn).ravel(), np.zeros(rings * around)], axis=1)
    step = math.sqrt(4 * math.pi * radius * half / (rings * around))
    side = Surface(np.column_stack([radius * normal[:, :2], z]), normal, np.full(len(z), step))
    cap = disc_of(radius, max(8, round(math.pi * radius**2 / spacing**2)))
    lift = np.array([0, 0, half])
    return [
        side,
        Surface(cap.points + lift, cap.normals, cap.spacing),
        Surface(cap.points - lift, -cap.normals, cap.spacing),
    ]


def _ball(radius: float, spacing: float) -> Surface:
    count = max(32, round(4 * math.pi * radius**2 / spacing**2))
    normal = unit_sphere(count)
    return Surface(radius * normal, normal, np.full(count, radius * math.sqrt(4 * np.pi / count)))
