"""Fewer static Gaussians for small pictures: those that lie within a pixel or so of each other become one.

Not exact, so it is off unless asked for, and what it costs is measured (`loss`). Gaussians are put into cells of side
`pixels` as the camera sees it from where it is (or, riding, where it may come to); those smaller than their cell are
merged by their moments, with the weight w_i = opacity_i x area_i of the two longest axes:

    mean m = sum w_i m_i / W,  covariance = sum w_i (C_i + (m_i - m)(m_i - m)^T) / W,  opacity = W / area, at most MOST
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recon.core.errors import UsageError
from recon.geometry.quaternion import matrix_to_quat, quat_normalize, quat_to_matrix
from recon.render.losses import psnr
from recon.render.stage import Worlds
from sim2real.draw import Painter, Splats, each_world, one_world
from sim2real.rider import Rider

if TYPE_CHECKING:
    from sim2real.workcell import Workcell

Array = NDArray[np.float64]
log = logging.getLogger(__name__)

MOST = 0.99  # opacity of what is merged
NEAREST = 0.05  # m: nothing is taken for nearer to the camera
COARSEST = 8.0  # px


class Loss(NamedTuple):
    """What a coarser set costs and saves: PSNR in dB against all Gaussians, and how many of each there are."""

    psnr: float
    gaussians: int
    of: int


def check_detail(pixels: float) -> float:
    """The size of a cell, px. Raises UsageError when it is none."""
    if not 0 <= pixels <= COARSEST:
        raise UsageError(f"detail is {pixels} px", why=f"0 (all Gaussians) to {COARSEST:g} px can be")
    return pixels


def coarser(static: Splats, eye: Array, focal: float, pixels: float, roam: float = 0.0) -> Splats:
    """The static set for a camera at `eye` [3] m of `focal` px that may come `roam` m nearer to anything.

    Its rows: what stays as it is, in order, then what was merged. 0 pixels leave everything as it is.
    """
    if pixels == 0 or len(static) == 0:
        return static
    means, quats, scales, opacities, sh = (_array(getattr(static, f)) for f in Splats.__dataclass_fields__)
    distance = np.maximum(np.linalg.norm(means - eye, axis=1) - roam, NEAREST)
    # sides are powers of two, so that neighbours at slightly other distances still share a cell
    level = np.floor(np.log2(pixels * distance / focal))
    side = 2.0**level
    small = scales.max(axis=1) < side
    key = np.column_stack([level[:, None], np.floor(means / side[:, None])])[small]
    _, cell, size = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    cell = cell.reshape(-1)
    alone = ~small
    alone[np.flatnonzero(small)[size[cell] == 1]] = True
    many = ~alone
    if not many.any():
        return static
    _, group = np.unique(cell[many[small]], return_inverse=True)
    columns = (means[many], quats[many], scales[many], opacities[many], sh[many])
    merged = _merged(*columns, group.reshape(-1), int(group.max()) + 1)
    kept = (means[alone], quats[alone], scales[alone], opacities[alone], sh[alone])
    device = static.means.device
    both = (np.concatenate(pair).astype(np.float32) for pair in zip(kept, merged, strict=True))
    return Splats(*(torch.from_numpy(np.ascontiguousarray(a)).to(device, torch.float32) for a in both))


def _merged(
    means: Array, quats: Array, scales: Array, opacities: Array, sh: Array, group: NDArray[np.int64], count: int
) -> tuple[Array, Array, Array, Array, Array]:
    """One Gaussian per group: means, quats, scales, opacities, sh."""

    def total(values: Array) -> Array:
        flat = values.reshape(len(values), -1)
        columns = [np.bincount(group, flat[:, k], minlength=count) for k in range(flat.shape[1])]
        found: Array = np.stack(columns, axis=1).astype(np.float64).reshape(count, *values.shape[1:])
        return found

    weight = np.maximum(opacities * _areas(scales), 1e-12)
    whole = total(weight)
    mean = total(weight[:, None] * means) / whole[:, None]
    axes = quat_to_matrix(quat_normalize(quats)) * scales[:, None, :]
    away = means - mean[group]
    spread = axes @ axes.transpose(0, 2, 1) + away[:, :, None] * away[:, None, :]
    values, vectors = np.linalg.eigh(total(weight[:, None, None] * spread) / whole[:, None, None])
    vectors[np.linalg.det(vectors) < 0, :, 0] *= -1
    size = np.sqrt(np.maximum(values, 1e-12))
    light = total(weight[:, None, None] * sh) / whole[:, None, None]
    return mean, matrix_to_quat(vectors), size, np.minimum(whole / _areas(size), MOST), light


def _areas(scales: Array) -> Array:
    """[N] m^2: product of the two greatest of [N, 3]."""
    ordered = np.sort(scales, axis=1)
    product: Array = ordered[:, 1] * ordered[:, 2]
    return product


def _array(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def losses(cell: Workcell, painters: Mapping[str, Painter | Rider], size: int) -> dict[str, Loss]:
    """What every camera loses, by its name, with the arm at rest. Said in the log."""
    found = {}
    for name, painter in painters.items():
        found[name] = loss(painter, cell.painter(name, size, cull=False), one_world(cell.resting()))
        log.info("detail: camera %s draws %d of %d static Gaussians, PSNR %.1f dB against all of them",
                 name, found[name].gaussians, found[name].of, found[name].psnr)  # fmt: skip
    return found


def loss(coarse: Painter | Rider, full: Painter | Rider, worlds: Worlds) -> Loss:
    """How far the pictures of these worlds through `coarse` are from those through `full`."""
    apart = [psnr(coarse.shown(world).clamp(0, 1), full.shown(world).clamp(0, 1)) for world in each_world(worlds)]
    count = [len(p.static) if isinstance(p, Rider) else len(p.view.static) for p in (coarse, full)]
    return Loss(float(np.mean([float(value) for value in apart])), count[0], count[1])
