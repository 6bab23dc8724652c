"""Random numbers that depend only on (seed, step, purpose).

There is no hidden generator to save: a resumed run asks for the same
(seed, step, purpose) and gets the same numbers, whatever ran before.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch


def derive_seed(seed: int, step: int, purpose: str) -> int:
    """Return a 63-bit integer from a hash of the three; nearby inputs share nothing."""
    digest = hashlib.sha256(f"recon/{int(seed)}/{int(step)}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def numpy_generator(seed: int, step: int, purpose: str) -> np.random.Generator:
    """Return a fresh numpy generator for one purpose at one step."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(seed, step, purpose)))


def torch_generator(seed: int, step: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a fresh torch generator on `device` for one purpose at one step.

    Devices have different generators: draw on the CPU and move the result where
    all devices must see the same numbers.
    """
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(derive_seed(seed, step, purpose))
    return generator
