"""The bodies of a recording: seeds are tried one after the other, those that a rigid thing explains are kept."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import cv2
import numpy as np

from recon.fit.hull import Volume, search_volume
from recon.fit.plate import Plate
from recon.objects.align import Aligned
from recon.objects.evidence import HALF, KNOWN, Evidence, moved, tidy
from recon.objects.seeds import Part, lasting_parts
from recon.objects.shape import Shape, coloured, first_shape
from recon.objects.splats import Splats
from recon.objects.states import Box, boxes_of, placed, state
from recon.objects.track import Background, Tracker

TRIES = 8
AT_HOME = 0.2  # share of a part's outline that may differ while a body is at rest there
DEBUG = bool(os.environ.get("OBJECTS_DEBUG"))


def say(*args: object) -> None:
    if DEBUG:
        print(*args, flush=True)


@dataclass
class Candidate:
    """A body that is being tried."""

    shape: Shape
    splats: Splats
    home: np.ndarray  # [4, 4] world from body, in the reference
    known: dict[int, np.ndarray]  # instants whose pose is that of the reference
    outline: list[np.ndarray]  # bool [H, W] per camera, in the reference
    sharp: float  # edges along the outline, in the reference
    track: dict[int, Aligned] = field(default_factory=dict)


class Finder:
    """Searches one recording."""

    def __init__(self, evidence: Evidence, near: float) -> None:
        self.evidence = evidence
        self.frames = evidence.frames
        self.tracker = Tracker(evidence, near)
        self.plates: list[Plate] = list(evidence.plates)
        self._outlines: dict[tuple[int, int], np.ndarray] = {}
        self.pictures = [(plate.picture * 255).round().astype(np.uint8) for plate in self.plates]

    # --- outlines -------------------------------------------------------------------------------------------------

    def state(self, instants: list[int], boxes: list[Box | None]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(pictures, seen) of the boxes in `instants`."""
        return state(self.frames, self.evidence.instants.frames[instants], self.tracker.hidden, boxes)

    def away(self, part: Part, boxes: list[Box | None]) -> list[int]:
        """The instants in which the part's place looks as in the plates."""
        found = []
        for i in range(len(self.evidence.instants.times)):
            moving, hidden = self.evidence.at(i)
            differs = seen = whole = 0.0
            for c, box in enumerate(boxes):
                if box is None:
                    continue
                cut = tuple(slice(int(a * HALF), int(np.ceil(b * HALF))) for a, b in (box[:2], box[2:]))
                outline = self._usual(part, c)[cut]
                differs += (moving[c][cut] & outline).sum()
                seen += (outline & ~hidden[c][cut]).sum()
                whole += outline.sum()
            if whole and seen > 0.3 * whole and differs < AT_HOME * seen:
                found.append(i)
        return found

    def _usual(self, part: Part, c: int) -> np.ndarray:
        """bool [h, w] at half size: what moved in most instants of the part."""
        key = (id(part), c)
        if key not in self._outlines:
            votes = seen = None
            for i in part.instants[:: max(1, len(part.instants) // 8)]:
                moving, hidden = self.evidence.at(i)
                votes = moving[c].astype(np.float32) if votes is None else votes + moving[c]
                shown = (~hidden[c]).astype(np.float32)
                seen = shown if seen is None else seen + shown
            assert votes is not None and seen is not None
            self._outlines[key] = votes > 0.5 * np.maximum(seen, 1.0)
        return self._outlines[key]

    def difference(
        self, with_part: list[np.ndarray], seen: list[np.ndarray], without: list[np.ndarray], known: list[np.ndarray],
        boxes: list[Box | None],
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:  # fmt: skip
        """(outline bool [H, W], hidden bool [H, W]) of every camera: where two states differ, where one is unknown."""
        masks, hidden = [], []
        for c, camera in enumerate(self.frames.cameras):
            mask = np.zeros((camera.height, camera.width), bool)
            unknown = np.ones((camera.height, camera.width), bool)
            box = boxes[c]
            if box is not None and with_part[c].size:
                cut = (slice(box[0], box[1]), slice(box[2], box[3]))
                both = seen[c] & known[c]
                differs = moved(with_part[c], without[c].astype(np.float32) / 255.0, np.zeros(both.shape, np.float32))
                mask[cut] = tidy(differs & both) & both
                unknown[cut] = ~both
            masks.append(mask)
            hidden.append(unknown)
        return masks, hidden

    # --- a candidate ----------------------------------------------------------------------------------------------

    def candidates(self, part: Part) -> list[Candidate]:
        """What the part may be: the thing of its own instants, or the thing that was there in the others."""
        room = 0.05 * float((part.high - part.low).max())
        boxes = boxes_of(self.frames.cameras, part.low - room, part.high + room)
        away = self.away(part, boxes)
        present = self.state(part.instants, boxes)
        if away:
            absent = self.state(away, boxes)
        else:
            absent = (
                [p[b[0] : b[1], b[2] : b[3]] if b else p[:0, :0] for p, b in zip(self.pictures, boxes, strict=True)],
                [w.weight[b[0] : b[1], b[2] : b[3]] > KNOWN if b else w.weight[:0, :0] > 0 for w, b in zip(self.plates, boxes, strict=True)],
            )
        masks, hidden = self.difference(*present, *absent, boxes)
        shape = first_shape(masks, hidden, self.frames.cameras, part.low - room, part.high + room)
        say("  away", away, "shape", None if shape is None else len(shape.cells), [int(m.sum()) for m in masks])
        if shape is None:
            return []
        found = []
        for pictures, seen, rest in ((*present, part.instants), (*absent, away)):
            if not rest or len(rest) == len(self.evidence.instants.times):
                continue
            whole = placed(pictures, boxes, self.pictures)
            usable = placed(seen, boxes, [np.zeros(p.shape[:2], bool) for p in self.pictures])
            sharp = self.edges(masks, whole)
            middle = shape.cells.mean(0)
            home = np.eye(4)
            home[:3, 3] = middle
            local = Shape(shape.cells - middle, shape.size)
            believed = [a & b for a, b in zip(usable, masks, strict=True)]
            splats = coloured(local, home, whole, believed, self.frames.cameras)
            found.append(Candidate(local, splats, home, {i: home for i in rest}, masks, sharp))
        return sorted(found, key=lambda candidate: -candidate.sharp)

    def edges(self, outline: list[np.ndarray], pictures: list[np.ndarray]) -> float:
        """Mean gradient of `pictures` along the border of `outline`."""
        total, count = 0.0, 0
        for mask, picture in zip(outline, pictures, strict=True):
            if not mask.any():
                continue
            rim = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
            grey = cv2.GaussianBlur(picture, (0, 0), 1.0).astype(np.float32)
            slope = np.abs(cv2.Sobel(grey, cv2.CV_32F, 1, 0)) + np.abs(cv2.Sobel(grey, cv2.CV_32F, 0, 1))
            total += float(slope.max(-1)[rim].sum())
            count += int(rim.sum())
        return total / max(1, count)

    def background(self, candidate: Candidate) -> Background:
        """The plates, not known where the body is in them."""
        grow = np.ones((7, 7), np.uint8)
        known = [
            (plate.weight > KNOWN) & ~(cv2.dilate(mask.astype(np.uint8), grow) > 0)
            for plate, mask in zip(self.plates, candidate.outline, strict=True)
        ]
        return Background([plate.picture for plate in self.plates], known)

    def tried(self, candidate: Candidate) -> Candidate:
        """The candidate with its first track."""
        started = time.monotonic()
        background = self.background(candidate)
        instants = list(range(len(self.evidence.instants.times)))
        candidate.track = self.tracker.follow(candidate.splats, background, candidate.known, instants)
        say("  tracked", round(time.monotonic() - started, 2))
        for i, a in sorted(candidate.track.items()):
            say("   ", i, a.pose[:3, 3].round(4), "vis %.2f expl %.2f match %.2f noise %.3f px %d" % (a.visible, a.explained, a.matched, a.noise, a.pixels))
        return candidate


def find_bodies(evidence: Evidence, near: float) -> list[Candidate]:
    """All bodies."""
    finder = Finder(evidence, near)
    volume = search_volume(evidence.frames.cameras, np.zeros((0, 3)))
    t = time.monotonic()
    parts = lasting_parts(evidence, volume)
    say("parts", len(parts), round(time.monotonic() - t, 2))
    found = []
    for part in parts[:TRIES]:
        t = time.monotonic()
        tries = finder.candidates(part)
        say("part", part.weight, part.low.round(3), part.high.round(3), part.instants[0], part.instants[-1], [round(x.sharp, 1) for x in tries], round(time.monotonic() - t, 2))
        for candidate in tries:
            found.append(finder.tried(candidate))
    return found
