"""A build by the command line, as the device suite runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from recon.cli import main


def build(recording: Path, device: str, settings: Sequence[str]) -> Path:
    """The scene of a recording (rig.json, cams/), built on `device` by the reference rasteriser."""
    out = recording / "built" / device.replace(":", "-")
    command = ["build", "--videos", str(recording / "cams"), "--out", str(out), "--device", device]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--backend", "reference", "--console", "plain", *settings])
    assert stop.value.code == 0
    return out
