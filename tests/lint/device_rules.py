"""Device lint: what keeps the code running on any vendor's device, as rules M01-M11 over the syntax tree.

M01 vendor modules of torch and vendor packages    M07 pinned memory, autocast without a device type
M02 .cuda(), .musa()                               M08 dim=None, out_dtype=, operators a vendor lacks
M03 is_cuda, device.type == "<vendor>"             M09 torch.load/save, global seeds
M04 vendor device and collective strings           M10 torch.compile, graphs, accelerator memory calls
M05 factories and generators without device=       M11 newer than torch 2.7, Python 3.10, NumPy 1.26
M06 float64 that may reach a device

`recon/core/device.py` may break M01-M04, M07, M09 and M10: it is where vendors are known.
A line may be excused with its reason: `# device-lint: allow M06 (stays on the CPU)`.
"""

from __future__ import annotations

import ast
import re

from tests.lint.newer_names import NEWER_NUMPY, NEWER_PYTHON, NEWER_TORCH
from tests.lint.source import Finding, Names, imported_modules

DEVICE_MODULE = "recon/core/device.py"
EXEMPT_IN_DEVICE_MODULE = {"M01", "M02", "M03", "M04", "M07", "M09", "M10"}
WAIVER = re.compile(r"#\s*device-lint:\s*allow\s+(M\d\d(?:\s*,\s*M\d\d)*)\s*\(\S[^)]*\)")

VENDOR_MODULES = ("torch.cuda", "torch.musa", "torch.backends.cuda", "torch.backends.cudnn", "torch.backends.mudnn")
VENDOR_PACKAGES = ("pynvml", "cupy", "nvtx", "numba.cuda", "pycuda", "triton", "torch_musa", "torchada")
VENDOR_STRING = re.compile(r"(cuda|musa):?\d*|nccl|mccl")
FACTORIES = {
    f"torch.{name}"
    for name in (
        "zeros ones empty full arange range linspace logspace eye rand randn randint randperm tensor as_tensor asarray "
        "empty_strided tril_indices triu_indices hann_window scalar_tensor Generator"
    ).split()
}
DENIED_OPERATORS = set(
    "histogram histogramdd logcumsumexp segment_reduce nonzero_static matrix_exp _int_mm sspaddmm spdiags "
    "narrow_copy hash_tensor".split()
)
GRAPHS = ("CUDAGraph", "MUSAGraph", "make_graphed_callables")


def check(source: str, path: str) -> list[Finding]:
    """Return the findings in one file. `path` is relative to the repository, with slashes."""
    tree = ast.parse(source, filename=path, feature_version=(3, 10))
    lines = source.splitlines()
    visitor = _Visitor(path, Names(tree))
    visitor.visit(tree)
    exempt = EXEMPT_IN_DEVICE_MODULE if path == DEVICE_MODULE else set()
    return [f for f in visitor.findings if f.rule not in exempt and f.rule not in _waived(lines, f.line)]


def _waived(lines: list[str], line: int) -> set[str]:
    match = WAIVER.search(lines[line - 1])
    return set(re.split(r"\s*,\s*", match.group(1))) if match else set()


