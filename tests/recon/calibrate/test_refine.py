"""A calibration set right by matches: derivatives, a disturbed rig, an exact one, and pictures that say nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recon.calibrate.refine import Tracks, _changed, _linearised, refine_cameras
from recon.geometry.camera import Camera
from recon.geometry.pose import se3_exp
from tests.recon.calibrate.textured import plates, rig


def valid(cameras: dict[str, Camera]) -> dict[str, np.ndarray]:
    return {name: np.ones((camera.height, camera.width), bool) for name, camera in cameras.items()}


def disturbed(cameras: dict[str, Camera], degrees: float) -> dict[str, Camera]:
    rng = np.random.default_rng(3)
    found = {}
    for name, camera in cameras.items():
        twist = np.concatenate([rng.normal(0, 0.002, 3), rng.normal(0, np.radians(degrees), 3)])
        found[name] = replace(camera, cam_from_world=se3_exp(twist) @ camera.cam_from_world)
    return found


def degrees_off(a: dict[str, Camera], b: dict[str, Camera]) -> float:
    """Median over pairs of cameras of how wrong their relative rotation is."""
    names, found = list(a), []
    for i, m in enumerate(names):
        for n in names[:i]:
            relative = [rig[m].cam_from_world[:3, :3] @ rig[n].cam_from_world[:3, :3].T for rig in (a, b)]
            found.append(np.degrees(np.arccos(np.clip((np.trace(relative[0] @ relative[1].T) - 1) / 2, -1, 1))))
    return float(np.median(found))


def test_derivatives_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    cameras = list(rig(3).values())
    xyz = rng.uniform(-0.4, 0.4, (8, 3))
    camera, track = np.repeat(np.arange(3), 8), np.tile(np.arange(8), 3)
    tracks = Tracks(track, camera, np.zeros((24, 2)))
    base, of_camera, of_point = _linearised(tracks, cameras, xyz)
    for k in range(9):
        step = np.zeros(9)
        step[k] = 1e-6
        moved, _, _ = _linearised(tracks, [_changed(c, step) for c in cameras], xyz)
        np.testing.assert_allclose((base - moved) / 1e-6, of_camera[:, :, k], rtol=1e-3, atol=1e-2)
    for k in range(3):
        shifted = xyz + 1e-6 * np.eye(3)[k]
        moved, _, _ = _linearised(tracks, cameras, shifted)
        np.testing.assert_allclose((base - moved) / 1e-6, of_point[:, :, k], rtol=1e-3, atol=1e-2)


def test_a_disturbed_rig_is_set_right_and_an_exact_one_left_alone() -> None:
    cameras = rig(5)
    pictures = plates(cameras)
    kept = refine_cameras(pictures, cameras, valid(cameras))
    assert not kept.moved
    assert all(kept.cameras[name] is cameras[name] for name in cameras)
    wrong = disturbed(cameras, 0.4)
    found = refine_cameras(pictures, wrong, valid(cameras))
    assert found.after < 0.5 < found.before
    assert set(found.moved) == set(cameras)
    assert degrees_off(found.cameras, cameras) < 0.4 * degrees_off(wrong, cameras)


def test_plain_pictures_leave_the_rig_as_it_is() -> None:
    cameras = rig(3)
    grey = {name: np.full((180, 240, 3), 90, np.uint8) for name in cameras}
    found = refine_cameras(grey, cameras, valid(cameras))
    assert found.tracks == 0
    assert found.moved == {}
    assert found.cameras == cameras
    assert np.isnan(found.before) == pytest.approx(True)
