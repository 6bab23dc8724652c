"""All trials of one device, as checks for `recon doctor`, and the page to attach to an issue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recon.core.device import device_label, memory_bytes
from recon.core.files import write_bytes, write_json
from recon.trials.curves import Curve, departure, stored, trials
from recon.trials.measures import FLOAT32_ERROR, checkpoint_returns, precision, timings
from recon.trials.operators import Replay, replay_all


@dataclass(frozen=True)
class Trial:
    """One line of the answer. facts: the same as plain JSON values."""

    name: str
    ok: bool
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


def run_trials(device: torch.device) -> Iterator[Trial]:
    """Everything that a device is put through, quickest first; a trial that breaks is a result like any other."""
    for name, trial in (
        ("precision", _precision), ("operators", _operators), ("checkpoint", _checkpoint), ("timings", _timings)
    ):  # fmt: skip
        yield _guarded(name, trial, device)
    offered = trials()
    for name, expected in stored().items():
        yield _guarded(f"training {name}", partial(_training, name, offered.get(name), expected), device)
    memory = memory_bytes(device)
    yield Trial("memory", True, f"{memory.peak / 2**20:.0f} MiB held at most by the trials", asdict(memory))


def _guarded(name: str, trial: Any, device: torch.device) -> Trial:
    try:
        ok, text, facts = trial(device)
        return Trial(name, ok, text, facts)
    except Exception as error:
        return Trial(name, False, f"{type(error).__name__}: {error}", {"error": str(error)})


def _precision(device: torch.device) -> tuple[bool, str, dict[str, Any]]:
    found = precision(device)
    text = f"error of a float32 product {found['as_found']:.1e} as found, {found['strict']:.1e} with TF32 off"
    return found["strict"] < FLOAT32_ERROR, text, found


def _operators(device: torch.device) -> tuple[bool, str, dict[str, Any]]:
    results = list(replay_all(device))
    bad = [result for result in results if not result.ok]
    names = len({result.op for result in results})
    text = f"{len(results) - len(bad)} of {len(results)} calls of {names} operators agree with the CPU"
    if bad:
        text += f"; first: {bad[0].op} ({_why(bad[0])})"
    facts = {"calls": len(results), "operators": names, "bad": [{"op": r.op, "why": _why(r)} for r in bad]}
    return not bad, text, facts


def _why(result: Replay) -> str:
    return result.failure or f"{result.error:.3g} times the allowed difference"


def _checkpoint(device: torch.device) -> tuple[bool, str, dict[str, Any]]:
    problem = checkpoint_returns(device)
    return not problem, problem or f"saved on {device_label(device)}, loaded on cpu and there: the same bits", {}


def _timings(device: torch.device) -> tuple[bool, str, dict[str, Any]]:
    found = timings(device)
    return True, ", ".join(f"{name} {value:.3g}" for name, value in found.items()), dict(found)


def _training(
    name: str, train: Callable[[torch.device], Curve] | None, expected: Curve, device: torch.device
) -> tuple[bool, str, dict[str, Any]]:
    if train is None:
        return False, f"{name}: not tried, no installed package offers it; install recon4d again", {}
    found = train(device)
    worst, where = departure(expected, found)
    finite = worst if math.isfinite(worst) else None
    text = f"{name}: at most {worst:.2g} of the allowed difference to the CPU's stored curve" + (
        f", at {where}" if where else ""
    )
    return worst <= 1.0, text, {"curve": found, "departure": finite, "where": where}


def write_pages(folder: Path, device: str, answer: dict[str, Any]) -> tuple[Path, Path]:
    """Write doctor-<device>.json and .md, the answer and the same as a table, into `folder`; returns both."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"doctor-{device.replace(':', '')}"
    write_json(folder / f"{stem}.json", answer)
    lines = [f"# recon doctor on {device}{' (simulated)' if answer['simulated'] else ''}", ""]
    if answer["simulated"]:
        lines += ["**This device is simulated on the CPU. Nothing here was run on Moore Threads hardware.**", ""]
    lines += [f"recon {answer['recon']}; {'all is well' if answer['ok'] else answer['error']}", ""]
    lines += ["| | group | name | found |", "|---|---|---|---|"]
    for check in answer["checks"]:
        text = str(check["text"]).replace("|", "/").replace("\n", " ")
        lines.append(f"| {'ok' if check['ok'] else '**no**'} | {check['group']} | {check['name']} | {text} |")
    write_bytes(folder / f"{stem}.md", ("\n".join(lines) + "\n").encode())
    return folder / f"{stem}.json", folder / f"{stem}.md"
