"""A body followed through all instants, outward from where its pose is known, with what each pose is worth.

From an instant to the next it is looked for where it was, where it would be had it gone on moving, and where it would
be in the hand of a known robot that touches it; the start that explains the pictures best is refined (align.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from recon.fit.outlined import MaskCache
from recon.fit.robot import KnownRobot
from recon.geometry.pose import invert_pose, so3_log
from recon.objects.align import Aligned, Aligner, Look, look_at_instant
from recon.objects.evidence import Evidence
from recon.objects.shape import thinned
from recon.objects.splats import Splats

TOUCH = 0.02  # m between a body and a link that may hold it
NEAR_SHARE = 0.02  # of the distance to the nearest camera: near plane
CHANGE, STILL = 0.05, 0.01  # sRGB; share of a body's pixels that change by more though it rests
MOST_SEEN = 0.4  # of its pixels must be seen to tell
JUMP = 4.0  # radii that a body may jump between two instants, to where a part of the hull is
CLEARLY = 0.1  # by which a neighbouring instant must explain more for another try from there
PRESENT = 0.15  # of a body's pixels must be seen for its pose to count
WORTH = 0.9  # of a start's cost that a coarse alignment must come below
DOUBTFUL = 0.5  # explained share below which a body is looked for elsewhere
LOST, PATIENCE = 0.15, 4  # explained share below which a body is lost after that many instants


@dataclass
class Background:
    """What is behind bodies, per camera: pictures float32 [H, W, 3], known bool [H, W]."""

    pictures: list[np.ndarray]
    known: list[np.ndarray]


def twist(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[6] in the body's frame, from pose `a` to pose `b` [4, 4]: metres, then a rotation vector (small motions)."""
    moved = invert_pose(a) @ b
    return np.concatenate([moved[:3, 3], so3_log(moved[:3, :3])])


def worth(aligned: Aligned) -> float:
    """By which two poses at one instant are compared: how much they explain, and of how much."""
    return aligned.explained * min(1.0, aligned.visible + 0.1)


