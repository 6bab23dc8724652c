"""Our own command line, run as a person runs it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def recon(*arguments: str) -> float:
    """Run the command line; returns seconds from process start to exit. CalledProcessError when it fails."""
    started = time.monotonic()
    subprocess.run([str(Path(sys.executable).with_name("recon")), *arguments], check=True)
    return time.monotonic() - started
