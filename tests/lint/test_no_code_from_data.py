"""No file can make us run code: no pickle, no eval, no shell, no unsafe YAML, anywhere."""

from __future__ import annotations

import ast

import pytest

from tests.lint.source import LIBRARY, ROOT, Finding, Names, imported_modules, python_files

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
FORBIDDEN_CALLS = {
    "torch.load",
    "torch.save",
    "torch.hub.load",
    "torch.jit.load",
    "yaml.load",
    "yaml.load_all",
    "yaml.full_load",
    "yaml.unsafe_load",
    "os.system",
    "os.popen",
    "trimesh.load_remote",
    "shutil.unpack_archive",
}


def check(source: str, path: str) -> list[Finding]:
    """Return the places where a file's content could become code."""
    tree = ast.parse(source)
    names = Names(tree)
    findings = []
    for node in ast.walk(tree):
        for module in imported_modules(node):
            if module.split(".")[0] in FORBIDDEN_MODULES:
                findings.append(Finding("no-pickle", path, node.lineno, f"import of {module}"))
        if isinstance(node, ast.Call):
            findings += [Finding("no-pickle", path, node.lineno, text) for text in _call(node, names)]
    return findings


def _call(node: ast.Call, names: Names) -> list[str]:
    name = names.dotted(node.func)
    bare = node.func.id if isinstance(node.func, ast.Name) else ""
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    keywords = {k.arg: k.value for k in node.keywords}
    found = []
    if bare in ("eval", "exec", "__import__"):
        found.append(f"{bare}()")
    if name in FORBIDDEN_CALLS:
        found.append(name)
    if name in ("numpy.load", "numpy.save") and not _is(keywords.get("allow_pickle"), False):
        found.append(f"{name} without allow_pickle=False")
    if "allow_pickle" in keywords and not _is(keywords["allow_pickle"], False):
        found.append("allow_pickle that is not False")
    if "shell" in keywords and not _is(keywords["shell"], False):
        found.append("shell=True")
    if attribute == "extractall":
        found.append("extractall()")
    return found


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


PLANTED = [
    "import pickle",
    "from cloudpickle import dumps",
    "import torch\ntorch.load('x')",
    "import numpy as np\nnp.load('x')",
    "import numpy as np\nnp.load('x', allow_pickle=True)",
    "import numpy as np\nnp.save('x', y)",
    "import yaml\nyaml.load(text, yaml.Loader)",
    "eval('1')",
    "exec('x = 1')",
    "import subprocess\nsubprocess.run('ls', shell=True)",
    "import os\nos.system('ls')",
    "archive.extractall()",
]


@pytest.mark.parametrize("source", PLANTED)
def test_planted_examples_are_caught(source: str) -> None:
    assert check(source, "x.py")


@pytest.mark.parametrize("source", ["import numpy as np\nnp.load('x', allow_pickle=False)", "model.eval()"])
def test_clean_code_passes(source: str) -> None:
    assert check(source, "x.py") == []


def test_no_source_runs_code_from_data() -> None:
    paths = python_files(*LIBRARY, "scripts", "tests")
    findings = [f for path in paths for f in check(path.read_text(), str(path.relative_to(ROOT)))]
    assert not findings, "\n" + "\n".join(map(str, findings))
