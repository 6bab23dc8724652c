"""The one entry to the rasteriser: check the arguments, pick a backend, draw."""

from __future__ import annotations

import torch
from torch import Tensor

from recon.core.errors import CalibrationError, UsageError
from recon.render.backends import select
from recon.render.types import MAX_SH_DEGREE, RasterConfig, RasterInputs, Rendering

MAX_IMAGE_SIDE = 32768
FLOAT_DTYPES = (torch.float32, torch.float64)  # device-lint: allow M06 (float64 only when the caller brings it)


def rasterize(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    *,
    sh_degree: int | None = None,
    background: Tensor | None = None,
    config: RasterConfig | None = None,
    backend: str = "auto",
    tile_mask: Tensor | None = None,
) -> Rendering:
    """Draw N Gaussians from C views.

    means: [N, 3] world positions, metres.
    quats: [N, 4] wxyz, any positive length. scales: [N, 3] standard deviations, metres. opacities: [N] in [0, 1].
    colors: [N, 3] RGB; with `sh_degree` 0..3, SH coefficients [N, K, 3], K >= (sh_degree + 1)^2, whose colour is
        max(0, 0.5 + sum of coefficient * basis). Coefficients above `sh_degree` are ignored.
    viewmats: [C, 4, 4] cam_from_world, OpenCV axes (+z forward), rigid.
    Ks: [C, 3, 3] pixels, no skew; the centre of the first pixel is (0.5, 0.5). width, height: pixels.
    background: [3] or [C, 3], shown through what transmittance is left; None is black.
    config: constants of the model; None is `RasterConfig()`.
    backend: "auto" (native on the CPU for float32, else reference), "cpu" or "reference".
    tile_mask: bool [C, ceil(height / tile_size), ceil(width / tile_size)]; only True tiles are drawn, the others show
        the bare background, with alpha and depth 0.

    Returns a Rendering, differentiable in means, quats, scales, opacities, colors, viewmats and background (with
    "reference" in Ks too). Gaussians that cannot be drawn (non-finite values, zero quaternion, outside near/far or the
    image) are left out and get zero gradients. Pose gradients treat the rotation block R of a viewmat as nine free
    numbers, with the camera centre at -R^T t.

    Raises UsageError for wrong shapes, dtypes or devices; CalibrationError for cameras that are not finite pinholes;
    UnavailableError when `backend` cannot run here.
    """
    inputs = check_inputs(
        RasterInputs(
            means, quats, scales, opacities, colors, viewmats, Ks, width, height, sh_degree, background, tile_mask,
            RasterConfig() if config is None else config,
        )
    )  # fmt: skip
    tile_size = inputs.config.tile_size
    chosen = select(backend, means.device, means.dtype, intrinsics_grad=Ks.requires_grad, tile_size=tile_size)
    return chosen.rasterize(inputs)


def check_inputs(inputs: RasterInputs) -> RasterInputs:
    """The same inputs with `background` expanded to [C, 3]; UsageError when something does not fit."""
    count = _check_gaussians(inputs)
    views = _check_cameras(inputs)
    for name in ("quats", "scales", "opacities", "colors", "viewmats", "Ks", "background"):
        tensor = getattr(inputs, name)
        if tensor is not None and (tensor.dtype != inputs.means.dtype or tensor.device != inputs.means.device):
            got, want = f"{tensor.dtype} on {tensor.device}", f"{inputs.means.dtype} on {inputs.means.device}"
            raise UsageError(f"rasterize: {name} is {got}", why=f"means is {want}", fix="use one dtype and one device")
    _check_colors(inputs, count)
    _check_tile_mask(inputs, views)
    if inputs.background is None:
        return inputs
    if tuple(inputs.background.shape) not in ((3,), (views, 3)):
        _wrong_shape("background", inputs.background, f"[3] or [{views}, 3]")
    fields = {name: getattr(inputs, name) for name in RasterInputs.__dataclass_fields__}
    return RasterInputs(**{**fields, "background": inputs.background.expand(views, 3)})


