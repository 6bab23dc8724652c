"""What a fixed camera shows where nothing moves: drawn once, copied into every picture.

Only tiles that a mover touches are drawn anew, from the static Gaussians that reach them. Both are exact:

- A mover that adds to a pixel at all has alpha >= alpha_min there, and the first such mover adds to it also when the
  movers are drawn alone. So a pixel left empty by the movers alone is the static set's, bit for bit.
- A Gaussian farther from a tile than its radius adds nothing to it. Leaving it out changes neither the order nor the
  alphas of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from recon.render.types import Rendering

GRID = 8  # regions along a side: 64 of them fit the bits of one integer


class Subset(NamedTuple):
    """What must be drawn anew: rows of the static set (int64), tiles [1, th, tw] bool, pixels [H, W] bool."""

    rows: torch.Tensor
    tiles: torch.Tensor
    pixels: torch.Tensor


class Still:
    """The picture of the static set alone and, per static Gaussian, the regions that it can reach.

    A region is a block of whole tiles; GRID x GRID of them cover the picture.
    """

    def __init__(self, alone: Rendering, tile: int) -> None:
        """`alone` is the static set's rendering, `tile` the rasteriser's tile side in pixels."""
        self.color = alone.color[0]
        height, width = self.color.shape[:2]
        self.tile, self.size = tile, (height, width)
        tiles = -(-max(height, width) // tile)
        self.span = -(-tiles // GRID) * tile  # px, side of a region
        self.reached = self._bits(alone.aux.means2d[0], alone.aux.radii[0])

    def _bits(self, centers: torch.Tensor, radii: torch.Tensor) -> torch.Tensor:
        """[N] int64: bit GRID y + x is set when the square of `radii` around the centre meets region (x, y)."""
        reach = radii.to(torch.float32)[:, None] + 1.0
        first = ((centers - reach) / self.span).floor().clamp(0, GRID - 1).to(torch.int64)
        last = ((centers + reach) / self.span).floor().clamp(0, GRID - 1).to(torch.int64)
        place = torch.arange(GRID, dtype=torch.int64, device=centers.device)
        inside = (place >= first[..., None]) & (place <= last[..., None])  # [N, 2, GRID]
        rows = (inside[:, 0].to(torch.int64) << place).sum(dim=1)  # [N], the bits of one row of regions
        return (torch.where(inside[:, 1], rows[:, None], 0) << (GRID * place)).sum(dim=1)

    def touched(self, movers: Rendering) -> Subset:
        """What the movers, drawn alone, leave to draw."""
        height, width = self.size
        down, across = -(-height // self.tile), -(-width // self.tile)
        padded = torch.zeros((down * self.tile, across * self.tile), dtype=torch.bool, device=self.color.device)
        padded[:height, :width] = movers.alpha[0] > 0
        tiles = padded.view(down, self.tile, across, self.tile).any(dim=3).any(dim=1)
        pixels = tiles.repeat_interleave(self.tile, 0).repeat_interleave(self.tile, 1)[:height, :width]
        y, x = torch.nonzero(tiles, as_tuple=True)
        regions = torch.unique((y * self.tile) // self.span * GRID + (x * self.tile) // self.span)
        mask = (torch.ones_like(regions) << regions).sum()
        return Subset(torch.nonzero(self.reached & mask).squeeze(1), tiles[None], pixels)
