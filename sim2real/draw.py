"""Pictures of the simulated scene: one set of static Gaussians shared by all environments, movers posed from physics.

A fixed camera sees the static set from one place only, so its colours there are computed once, and the Gaussians that
can never be seen are left out. That is exact: a static Gaussian kept out contributes to no pixel and stops no pixel,
whatever else moves (see `seen_by`). Of what is left, only what something moving touches is drawn again (natively blocks
of 4x4 pixels, see recon/render/native/backdrop.h; elsewhere tiles, see still.py). Pictures are bit for bit those of the
full set; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recon.geometry.camera import Camera
from recon.geometry.quaternion import quat_normalize, quat_to_matrix
from recon.geometry.sh import SH_C1, eval_sh, sh0_to_rgb, sh_degree
from recon.render.api import rasterize
from recon.render.backends import CPU, select_name
from recon.render.stage import Backdrop, Gaussians, MoverSet, Pinhole, Worlds, view_colors
from recon.render.types import RasterConfig, Rendering
from sim2real.bodies import Look, painted
from sim2real.primitives import disc_of, quats_along, unit_sphere
from sim2real.still import Still

if TYPE_CHECKING:
    from recon.robot import RobotModel
    from recon.scene.gaussians import Gaussians as Table
    from sim2real.physics import Marker, World

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
ROBOT_POINTS = 3000  # surface Gaussians of the whole robot
MARKER_POINTS = 96
AMBIENT = 0.6  # share of a mover's colour that does not depend on where its surface faces
RASTER = RasterConfig()
_NOTHING = torch.zeros(0, dtype=torch.int64, device="cpu")


@dataclass(frozen=True)
class Splats:
    """Activated Gaussians: means [N, 3] m, quats [N, 4] wxyz, scales [N, 3] m, opacities [N], sh [N, K, 3]."""

    means: torch.Tensor
    quats: torch.Tensor
    scales: torch.Tensor
    opacities: torch.Tensor
    sh: torch.Tensor

    def __len__(self) -> int:
        return len(self.means)


class Poses(NamedTuple):
    """Bodies of one environment as MuJoCo gives them: xpos [B, 3] m, xquat [B, 4] wxyz, xmat [B, 9]."""

    positions: Array
    quats: Array
    matrices: Array


@dataclass(frozen=True)
class Movers:
    """Gaussians in the frames of bodies, float32 arrays.

    body [M]: rows of MuJoCo's pose tables. means [M, 3] m, quats [M, 4] wxyz unit, normals [M, 3] (the third axis),
    scales [M, 3] m, opacities [M], rgb [M, 3] before shading. The last rows, as many as `sh` has, are captured: their
    light is in their colours, which `sh` [m, 3, 3] (spherical harmonics of degree 1) turns with the view.
    """

    body: NDArray[np.int64]
    means: Floats
    quats: Floats
    normals: Floats
    scales: Floats
    opacities: Floats
    rgb: Floats
    sh: Floats = field(default_factory=lambda: np.zeros((0, 3, 3), np.float32))

    def __len__(self) -> int:
        return len(self.means)

    @cached_property
    def native(self) -> MoverSet:
        """The same for the native code, which poses them to the bits of `posed`."""
        return MoverSet(
            self.body, self.means, self.quats, self.normals, self.scales, self.opacities, self.rgb, self.sh, AMBIENT
        )

    def carrying(self, values: Floats) -> MoverSet:
        """The same for the native code with other numbers [M, 3] in the place of colours, whatever the light."""
        none = np.zeros((0, 3, 3), np.float32)
        return MoverSet(
            self.body, self.means, self.quats, self.normals, self.scales, self.opacities, values, none, ambient=1.0
        )

    def posed(self, poses: Poses, eye: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        """World means [M, 3], quats [M, 4] and shaded rgb [M, 3] for the poses of all bodies, seen from `eye` [3] m.

        Element by element in a fixed order, so that a row does not depend on what else is posed with it.
        """
        p = poses.positions.astype(np.float32)[self.body]
        q_body = poses.quats.astype(np.float32)[self.body]
        rotation = poses.matrices.astype(np.float32).reshape(-1, 3, 3)[self.body]
        x, y, z = self.means[:, :1], self.means[:, 1:2], self.means[:, 2:]
        # mu' = P mu + p
        means = rotation[:, :, 0] * x + rotation[:, :, 1] * y + rotation[:, :, 2] * z + p
        # q' = q_P q (Hamilton)
        w0, x0, y0, z0 = q_body.T
        w1, x1, y1, z1 = self.quats.T
        turned = np.empty_like(self.quats)
        turned[:, 0] = w0 * w1 - x0 * x1 - y0 * y1 - z0 * z1
        turned[:, 1] = w0 * x1 + x0 * w1 + y0 * z1 - z0 * y1
        turned[:, 2] = w0 * y1 - x0 * z1 + y0 * w1 + z0 * x1
        turned[:, 3] = w0 * z1 + x0 * y1 - y0 * x1 + z0 * w1
        # light from above, on the surface's normal
        n, up = self.normals, rotation[:, 2]
        facing = up[:, 0] * n[:, 0] + up[:, 1] * n[:, 1] + up[:, 2] * n[:, 2]
        shade = np.float32(AMBIENT) + np.float32(1 - AMBIENT) * (np.float32(0.5) + np.float32(0.5) * facing)
        if len(self.sh) == 0:
            return means, turned, self.rgb * shade[:, None]
        first = len(means) - len(self.sh)
        shade[first:] = 1
        rgb = self.rgb * shade[:, None]
        if eye is not None:
            rgb[first:] += self._turned_light(means[first:] - eye, rotation[first:])
        return means, turned, np.maximum(rgb, np.float32(0))

    def _turned_light(self, away: Floats, rotation: Floats) -> Floats:
        """[m, 3] what degree 1 adds, seen along `away` [m, 3], bodies turned by `rotation` [m, 3, 3]."""
        # d = R^T away / |away|, in the body's frame; -y, z, -x as in recon.geometry.sh
        length = np.sqrt(away[:, 0] ** 2 + away[:, 1] ** 2 + away[:, 2] ** 2)
        x, y, z = (
            (rotation[:, 0, k] * away[:, 0] + rotation[:, 1, k] * away[:, 1] + rotation[:, 2, k] * away[:, 2]) / length
            for k in range(3)
        )
        a, b, c = self.sh[:, 0], self.sh[:, 1], self.sh[:, 2]
        return np.float32(SH_C1) * (-y[:, None] * a + z[:, None] * b - x[:, None] * c)


@dataclass(frozen=True)
class View:
    """A fixed pinhole camera with the static Gaussians it can see, coloured. gain: RGB affine (M, b) or None."""

    camera: Camera
    viewmat: torch.Tensor  # [1, 4, 4]
    K: torch.Tensor  # [1, 3, 3]
    static: Splats
    rgb: torch.Tensor  # [N, 3]
    gain: tuple[torch.Tensor, torch.Tensor] | None


def static_splats(gaussians: Table, device: torch.device | str = "cpu") -> Splats:
    """The activated static rows (kind 0) of a scene's table."""
    keep = gaussians.kind == 0
    return Splats(
        means=gaussians.means[keep].detach().to(device, torch.float32).contiguous(),
        quats=gaussians.quats[keep].detach().to(device, torch.float32).contiguous(),
        scales=gaussians.log_scales[keep].detach().exp().to(device, torch.float32).contiguous(),
        opacities=gaussians.logit_opacities[keep].detach().sigmoid().to(device, torch.float32).contiguous(),
        sh=gaussians.sh[keep].detach().to(device, torch.float32).contiguous(),
    )


