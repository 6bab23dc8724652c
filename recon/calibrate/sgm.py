"""Semi-global matching: a depth for every pixel, plain ones included, from a volume of matching scores.

Along each of eight directions r, with the cost C(p, d) of pixel p at plane d,

    L_r(p, d) = C(p, d) + min(L_r(q, d), L_r(q, d - 1) + P1, L_r(q, d + 1) + P1, min_k L_r(q, k) + P2) - min_k L_r(q, k)

where q = p - r is the pixel before (Hirschmueller 2008). The depth of least sum over r wins. P1 lets surfaces slant; P2
lets depth jump, more cheaply where the picture has an edge. In a plain area no plane is better than another, and the
paths carry the depth of its borders in.
"""

from __future__ import annotations

import numpy as np

SLANT = 0.04  # P1, in units of the score
JUMP = 1.0  # P2 where the picture is plain
EDGE = 8.0  # grey levels: P2 = max(2 P1, JUMP EDGE / (EDGE + |difference|))

DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1))  # (row, column) steps


def semi_global(cost: np.ndarray, grey: np.ndarray) -> np.ndarray:
    """Sum of the path costs, float32 [D, h, w], of `cost` [D, h, w] (0 = matches) under the picture `grey` [h, w]."""
    planes_last = np.ascontiguousarray(np.moveaxis(cost, 0, -1), dtype=np.float32)  # [h, w, D]
    total = np.zeros_like(planes_last)
    for step in DIRECTIONS:
        _add_paths(total, planes_last, grey.astype(np.float32), step)
    return np.ascontiguousarray(np.moveaxis(total, -1, 0))


def _add_paths(total: np.ndarray, cost: np.ndarray, grey: np.ndarray, step: tuple[int, int]) -> None:
    """Add L_r of one direction to `total` [h, w, D]; a whole row or column of paths advances at once."""
    if step[0] == 0:  # along rows: the same as along columns of the transposed picture
        _add_paths(total.swapaxes(0, 1), cost.swapaxes(0, 1), grey.T, (step[1], 0))
        return
    height = cost.shape[0]
    order = range(height) if step[0] > 0 else range(height - 1, -1, -1)
    before: np.ndarray | None = None
    last = 0
    for row in order:
        here = np.ascontiguousarray(cost[row])  # [w, D]
        if before is not None:
            previous, shade = _shifted(before, grey[last], step[1])
            here = here + _cheapest_step(previous, np.abs(grey[row] - shade))
        total[row] += here
        before, last = here, row


def _shifted(path: np.ndarray, shade: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Path costs [w, D] and grey levels [w] of the pixel before; a path that enters at the side starts at cost 0."""
    if columns == 0:
        return path, shade
    moved, moved_shade = np.zeros_like(path), shade.copy()
    if columns > 0:
        moved[1:], moved_shade[1:] = path[:-1], shade[:-1]
    else:
        moved[:-1], moved_shade[:-1] = path[1:], shade[1:]
    return moved, moved_shade


def _cheapest_step(path: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """min(...) - min_k [w, D] of the recursion."""
    least = path.min(axis=1, keepdims=True)
    jump = np.maximum(2 * SLANT, JUMP * EDGE / (EDGE + difference))[:, None]
    best = np.minimum(path, least + jump)
    np.minimum(best[:, 1:], path[:, :-1] + SLANT, out=best[:, 1:])
    np.minimum(best[:, :-1], path[:, 1:] + SLANT, out=best[:, :-1])
    return best - least
