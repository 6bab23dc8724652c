from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from recon.core.errors import InputError
from recon.geometry.pose import se3_exp
from recon.scene.gaussians import RESIDUAL, RIGID
from recon.scene.scene import Body
from tests.recon.scene.make import scene, track


def test_posing_bodies_by_their_own_track_is_at() -> None:
    s = scene()
    poses = {}
    for body in s.bodies:
        assert body.track is not None
        rotation, position, _ = body.track.at(0.7)
        poses[body.name] = np.eye(4)
        poses[body.name][:3, :3], poses[body.name][:3, 3] = rotation, position
    a, b = s.at(0.7), s.posed(poses, 0.7)
    torch.testing.assert_close(a.means, b.means, atol=1e-5, rtol=0)
    torch.testing.assert_close(a.sh, b.sh, atol=1e-5, rtol=0)
    torch.testing.assert_close(a.opacities, b.opacities)


def test_a_simulator_moves_only_what_it_names() -> None:
    s = scene()
    rest = s.posed({})
    moved = s.posed({"cup": se3_exp(np.arange(6) / 3.0)})
    cup = s.gaussians.object_id == 2
    assert (moved.means[cup] != rest.means[cup]).any(1).all()
    assert torch.equal(moved.means[~cup], rest.means[~cup])
    torch.testing.assert_close(rest.means[:8], s.at(0.0).means[:8])  # bodies at the start
    assert (rest.opacities[s.gaussians.kind == RESIDUAL] == 0).all()
    with pytest.raises(InputError, match="no body 'cap'. Did you mean 'cup'"):
        s.posed({"cap": np.eye(4)})


def test_poses_may_be_differentiable_tensors() -> None:
    pose = torch.eye(4, requires_grad=True)
    scene().posed({"arm": pose}).means.sum().backward()
    assert pose.grad is not None
    assert float(pose.grad[:3, 3].sum()) == pytest.approx(2 * 3)  # two rows follow the arm


def test_frozen_has_no_motion_left() -> None:
    frozen = scene().frozen(1.0).validate()
    assert not (frozen.kind == RIGID).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bodies": [Body("arm", 1, "link")]}, "Gaussians belong to body 2"),
        ({"bodies": [Body("arm", 1, "link"), Body("arm", 2, "object")]}, "body 'arm' .* twice"),
        ({"bodies": [Body("arm", 1, "link"), Body("cup", 1, "object")]}, "body 'cup' .* twice"),
        ({"bodies": [Body("arm", 0, "link")]}, "has the id 0"),
        ({"bodies": [Body("arm", 1, "leg"), Body("cup", 2, "object")]}, "is a 'leg'"),
        ({"bodies": [Body("a\nrm", 1, "link"), Body("cup", 2, "object")]}, "printable"),
        ({"bodies": [Body("arm", 1, "link", "base"), Body("cup", 2, "object")]}, "hangs on 'base'"),
        ({"bodies": [Body("arm", 1, "link", "cup"), Body("cup", 2, "object", "arm")]}, "hangs on itself"),
        ({"time_range": (1.0, 0.0)}, "time range is 1.0 to 0.0"),
        ({"up": "y"}, "up is 'y'"),
        ({"scene_from_rig": np.diag([1.0, -1.0, 1.0, 1.0])}, "similarity"),
        ({"colour": {"left": (np.eye(2), np.zeros(3))}}, "colour of camera 'left'"),
        ({"colour": {"left": (np.eye(3), np.full(3, np.nan))}}, "colour of camera 'left' is not finite"),
        ({"vignetting": {"left": float("nan")}}, "vignetting of camera 'left'"),
        ({"vignetting": {"none": 0.1}}, "vignetting of camera 'none'"),
        ({"frame_times": {"left": [1.0, 0.5]}}, "frame times of camera 'left'"),
    ],
)
def test_validate_names_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(scene(), **change).validate()


def test_a_body_without_a_track_stands_at_the_origin() -> None:
    s = replace(scene(), bodies=[Body("arm", 1, "link"), Body("cup", 2, "object", None, track(2))])
    arm = s.gaussians.object_id == 1
    torch.testing.assert_close(s.at(1.0).means[arm], s.gaussians.means[arm])
