"""Compiles the simulated device, once per source, compiler and torch; kept in build/musa_sim, which git ignores."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths

NATIVE = Path(__file__).parent / "native"
CACHE = Path(__file__).resolve().parents[2] / "build" / "musa_sim"
SUPPORTED = ((2, 6), (3, 0))  # as pyproject.toml states; run whole with torch 2.7.1 and 2.13, in most parts with 2.14
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall")
JOBS = 2


def unsupported_reason(version: str = torch.__version__) -> str:
    """Why the simulated device cannot be had with this torch, "" when it can."""
    lowest, beyond = SUPPORTED
    if not lowest <= tuple(int(part) for part in version.split(".")[:2]) < beyond:
        stated = f"torch {lowest[0]}.{lowest[1]} up to {beyond[0]}"
        return f"the simulated musa device is written for {stated}, this is {version}"
    return ""


def library() -> Path:
    """The shared library, compiled if it is not there yet.

    Raises RuntimeError with the compiler's words when it does not compile.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        objects = {CACHE / f"{source.stem}-{_hash(source)}.o": source for source in sorted(NATIVE.glob("*.cpp"))}
        names = hashlib.sha256(" ".join(path.name for path in objects).encode()).hexdigest()[:16]
        target = CACHE / f"musa_sim-{names}.so"
        if not target.is_file():
            print("compiling the simulated musa device (about a minute, once)", file=sys.stderr, flush=True)
            with ThreadPoolExecutor(JOBS) as pool:
                list(pool.map(_compile, objects.values(), objects))
            folder = Path(torch.__file__).parent / "lib"
            _run(["-shared", *map(str, objects), f"-L{folder}", "-ltorch_cpu", "-lc10"], target)
    return target


def _compile(source: Path, made: Path) -> None:
    if not made.is_file():
        _run([*FLAGS, *(f"-isystem{path}" for path in include_paths()), "-c", str(source)], made)


def _run(arguments: list[str], made: Path) -> None:
    """Call the compiler; `made` appears whole or not at all."""
    staged = made.with_suffix(".new")
    result = subprocess.run([_compiler(), *arguments, "-o", str(staged)], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{_compiler()} could not make {made.name}\n{result.stderr}")
    staged.replace(made)


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


def _hash(source: Path) -> str:
    """Of everything that decides what an object file holds."""
    version = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    facts = hashlib.sha256(f"{version} {torch.__version__} {FLAGS}".encode())
    for path in [source, *sorted(NATIVE.glob("*.h"))]:
        facts.update(path.read_bytes())
    return facts.hexdigest()[:16]
