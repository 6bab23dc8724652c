"""Image folders as recordings: one picture per frame, times from timestamps.csv or a frame rate."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from recon.core.errors import InputError
from recon.core.files import inside

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
TIMES_FILE = "timestamps.csv"
MAX_PICTURE_BYTES = 256 * 2**20
MAX_TIMES_BYTES = 64 * 2**20
_TIME_COLUMNS = ("time_s", "frame_time", "time", "timestamp", "timestamp_s")
_CAMERA_COLUMNS = ("camera", "cam", "cam_id")


class ImageFolder:
    """One folder of pictures, read by index in natural name order.

    width, height: pixels. numbers: [T] the frame numbers in the file names, or None when some name has none.
    times: [T] float64 seconds, set by the caller from `read_times` or a frame rate.
    Raises InputError for an empty folder, an unreadable picture or a picture of another size.
    """

    def __init__(self, path: Path):
        self.path = path
        self.files = sorted((p for p in path.iterdir() if is_picture(p)), key=natural_key)
        if not self.files:
            raise InputError(f"{path}: holds no pictures", why=f"looked for {', '.join(IMAGE_SUFFIXES)}")
        for file in self.files:
            inside(path, file.name)
        self.numbers = _frame_numbers(self.files)
        self.times: np.ndarray = np.arange(len(self.files), dtype=np.float64)  # [T]
        first = read_picture(self.files[0], 0)
        self.height, self.width = int(first.shape[0]), int(first.shape[1])
        self.claimed = len(self.files)
        self.keyframes: np.ndarray = np.arange(len(self.files))  # every picture stands alone
        self.rotation = 0

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> np.ndarray:
        """Picture `index` as uint8 [H, W, 3] RGB."""
        image = read_picture(self.files[index], index)
        if image.shape[:2] != (self.height, self.width):
            raise InputError(
                f"{self.files[index]}: frame {index} is {image.shape[1]}x{image.shape[0]}, the first is "
                f"{self.width}x{self.height}",
                fix="A camera must keep its picture size over the recording.",
            )
        return image

    def frames(self) -> Iterator[tuple[int, np.ndarray]]:
        """All pictures in order as (index, uint8 [H, W, 3])."""
        for index in range(len(self.files)):
            yield index, self.read(index)

    def close(self) -> None:
        """Nothing is held open."""


def is_picture(path: Path) -> bool:
    """Whether the name is that of a picture (hidden files are not)."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def natural_key(path: Path) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which frame_10 follows frame_9."""
    parts = re.findall(r"\d+|\D+", path.name)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts)


def _frame_numbers(files: list[Path]) -> np.ndarray | None:
    """The last run of digits in each name; None unless every name has one and they are all different."""
    found = [re.findall(r"[0-9]+", file.stem) for file in files]
    if not all(found) or any(len(runs[-1]) > 12 for runs in found):
        return None
    numbers = np.array([int(runs[-1]) for runs in found], dtype=np.int64)
    return numbers if np.all(np.diff(numbers) > 0) else None


def read_picture(path: Path, index: int) -> np.ndarray:
    """Read an 8-bit colour picture as uint8 [H, W, 3] RGB; EXIF rotation is applied once. Raises InputError."""
    image = _decode(path, index, cv2.IMREAD_COLOR)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def read_mask_picture(path: Path, index: int) -> np.ndarray:
    """Read a mask as uint8 [H, W]; any nonzero value is foreground, labels are kept."""
    mask = _decode(path, index, cv2.IMREAD_UNCHANGED)
    if mask.dtype != np.uint8:
        raise InputError(f"{path}: mask of frame {index} has {mask.dtype} pixels", fix="Use 8-bit masks.")
    return mask if mask.ndim == 2 else mask[..., :3].max(axis=2)


def _decode(path: Path, index: int, flags: int) -> np.ndarray:
    try:
        if path.stat().st_size > MAX_PICTURE_BYTES:
            raise InputError(f"{path}: frame {index} is larger than {MAX_PICTURE_BYTES >> 20} MiB")
        data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        image = cv2.imdecode(data, flags) if data.size else None
    except (OSError, cv2.error) as error:
        raise InputError(f"{path}: frame {index} cannot be read", why=str(error)) from error
    if image is None:
        raise InputError(
            f"{path}: frame {index} cannot be read",
            why="not a complete picture",
            fix="Copy the file again or delete it; gaps are tolerated.",
        )
    return image


def read_times(path: Path, camera: str, files: list[Path]) -> np.ndarray | None:
    """Times of a camera's pictures from a timestamps.csv: [T] float64 s, or None when the file says nothing of it.

    The table has a header, a time column (time_s, frame_time, time or timestamp, in seconds), and a camera column
    when it speaks of several cameras; a `file` column pairs rows with pictures, otherwise rows are taken in order.
    Raises InputError naming the line when a time is missing, not a finite number, or does not increase.
    """
    rows = [(line, row) for line, row in _rows(path) if _is_of(row, camera)]
    if not rows:
        return None
    column = next((name for name in _TIME_COLUMNS if name in rows[0][1]), None)
    if column is None:
        raise InputError(f"{path}: no time column", why=f"looked for {', '.join(_TIME_COLUMNS)}")
    named: dict[str, float] = {}
    for line, row in rows:
        named[row.get("file") or f"#{len(named)}"] = _seconds(path, line, row[column])
    keys = [file.name if "file" in rows[0][1] else f"#{k}" for k, file in enumerate(files)]
    missing = [k for k, key in enumerate(keys) if key not in named]
    if missing or len(named) < len(files):
        raise InputError(
            f"{path}: camera {camera} has no time for frame {missing[0]}",
            why=f"{len(named)} rows for {len(files)} pictures",
            fix="Write one row per picture, or remove the file and use --fps.",
        )
    times = np.array([named[key] for key in keys], dtype=np.float64)
    back = np.flatnonzero(np.diff(times) <= 0)
    if back.size:
        raise InputError(f"{path}: camera {camera}: time does not increase at frame {int(back[0]) + 1}")
    return times


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        if path.stat().st_size > MAX_TIMES_BYTES:
            raise InputError(f"{path}: larger than {MAX_TIMES_BYTES >> 20} MiB")
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in (reader := csv.DictReader(file)):
                clean = {str(k).strip(): v.strip() for k, v in row.items() if k is not None and isinstance(v, str)}
                yield reader.line_num, clean
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read", why=str(error)) from error


def _is_of(row: dict[str, str], camera: str) -> bool:
    names = [row[column] for column in _CAMERA_COLUMNS if column in row]
    return not names or names[0] == camera


def _seconds(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise InputError(f"{path}: line {line}: {text!r} is not a time in seconds")
    return value
