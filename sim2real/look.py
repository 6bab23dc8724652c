"""How one episode looks through one camera: where the camera really is, and what light, lens and sensor do.

Everything is drawn from the episode's own seed by (seed, step, purpose), so the same scenario looks the same whichever
environment plays it, and nothing here moves anything in the scene.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from recon.core.seeding import numpy_generator
from recon.geometry.camera import Camera
from recon.geometry.pose import so3_exp
from recon.geometry.sh import SH_C0
from recon.geometry.srgb import to_encoded, to_linear
from sim2real.draw import Painter, Poses, Splats, View, make_view
from sim2real.rider import Rider
from sim2real.tasks.variation import Randomize

if TYPE_CHECKING:
    from sim2real.bench import Bench
    from sim2real.draw import Movers

Array = NDArray[np.float64]
Floats = NDArray[np.float32]

ROUND = 0.05  # m around and below the table that count as the table, not as background


@dataclass(frozen=True, eq=False)
class Look:
    """shift [3] m and turn [3] rad of the camera, in its own axes; zoom: factor on its focal length.

    gains [3]: factors on linear red, green and blue. gamma: exponent on the encoded picture. blur px and noise (of full
    scale): standard deviations. backdrop: (share, dark [3], bright [3]) colours that replace what lies off the table.
    """

    shift: Array
    turn: Array
    zoom: float
    gains: Array
    gamma: float
    blur: float
    noise: float
    backdrop: tuple[float, Array, Array]

    @property
    def elsewhere(self) -> bool:
        """Whether the picture must be drawn anew, not only changed."""
        return bool(self.shift.any() or self.turn.any() or self.zoom != 1 or self.backdrop[0])


def draw_look(seed: int, camera: str, spec: Randomize) -> Look:
    """The look of the episode with that seed through that camera. Light and backdrop are the same in all cameras."""
    rng = numpy_generator(seed, 0, f"look/camera/{camera}")
    turn = np.radians(spec.camera.rotation_deg) * rng.uniform(-1, 1, 3)
    shift = spec.camera.position * rng.uniform(-1, 1, 3)
    zoom = 1 + spec.camera.focal * float(rng.uniform(-1, 1))
    blur, noise = spec.sensor.blur_px * float(rng.uniform()), spec.sensor.noise * float(rng.uniform())
    rng = numpy_generator(seed, 0, "look/light")
    stops = spec.light.exposure_ev * rng.uniform(-1, 1)
    balance = 1 + spec.light.white_balance * rng.uniform(-1, 1, 2)
    gamma = 1 + spec.light.gamma * float(rng.uniform(-1, 1))
    share, tint = spec.light.tint * rng.uniform(), rng.uniform(0, 1, 3)
    gains = 2**stops * np.array([balance[0], 1.0, balance[1]]) * (1 - share + share * tint)
    backdrop = (spec.background * float(rng.uniform()), rng.uniform(0, 1, 3), rng.uniform(0, 1, 3))
    return Look(shift, turn, zoom, gains, gamma, blur, noise, backdrop)


def moved_camera(camera: Camera, look: Look) -> Camera:
    """The pinhole camera where it really is."""
    pose = camera.cam_from_world.copy()
    # in the camera's own axes: x' = R x + t
    rotation = so3_exp(look.turn)
    pose[:3, :3], pose[:3, 3] = rotation @ pose[:3, :3], rotation @ pose[:3, 3] + look.shift
    return replace(camera, cam_from_world=pose, fx=camera.fx * look.zoom, fy=camera.fy * look.zoom)


def painter_of(
    look: Look, base: Painter | Rider, static: Splats, movers: Movers, bench: Bench, gain: tuple[Array, Array] | None
) -> Painter | Rider:
    """`base`, or where the look needs it one of its own, over the whole static set."""
    if not look.elsewhere:
        return base
    if isinstance(base, Rider):
        around = base.static  # as coarse as it is
        if look.backdrop[0]:
            around = replace(around, sh=_sh_with_backdrop(around, look, bench))
        return Rider(moved_camera(base.camera, look), base.body, around, movers, base.backend)
    view = make_view(moved_camera(base.view.camera, look), static, gain, cull=False, backend=base.backend)
    return Painter(_with_backdrop(view, look, bench), movers, base.backend)


def _with_backdrop(view: View, look: Look, bench: Bench) -> View:
    share, dark, bright = look.backdrop
    if share == 0:
        return view
    rgb = view.rgb
    low, high = (torch.tensor(c, dtype=torch.float32, device=rgb.device) for c in (dark, bright))
    grey = rgb.mean(dim=1, keepdim=True)
    mixed = (1 - share) * rgb + share * (low + (high - low) * grey)
    return replace(view, rgb=torch.where(_off_table(view.static, bench)[:, None], mixed, rgb))


def _sh_with_backdrop(static: Splats, look: Look, bench: Bench) -> torch.Tensor:
    """[N, K, 3] coefficients whose colours are mixed as `_with_backdrop` mixes colours: the mixing is linear."""
    share, dark, bright = look.backdrop
    sh, device = static.sh, static.sh.device
    low, span = (torch.tensor(c, dtype=torch.float32, device=device) for c in (dark, bright - dark))
    mixed = (1 - share) * sh + share * span * sh.mean(dim=2, keepdim=True)
    # colours are 0.5 + C0 sh: low + span grey is then 0.5 + (low + span / 2 - 0.5) + span C0 mean(sh)
    mixed[:, 0] += share * (low + span / 2 - 0.5) / SH_C0
    return torch.where(_off_table(static, bench)[:, None, None], mixed, sh).contiguous()


def _off_table(static: Splats, bench: Bench) -> torch.Tensor:
    """[N] bool: neither on the table nor around it."""
    means = static.means.detach().cpu().numpy().astype(np.float64)
    level = np.column_stack([means[:, :2], np.full(len(means), bench.table.center[2])])
    off = ~bench.table.contains(level, ROUND) | (means[:, 2] < bench.top - ROUND)
    return torch.from_numpy(off).to(static.means.device, torch.bool)


def developed(
    look: Look, painter: Painter | Rider, poses: Poses, seed: int, step: int, camera: str
) -> NDArray[np.uint8]:
    """[H, W, 3] uint8: the picture through light, lens and sensor. step: of the episode, for the noise."""
    picture = painter.shown(poses).clamp(0.0, 1.0).cpu().numpy().astype(np.float32)
    light = to_linear(picture) * look.gains.astype(np.float32)
    if look.blur > 0:
        light = _blurred(light, look.blur)
    if look.noise > 0:
        draws = numpy_generator(seed, step, f"look/noise/{camera}").standard_normal(light.shape, np.float32)
        light = light + np.float32(look.noise) * draws
    encoded = to_encoded(np.clip(light, 0.0, 1.0))
    if look.gamma != 1:
        encoded = encoded ** np.float32(look.gamma)
    return (encoded * np.float32(255) + np.float32(0.5)).astype(np.uint8)


def _blurred(picture: Floats, sigma: float) -> Floats:
    """Gaussian blur out to three standard deviations, mirrored at the edges."""
    side = 2 * max(1, int(np.ceil(3 * sigma))) + 1
    found: Floats = cv2.GaussianBlur(picture, (side, side), sigma, borderType=cv2.BORDER_REFLECT)
    return found
