"""The stage `objects` of a build: parts of what moves are tried one after the other; those that one rigid thing
explains, over the whole recording, become bodies.

A candidate is accepted when, over the instants in which it is away from its first rest, with a rendered body and an
empty background compared in the same pixels (align.py),

    1 - sum cost / sum cost of the background >= EXPLAINED    and    share of pixels of the right colour >= MATCHED

and when it moved by more than MOVED pixels and three standard deviations. People and other things that bend fail the
first test. The standard deviation of a pose is

    noise sqrt(CORRELATED  (J^T W J)^-1)   and   FLOOR pixels,

added in squares: neighbouring pixels err alike, and so does the shape.
"""

from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np

from recon.core.events import Event, Message, Progress, StageFinished, StageStarted
from recon.fit.data import Frames
from recon.fit.hull import search_volume
from recon.fit.plate import Plate
from recon.fit.robot import RobotFrames
from recon.geometry.pose import angle_between
from recon.objects.align import Aligned
from recon.objects.body import FoundBody
from recon.objects.evidence import Evidence, common_instants
from recon.objects.find import Candidate, Finder, places_of
from recon.objects.hints import BodyHint
from recon.objects.seeds import Part, lasting_parts
from recon.objects.track import PRESENT

INSTANTS = 400  # most that are tracked
TRIES = 6  # parts that are tried
EXPLAINED = 0.6
MATCHED = 0.6
MOVED = 3.0  # pixels
CORRELATED = 16.0  # pixels that err together
FLOOR, FLOOR_TURN = 0.5, 0.8  # pixels, of the shape: of its place, and at its rim when it turns
HINTED = 0.1  # m round a seed in which its part is looked for


def find_objects(
    frames: Frames, plates: list[Plate], robot: RobotFrames | None, near: float, hints: list[BodyHint],
    upright: bool = False,
) -> Generator[Event, None, list[FoundBody]]:  # fmt: skip
    """All bodies of a recording; near: m, of the rasteriser; upright: z is up and the table top at z = 0."""
    started = time.monotonic()
    yield StageStarted("objects")
    instants = common_instants(frames, INSTANTS)
    found: list[FoundBody] = []
    if len(instants.times) >= 3 and len(frames.cameras) >= 3:
        evidence = Evidence(frames, plates, robot, instants)
        volume = search_volume(frames.cameras, np.zeros((0, 3)))
        parts = lasting_parts(evidence, volume)
        finder = Finder(evidence, near, upright)
        finder.tracker.places = places_of(parts)
        kept: list[Candidate] = []
        order = _hinted(parts, hints, instants.times)
        for number, (part, name) in enumerate(order):
            if name is None and any(_explains(candidate, part) for candidate in kept):
                continue
            candidate = best_candidate(finder, part)
            if candidate is not None:
                kept.append(candidate)
                label = name or f"object_{len(kept)}"
                found.append(as_body(label, candidate, instants.times))
                yield Message("info", told(found[-1]))
            elif name is not None:
                yield Message("warning", f"the hinted body '{name}' does not move as one rigid thing; left to the rest")
            yield Progress("objects", number + 1, len(order))
        missed = {hint.name for hint in hints} - {name for _, name in order if name is not None}
        for name in sorted(missed):
            yield Message("warning", f"nothing moves where the hinted body '{name}' should be")
    yield StageFinished("objects", time.monotonic() - started, {"bodies": float(len(found))})
    return found


def _hinted(parts: list[Part], hints: list[BodyHint], times: np.ndarray) -> list[tuple[Part, str | None]]:
    """The parts to try with the names that hints give them, hinted ones first."""
    order: list[tuple[Part, str | None]] = []
    taken: set[int] = set()
    for hint in hints:
        scored = []
        for part in parts:
            if id(part) in taken:
                continue
            outside = np.maximum(np.maximum(part.low - hint.seed, hint.seed - part.high), 0.0)
            late = 0.0 if hint.time is None else float(np.abs(times[part.instants] - hint.time).min())
            if np.linalg.norm(outside) <= HINTED:
                scored.append((float(np.linalg.norm(outside)) + late, -part.weight, part))
        if scored:
            best = min(scored, key=lambda entry: entry[:2])[2]
            taken.add(id(best))
            order.append((best, hint.name))
    return order + [(part, None) for part in parts if id(part) not in taken][:TRIES]


