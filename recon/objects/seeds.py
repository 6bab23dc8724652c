"""Where something may be: connected parts of the hull of what differs from the still pictures, and how long they stay.

A part that stays is a thing at rest, or the place a thing has left: both are told apart later, by which of the two, the
frame or the plate, has an edge along the part's outline.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import ndimage

from recon.fit.hull import COARSE_CELLS, Volume, visual_hull
from recon.objects.evidence import Evidence

SPLITS = 2  # of a coarse cell of the hull
MISS = 0.34  # share of the cameras that may miss a part
SMALLEST = 8  # cells
LARGEST = 0.25  # of the searched volume's side
KEYS = 40
KEY_GAP = 0.1  # s
SAME = 0.5  # overlap of two parts that are one


@dataclass(eq=False)
class Part:
    """A connected part of the hull.

    cells: set of cell numbers. low, high: [3] m. instants: those in which it was there.
    """

    cells: np.ndarray  # int64 [N], sorted
    low: np.ndarray
    high: np.ndarray
    instants: list[int] = field(default_factory=list)

    @property
    def weight(self) -> int:
        """How much there is to explain."""
        return len(self.cells) * len(self.instants)


def cell_size(volume: Volume) -> float:
    """Metres, of a cell of the hull."""
    return float((volume.high - volume.low).max()) / COARSE_CELLS / 2**SPLITS


def parts_at(evidence: Evidence, i: int, volume: Volume) -> list[Part]:
    """The connected parts at instant i, those of a sensible size."""
    masks, hidden = evidence.at(i)
    size = cell_size(volume)
    centers = visual_hull(masks, evidence.cameras, volume, size, MISS, hidden)
    if len(centers) == 0:
        return []
    index = np.floor((centers - volume.low) / size).astype(np.int64)
    first = index.min(0)
    grid = np.zeros(index.max(0) - first + 1, bool)
    grid[tuple((index - first).T)] = True
    labels, count = ndimage.label(grid, np.ones((3, 3, 3)))
    own = labels[tuple((index - first).T)]
    keys = (index[:, 0] * 4096 + index[:, 1]) * 4096 + index[:, 2]
    side = float((volume.high - volume.low).max())
    found = []
    for label in range(1, count + 1):
        chosen = own == label
        if chosen.sum() < SMALLEST:
            continue
        low, high = centers[chosen].min(0) - size / 2, centers[chosen].max(0) + size / 2
        if (high - low).max() <= LARGEST * side:
            found.append(Part(np.sort(keys[chosen]), low, high, [i]))
    return found


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two sorted sets of cells."""
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / max(1, len(a) + len(b) - common)


def key_instants(times: np.ndarray) -> list[int]:
    """At most KEYS instants, evenly spread, no closer than KEY_GAP seconds."""
    span = float(times[-1] - times[0]) if len(times) > 1 else 0.0
    count = int(np.clip(span / KEY_GAP + 1, 1, min(KEYS, len(times))))
    return np.unique(np.linspace(0, len(times) - 1, count).round().astype(int)).tolist()


def lasting_parts(evidence: Evidence, volume: Volume) -> list[Part]:
    """All parts, those that overlap from one instant to the next joined; the heaviest first."""
    open_parts: list[Part] = []
    every: list[Part] = []
    keys = key_instants(evidence.instants.times)
    step = max(1, len(evidence.instants.times) // max(1, len(keys)))
    for i in keys:
        still: list[Part] = []
        for part in parts_at(evidence, i, volume):
            known = [(overlap(other.cells, part.cells), other) for other in open_parts]
            best = max(known, key=lambda pair: pair[0], default=(0.0, part))
            if best[0] >= SAME and best[1] not in still:
                other = best[1]
                other.cells = part.cells if len(other.instants) < 3 else other.cells
                other.low, other.high = np.minimum(other.low, part.low), np.maximum(other.high, part.high)
                other.instants.append(i)
                still.append(other)
            else:
                still.append(part)
                every.append(part)
        # one that is hidden for a few instants is still the same one
        still += [part for part in open_parts if part not in still and i - part.instants[-1] <= 3 * step]
        open_parts = still
    return sorted(every, key=lambda part: -part.weight)
