"""A SIMULATED `mccl`: torch.distributed's gloo over the simulated device's memory, through the host."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class SimulatedMccl(dist.ProcessGroup):
    """What DistributedDataParallel asks of a collective backend, copied to the host and back."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self._host = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        """Its name in messages."""
        return "mccl (simulated)"

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Sum (or whatever `options` says) over the processes, in place."""
        return self._through_host(tensors, lambda host: self._host.allreduce(host, options))

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Take the root's values."""
        return self._through_host(tensors, lambda host: self._host.broadcast(host, options))

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any) -> Any:
        """Collect every process' tensor."""
        host = [[tensor.cpu() for tensor in row] for row in outputs]
        self._host.allgather(host, [tensor.cpu() for tensor in inputs], options).wait()
        for row, values in zip(outputs, host, strict=True):
            for tensor, value in zip(row, values, strict=True):
                tensor.copy_(value)
        return _Done(outputs)

    def barrier(self, opts: Any) -> Any:
        """Wait for all."""
        return self._host.barrier(opts)

    def _through_host(self, tensors: list[torch.Tensor], work: Any) -> Any:
        if any(tensor.device.type != "musa" for tensor in tensors):
            raise RuntimeError("mccl (simulated): tensors must be on a musa device")
        host = [tensor.cpu() for tensor in tensors]
        work(host).wait()
        for tensor, value in zip(tensors, host, strict=True):
            tensor.copy_(value)
        return _Done(tensors)


class _Done(dist._Work):
    """Work that was done before it was returned."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._future: torch.futures.Future = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        """At once."""
        return True

    def is_completed(self) -> bool:
        """Always."""
        return True

    def get_future(self) -> torch.futures.Future:
        """The tensors."""
        return self._future


def register() -> None:
    """Make torch.distributed know "mccl", for musa tensors only."""
    dist.Backend.register_backend("mccl", SimulatedMccl, devices=["musa"])