def robot_movers(robot: RobotModel, world: World, seed: int = 0) -> Movers:
    """Surface Gaussians of the robot's links, of the task's markers and things, as movers of `world`'s bodies."""
    from recon.robot.surface import surface_gaussians

    parts: list[list[NDArray[Any]]] = []
    for name, g in surface_gaussians(robot, ROBOT_POINTS, seed).items():
        body = world.model.body(name).id
        arrays = (g.means, g.quats, np.exp(g.log_scales), 1 / (1 + np.exp(-g.logit_opacities)), g.colours)
        parts.append([np.full(len(g.means), body), *arrays])
    for m in world.markers:
        shown = _looks(painted(disc_of(m.radius), m.color)) if m.flat else _sphere(m)
        parts.append([np.full(len(shown[0]), world.model.body(m.name).id), *shown])
    captured = [thing for thing in world.things if not thing.look.lit]
    for thing in [*(t for t in world.things if t.look.lit), *captured]:
        parts.append([np.full(len(thing.look.means), world.model.body(thing.node).id), *_looks(thing.look)])
    rows, means, quats, scales, opacities, rgb = (np.concatenate(column) for column in zip(*parts, strict=True))
    normals = quat_to_matrix(quat_normalize(quats))[..., 2]
    columns = (means, quat_normalize(quats), normals, scales, opacities, rgb)
    light = [np.zeros((0, 3, 3)), *(_first_degree(thing.look.sh) for thing in captured)]
    movers = Movers(rows.astype(np.int64), *(np.ascontiguousarray(a, np.float32) for a in columns))
    return replace(movers, sh=np.ascontiguousarray(np.concatenate(light), np.float32))


