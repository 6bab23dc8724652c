"""What the lint tests share: parsed sources of the packages and resolved names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ("recon", "sim2real", "rl")


@dataclass(frozen=True)
class Finding:
    """One violation: rule, file, line and what stands there."""

    rule: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule} {self.text}"


def python_files(*folders: str) -> Iterator[Path]:
    """Every Python source below the named folders of the repository, scripts without suffix too."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (path.suffix == ".py" or _is_python_script(path)):
                yield path


def _is_python_script(path: Path) -> bool:
    if path.suffix or path.parent.name != "scripts":
        return False
    with path.open("rb") as file:
        return b"python" in file.readline()


class Names:
    """Resolves `t.zeros` to "torch.zeros" through the imports of one file."""

    def __init__(self, tree: ast.AST) -> None:
        self.aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self.aliases[alias.asname] = alias.name
                    else:
                        self.aliases[alias.name.split(".")[0]] = alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self.aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def dotted(self, node: ast.AST) -> str:
        """The dotted name behind an expression, "" if it does not start at an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return ""
        return ".".join([self.aliases[node.id], *reversed(parts)])


def imported_modules(node: ast.AST) -> list[str]:
    """The modules that an import statement loads."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []
