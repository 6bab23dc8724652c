"""Procedural textures: pictures of wood, posters, tiles and mats, sRGB-encoded float32 [H, W, 3], drawn from a seed."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

Picture = npt.NDArray[np.float32]
Rng = np.random.Generator


def noise(rng: Rng, height: int, width: int, cell: tuple[float, float], octaves: int = 4) -> npt.NDArray[np.float64]:
    """Smooth noise [H, W] of unit variance; `cell` is the size of its largest features in texels (rows, columns)."""
    total = np.zeros((height, width))
    for octave in range(octaves):
        rows = max(2, int(np.ceil(height / cell[0] * 2**octave)) + 1)
        columns = max(2, int(np.ceil(width / cell[1] * 2**octave)) + 1)
        if rows > height or columns > width:
            break
        coarse = rng.standard_normal((rows, columns)).astype(np.float32)
        total += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR) * 0.6**octave
    return total / max(float(total.std()), 1e-9)


def paint(base: tuple[float, float, float], strength: npt.NDArray[np.float64]) -> Picture:
    """A colour made lighter and darker: base (1 + strength)."""
    return np.clip(np.array(base) * (1 + strength[..., None]), 0.02, 0.98).astype(np.float32)


def wood(rng: Rng, height: int, width: int, plank: int) -> Picture:
    """Planks of `plank` texels, running along the rows, each with a tone and a grain of its own."""
    picture = np.zeros((height, width, 3), np.float32)
    for top in range(0, height, plank):
        rows = min(plank, height - top)
        grain = noise(rng, rows, width, (7, 160)) * 0.10 + noise(rng, rows, width, (40, 60)) * 0.05
        rings = 0.06 * np.sin(noise(rng, rows, width, (45, 330), 2) * 7)
        tone = np.array([0.66, 0.47, 0.30]) * rng.uniform(0.82, 1.12)
        picture[top : top + rows] = paint(tuple(tone), grain + rings)
        picture[top : top + 2] *= 0.55
    return picture


def cells(rng: Rng, height: int, width: int, count: int) -> Picture:
    """A mosaic of `count` randomly coloured Voronoi cells."""
    points = rng.random((count, 2)) * [height, width]
    colours = rng.uniform(0.08, 0.95, (count, 3))
    grid = np.stack(np.mgrid[0:height, 0:width], axis=-1).reshape(-1, 2)
    return colours[cKDTree(points).query(grid)[1]].reshape(height, width, 3).astype(np.float32)


def checker(rng: Rng, height: int, width: int, cell: int) -> Picture:
    """Dark and light squares of `cell` texels; every light one has a colour of its own."""
    rows, columns = -(-height // cell), -(-width // cell)
    light = rng.uniform(0.55, 0.95, (rows, columns, 3))
    dark = rng.uniform(0.05, 0.22, (rows, columns, 3))
    odd = (np.add.outer(np.arange(rows), np.arange(columns)) % 2 == 1)[..., None]
    board = np.where(odd, dark, light)
    return np.kron(board, np.ones((cell, cell, 1)))[:height, :width].astype(np.float32)


def confetti(rng: Rng, height: int, width: int, count: int, size: tuple[int, int], paper: float = 0.9) -> Picture:
    """Rectangles and discs of random colours on paper."""
    picture = np.full((height, width, 3), paper, np.float32)
    for _ in range(count):
        centre = rng.random(2) * [width, height]
        a, b = rng.integers(size[0], size[1], 2).tolist()
        turn, colour = float(rng.uniform(0, 180)), rng.uniform(0.05, 0.95, 3).tolist()
        if rng.random() < 0.7:
            corners = cv2.boxPoints((centre.tolist(), (2.0 * a, 2.0 * b), turn))
            cv2.fillConvexPoly(picture, np.round(corners).astype(np.int32), colour)
        else:
            cv2.circle(picture, np.round(centre).astype(int).tolist(), a, colour, -1)
    return picture


def paste(picture: Picture, patch: Picture, row: int, column: int, border: int = 0) -> None:
    """Copy `patch` into `picture` at (row, column), with a white border, cut at the edges."""
    if border:
        framed = np.full((patch.shape[0] + 2 * border, patch.shape[1] + 2 * border, 3), 0.93, np.float32)
        framed[border:-border, border:-border] = patch
        patch = framed
    height = min(patch.shape[0], picture.shape[0] - row)
    width = min(patch.shape[1], picture.shape[1] - column)
    picture[row : row + height, column : column + width] = patch[:height, :width]


def table_top(rng: Rng, height: int, width: int) -> Picture:
    """Wood with mats and sheets of paper on it; 2 mm per texel."""
    picture = wood(rng, height, width, 50)
    paste(picture, checker(rng, 90, 120, 15), int(height * 0.62), int(width * 0.60), 4)
    paste(picture, confetti(rng, 105, 75, 26, (4, 14)), int(height * 0.14), int(width * 0.66), 3)
    paste(picture, cells(rng, 80, 80, 40), int(height * 0.70), int(width * 0.28), 3)
    paste(picture, confetti(rng, 70, 100, 18, (5, 15), 0.25), int(height * 0.08), int(width * 0.30), 3)
    paste(picture, checker(rng, 64, 64, 8), int(height * 0.40), int(width * 0.86), 3)
    return np.clip(gaussian_filter(picture, (0.8, 0.8, 0)), 0, 1).astype(np.float32)


def wall(rng: Rng, height: int, width: int) -> Picture:
    """A painted wall with posters; 5 mm per texel."""
    tone = np.array([0.70, 0.72, 0.70]) + rng.uniform(-0.10, 0.10, 3)
    picture = paint(tuple(tone), noise(rng, height, width, (60, 60)) * 0.06)
    kinds = (
        lambda h, w: cells(rng, h, w, 60),
        lambda h, w: checker(rng, h, w, 18),
        lambda h, w: confetti(rng, h, w, 45, (5, 22)),
        lambda h, w: paint(tuple(rng.uniform(0.3, 0.7, 3)), noise(rng, h, w, (30, 30)) * 0.35),
    )
    column = int(rng.integers(5, 30))
    turn = int(rng.integers(len(kinds)))
    while column < width - 60:
        h, w = int(rng.integers(100, 180)), int(rng.integers(90, 160))
        for row in (int(height * 0.06), int(height * 0.06) + h + 22, int(height * 0.06) + 2 * (h + 22)):
            if row + h < height:
                paste(picture, kinds[turn % len(kinds)](h, w), row, column, 4)
            turn += 1
        column += w + int(rng.integers(14, 40))
    return np.clip(gaussian_filter(picture, (0.8, 0.8, 0)), 0, 1).astype(np.float32)


def floor(rng: Rng, height: int, width: int) -> Picture:
    """Mottled tiles with joints; 5 mm per texel."""
    tile = 70
    picture = np.zeros((height, width, 3), np.float32)
    for row in range(0, height, tile):
        for column in range(0, width, tile):
            h, w = min(tile, height - row), min(tile, width - column)
            tone = rng.uniform(0.32, 0.52) * np.array([1.0, 0.97, 0.92])
            picture[row : row + h, column : column + w] = paint(tuple(tone), noise(rng, h, w, (12, 12)) * 0.16)
    picture[::tile] = picture[:, ::tile] = 0.2
    return np.clip(gaussian_filter(picture, (0.8, 0.8, 0)), 0, 1).astype(np.float32)


def sample(picture: Picture, rows: npt.NDArray[np.float64], columns: npt.NDArray[np.float64]) -> Picture:
    """Bilinear look-up [N, 3] at texel positions (first texel centre at 0.5), held at the edges."""
    height, width = picture.shape[:2]
    y, x = np.clip(rows - 0.5, 0, height - 1.001), np.clip(columns - 0.5, 0, width - 1.001)
    i, j = y.astype(np.int64), x.astype(np.int64)
    fy, fx = (y - i)[:, None].astype(np.float32), (x - j)[:, None].astype(np.float32)
    upper = picture[i, j] * (1 - fx) + picture[i, j + 1] * fx
    lower = picture[i + 1, j] * (1 - fx) + picture[i + 1, j + 1] * fx
    return upper * (1 - fy) + lower * fy