def _looks(look: Look) -> tuple[Array, Array, Array, Array, Array]:
    return look.means, look.quats, look.scales, look.opacities, np.asarray(sh0_to_rgb(look.sh[:, 0]), float)


def _first_degree(sh: Array) -> Array:
    """[M, 3, 3] coefficients 1 to 3; zeros where there are none. Bodies have no higher ones."""
    return sh[:, 1:4] if sh.shape[1] >= 4 else np.zeros((len(sh), 3, 3))


def _sphere(marker: Marker) -> tuple[Array, Array, Array, Array, Array]:
    """Flat Gaussians on a sphere (Fibonacci lattice), their third axis along the normal."""
    normal = unit_sphere(MARKER_POINTS)
    spacing = marker.radius * math.sqrt(4 * np.pi / MARKER_POINTS)
    scales = np.tile([0.6 * spacing, 0.6 * spacing, 0.1 * spacing], (MARKER_POINTS, 1))
    return (
        marker.radius * normal,
        quats_along(normal),
        scales,
        np.full(MARKER_POINTS, 0.98),
        np.tile(marker.color, (MARKER_POINTS, 1)),
    )


def make_view(
    camera: Camera,
    static: Splats,
    gain: tuple[Array, Array] | None = None,
    *,
    cull: bool = True,
    backend: str = "auto",
) -> View:
    """Prepare a fixed camera. `gain` (M [3, 3], b [3]) is its colour response; cull=False keeps the full set."""
    device = static.means.device
    viewmat = torch.tensor(camera.cam_from_world, dtype=torch.float32, device=device)[None].contiguous()
    K = torch.tensor(camera.K, dtype=torch.float32, device=device)[None].contiguous()
    rgb = seen_colors(static, camera, backend)
    affine = None
    if gain is not None:
        affine = tuple(torch.as_tensor(np.asarray(a), dtype=torch.float32, device=device) for a in gain)
    view = View(camera, viewmat, K, static, rgb, affine)  # type: ignore[arg-type]
    if not cull or len(static) == 0:
        return view
    keep = seen_by(view, backend)
    kept = Splats(*(getattr(static, f)[keep].contiguous() for f in ("means", "quats", "scales", "opacities", "sh")))
    return replace(view, static=kept, rgb=rgb[keep].contiguous())


def seen_colors(static: Splats, camera: Camera, backend: str = "auto") -> torch.Tensor:
    """[N, 3] the static set's colours from where the camera stands; natively the bits that a moving camera sees."""
    device, degree = static.means.device, sh_degree(static.sh.shape[1])
    if select_name(backend, device, static.means.dtype) == CPU:
        return view_colors(static.means, static.sh, degree, pinhole_of(camera).viewmat)
    center = torch.tensor(camera.center, dtype=torch.float32, device=device)
    directions = torch.nn.functional.normalize(static.means - center, dim=1)
    return (eval_sh(degree, static.sh, directions) + 0.5).clamp_min(0.0)


