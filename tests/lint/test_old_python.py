"""The oldest Python we support reads every source and has every name that is taken from its standard library.

A module that only newer Pythons have is no standard module to Python 3.10: rule M11 finds those.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lint.source import LIBRARY, ROOT, python_files

# Run by Python 3.10: prints what it cannot compile or does not have.
CHECK = """
import ast, importlib, sys
for path in sys.argv[1:]:
    source = open(path, encoding="utf-8").read()
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        print(f"{path}:{error.lineno}: {error.msg}")
        continue
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] in sys.stdlib_module_names:
            names = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [(a.name, None) for a in node.names if a.name.split(".")[0] in sys.stdlib_module_names]
        else:
            continue
        for module, name in names:
            try:
                found = importlib.import_module(module)
            except ImportError:
                print(f"{path}:{node.lineno}: no module {module}")
                continue
            if name is not None and not hasattr(found, name):
                try:
                    importlib.import_module(f"{module}.{name}")
                except ImportError:
                    print(f"{path}:{node.lineno}: {module} has no {name}")
"""
VERSION = "import sys; print(*sys.version_info[:2])"


def find_python() -> str | None:
    """A Python 3.10: PYTHON310, the path's, or pyenv's."""
    pyenv = Path.home() / ".pyenv" / "versions"
    for candidate in (os.environ.get("PYTHON310"), shutil.which("python3.10"), *pyenv.glob("3.10.*/bin/python")):
        if candidate is not None:
            result = subprocess.run([candidate, "-c", VERSION], capture_output=True, text=True)
            if result.stdout.split() == ["3", "10"]:
                return str(candidate)
    return None


PYTHON = find_python()


def complaints(*paths: Path) -> list[str]:
    assert PYTHON is not None
    result = subprocess.run([PYTHON, "-c", CHECK, *map(str, paths)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


needs_python = pytest.mark.skipif(PYTHON is None, reason="there is no python3.10 here; rule M11 checks names instead")


@needs_python
def test_python_3_10_takes_every_source() -> None:
    assert complaints(*python_files(*LIBRARY)) == []


@needs_python
def test_planted_newer_code_is_found(tmp_path: Path) -> None:
    (tmp_path / "name.py").write_text("from typing import Self\n")
    (tmp_path / "syntax.py").write_text("try:\n    pass\nexcept* OSError:\n    pass\n")
    found = "\n".join(complaints(*sorted(tmp_path.glob("*.py"))))
    assert "typing has no Self" in found and "syntax.py:3" in found


def test_the_package_says_what_it_supports() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.10"' in text and '"numpy>=1.26"' in text
