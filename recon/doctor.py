"""`recon doctor`: what this machine can run, what is missing and how to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import recon
from recon.config import DoctorConfig
from recon.core.device import (
    VENDORS,
    describe_device,
    describe_devices,
    device_label,
    is_simulated,
    resolve_device,
    synchronize,
)
from recon.core.errors import ReconError, TrialError, UnavailableError
from recon.core.events import Artifact, Event, Message
from recon.render.api import rasterize
from recon.render.backends import CPU, describe_backends, select_name
from recon.trials.report import run_trials, write_pages

FORMAT, VERSION = "recon-doctor", 1
PROBE_SECONDS = 1.0  # of drawing, after the first picture
PROBE_GAUSSIANS, PROBE_WIDTH, PROBE_HEIGHT = 5_000, 320, 240
MIN_MEMORY = 4 * 2**30  # bytes a build may take
MIN_DISK = 5 * 2**30  # bytes: undistorted frames of a short capture

# Module -> (its distribution, what it is for, how to get it).
PACKAGES = {
    "mujoco": ("mujoco", "robots, sim2real", "pip install 'recon4d[sim]'"),
    "gymnasium": ("gymnasium", "sim2real environments", "pip install 'recon4d[sim]'"),
    "cv2": ("opencv-python", "pictures and matching", "pip install opencv-python"),
    "av": ("av", "videos", "pip install av"),
    "trimesh": ("trimesh", "robot meshes", "pip install trimesh"),
    "open3d": ("open3d-cpu", "recon mesh", "pip install 'recon4d[geom]' (Debian: apt-get install libusb-1.0-0)"),
    "coacd": ("coacd", "recon mesh", "pip install 'recon4d[geom]'"),
    "safetensors": ("safetensors", "scene files", "pip install safetensors"),
}
DECODERS = ("h264", "hevc", "vp9", "av1", "mpeg4", "mjpeg")
ENCODER = "libx264"


@dataclass(frozen=True)
class Check:
    """One line of the answer.

    ok: usable as it is. text: what was found. fix: what to do when not ok. facts: the same as plain JSON values.
    """

    group: str
    name: str
    ok: bool
    text: str
    fix: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        bad = "FAILED " if self.group == "trial" else "MISSING"
        line = f"{'ok     ' if self.ok else bad} {self.group} {self.name}: {self.text}".rstrip(" :")
        return f"{line}. Fix: {self.fix}" if self.fix and not self.ok else line


def doctor(config: DoctorConfig) -> Iterator[Event]:
    """One message per check, or with `json` one JSON object on standard output and no message but of files written.

    Everything is reported before it ends in an error: UnavailableError when the device or backend that was named is
    missing, TrialError when the device was put through its trials and failed one.
    """
    checks: list[Check] = []
    for check in examine(config):
        checks.append(check)
        if not config.json:
            yield Message("info", str(check))
    failure: ReconError | None = None
    try:
        for check in _measured(config):
            checks.append(check)
            if not config.json:
                yield Message("info", str(check))
        failure = failed_trials(checks, config)
    except UnavailableError as error:
        failure = error
    answer = as_json(checks, failure)
    if wants_trials(config):
        yield from (Artifact("report", page) for page in write_pages(config.out, config.device, answer))
    if config.json:
        sys.stdout.write(json.dumps(answer, indent=1, allow_nan=False) + "\n")
        sys.stdout.flush()
    if failure is not None:
        raise failure


def failed_trials(checks: list[Check], config: DoctorConfig) -> TrialError | None:
    """The error that names the failed trials; None when there is none."""
    names = [check.name for check in checks if check.group == "trial" and not check.ok]
    if not names:
        return None
    fix = f"Attach doctor-{config.device.replace(':', '')}.json and .md to an issue."
    return TrialError(f"device {config.device!r} failed {len(names)} of its trials", why=", ".join(names), fix=fix)


def wants_trials(config: DoctorConfig) -> bool:
    """Whether the device is put through its trials."""
    named = config.device.partition(":")[0] not in ("auto", CPU)
    return config.full or (config.json and named)


def _measured(config: DoctorConfig) -> Iterator[Check]:
    """What takes time: the speed of drawing, then the trials where they are wanted."""
    yield measure_speed(config.device, config.backend)
    if wants_trials(config):
        for trial in run_trials(resolve_device(config.device)):
            yield Check("trial", trial.name, trial.ok, trial.text, facts=trial.facts)


def as_json(checks: list[Check], failure: ReconError | None = None) -> dict[str, Any]:
    """The checks as one JSON object; `ok` says what the exit code says: what was asked for runs, and no trial failed.

    `simulated` says whether a device among the checks is the tests' stand-in for a real one.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "recon": recon.__version__,
        "ok": failure is None,
        "simulated": any(check.facts.get("simulated", False) for check in checks),
        "error": str(failure) if failure is not None else None,
        "checks": [asdict(check) for check in checks],
    }


