"""Who may import whom, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lint.source import ROOT

HEAVY = {"torch", "numpy", "scipy", "cv2", "av", "mujoco", "trimesh", "pycolmap", "rich"}


def run_contracts(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with a configuration, the packages being found in `folder`."""
    # Only what lies in `folder`: an editable installation would answer with the real packages.
    plain = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if f.__module__.startswith('_frozen_importlib')]"
    code = f"{plain}; from importlinter.cli import lint_imports; raise SystemExit(lint_imports({str(config)!r}, no_cache=True))"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)


def test_import_contracts_hold() -> None:
    result = run_contracts(ROOT / "pyproject.toml", ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


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
def test_a_planted_import_breaks_a_contract(tmp_path: Path, module: str, line: str) -> None:
    # The same contracts over empty packages of the same names.
    folders = [path.parent for package in ("recon", "sim2real", "rl") for path in (ROOT / package).rglob("*.py")]
    for folder in folders:
        copy = tmp_path / folder.relative_to(ROOT)
        copy.mkdir(parents=True, exist_ok=True)
        (copy / "__init__.py").touch()
    assert run_contracts(ROOT / "pyproject.toml", tmp_path).returncode == 0
    (tmp_path / module).write_text(line + "\n")
    result = run_contracts(ROOT / "pyproject.toml", tmp_path)
    assert result.returncode != 0, result.stdout


@pytest.mark.parametrize(
    "module",
    ["recon", *(f"recon.core.{name}" for name in ("errors", "events", "files", "config", "device", "console"))],
)
def test_importing_the_foundation_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_load_scene_is_offered_lazily() -> None:
    import recon

    assert "load_scene" in dir(recon)
    assert callable(recon.load_scene)
    with pytest.raises(AttributeError, match="no_such_name"):
        recon.no_such_name  # noqa: B018
