"""Networks and optimisers to named CPU tensors and back: what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from recon.core.errors import CorruptError

Tensors = dict[str, torch.Tensor]


def pack_module(name: str, module: nn.Module) -> Tensors:
    """Return the module's parameters and buffers as "name/key"."""
    return {f"{name}/{key}": value.detach().cpu().clone() for key, value in module.state_dict().items()}


def unpack_module(name: str, module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Load what `pack_module` returned; every tensor must be there and fit."""
    prefix = f"{name}/"
    try:
        module.load_state_dict({k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)})
    except RuntimeError as error:
        raise CorruptError(f"the checkpoint's {name} does not fit the network", why=str(error)) from error


def pack_optimiser(name: str, optimiser: torch.optim.Optimizer) -> Tensors:
    """Return the optimiser's moments and step counts as "name/index/key"."""
    state = optimiser.state_dict()["state"]
    return {
        f"{name}/{index}/{key}": torch.as_tensor(value, device="cpu").detach().clone()
        for index, entries in state.items()
        for key, value in entries.items()
    }


def unpack_optimiser(name: str, optimiser: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Load what `pack_optimiser` returned; rates and groups stay as the optimiser was built."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith(f"{name}/"):
            index, entry = key[len(name) + 1 :].split("/", 1)
            state.setdefault(int(index), {})[entry] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
