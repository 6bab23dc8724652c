"""Backdrops and whole worlds against `rasterize` of everything at once: the same bits, always."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from recon.core.errors import UsageError
from recon.render import RasterConfig, rasterize
from recon.render.backends import cpu
from recon.render.stage import Backdrop, Gaussians, MoverSet, Pinhole, Worlds, draw_anew, view_colors

DEGREE = 2


@pytest.fixture(autouse=True)
def best_target() -> Iterator[None]:
    yield
    cpu.set_target(None)
    cpu.set_threads(0)


def still_set(count: int, seed: int) -> Gaussians:
    """Half of them at one of eight depths, so that ties decide."""
    random = torch.Generator().manual_seed(seed)
    means = torch.randn(count, 3, generator=random)
    means[::2, 2] = torch.randint(0, 8, (len(means[::2]),), generator=random) / 4.0
    return Gaussians(
        means, torch.randn(count, 4, generator=random), 0.05 * torch.randn(count, 3, generator=random).exp(),
        0.02 + 0.97 * torch.rand(count, generator=random), 0.4 * torch.randn(count, 9, 3, generator=random), DEGREE,
    )  # fmt: skip


def mover_set(count: int, seed: int) -> tuple[MoverSet, Gaussians]:
    """Movers of a body at the origin, and where they then are. They carry their light, none by direction."""
    random = torch.Generator().manual_seed(1000 + seed)
    means = 0.3 * torch.randn(count, 3, generator=random)
    means[::2, 2] = torch.randint(-2, 4, (len(means[::2]),), generator=random) / 4.0
    quats = torch.nn.functional.normalize(torch.randn(count, 4, generator=random), dim=1)
    scales = 0.03 * torch.randn(count, 3, generator=random).exp()
    opacities, rgb = torch.rand(count, generator=random), torch.rand(count, 3, generator=random)
    columns = [a.numpy() for a in (means, quats, torch.zeros(count, 3), scales, opacities, rgb)]
    movers = MoverSet(np.ones(count, np.int64), *columns, np.zeros((count, 3, 3), np.float32), 0.6)
    return movers, Gaussians(means, quats, scales, opacities, rgb)


def worlds_at(places: list[list[float]]) -> Worlds:
    """Two bodies each, of which the second stands at a place."""
    positions = np.zeros((len(places), 2, 3))
    positions[:, 1] = places
    return Worlds(
        positions, np.tile([1.0, 0, 0, 0], (len(places), 2, 1)), np.tile(np.eye(3).ravel(), (len(places), 2, 1))
    )


def camera(width: int, height: int, shift: float = 0.0) -> Pinhole:
    viewmat = np.eye(4, dtype=np.float32)
    viewmat[:3, 3] = shift, 0, 3
    K = np.array([[0.9 * width, 0, 0.5 * width], [0, 0.9 * width, 0.45 * height], [0, 0, 1]], np.float32)
    return Pinhole(viewmat, K, -viewmat[:3, 3], width, height)


def everything(still: Gaussians, movers: Gaussians, place: list[float], view: Pinhole) -> dict[str, Tensor]:
    rgb = view_colors(still.means, still.colors, DEGREE, view.viewmat)
    columns = [torch.cat(pair) for pair in zip((*still[:4], rgb), movers[:5], strict=True)]
    columns[0][len(still.means) :] += torch.tensor(place)
    viewmat, K = (torch.from_numpy(a)[None] for a in (view.viewmat, view.K))
    drawn = rasterize(*columns, viewmat, K, view.width, view.height, backend="cpu")
    return {name: getattr(drawn, name)[0] for name in ("color", "alpha", "depth")}


@pytest.mark.parametrize("target", cpu.targets() if cpu.unavailable_reason() is None else [])
@pytest.mark.parametrize(("width", "height", "count"), [(64, 48, 600), (50, 37, 3000), (3, 5, 40), (130, 33, 1)])
def test_a_backdrop_and_a_whole_draw_give_the_bits_of_everything_at_once(
    width: int, height: int, count: int, target: str
) -> None:
    cpu.set_target(target)
    still, (movers, posed) = still_set(count, count), mover_set(70, width)
    places = [[0.0, 0.0, 0.0], [0.4, -0.3, 0.75], [0.1, 0.1, -2.0], [9.0, 0.0, 0.0]]
    view = camera(width, height)
    rgb = view_colors(still.means, still.colors, DEGREE, view.viewmat)
    for threads in (1, 3):
        cpu.set_threads(threads)
        backdrop = Backdrop(still._replace(colors=rgb, sh_degree=None), view, RasterConfig())
        worlds = worlds_at(places)
        cached = backdrop.draw(movers, worlds, "color", "alpha", "depth", "rgb")
        anew = draw_anew(still, movers, worlds, [view] * 4, RasterConfig(), "color", "alpha", "depth", "rgb")
        for i, place in enumerate(places):
            wanted = everything(still, posed, place, view)
            for name, picture in wanted.items():
                assert torch.equal(torch.from_numpy(getattr(cached, name)[i]), picture), (name, i)
                assert torch.equal(torch.from_numpy(getattr(anew, name)[i]), picture), (name, i)
            rgb_wanted = (wanted["color"].clamp(0, 1) * 255 + 0.5).to(torch.uint8).numpy()
            assert np.array_equal(cached.rgb[i], rgb_wanted) and np.array_equal(anew.rgb[i], rgb_wanted)
    assert 0 < backdrop.kept <= count


def test_sh_colours_are_those_of_the_rasteriser() -> None:
    still, view = still_set(500, 3), camera(64, 48, 0.3)
    viewmat, K = (torch.from_numpy(a)[None] for a in (view.viewmat, view.K))
    whole = rasterize(*still[:5], viewmat, K, 64, 48, sh_degree=DEGREE, backend="cpu").color
    rgb = view_colors(still.means, still.colors, DEGREE, view.viewmat)
    assert torch.equal(rasterize(*still[:4], rgb, viewmat, K, 64, 48, backend="cpu").color, whole)


def test_a_colour_response_is_applied_before_rounding() -> None:
    still, (movers, _) = still_set(400, 5), mover_set(50, 1)
    gain = (np.array([[0.5, 0.1, 0], [0, 0.8, 0.3], [0.2, 0, 1.6]]), np.array([0.1, 0.0, -0.05]))
    made = Backdrop(still, camera(40, 30), RasterConfig(), gain).draw(movers, worlds_at([[0.0] * 3]), "rgb", "color")
    expected = np.clip(made.color.astype(float) @ gain[0].T + gain[1], 0, 1) * 255
    assert made.rgb.astype(float) == pytest.approx(expected, abs=0.501)
    assert len(np.unique(made.rgb)) > 50


def test_what_does_not_fit_is_refused() -> None:
    still, (movers, _) = still_set(40, 5), mover_set(5, 1)
    view, worlds = camera(20, 20), worlds_at([[0.0] * 3])
    backdrop = Backdrop(still, view, RasterConfig())
    with pytest.raises(UsageError, match="no such pictures: colour"):
        backdrop.draw(movers, worlds, "colour")
    with pytest.raises(UsageError, match="1 worlds and 2 cameras"):
        draw_anew(still, movers, worlds, [view] * 2, RasterConfig(), "rgb")
    with pytest.raises(UsageError, match="do not belong together"):
        Backdrop(still._replace(means=still.means[:7]), view, RasterConfig())
    with pytest.raises(ValueError, match="more bodies than the poses"):
        backdrop.draw(movers, Worlds(*(table[:, :1] for table in worlds)), "rgb")
