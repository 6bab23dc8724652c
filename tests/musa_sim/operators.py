"""The simulated device's operator list: what torch_musa has, of what we use."""

from __future__ import annotations

import os
from pathlib import Path

import torch

LIST = Path(__file__).parent / "operators.txt"
UNLISTED: set[str] = set()  # not in the vendor list by this name, with the reason beside each


def allowed() -> set[str]:
    """The names in operators.txt: operators without overload, such as "add_"."""
    lines = (line.partition("#")[0].split() for line in LIST.read_text().splitlines())
    return {name for line in lines for name in line}


def offer_operators() -> list[str]:
    """Give every overload of the allowed operators to the device; returns those that it took, such as "add.Tensor".

    MUSA_SIM_OPERATORS=all gives it every operator there is, to see which ones new code needs.
    """
    names = allowed()
    everything = os.environ.get("MUSA_SIM_OPERATORS") == "all"
    taken = []
    for full in torch._C._dispatch_get_all_op_names():  # type: ignore[attr-defined]
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if space == "aten" and (everything or name in names) and torch.ops.musa_sim.offer(name, overload):
            taken.append(rest)
    return taken


def vendor_list() -> set[str] | None:
    """Names with overload in the file that RECON_MUSA_OPERATORS names; None without one."""
    path = os.environ.get("RECON_MUSA_OPERATORS", "")
    return set(Path(path).read_text().split()) if path and Path(path).is_file() else None
