"""The rasteriser in plain torch: any device, float32 or float64, every gradient by autograd.

It is the oracle the native backends are tested against, and what draws on devices without a kernel of their own.
Nothing here is clever except the batching of tiles, which bounds memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from recon.geometry.quaternion import quat_to_matrix
from recon.geometry.sh import eval_sh
from recon.render.types import Aux, RasterConfig, RasterInputs, Rendering

ZERO_QUAT = 1e-24  # squared length at or below which a quaternion has no direction
CLAMP_MARGIN = 0.15  # of the image size: how far outside the image x/z may still tilt the Jacobian
COMPENSATION_MIN = 0.005  # floor of the antialiasing factor
PAIRS_PER_BATCH = 1 << 18  # pixel-Gaussian pairs blended at once: about ten temporaries of this many numbers
PAIRS_TO_KEEP = 1 << 23  # a view with more pairs is blended again in the backward pass rather than kept in memory


class Splats(NamedTuple):
    """The Gaussians of one view, on its image plane."""

    means2d: Tensor  # [M, 2] pixels
    conics: Tensor  # [M, 3] (A, B, C): the inverse covariance is [[A, B], [B, C]], in 1 / square pixels
    depths: Tensor  # [M] metres
    opacities: Tensor  # [M] after antialiasing
    extents: Tensor  # [M, 2] pixels: half sides of the box around alpha >= alpha_min


class Tiles(NamedTuple):
    """The Gaussians of tile k are members[starts[k] : starts[k] + counts[k]], nearest first."""

    members: Tensor  # int64 [instances], indices into Splats
    starts: Tensor  # int64 [rows * columns]
    counts: Tensor  # int64 [rows * columns]


class ReferenceBackend:
    """Pure torch rasteriser; see `recon.render.api.rasterize` for what it draws."""

    name = "reference"

    def rasterize(self, inputs: RasterInputs) -> Rendering:
        """Draw every view, one after the other."""
        views, count = inputs.viewmats.shape[0], inputs.means.shape[0]
        new = inputs.means.detach().new_zeros
        visible = torch.zeros((views, count), dtype=torch.bool, device=inputs.means.device)
        aux = Aux(visible, new((views, count)), new((views, count, 2)), new((views, count)))
        images = [_rasterize_view(inputs, view, aux) for view in range(views)]
        if not images:
            size = (0, inputs.height, inputs.width)
            return Rendering(new((*size, 3)), new(size), new(size), aux)
        color, alpha, depth = (torch.stack(layer) for layer in zip(*images, strict=True))
        return Rendering(color, alpha, depth, aux)


def _rasterize_view(inputs: RasterInputs, view: int, aux: Aux) -> tuple[Tensor, Tensor, Tensor]:
    """Colour [H, W, 3], alpha [H, W] and depth [H, W] of one view; fills row `view` of `aux`."""
    gaussians = (inputs.means, inputs.quats, inputs.scales, inputs.opacities)
    camera = (inputs.viewmats[view], inputs.Ks[view], inputs.width, inputs.height)
    # First everything is projected without gradients, to see what can be drawn; then only that, differentiably. So a
    # NaN in a Gaussian that is left out cannot reach any gradient.
    with torch.no_grad():
        splats = project(gaussians, *camera, inputs.config)
        usable = _usable(inputs, splats)
        index = usable.nonzero().squeeze(1)
    aux.visible[view] = usable
    aux.radii[view, index] = splats.extents[index].amax(1).ceil()
    aux.means2d[view, index] = splats.means2d[index]

    splats = project(tuple(tensor[index] for tensor in gaussians), *camera, inputs.config)
    if splats.means2d.requires_grad:
        norms = aux.means2d_grad_norm[view]
        splats.means2d.register_hook(lambda grad: _store_norms(norms, index, grad))
    colors = view_colors(inputs.means[index], inputs.colors[index], camera[0], inputs.sh_degree)
    features = torch.cat([colors, splats.depths[:, None], torch.ones_like(splats.depths)[:, None]], 1)

    rows, columns = inputs.config.tile_grid(inputs.width, inputs.height)
    mask = torch.ones((rows, columns), dtype=torch.bool, device=index.device)
    mask = mask if inputs.tile_mask is None else inputs.tile_mask[view]
    blended = _blend_image(splats, features, mask, inputs.config, inputs.needs_grad)[: inputs.height, : inputs.width]
    color, summed_depth, alpha = blended[..., :3], blended[..., 3], blended[..., 4]
    if inputs.background is not None:
        color = color + (1.0 - alpha)[..., None] * inputs.background[view]
    covered = alpha > 0
    depth = torch.where(covered, summed_depth / torch.where(covered, alpha, 1.0), 0.0)
    return color, alpha, depth


def project(
    gaussians: tuple[Tensor, ...], viewmat: Tensor, K: Tensor, width: int, height: int, config: RasterConfig
) -> Splats:
    """Project (means, quats, scales, opacities) to first order (EWA). Rows that cannot be drawn may come out as NaN."""
    means, quats, scales, opacities = gaussians
    x, y, z = (means @ viewmat[:3, :3].T + viewmat[:3, 3]).unbind(1)
    fx, fy, cx, cy = K[0, 0], K[1, 1], K[0, 2], K[1, 2]
    means2d = torch.stack([fx * x / z + cx, fy * y / z + cy], 1)

    # J = d(u, v)/d(x, y, z) at the mean. Its last column explodes far outside the image: there x/z, y/z are clamped.
    margin_x, margin_y = CLAMP_MARGIN * width / fx, CLAMP_MARGIN * height / fy
    tan_x = torch.clamp(x / z, -cx / fx - margin_x, (width - cx) / fx + margin_x)
    tan_y = torch.clamp(y / z, -cy / fy - margin_y, (height - cy) / fy + margin_y)
    zero = torch.zeros_like(z)
    row_u = torch.stack([fx / z, zero, -fx * tan_x / z], 1)
    row_v = torch.stack([zero, fy / z, -fy * tan_y / z], 1)

    # Sigma = (R S)(R S)^T, so the covariance on the image is A A^T with A = J W R S, rows a and b.
    # det(A A^T) = |a x b|^2, and adding eps to the diagonal gives det + eps * trace + eps^2: no cancellation.
    axes = viewmat[:3, :3] @ quat_to_matrix(quats) * scales[:, None, :]
    a = (row_u[:, :, None] * axes).sum(1)
    b = (row_v[:, :, None] * axes).sum(1)
    raw_uu, raw_uv, raw_vv = (a * a).sum(1), (a * b).sum(1), (b * b).sum(1)
    raw_det = torch.linalg.cross(a, b).square().sum(1)
    det = raw_det + config.eps2d * (raw_uu + raw_vv) + config.eps2d**2
    var_u, var_v = raw_uu + config.eps2d, raw_vv + config.eps2d
    conics = torch.stack([var_v / det, -raw_uv / det, var_u / det], 1)

    if config.antialiased:
        opacities = opacities * torch.sqrt(torch.clamp(raw_det / det, min=COMPENSATION_MIN**2))
    # alpha >= alpha_min inside the ellipse d^T conic d <= t, whose box has half sides sqrt(t var).
    level = 2.0 * torch.log(opacities.detach() / config.alpha_min)
    extents = torch.sqrt(level[:, None] * torch.stack([var_u, var_v], 1).detach())
    return Splats(means2d, conics, z, opacities, extents)


def view_colors(means: Tensor, colors: Tensor, viewmat: Tensor, sh_degree: int | None) -> Tensor:
    """RGB [N, 3] as seen from the camera: `colors` itself, or max(0, 0.5 + SH towards the Gaussian)."""
    if sh_degree is None:
        return colors
    center = -viewmat[:3, :3].T @ viewmat[:3, 3]
    rays = means - center
    dirs = rays / rays.norm(dim=1, keepdim=True)
    return torch.clamp(eval_sh(sh_degree, colors[:, : (sh_degree + 1) ** 2], dirs) + 0.5, min=0.0)


def _usable(inputs: RasterInputs, splats: Splats) -> Tensor:
    """bool [N]: finite, inside the depth range, strong enough to be seen, and touching the image."""
    opacities, colors = inputs.opacities[:, None], inputs.colors.flatten(1)
    given = torch.cat([inputs.means, inputs.quats, inputs.scales, opacities, colors], 1)
    projected = torch.cat([splats.means2d, splats.conics, splats.opacities[:, None], splats.extents], 1)
    quat_length = inputs.quats.square().sum(1)
    usable = torch.isfinite(given).all(1) & torch.isfinite(projected).all(1)
    usable &= (quat_length > ZERO_QUAT) & torch.isfinite(quat_length)
    usable &= (splats.depths > inputs.config.near) & (splats.depths < inputs.config.far)
    usable &= splats.opacities >= inputs.config.alpha_min
    size = inputs.means.new_tensor([inputs.width, inputs.height])
    low, high = splats.means2d - splats.extents, splats.means2d + splats.extents
    return usable & ((high > 0) & (low < size)).all(1)


def _store_norms(norms: Tensor, index: Tensor, grad: Tensor | None) -> None:
    if grad is not None:
        norms[index] = grad.detach().norm(dim=1)


def assign_tiles(splats: Splats, rows: int, columns: int, mask: Tensor, config: RasterConfig) -> Tiles:
    """For every tile the Gaussians whose box touches it, by depth, then by index. Masked-out tiles stay empty."""
    device = splats.depths.device
    order = torch.argsort(splats.depths.detach(), stable=True)
    means2d, extents = splats.means2d.detach()[order], splats.extents[order]
    # One pixel of slack: the box only has to be large enough, the alpha_min test decides per pixel.
    limit = means2d.new_tensor([columns, rows])
    first = ((means2d - extents - 1.0) / config.tile_size).floor().clamp(min=0.0).minimum(limit - 1).long()
    last = ((means2d + extents + 1.0) / config.tile_size).floor().clamp(min=0.0).minimum(limit - 1).long()
    span = last - first + 1  # [M, 2] columns, rows
    touched = span[:, 0] * span[:, 1]
    owner = torch.repeat_interleave(torch.arange(len(order), device=device), touched)
    step = torch.arange(len(owner), device=device) - (touched.cumsum(0) - touched)[owner]
    column = first[owner, 0] + step % span[owner, 0]
    row = first[owner, 1] + torch.div(step, span[owner, 0], rounding_mode="floor")
    tile = row * columns + column
    wanted = mask.flatten()[tile]
    tile, members = tile[wanted], order[owner[wanted]]
    by_tile = torch.argsort(tile, stable=True)
    counts = torch.bincount(tile, minlength=rows * columns)
    return Tiles(members[by_tile], counts.cumsum(0) - counts, counts)


def _batches(counts: list[int], pixels: int) -> Iterator[list[int]]:
    """Groups of tiles with similar counts, each within the pair budget.

    Always at least one group, if empty: the image then still hangs on the inputs, with zero gradients.
    """
    order = sorted((tile for tile, count in enumerate(counts) if count), key=counts.__getitem__, reverse=True)
    start = 0
    while True:
        longest = counts[order[start]] if order else 1
        stop = start + max(1, PAIRS_PER_BATCH // (longest * pixels))
        yield order[start:stop]
        start = stop
        if start >= len(order):
            return


def _blend_image(splats: Splats, features: Tensor, mask: Tensor, config: RasterConfig, needs_grad: bool) -> Tensor:
    """Blend `features` [M, F] into an image [rows * tile, columns * tile, F]; zero where nothing was drawn."""
    rows, columns = mask.shape
    size, device = config.tile_size, features.device
    tiles = assign_tiles(splats, rows, columns, mask, config)
    recompute = needs_grad and len(tiles.members) * size * size > PAIRS_TO_KEEP
    # A Gaussian of opacity 0 at the end fills up the shorter lists of a batch.
    table = torch.cat([splats.means2d, splats.conics, splats.opacities[:, None], features], 1)
    table = torch.cat([table, table.new_zeros((1, table.shape[1]))])
    members = torch.cat([tiles.members, tiles.members.new_tensor([len(features)])])
    offsets = torch.arange(size, device=device, dtype=features.dtype) + 0.5
    in_tile = torch.stack([offsets.repeat(size), offsets.repeat_interleave(size)], 1)  # [P, 2] pixel centres

    drawn, blended = [], []
    for group in _batches(tiles.counts.tolist(), size * size):
        ids = torch.tensor(group, device=device, dtype=torch.long)
        counts = tiles.counts[ids]
        lane = torch.arange(int(counts[0]) if group else 0, device=device)  # the first tile has the longest list
        slots = torch.where(lane < counts[:, None], tiles.starts[ids][:, None] + lane, len(members) - 1)
        corners = torch.stack([ids % columns, torch.div(ids, columns, rounding_mode="floor")], 1) * size
        pixels = corners[:, None, :] + in_tile
        drawn.append(ids)
        blended.append(_blend_batch(table, members[slots], pixels, config, recompute))
    canvas = features.new_zeros((rows * columns, size * size, features.shape[1]))
    canvas = canvas.index_copy(0, torch.cat(drawn), torch.cat(blended))
    return canvas.view(rows, columns, size, size, -1).transpose(1, 2).reshape(rows * size, columns * size, -1)


def _blend_batch(table: Tensor, members: Tensor, pixels: Tensor, config: RasterConfig, recompute: bool) -> Tensor:
    """`_blend`, over parts of the pixels when one list alone exceeds the budget; `recompute`: keep nothing."""
    parts = []
    for part in pixels.split(max(1, PAIRS_PER_BATCH // max(1, members.numel())), 1):
        if recompute:
            result = checkpoint(_blend, table, members, part, config, use_reentrant=False, preserve_rng_state=False)
        else:
            result = _blend(table, members, part, config)
        parts.append(result)
    return torch.cat(parts, 1)


def _blend(table: Tensor, members: Tensor, pixels: Tensor, config: RasterConfig) -> Tensor:
    """Front to back blending of the Gaussians `members` [B, G], nearest first, at `pixels` [B, P, 2]: [B, P, F].

    d = mean - pixel; power = -(A dx^2 + C dy^2) / 2 - B dx dy; a = min(alpha_max, o exp(power)), skipped when below
    alpha_min; T_k = product over earlier ones of (1 - a); stop before T would fall under transmittance_min;
    result = sum of a_k T_k feature_k.
    """
    rows = table[members]
    u, v, conic_a, conic_b, conic_c, opacity = (column[:, None, :] for column in rows[..., :6].unbind(2))
    dx, dy = u - pixels[:, :, None, 0], v - pixels[:, :, None, 1]  # [B, P, G]
    power = -0.5 * (conic_a * dx * dx + conic_c * dy * dy) - conic_b * dx * dy
    alpha = torch.clamp(opacity * torch.exp(torch.clamp(power, max=0.0)), max=config.alpha_max)
    alpha = torch.where((power <= 0.0) & (alpha >= config.alpha_min), alpha, 0.0)
    after = torch.cumprod(1.0 - alpha, 2)  # transmittance behind each one; never increases: the kept ones are a prefix
    before = torch.cat([torch.ones_like(after[..., :1]), after[..., :-1]], 2)
    weights = torch.where(after >= config.transmittance_min, alpha * before, 0.0)
    return weights @ rows[..., 6:]
