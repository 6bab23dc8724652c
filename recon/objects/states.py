"""How a place looked during some instants: the median of the frames, without the pixels that the robot hid.

A thing at rest is seen best in the median of all instants of its rest. Comparing the place with and without it needs no
still picture of the whole recording, whose pixels may be of different times.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from recon.fit.data import Frames
from recon.geometry.camera import Camera, project

MOST = 9  # frames of a median
ROOM = 12  # pixels round a place
FEW = 12  # pixels, too few to tell colours
CAREFUL = 0.6  # of what no shadow explains must be left by a cut
CUTS = 3  # rounds of the graph cut

Box = tuple[int, int, int, int]  # rows y0, y1, columns x0, x1


def boxes_of(cameras: list[Camera], low: np.ndarray, high: np.ndarray) -> list[Box | None]:
    """The pixels of every camera that a box [3], [3] m of the world may show in; None where it is out of view."""
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), -1).reshape(-1, 3)
    found: list[Box | None] = []
    for camera in cameras:
        pixels, depth = project(camera, corners)
        if not (depth > 1e-3).all():
            found.append(None)
            continue
        (x0, y0), (x1, y1) = np.floor(pixels.min(0)) - ROOM, np.ceil(pixels.max(0)) + ROOM
        box = (max(0, int(y0)), min(camera.height, int(y1)), max(0, int(x0)), min(camera.width, int(x1)))
        found.append(box if box[1] > box[0] and box[3] > box[2] else None)
    return found


def masked_median(stack: np.ndarray, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(median [H, W, 3] of a stack uint8 [S, H, W, 3] where usable bool [S, H, W]; bool [H, W], where there is one)."""
    keyed = np.where(usable[..., None], stack.astype(np.int16), 256)
    keyed.sort(axis=0)  # what is not usable is last
    count = usable.sum(0)
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, len(stack) - 1)
    rows, columns = np.indices(count.shape)
    middle = (keyed[low, rows, columns] + keyed[high, rows, columns]) // 2
    return np.where(count[..., None] > 0, middle, 0).astype(np.uint8), count > 0


def state(
    frames: Frames, numbers: np.ndarray, hidden: Callable[[int, int], np.ndarray], boxes: list[Box | None]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(pictures uint8 [h, w, 3], seen bool [h, w]) of every camera's box, in the instants whose frames are given.

    numbers: int [T, C] frame numbers, -1 for none. A camera without a box gives empty pictures.
    """
    picks = numbers[np.unique(np.linspace(0, len(numbers) - 1, min(MOST, len(numbers))).round().astype(int))]
    pictures, seen = [], []
    for c, box in enumerate(boxes):
        usual = [int(k) for k in picks[:, c] if k >= 0]
        if box is None or not usual:
            size = (0, 0) if box is None else (box[1] - box[0], box[3] - box[2])
            pictures.append(np.zeros((*size, 3), np.uint8))
            seen.append(np.zeros(size, bool))
            continue
        cut = (slice(box[0], box[1]), slice(box[2], box[3]))
        stack = np.stack([frames.picture(c, k)[cut] for k in usual])
        usable = np.stack([~hidden(c, k)[cut] for k in usual])
        picture, any_of = masked_median(stack, usable)
        pictures.append(picture)
        seen.append(any_of)
    return pictures, seen


def placed(small: list[np.ndarray], boxes: list[Box | None], whole: list[np.ndarray]) -> list[np.ndarray]:
    """Copies of `whole` [H, W, ...] with the boxes replaced by `small`."""
    found = []
    for part, box, picture in zip(small, boxes, whole, strict=True):
        copy = picture.copy()
        if box is not None and part.size:
            copy[box[0] : box[1], box[2] : box[3]] = part
        found.append(copy)
    return found


def segmented(picture: np.ndarray, maybe: np.ndarray, sure: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """bool [h, w]: the part of an outline that does not look like what is round it (graph cut on colours, GrabCut).

    picture: uint8 [h, w, 3]. maybe: bool [h, w], where two states of the place differ; sure: where by more than a
    shadow; seen: pixels that may be believed. Where the thing is not in this state, hardly anything is left.
    """
    if int((sure & seen).sum()) < FEW or int((~maybe & seen).sum()) < FEW:
        return sure & seen
    strict = _cut(picture, maybe, sure, seen)
    # where a shadow could explain much of a thing, the careful start loses it
    return strict if strict.sum() >= CAREFUL * (sure & seen).sum() else _cut(picture, maybe, maybe, seen)


def _cut(picture: np.ndarray, maybe: np.ndarray, start: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """GrabCut inside `maybe`, begun with `start` as the thing."""
    labels = np.full(maybe.shape, cv2.GC_BGD, np.uint8)
    labels[maybe & seen] = cv2.GC_PR_BGD
    labels[start & seen] = cv2.GC_PR_FGD
    cv2.setRNGSeed(1)  # its first clusters are drawn at random
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(np.ascontiguousarray(picture), labels, None, *models, CUTS, cv2.GC_INIT_WITH_MASK)
    return np.asarray(((labels == cv2.GC_PR_FGD) | (labels == cv2.GC_FGD)) & seen)
