"""Rows of bodies: the trainable table draws what the scene draws, and its gradients reach the body frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recon.fit.bodies import BodyMotion
from recon.fit.model import Model
from recon.geometry.quaternion import quat_normalize
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC, Gaussians
from recon.scene.motion import Track, pose_gaussians

BODIES = 3


def table(rows: int = 60, degree: int = 0) -> Gaussians:
    """Rows of all kinds, mixed; those of bodies 1..3 have no colours that depend on direction."""
    random = torch.Generator().manual_seed(rows)
    kind = torch.arange(rows) % 3
    return Gaussians(
        means=torch.randn(rows, 3, generator=random),
        log_scales=torch.randn(rows, 3, generator=random) - 3,
        quats=torch.randn(rows, 4, generator=random),
        logit_opacities=torch.randn(rows, generator=random),
        sh=torch.randn(rows, (degree + 1) ** 2, 3, generator=random),
        object_id=torch.where(kind == RIGID, torch.arange(rows) // 3 % BODIES + 1, 0).to(torch.int32),
        kind=kind.to(torch.uint8),
        time_centers=torch.rand(rows, generator=random) * (kind == RESIDUAL),
        log_durations=-torch.rand(rows, generator=random) * (kind == RESIDUAL),
        velocities=torch.randn(rows, 3, generator=random) * (kind == RESIDUAL)[:, None],
    ).validate()


def tracks() -> list[Track]:
    random = torch.Generator().manual_seed(1)
    times = np.linspace(0.0, 1.0, 5)
    return [
        Track(times, torch.randn(5, 3, generator=random), quat_normalize(torch.randn(5, 4, generator=random)))
        for _ in range(BODIES)
    ]


def motion_and_poses(t: float) -> tuple[BodyMotion, dict[int, tuple[torch.Tensor, torch.Tensor]]]:
    found = tracks()
    poses = {}
    for body, track in enumerate(found):
        _, position, quat = track.at(t)
        poses[body + 1] = (quat, position)
    return BodyMotion(found), poses


@pytest.mark.parametrize("t", [0.0, 0.33, 1.0, 2.0])
def test_the_model_places_rows_where_the_scene_does(t: float) -> None:
    motion, poses = motion_and_poses(t)
    model = Model.from_table(table(), motion)
    mine, scene = model.at(t), pose_gaussians(model.to_table(), poses, t)
    torch.testing.assert_close(mine.means, scene.means)
    turned = mine.quats / mine.quats.norm(dim=1, keepdim=True)
    other = scene.quats / scene.quats.norm(dim=1, keepdim=True)
    torch.testing.assert_close((turned * other).sum(1).abs(), torch.ones(len(other)))
    shown = mine.opacities > 0  # the fit hides residual rows a little earlier
    torch.testing.assert_close(mine.opacities[shown], scene.opacities[shown])


def test_the_table_survives_the_model() -> None:
    motion, _ = motion_and_poses(0.0)
    first = table()
    model = Model.from_table(first, motion)
    assert (model.num_static, model.num_rigid, model.num_rows) == (20, 20, 60)
    again = model.to_table().validate()
    order = torch.cat([torch.nonzero(first.kind == kind)[:, 0] for kind in (STATIC, RIGID, RESIDUAL)])
    for name, column in first.select(order).tensors().items():
        torch.testing.assert_close(getattr(again, name), column)


def test_some_rows_are_the_same_rows() -> None:
    motion, _ = motion_and_poses(0.0)
    model = Model.from_table(table(), motion)
    rows = torch.tensor([0, 3, 19, 20, 22, 39, 40, 57])
    part = model.take(rows)
    assert {name: (s.start, s.stop) for name, s in part.parts.items()} == {
        "static": (0, 3), "rigid": (3, 6), "residual": (6, 8),
    }  # fmt: skip
    for name in ("means", "quats", "scales", "opacities", "sh"):
        torch.testing.assert_close(getattr(part.at(0.4), name), getattr(model.at(0.4), name)[rows])


def test_without_a_time_only_static_rows_show() -> None:
    motion, _ = motion_and_poses(0.0)
    opacities = Model.from_table(table(), motion).at(None).opacities
    assert (opacities[:20] > 0).all() and (opacities[20:] == 0).all()


def test_gradients_are_in_the_bodys_frame() -> None:
    motion, poses = motion_and_poses(0.6)
    model = Model.from_table(table(), motion)
    posed = model.at(0.6)
    push = torch.randn(posed.means.shape, generator=torch.Generator().manual_seed(2))
    (posed.means * push).sum().backward()
    grad = model.gaussians["means"].grad
    assert grad is not None
    for row in (20, 27, 39):
        body = int(model.bodies[row - 20]) + 1
        rotation = BodyMotion([tracks()[body - 1]]).at(0.6, grad.device)[0][0]
        torch.testing.assert_close(grad[row], rotation.T @ push[row])
    assert set(poses) == {1, 2, 3}
