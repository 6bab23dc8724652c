"""Our own arm, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.robot import RobotModel, load_robot


@pytest.fixture(scope="session")
def arm_folder(repository: Path) -> Path:
    """The folder with arm.xml and arm.urdf."""
    return repository / "data" / "robots" / "arm"


@pytest.fixture(scope="session")
def arm(arm_folder: Path) -> RobotModel:
    """The arm from its MJCF."""
    return load_robot(arm_folder / "arm.xml")
