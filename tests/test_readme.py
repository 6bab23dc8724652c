"""What the README tells a newcomer to type works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def quick_commands() -> list[str]:
    """The lines of the README's code blocks that are marked as quick."""
    blocks = re.findall(r"```bash quick\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_there_are_quick_commands() -> None:
    assert len(quick_commands()) >= 3


@pytest.mark.parametrize("command", quick_commands())
def test_a_quick_command_works(command: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command.split(), cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout + result.stderr


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_and_anchors_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / name).read_text()):
        file, _, anchor = target.partition("#")
        text = (ROOT / (file or name)).read_text()
        if anchor:
            headings = [
                re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                for h in re.findall(r"^#+ (.+)$", text, re.M)
            ]
            assert anchor in headings, f"{name}: {target}"


@pytest.mark.parametrize("name", ["demo", "test"])
def test_scripts_named_in_the_readme_are_executable(name: str) -> None:
    assert f"scripts/{name}" in (ROOT / "README.md").read_text()
    assert os.access(ROOT / "scripts" / name, os.X_OK)


def test_the_version_is_the_same_everywhere() -> None:
    import recon

    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{recon.__version__}"\n' in project


def test_exit_codes_in_the_readme_are_the_codes() -> None:
    from recon.core import errors

    text = re.search(r"## Exit codes\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.DOTALL)
    assert text is not None
    documented = {int(code) for code in re.findall(r"(?:^|, )\s*(\d+) ", " ".join(text.group(1).split()))}
    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, errors.ReconError)]
    assert documented == {0, *(kind.exit_code for kind in kinds)}