def examine(config: DoctorConfig) -> Iterator[Check]:
    """All checks that take no time, in the order they are shown."""
    system = {"python": platform.python_version(), "system": platform.platform(), "machine": platform.machine()}
    yield Check("system", "python", True, f"{system['python']} on {system['system']}", facts=system)
    yield Check("package", "torch", True, str(torch.__version__), facts={"version": str(torch.__version__)})
    yield _threads()
    yield _memory()
    yield _disk(Path.cwd())
    yield from _devices(config.device)
    yield from _backends()
    for module, (distribution, purpose, fix) in PACKAGES.items():
        yield _package(module, distribution, purpose, fix)
    yield from _codecs()


def measure_speed(device_name: str = "auto", backend: str = "auto", seconds: float = PROBE_SECONDS) -> Check:
    """Milliseconds per picture, forward and backward, of a small fixed scene.

    Draws for about `seconds` [s] and at least once. Raises UnavailableError when the device or backend is missing.
    """
    device = resolve_device(device_name)
    chosen = select_name(backend, device, torch.float32)
    inputs = _probe_scene(device)
    forward: list[float] = []
    backward: list[float] = []
    _draw_once(inputs, backend, device)  # the first picture pays for memory and kernels
    end = time.perf_counter() + seconds
    while not forward or time.perf_counter() < end:
        milliseconds = _draw_once(inputs, backend, device)
        forward.append(milliseconds[0])
        backward.append(milliseconds[1])
    best = min(forward), min(backward)
    size = f"{PROBE_GAUSSIANS} Gaussians, {PROBE_WIDTH}x{PROBE_HEIGHT}"
    times = f"{best[0]:.1f} ms forward, {best[1]:.1f} ms backward"
    text = f"{size}: {times} on {device_label(device)} with backend {chosen}"
    facts = {"gaussians": PROBE_GAUSSIANS, "width": PROBE_WIDTH, "height": PROBE_HEIGHT, "device": str(device)}
    facts |= {"simulated": is_simulated(device), "backend": chosen, "pictures": len(forward)}
    facts |= {"forward_ms": best[0], "backward_ms": best[1]}
    return Check("speed", "rasteriser", True, text, facts=facts)


def _probe_scene(device: torch.device) -> dict[str, torch.Tensor]:
    """Gaussians about 2 pixels wide all over a picture, made from fixed random numbers on the CPU."""
    generator = torch.Generator(device="cpu").manual_seed(0)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, device="cpu")

    count, focal = PROBE_GAUSSIANS, float(PROBE_WIDTH)
    depth = 0.5 + 3.0 * uniform(count)
    size = torch.tensor([PROBE_WIDTH, PROBE_HEIGHT], dtype=torch.float32, device="cpu")
    across = (uniform(count, 2) - 0.5) * size / focal * depth[:, None]
    K = torch.tensor([[focal, 0.0, size[0] / 2], [0.0, focal, size[1] / 2], [0.0, 0.0, 1.0]], device="cpu")
    scene = {
        "means": torch.cat([across, depth[:, None]], dim=1),
        "quats": uniform(count, 4) - 0.5,
        "scales": (2.0 / focal * depth)[:, None] * (0.5 + uniform(count, 3)),
        "opacities": 0.05 + 0.9 * uniform(count),
        "colors": uniform(count, 3),
        "viewmats": torch.eye(4, device="cpu")[None],
        "Ks": K[None],
    }
    moved = {name: tensor.to(device) for name, tensor in scene.items()}
    for name in ("means", "quats", "scales", "opacities", "colors"):
        moved[name].requires_grad_(True)
    return moved


