"""The walls and the floor of the room that a rig stands in, where the pictures show them clearly.

A rig that looks at a table sees the room only in passing: of most of a wall one camera has a view, and dense matching
finds nothing there, or finds it by chance in mid-air. A plane seen by many is less to find than many depths. With z up,
walls are vertical planes of two headings at right angles:

- the *heading* is the one that most straight edges have (see `segments`);
- a *wall* n . x = h is looked for by sweeping planes of its own slant beyond the cameras: a pixel supports h when its
  window matches (ZNCC) that of another camera warped over that plane, about as well as it does at its best h;
- the *floor* is the lowest height at which the edges of several cameras run along the feet of the walls.

What does not stand out is not claimed: a dome, a stage in the open, or a wall that hardly any camera sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from recon.calibrate.segments import Segments, find_segments
from recon.calibrate.slanted import View, support, view_of
from recon.capture.coverage import rig_extent
from recon.geometry.camera import Camera, pixel_rays

PLANES = 56  # of the sweep, evenly spaced in inverse distance
REACH = 4.0  # times the extent of the rig: how far walls are looked for
CLEAR = 0.05  # of the extent: a wall is at least so far behind the last camera
BINS = 360  # of headings, over a right angle
HEADING_BINS = 3  # either side of a heading that count for it
MIN_HEADING = 0.15  # of the weight of all edges that may be level
STANDS_OUT = 4.0  # times the median support of all offsets
SECOND = 0.6  # of the best support: a plane further out with that much is the wall, a nearer one stands before it
MIN_SUPPORT = 400  # pixels
ALONG = 0.01  # radians: how far off an edge may head from along the wall
FLOOR_STEP = 0.008  # of the extent
AROUND = 30  # steps: a floor stands out from the median of the heights so near
FLOOR_SUPPORT = 2.5  # edges of different cameras or walls at one height, more than there are around
FLOOR_SECOND = 0.7  # of the best: the lowest height with that much is the floor, the one above it a skirting board
EDGE_PIXELS, WHOLE_EDGE = 1.5, 60.0  # error of an edge; length from which it counts in full


@dataclass(frozen=True)
class Room:
    """The half spaces n_i . x <= h_i in which everything lies. normals: unit [P, 3], outward. offsets: [P]."""

    normals: np.ndarray
    offsets: np.ndarray

    def inverse(self, origin: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """[N]: 1 / t at which origin + t directions ([N, 3]) leaves the room; 0 where it never does."""
        return np.maximum(self._each(origin, directions).max(axis=1), 0.0)

    def plane(self, origin: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """int [N]: the plane through which it leaves, -1 where it never does."""
        each = self._each(origin, directions)
        return np.where(each.max(axis=1) > 0, each.argmax(axis=1), -1)

    def walls(self) -> tuple[np.ndarray, np.ndarray]:
        """(normals, offsets) of the upright planes."""
        upright = self.normals[:, 2] == 0.0
        return self.normals[upright], self.offsets[upright]

    def floor(self) -> float | None:
        """Height of the floor, if it was found."""
        level = np.nonzero(self.normals[:, 2] < 0.0)[0]
        return None if len(level) == 0 else -float(self.offsets[level[0]])

    def _each(self, origin: np.ndarray, directions: np.ndarray) -> np.ndarray:
        away = np.maximum(self.offsets - self.normals @ origin, 1e-6)
        found: np.ndarray = directions @ self.normals.T / away
        return found

    def inverse_depth(self, camera: Camera) -> np.ndarray:
        """float32 [h, w], 1 / metres along the optical axis; 0 where a pixel's ray never leaves."""
        rays = pixel_rays(camera)
        return self.inverse(camera.center, rays).reshape(camera.height, camera.width).astype(np.float32)


def find_room(
    plates: Mapping[str, np.ndarray], cameras: Mapping[str, Camera], valid: Mapping[str, np.ndarray]
) -> Room | None:
    """The room round the cameras, in a world whose z axis is up; None where no wall stands out.

    plates: uint8 [H, W, 3]; cameras: their pinhole cameras; valid: bool [H, W].
    """
    edges = {name: find_segments(plates[name], valid[name], cameras[name]) for name in plates}
    views = [view_of(plates[name], cameras[name], valid[name]) for name in plates]
    walls: list[tuple[np.ndarray, float]] = []
    for heading in _headings(list(edges.values())):
        c, s = np.cos(heading), np.sin(heading)
        outward = np.array([[c, s, 0.0], [-c, -s, 0.0], [-s, c, 0.0], [s, -c, 0.0]])
        found = [(n, h) for n in outward if (h := _wall(views, n)) is not None]
        walls = max(walls, found, key=len)
        if len(walls) >= 2:
            break  # the second heading is that of a table which stands askew
    if not walls:
        return None
    room = Room(np.stack([n for n, _ in walls]), np.array([h for _, h in walls]))
    floor = _floor(room, edges, cameras)
    if floor is None:
        return room
    return Room(np.vstack([room.normals, [0.0, 0.0, -1.0]]), np.append(room.offsets, -floor))


