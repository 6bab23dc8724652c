"""Two cameras: novel views are refused in words, and what can still be had is had."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path


class TwoCameras:
    """A recording by two desk cameras."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, options: argparse.Namespace) -> dict[str, object]:
        """What `recon build` says and what `recon check` gives."""
        with tempfile.TemporaryDirectory(prefix="bench-recon-") as folder:
            videos = ["--videos", str(self.root)]
            build = told("build", *videos, "--out", f"{folder}/scene", *options.extra)
            check = told("check", *videos, "--out", f"{folder}/check")
            page = (Path(folder) / "check" / "check.html").is_file()
            left = (Path(folder) / "scene").exists()
        return {
            "capture": options.capture, "refused": build[0] == 3 and not left, "said": build[1],
            "check_code": check[0], "check_page": page,
        }  # fmt: skip


def told(*arguments: str) -> tuple[int, str]:
    """(exit code, last line that was said) of our command line."""
    command = [str(Path(sys.executable).with_name("recon")), *arguments, "--console", "plain"]
    done = subprocess.run(command, capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return done.returncode, said[-1] if said else ""
