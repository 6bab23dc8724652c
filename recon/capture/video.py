"""Video files: presentation times, frames by index, and writing an mp4.

The container's own presentation timestamps (PTS) are the only clock used, so variable frame rates, gaps and B-frames
need no special case. The display rotation stored by phones is applied once, here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from recon.core.errors import InputError, StorageError

VIDEO_SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".avi", ".webm", ".ts")
MIN_DECODED = 0.9  # a file with a smaller share of its promised frames is refused, not silently shortened
MAX_SIDE = 16384  # pixels
MAX_FRAMES = 2_000_000
SEEK_AHEAD = 48  # frames; for a longer jump, seeking to a keyframe beats decoding everything in between


class VideoFile:
    """One video, read by frame index in presentation order.

    width, height: displayed size in pixels, after rotation. times: [T] float64 seconds of the container's clock.
    claimed: number of frames the container promises (0 when it does not say). keyframes: [K] indices of frames that
    need no other to be decoded. rotation: degrees anticlockwise that the file asks to be turned by, already done.
    Reading forward continues the decoder; any other order seeks to the keyframe before.
    Raises InputError (naming file and frame) for what cannot be opened or decoded.
    """

    def __init__(self, path: Path):
        self.path = path
        self._container, self._stream = _open(path)
        self._time_base = float(self._stream.time_base or Fraction(1, 90000))
        self.claimed = int(self._stream.frames)
        self._pts, self.lost_packets, keys = self._index()
        self.keyframes: np.ndarray = np.searchsorted(self._pts, keys)
        self.times: np.ndarray = np.array(self._pts, dtype=np.float64) * self._time_base  # [T] s
        self._refuse_truncated(len(self._pts))
        self._decoder: Iterator[Any] | None = None
        self._next = 0  # index the decoder is about to yield
        self._ahead: Any | None = None  # a decoded frame that belongs to a later index
        self._sought = -1  # index of a seek that has not yet been confirmed by its frame
        self.rotation = 0
        first = self.read(0)
        self.height, self.width = int(first.shape[0]), int(first.shape[1])

    def _index(self) -> tuple[list[int], int, list[int]]:
        """Presentation times of all packets, without decoding: (sorted unique PTS, damaged packets, keyframes' PTS)."""
        found: set[int] = set()
        keys: set[int] = set()
        lost = 0
        try:
            for packet in self._container.demux(self._stream):
                if packet.size == 0 or packet.is_discard:
                    continue  # the flush packet, or cut away by an edit list
                if packet.is_corrupt or packet.pts is None:
                    lost += 1
                    continue
                found.add(int(packet.pts))
                if packet.is_keyframe:
                    keys.add(int(packet.pts))
                if len(found) > MAX_FRAMES:
                    raise InputError(f"{self.path}: more than {MAX_FRAMES} frames", fix="Split the recording.")
        except av.FFmpegError:
            lost += 1  # the file ends inside a packet: what came before is judged by _refuse_truncated
        if not found:
            raise InputError(
                f"{self.path}: no video frame can be read",
                why="no packet carries a time stamp",
                fix="Record it again, or leave the camera out with --cams.",
            )
        return sorted(found), lost, sorted(keys) or [min(found)]

    def _refuse_truncated(self, usable: int) -> None:
        if usable < MIN_DECODED * self.claimed:
            raise InputError(
                f"{self.path}: truncated at frame {usable}",
                why=f"the container promises {self.claimed} frames and only {usable} can be decoded",
                fix="Copy the file again, or leave the camera out with --cams.",
            )

    def __len__(self) -> int:
        return len(self._pts)

    def read(self, index: int) -> np.ndarray:
        """Frame `index` as uint8 [H, W, 3] RGB. Raises InputError naming file and frame when it does not decode."""
        if not 0 <= index < len(self._pts):
            raise IndexError(f"{self.path}: frame {index} of {len(self._pts)}")
        if self._decoder is None or index < self._next or index - self._next > SEEK_AHEAD:
            self._seek(index)
        frame = self._advance(index)
        if frame is None and self._sought > 0:
            self._seek(0)  # some containers land after the frame: decode from the start before giving up
            frame = self._advance(index)
        if frame is None:
            raise InputError(
                f"{self.path}: frame {index} cannot be decoded",
                why=f"damaged data at {self.times[index]:.3f} s",
                fix="Copy the file again, or leave the camera out with --cams.",
            )
        return self._to_rgb(frame, index)

    def _advance(self, index: int) -> Any | None:
        """Decode up to frame `index`; None when the stream passes it by."""
        wanted = self._pts[index]
        self._next = index + 1
        while (frame := self._pull()) is not None:
            if frame.pts == wanted:
                self._sought = -1  # in step again: a later loss is damage, not a bad seek
                return frame
            if frame.pts > wanted:
                self._ahead = frame
                return None
        return None

    def frames(self) -> Iterator[tuple[int, np.ndarray]]:
        """All frames that decode, in order, as (index, uint8 [H, W, 3]); refuses a file with too many damaged ones."""
        bad = 0
        for index in range(len(self._pts)):
            try:
                image = self.read(index)
            except InputError:
                bad += 1
                if len(self._pts) - bad < MIN_DECODED * max(self.claimed, len(self._pts)):
                    raise
                continue
            yield index, image

    def close(self) -> None:
        """Release the file and the decoder."""
        self._decoder = None
        self._ahead = None
        self._container.close()

    def _seek(self, index: int) -> None:
        self._ahead = None
        self._sought = index
        try:
            self._container.seek(self._pts[index], stream=self._stream, backward=True, any_frame=False)
        except av.FFmpegError:
            self._container.close()
            self._container, self._stream = _open(self.path)  # not seekable: decode from the start
        self._decoder = _decoded(self._container, self._stream)

    def _pull(self) -> Any | None:
        """Next intact frame with a time stamp, or None at the end of what can be decoded."""
        if self._ahead is not None:
            frame, self._ahead = self._ahead, None
            return frame
        if self._decoder is not None:
            for frame in self._decoder:
                if frame.pts is not None and not frame.is_corrupt:
                    return frame
        self._decoder = None
        return None

    def _to_rgb(self, frame: Any, index: int) -> np.ndarray:
        if max(frame.width, frame.height) > MAX_SIDE:
            raise InputError(f"{self.path}: frame {index} is {frame.width}x{frame.height}, larger than {MAX_SIDE}")
        image = frame.to_ndarray(format="rgb24")
        if int(round(frame.rotation)) % 90:
            raise InputError(f"{self.path}: display rotation of {frame.rotation} degrees", fix="Use multiples of 90.")
        self.rotation = int(round(frame.rotation)) % 360
        turned = np.rot90(image, k=int(round(frame.rotation / 90)) % 4)  # the tag counts anticlockwise
        if index > 0 and turned.shape[:2] != (self.height, self.width):
            raise InputError(
                f"{self.path}: frame {index} is {turned.shape[1]}x{turned.shape[0]}, the first is "
                f"{self.width}x{self.height}",
                fix="A camera must keep its picture size over the recording.",
            )
        return np.ascontiguousarray(turned)


def _open(path: Path) -> tuple[Any, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such video", fix="Check the path, or leave the camera out with --cams.")
    try:
        container = av.open(str(path), mode="r")
    except (av.FFmpegError, OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be opened as a video",
            why=str(error),
            fix="An mp4 whose recording was cut off has no index: record or copy it again.",
        ) from error
    if not container.streams.video:
        container.close()
        raise InputError(f"{path}: holds no video stream", fix="Leave the file out of the folder.")
    stream = container.streams.video[0]
    stream.thread_type = "AUTO"
    stream.codec_context.thread_count = 2  # many cameras are open at once
    return container, stream


def _decoded(container: Any, stream: Any) -> Iterator[Any]:
    """Decoded frames, passing over packets the decoder rejects."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.FFmpegError:
            return
        try:
            yield from packet.decode()
        except av.FFmpegError:
            continue  # this frame is missing; read() reports it by index when it is asked for


def write_mp4(path: Path, frames: Iterable[np.ndarray], fps: float, *, quality: int = 18, rotation: int = 0) -> int:
    """Write uint8 [H, W, 3] RGB frames as H.264 yuv420p and return their number.

    fps: frames per second (PTS k / fps). quality: x264 CRF, lower is better. rotation: display rotation tag in
    degrees anticlockwise. An odd size loses its last row or column, which 4:2:0 cannot hold.
    Raises InputError when there is no frame or sizes differ, StorageError when the file cannot be written.
    """
    rate = Fraction(fps).limit_denominator(90_000)
    count = 0
    try:
        with av.open(str(path), mode="w", options={"movflags": "+faststart"}) as container:
            stream: Any = None
            for image in frames:
                height, width = image.shape[0] // 2 * 2, image.shape[1] // 2 * 2
                if stream is None:
                    stream = container.add_stream("libx264", rate=rate, options={"crf": str(quality)})
                    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
                    if rotation:
                        stream.set_display_rotation(rotation)
                if (width, height) != (stream.width, stream.height):
                    first = f"{stream.width}x{stream.height}"
                    raise InputError(f"{path}: frame {count} is {width}x{height}, the first {first}")
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image[:height, :width]), format="rgb24")
                frame.pts = count
                container.mux(stream.encode(frame))
                count += 1
            if stream is None:
                raise InputError(f"{path}: no frame to write")
            container.mux(stream.encode(None))
    except (av.FFmpegError, OSError) as error:
        raise StorageError(f"{path}: cannot be written", why=str(error)) from error
    return count
