"""Which patch of which picture the next iteration looks at: a function of (seed, step) alone, so that a resumed fit
repeats it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import cv2
import numpy as np
from torch import Tensor

from recon.calibrate.dense import DepthPrior
from recon.core.seeding import numpy_generator
from recon.fit.data import Frames
from recon.fit.plate import Plate, motion_mask
from recon.geometry.camera import Camera, squared_radii

Picture = TypeVar("Picture", np.ndarray, Tensor)
TILE = 16  # pixels, the rasteriser's


@dataclass(frozen=True)
class Window:
    """Rows [top, bottom) and columns [left, right) of a picture, on tile borders but for the picture's own."""

    top: int
    bottom: int
    left: int
    right: int

    def cut(self, picture: Picture) -> Picture:
        """The window's part of a picture [H, W, ...]."""
        return picture[self.top : self.bottom, self.left : self.right]

    def tiles(self, height: int, width: int) -> np.ndarray:
        """bool [tile rows, tile columns], True inside."""
        mask = np.zeros((-(-height // TILE), -(-width // TILE)), dtype=bool)
        mask[self.top // TILE : -(-self.bottom // TILE), self.left // TILE : -(-self.right // TILE)] = True
        return mask


@dataclass(frozen=True)
class Sample:
    """A training patch: target float32 [h, w, 3] and weight float32 [h, w], seen by `camera` in `window` at time t."""

    index: int  # of the camera
    camera: Camera
    window: Window
    target: np.ndarray
    weight: np.ndarray
    t: float | None
    inverse_depth: np.ndarray  # float32 [h, w], 1 / metres
    depth_weight: np.ndarray  # float32 [h, w], 0 where the depth is not to be believed
    depth_scale: float  # metres, the camera's median depth

    def squared_radii(self) -> np.ndarray:
        """float32 [h, w]: squared distance from the principal point, in halves of the picture's diagonal."""
        window = self.window
        return squared_radii(self.camera, window.top, window.bottom, window.left, window.right)


def place_window(
    width: int, height: int, patch: int, center: tuple[float, float] | None, rng: np.random.Generator
) -> Window:
    """A patch of about `patch` pixels a side, at random or round `center` (column, row), moved inside the picture."""
    if patch <= 0:
        return Window(0, height, 0, width)
    spans = []
    column, row = (None, None) if center is None else center
    for size, middle in ((height, row), (width, column)):
        side = min(size, patch)
        if middle is None:
            start = rng.uniform(-0.25 * side, size - 0.75 * side)
        else:
            start = middle - rng.uniform(0.25, 0.75) * side
        low = int(np.clip(round(start / TILE) * TILE, 0, max(0, -(-(size - side) // TILE) * TILE)))
        spans.append((low, min(size, low + side)))
    return Window(spans[0][0], spans[0][1], spans[1][0], spans[1][1])


@dataclass(frozen=True)
class DepthTarget:
    """A camera's depth prior in the grid of its pictures: inverse and weight float32 [H, W], scale in metres."""

    inverse: np.ndarray
    weight: np.ndarray
    scale: float

    @staticmethod
    def of(prior: DepthPrior, width: int, height: int) -> DepthTarget:
        """The prior resampled to width x height pixels."""
        inverse = cv2.resize(prior.inverse, (width, height), interpolation=cv2.INTER_LINEAR)
        weight = cv2.resize(prior.weight, (width, height), interpolation=cv2.INTER_NEAREST)
        return DepthTarget(inverse, weight, float(np.median(1.0 / prior.inverse)))


class StaticSampler:
    """Patches of the plates, coarse first."""

    def __init__(
        self,
        cameras: list[Camera],
        plates: list[Plate],
        priors: list[DepthPrior],
        seed: int,
        patch: int,
        coarse_until: int,
    ) -> None:
        self.seed, self.patch, self.coarse_until = seed, patch, coarse_until
        self.fine = list(zip(cameras, plates, strict=True))
        self.coarse = [_halved(camera, plate) for camera, plate in self.fine]
        self.depths = [
            [
                DepthTarget.of(prior, camera.width, camera.height)
                for prior, (camera, _) in zip(priors, level, strict=True)
            ]
            for level in (self.fine, self.coarse)
        ]

    def draw(self, step: int) -> Sample:
        """The sample of iteration `step`: each camera once per round, in an order that changes with the round."""
        count = len(self.fine)
        order = numpy_generator(self.seed, step // count, "plate order").permutation(count)
        index = int(order[step % count])
        rng = numpy_generator(self.seed, step, "plate patch")
        coarse = step < self.coarse_until
        camera, plate = (self.coarse if coarse else self.fine)[index]
        window = place_window(camera.width, camera.height, 0 if coarse else self.patch, None, rng)
        depth = self.depths[int(coarse)][index]
        believed = window.cut(depth.weight) * window.cut(plate.weight > 0)
        return Sample(
            index, camera, window, window.cut(plate.picture), window.cut(plate.weight), None,
            window.cut(depth.inverse), believed, depth.scale,
        )  # fmt: skip


def _halved(camera: Camera, plate: Plate) -> tuple[Camera, Plate]:
    half = camera.scaled(0.5)
    size = (half.width, half.height)
    shrunk = [cv2.resize(x, size, interpolation=cv2.INTER_AREA) for x in (plate.picture, plate.weight, plate.noise)]
    return half, Plate(*shrunk)


class JointSampler:
    """Patches of the frames; a share of them is placed where something moves, where weights are larger too."""

    def __init__(
        self,
        frames: Frames,
        plates: list[Plate],
        priors: list[DepthPrior],
        seed: int,
        patch: int,
        share: float,
        weight: float,
    ) -> None:
        self.frames, self.plates = frames, plates
        self.depths = [
            DepthTarget.of(prior, camera.width, camera.height)
            for prior, camera in zip(priors, frames.cameras, strict=True)
        ]
        self.seed, self.patch, self.share, self.weight = seed, patch, share, weight
        self.activity = [activity(frames, plates[c], c) for c in range(len(frames.cameras))]

    def draw(self, step: int) -> Sample:
        """The sample of iteration `step`."""
        rng = numpy_generator(self.seed, step, "frame patch")
        index = int(rng.integers(len(self.frames.cameras)))
        frame = int(rng.integers(self.frames.num_frames(index)))
        camera, counts = self.frames.cameras[index], self.activity[index][frame]
        center = None
        if rng.uniform() < self.share and counts.any():
            # any moving tile, the fuller the likelier
            cumulative = np.cumsum(counts.astype(np.float64).ravel())
            tile = int(np.searchsorted(cumulative, rng.uniform() * cumulative[-1], side="right"))
            row, column = divmod(tile, counts.shape[1])
            center = ((column + 0.5) * TILE, (row + 0.5) * TILE)
        window = place_window(camera.width, camera.height, self.patch, center, rng)
        picture = window.cut(self.frames.picture(index, frame))
        weight = self._weights(index, frame, picture, window)
        target = picture.astype(np.float32) / 255.0
        depth = self.depths[index]
        believed = window.cut(depth.weight) * (weight == 1.0)  # the prior is of the still scene
        return Sample(
            index, camera, window, target, weight, float(self.frames.times[index][frame]),
            window.cut(depth.inverse), believed, depth.scale,
        )  # fmt: skip

    def _weights(self, index: int, frame: int, picture: np.ndarray, window: Window) -> np.ndarray:
        """1 for the still parts, `weight` where something moves, 0 outside the real picture."""
        plate = self.plates[index]
        part = Plate(window.cut(plate.picture), window.cut(plate.weight), window.cut(plate.noise))
        given = self.frames.mask(index, frame)
        moving = motion_mask(picture, part)
        if given is not None:
            moving = window.cut(given) if self.frames.masks_are_whole else window.cut(given) | moving
        weight = 1.0 + (self.weight - 1.0) * moving.astype(np.float32)
        return weight * window.cut(self.frames.valid(index)).astype(np.float32)


def activity(frames: Frames, plate: Plate, camera: int) -> np.ndarray:
    """uint8 [T, tile rows, tile columns]: moving pixels per tile and frame (255 is 255 or more).

    Motion against the plate counts in full, the rest of a given mask (a thing that stands still just now) a quarter.
    """
    counts = []
    for frame in range(frames.num_frames(camera)):
        moving = motion_mask(frames.picture(camera, frame), plate).astype(np.float32)
        given = frames.mask(camera, frame)
        if given is not None:
            inside = moving * given if frames.masks_are_whole else moving
            moving = np.maximum(inside, 0.25 * given.astype(np.float32))
        height, width = moving.shape
        padded = np.zeros((-(-height // TILE) * TILE, -(-width // TILE) * TILE), np.float32)
        padded[:height, :width] = moving * frames.valid(camera)
        tiles = padded.reshape(padded.shape[0] // TILE, TILE, -1, TILE).sum(axis=(1, 3))
        counts.append(np.minimum(tiles, 255).astype(np.uint8))
    return np.stack(counts)
