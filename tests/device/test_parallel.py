"""Two processes that share gradients: over a SIMULATED mccl they end in the bits that gloo gives on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from recon.core.tensors import read_tensors
from rl.trial import policy
from tests.device.parallel import WORLD


def trained_together(device: str, folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.device.parallel", device]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "store"), str(folder / "weights.safetensors")],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        for rank in range(WORLD)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(errors)
    return read_tensors(folder / "weights.safetensors")


def test_two_processes_end_where_the_cpus_do(tmp_path: Path, musa: torch.device, same) -> None:
    cpu = trained_together("cpu", tmp_path / "cpu")
    same(cpu, trained_together("musa", tmp_path / "musa"))
    fresh = policy(torch.device("cpu")).state_dict()
    assert not torch.equal(cpu["net.actor_out.weight"], fresh["actor_out.weight"])
