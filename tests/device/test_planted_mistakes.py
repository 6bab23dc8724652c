"""The simulated device catches what a real one would: each mistake here is planted, and must be refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

MISTAKES: dict[str, tuple[Callable[[torch.device], object], str]] = {
    "a stray .cuda()": (lambda d: torch.ones(3, device=d).cuda(), "CUDA|NVIDIA"),
    "a device called cuda": (lambda d: torch.ones(3, device="cuda"), "CUDA|NVIDIA"),
    "a CPU generator": (lambda d: torch.rand(3, device=d, generator=torch.Generator()), "'musa' device type"),
    "a CPU tensor in a sum": (
        lambda d: torch.ones(3, device=d) + torch.ones(3),
        "at least two devices, musa:0 and cpu",
    ),
    "a CPU tensor in a product": (lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2), "at least two devices"),
    "a mixed cat": (lambda d: torch.cat([torch.ones(2, device=d), torch.ones(2)]), "at least two devices"),
    "a mixed stack": (lambda d: torch.stack([torch.ones(2), torch.ones(2, device=d)]), "at least two devices"),
    "a write from the CPU in place": (lambda d: torch.ones(2).add_(torch.ones(2, device=d)), "at least two devices"),
    "a CPU tensor indexed by rows of the device": (
        lambda d: torch.ones(3)[torch.tensor([0, 2], device=d)],
        "at least two devices",
    ),
    "a write from the device at rows of a CPU tensor": (
        lambda d: torch.ones(3).index_put_((torch.tensor([1]),), torch.ones(1, device=d)),
        "at least two devices",
    ),
    "a write from the CPU at rows of the device's": (
        lambda d: torch.ones(3, device=d).index_put_((torch.tensor([1]),), torch.ones(1)),
        "at least two devices",
    ),
    "two devices": (lambda d: torch.ones(2, device=d) + torch.ones(2, device="musa:1"), "musa:0 and musa:1"),
    "a device that is not there": (lambda d: torch.ones(2, device="musa:7"), "invalid device ordinal"),
    "numpy of a device tensor": (lambda d: torch.ones(2, device=d).numpy(), "Tensor.cpu"),
    "a missing operator": (lambda d: torch.logcumsumexp(torch.ones(3, device=d), 0), "aten::_logcumsumexp.*musa"),
    "another missing operator": (lambda d: torch.histogram(torch.ones(3, device=d), 4), "aten::histogram.*musa"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_refused(name: str, musa: torch.device) -> None:
    work, words = MISTAKES[name]
    with pytest.raises((RuntimeError, AssertionError, TypeError, NotImplementedError), match=words):
        work(musa)


def test_float64_is_refused_where_a_test_forbids_it(musa: torch.device, no_float64: None) -> None:
    with pytest.raises(RuntimeError, match="float64 is forbidden"):
        torch.ones(3, dtype=torch.float64).to(musa)
    with pytest.raises(RuntimeError, match="float64 is forbidden"):
        torch.ones(3, device=musa).double()


def test_seeding_the_cpu_does_not_seed_the_device(musa: torch.device) -> None:
    torch.default_generator.manual_seed(0)
    first = torch.rand(3, device=musa)
    torch.default_generator.manual_seed(0)
    assert not torch.equal(first, torch.rand(3, device=musa))


def test_what_real_devices_allow_is_allowed(musa: torch.device) -> None:
    x = torch.arange(4.0, device=musa)
    assert (x * torch.tensor(2.0)).tolist() == [0.0, 2.0, 4.0, 6.0]  # a 0-dimensional CPU tensor is a number
    assert x[torch.tensor([3, 0])].tolist() == [3.0, 0.0]  # CPU indices
    x[torch.tensor([1])] = 9.0
    assert x.tolist() == [0.0, 9.0, 2.0, 3.0]


def test_results_are_written_where_out_says(musa: torch.device) -> None:
    out = torch.empty(0, device=musa)
    assert torch.add(torch.ones(3, device=musa), 1.0, out=out) is out
    assert out.tolist() == [2.0, 2.0, 2.0]
    rows = torch.zeros(2, 3, device=musa)
    torch.add(torch.ones(3, device=musa), 1.0, out=rows[1])
    assert rows.tolist() == [[0.0] * 3, [2.0] * 3]


def test_views_share_memory(musa: torch.device) -> None:
    x = torch.zeros(2, 3, device=musa)
    x.t()[1].add_(5.0)
    assert x.tolist() == [[0.0, 5.0, 0.0]] * 2
    y = torch.arange(6.0, device=musa)
    y[1:].copy_(y[:-1].clone())
    assert y.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]


def test_memory_is_counted_and_given_back(musa: torch.device) -> None:
    from recon.core.device import memory_bytes

    before = memory_bytes(musa).allocated
    x = torch.ones(1 << 20, device=musa)
    y = x + 1
    assert memory_bytes(musa).allocated - before == 8 << 20
    del x, y
    assert memory_bytes(musa).allocated == before
    assert memory_bytes(musa).peak >= before + (8 << 20)