def _check_gaussians(inputs: RasterInputs) -> int:
    """N, after checking the shapes of the Gaussian tensors and the common dtype."""
    means = inputs.means
    if means.ndim != 2 or means.shape[1] != 3:
        _wrong_shape("means", means, "[N, 3]")
    if means.dtype not in FLOAT_DTYPES:
        raise UsageError(f"rasterize: means is {means.dtype}", why="only float32 and float64 are drawn")
    count = means.shape[0]
    for name, width in (("quats", 4), ("scales", 3)):
        if tuple(getattr(inputs, name).shape) != (count, width):
            _wrong_shape(name, getattr(inputs, name), f"[{count}, {width}]")
    if tuple(inputs.opacities.shape) != (count,):
        _wrong_shape("opacities", inputs.opacities, f"[{count}]")
    return count


def _check_colors(inputs: RasterInputs, count: int) -> None:
    colors, degree = inputs.colors, inputs.sh_degree
    if degree is None:
        if tuple(colors.shape) != (count, 3):
            _wrong_shape("colors", colors, f"[{count}, 3] (pass sh_degree for SH coefficients)")
        return
    if not 0 <= degree <= MAX_SH_DEGREE:
        raise UsageError(f"rasterize: sh_degree is {degree}", why=f"degrees 0 to {MAX_SH_DEGREE} exist", fix="lower it")
    if colors.ndim != 3 or colors.shape[0] != count or colors.shape[2] != 3:
        _wrong_shape("colors", colors, f"[{count}, K, 3] with sh_degree={degree}")
    if colors.shape[1] < (degree + 1) ** 2:
        why = f"sh_degree={degree} needs {(degree + 1) ** 2} coefficients, colors has {colors.shape[1]}"
        raise UsageError("rasterize: too few SH coefficients", why=why, fix="lower sh_degree or widen colors")


def _check_cameras(inputs: RasterInputs) -> int:
    """C, after checking that every camera is a finite pinhole camera and the image size is sane."""
    viewmats, Ks = inputs.viewmats, inputs.Ks
    if viewmats.ndim != 3 or tuple(viewmats.shape[1:]) != (4, 4):
        _wrong_shape("viewmats", viewmats, "[C, 4, 4]")
    views = viewmats.shape[0]
    if tuple(Ks.shape) != (views, 3, 3):
        _wrong_shape("Ks", Ks, f"[{views}, 3, 3]")
    if not (1 <= inputs.width <= MAX_IMAGE_SIDE and 1 <= inputs.height <= MAX_IMAGE_SIDE):
        why = f"{inputs.width} x {inputs.height} pixels"
        raise UsageError("rasterize: bad image size", why=why, fix=f"use sides from 1 to {MAX_IMAGE_SIDE}")
    # One small copy to the host: 25 numbers per view decide whether the whole call makes sense.
    poses, intrinsics = viewmats.detach().cpu(), Ks.detach().cpu()
    bad_pose = ~torch.isfinite(poses).flatten(1).all(1)
    bad_k = ~torch.isfinite(intrinsics).flatten(1).all(1)
    bad_k |= (intrinsics[:, 0, 0] <= 0) | (intrinsics[:, 1, 1] <= 0) | (intrinsics[:, 0, 1] != 0)
    if bool(bad_pose.any()):
        view = int(bad_pose.nonzero()[0])
        why = "the pose holds NaN or Inf"
        raise CalibrationError(f"rasterize: viewmats[{view}] is not finite", why=why, fix="check the calibration")
    if bool(bad_k.any()):
        view = int(bad_k.nonzero()[0])
        why = "it must be finite, with positive focal lengths and no skew"
        raise CalibrationError(f"rasterize: Ks[{view}] is not a pinhole matrix", why=why, fix="check the calibration")
    return views


def _check_tile_mask(inputs: RasterInputs, views: int) -> None:
    mask = inputs.tile_mask
    if mask is None:
        return
    expected = (views, *inputs.config.tile_grid(inputs.width, inputs.height))
    if tuple(mask.shape) != expected:
        _wrong_shape("tile_mask", mask, str(list(expected)))
    if mask.dtype != torch.bool or mask.device != inputs.means.device:
        got = f"{mask.dtype} on {mask.device}"
        raise UsageError(f"rasterize: tile_mask is {got}", why=f"it must be bool on {inputs.means.device}")


def _wrong_shape(name: str, tensor: Tensor, expected: str) -> None:
    raise UsageError(f"rasterize: {name} has shape {list(tensor.shape)}", why=f"expected {expected}")
