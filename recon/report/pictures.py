"""Pictures and the film of a report, small enough to lie inside one HTML file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import av
import cv2
import numpy as np

from recon.capture.plate import evenly
from recon.capture.video import write_mp4
from recon.core.errors import ReconError
from recon.core.files import writing
from recon.fit.data import Frames
from recon.report.scores import Draw, checked_draw

PANEL_WIDTH = 420  # pixels of one of the three panels
PANELS_BYTES = 2_600_000  # of all pictures together
FILM_WIDTH, FILM_FRAMES, FILM_BYTES = 400, 45, 1_200_000
FILM_QUALITIES = (28, 36, 44, 51)  # x264 CRF, tried until the film is small enough
GAIN = 4  # of the difference panel
ENCODER = "libx264"


def triptych(photo: np.ndarray, drawn: np.ndarray, valid: np.ndarray) -> bytes:
    """JPEG of photo | render | GAIN times their absolute difference (black: equal, or outside the real picture)."""
    difference = np.abs(photo.astype(np.int16) - drawn.astype(np.int16)).max(axis=2, keepdims=True) * GAIN
    shown = np.where(valid[..., None], np.minimum(difference, 255), 0).astype(np.uint8).repeat(3, axis=2)
    return jpeg(np.hstack([narrowed(panel, PANEL_WIDTH) for panel in (photo, drawn, shown)]))


def narrowed(picture: np.ndarray, width: int) -> np.ndarray:
    """uint8 [H, W, 3] no wider than `width` pixels; never enlarged."""
    height = max(1, round(picture.shape[0] * width / picture.shape[1]))
    if picture.shape[1] <= width:
        return picture
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA))


def jpeg(picture: np.ndarray, quality: int = 80) -> bytes:
    """uint8 [H, W, 3] RGB as JPEG."""
    encoded, data = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not encoded:
        raise ReconError(f"a picture of {list(picture.shape)} could not be written as JPEG")
    return bytes(data.tobytes())


def within(pictures: list[bytes], most: int = PANELS_BYTES) -> list[bytes]:
    """The same JPEGs, all shrunk and compressed more when together they have more than `most` bytes."""
    total, scale = sum(map(len, pictures)), 1.0
    found = pictures
    while total > most and scale > 0.05:
        scale *= min(0.9, (most / total) ** 0.5)
        found = [_shrunk(picture, scale) for picture in pictures]
        total = sum(map(len, found))
    return found


def _shrunk(data: bytes, scale: float) -> bytes:
    picture = cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    return jpeg(narrowed(picture, max(1, round(picture.shape[1] * scale))), 70)


def film(frames: Frames, camera: int, draw: Draw, folder: Path) -> bytes | None:
    """H.264 mp4 of photo | render of one camera over its whole time, at its true speed where its frames allow.

    folder: where a temporary file may lie. None when this installation cannot encode H.264.
    """
    if ENCODER not in av.codecs_available:
        return None
    times, chosen = frames.times[camera], evenly(frames.num_frames(camera), FILM_FRAMES)
    pairs = []
    for frame in chosen:
        photo = frames.picture(camera, int(frame))
        drawn = checked_draw(draw, camera, float(times[frame]), photo)
        pairs.append(np.hstack([narrowed(photo, FILM_WIDTH), narrowed(drawn, FILM_WIDTH)]))
    seconds = float(times[chosen[-1]] - times[chosen[0]])
    fps = float(np.clip((len(chosen) - 1) / seconds, 4.0, 60.0)) if seconds > 0 else 4.0
    return smallest_of(lambda quality: encode(pairs, fps, quality, folder))


def encode(pictures: Iterable[np.ndarray], fps: float, quality: int, folder: Path) -> bytes:
    """The mp4 as bytes; its file in `folder` is gone afterwards."""
    with writing(folder), tempfile.TemporaryDirectory(prefix=".film-", dir=folder) as place:
        path = Path(place) / "film.mp4"
        write_mp4(path, pictures, fps, quality=quality)
        return path.read_bytes()


def smallest_of(make: Callable[[int], bytes], most: int = FILM_BYTES) -> bytes:
    """The first film of at most `most` bytes, in the order of FILM_QUALITIES, else the last."""
    data = b""
    for quality in FILM_QUALITIES:
        data = make(quality)
        if len(data) <= most:
            break
    return data