class _Visitor(ast.NodeVisitor):
    def __init__(self, path: str, names: Names) -> None:
        self.path = path
        self.names = names
        self.findings: list[Finding] = []

    def report(self, rule: str, node: ast.AST, text: str) -> None:
        self.findings.append(Finding(rule, self.path, getattr(node, "lineno", 0), text))

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for module in imported_modules(node):
            if _below(module, VENDOR_MODULES + VENDOR_PACKAGES):
                self.report("M01", node, f"import of {module}")
            if module in NEWER_PYTHON:
                self.report("M11", node, f"{module} is newer than Python 3.10")
        self.generic_visit(node)

    visit_ImportFrom = visit_Import

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self.names.dotted(node)
        if _below(name, VENDOR_MODULES):
            self.report("M01", node, name)
        if node.attr in ("is_cuda", "is_musa"):
            self.report("M03", node, f".{node.attr}")
        if name in ("torch.float64", "torch.double", "torch.complex128"):
            self.report("M06", node, name)
        if name.startswith("torch.accelerator.") and "memory" in node.attr:
            self.report("M10", node, name)
        if node.attr in GRAPHS:
            self.report("M10", node, node.attr)
        for table, version in ((NEWER_TORCH, "torch 2.7"), (NEWER_NUMPY, "NumPy 1.26"), (NEWER_PYTHON, "Python 3.10")):
            if name in table:
                self.report("M11", node, f"{name} is newer than {version}")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in ("ExceptionGroup", "BaseExceptionGroup"):
            self.report("M11", node, f"{node.id} is newer than Python 3.10")
        if self.names.dotted(node) in ("torch.float64", "torch.double"):
            self.report("M06", node, node.id)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        literals = [s for side in sides for s in ast.walk(side) if isinstance(s, ast.Constant)]
        vendor = any(isinstance(s.value, str) and VENDOR_STRING.fullmatch(s.value) for s in literals)
        if vendor and any(isinstance(side, ast.Attribute) and side.attr == "type" for side in sides):
            self.report("M03", node, ast.unparse(node))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and VENDOR_STRING.fullmatch(node.value):
            self.report("M04", node, repr(node.value))

    def visit_Call(self, node: ast.Call) -> None:
        name = self.names.dotted(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) and not name else ""
        keywords = {k.arg: k.value for k in node.keywords}
        splat = None in keywords  # f(**options): cannot be judged
        if method in ("cuda", "musa"):
            self.report("M02", node, f".{method}()")
        self._factories(node, name, keywords, splat)
        self._precision(node, name, method, keywords)
        self._memory(node, name, method, keywords, splat)
        self._operators(node, name, method, keywords)
        if name in ("torch.save", "torch.manual_seed", "torch.seed", "torch.random.manual_seed"):
            self.report("M09", node, name)
        if name == "torch.load" and "map_location" not in keywords:
            self.report("M09", node, "torch.load without map_location")
        if name == "torch.compile":
            self.report("M10", node, name)
        if method == "add_note":
            self.report("M11", node, "add_note is newer than Python 3.10")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            if self.names.dotted(decorator) == "torch.compile":
                self.report("M10", decorator, "@torch.compile")
        self.generic_visit(node)

    def _factories(self, node: ast.Call, name: str, keywords: dict[str | None, ast.expr], splat: bool) -> None:
        if name not in FACTORIES or splat or "device" in keywords:
            return
        if name == "torch.Generator" and node.args:  # Generator(device) may be positional
            return
        self.report("M05", node, f"{name} without device=")

    def _precision(self, node: ast.Call, name: str, method: str, keywords: dict[str | None, ast.expr]) -> None:
        if method == "double":
            self.report("M06", node, ".double()")
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(inner, ast.Call) and self.names.dotted(inner.func) == "torch.from_numpy":
            typed = "dtype" in keywords or len(node.args) > 1 or any(_is_dtype(self.names, a) for a in node.args)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and not typed:
                self.report("M06", node, "from_numpy(...).to(device) without a dtype may move float64")

    def _memory(
        self, node: ast.Call, name: str, method: str, keywords: dict[str | None, ast.expr], splat: bool
    ) -> None:
        pinned = keywords.get("pin_memory")
        if isinstance(pinned, ast.Constant) and pinned.value is True:
            self.report("M07", node, "pin_memory=True")
        if method == "pin_memory" and not node.args and "device" not in keywords:
            self.report("M07", node, ".pin_memory() without a device type")
        scoped = name.startswith("torch.") and name.rsplit(".", 1)[-1] in ("autocast", "GradScaler")
        if scoped and not node.args and not splat and not {"device_type", "device"} & set(keywords):
            self.report("M07", node, f"{name} without a device type")

    def _operators(self, node: ast.Call, name: str, method: str, keywords: dict[str | None, ast.expr]) -> None:
        if self._starts_at_numpy(node.func):
            return
        for key in ("dim", "axis"):
            value = keywords.get(key)
            if isinstance(value, ast.Constant) and value.value is None:
                self.report("M08", node, f"{key}=None")
        if "out_dtype" in keywords:
            self.report("M08", node, "out_dtype=")
        operator = method or (name.rsplit(".", 1)[-1] if name.startswith("torch.") else "")
        if operator in DENIED_OPERATORS:
            self.report("M08", node, f"{operator} is missing on some devices")

    def _starts_at_numpy(self, node: ast.AST) -> bool:
        """Follow `np.zeros(3)[0].sum` down to its first name."""
        while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
            node = node.func if isinstance(node, ast.Call) else node.value
        return _below(self.names.dotted(node), ("numpy",))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and first.value in ("cuda:", "musa:") and len(node.values) == 2:
            self.report("M04", node, ast.unparse(node))
        for value in node.values:
            if isinstance(value, ast.FormattedValue):  # text around the values is prose
                self.visit(value.value)


def _below(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def _is_dtype(names: Names, node: ast.AST) -> bool:
    dotted = names.dotted(node)
    return dotted.startswith("torch.") and dotted.split(".")[-1].rstrip("0123456789") in (
        "float",
        "int",
        "uint",
        "bool",
    )
