"""What N environments hold, with a camera or without: python scripts/bench/memory.py SCENE N CAMERA|- [ROBOT]."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.worlds import bench_cell
from recon.render.backends.cpu import trim
from sim2real.env import SplatVectorEnv


def main() -> None:
    """Play thirty steps; prints MB."""
    folder, count, camera = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    cell = bench_cell(folder, Path(sys.argv[4]) if len(sys.argv) > 4 else None)
    env = SplatVectorEnv(cell, count, cameras=() if camera == "-" else (camera,))
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(30):
        env.step(rng.uniform(-1, 1, env.action_space.shape))
    # what only opening the scene took goes back to the system first
    gc.collect()
    trim()
    ctypes.CDLL(None).malloc_trim(0)
    print(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20)


if __name__ == "__main__":
    main()
