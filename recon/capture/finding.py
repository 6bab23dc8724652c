"""One thing that the capture check noticed."""

from __future__ import annotations

from dataclasses import dataclass

from recon.core.events import Level


@dataclass(frozen=True)
class Finding:
    """level 'error': not usable; 'warning': usable, worse result; 'info'.

    camera and frame say where (None: all, or no single one); text says what, fix what to do.
    """

    level: Level
    camera: str | None
    frame: int | None
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.text}. {self.fix}" if self.fix else self.text