def best_candidate(finder: Finder, part: Part) -> Candidate | None:
    """The body that explains a part; None when no rigid one does."""
    for candidate in finder.candidates(part):
        tried = finder.tried(candidate)
        if score(tried)[0] < 0.5 * EXPLAINED:
            continue
        better = finder.improved(tried)
        explained, matched, moved = score(better)
        if explained >= EXPLAINED and matched >= MATCHED and moved >= MOVED:
            return better
    return None


def score(candidate: Candidate) -> tuple[float, float, float]:
    """(share explained, share of matching pixels, greatest motion in pixels) away from the first rest."""
    cost = empty = matched = pixels = farthest = 0.0
    for aligned in candidate.track.values():
        if aligned.visible < PRESENT:
            continue
        shift = np.linalg.norm(aligned.pose[:3, 3] - candidate.home[:3, 3])
        turn = angle_between(aligned.pose[:3, :3], candidate.home[:3, :3])
        moved = float(shift + candidate.splats.radius * turn) / max(aligned.pixel, 1e-9)
        farthest = max(farthest, moved)
        if moved >= MOVED:
            cost, empty = cost + aligned.cost, empty + aligned.empty
            matched, pixels = matched + aligned.matched * aligned.pixels, pixels + aligned.pixels
    if pixels == 0:
        return 0.0, 0.0, farthest
    return 1.0 - cost / max(empty, 1e-9), matched / pixels, farthest


def _explains(candidate: Candidate, part: Part) -> bool:
    """Whether a part is where the body was, or the place that it left."""
    middle = part.instants[len(part.instants) // 2]
    places = [candidate.home]
    aligned = candidate.track.get(middle)
    if aligned is not None:
        places.append(aligned.pose)
    room = 0.3 * (part.high - part.low)
    return any(bool(((p[:3, 3] > part.low - room) & (p[:3, 3] < part.high + room)).all()) for p in places)


def sigmas(aligned: Aligned, radius: float) -> tuple[float, float]:
    """(m, rad): one standard deviation of position and rotation, along the worst axis."""
    scale = np.array([1.0, 1.0, 1.0, 1 / radius, 1 / radius, 1 / radius])
    matrix = aligned.information * np.outer(scale, scale)
    values, vectors = np.linalg.eigh(matrix)
    spread = (vectors / np.maximum(values, 1e-9 * max(values.max(), 1e-12))) @ vectors.T
    covariance = CORRELATED * aligned.noise**2 * spread * np.outer(scale, scale)
    floor = FLOOR * aligned.pixel
    turn = FLOOR_TURN * aligned.pixel / radius
    position = float(np.sqrt(np.linalg.eigvalsh(covariance[:3, :3]).max() + floor**2))
    rotation = float(np.sqrt(np.linalg.eigvalsh(covariance[3:, 3:]).max() + turn**2))
    return min(position, 10.0 * radius), min(rotation, np.pi)


def as_body(name: str, candidate: Candidate, times: np.ndarray) -> FoundBody:
    """The candidate's track from the instants in which it was seen, and its first rest."""
    rows = []
    pixel = float(np.median([aligned.pixel for aligned in candidate.track.values()]))
    floor = FLOOR * pixel
    for i, t in enumerate(times):
        if i in candidate.known:
            rows.append((t, candidate.home, floor, FLOOR_TURN * pixel / candidate.splats.radius, 1.0))
        elif i in candidate.track and candidate.track[i].visible >= 0.1:
            aligned = candidate.track[i]
            rows.append((t, aligned.pose, *sigmas(aligned, candidate.splats.radius), aligned.visible))
    stamps, poses, position, rotation, visible = zip(*rows, strict=True)
    return FoundBody(
        name, candidate.splats, np.array(stamps), np.stack(poses), np.array(position), np.array(rotation),
        np.array(visible), score(candidate)[0],
    )  # fmt: skip


def told(body: FoundBody) -> str:
    """One line on a body."""
    facts = body.summary()
    spans = ", ".join(f"{a:.2f} to {b:.2f} s" for a, b in facts["seen_s"])
    return (
        f"body '{body.name}': moved by {facts['moved_mm']:.0f} mm, known to {facts['sigma_mm']:.1f} mm and "
        f"{facts['sigma_deg']:.1f} degrees, seen {spans}, explains {100 * facts['explained']:.0f} % of what moved there"
    )
