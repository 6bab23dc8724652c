"""Few values that stand for many: 256 numbers for a column, some thousand vectors for a table's colour bands."""

from __future__ import annotations

import numpy as np
import torch

SIZE = 256  # entries of a codebook
SAMPLES = 1 << 20  # values that a codebook is made from
ROUNDS = 20
COARSE, FINE_ROUNDS = 256, 6  # first split of a palette; rounds of each split
TRAINING = 1 << 18  # vectors that the first split is found with
PIECE = 1 << 15  # vectors compared at once


def scalar_codebook(values: np.ndarray) -> np.ndarray:
    """[256] float32, ascending, near which the `values` (any shape) lie: they themselves when there are no more."""
    flat = values.ravel()
    step = -(-len(flat) // SAMPLES)
    x = np.sort(flat[::step].astype(np.float64))
    x[0], x[-1] = flat.min(), flat.max()
    kinds = np.unique(flat if len(flat) <= SAMPLES else x)
    if len(kinds) <= SIZE:
        return np.pad(kinds, (0, SIZE - len(kinds)), mode="edge").astype(np.float32)
    # Lloyd's rounds on sorted values: a cell is a range, its mean a difference of running sums. Half the first centres
    # follow the density, half the extent, so that few large values are not rounded to the many small ones.
    sums = np.concatenate([[0.0], np.cumsum(x)])
    by_rank = x[np.linspace(0, len(x) - 1, SIZE // 2).astype(np.int64)]
    centres = np.sort(np.concatenate([by_rank, np.linspace(x[0], x[-1], SIZE // 2)]))
    for _ in range(ROUNDS):
        edges = np.concatenate([[0], np.searchsorted(x, (centres[1:] + centres[:-1]) / 2), [len(x)]])
        counts = np.diff(edges)
        means = np.diff(sums[edges]) / np.maximum(counts, 1)
        centres = np.sort(np.where(counts > 0, means, centres))
    return centres.astype(np.float32)


def nearest(codebook: np.ndarray, values: np.ndarray) -> np.ndarray:
    """uint8, of the shape of `values`: the index of the nearest entry of an ascending codebook [256]."""
    middles = (codebook[1:].astype(np.float64) + codebook[:-1]) / 2
    return np.searchsorted(middles, values).astype(np.uint8)


def palette(rows: np.ndarray, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(centres [P, D], label [N] of each row's centre), P <= size, of float32 `rows` [N, D].

    Rows are kept as they are when there are no more than `size`. Else k-means in two steps: groups, then centres in
    each, as many as its rows' share; the cost is that of two small k-means.
    """
    if len(rows) <= size:
        return rows, np.arange(len(rows))
    generator = torch.Generator(device="cpu").manual_seed(seed)
    x = torch.from_numpy(rows)
    if size <= COARSE:
        centres, label = _k_means(x, size, generator)
        return centres.numpy(), label.numpy()
    _, group = _k_means(x, COARSE, generator)
    order = torch.argsort(group, stable=True)
    counts = torch.bincount(group, minlength=COARSE)
    found, labels, used, start = [], torch.empty(len(rows), dtype=torch.int64, device=x.device), 0, 0
    for count in counts.tolist():
        members = order[start : start + count]
        start += count
        share = min(count, count * size // len(rows))
        if count == 0:
            continue
        centres, label = _k_means(x[members], max(1, share), generator)
        labels[members] = label + used
        found.append(centres)
        used += len(centres)
    return torch.cat(found).numpy(), labels.numpy()


def _k_means(x: torch.Tensor, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """(centres [size, D], labels [N]) after a few of Lloyd's rounds from random rows."""
    pick = torch.randperm(len(x), generator=generator, device=x.device)
    centres = x[pick[:size]].clone()
    training = x[pick[:TRAINING]]
    for _ in range(FINE_ROUNDS):
        label = _closest(training, centres)
        sums = torch.zeros_like(centres).index_add_(0, label, training)
        counts = torch.bincount(label, minlength=size)[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return centres, _closest(x, centres)


def _closest(x: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    # |x - c|^2 = |x|^2 - 2 x c + |c|^2, of which |x|^2 decides nothing
    half = 0.5 * (centres * centres).sum(1)
    return torch.cat([(half - piece @ centres.T).argmin(1) for piece in x.split(PIECE)])
