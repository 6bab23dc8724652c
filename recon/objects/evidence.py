"""What the cameras show of things that move: per instant and camera the pixels that differ from the still picture by
more than a shadow explains, and the pixels that say nothing because a known robot is there.

A neutral shadow or highlight multiplies what is under it: with f the frame's and p the plate's colour of a pixel,

    g = clip(f . p / p . p, SHADOW, LIGHT)        what light alone may do
    moved  where  max_k |f_k - g p_k| > threshold

so that a thing of the same hue as its background and of a brightness that a shadow could have made is seen at its
edges only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np

from recon.fit.data import Frames
from recon.fit.outlined import MaskCache
from recon.fit.plate import MOTION_FLOOR, Plate
from recon.fit.robot import RobotFrames
from recon.geometry.camera import Camera

SHADOW, LIGHT = 0.3, 1.4  # multiples of the still picture that light alone explains
NOISES = 4.0  # of the plate's noise, above which a difference is one
ROBOT_MARGIN = 4  # pixels round a known robot that its edge may be off
HALF = 0.5  # resolution at which things are looked for
TINT = 0.12  # of a shadow, see moved()
KNOWN = 0.2  # weight of a plate's pixel that is known well enough


@dataclass(frozen=True)
class Instants:
    """times: [T] s. frames: int [T, C], each camera's nearest frame, -1 where it has none within half a frame."""

    times: np.ndarray
    frames: np.ndarray


def common_instants(frames: Frames, most: int) -> Instants:
    """Frame times of the camera that agrees best with the others, at most `most` of them, evenly thinned out."""
    start, end = max(t[0] for t in frames.times), min(t[-1] for t in frames.times)
    gaps = [float(np.median(np.diff(t))) if len(t) > 1 else np.inf for t in frames.times]
    off = [np.median([np.abs(other[:, None] - own).min(1).mean() for other in frames.times]) for own in frames.times]
    own = frames.times[int(np.argmin(off))]
    slack = 0.5 * min(gaps) if np.isfinite(min(gaps)) else 0.0
    times = own[(own >= start - slack) & (own <= end + slack)]
    times = times[:: max(1, -(-len(times) // most))]
    nearest = np.full((len(times), len(frames.times)), -1, dtype=np.int64)
    for c, stamps in enumerate(frames.times):
        if len(stamps) == 0:
            continue
        found = np.abs(times[:, None] - stamps[None]).argmin(1)
        near = np.abs(stamps[found] - times) <= 0.5 * gaps[c] + 1e-6
        nearest[near, c] = found[near]
    return Instants(times, nearest)


def moved(
    picture: np.ndarray, plate: np.ndarray, noise: np.ndarray, floor: float = MOTION_FLOOR, tint: float = 0.0
) -> np.ndarray:
    """bool [H, W]: where a frame (uint8 [H, W, 3]) is not the plate (float32 [H, W, 3]) in another light.

    tint: how far a shadow may change the hue, per unit of the brightness it takes.
    """
    seen = picture.astype(np.float32) * (1.0 / 255.0)
    dot = np.einsum("hwk,hwk->hw", seen, plate)
    gain = np.clip(dot / np.maximum(np.einsum("hwk,hwk->hw", plate, plate), 1e-4), SHADOW, LIGHT)
    difference = np.abs(seen - gain[..., None] * plate).max(axis=-1)
    if tint > 0.0:
        difference -= tint * np.maximum(1.0 - gain, 0.0) * plate.max(-1)
    difference = cv2.GaussianBlur(difference, (0, 0), 0.8)
    return difference > np.maximum(floor, NOISES * noise)


def changed(picture: np.ndarray, plate: np.ndarray, floor: float = MOTION_FLOOR) -> np.ndarray:
    """bool [H, W]: where a frame (uint8 [H, W, 3]) is not the plate (float32 [H, W, 3]), shadows included."""
    difference = np.abs(picture.astype(np.float32) * (1.0 / 255.0) - plate).max(axis=-1)
    return np.asarray(cv2.GaussianBlur(difference, (0, 0), 0.8) > floor)


def tidy(mask: np.ndarray, size: int = 5) -> np.ndarray:
    """bool [H, W]: holes of a few pixels closed, then specks taken away."""
    closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((size, size), np.uint8))
    return cv2.morphologyEx(closed, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)) > 0


def filled(mask: np.ndarray, size: int = 7) -> np.ndarray:
    """bool [H, W]: the mask closed over gaps of `size` pixels, holes filled."""
    closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((size, size), np.uint8))
    outlines, _ = cv2.findContours(closed, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.zeros_like(closed), outlines, -1, 1, cv2.FILLED) > 0


