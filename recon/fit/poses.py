"""Cameras set right by the pictures while the still scene is fitted: the last of a pixel that matched points leave.

Each camera may move and change a little, x' = F(x) in its own axes (x right, y down, z forward), with the pivot
p = (0, 0, d) at the distance d of what the cameras look at:

    x' = x + w x (x - p) + v + s (x_x, x_y, 0) + (a, b, 0) x_z / f

w: turn, v: shift, s: log focal length, (a, b): shift of the principal point in pixels. With the gradients g_i of the
loss by the places of the Gaussians in these axes,

    dL/dv = sum g_i,    dL/dw = sum (x_i - p) x g_i + 1/2 sum <h_i, e_k q_i>,
    dL/ds = sum g_ix x_ix + g_iy x_iy + sum_k l_ik (1 - r_ikz^2),    dL/da = sum g_ix x_iz / f,

h_i by their quaternions, l_ik by the logarithms of their scales along axes r_ik (footprints grow with s). Adam takes
steps of a fixed share of a pixel in each. A common motion of all cameras is one of the world, in which a robot may be
known: it is projected out. With R a camera's rotation, a world motion w', v' about what they look at, x_f in its axes,
is for it

    w = R w',    v = R v' + (R w') x (p - x_f).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from recon.capture.coverage import focus_point
from recon.geometry.camera import Camera
from recon.geometry.pose import so3_exp
from recon.geometry.quaternion import matrix_to_quat, quat_multiply, quat_normalize, quat_to_matrix

PIXEL = 0.02  # of a step, at first
REACH = 4.0  # pixels: further a camera does not go
TURN_ARM = 0.4  # of the distance: how far from the pivot things lie that a turn moves
BETAS, EPS = (0.9, 0.99), 1e-15
COUNT = 9  # parameters of a camera: w, v, s, a, b


class CameraPoses:
    """Changes of C cameras: pixels [C, 9] as they show in the picture, and Adam's state."""

    def __init__(self, cameras: list[Camera]) -> None:
        focus = focus_point(cameras)
        self.distance = np.array([max(np.linalg.norm(c.center - focus), 1e-6) for c in cameras])
        self.unit = np.stack([_unit(c, d) for c, d in zip(cameras, self.distance, strict=True)])  # per pixel
        self.focal = np.array([c.fx for c in cameras])
        common = np.stack([_of_world(c, d, focus) for c, d in zip(cameras, self.distance, strict=True)])
        basis, _ = np.linalg.qr((common / self.unit[:, :, None]).reshape(-1, 6))
        self.common = torch.from_numpy(basis.astype(np.float32))  # [9 C, 6], orthonormal
        zeros = torch.zeros(len(cameras), COUNT, dtype=torch.float32, device="cpu")
        self.pixels, self.first, self.second = zeros.clone(), zeros.clone(), zeros.clone()
        self.steps = torch.zeros(len(cameras), dtype=torch.int64, device="cpu")

    def moved(self, index: int, camera: Camera) -> Camera:
        """`camera`, of any resolution, with the change of camera `index`."""
        w, v, s, a, b = np.split(self.pixels[index].numpy().astype(np.float64) * self.unit[index], [3, 6, 7, 8])
        pivot = np.array([0.0, 0.0, self.distance[index]])
        motion = np.eye(4)
        motion[:3, :3] = so3_exp(w)
        motion[:3, 3] = pivot - motion[:3, :3] @ pivot + v
        grown, scale = float(np.exp(s[0])), camera.fx / self.focal[index]
        return replace(
            camera, fx=camera.fx * grown, fy=camera.fy * grown, cx=camera.cx + scale * a[0],
            cy=camera.cy + scale * b[0], cam_from_world=motion @ camera.cam_from_world,
        )  # fmt: skip

    @torch.no_grad()
    def step(self, index: int, camera: Camera, gaussians: Mapping[str, Tensor], rate: float) -> None:
        """One step of camera `index` from the leaves of Gaussians in the world; camera: as drawn. rate: of PIXEL."""
        means, quats, log_scales = (gaussians[key] for key in ("means", "quats", "log_scales"))
        if means.grad is None or quats.grad is None or log_scales.grad is None:
            return
        pose = torch.from_numpy(camera.cam_from_world.astype(np.float32)).to(means.device, torch.float32)
        R, t = pose[:3, :3], pose[:3, 3]
        x, g = means @ R.T + t, means.grad @ R.T
        arm = x - x.new_tensor([0.0, 0.0, self.distance[index]])
        turned = quat_multiply(matrix_to_quat(R)[None], quats)
        by_turned = quat_multiply(matrix_to_quat(R)[None], quats.grad)  # a rotation of quaternions keeps products
        w, i, j, k = turned.unbind(dim=-1)
        products = ((-i, w, -k, j), (-j, k, w, -i), (-k, -j, i, w))  # e_1 q, e_2 q, e_3 q
        spin = torch.stack([(by_turned * torch.stack(product, dim=-1)).sum() for product in products])
        turn = torch.linalg.cross(arm, g).sum(dim=0) + 0.5 * spin
        level = 1.0 - quat_to_matrix(quat_normalize(turned))[:, 2].square()  # [N, 3], of each axis
        grown = (g[:, :2] * x[:, :2]).sum() + (log_scales.grad * level).sum()
        lens = torch.stack([grown, *((g[:, k] * x[:, 2]).sum() / camera.fx for k in (0, 1))])
        gradient = torch.cat([turn, g.sum(dim=0), lens]).cpu() * torch.from_numpy(self.unit[index]).float()
        self._adam(index, gradient, PIXEL * rate)

    def _adam(self, index: int, gradient: Tensor, rate: float) -> None:
        self.steps[index] += 1
        count = int(self.steps[index])
        self.first[index] = BETAS[0] * self.first[index] + (1 - BETAS[0]) * gradient
        self.second[index] = BETAS[1] * self.second[index] + (1 - BETAS[1]) * gradient * gradient
        mean = self.first[index] / (1 - BETAS[0] ** count)
        spread = (self.second[index] / (1 - BETAS[1] ** count)).sqrt()
        self.pixels[index] -= rate * mean / (spread + EPS)
        self.pixels.clamp_(-REACH, REACH)
        flat = self.pixels.view(-1)
        flat -= self.common @ (self.common.T @ flat)

    def told(self, names: list[str]) -> str:
        """One line for a person."""
        most = self.pixels.abs().amax(dim=1)
        name, median = names[int(most.argmax())], float(most.median())
        return (
            f"the still scene moved the cameras by {median:.2f} px (median), {name} most, by {float(most.max()):.2f} px"
        )

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        names = ("pixels", "first", "second", "steps")
        return {f"poses.{name}": getattr(self, name).clone() for name in names}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors()` gave."""
        for name in ("pixels", "first", "second", "steps"):
            getattr(self, name).copy_(tensors[f"poses.{name}"])


def _unit(camera: Camera, distance: float) -> np.ndarray:
    """[9]: the change of each parameter that moves the picture by about a pixel."""
    angle = 1.0 / camera.fx
    turn, shift = angle / TURN_ARM, angle * distance
    return np.array([turn] * 3 + [shift, shift, shift / TURN_ARM] + [4.0 / camera.width, 1.0, 1.0])


def _of_world(camera: Camera, distance: float, focus: np.ndarray) -> np.ndarray:
    """[9, 6]: what a small motion (w', v') of the world about `focus` is for a camera."""
    R = camera.cam_from_world[:3, :3]
    arm = np.array([0.0, 0.0, distance]) - (R @ focus + camera.cam_from_world[:3, 3])
    found = np.zeros((COUNT, 6))
    found[:3, :3], found[3:6, 3:] = R, R
    found[3:6, :3] = np.cross(R.T, arm).T  # columns: (R e_k) x arm
    return found
