"""Which calibration format a file is in, told by what it contains; names count only between files alike in content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recon.calibrate.readers import caliscope, colmap, dynamic3d, lines, nerfstudio, opencv, qualisys
from recon.calibrate.readers.draft import Document
from recon.core.errors import CalibrationError, InputError
from recon.core.files import inside, parse_toml, read_bytes, read_json

OURS, META, NERFSTUDIO, OPENCV, CALISCOPE = "rig.json", "meta", "nerfstudio", "OpenCV", "caliscope"
QUALISYS, COLMAP, MIDDLEBURY, TEXT = "Qualisys", "COLMAP", "Middlebury", "text"
ACCEPTED = (
    "rig.json (ours); train_meta.json and test_meta.json (Dynamic 3D Gaussians layout); COLMAP's cameras and images "
    "(.txt or .bin); nerfstudio's transforms.json; OpenCV's YAML or JSON (one file per camera or for all); caliscope's "
    "or Pose2Sim's TOML; Qualisys' .qca.txt; Middlebury's *_par.txt; text with intrinsic:, distortion:, R: and T:"
)
YAML_SUFFIXES = {".yml", ".yaml"}
SUFFIXES = {".json", ".yml", ".yaml", ".toml", ".txt", ".xml", ".bin", ".dat"}  # looked at in a folder
MAX_BYTES = 64 * 2**20
MAX_TEXT_BYTES = 2**20  # of a format whose files are small
MAX_ENTRIES = 2000  # files looked at in a folder


def sniff(path: Path) -> Document:
    """The file's format and what was parsed to tell it.

    Raises CalibrationError listing what is accepted when nothing fits, and where the file begins like a known format
    and is damaged; InputError when it cannot be read.
    """
    head = _head(path)
    found: Document | None = None
    if b"\0" in head:
        part = colmap.part_of_bytes(head)
        found = None if part is None else Document(path, COLMAP, part)
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        found = _sniff_json(path)
    elif head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        if qualisys.is_ours(head):
            found = Document(path, QUALISYS, read_bytes(path, MAX_TEXT_BYTES))
    else:
        found = _sniff_text(path, head)
    if found is None:
        raise CalibrationError(f"{path}: not a calibration we know", fix=f"Accepted: {ACCEPTED}.")
    return found


def sniff_folder(folder: Path) -> list[Document]:
    """The calibration in a folder: its documents of the one format found there, in name order; none when there is none.

    A damaged file that begins like a known format counts as none. Raises CalibrationError when two formats are found.
    """
    by_kind: dict[str, list[Document]] = {}
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    for path in files[:MAX_ENTRIES]:
        try:
            inside(folder, path.name)
            document = sniff(path)
        except (CalibrationError, InputError):
            continue
        by_kind.setdefault(document.kind, []).append(document)
    for kind in (OURS, META):  # ours were made from others that may lie beside them
        if kind in by_kind:
            return by_kind[kind]
    if len(by_kind) > 1:
        names = [f"{documents[0].path.name} ({kind})" for kind, documents in by_kind.items()]
        raise CalibrationError(f"{folder}: several calibrations: {', '.join(names)}", fix="Name one with --rig.")
    return _one_model(next(iter(by_kind.values()), []))


def _one_model(documents: list[Document]) -> list[Document]:
    """Of COLMAP's files in a folder, the pair with the usual names; in both forms, the binary one, which is exact."""
    if not documents or documents[0].kind != COLMAP or len(documents) == 2:
        return documents
    named = [document for document in documents if document.path.stem.lower() == document.data]
    binary = [document for document in named if document.path.suffix.lower() == ".bin"]
    return binary if len(binary) == 2 else named or documents


def _head(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise InputError(f"cannot read {path}", why="no such file" if not path.exists() else "not a regular file")
        with path.open("rb") as file:
            return file.read(4096)
    except OSError as error:
        raise InputError(f"cannot read {path}", why=error.strerror or str(error)) from error


def _sniff_json(path: Path) -> Document | None:
    data = read_json(path, MAX_BYTES)
    if dynamic3d.is_ours(data):
        return Document(path, META, data)
    if nerfstudio.is_ours(data):
        return Document(path, NERFSTUDIO, data)
    cameras = data.get("cameras") if isinstance(data, dict) else None
    if isinstance(cameras, dict) and not opencv.is_ours(data):
        return Document(path, OURS, data)
    return Document(path, OPENCV, data) if opencv.is_ours(data) else None


def _sniff_text(path: Path, head: bytes) -> Document | None:
    start = head.decode("utf-8", errors="replace")
    part = colmap.part_of_text(start)
    if part is not None:
        return Document(path, COLMAP, part)
    if lines.is_list(start):
        return Document(path, MIDDLEBURY, _text(path))
    if lines.has_headings(start):
        return Document(path, TEXT, _text(path))
    if path.stat().st_size > MAX_TEXT_BYTES:
        return None
    data = _toml(path)
    if data is not None:
        return Document(path, CALISCOPE, data) if caliscope.is_ours(data) else None
    if ":" not in start:
        return None
    try:
        parsed = opencv.parse(read_bytes(path, MAX_TEXT_BYTES), str(path))
    except CalibrationError:
        if path.suffix.lower() in YAML_SUFFIXES or start.lstrip("\ufeff").startswith("%YAML"):
            raise
        return None
    return Document(path, OPENCV, parsed) if opencv.is_ours(parsed) else None


def _text(path: Path) -> str:
    try:
        return read_bytes(path, MAX_TEXT_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text", why=str(error)) from error


def _toml(path: Path) -> dict[str, Any] | None:
    """The file as TOML; None when it is not."""
    text = _text(path)
    try:
        return parse_toml(text, str(path))
    except InputError:
        return None
