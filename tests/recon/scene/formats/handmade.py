"""Files of formats that we read and do not write, made by their layout tables."""

from __future__ import annotations

import struct

import numpy as np

COUNT, FULL = 5, 4  # Gaussians; those in the one full bucket
BLOCK, REACH = 5.0, 32767
NUMBERS = (0, 9, 24, 45)


def ksplat_means() -> np.ndarray:
    """The positions [5, 3] of the file that `ksplat` makes, up to the step of levels 1 and 2."""
    return np.array([[0.1, 0.2, 0.3], [-0.4, 0.5, 0.6], [1.0, -1.0, 0.5], [0.0, 0.0, 0.0], [7.0, 7.5, 8.0]], np.float32)


def ksplat(level: int, degree: int) -> bytes:
    """Five Gaussians: four in a full bucket about the origin, one in a partial bucket about (7, 7, 7)."""
    header, section = bytearray(4096), bytearray(1024)
    header[0:2] = bytes([0, 1])
    struct.pack_into("<IIIIH", header, 4, 1, 1, COUNT, COUNT, level)
    struct.pack_into("<ff", header, 36, -1.5, 1.5)
    buckets = 0 if level == 0 else 2
    struct.pack_into("<IIIIfHxxI", section, 0, COUNT, COUNT, FULL, buckets, BLOCK, 12, REACH)
    struct.pack_into("<IIH", section, 32, min(1, buckets), min(1, buckets), degree)
    data = b""
    centres = np.array([[0, 0, 0], [7, 7, 7]], "<f4")
    if level:
        data += struct.pack("<I", COUNT - FULL) + centres.tobytes()
    for k, mean in enumerate(ksplat_means()):
        centre = centres[0 if k < FULL else 1]
        fixed = np.rint((mean - centre) / (BLOCK / 2 / REACH) + REACH)
        kind = "<f4" if level == 0 else "<f2"
        data += mean.astype("<f4").tobytes() if level == 0 else fixed.astype("<u2").tobytes()
        data += np.array([0.01, 0.02, 0.04], kind).tobytes() + np.array([0.5, 0.5, -0.5, 0.5], kind).tobytes()
        data += bytes([255, 128, 0, 200])
        bands = np.arange(NUMBERS[degree]) / 45.0
        if level == 2:
            data += np.rint((bands + 1.5) / 3.0 * 255.0).astype("u1").tobytes()
        else:
            data += bands.astype(kind).tobytes()
    return bytes(header + section) + data
