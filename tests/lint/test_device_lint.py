"""The packages obey the device rules, and every rule catches its planted example."""

from __future__ import annotations

import pytest

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
    ("M11", "import tomllib"),
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


def test_a_waiver_without_a_reason_does_not_count() -> None:
    assert check("import torch\ny = torch.float64  # device-lint: allow M06", "recon/example.py")


def test_only_the_device_module_may_name_vendors() -> None:
    source = "device = 'cuda'"
    assert check(source, DEVICE_MODULE) == []
    assert check(source, "recon/render/api.py")


def test_packages_obey_the_device_rules() -> None:
    findings = [f for path in python_files(*LIBRARY) for f in check(path.read_text(), str(path.relative_to(ROOT)))]
    assert not findings, "\n" + "\n".join(map(str, findings))
