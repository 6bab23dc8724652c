"""The packages obey the device rules, and every rule catches its planted example."""

from __future__ import annotations

import ast
import inspect
import sys

import pytest

from tests.lint import device_rules
from tests.lint.device_rules import DEVICE_MODULE, check
from tests.lint.source import LIBRARY, ROOT, python_files

PLANTED = [
    ("M01", "import torch\nprint(torch.cuda.is_available())"),
    ("M01", "import torch\ntorch.backends.cudnn.benchmark = True"),
    ("M01", "import pynvml"),
    ("M01", "from numba import cuda"),
    ("M01", "import triton.language as tl"),
    ("M02", "def f(x): return x.cuda()"),
    ("M02", "def f(x): return x.musa(0)"),
    ("M03", "def f(x): return x.is_cuda"),
    ("M03", "def f(x): return x.device.type == 'cuda'"),
    ("M03", "def f(d): return d.type in ('cuda', 'musa')"),
    ("M04", "device = 'cuda:1'"),
    ("M04", "backend = 'nccl'"),
    ("M04", "def f(i): return f'musa:{i}'"),
    ("M05", "import torch\nx = torch.zeros(3)"),
    ("M05", "import torch as t\nx = t.arange(3)"),
    ("M05", "from torch import randn\nx = randn(3)"),
    ("M05", "import torch\ng = torch.Generator()"),
    ("M06", "import torch\nx = torch.float64"),
    ("M06", "from torch import float64\nx = float64"),
    ("M06", "def f(x): return x.double()"),
    ("M06", "import torch\ndef f(a, d): return torch.from_numpy(a).to(d)"),
    ("M07", "def f(loader): return loader(pin_memory=True)"),
    ("M07", "def f(x): return x.pin_memory()"),
    ("M07", "import torch\nscaler = torch.amp.GradScaler()"),
    ("M08", "def f(x): return x.sum(dim=None)"),
    ("M08", "import torch\ndef f(a, b): return torch.mm(a, b, out_dtype=a.dtype)"),
    ("M08", "import torch\ndef f(a): return torch.histogram(a, 10)"),
    ("M09", "import torch\ndef f(p): return torch.load(p)"),
    ("M09", "import torch\ndef f(s, p): torch.save(s, p)"),
    ("M09", "import torch\ntorch.manual_seed(0)"),
    ("M10", "import torch\ndef f(m): return torch.compile(m)"),
    ("M10", "import torch\n@torch.compile\ndef f(x): return x"),
    ("M10", "import torch\nx = torch.accelerator.memory_reserved()"),
    ("M10", "def f(torch): return torch.xpu.make_graphed_callables"),
    ("M11", "import tomllib"),
    ("M11", "raise ExceptionGroup('several', [])"),
    ("M11", "def f(error): error.add_note('why')"),
    ("M11", "from typing import Self"),
    ("M11", "import numpy as np\nx = np.concat([[1], [2]])"),
    ("M11", "import torch\nx = torch.optim.Muon"),
]

CLEAN = [
    "import torch\ndef f(d): return torch.zeros(3, device=d)",
    "import torch\ndef f(d): return torch.Generator(d), torch.Generator(device=d)",
    "import torch\ndef f(a, d): return torch.from_numpy(a).to(d, torch.float32)",
    "import numpy as np\nx = np.zeros(3).sum(axis=None)",
    "def f(d): return d.type == 'cpu'",
    "def f(): raise ValueError('no cuda device here')",
    "import torch\ny = torch.float64  # device-lint: allow M06 (the oracle runs on the CPU)",
]


@pytest.mark.parametrize(("rule", "source"), PLANTED)
def test_rule_catches_its_planted_example(rule: str, source: str) -> None:
    assert rule in {finding.rule for finding in check(source, "recon/example.py")}


@pytest.mark.parametrize("source", CLEAN)
def test_clean_code_has_no_finding(source: str) -> None:
    assert check(source, "recon/example.py") == []


def test_every_rule_has_a_planted_example() -> None:
    assert {rule for rule, _ in PLANTED} == {f"M{number:02d}" for number in range(1, 12)}


def test_every_way_to_break_a_rule_has_a_planted_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place in the rules' source that reports something is reached by a planted example of its rule."""
    reached: set[int] = set()
    report = device_rules._Visitor.report

    def noted(self, rule, node, text):
        reached.add(sys._getframe(1).f_lineno)
        report(self, rule, node, text)

    monkeypatch.setattr(device_rules._Visitor, "report", noted)
    for _, source in PLANTED:
        check(source, "recon/example.py")
    tree = ast.parse(inspect.getsource(device_rules))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.report"]
    assert len(calls) > 20 and {call.lineno for call in calls} - reached == set()


@pytest.mark.parametrize("name", ["docs/musa.md", "docs/musa.zh.md"])
def test_the_guide_has_a_line_for_every_rule(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert [line[2:5] for line in lines if line.startswith("| M")] == [f"M{number:02d}" for number in range(1, 12)]


def test_a_waiver_without_a_reason_does_not_count() -> None:
    assert check("import torch\ny = torch.float64  # device-lint: allow M06", "recon/example.py")


def test_only_the_device_module_may_name_vendors() -> None:
    source = "device = 'cuda'"
    assert check(source, DEVICE_MODULE) == []
    assert check(source, "recon/render/api.py")


def test_packages_obey_the_device_rules() -> None:
    findings = [f for path in python_files(*LIBRARY) for f in check(path.read_text(), str(path.relative_to(ROOT)))]
    assert not findings, "\n" + "\n".join(map(str, findings))
