"""A made-up bench: a textured table, a wall and a block of Gaussians, three cameras, the bundled arm at one end."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from recon.core.files import data_root
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.geometry.rig import Rig, RobotEntry
from recon.geometry.sh import rgb_to_sh0
from recon.scene.gaussians import Gaussians
from recon.scene.scene import Scene

BASE = np.array([[1.0, 0, 0, -0.25], [0, 1, 0, 0.02], [0, 0, 1, 0.005], [0, 0, 0, 1]])
TOP = 0.002  # m, where the made-up table really is
BLOCK = np.array([0.3, 0.28, 0.06])  # a block standing on it, its centre


def _flat(rng: np.random.Generator, centre, size, normal: int, count: int, rgb) -> Gaussians:
    """Flat Gaussians spread over a rectangle normal to one axis; `rgb` [3] with noise."""
    means = rng.uniform(-0.5, 0.5, (count, 3)) * size + centre
    means[:, normal] = centre[normal] + rng.normal(0, 5e-4, count)
    spacing = math.sqrt(np.prod([s for i, s in enumerate(size) if i != normal]) / count)
    scales = np.full((count, 3), 0.8 * spacing)
    scales[:, normal] = 0.001
    colour = np.clip(np.asarray(rgb) + rng.normal(0, 0.06, (count, 3)), 0, 1)
    quats = np.tile([1.0, 0, 0, 0], (count, 1))
    arrays = (means, np.log(scales), quats, np.full(count, 3.0), rgb_to_sh0(colour)[:, None])
    return Gaussians.static(*(torch.from_numpy(a.astype(np.float32)) for a in arrays))


def made_up_gaussians(count: int = 6000, seed: int = 0) -> Gaussians:
    rng = np.random.default_rng(seed)
    parts = [
        _flat(rng, np.array([0, 0, TOP]), np.array([1.0, 0.8, 0]), 2, count, (0.55, 0.45, 0.35)),
        _flat(rng, np.array([0, 0.9, 0.4]), np.array([3.0, 0, 2.0]), 1, count // 3, (0.7, 0.75, 0.8)),
        _flat(rng, np.array([0, 0, -0.7]), np.array([4.0, 4.0, 0]), 2, count // 6, (0.3, 0.3, 0.3)),
    ]
    for axis in range(3):
        for side in (-1, 1):
            centre = BLOCK + np.array([0.05, 0.05, 0.058])[axis] * side * np.eye(3)[axis]
            parts.append(_flat(rng, centre, np.array([0.1, 0.1, 0.116]), axis, 60, (0.2, 0.4, 0.7)))
    return Gaussians.concat(parts)


def made_up_rig(base: np.ndarray = BASE) -> Rig:
    cameras = {}
    for i, (x, y) in enumerate([(0.9, -0.7), (0.9, 0.6), (-0.1, -1.2)]):
        pose = look_at(np.array([x, y, 0.9]), np.array([0.0, 0.0, 0.05]), (0.0, 0.0, 1.0))
        cameras[f"cam{i:02d}"] = Camera(f"cam{i:02d}", 320, 240, 300.0, 304.0, 152.0, 126.0, cam_from_world=pose)
    robot = RobotEntry("arm.xml", "MJCF", None, None, base)
    return Rig(cameras, {"cam02": "test"}, robot, 15.0, "z", "metres")


def made_up_scene(count: int = 6000, base: np.ndarray = BASE) -> Scene:
    return Scene(made_up_gaussians(count), made_up_rig(base), (0.0, 1.0), up="z", metric=True)


def arm_file() -> Path:
    return data_root() / "robots" / "arm" / "arm.xml"


@pytest.fixture(scope="session")
def scene() -> Scene:
    return made_up_scene()


@pytest.fixture(scope="session")
def robot() -> Path:
    return arm_file()


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """tests/sim2real/export_scene.py: a scene with bodies, and what exports are held against."""
    path = Path(__file__).parent / "export_scene.py"
    spec = importlib.util.spec_from_file_location("export_scene", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def bodies_folder(scene, made, tmp_path_factory) -> Path:
    """The scene with two bodies and their meshes, on disk."""
    return made.write_scene(scene, tmp_path_factory.mktemp("scenes") / "bench")


@pytest.fixture(scope="session")
def cargo(bodies_folder: Path, robot: Path):
    from sim2real.export.cargo import load_cargo

    return load_cargo(bodies_folder, robot)


@pytest.fixture(scope="session")
def exports(bodies_folder: Path, robot: Path) -> Path:
    """Every target, exported by one command."""
    from sim2real.config import ExportOptions
    from sim2real.export import TARGETS, export

    out = bodies_folder.parent / "out"
    list(export(ExportOptions(str(bodies_folder), ",".join(TARGETS), out, robot)))
    return out


@pytest.fixture(scope="session")
def cell(scene, robot):
    from sim2real.workcell import open_workcell

    return open_workcell(scene, "reach", robot=robot)
