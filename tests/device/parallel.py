"""One of two processes that train a policy together: `python -m tests.device.parallel DEVICE RANK STORE OUT`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from recon.core.device import collective_backend, resolve_device
from recon.core.tensors import write_tensors
from rl.trial import Reach, policy
from rl.types import Packed, pack

STEPS, WORLD = 3, 2


class MeanAction(nn.Module):
    """The policy as DistributedDataParallel takes it: pictures and proprioception in, mean action out."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.net = policy(device)

    def forward(self, images: torch.Tensor, proprio: torch.Tensor) -> torch.Tensor:
        """Actions [B, A]."""
        return self.net.mean(self.net.features(Packed(images, proprio, proprio[:, :0])))


def main(name: str, rank: int, store: str, out: str) -> None:
    """Three steps on data of this rank; rank 0 writes the weights."""
    device = resolve_device(name)
    if device.type == "musa":
        from tests.musa_sim.collective import register

        register()
    dist.init_process_group(
        collective_backend(device), store=dist.FileStore(store, WORLD), rank=rank, world_size=WORLD,
        timeout=timedelta(seconds=120),
    )  # fmt: skip
    mean = MeanAction(device)
    for parameter in [*mean.net.critic_parameters(), mean.net.log_std_free]:
        parameter.requires_grad_(False)  # the mean action does not depend on them
    model = nn.parallel.DistributedDataParallel(mean)
    optimiser = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    env = Reach()
    seen, _ = env.reset(seed=rank)
    batch = pack(seen, model.module.net.obs, 16).to(device)
    wanted = torch.from_numpy(env.expert(seen)).to(device)
    for _ in range(STEPS):
        optimiser.zero_grad()
        (model(batch.images, batch.proprio) - wanted).square().mean().backward()
        optimiser.step()
    if rank == 0:
        write_tensors(Path(out), {k: v.contiguous() for k, v in model.module.state_dict().items()})
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # a process group written in Python does not survive the interpreter's end


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
