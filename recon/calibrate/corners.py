"""A board's corners in one picture, to a fraction of a pixel.

Markers are looked for in the picture as it is, enlarged, and with its contrast equalised, until enough are found. They
say roughly where every corner of the board must lie; each is then settled on the picture itself (`settle`), whether or
not a marker beside it was read. So a few markers are enough for a whole board, and a predicted board needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from recon.calibrate.board import Board
from recon.geometry.convert import integer_centres_from_pixels, pixels_from_integer_centres

Mapping = Callable[[np.ndarray], np.ndarray]  # board points [N, 3] metres -> pixels [N, 2], NaN where there is none

ATTEMPTS = ((1, False), (2, False), (2, True), (3, False))  # (enlarged by, contrast equalised), cheapest first
MAX_PIXELS = 6_000_000  # of an enlarged picture
ENOUGH = 0.85  # share of the markers after which no further attempt is made
MIN_MARKERS = 2
MIN_CORNERS = 6  # fewer say too little about a pose
FIT = 0.12  # in marker sides: how far markers may lie off the plane that most agree on
WINDOW = 0.22  # of a square: half the window in which a corner is settled
TAG_WINDOW = 0.1  # of a tag's side: within its border, so that its bits do not pull
MIN_WINDOW, MAX_WINDOW = 2, 12  # pixels
MOVED = (0.5, 0.14)  # pixels + squares: how far a corner may lie from its prediction
PROBE = 0.1  # of a square: how far from a chessboard corner its four squares are looked at
CONTRAST = 6.0  # grey levels between them
ROUNDS = 3


@dataclass(frozen=True)
class Corners:
    """ids: [N] int64 corner numbers, increasing. uv: [N, 2] float64 pixels, first pixel's centre at (0.5, 0.5)."""

    ids: np.ndarray
    uv: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, chosen: np.ndarray) -> Corners:
        """Those that the bool or index array picks."""
        return Corners(self.ids[chosen], self.uv[chosen])


NONE = Corners(np.empty(0, np.int64), np.empty((0, 2)))


