"""JSON inside other people's files: an object, parsed strictly, or one clear line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from recon.scene.formats.splats import unreadable


def parse_json(data: bytes, path: Path, kind: str) -> dict[str, Any]:
    """The object that the bytes (UTF-8) spell; InputError naming `path`. NaN and infinity are refused."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        text = "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0][:80]
        raise unreadable(path, kind, f"its JSON cannot be read ({text})") from error
    if not isinstance(value, dict):
        raise unreadable(path, kind, "its JSON is not an object")
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} does not fit a number")
    return value
