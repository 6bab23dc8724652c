"""The bodies of a recording: seeds are tried one after the other, those that a rigid thing explains are kept."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import cv2
import numpy as np

from recon.fit.plate import Plate
from recon.objects.align import Aligned
from recon.objects.evidence import HALF, KNOWN, TINT, Evidence, changed, filled, moved, tidy
from recon.objects.refit import refit
from recon.objects.seeds import Part
from recon.objects.shape import Shape, coloured, first_shape
from recon.objects.splats import Splats, silhouette
from recon.objects.states import Box, boxes_of, masked_median, placed, segmented, state
from recon.objects.track import Background, Tracker

SEEN = 0.15  # of a body's pixels, for its pose to teach anything
HERE = 0.3  # of an outline must look unlike its surroundings for the thing to be there
CLEAR = 0.6  # of an outline filled by the thing
BOTH = 0.5  # of a thing's area in the other state too: it moved by less than its size
CLEAN = 25  # instants that tell what is behind a body
TEACH = 16  # instants that teach a body's Gaussians
SURE = 0.5  # share explained from which an instant does
ROUNDS = 2  # of Gaussians and track in turn
AT_HOME = 0.2  # share of a part's outline that may differ while a body is at rest there


@dataclass
class Candidate:
    """A body that is being tried."""

    shape: Shape
    splats: Splats
    home: np.ndarray  # [4, 4] world from body, in the reference
    known: dict[int, np.ndarray]  # instants whose pose is that of the reference
    background: Background
    seen: tuple[list[np.ndarray], list[np.ndarray]]  # (pictures, pixels to be believed) of the reference
    sharp: float  # share of the outline that the thing fills in the reference
    cover: dict[int, list[np.ndarray]]  # bool [H, W] per camera, where it is at instants of rest
    track: dict[int, Aligned] = field(default_factory=dict)


def spread_out(poses: dict[int, np.ndarray], count: int, radius: float) -> list[int]:
    """At most `count` instants whose poses differ most: each next one is the farthest from those chosen."""
    instants = sorted(poses)
    points = np.stack([np.concatenate([poses[i][:3, 3], radius * poses[i][:3, :3].ravel()]) for i in instants])
    chosen = [0]
    distance = np.linalg.norm(points - points[0], axis=1)
    while len(chosen) < min(count, len(instants)):
        # equal poses are taken too, evenly over time
        best = int(np.argmax(distance)) if distance.max() > 0.05 * radius else -1
        if best < 0:
            rest = [k for k in range(len(instants)) if k not in chosen]
            chosen += [rest[j] for j in np.linspace(0, len(rest) - 1, count - len(chosen)).astype(int)]
            break
        chosen.append(best)
        distance = np.minimum(distance, np.linalg.norm(points - points[best], axis=1))
    return sorted({instants[k] for k in chosen})


def filled_in(instants: list[int], gap: int = 4) -> list[int]:
    """The instants and those between two of them that are no more than `gap` apart."""
    found = set(instants)
    for a, b in itertools.pairwise(instants):
        if b - a <= gap:
            found |= set(range(a, b))
    return sorted(found)


def places_of(parts: list[Part]) -> dict[int, list[np.ndarray]]:
    """instant -> middles [3] m of the parts that were there then, or a moment before or after."""
    found: dict[int, list[np.ndarray]] = {}
    for part in parts:
        for i in {k + d for k in part.instants for d in (-1, 0, 1)}:
            found.setdefault(i, []).append((part.low + part.high) / 2)
    return found


class Finder:
    """Searches one recording; upright: z is up and the table top at z = 0."""

    def __init__(self, evidence: Evidence, near: float, upright: bool) -> None:
        self.evidence, self.upright = evidence, upright
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
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:  # fmt: skip
        """bool [H, W] of every camera: where two states differ, where by more than a shadow, where one is unknown."""
        masks, sure, hidden = [], [], []
        for c, camera in enumerate(self.frames.cameras):
            mask = np.zeros((camera.height, camera.width), bool)
            certain = mask.copy()
            unknown = np.ones((camera.height, camera.width), bool)
            box = boxes[c]
            if box is not None and with_part[c].size:
                cut = (slice(box[0], box[1]), slice(box[2], box[3]))
                both = seen[c] & known[c]
                plate = without[c].astype(np.float32) / 255.0
                quiet = np.zeros(both.shape, np.float32)
                strict = tidy(moved(with_part[c], plate, quiet, tint=TINT) & both)
                certain[cut] = filled(strict) & both
                mask[cut] = filled(tidy(changed(with_part[c], plate) & both) | strict) & both
                unknown[cut] = ~both
            masks.append(mask)
            sure.append(certain)
            hidden.append(unknown)
        return masks, sure, hidden

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
                [
                    w.weight[b[0] : b[1], b[2] : b[3]] > KNOWN if b else w.weight[:0, :0] > 0
                    for w, b in zip(self.plates, boxes, strict=True)
                ],
            )
        found = []
        for (pictures, seen), (without, known), rest in ((present, absent, part.instants), (absent, present, away)):
            if not rest or len(rest) == len(self.evidence.instants.times):
                continue
            masks, sure, hidden = self.difference(pictures, seen, without, known, boxes)
            cuts = self.cut_out(pictures, seen, masks, sure, boxes)
            there = self.cut_out(without, known, masks, sure, boxes)
            areas = [float(np.sum([mask.sum() for mask in which])) for which in (cuts, there, sure)]
            if areas[0] < HERE * areas[2]:
                continue
            shape = first_shape(masks, cuts, hidden, self.frames.cameras, part.low - room, part.high + room)
            if shape is None:
                continue
            if self.upright:
                shape = shape.standing()
            whole = placed(pictures, boxes, self.pictures)
            unseen = [np.zeros(p.shape[:2], bool) for p in self.pictures]
            usable = placed(seen, boxes, unseen)
            believed = [a & b for a, b in zip(usable, cuts, strict=True)]
            # a thing that moved by less than its size is in both states: neither shows what is behind it
            if areas[1] > BOTH * areas[0]:
                known = [np.zeros_like(good) for good in known]
            sharp = areas[0] / areas[2]
            middle = shape.cells.mean(0)
            home = np.eye(4)
            home[:3, 3] = middle
            local = Shape(shape.cells - middle, shape.size)
            splats = coloured(local, home, whole, believed, self.frames.cameras)
            behind = self.background(masks, placed(without, boxes, self.pictures), placed(known, boxes, unseen))
            cover = dict.fromkeys(filled_in(rest), cuts)
            if areas[1] > BOTH * areas[0]:
                cover |= dict.fromkeys(away if rest is part.instants else part.instants, there)
            known_at = dict.fromkeys(filled_in(rest), home)
            found.append(Candidate(local, splats, home, known_at, behind, (whole, believed), sharp, cover))
        # where both show it, the longer rest is the better picture, and leaves less to be followed
        return sorted(found, key=lambda candidate: (candidate.sharp < CLEAR, -len(candidate.known)))

    def cut_out(
        self, pictures: list[np.ndarray], seen: list[np.ndarray], masks: list[np.ndarray], sure: list[np.ndarray],
        boxes: list[Box | None],
    ) -> list[np.ndarray]:  # fmt: skip
        """bool [H, W] of every camera: the thing that a state shows inside the outlines."""
        found = []
        for c, (mask, certain, box) in enumerate(zip(masks, sure, boxes, strict=True)):
            own = np.zeros_like(mask)
            if box is not None and pictures[c].size:
                cut = (slice(box[0], box[1]), slice(box[2], box[3]))
                own[cut] = segmented(pictures[c], mask[cut], certain[cut], seen[c])
            found.append(own)
        return found

    def background(self, outline: list[np.ndarray], without: list[np.ndarray], known: list[np.ndarray]) -> Background:
        """The plates, but for the outlines: there, what was seen without the part."""
        pictures, sure = [], []
        grow = np.ones((7, 7), np.uint8)
        for plate, mask, other, good in zip(self.plates, outline, without, known, strict=True):
            near = cv2.dilate(mask.astype(np.uint8), grow) > 0
            pictures.append(np.where(near[..., None], other.astype(np.float32) / 255.0, plate.picture))
            sure.append(np.where(near, good, plate.weight > KNOWN))
        return Background(pictures, sure)

    def poses(self, candidate: Candidate) -> dict[int, np.ndarray]:
        """world_from_body [4, 4] of all instants in which the body is seen well enough."""
        found = dict(candidate.known)
        found |= {i: a.pose for i, a in candidate.track.items() if a.visible >= SEEN and i not in found}
        return found

    def cleaned(self, candidate: Candidate) -> Background:
        """The background without the body: where it was ever seen, the median of the frames in which it was not."""
        poses = self.poses(candidate)
        chosen = spread_out(poses, CLEAN, candidate.splats.radius)
        pictures, known = [], []
        grow = np.ones((7, 7), np.uint8)
        for c, camera in enumerate(self.frames.cameras):
            outlines = {i: silhouette(candidate.splats, camera, poses[i]) for i in chosen}
            for i in outlines:
                if i in candidate.cover:
                    outlines[i] |= candidate.cover[i][c]
            outlines = {i: cv2.dilate(m.astype(np.uint8), grow) > 0 for i, m in outlines.items()}
            picture, sure = candidate.background.pictures[c].copy(), candidate.background.known[c].copy()
            ever = np.any(list(outlines.values()), axis=0)
            rows, columns = np.nonzero(ever)
            if len(rows):
                cut = (slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
                stack, free = [], []
                for i in chosen:
                    k = int(self.evidence.instants.frames[i, c])
                    if k >= 0:
                        stack.append(self.frames.picture(c, k)[cut])
                        free.append(~outlines[i][cut] & ~self.tracker.hidden(c, k)[cut])
                if stack:
                    middle, any_of = masked_median(np.stack(stack), np.stack(free))
                    inside = ever[cut]
                    picture[cut] = np.where(inside[..., None], middle.astype(np.float32) / 255.0, picture[cut])
                    sure[cut] = np.where(inside, any_of, sure[cut])
            pictures.append(picture)
            known.append(sure)
        return Background(pictures, known)

    def improved(self, candidate: Candidate) -> Candidate:
        """The background again, now that the motion is known, the track, and the Gaussians in turn with it."""
        background = self.cleaned(candidate)
        better = replace(candidate, background=background)
        better.track = self.tracker.again(candidate.splats, background, candidate.track)
        for _ in range(ROUNDS):
            better.splats = self.refitted(better)
            better.track = self.tracker.again(better.splats, background, better.track)
        return better

    def refitted(self, candidate: Candidate) -> Splats:
        """The Gaussians that explain the instants in which the body is best known."""
        poses = {i: a.pose for i, a in candidate.track.items() if a.explained > SURE and a.visible >= SEEN}
        poses |= candidate.known
        chosen = spread_out(poses, TEACH, candidate.splats.radius)
        found = [self.tracker.aligner(candidate.splats, candidate.background, i, poses) for i in chosen]
        told = [(aligner, poses[i]) for aligner, i in zip(found, chosen, strict=True) if aligner is not None]
        return refit(candidate.splats, [a for a, _ in told], [pose for _, pose in told], self.tracker.near)

    def tried(self, candidate: Candidate) -> Candidate:
        """The candidate with its first track."""
        background = candidate.background
        instants = list(range(len(self.evidence.instants.times)))
        candidate.track = self.tracker.follow(candidate.splats, background, candidate.known, instants)
        return candidate