@dataclass
class Finder:
    """Finds one board. seen: pictures in which at least two of its markers were read."""

    board: Board
    inverted: bool
    seen: int = 0
    _layout: tuple[int, bool] | None = None  # of an aprilgrid: (turn of its tags, numbered from below)

    def find(self, picture: np.ndarray) -> Corners:
        """All corners of the board in a picture uint8 [H, W, 3] or [H, W]; NONE when it is not there."""
        grey = self.grey(picture)
        if self.board.kind == "checkerboard":
            return _chessboard(grey, self.board)
        markers = self._markers(grey)
        if len(markers) < MIN_MARKERS:
            return NONE
        self.seen += 1
        fitted = self._fitted(markers)
        if fitted is None:
            return NONE
        return self._spread(grey, *fitted)

    def settle(self, picture: np.ndarray, mapping: Mapping) -> Corners:
        """The corners near where `mapping` predicts them."""
        return settle(self.grey(picture), self.board, np.arange(len(self.board.corners)), mapping)

    def grey(self, picture: np.ndarray) -> np.ndarray:
        """uint8 [H, W] in which the board's dark parts are dark."""
        grey = picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
        return 255 - grey if self.inverted else grey

    def _markers(self, grey: np.ndarray) -> dict[int, np.ndarray]:
        """Marker number on the board -> [4, 2] pixels, from as many attempts as are needed."""
        found: dict[int, np.ndarray] = {}
        count = len(self.board.marker_corners)
        for scale, equalised in ATTEMPTS:
            if len(found) >= ENOUGH * count or (scale > 1 and scale * scale * grey.size > MAX_PIXELS):
                continue
            for number, uv in read_markers(grey, self.board, scale, equalised).items():
                if 0 <= number - self.board.first_id < count:
                    found.setdefault(number - self.board.first_id, uv)
        return found

    def _fitted(self, markers: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
        """(board points [N, 3], pixels [N, 2]) of the markers that lie on one plane as the board says."""
        layouts = [(0, False)]
        if self.board.kind == "aprilgrid":  # its makers differ in where they begin and how they turn the tags
            every = [(turn, below) for below in (False, True) for turn in range(4)]
            layouts = [self._layout] if self._layout else every
        fits = []
        for layout in layouts:
            fit = _on_plane(*self._placed(markers, layout))
            if fit is not None:
                fits.append((len(fit[1]), layout, fit))
        if not fits:
            return None
        count, layout, fit = max(fits, key=lambda entry: entry[0])
        if len(layouts) > 1:
            if sum(n == count for n, _, _ in fits) > 1:
                return None  # too few tags to tell
            self._layout = layout
        return fit

    def _placed(self, markers: dict[int, np.ndarray], layout: tuple[int, bool]) -> tuple[np.ndarray, np.ndarray]:
        turn, below = layout
        numbers = np.array(sorted(markers))
        uv = np.stack([np.roll(markers[n], turn, axis=0) for n in numbers])
        if below:
            row, column = np.divmod(numbers, self.board.columns)
            numbers = (self.board.rows - 1 - row) * self.board.columns + column
        return self.board.marker_corners[numbers], uv  # [M, 4, 3], [M, 4, 2]

    def _spread(self, grey: np.ndarray, points: np.ndarray, uv: np.ndarray) -> Corners:
        """From the markers over the board: corners are predicted from what is known close by, settled, and known then.

        A homography holds for an ideal lens only, so each round goes no further than the lens bends little.
        """
        everything = np.arange(len(self.board.corners))
        corners = NONE
        for _ in range(ROUNDS):
            known, known_uv = points, uv
            if len(corners):
                known, known_uv = self.board.corners[corners.ids], corners.uv
                if len(known) < MIN_CORNERS:
                    known, known_uv = np.concatenate([points, known]), np.concatenate([uv, known_uv])
            apart = np.linalg.norm(self.board.corners[:, None] - known[None], axis=2).min(axis=1)
            near = everything[apart < 1.6 * self.board.square]
            mapping = _homography(known, known_uv)
            if mapping is None:
                break
            settled = settle(grey, self.board, near, mapping)
            if len(settled) <= len(corners):
                break
            corners = settled
        return corners if len(corners) >= MIN_CORNERS else NONE


def read_markers(grey: np.ndarray, board: Board, scale: int, equalised: bool) -> dict[int, np.ndarray]:
    """Marker number -> [4, 2] pixels of the picture, read after enlarging it `scale` times."""
    if equalised:
        grey = cv2.createCLAHE(clipLimit=4.0, tileGridSize=(8, 8)).apply(grey)
    if scale > 1:
        grey = cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    found: dict[int, np.ndarray] = {}
    for border in (1, 2) if board.kind == "aprilgrid" else (1,):
        parameters = cv2.aruco.DetectorParameters()
        parameters.markerBorderBits = border
        parameters.adaptiveThreshWinSizeMax = 13 + 10 * scale
        detector = cv2.aruco.ArucoDetector(board.words(), parameters)
        corners, ids, _ = detector.detectMarkers(grey)
        numbers = [] if ids is None else [int(n) for n in np.asarray(ids).ravel()]
        for number, quad in zip(numbers, corners, strict=True):
            if numbers.count(number) == 1:  # a number read twice is wrong once
                uv = pixels_from_integer_centres(np.asarray(quad, dtype=np.float64).reshape(4, 2))
                found.setdefault(number, uv / scale)
    return found


def settle(grey: np.ndarray, board: Board, ids: np.ndarray, mapping: Mapping) -> Corners:
    """Corners `ids` where the picture has them: close to their prediction, between dark and light as printed."""
    points = board.corners[ids]
    uv = mapping(points)
    step = 0.5 * board.square if board.kind != "aprilgrid" else 0.5 * board.marker
    across = mapping(points + np.array([step, 0.0, 0.0])) - uv
    down = mapping(points + np.array([0.0, step, 0.0])) - uv
    # Pixels per square, the shorter way: sqrt of the area would flatter a board seen from the side.
    side = 2 * np.minimum(np.linalg.norm(across, axis=1), np.linalg.norm(down, axis=1))
    height, width = grey.shape
    share = WINDOW if board.kind != "aprilgrid" else TAG_WINDOW
    window = np.clip(np.nan_to_num(share * side), MIN_WINDOW, MAX_WINDOW).astype(int)
    margin = window[:, None] + 2.0
    with np.errstate(invalid="ignore"):
        usable = (uv >= margin).all(1) & (uv <= np.array([width, height]) - margin).all(1) & (side > 6.0)
    ids, points, uv, side, window = (array[usable] for array in (ids, points, uv, side, window))
    if len(ids) == 0:
        return NONE
    settled = uv.copy()
    for size in np.unique(window):
        rows = window == size
        start = integer_centres_from_pixels(uv[rows]).astype(np.float32).reshape(-1, 1, 2)
        ends = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 40, 1e-3)
        refined = cv2.cornerSubPix(grey, start, (int(size), int(size)), (-1, -1), ends)
        settled[rows] = pixels_from_integer_centres(refined[:, 0].astype(np.float64))
    moved = np.linalg.norm(settled - uv, axis=1)
    kept = (moved < MOVED[0] + MOVED[1] * side) & _looks_right(grey, board, points, mapping, settled - uv)
    return Corners(ids[kept], settled[kept])


