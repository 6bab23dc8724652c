"""Plain text: Middlebury's list (`*_par.txt`), and files with `intrinsic:`, `distortion:`, `R:` and `T:` per camera.

The list has one line per picture: name, K (9 numbers), R (9), t (3). The others come as pairs, `c0.dat` with the lens
and `rot_trans_c0.dat` with the pose of camera 0, as a rule in squares of a checkerboard. Both lead from world to
camera, count pixels as OpenCV does (the first one's centre is (0, 0)), and say neither picture sizes nor a unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recon.calibrate.readers.draft import (
    MAX_CAMERAS,
    Document,
    Draft,
    Reading,
    bad,
    floats,
    from_integer_centres,
    numbers,
    opencv_distortion,
    pose_of,
)  # fmt: skip
from recon.calibrate.readers.pictures import one_per_camera
from recon.core.errors import CalibrationError

WORDS = 22  # in a line of the list
HEADINGS = {"intrinsic": 9, "intrinsics": 9, "distortion": None, "R": 9, "T": 3}  # how many numbers follow
HEADING = re.compile(r"\s*([A-Za-z]+)\s*:\s*$")


def is_list(text: str) -> bool:
    """Whether `text` begins as Middlebury's list: a count, then 22 words."""
    lines = text.splitlines()[:2]
    return len(lines) == 2 and lines[0].strip().isdigit() and len(lines[1].split()) == WORDS


def has_headings(text: str) -> bool:
    """Whether the first line of `text` is one of our headings."""
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    match = HEADING.match(first)
    return match is not None and match.group(1) in HEADINGS


def read_list(documents: Sequence[Document]) -> Reading:
    """All pictures of Middlebury's list, one camera each."""
    if len(documents) > 1:
        raise CalibrationError(f"{documents[1].path}: two lists were given", fix="Give one.")
    where, lines = str(documents[0].path), documents[0].data.splitlines()
    rows = [line.split() for line in lines[1:] if line.strip()]
    if len(rows) != int(lines[0]) or len(rows) > MAX_CAMERAS:
        raise bad(where, f"it promises {lines[0].strip()[:20]} pictures and lists {len(rows)}")
    drafts = []
    for words in rows:
        label = f"{where}: picture {words[0][:80]}"
        if len(words) != WORDS:
            raise bad(label, f"a line has {WORDS} words, not {len(words)}")
        values = floats(words[1:], label)
        pose = pose_of(values[9:18].reshape(3, 3), values[18:], label)
        drafts.append(Draft(words[0], from_integer_centres(values[:9].reshape(3, 3)), pose))
    return Reading(where, one_per_camera(drafts, where))


def read_pairs(documents: Sequence[Document]) -> Reading:
    """Cameras of files with headings; a lens and a pose belong together when their names end in the same number.

    Of several `R:` and `T:` in one file the first ones count: later ones are between cameras.
    """
    where = str(documents[0].path.parent)
    parts: dict[str, dict[str, np.ndarray]] = {}
    names: dict[str, str] = {}
    for document in documents:
        blocks = _blocks(document.data, str(document.path))
        number = _number(document.path)
        known = parts.setdefault(number, {})
        if known.keys() & blocks.keys():
            raise bad(str(document.path), f"another file describes camera {number} too")
        known.update(blocks)
        if "intrinsic" in blocks:
            names[number] = document.path.stem
    drafts = []
    for number, blocks in parts.items():
        label = f"{where}: camera {names.get(number, number)}"
        missing = [key for key in ("intrinsic", "R", "T") if key not in blocks]
        if missing:
            raise bad(label, f"no file says its {missing[0]}", "Give the files of lens and pose of every camera.")
        k = from_integer_centres(numbers(blocks["intrinsic"].tolist(), label).reshape(3, 3))
        lens = opencv_distortion(blocks.get("distortion", np.zeros(0)), f"{label}: distortion")
        pose = pose_of(blocks["R"].reshape(3, 3), blocks["T"], label)
        drafts.append(Draft(names[number], k, pose, None, *lens))
    return Reading(where, drafts)


def _number(path: Path) -> str:
    digits = re.findall(r"\d+", path.stem)
    if not digits:
        raise bad(str(path), "its name holds no camera number", "Name the files as c0.dat and rot_trans_c0.dat.")
    return str(digits[-1])


def _blocks(text: str, where: str) -> dict[str, np.ndarray]:
    """Heading -> the numbers [N] that follow it."""
    words: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = HEADING.match(line)
        if match is None:
            if current is None:
                raise bad(where, f"numbers before any heading: {line[:40]!r}")
            current += line.split()
        elif match.group(1) not in HEADINGS:
            raise bad(where, f"the heading {match.group(1)[:40]!r} is unknown", f"Known are {', '.join(HEADINGS)}.")
        else:
            key = match.group(1)
            current = []
            words.setdefault("intrinsic" if key == "intrinsics" else key, current)
    blocks = {key: floats(values, f"{where}: {key}") for key, values in words.items()}
    for key, values in blocks.items():
        if HEADINGS[key] is not None and len(values) != HEADINGS[key]:
            raise bad(f"{where}: {key}", f"it has {len(values)} numbers, {HEADINGS[key]} are needed")
    return blocks
