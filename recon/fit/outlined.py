"""Frames in which it is known where things show: their outline is part of every frame's mask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable

import numpy as np

from recon.fit.data import Frames


class MaskCache:
    """Masks that are made once and kept as bits."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[tuple[int, ...], np.ndarray]] = {}

    def get(self, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The mask of that key, bool; `make` gives it the first time."""
        if key not in self._kept:
            made = make()
            self._kept[key] = (made.shape, np.packbits(made))
        shape, bits = self._kept[key]
        return np.unpackbits(bits, count=int(np.prod(shape))).reshape(shape) > 0


class OutlinedFrames(ABC):
    """`Frames` whose masks hold the outlines of known things, beside the masks that were given."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.names, self.cameras, self.times = frames.names, frames.cameras, frames.times
        # without given masks, only the known things are masked: what else moves must be found
        self.masks_are_whole = frames.masks_are_whole and frames.mask(0, 0) is not None
        self._outlines = MaskCache()

    @abstractmethod
    def _outline(self, camera: int, frame: int) -> np.ndarray:
        """bool [H, W]: where the known things show."""

    def num_frames(self, camera: int) -> int:
        """T_c."""
        return self.frames.num_frames(camera)

    def picture(self, camera: int, frame: int) -> np.ndarray:
        """uint8 [H, W, 3] RGB."""
        return self.frames.picture(camera, frame)

    def valid(self, camera: int) -> np.ndarray:
        """bool [H, W]."""
        return self.frames.valid(camera)

    def mask(self, camera: int, frame: int) -> np.ndarray:
        """bool [H, W]: the known things, and what a given mask covers."""
        given, mask = self.frames.mask(camera, frame), self.silhouette(camera, frame)
        return mask if given is None else mask | given

    def silhouette(self, camera: int, frame: int) -> np.ndarray:
        """bool [H, W]: the known things."""
        return self._outlines.get((camera, frame), lambda: self._outline(camera, frame))
