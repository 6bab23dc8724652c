"""Films of data sets: constant rate, frame k at k / fps, so that a row finds its picture by its time alone."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError, StorageError

# A key frame every other one, so that any frame is near one; no B-frames, so that films join end to end; one thread, so
# that the same pictures give the same bytes.
CODEC = "libx264"
OPTIONS = {"crf": "18", "preset": "veryfast", "g": "2", "bf": "0", "threads": "1"}
OFF_BEAT = 0.1  # of a frame: how far a time stamp may be from k / fps


@dataclass(frozen=True)
class Look:
    """What a film's header says, for info.json and to tell whether two films can be joined."""

    codec: str
    pixels: str
    width: int
    height: int
    extra: bytes

    def to_json(self, fps: int) -> dict[str, Any]:
        """The entry "info" of a camera."""
        return {
            "video.height": self.height, "video.width": self.width, "video.codec": self.codec,
            "video.pix_fmt": self.pixels, "video.is_depth_map": False, "video.fps": fps, "video.channels": 3,
            "has_audio": False,
        }  # fmt: skip


def encode_film(frames: NDArray[np.uint8], fps: int) -> bytes:
    """H.264 in MP4 of frames [T, H, W, 3] uint8 RGB with even sides."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream(CODEC, rate=fps, options=dict(OPTIONS))
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv420p"
        for number, picture in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def read_film(path: Path, fps: int, size: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    """Every frame [H, W, 3] uint8 RGB, in order.

    Raises:
        InputError: missing, damaged, of another rate or size (height, width), or a frame is off its beat.
    """
    container, stream = _open(path)
    with container:
        if (stream.height, stream.width) != size:
            raise InputError(f"{path} shows {stream.width}x{stream.height} pixels", why=f"info.json says {size[::-1]}")
        first: Fraction | None = None
        number = 0
        try:
            for frame in container.decode(stream):
                if frame.pts is None or frame.time_base is None:
                    raise InputError(f"{path}: frame {number} has no time stamp")
                time = frame.pts * Fraction(frame.time_base)
                first = time if first is None else first
                _on_beat(path, number, time - first, fps)
                yield frame.to_ndarray(format="rgb24")
                number += 1
        except av.FFmpegError as error:
            raise InputError(f"{path} is damaged at frame {number}", why=str(error), fix="Copy it again.") from error


def _on_beat(path: Path, number: int, time: Fraction, fps: int) -> None:
    if abs(float(time * fps) - number) > OFF_BEAT:
        raise InputError(
            f"{path}: frame {number} stands at {float(time):.4f} s",
            why=f"at {fps} frames per second it belongs at {number / fps:.4f} s",
        )


def _open(path: Path) -> tuple[Any, Any]:
    if not path.is_file():
        raise InputError(f"the video {path} is missing")
    try:
        container = av.open(str(path))
    except (av.FFmpegError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be opened as a video", why=str(error), fix="Copy it again.") from error
    if not container.streams.video:
        container.close()
        raise InputError(f"{path} holds no video")
    stream = container.streams.video[0]
    stream.thread_type = "SLICE"
    return container, stream


def look_at(path: Path) -> Look:
    """What a film is. Raises InputError as `read_film`."""
    container, stream = _open(path)
    with container:
        context = stream.codec_context
        return Look(context.name, str(context.pix_fmt), stream.width, stream.height, bytes(context.extradata or b""))


def join_films(pieces: Sequence[tuple[Path, int]], out: Path, fps: int) -> None:
    """Put films (path, frames) of one look end to end, packet by packet: no picture is encoded again.

    Raises:
        InputError: a piece does not hold so many frames, or one is off its beat. StorageError: `out` cannot be written.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with av.open(str(out), "w", format="mp4") as target:
            stream: Any = None
            start = 0
            for path, frames in pieces:
                source, given = _open(path)
                with source:
                    stream = stream or _like(target, given)
                    for packet in _packets(path, source, given, frames, fps):
                        packet.pts, packet.dts, packet.duration = packet.pts + start, packet.dts + start, 1
                        packet.stream = stream
                        target.mux(packet)
                start += frames
    except (av.FFmpegError, OSError) as error:
        raise StorageError(f"{out} cannot be written", why=str(error)) from error


def _like(target: Any, given: Any) -> Any:
    if hasattr(target, "add_stream_from_template"):
        return target.add_stream_from_template(given)
    return target.add_stream(template=given)


def _packets(path: Path, source: Any, given: Any, frames: int, fps: int) -> list[Any]:
    """The packets of a film with time stamps counted in frames from 0."""
    try:
        packets = [packet for packet in source.demux(given) if packet.pts is not None and packet.size]
    except av.FFmpegError as error:
        raise InputError(f"{path} is damaged", why=str(error), fix="Copy it again.") from error
    if len(packets) != frames:
        raise InputError(f"{path} holds {len(packets)} frames", why=f"its episode has {frames}")
    first = min(packet.pts for packet in packets)
    beat = Fraction(given.time_base) * fps
    for number, pts in enumerate(sorted(packet.pts for packet in packets)):
        _on_beat(path, number, (pts - first) * Fraction(given.time_base), fps)
    for packet in packets:
        dts = packet.pts if packet.dts is None else packet.dts
        packet.pts, packet.dts = round((packet.pts - first) * beat), round((dts - first) * beat)
        packet.time_base = Fraction(1, fps)
    return packets