def _draw_once(inputs: dict[str, torch.Tensor], backend: str, device: torch.device) -> tuple[float, float]:
    """(forward, backward) in ms."""
    start = time.perf_counter()
    rendering = rasterize(
        inputs["means"], inputs["quats"], inputs["scales"], inputs["opacities"], inputs["colors"],
        inputs["viewmats"], inputs["Ks"], PROBE_WIDTH, PROBE_HEIGHT, backend=backend,
    )  # fmt: skip
    synchronize(device)
    middle = time.perf_counter()
    rendering.color.square().mean().backward()
    synchronize(device)
    end = time.perf_counter()
    for tensor in inputs.values():
        tensor.grad = None
    return 1e3 * (middle - start), 1e3 * (end - middle)


def _threads() -> Check:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    text = f"{torch.get_num_threads()} used, {usable} processors" + (f" (OMP_NUM_THREADS={limit})" if limit else "")
    facts = {"used": torch.get_num_threads(), "processors": usable, "OMP_NUM_THREADS": limit}
    return Check("system", "threads", True, text, facts=facts)


def _memory() -> Check:
    total, free = memory_bytes()
    text = f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free"
    fix = "Close other programs, or lower --fit.budget; a build takes up to 4 GiB."
    return Check("system", "memory", free >= MIN_MEMORY, text, fix, {"total_bytes": total, "free_bytes": free})


def memory_bytes() -> tuple[int, int]:
    """(total, free) memory in bytes that this process may use: the machine's, or a container's smaller limit."""
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    information = Path("/proc/meminfo")
    if information.is_file():  # unlike SC_AVPHYS_PAGES it counts the file cache as free
        fields = dict(line.split(":", 1) for line in information.read_text().splitlines() if ":" in line)
        free = int(fields.get("MemAvailable", f"{free // 1024} kB").split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
        free = min(free, max(0, int(text) - int(used.read_text())))
    return total, free


def _disk(folder: Path) -> Check:
    usage = shutil.disk_usage(folder)
    writable = os.access(folder, os.W_OK)
    text = f"{usage.free / 2**30:.1f} GiB free in {folder}" + ("" if writable else ", which is not writable")
    fix = "Work in a folder with 5 GiB of room that you may write to; undistorted frames are kept there during a build."
    facts = {"folder": str(folder), "free_bytes": usage.free, "writable": writable}
    return Check("system", "disk", writable and usage.free >= MIN_DISK, text, fix, facts)


def _devices(asked: str) -> Iterator[Check]:
    vendor = asked.partition(":")[0]
    for info in [describe_device(vendor)] if vendor in VENDORS else describe_devices():
        text = f"{info.count} x {info.description}" if info.available else info.reason
        yield Check("device", info.name, info.available, text, info.fix, asdict(info))


def _backends() -> Iterator[Check]:
    for name, reason in describe_backends().items():
        facts: dict[str, Any] = {"reason": reason}
        text, fix = "plain torch, any device", ""
        if name == CPU and reason is None:
            from recon.render.backends.cpu import targets

            facts["targets"] = targets()
            text = f"native, instruction sets {', '.join(facts['targets'])}"
        elif reason is not None:
            text, fix = reason, "Install again with a C++20 compiler and Highway's headers (Debian: libhwy-dev)."
        yield Check("backend", name, reason is None, text, fix, facts)


def _package(module: str, distribution: str, purpose: str, fix: str) -> Check:
    if importlib.util.find_spec(module) is None:
        return Check("package", module, False, f"not installed, for {purpose}", fix, {"version": None})
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # another distribution of the same module
        version = "unknown version"
    return Check("package", module, True, f"{version}, for {purpose}", facts={"version": version})


def _codecs() -> Iterator[Check]:
    if importlib.util.find_spec("av") is None:
        return  # said already among the packages
    import av

    known = set(av.codecs_available)
    fix = "Install PyAV from its wheels, which carry all codecs: pip install --force-reinstall av"
    missing = [name for name in DECODERS if name not in known]
    text = f"lacks {', '.join(missing)}" if missing else ", ".join(DECODERS)
    yield Check("codec", "decoders", not missing, text, fix, {"missing": missing})
    yield Check("codec", "encoder", ENCODER in known, ENCODER, fix, {"encoder": ENCODER})