class Evidence:
    """Masks at half the resolution, of every instant and camera, kept as bits."""

    def __init__(self, frames: Frames, plates: list[Plate], robot: RobotFrames | None, instants: Instants) -> None:
        self.frames, self.plates, self.robot, self.instants = frames, plates, robot, instants
        self.cameras: list[Camera] = [camera.scaled(HALF) for camera in frames.cameras]
        self.whole = frames.masks_are_whole and frames.mask(0, 0) is not None
        self._small = [self._shrunk(plate) for plate in plates]
        self._valid = [self._resized(frames.valid(c), c) for c in range(len(self.cameras))]
        self._kept = MaskCache()

    def _size(self, c: int) -> tuple[int, int]:
        return self.cameras[c].width, self.cameras[c].height

    def _shrunk(self, plate: Plate) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = (max(1, round(plate.weight.shape[1] * HALF)), max(1, round(plate.weight.shape[0] * HALF)))
        # a thing that came or went makes the plate's pixels look noisy: no more than twice the usual noise is believed
        noise = np.minimum(plate.noise, 2.0 * np.median(plate.noise))
        made = [cv2.resize(x, size, interpolation=cv2.INTER_AREA) for x in (plate.picture, noise, plate.weight)]
        return made[0], made[1], made[2]

    def _resized(self, mask: np.ndarray, c: int) -> np.ndarray:
        return cv2.resize(mask.astype(np.uint8), self._size(c), interpolation=cv2.INTER_AREA) > 0

    def hidden_full(self, c: int, k: int) -> np.ndarray:
        """bool [H, W] at full resolution: pixels of camera c's frame k that the robot hides, or that are no picture."""
        nothing = ~self.frames.valid(c)
        if self.robot is None:
            return nothing
        grow = np.ones((2 * ROBOT_MARGIN + 1,) * 2, np.uint8)
        found: np.ndarray = nothing | (cv2.dilate(self.robot.silhouette(c, k).astype(np.uint8), grow) > 0)
        return found

    def _made(self, i: int, c: int) -> np.ndarray:
        """bool [2, h, w]: what moves, what says nothing."""
        k = int(self.instants.frames[i, c])
        width, height = self._size(c)
        if k < 0:  # no frame: the camera says nothing
            return np.stack([np.zeros((height, width), bool), np.ones((height, width), bool)])
        plate, noise, weight = self._small[c]
        hidden = self._resized(self.hidden_full(c, k), c) | ~self._valid[c]
        given = self.frames.mask(c, k) if self.whole else None
        if given is not None:
            return np.stack([self._resized(given, c) & ~hidden, hidden])
        small = cv2.resize(self.frames.picture(c, k), (width, height), interpolation=cv2.INTER_AREA)
        mask = tidy(moved(small, plate, noise) & (weight > KNOWN) & ~hidden, 3)
        return np.stack([mask & ~hidden, hidden | (weight <= KNOWN)])

    def at(self, i: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(what moves, what says nothing), bool [h, w] of every camera at instant i, at half the resolution."""
        masks, hidden = [], []
        for c in range(len(self.cameras)):
            both = self._kept.get((i, c), partial(self._made, i, c))
            masks.append(both[0])
            hidden.append(both[1])
        return masks, hidden
