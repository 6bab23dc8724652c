"""The still part of each camera's recording: a temporal-median picture, and where something moves against it.

Over at most `MAX_FRAMES` evenly spaced frames, per pixel and channel,

    plate = median over the frames in which no mask covers the pixel
    noise = 1.4826 median |frame - plate|          (all channels together)

A pixel that is covered in almost every frame was never seen: its weight is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.fit.data import Frames

MAX_FRAMES = 41
ROWS = 32  # per block, so that memory does not grow with the picture
MIN_SHARE = 0.08  # of the frames in which a pixel must be uncovered
MOTION_FLOOR = 0.07  # sRGB, least difference that counts as motion


@dataclass(frozen=True)
class Plate:
    """picture: float32 [H, W, 3] in [0, 1]; weight: float32 [H, W] in [0, 1]; noise: float32 [H, W] sRGB units."""

    picture: np.ndarray
    weight: np.ndarray
    noise: np.ndarray


def _masked_median(block: np.ndarray, uncovered: np.ndarray) -> np.ndarray:
    """Median over the last axis of uint8 [R, W, 3, S] where uncovered [R, W, S]; 0 where nothing is uncovered."""
    keyed = np.where(uncovered[:, :, None], block.astype(np.int16), 256)  # covered values sort last
    keyed.sort(axis=-1)
    count = uncovered.sum(axis=-1)  # [R, W]
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, block.shape[-1] - 1)
    pick = np.stack([low, high], axis=-1)[:, :, None].repeat(3, axis=2)  # [R, W, 3, 2]
    middle = np.take_along_axis(keyed, pick, axis=-1).mean(axis=-1, dtype=np.float32)
    return np.where(count[..., None] > 0, middle, 0.0).astype(np.float32) / 255.0


def make_plate(frames: Frames, camera: int, limit: int = MAX_FRAMES) -> Plate:
    """The plate of one camera, of `limit` frames at most; masks, where given, keep moving things out of it."""
    total = frames.num_frames(camera)
    chosen = np.unique(np.linspace(0, total - 1, min(total, limit)).round().astype(int))
    stack = np.stack([frames.picture(camera, int(i)) for i in chosen])  # [S, H, W, 3]
    masks = [frames.mask(camera, int(i)) for i in chosen]
    height, width = stack.shape[1:3]
    covered = np.zeros(stack.shape[:3], dtype=bool)
    grow = np.ones((7, 7), np.uint8)
    for s, mask in enumerate(masks):
        if mask is not None:  # a mask's edge lies a few pixels off the thing's
            covered[s] = cv2.dilate(mask.astype(np.uint8), grow) > 0
    picture = np.empty((height, width, 3), np.float32)
    noise = np.empty((height, width), np.float32)
    for top in range(0, height, ROWS):
        rows = slice(top, top + ROWS)
        block = np.ascontiguousarray(np.moveaxis(stack[:, rows], 0, -1))  # [R, W, 3, S]: a pixel's history in one run
        uncovered = np.ascontiguousarray(np.moveaxis(~covered[:, rows], 0, -1))  # [R, W, S]
        picture[rows] = _masked_median(block, uncovered)
        difference = np.abs(block.astype(np.float32) / 255.0 - picture[rows][..., None]).mean(axis=2)
        difference[~uncovered] = np.nan
        noise[rows] = 1.4826 * np.nan_to_num(_nanmedian(difference), nan=1.0)
    share = 1.0 - covered.mean(axis=0)
    weight = np.clip(share / 0.25, 0.0, 1.0).astype(np.float32)
    weight[share < MIN_SHARE] = 0.0
    weight[noise > 0.08] *= 0.25  # flickers in most frames: the median is a guess there
    weight *= frames.valid(camera)
    return Plate(picture, weight, noise)


def _nanmedian(values: np.ndarray) -> np.ndarray:
    """Lower median over the last axis, ignoring NaN; NaN where all are NaN (no warning, unlike numpy's)."""
    ordered = np.sort(values, axis=-1)  # NaN last
    count = (~np.isnan(ordered)).sum(axis=-1)
    pick = np.maximum(count - 1, 0) // 2
    return np.take_along_axis(ordered, pick[..., None], axis=-1)[..., 0]


def motion_mask(picture: np.ndarray, plate: Plate) -> np.ndarray:
    """bool [H, W]: where a frame (uint8 [H, W, 3]) differs from the plate by more than the noise explains."""
    difference = np.abs(picture.astype(np.float32) / 255.0 - plate.picture).max(axis=-1)
    difference = cv2.GaussianBlur(difference, (0, 0), 1.0)
    moving = difference > np.maximum(MOTION_FLOOR, 4.0 * plate.noise)
    closed = cv2.morphologyEx(moving.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    opened = cv2.morphologyEx(closed, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    return opened > 0


def moving_mask(frames: Frames, camera: int, frame: int, motion: np.ndarray) -> np.ndarray:
    """What moves in a frame: the mask where masks show everything that moves, else the mask and `motion` together."""
    given = frames.mask(camera, frame)
    if given is None:
        return motion
    return given if frames.masks_are_whole else given | motion