def _looks_right(grey: np.ndarray, board: Board, points: np.ndarray, mapping: Mapping, moved: np.ndarray) -> np.ndarray:
    """bool [N]: what is printed dark beside the corner is darker than what is printed light."""
    step = PROBE * (board.square if board.kind != "aprilgrid" else board.marker)
    ways = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]) * step  # round the corner
    around = points[:, None] + ways  # [N, 4, 3]
    count = len(points)
    uv = mapping(around.reshape(-1, 3)).reshape(count, 4, 2) + moved[:, None]
    at = integer_centres_from_pixels(uv).astype(np.float32)
    levels = cv2.remap(grey, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE).astype(float)
    if board.kind == "aprilgrid":  # dark inside the tag, light beside it; what is across the corner differs by maker
        inside = np.array([2, 3, 0, 1])[_corner_of(board, points)]
        rows = np.arange(count)
        beside = np.minimum(levels[rows, (inside + 1) % 4], levels[rows, (inside + 3) % 4])
        return np.asarray(beside - levels[rows, inside] > CONTRAST)
    dark = board.dark(around.reshape(-1, 3)).reshape(count, 4)
    darkest_light = np.where(dark, np.inf, levels).min(axis=1)
    lightest_dark = np.where(dark, levels, -np.inf).max(axis=1)
    return np.asarray(darkest_light - lightest_dark > CONTRAST)


def _corner_of(board: Board, points: np.ndarray) -> np.ndarray:
    """Which corner of its tag each point is, 0 to 3."""
    right, lower = (np.mod(points[:, :2] + 1e-9, board.square) > 0.5 * board.marker).T
    return np.where(lower, np.where(right, 2, 3), np.where(right, 1, 0))


def _on_plane(points: np.ndarray, uv: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The markers (points [M, 4, 3], uv [M, 4, 2]) that agree on a plane, as [N, 3] and [N, 2]; None for too few."""
    side = float(np.median(np.linalg.norm(np.diff(uv, axis=1), axis=2)))
    flat, flat_uv = points.reshape(-1, 3), uv.reshape(-1, 2)
    matrix, _ = cv2.findHomography(flat[:, :2], flat_uv, cv2.RANSAC, max(1.5, FIT * side))
    if matrix is None:
        return None
    off = np.linalg.norm(_apply(matrix, flat) - flat_uv, axis=1).reshape(-1, 4).max(axis=1)
    good = off < max(2.0, 1.5 * FIT * side)
    if good.sum() < max(MIN_MARKERS, 0.5 * len(good)):  # misread ones can agree by chance, but not most of many
        return None
    return points[good].reshape(-1, 3), uv[good].reshape(-1, 2)


def _homography(points: np.ndarray, uv: np.ndarray) -> Mapping | None:
    matrix, _ = cv2.findHomography(points[:, :2], uv, 0)
    if matrix is None or not np.isfinite(matrix).all():
        return None
    return lambda more: _apply(matrix, more)


def _apply(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Pixels [N, 2] of board points [N, 3] under a homography [3, 3]; NaN beyond its horizon."""
    mapped = points[:, :2] @ matrix[:, :2].T + matrix[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mapped[:, 2:] > 0, mapped[:, :2] / mapped[:, 2:], np.nan)


def _chessboard(grey: np.ndarray, board: Board) -> Corners:
    """All inner corners of a chessboard without markers, or NONE; numbered by the colour of its first square."""
    size = (board.columns - 1, board.rows - 1)
    found, uv = False, None
    for scale in (1, 2):
        if scale > 1 and scale * scale * grey.size > MAX_PIXELS:
            break
        enlarged = grey if scale == 1 else cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        found, uv = cv2.findChessboardCornersSB(enlarged, size, flags=cv2.CALIB_CB_NORMALIZE_IMAGE)
        if found:
            uv = pixels_from_integer_centres(np.asarray(uv, dtype=np.float64).reshape(-1, 2)) / scale
            break
    if not found:
        return NONE
    best = NONE
    ids = np.arange(len(board.corners))
    grid = np.asarray(uv).reshape(size[1], size[0], 2)
    for order in (grid, grid[::-1, ::-1], grid[:, ::-1], grid[::-1]):
        flat = order.reshape(-1, 2)
        mapping = _homography(board.corners, flat)
        if mapping is None or not _upright(mapping, board):
            continue
        settled = settle(grey, board, ids, mapping)
        if len(settled) > len(best):
            best = settled
    return best if len(best) >= max(MIN_CORNERS, len(ids) // 2) else NONE


def _upright(mapping: Mapping, board: Board) -> bool:
    """Whether the board is seen from its printed side: its outline keeps its sense of rotation."""
    a, b, c, _ = mapping(board.outline)
    (ax, ay), (bx, by) = b - a, c - b
    return bool(ax * by - ay * bx > 0)
