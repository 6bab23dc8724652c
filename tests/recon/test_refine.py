"""A refinement found in the scene's world, carried to the rig's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recon.geometry.pose import se3_exp
from recon.geometry.rig import Rig
from recon.refine import carried
from tests.recon.calibrate.textured import rig


def test_a_refined_camera_is_the_same_in_either_world() -> None:
    camera = replace(rig(1)["c0"], distortion=(-0.1, 0.02, 0.0, 0.0, 0.0))
    scene_from_rig = np.eye(4)
    scene_from_rig[:3, :3] = 0.001 * se3_exp(np.array([0, 0, 0, 0.3, -1.0, 0.2]))[:3, :3]  # the rig is in millimetres
    scene_from_rig[:3, 3] = (0.2, 0.1, -0.4)
    placed = Rig({"c0": camera}).transformed(scene_from_rig).cameras["c0"]
    ideal = placed.pinhole()
    motion = se3_exp(np.array([0.003, -0.002, 0.001, 0.002, 0.001, -0.003]))
    refined = replace(ideal, fx=ideal.fx * 1.01, fy=ideal.fy * 1.01, cam_from_world=motion @ ideal.cam_from_world)
    back = Rig({"c0": carried(camera, ideal, refined, 0.001)}).transformed(scene_from_rig).cameras["c0"]
    np.testing.assert_allclose(back.cam_from_world, refined.cam_from_world, atol=1e-9)
    assert np.isclose(back.fx / placed.fx, 1.01)
    assert back.distortion == camera.distortion