def seen_by(view: View, backend: str = "auto") -> torch.Tensor:
    """Which static Gaussians can matter to this view whatever moves in it. [N] bool.

    With movers in between, the transmittance T in front of a static Gaussian is at most what it is without them. So one
    that contributes with movers (T >= t_min) contributes without; and the one at which a pixel stops
    (T >= t_min > T (1 - alpha), alpha <= alpha_max) would be drawn without movers under the lower limit
    t_min (1 - alpha_max). Rendering the static set alone with that limit finds both kinds: they have a weight > 0.
    """
    limit = 0.9 * RASTER.transmittance_min * (1 - RASTER.alpha_max)
    static = view.static
    colors = view.rgb.clone().requires_grad_(True)
    picture = rasterize(
        static.means,
        static.quats,
        static.scales,
        static.opacities,
        colors,
        view.viewmat,
        view.K,
        view.camera.width,
        view.camera.height,
        config=replace(RASTER, transmittance_min=limit),
        backend=backend,
    )
    picture.color.sum().backward()
    assert colors.grad is not None
    return colors.grad.abs().sum(dim=1) > 0


class Painter:
    """Draws one view of one world after another; what never changes is laid out, or drawn, once.

    `render` draws everything, the slow twin of all else here: the other pictures are its bits. They come from a native
    backdrop where the rasteriser is native, and tile by tile (still.py) elsewhere.
    """

    def __init__(self, view: View, movers: Movers, backend: str = "auto") -> None:
        self.view, self.movers, self.backend = view, movers, backend
        device = view.viewmat.device
        self.native = select_name(backend, device, view.rgb.dtype) == CPU
        self._scales = torch.from_numpy(movers.scales).to(device, torch.float32)
        self._opacities = torch.from_numpy(movers.opacities).to(device, torch.float32)
        self._eye = view.camera.center.astype(np.float32)
        self._still: Still | None = None
        self._plain: dict[tuple[float, ...], Backdrop] = {}

    @cached_property
    def backdrop(self) -> Backdrop:
        """The still set as this camera sees it. Only where the rasteriser is native."""
        gain = self.view.gain
        response = None if gain is None else (gain[0].numpy(), gain[1].numpy())
        return Backdrop(self._columns(self.view.rgb), pinhole_of(self.view.camera), RASTER, response)

    def _columns(self, colors: torch.Tensor) -> Gaussians:
        still = self.view.static
        return Gaussians(still.means, still.quats, still.scales, still.opacities, colors)

    def render(self, poses: Poses) -> Rendering:
        """One picture of one environment, everything drawn: colour, alpha and depth."""
        return self._draw(None, self._posed(poses))

    def color(self, poses: Poses) -> torch.Tensor:
        """[H, W, 3] the colour of `render`, bit for bit; drawn anew only where something moves."""
        if self.native:
            made = self.backdrop.draw(self.movers.native, one_world(poses), "color").color
            assert made is not None
            return torch.from_numpy(made[0])
        if self._still is None:
            self._still = Still(self._draw(None, None), RASTER.tile_size)
        moving = self._posed(poses)
        subset = self._still.touched(self._draw(_NOTHING, moving))
        drawn = self._draw(subset.rows, moving, subset.tiles).color[0]
        return torch.where(subset.pixels[..., None], drawn, self._still.color)

    def picture(self, poses: Poses) -> NDArray[np.uint8]:
        """[H, W, 3] uint8 sRGB as this camera shows it."""
        return self.pictures(one_world(poses))[0]

    def pictures(self, worlds: Worlds) -> NDArray[np.uint8]:
        """[E, H, W, 3] the same of many worlds."""
        if self.native:
            made = self.backdrop.draw(self.movers.native, worlds, "rgb").rgb
            assert made is not None
            return made
        return np.stack([as_bytes(self.shown(world)) for world in each_world(worlds)])

    def depths(self, worlds: Worlds) -> Floats:
        """[E, H, W] m along the optical axis of what is seen; 0 where nothing is."""
        if self.native:
            made = self.backdrop.draw(self.movers.native, worlds, "depth").depth
            assert made is not None
            return made
        return np.stack([self.render(world).depth[0].cpu().numpy() for world in each_world(worlds)])

    def blended(self, worlds: Worlds, still: Floats, values: Floats) -> tuple[Floats, Floats]:
        """Other numbers in the place of colours: [E, H, W, 3] their sum over what is seen, and alpha [E, H, W].

        still [3] or [N, 3]: of the static set; values [M, 3]: of the movers.
        """
        if self.native and still.ndim == 1:
            key = tuple(still.tolist())
            if key not in self._plain:
                columns = self._columns(torch.from_numpy(still).expand(len(self.view.static), 3).contiguous())
                self._plain[key] = Backdrop(columns, pinhole_of(self.view.camera), RASTER)
            made = self._plain[key].draw(self.movers.carrying(values), worlds, "color", "alpha")
            assert made.color is not None and made.alpha is not None
            return made.color, made.alpha
        device, count = self.view.viewmat.device, len(self.view.static)
        behind = torch.from_numpy(still).to(device, torch.float32).expand(count, 3)
        carried = torch.from_numpy(values).to(device, torch.float32)
        drawn = [self._draw(None, (*self._posed(world)[:4], carried), still=behind) for world in each_world(worlds)]
        color, alpha = torch.cat([d.color for d in drawn]), torch.cat([d.alpha for d in drawn])
        return color.cpu().numpy(), alpha.cpu().numpy()

    def cameras(self, worlds: Worlds) -> list[Camera]:
        """Where the camera stands in each world."""
        return [self.view.camera] * len(worlds)

    def shown(self, poses: Poses) -> torch.Tensor:
        """[H, W, 3] float32 the picture before it is cut to bytes."""
        return responded(self.color(poses), self.view.gain)

    def _posed(self, poses: Poses) -> tuple[torch.Tensor, ...]:
        """The movers' means, quats, scales, opacities and colours."""
        device = self.view.viewmat.device
        moved = self.movers.posed(poses, self._eye)
        means, quats, rgb = (torch.from_numpy(a).to(device, torch.float32) for a in moved)
        return means, quats, self._scales, self._opacities, rgb

    def _draw(
        self,
        rows: torch.Tensor | None,
        moving: tuple[torch.Tensor, ...] | None,
        tiles: torch.Tensor | None = None,
        still: torch.Tensor | None = None,
    ) -> Rendering:
        """The static set (in its colours, or `still` [N, 3]), or only its `rows`, then the movers if there are any."""
        camera = self.view.camera
        columns: tuple[torch.Tensor, ...] = self._columns(self.view.rgb if still is None else still)[:5]
        if rows is not None:
            columns = tuple(column.index_select(0, rows.to(column.device)) for column in columns)
        if moving is not None:
            columns = tuple(torch.cat(pair) for pair in zip(columns, moving, strict=True))
        means, quats, scales, opacities, rgb = columns
        with torch.no_grad():
            return rasterize(
                means, quats, scales, opacities, rgb, self.view.viewmat, self.view.K, camera.width, camera.height,
                config=RASTER, backend=self.backend, tile_mask=tiles,
            )  # fmt: skip


def responded(color: torch.Tensor, gain: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    """[..., 3] colours through a camera's response (M [3, 3], b [3])."""
    if gain is None:
        return color
    # channel by channel: independent of how a matrix product would split the picture
    matrix, offset = gain
    return sum(color[..., i : i + 1] * matrix[:, i] for i in range(3)) + offset


def as_bytes(color: torch.Tensor) -> NDArray[np.uint8]:
    """The colours cut to [0, 1] and rounded to uint8."""
    return (color.clamp(0.0, 1.0) * 255.0 + 0.5).to(torch.uint8).cpu().numpy()


def pinhole_of(camera: Camera) -> Pinhole:
    """The camera as the native code takes it."""
    viewmat, K, eye = (np.ascontiguousarray(a, np.float32) for a in (camera.cam_from_world, camera.K, camera.center))
    return Pinhole(viewmat, K, eye, camera.width, camera.height)


def each_world(worlds: Worlds) -> Iterator[Poses]:
    """Every environment of a table of many."""
    return (Poses(*(table[i] for table in worlds)) for i in range(len(worlds)))


def one_world(poses: Poses) -> Worlds:
    """One environment as a table of one."""
    return Worlds(*(table[None] for table in poses))
