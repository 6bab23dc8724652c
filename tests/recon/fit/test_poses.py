"""Cameras moved by the gradients of the Gaussians: right gradients, right places, no motion of the world."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from recon.fit.poses import CameraPoses
from recon.geometry.camera import Camera, project
from recon.geometry.pose import look_at
from recon.render.api import rasterize

WIDTH, HEIGHT, COUNT = 64, 48, 150


@pytest.fixture
def cameras() -> list[Camera]:
    eyes = [np.array([np.cos(1.3 * k), np.sin(1.3 * k), 0.6 + 0.1 * k]) for k in range(4)]
    return [
        Camera(f"c{k}", WIDTH, HEIGHT, 60.0, 60.0, 32.0, 24.0, cam_from_world=look_at(eye, np.array([0.0, 0.0, 0.1])))
        for k, eye in enumerate(eyes)
    ]


@pytest.fixture
def leaves() -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(3)
    parts = {
        "means": 0.25 * torch.randn(COUNT, 3, generator=random),
        "quats": torch.randn(COUNT, 4, generator=random),
        "log_scales": torch.log(0.03 + 0.04 * torch.rand(COUNT, 3, generator=random)),
    }
    return {key: part.requires_grad_(True) for key, part in parts.items()}


def drawn(leaves: dict[str, Tensor], camera: Camera) -> Tensor:
    random = torch.Generator().manual_seed(5)
    opacities = 0.3 + 0.6 * torch.rand(COUNT, generator=random)
    sh = torch.randn(COUNT, 1, 3, generator=random)
    view, K = (torch.from_numpy(m.astype(np.float32))[None] for m in (camera.cam_from_world, camera.K))
    return rasterize(
        leaves["means"], leaves["quats"], leaves["log_scales"].exp(), opacities, sh, view, K, WIDTH, HEIGHT,
        sh_degree=0, backend="reference",
    ).color[0]  # fmt: skip


def test_gradients_are_those_of_the_picture(
    cameras: list[Camera], leaves: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    poses = CameraPoses(cameras)
    target = drawn(leaves, cameras[1]).detach().roll((2, 3), (0, 1))  # far enough off for a gradient of some size
    found: list[Tensor] = []
    monkeypatch.setattr(poses, "_adam", lambda index, gradient, rate: found.append(gradient))
    (drawn(leaves, poses.moved(1, cameras[1])) - target).square().sum().backward()
    poses.step(1, cameras[1], leaves, 1.0)
    numeric = []
    for k in range(9):
        losses = []
        for step in (0.05, -0.05):
            poses.pixels.zero_()
            poses.pixels[1, k] = step
            moved = drawn(leaves, poses.moved(1, cameras[1])).detach()
            losses.append(float((moved - target).square().sum()))
        numeric.append((losses[0] - losses[1]) / 0.1)
    analytic = found[0].numpy()
    assert np.abs(analytic - numeric).max() < 0.2 * np.abs(numeric).max()
    assert analytic @ numeric > 0.98 * np.linalg.norm(analytic) * np.linalg.norm(numeric)


def test_a_camera_that_was_put_off_goes_back(cameras: list[Camera], leaves: dict[str, Tensor]) -> None:
    targets = [drawn(leaves, camera).detach() for camera in cameras]
    off = CameraPoses(cameras)
    off.pixels[2] = torch.tensor([0.6, -0.5, 0.4, 1.0, -0.8, 0.0, 0.0, 0.0, 0.0])
    given = [off.moved(k, camera) for k, camera in enumerate(cameras)]
    points = leaves["means"].detach().numpy().astype(np.float64)
    true = project(cameras[2], points)[0]
    before = np.linalg.norm(project(given[2], points)[0] - true, axis=1)
    poses = CameraPoses(given)
    for k in range(400):
        index = k % 4
        for leaf in leaves.values():
            leaf.grad = None
        camera = poses.moved(index, given[index])
        (drawn(leaves, camera) - targets[index]).abs().mean().backward()
        poses.step(index, camera, leaves, 1.0 - 0.9 * k / 400)
    # what the cameras do alike is left to the world: compared after the best common motion, here a shift of pixels
    after = project(poses.moved(2, given[2]), points)[0] - true
    assert np.median(before) > 0.8
    assert np.median(np.linalg.norm(after, axis=1)) < 0.45 * np.median(before)


def test_what_all_cameras_do_alike_is_taken_out(cameras: list[Camera]) -> None:
    poses = CameraPoses(cameras)
    for k in range(8):
        poses._adam(k % 4, torch.randn(9, generator=torch.Generator().manual_seed(k)), 0.02)
    assert (poses.common.T @ poses.pixels.view(-1)).abs().max() < 1e-5
    assert poses.pixels.abs().max() > 1e-3


def test_a_small_motion_of_the_world_is_one_of_every_camera(cameras: list[Camera]) -> None:
    poses = CameraPoses(cameras)
    motion = 0.01 * poses.common[:, 4]
    poses.pixels.copy_(motion.view(4, 9))
    points = np.random.default_rng(0).normal(scale=0.2, size=(30, 3))
    shifts = []
    for k, camera in enumerate(cameras):
        moved = poses.moved(k, camera)
        shifts.append(np.linalg.inv(camera.cam_from_world) @ moved.cam_from_world)
    apart = [np.abs((s - shifts[0])[:3] @ np.c_[points, np.ones(30)].T).max() for s in shifts]
    moved_by = np.abs((shifts[0] - np.eye(4))[:3] @ np.c_[points, np.ones(30)].T).max()
    assert max(apart) < 0.02 * moved_by


def test_a_half_sized_camera_moves_alike(cameras: list[Camera]) -> None:
    poses = CameraPoses(cameras)
    poses.pixels[0] = torch.tensor([0.5, 0.2, -0.3, 1.0, -1.0, 0.4, 0.6, 0.8, -0.7])
    point = np.array([[0.1, -0.2, 0.15]])
    whole = project(poses.moved(0, cameras[0]), point)[0]
    half = project(poses.moved(0, cameras[0].scaled(0.5)), point)[0]
    assert 2 * half == pytest.approx(whole, abs=1e-5)


def test_state_is_kept(cameras: list[Camera]) -> None:
    one, other = CameraPoses(cameras), CameraPoses(cameras)
    for k in range(5):
        one._adam(k % 4, torch.randn(9, generator=torch.Generator().manual_seed(k)), 0.02)
    other.load({key: tensor.clone() for key, tensor in one.tensors().items()})
    for poses in (one, other):
        poses._adam(2, torch.ones(9), 0.01)
    assert torch.equal(one.pixels, other.pixels)
