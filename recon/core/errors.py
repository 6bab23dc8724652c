"""Errors a person can act on: what happened, why we think so, what to do.

Each class carries the process exit code that the command line returns for it:

    1  any other failure        5  missing backend, device, package; busy folder
    2  wrong usage or config    6  storage: disk full, read-only, no permission
    3  bad input file           7  the computation diverged (NaN, Inf)
    4  bad calibration          8  a file of ours is damaged
                                9  a device failed its trials (`recon doctor`)
    130 interrupted (Ctrl-C), everything saved
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ReconError(Exception):
    """A failure with its reason and its remedy.

    Args:
        what: What happened, naming the file, camera or frame.
        why: Why, as far as we know. Optional.
        fix: What the person can do about it. Optional.
    """

    exit_code: int = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        text = self.what.rstrip(".")
        if self.why:
            text += f": {self.why.rstrip('.')}"
        return f"{text}. {self.fix}" if self.fix else text


class UsageError(ReconError):
    """A wrong option, preset or configuration value."""

    exit_code = 2


class InputError(ReconError):
    """A file, video or picture we were given cannot be used."""

    exit_code = 3


class CalibrationError(ReconError):
    """Cameras or poses are missing, inconsistent or impossible."""

    exit_code = 4


class UnavailableError(ReconError):
    """A backend, device or package is not there, or a folder is in use."""

    exit_code = 5


class StorageError(ReconError):
    """The disk is full, read-only or not ours to write."""

    exit_code = 6


class DivergedError(ReconError):
    """The computation produced NaN or Inf."""

    exit_code = 7


class CorruptError(ReconError):
    """A file that we wrote has changed since: truncated, or a byte flipped."""

    exit_code = 8


class TrialError(ReconError):
    """A device does not compute what the CPU does, or does not run what we need."""

    exit_code = 9


class Interrupted(ReconError):
    """Stopped by the person; the message says how to continue."""

    exit_code = 130


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'? Known: ..." for a name that is not in `known`."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names) or 'none'}."
