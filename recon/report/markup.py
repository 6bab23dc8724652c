"""HTML pieces that the pages share. A page forbids itself any outside resource; every text goes through `escape`."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
STYLE = """
:root{color-scheme:light dark;--line:#8884;--mark:#2f6fb5}
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:0}h2{font-size:1.2rem;margin-top:2rem}.summary{font-size:1.15rem}
table{border-collapse:collapse}th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
figure{margin:1rem 0;break-inside:avoid}figcaption{font-size:.9rem}img,video{max-width:100%;height:auto;display:block}
svg{width:100%;max-width:46rem;height:auto}svg text{font-size:12px;fill:currentColor}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;border:1px solid var(--line);padding:.6rem}
@media print{body{max-width:none;margin:0}video{display:none}h2{break-after:avoid}tr{break-inside:avoid}}
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True) -> str:
    """An HTML table; columns after the first are numbers unless said otherwise. Escapes every cell."""
    kinds = ["" if i == 0 or not numbers or name == "measured" else " class=n" for i, name in enumerate(head)]
    top = "".join(f"<th scope=col{kind}>{escape(name)}" for name, kind in zip(head, kinds, strict=True))
    lines = ["".join(f"<td{kind}>{escape(cell)}" for cell, kind in zip(row, kinds, strict=True)) for row in rows]
    return f"<table><tr>{top}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def data_uri(kind: str, content: bytes) -> str:
    """The content inside the page itself. kind: its media type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def number(value: float | None, digits: int) -> str:
    """With so many digits after the point; n/a for None and NaN."""
    return "n/a" if value is None or value != value else f"{value:,.{digits}f}"


def simulated_note(facts: Mapping[str, Any]) -> str:
    """A paragraph where the report's facts say that their `device` is `simulated`, else nothing."""
    if not facts.get("simulated"):
        return ""
    device = escape(facts["device"])
    return f"<p><b>{device}: this device is simulated on the CPU; nothing here ran on real hardware.</b></p>"


def escape(text: object) -> str:
    """Text that cannot be markup."""
    return html.escape(str(text), quote=True)
