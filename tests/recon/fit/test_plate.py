"""The plate is the scene without what moves."""

from __future__ import annotations

import numpy as np

from recon.fit.plate import Plate, make_plate, motion_mask
from tests.recon.fit.tiny import TinyFrames, ray_trace


def test_the_plate_is_the_still_scene_with_and_without_masks() -> None:
    for masks in (True, False):
        frames = TinyFrames(15, masks)
        camera = 1  # looks across the ball's path: without masks no pixel is covered half of the time
        plate = make_plate(frames, camera)
        still = ray_trace(frames.cameras[camera], None)[0] / 255.0
        trusted = plate.weight > 0.5
        assert trusted.mean() > 0.8
        assert np.abs(plate.picture - still)[trusted].max() < 0.01


def test_a_pixel_that_is_always_covered_has_no_weight() -> None:
    class Covered(TinyFrames):
        def mask(self, camera: int, frame: int) -> np.ndarray:
            mask = np.zeros((48, 64), dtype=bool)
            mask[20:30, 20:30] = True
            return mask

    plate = make_plate(Covered(8), 0)
    assert (plate.weight[20:30, 20:30] == 0).all()
    assert (plate.weight[:10] == 1).all()


def test_the_median_is_exact_for_even_and_odd_counts() -> None:
    class Values(TinyFrames):
        def picture(self, camera: int, frame: int) -> np.ndarray:
            return np.full((48, 64, 3), 10 * (frame + 1), dtype=np.uint8)

        def mask(self, camera: int, frame: int) -> np.ndarray | None:
            return None

    assert np.allclose(make_plate(Values(4), 0).picture, 25 / 255)
    assert np.allclose(make_plate(Values(5), 0).picture, 30 / 255)


def test_motion_is_what_differs_from_the_plate_beyond_its_noise() -> None:
    frames = TinyFrames(15, masks=False)
    plate = make_plate(frames, 1)
    picture, ball = ray_trace(frames.cameras[1], 0.5)
    found = motion_mask(picture, plate)
    assert (found & ball).sum() > 0.8 * ball.sum()
    assert not motion_mask(ray_trace(frames.cameras[1], None)[0], plate)[plate.weight > 0.5].any()
    noisy = Plate(plate.picture, plate.weight, np.full_like(plate.noise, 0.3))
    assert not motion_mask(picture, noisy).any()
