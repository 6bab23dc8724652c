"""One camera's recording on the common clock, and the bounded cache that all cameras share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from recon.capture.images import read_mask_picture
from recon.core.errors import InputError


class Source(Protocol):
    """What a stream reads from: a video file or an image folder."""

    path: Path
    width: int
    height: int
    claimed: int
    times: np.ndarray  # [T] s
    keyframes: np.ndarray  # [K] increasing
    rotation: int

    def read(self, index: int) -> np.ndarray:
        """Frame `index` as uint8 [H, W, 3]."""

    def frames(self) -> Iterator[tuple[int, np.ndarray]]:
        """All frames that decode, in order."""

    def close(self) -> None:
        """Release the file."""

    def __len__(self) -> int: ...


class FrameCache:
    """Least recently used pictures, bounded in bytes, shared by all cameras of a capture."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.bytes = 0
        self._items: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> np.ndarray | None:
        """The picture, now the most recently used, or None."""
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
            return self._items.get(key)

    def put(self, key: tuple[str, int], image: np.ndarray) -> None:
        """Keep a picture; the oldest leave until the bound holds."""
        with self._lock:
            if key in self._items or image.nbytes > self.max_bytes:
                return
            self._items[key] = image
            self.bytes += image.nbytes
            while self.bytes > self.max_bytes:
                _, old = self._items.popitem(last=False)
                self.bytes -= old.nbytes


class CameraStream:
    """The frames of one camera.

    name: camera name. path: its video or folder. width, height: displayed pixels.
    times: [T] float64 seconds on the common clock, increasing. keyframes: [K] indices of frames that need no other.
    rotation: degrees anticlockwise that the recording asks to be turned by, already done.
    Pictures are uint8 [H, W, 3] sRGB as recorded (distorted) and read-only, because the cache shares them.
    """

    def __init__(self, name: str, source: Source, offset: float, cache: FrameCache, masks: dict[int, Path]):
        self.name = name
        self.path = source.path
        self.width, self.height = source.width, source.height
        self.times: np.ndarray = source.times + offset
        self.claimed = source.claimed
        self.keyframes = source.keyframes
        self.rotation = source.rotation
        self._source = source
        self._cache = cache
        self._masks = masks
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.times)

    def read(self, index: int) -> np.ndarray:
        """Frame `index` (negative counts from the end) as read-only uint8 [H, W, 3].

        Raises InputError naming file and frame when it cannot be decoded, IndexError when there is no such frame.
        """
        index = self._checked(index)
        image = self._cache.get((self.name, index))
        if image is None:
            with self._lock:
                image = self._source.read(index)
            image.setflags(write=False)
            self._cache.put((self.name, index), image)
        return image

    def read_many(self, indices: Iterable[int]) -> np.ndarray:
        """Frames at `indices` as uint8 [n, H, W, 3], decoded in increasing order whatever the order asked."""
        wanted = [self._checked(i) for i in indices]
        out = np.empty((len(wanted), self.height, self.width, 3), dtype=np.uint8)
        for index in sorted(set(wanted)):
            image = self.read(index)
            for k in (k for k, w in enumerate(wanted) if w == index):
                out[k] = image
        return out

    def iterate(self) -> Iterator[tuple[int, np.ndarray]]:
        """All frames that decode, in order, as (index, uint8 [H, W, 3]); one in memory at a time, none cached.

        A few damaged frames of a video are passed over. Raises InputError when more than a tenth is damaged.
        """
        for index, image in self._source.frames():
            image.setflags(write=False)
            yield index, image

    @property
    def has_masks(self) -> bool:
        """Whether any frame has a mask."""
        return bool(self._masks)

    def read_mask(self, index: int) -> np.ndarray | None:
        """Mask of frame `index` as uint8 [H, W] (0 = background, else foreground or a label), None when not given."""
        index = self._checked(index)
        path = self._masks.get(index)
        if path is None:
            return None
        mask = read_mask_picture(path, index)
        if mask.shape != (self.height, self.width):
            raise InputError(
                f"{path}: mask of camera {self.name}, frame {index} is {mask.shape[1]}x{mask.shape[0]}, "
                f"its picture {self.width}x{self.height}",
                fix="Masks must have the size of the pictures.",
            )
        return mask

    def mask_stats(self) -> list[tuple[int, int, int]]:
        """(frame, bytes, change time in ns) of every mask file, to notice that one was replaced."""
        stats = ((index, path.stat()) for index, path in sorted(self._masks.items()))
        return [(index, stat.st_size, stat.st_mtime_ns) for index, stat in stats]

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._source.close()

    def _checked(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"camera {self.name}: frame {index} of {len(self)}")
        return index % len(self)