class Tracker:
    """Follows bodies through the instants of some evidence."""

    def __init__(self, evidence: Evidence, near: float) -> None:
        self.evidence, self.near = evidence, near
        self.robot: KnownRobot | None = None if evidence.robot is None else evidence.robot.robot
        self.places: dict[int, list[np.ndarray]] = {}  # [3] m: where parts were seen at an instant
        self._links: dict[int, dict[str, np.ndarray]] = {}
        self._hidden = MaskCache()

    def look(self, i: int, background: Background, center: np.ndarray, radius: float, coarser: int = 1) -> Look | None:
        """The crops round a ball at instant i."""
        frames = self.evidence.frames
        numbers = self.evidence.instants.frames[i]
        pictures = [frames.picture(c, int(k)) if k >= 0 else None for c, k in enumerate(numbers)]
        hidden = [self.hidden(c, int(k)) if k >= 0 else None for c, k in enumerate(numbers)]
        t = self.evidence.instants.times[i]
        lags = np.array([frames.times[c][k] - t if k >= 0 else 0.0 for c, k in enumerate(numbers)])
        return look_at_instant(
            frames.cameras, pictures, background.pictures, background.known, hidden, lags, center, radius, coarser
        )

    def hidden(self, c: int, k: int) -> np.ndarray:
        """bool [H, W]: pixels of camera c's frame k that say nothing."""
        return self._hidden.get((c, k), lambda: self.evidence.hidden_full(c, k))

    def links(self, i: int) -> dict[str, np.ndarray]:
        """world_from_link [4, 4] of a known robot at instant i; empty without one."""
        if self.robot is None:
            return {}
        if i not in self._links:
            t = float(np.clip(self.evidence.instants.times[i], *self.robot.joints.times[[0, -1]]))
            self._links[i] = self.robot.model.link_poses(self.robot.joints.at(t), self.robot.world_from_base)
        return self._links[i]

    def held(self, i: int, j: int, pose: np.ndarray, splats: Splats) -> np.ndarray | None:
        """The pose at instant j of a body that is held as at instant i: it moves with the link nearest to it."""
        before, after = self.links(i), self.links(j)
        if not before or self.robot is None:
            return None
        best, nearest = None, TOUCH + splats.radius
        for name, samples in self.robot.surface.items():
            place = before[name]
            middle = place[:3, :3].T @ (pose[:3, 3] - place[:3, 3])
            distance = float(np.linalg.norm(samples.points - middle, axis=1).min())
            if distance < nearest:
                best, nearest = name, distance
        if best is None:
            return None
        found: np.ndarray = after[best] @ invert_pose(before[best]) @ pose
        return found

    def starts(
        self, splats: Splats, i: int, j: int, pose: np.ndarray, before: np.ndarray | None
    ) -> list[np.ndarray]:  # fmt: skip
        """Where a body that was at `pose` at instant i, and at `before` one instant earlier, may be at j."""
        found = [pose]
        if before is not None:
            found.append(pose @ invert_pose(before) @ pose)
        held = self.held(i, j, pose, splats)
        if held is not None:
            found.append(held)
        return found

    def step(
        self, splats: Splats, background: Background, i: int, j: int, pose: np.ndarray, before: np.ndarray | None
    ) -> Aligned | None:
        """From `pose` at instant i to instant j; before: the pose at the instant on the other side of i."""
        same = self.resting(splats, background, i, j, pose)
        if same is not None:
            return same
        starts = self.starts(splats, i, j, pose, before)
        center = np.mean([start[:3, 3] for start in starts], axis=0)
        reach = max(float(np.linalg.norm(start[:3, 3] - center)) for start in starts)
        coarse = self.look(j, background, center, splats.radius + reach, 2)
        if coarse is None:
            return None
        few = thinned(splats)
        seconds = float(self.evidence.instants.times[j] - self.evidence.instants.times[i])
        rated = []
        for start in starts:
            velocity = twist(pose, start) / seconds
            aligner = Aligner(few, coarse, self.near, velocity)
            cost = aligner.cost(start)
            nearer = aligner.align(start, 4)
            # a coarse picture is a blunt judge: what it gains must be worth it
            gained = aligner.cost(nearer)
            better = gained < WORTH * cost
            rated.append((gained if better else cost, nearer if better else start, velocity))
        cost, best, velocity = min(rated, key=lambda entry: entry[0])
        result = self.refined(splats, background, j, best, velocity)
        if result is None or result.explained < DOUBTFUL:
            result = self._elsewhere(splats, background, j, pose, result)
        return result

    def resting(
        self, splats: Splats, background: Background, i: int, j: int, pose: np.ndarray
    ) -> Aligned | None:  # fmt: skip
        """The body at instant j where it was at i, if its pixels have not changed; None if they have, or are hidden."""
        looks = [self.look(k, background, pose[:3, 3], splats.radius) for k in (i, j)]
        if looks[0] is None or looks[1] is None or looks[0].index != looks[1].index:
            return None
        aligner = Aligner(splats, looks[1], self.near)
        alpha = aligner.seen(pose).coverage
        both = (alpha > 0.1) & (looks[0].weight > 0) & (looks[1].weight > 0)
        if both.sum() < MOST_SEEN * (alpha > 0.1).sum():
            return None
        change = np.abs(looks[0].target - looks[1].target).mean(-1)[both]
        return aligner.judged(pose) if (change > CHANGE).mean() < STILL else None

    def _elsewhere(
        self, splats: Splats, background: Background, j: int, pose: np.ndarray, result: Aligned | None
    ) -> Aligned | None:
        """`result`, or what is found where parts of the hull are, if that explains more."""
        for place in self.places.get(j, []):
            if np.linalg.norm(place - pose[:3, 3]) > JUMP * splats.radius:
                continue
            moved = pose.copy()
            moved[:3, 3] = place
            other = self.refined(splats, background, j, moved)
            if other is not None and (result is None or worth(other) > worth(result)):
                result = other
        return result

    def refined(
        self, splats: Splats, background: Background, j: int, start: np.ndarray, velocity: np.ndarray | None = None,
        iterations: int = 8,
    ) -> Aligned | None:  # fmt: skip
        """The pose near `start` at instant j, at the full resolution."""
        fine = self.look(j, background, start[:3, 3], splats.radius)
        if fine is None:
            return None
        aligner = Aligner(splats, fine, self.near, velocity)
        return aligner.judged(aligner.align(start, iterations))

    def follow(
        self, splats: Splats, background: Background, known: dict[int, np.ndarray], instants: list[int]
    ) -> dict[int, Aligned]:
        """The body at `instants`, outward from the instants where its pose is `known`.

        An instant between two known ones is reached from both sides; what explains more is kept. A body that is not
        seen stays where it was.
        """
        found: dict[int, Aligned] = {}
        order = sorted(set(instants) | set(known))
        for direction in (1, -1):
            row = order[::direction]
            at: tuple[int, np.ndarray] | None = None
            before: np.ndarray | None = None
            misses = 0
            for j in row:
                if j in known:
                    misses = 0
                    at, before = (j, known[j]), None
                    continue
                if at is None:
                    continue
                result = self.step(splats, background, at[0], j, at[1], before)
                if result is None:
                    at = None
                    continue
                if j not in found or worth(result) > worth(found[j]):
                    found[j] = result
                misses = misses + 1 if result.explained < LOST else 0
                if misses > PATIENCE:
                    break
                if result.visible < 0.05:
                    continue  # hidden: the next instant starts from the last pose that was seen
                before, at = at[1], (j, result.pose)
        for row in (sorted(found, reverse=True), sorted(found)):  # what was lost may be found from the other side
            for i, j in itertools.pairwise(row):
                if abs(i - j) == 1 and found[j].explained < min(DOUBTFUL, found[i].explained - CLEARLY):
                    result = self.step(splats, background, i, j, found[i].pose, None)
                    if result is not None and worth(result) > worth(found[j]):
                        found[j] = result
        return found

    def aligner(self, splats: Splats, background: Background, i: int, poses: dict[int, np.ndarray]) -> Aligner | None:
        """The body at instant i, where `poses` [4, 4] have it and as fast as they do; None where too few see it."""
        near = [k for k in (i - 1, i + 1) if k in poses]
        first, last = min([*near, i]), max([*near, i])
        span = float(self.evidence.instants.times[last] - self.evidence.instants.times[first])
        velocity = twist(poses[first], poses[last]) / span if span > 0 else None
        fine = self.look(i, background, poses[i][:3, 3], splats.radius)
        return None if fine is None else Aligner(splats, fine, self.near, velocity)

    def again(self, splats: Splats, background: Background, track: dict[int, Aligned]) -> dict[int, Aligned]:
        """The same track, refined with the velocities that it has itself, forward and back.

        Each instant starts from its own pose or from where one of its neighbours would have the body, at rest or in a
        hand: what costs least.
        """
        found = dict(track)
        poses = {i: aligned.pose for i, aligned in track.items()}
        for row in (sorted(track), sorted(track, reverse=True)):
            for i in row:
                near = [k for k in (i - 1, i + 1) if k in track]
                held = (self.held(k, i, poses[k], splats) for k in near)
                starts = [poses[i], *(poses[k] for k in near), *(pose for pose in held if pose is not None)]
                aligner = self.aligner(splats, background, i, poses)
                if aligner is not None:
                    found[i] = aligner.judged(aligner.align(min(starts, key=aligner.cost)))
                    poses[i] = found[i].pose
        return found