def _headings(edges: list[Segments]) -> list[float]:
    """Headings in [0, pi / 2) that stand out among the edges that may be level, the strongest first; two at most."""
    weight = np.zeros(BINS)
    for one in edges:
        level = np.linalg.norm(one.normal[:, :2], axis=1)
        use = np.abs(one.normal[:, 2]) > 0.15  # others may be upright
        angle = np.arctan2(-one.normal[use, 0], one.normal[use, 1]) % (np.pi / 2)
        np.add.at(weight, (angle / (np.pi / 2) * BINS).astype(np.int64) % BINS, (one.length * level)[use])
    if weight.sum() == 0:
        return []
    left = np.sum([np.roll(weight, k) for k in range(-HEADING_BINS, HEADING_BINS + 1)], axis=0)
    found: list[float] = []
    while len(found) < 2:
        best = int(left.argmax())
        if left[best] < MIN_HEADING * weight.sum():
            break
        around = np.arange(best - HEADING_BINS, best + HEADING_BINS + 1)
        mean = float((weight[around % BINS] * (around + 0.5)).sum() / weight[around % BINS].sum())
        found.append(mean / BINS * np.pi / 2)
        left[np.arange(best - 16, best + 17) % BINS] = 0.0
    return found


def _wall(views: list[View], normal: np.ndarray) -> float | None:
    """The offset of the wall with that outward normal; None where none stands out."""
    centers = np.stack([view.camera.center for view in views])
    middle = float(normal @ centers.mean(axis=0))
    extent = rig_extent(view.camera for view in views)
    nearest = float((centers @ normal).max()) + CLEAR * extent - middle
    away = 1.0 / np.linspace(1.0 / (REACH * extent), 1.0 / nearest, PLANES)  # from far to near
    found = support(views, normal, away + middle)
    smooth = np.convolve(found, [0.25, 0.5, 0.25], "same")
    peaks = [k for k in range(1, PLANES - 2) if smooth[k] >= max(smooth[k - 1], smooth[k + 1])]
    floor = max(MIN_SUPPORT, STANDS_OUT * float(np.median(smooth)))
    best = max((smooth[k] for k in peaks), default=0.0)
    for k in peaks:
        if smooth[k] >= max(floor, SECOND * best):
            fine = np.linspace(away[k - 1], away[k + 1], 9) + middle
            again = np.convolve(support(views, normal, fine), [0.25, 0.5, 0.25], "same")
            return float(fine[again.argmax()])
    return None


def _floor(room: Room, edges: Mapping[str, Segments], cameras: Mapping[str, Camera]) -> float | None:
    """Height of the floor, from the edges that run along the walls; None where none stands out.

    Each wall and camera votes for the heights at which its edges would lie on that wall, with the error they have
    there. The edges of the table vote too, but for a different height from every camera.
    """
    extent = rig_extent(cameras.values())
    low = min(float(camera.center[2]) for camera in cameras.values())
    heights = np.arange(low - 2.0 * extent, low, FLOOR_STEP * extent)
    votes = np.zeros(len(heights))
    for name, one in edges.items():
        camera = cameras[name]
        wall = room.plane(camera.center, one.middle)
        for k, (normal, offset) in enumerate(zip(room.normals, room.offsets, strict=True)):
            along = np.array([-normal[1], normal[0], 0.0])
            use = (wall == k) & one.heads(along, ALONG) & (np.abs(one.normal[:, 2]) > 0.1)
            if not use.any():
                continue
            t = (offset - float(normal @ camera.center)) / (one.middle[use] @ normal)
            z = camera.center[2] + t * one.middle[use, 2]
            sigma = EDGE_PIXELS / camera.fx * t * np.linalg.norm(one.middle[use], axis=1) + FLOOR_STEP * extent
            weight = np.minimum(1.0, one.length[use] / WHOLE_EDGE)
            near = np.exp(-0.5 * ((heights - z[:, None]) / sigma[:, None]) ** 2)
            votes += (weight[:, None] * near).max(axis=0)
    usual = np.array([np.median(votes[max(0, k - AROUND) : k + AROUND + 1]) for k in range(len(votes))])
    over = votes - usual
    enough = max(FLOOR_SUPPORT, FLOOR_SECOND * float(over.max()))
    for k in range(1, len(over) - 1):
        if over[k] >= enough and over[k] >= max(over[k - 1], over[k + 1]):
            return float(heights[k])
    return None
