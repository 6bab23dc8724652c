"""A small scene with all three kinds of Gaussians, made of fixed random numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.geometry.rig import Rig, RobotEntry
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body, Scene


def table(count: int = 12, degree: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> Gaussians:
    """Static rows."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    k = (degree + 1) ** 2
    return Gaussians.static(
        normal(count, 3), normal(count, 3) - 3, normal(count, 4), normal(count), normal(count, k, 3)
    )


def moving_table(degree: int = 2, dtype: torch.dtype = torch.float32) -> Gaussians:
    """4 static, 4 rigid (bodies 1, 2, 2, 1) and 4 residual rows."""
    g = table(12, degree, dtype=dtype)
    generator = torch.Generator().manual_seed(9)
    return replace(
        g,
        kind=torch.tensor([STATIC] * 4 + [RIGID] * 4 + [RESIDUAL] * 4, dtype=torch.uint8),
        object_id=torch.tensor([0] * 4 + [1, 2, 2, 1] + [0] * 4, dtype=torch.int32),
        time_centers=torch.linspace(0, 2, 12, dtype=dtype),
        log_durations=torch.full((12,), -1.0, dtype=dtype),
        velocities=torch.randn(12, 3, generator=generator, dtype=dtype),
    )


def track(seed: int, knots: int = 4) -> Track:
    generator = torch.Generator().manual_seed(seed)
    times = np.linspace(0.0, 2.0, knots)
    return Track(times, torch.randn(knots, 3, generator=generator), torch.randn(knots, 4, generator=generator))


def scene() -> Scene:
    cameras = {
        name: Camera(name, 64, 48, 50.0, 50.5, 31.0, 24.5, (-0.1, 0.01, 0.0, 0.001, 0.0), look_at(eye, np.zeros(3)))
        for name, eye in {"left": np.array([1.0, -2, 1]), "right": np.array([-1.0, -2, 1])}.items()
    }
    scene_from_rig = np.eye(4)
    scene_from_rig[:3, 3] = [0.1, 0.2, 0.3]
    return Scene(
        gaussians=moving_table(),
        rig=Rig(cameras, {"right": "test"}, RobotEntry("robot/robot.xml", "MJCF"), fps=30.0, units="metres"),
        time_range=(0.0, 2.0),
        bodies=[Body("arm", 1, "link", None, track(1)), Body("cup", 2, "object", "arm", track(2, knots=1))],
        scene_from_rig=scene_from_rig,
        up="z",
        metric=True,
        colour={"left": (np.eye(3) * 1.1, np.array([0.0, 0.01, -0.02]))},
        vignetting={"left": 0.125},
        provenance={"program": "0.1.0", "seed": 3, "fit": {"iterations": 10}},
        frame_times={"left": [0.0, 0.5, 1.0], "right": [0.01, 0.51]},
    )
