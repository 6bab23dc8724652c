"""What a device's arithmetic is worth and how fast it is: products, attention, and a checkpoint there and back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from recon.core.checkpoint import latest_checkpoint
from recon.core.device import set_strict_precision, synchronize
from recon.core.seeding import torch_generator
from recon.trials.fitting import tiny_fit

PROBE = 256  # side of the matrices of the precision probe
FLOAT32_ERROR = 1e-5  # relative: float32 gives about 1e-6 here, TF32 and bfloat16 1e-3 and more
GEMM_SIDE = 1024
HEADS, TOKENS, WIDTH = 8, 512, 64


def product_error(device: torch.device) -> float:
    """Largest error of a float32 matrix product on `device` over the largest entry, against float64 on the CPU."""
    generator = torch_generator(0, 0, "precision")
    a, b = (torch.randn(PROBE, PROBE, generator=generator, device="cpu") for _ in range(2))
    exact = a.double() @ b.double()  # device-lint: allow M06 (the oracle stays on the CPU)
    found = (a.to(device) @ b.to(device)).cpu()
    return float((found - exact).abs().max() / exact.abs().max())


def precision(device: torch.device) -> dict[str, float]:
    """Error of a product as this process was set up, and after TF32 is turned off."""
    before = product_error(device)
    set_strict_precision()
    return {"as_found": before, "strict": product_error(device)}


def checkpoint_returns(device: torch.device) -> str:
    """Save a fit on `device`, load it on the CPU and there; "" when every bit comes back, else what did not."""
    fit = tiny_fit(device)
    for _ in range(2):
        fit.advance()
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder))
        saved = latest_checkpoint(Path(folder))
        assert saved is not None
        for place in (torch.device("cpu"), device):
            other = tiny_fit(place)
            other.restore(Path(folder))
            for name, tensor in fit.model.tensors().items():
                if not torch.equal(tensor.detach().cpu(), other.model.tensors()[name].detach().cpu()):
                    return f"{name} is another one after loading on {place}"
            other.advance()
    return ""


def timings(device: torch.device) -> dict[str, float]:
    """Milliseconds, the best of several: a float32 matrix product and plain attention, and the product's TFLOP/s."""
    side = GEMM_SIDE
    a, b = (torch.randn(side, side, device="cpu").to(device) for _ in range(2))
    q, k, v = (torch.randn(HEADS, TOKENS, WIDTH, device="cpu").to(device) for _ in range(3))
    product = _best_ms(lambda: a @ b, device)
    attention = _best_ms(lambda: torch.softmax(q @ k.transpose(1, 2) / WIDTH**0.5, dim=-1) @ v, device)
    return {
        f"gemm_{side}_ms": product,
        "gemm_tflops": 2.0 * side**3 / product / 1e9,
        f"attention_{HEADS}x{TOKENS}x{WIDTH}_ms": attention,
    }


def _best_ms(work: Callable[[], torch.Tensor], device: torch.device, seconds: float = 0.5) -> float:
    work()
    synchronize(device)
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        synchronize(device)
        found.append(1e3 * (time.perf_counter() - start))
    return min(found)
