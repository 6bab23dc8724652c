"""The pose of a body at one instant: its picture, laid over the still background, is compared with the frames.

    c_i(T) = g C_i(T) + (1 - A_i(T)) b_i            i a pixel of a crop of one camera
    T*     = argmin sum_i w_i s^2 log(1 + |c_i(T) - f_i|^2 / s^2)

C, A: the body's colour and coverage; b: the background; f: the frame; g: the light on the body, one number per camera
and colour, found in closed form; w: 0 where the robot is or no picture is. Gauss-Newton with derivatives by forward
differences, all drawn in one call (splats.py); a step that does not help is shortened.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.geometry.camera import Camera
from recon.geometry.pose import se3_exp
from recon.objects.splats import Crop, Splats, crops_of, draw

SCALE = 0.08  # sRGB, s: differences beyond it count less and less
GAIN = (0.6, 1.5)  # of the light on a body
STEP_PX = 0.35  # pixels, of the displacement a derivative is taken over
ITERATIONS = 8
DONE_PX = 0.04  # pixels, of the last step
THICK = 5  # pixels, of what stands in front of a body: thinner misfits are the outline's
UNKNOWN = SCALE**2 * np.log(2.0)  # cost of a pixel whose background is not known and that no body covers
SOLID = 0.5  # coverage of a pixel that is the body's


@dataclass(frozen=True)
class Look:
    """One instant in the crops of V cameras: everything the alignment compares with.

    camera: index of each view. target, background: float32 [V, S, S, 3]; weight: float32 [V, S, S] (0: says nothing);
    known: float32 [V, S, S], whether the background is. lag: s, of each view's frame after the instant.
    """

    cameras: list[Camera]
    index: list[int]
    crops: list[Crop]
    target: np.ndarray
    background: np.ndarray
    weight: np.ndarray
    known: np.ndarray
    lag: np.ndarray


@dataclass(frozen=True)
class Seen:
    """A body drawn over its background in V crops: picture [V, S, S, 3], coverage [V, S, S], gain [V, 1, 1, 3].

    covered: bool [V, S, S], where something stands in front of it. weight: [V, S, S], what of it may be compared.
    """

    picture: np.ndarray
    coverage: np.ndarray
    gain: np.ndarray
    covered: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Aligned:
    """pose: [4, 4] world from body. cost, empty: of the body there, and of the background alone, over the same pixels.

    information: [6, 6] of a twist in the body's frame (m, rad). visible: share of its pixels that can be seen.
    matched: share of those whose colour agrees. pixels: number of them.
    """

    pose: np.ndarray
    cost: float
    empty: float
    information: np.ndarray
    visible: float
    matched: float
    pixels: float
    noise: float  # RMS colour difference of its pixels
    pixel: float  # m that a pixel is wide at the body

    @property
    def explained(self) -> float:
        """Share of the difference to the background that the body accounts for."""
        return 1.0 - self.cost / max(self.empty, 1e-9)


def _cost(square: np.ndarray) -> np.ndarray:
    result: np.ndarray = SCALE**2 * np.log1p(square / SCALE**2)
    return result


class Aligner:
    """Compares one body with one look; near: m, of the rasteriser."""

    def __init__(self, splats: Splats, look: Look, near: float, velocity: np.ndarray | None = None) -> None:
        self.splats, self.look, self.near = splats, look, near
        self.velocity = velocity  # [6] twist per second, in the body's frame
        self.intrinsics = np.stack([crop.intrinsics(c) for crop, c in zip(look.crops, look.cameras, strict=True)])
        self.views = np.stack([c.cam_from_world for c in look.cameras])

    def placed(self, pose: np.ndarray) -> np.ndarray:
        """[V, 4, 4] camera from body, each at the moment of its view's frame."""
        if self.velocity is not None and np.abs(self.look.lag).max() > 1e-4:
            return np.asarray(self.views @ pose @ se3_exp(self.look.lag[:, None] * self.velocity[None]))
        return np.asarray(self.views @ pose)

    def _drawn(self, pose: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Colour [D, V, S, S, 3] and coverage [D, V, S, S] of the displacements `steps` [D, 6]."""
        moved = se3_exp(steps)  # [D, 4, 4]
        every = self.placed(pose)[None] @ moved[:, None]
        count, number = every.shape[:2]
        side = self.look.crops[0].side
        colour, alpha = draw(
            self.splats, every.reshape(-1, 4, 4), np.tile(self.intrinsics, (count, 1, 1)), side, self.near
        )
        return colour.reshape(count, number, side, side, 3), alpha.reshape(count, number, side, side)

    def _gain(self, colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """[V, 1, 1, 3]: the light on the body."""
        sure = self.look.weight * (alpha > 0.9)
        top = np.einsum("vhw,vhwk,vhwk->vk", sure, colour, self.look.target)
        low = np.einsum("vhw,vhwk,vhwk->vk", sure, colour, colour)
        few = 0.02 * max(1.0, float(sure.sum()) / len(sure))  # pulls towards 1 where little is seen
        found: np.ndarray = np.clip((top + few) / (low + few), *GAIN)[:, None, None]
        return found

    def seen(self, pose: np.ndarray) -> Seen:
        """The body at `pose`, over its background."""
        colour, alpha = self._drawn(pose, np.zeros((1, 6)))
        gain = self._gain(colour[0], alpha[0])
        picture = self._laid(colour[0], alpha[0], gain)
        covered = self._covered(alpha[0], picture)
        return Seen(picture, alpha[0], gain, covered, self._weight(alpha[0], covered))

    def _laid(self, colour: np.ndarray, alpha: np.ndarray, gain: np.ndarray) -> np.ndarray:
        behind = np.where(self.look.known[..., None] > 0.5, self.look.background, self.look.target)
        return gain * colour + (1.0 - alpha[..., None]) * behind

    def _weight(self, alpha: np.ndarray, covered: np.ndarray) -> np.ndarray:
        # where the background is not known only the body itself can be compared
        known = self.look.known > 0.5
        found: np.ndarray = self.look.weight * np.where(known, 1.0, alpha > 0.9)
        return found * ~covered

    def _covered(self, alpha: np.ndarray, picture: np.ndarray) -> np.ndarray:
        """bool [V, S, S]: where something of the background stands in front of the body, as the rim of a bowl it is in.

        There the frame shows the background and not the body, over more than a misplaced outline is wide.
        """
        look = self.look
        off = ((picture - look.target) ** 2).mean(-1) > SCALE**2
        bare = ((look.background - look.target) ** 2).mean(-1) < 0.25 * SCALE**2
        found: np.ndarray = (alpha > 0.5) & off & bare & (look.known > 0.5)
        if found.any():
            core = np.ones((THICK, THICK), np.uint8)
            reach = np.ones((THICK + 4, THICK + 4), np.uint8)
            masks = [cv2.dilate(cv2.erode(mask.astype(np.uint8), core), reach) for mask in found]
            found &= np.stack(masks) > 0
        return found

    def cost(self, pose: np.ndarray) -> float:
        """Of the body at `pose`: the mean over the pixels that say something."""
        drawn = self.seen(pose)
        return self._mean(((drawn.picture - self.look.target) ** 2).mean(-1), drawn.weight)

    def _mean(self, square: np.ndarray, weight: np.ndarray) -> float:
        """Mean cost over what the cameras can see; what may be anything costs as much wherever the body is."""
        open_pixels = (self.look.weight - weight).sum()
        return float(((weight * _cost(square)).sum() + UNKNOWN * open_pixels) / max(self.look.weight.sum(), 1.0))

    def _scales(self) -> np.ndarray:
        """[V] radians of a crop's pixel."""
        return np.array(
            [crop.step / camera.fx for crop, camera in zip(self.look.crops, self.look.cameras, strict=True)]
        )

    def align(self, start: np.ndarray, iterations: int = ITERATIONS) -> np.ndarray:
        """The pose near `start` [4, 4] that explains the look best."""
        pose = start.copy()
        best, damping = np.inf, 1e-3
        kept = pose
        system: tuple[np.ndarray, np.ndarray] | None = None
        for _ in range(iterations):
            cost, normal, slope = self._linear(pose)
            if cost < best:
                gained = best - cost
                best, kept, system = cost, pose, (normal, slope)
                damping = max(damping * 0.3, 1e-5)
                if gained < 1e-4 * best:
                    break
            else:
                damping *= 10.0
            assert system is not None
            matrix = system[0] + damping * np.diag(np.diag(system[0]) + 1e-12)
            step = -np.linalg.solve(matrix, system[1])
            size = self.splats.radius
            length = max(np.linalg.norm(step[:3]) / size, np.linalg.norm(step[3:]))
            step *= min(1.0, 0.25 / max(length, 1e-12))
            pose = kept @ se3_exp(step)
            if length * size < DONE_PX * self.pixel(kept):
                break
        return kept

    def pixel(self, pose: np.ndarray) -> float:
        """Metres that one pixel of the crops is wide at the body."""
        depths = np.array([(view @ pose)[2, 3] for view in self.views])
        return float(np.median(depths * self._scales()))

    def _linear(self, pose: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """(cost, J^T W J [6, 6], J^T W r [6]) at `pose`."""
        pixel = self.pixel(pose)
        size = self.splats.radius
        units = STEP_PX * pixel * np.array([1.0, 1.0, 1.0, 1.0 / size, 1.0 / size, 1.0 / size])
        colour, alpha = self._drawn(pose, np.concatenate([np.zeros((1, 6)), np.diag(units)]))
        gain = self._gain(colour[0], alpha[0])
        base = self._laid(colour[0], alpha[0], gain)
        weight = self._weight(alpha[0], self._covered(alpha[0], base))
        off = base - self.look.target
        square = (off**2).mean(-1)
        robust = weight / (1.0 + square / SCALE**2)
        cost = self._mean(square, weight)
        some = (np.abs(alpha - alpha[0]).max(0) > 1e-3) | (alpha[0] > 0.05)
        some &= robust > 0
        lean = np.empty((6, int(some.sum()), 3), np.float32)
        for j in range(6):
            lean[j] = (self._laid(colour[j + 1], alpha[j + 1], gain)[some] - base[some]) / units[j]
        heavy = robust[some][:, None] / 3.0
        rows = lean.reshape(6, -1).astype(np.float64)
        weighted = rows * np.repeat(heavy, 3, axis=1).reshape(-1)
        return cost, weighted @ rows.T, weighted @ off[some].reshape(-1).astype(np.float64)

    def judged(self, pose: np.ndarray) -> Aligned:
        """What the body at `pose` explains."""
        drawn = self.seen(pose)
        picture, alpha, weight = drawn.picture, drawn.coverage, drawn.weight
        own = alpha > SOLID
        square = ((picture - self.look.target) ** 2).mean(-1)
        bare = ((self.look.background - self.look.target) ** 2).mean(-1)
        sure = weight * own
        seen = float((self.look.weight * own * ~drawn.covered).sum())
        noise = float(np.sqrt((sure * np.minimum(square, SCALE**2)).sum() / max(sure.sum(), 1.0)))
        _, information, _ = self._linear(pose)
        return Aligned(
            pose,
            float((sure * _cost(square)).sum()),
            float((sure * self.look.known * _cost(bare)).sum() + UNKNOWN * (sure * (1 - self.look.known)).sum()),
            information,
            seen / max(float(own.sum()), 1.0),
            float((sure * (square < SCALE**2)).sum() / max(sure.sum(), 1.0)),
            seen,
            noise,
            self.pixel(pose),
        )


def look_at_instant(
    cameras: list[Camera], frames: list[np.ndarray | None], backgrounds: list[np.ndarray], knowns: list[np.ndarray],
    hidden: list[np.ndarray | None], lags: np.ndarray, center: np.ndarray, radius: float, coarser: int = 1,
) -> Look | None:  # fmt: skip
    """The crops of all cameras round a ball; None when fewer than two cameras have it in view.

    frames: uint8 [H, W, 3], None for a camera without one; backgrounds: float32 [H, W, 3]; knowns: bool [H, W];
    hidden: bool [H, W].
    """
    found = crops_of(cameras, center, radius, coarser=coarser)
    chosen = [c for c, crop in enumerate(found) if crop is not None and frames[c] is not None]
    if len(chosen) < 2:
        return None
    crops = [found[c] for c in chosen]
    target, background, weight, known = [], [], [], []
    for c, crop in zip(chosen, crops, strict=True):
        frame, mask = frames[c], hidden[c]
        assert crop is not None and frame is not None
        target.append(crop.cut(frame).astype(np.float32) / 255.0)
        background.append(crop.cut(backgrounds[c]))
        says = np.ones(frame.shape[:2], np.float32) if mask is None else (~mask).astype(np.float32)
        weight.append((crop.cut(says) > 0.99).astype(np.float32))
        known.append((crop.cut(knowns[c].astype(np.float32)) > 0.99).astype(np.float32))
    return Look(
        [cameras[c] for c in chosen], chosen, [crop for crop in crops if crop is not None],
        np.stack(target), np.stack(background), np.stack(weight), np.stack(known), lags[chosen],
    )  # fmt: skip
