"""Who may import whom, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lint.source import ROOT

HEAVY = {"torch", "numpy", "scipy", "cv2", "av", "mujoco", "trimesh", "pycolmap", "rich"}
LIGHT = ["recon", *(f"recon.core.{name}" for name in "errors events files config device console checkpoint".split())]
# Only what lies in the working folder: an editable installation would answer with the real packages.
CONTRACTS = f"""
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if finder.__module__.startswith("_frozen_importlib")]
from importlinter.cli import lint_imports
raise SystemExit(lint_imports({str(ROOT / "pyproject.toml")!r}, no_cache=True))
"""


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter that works in `folder`."""
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)


def test_import_contracts_hold() -> None:
    result = python(CONTRACTS, ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def empty_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty packages of the same names, which keep all contracts."""
    root = tmp_path_factory.mktemp("packages")
    for folder in {path.parent for package in ("recon", "sim2real", "rl") for path in (ROOT / package).rglob("*.py")}:
        copy = root / folder.relative_to(ROOT)
        copy.mkdir(parents=True, exist_ok=True)
        (copy / "__init__.py").touch()
    assert python(CONTRACTS, root).returncode == 0
    return root


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("recon/core/wrong.py", "import recon.geometry"),
        ("recon/render/wrong.py", "import recon.scene"),
        ("recon/geometry/wrong.py", "import sim2real"),
        ("rl/wrong.py", "import recon.geometry"),
        ("sim2real/wrong.py", "import recon.capture"),
        ("recon/unknown.py", ""),
    ],
)
def test_a_planted_import_breaks_a_contract(empty_packages: Path, module: str, line: str) -> None:
    planted = empty_packages / module
    planted.write_text(line + "\n")
    result = python(CONTRACTS, empty_packages)
    planted.unlink()
    assert result.returncode != 0, result.stdout


def test_importing_the_foundation_loads_nothing_heavy() -> None:
    result = python(f"import sys, {', '.join(LIGHT)}; print(*sorted({HEAVY!r} & set(sys.modules)))", ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_load_scene_is_offered_lazily() -> None:
    import recon

    assert "load_scene" in dir(recon)
    assert callable(recon.load_scene)
    with pytest.raises(AttributeError, match="no_such_name"):
        recon.no_such_name  # noqa: B018
