"""Size, documentation and naming bars, so that they need no discussion."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.lint.source import LIBRARY, ROOT, Finding, python_files

MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 80
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def size_findings(source: str, path: str) -> Iterator[Finding]:
    """Files and functions that are too long."""
    lines = source.count("\n")
    if lines > MAX_FILE_LINES:
        yield Finding("length", path, lines, f"{lines} lines, at most {MAX_FILE_LINES}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield Finding("length", path, node.lineno, f"{node.name}: {length} lines, at most {MAX_FUNCTION_LINES}")


def docstring_findings(source: str, path: str) -> Iterator[Finding]:
    """Modules, public classes, functions and methods without a docstring."""
    tree = ast.parse(source)
    if source.strip() and not ast.get_docstring(tree):
        yield Finding("docstring", path, 1, "the module has none")
    yield from _undocumented(tree, path, "")


def _undocumented(node: ast.Module | ast.ClassDef, path: str, prefix: str) -> Iterator[Finding]:
    for child in node.body:
        if not isinstance(child, (*Function, ast.ClassDef)) or child.name.startswith("_"):
            continue
        decorators = {ast.unparse(d).split(".")[-1] for d in child.decorator_list}
        if not ast.get_docstring(child) and not decorators & {"overload", "setter", "override"}:
            yield Finding("docstring", path, child.lineno, f"{prefix}{child.name} has none")
        if isinstance(child, ast.ClassDef):
            yield from _undocumented(child, path, f"{child.name}.")


def test_files_and_functions_are_short() -> None:
    paths = python_files(*LIBRARY, "tests", "scripts")
    findings = [f for path in paths for f in size_findings(path.read_text(), str(path.relative_to(ROOT)))]
    assert not findings, "\n" + "\n".join(map(str, findings))


def test_public_names_have_docstrings() -> None:
    paths = python_files(*LIBRARY)
    findings = [f for path in paths for f in docstring_findings(path.read_text(), str(path.relative_to(ROOT)))]
    assert not findings, "\n" + "\n".join(map(str, findings))


def test_no_module_has_a_vague_name() -> None:
    vague = [str(p.relative_to(ROOT)) for p in python_files(*LIBRARY) if VAGUE_NAMES & {p.stem, p.parent.name}]
    assert not vague


def test_nothing_is_left_unfinished() -> None:
    found = [
        Finding("unfinished", str(path.relative_to(ROOT)), number, line.strip())
        for path in [*python_files(*LIBRARY, "scripts"), *sorted((ROOT / "recon").rglob("*.[ch]*"))]
        if path.suffix in ("", ".py", ".cc", ".cpp", ".h", ".hpp")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not found, "\n" + "\n".join(map(str, found))


def test_the_bars_catch_planted_examples() -> None:
    long_function = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
    assert any("f: 81" in finding.text for finding in size_findings(long_function, "x.py"))
    assert any("451 lines" in finding.text for finding in size_findings("x = 1\n" * 451, "x.py"))
    missing = {finding.text for finding in docstring_findings("class A:\n    def f(self): ...\n", "x.py")}
    assert missing == {"the module has none", "A has none", "A.f has none"}
    assert UNFINISHED.search("# " + "TO" + "DO: later")
