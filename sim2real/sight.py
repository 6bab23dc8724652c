"""What the cameras of N environments give: colours, and what only a simulator knows: depth, bodies, motion."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from recon.core.errors import UsageError, did_you_mean
from recon.geometry.camera import Camera, project
from recon.render.stage import Worlds
from sim2real.draw import Movers, Painter, Poses, each_world
from sim2real.look import Look, developed
from sim2real.rider import Rider

if TYPE_CHECKING:
    from sim2real.variety import Variety
    from sim2real.workcell import Workcell

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

log = logging.getLogger(__name__)

SIGHTS = ("rgb", "depth", "segmentation", "flow")
STILL, NOTHING = 0, -1  # in a segmentation: the scene that does not move, and where nothing is drawn
NEAREST = 0.02  # m: what is nearer has no place in the picture


class Sight:
    """Pictures of every kind in `kinds` through every camera of `painters`.

    rgb: uint8 [N, H, W, 3]. depth: float32 [N, H, W], m along the optical axis, 0 where nothing is seen. segmentation:
    int32 [N, H, W], the body that most of the pixel shows (see `names`). flow: float32 [N, H, W, 2], px by which what
    a pixel shows has moved in the picture (right, down) since the step before; 0 in the first picture of an episode.
    """

    def __init__(
        self,
        cell: Workcell,
        variety: Variety,
        painters: dict[str, Painter | Rider],
        kinds: Sequence[str],
        size: int,
    ) -> None:
        for kind in kinds:
            if kind not in SIGHTS:
                raise UsageError(f"cameras do not give {kind!r}", fix=did_you_mean(kind, SIGHTS))
        self.cell, self.variety, self.painters, self.kinds = cell, variety, painters, tuple(dict.fromkeys(kinds))
        self.size = size
        self.blind = np.zeros(len(variety.seeds), bool)  # where the last picture could not be drawn
        count, bodies = len(variety.seeds), cell.world.model.nbody
        # poses as they were seen in the step before
        self._before = np.zeros((count if "flow" in self.kinds else 0, bodies, 16))

    def names(self) -> dict[int, str]:
        """What the numbers of a segmentation stand for."""
        model = self.cell.world.model
        own = {thing.node: thing.name for thing in self.cell.world.things}
        shown = {int(b): model.body(int(b)).name for b in np.unique(self.cell.movers.body)}
        return {NOTHING: "nothing", STILL: "scene"} | {b: own.get(name, name) for b, name in shown.items()}

    def spaces(self) -> dict[str, gymnasium.Space[Any]]:
        """The space of each kind, by camera."""
        box, most, size = gymnasium.spaces.Box, self.cell.world.model.nbody, self.size
        space: dict[str, gymnasium.Space[Any]] = {
            "rgb": box(0, 255, (size, size, 3), np.uint8),
            "depth": box(0, np.inf, (size, size), np.float32),
            "segmentation": box(NOTHING, most, (size, size), np.int32),
            "flow": box(-np.inf, np.inf, (size, size, 2), np.float32),
        }
        if not self.painters:
            return {}
        return {kind: gymnasium.spaces.Dict(dict.fromkeys(self.painters, space[kind])) for kind in self.kinds}

    # ------------------------------------------------------------------ time

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What later pictures depend on, by name; rows stand for environments."""
        return {"before": self._before} if "flow" in self.kinds else {}

    def restart(self, rows: Rows, poses: list[Array]) -> None:
        """Nothing was seen before in these environments."""
        if "flow" in self.kinds:
            self._before[rows] = np.concatenate(self.variety.tables(poses), axis=2)[rows]

    def tick(self, poses: list[Array]) -> None:
        """Keep what is seen now: a step follows."""
        self.restart(np.arange(len(self.variety.seeds)), poses)

    # ------------------------------------------------------------------ pictures

    def observe(
        self, poses: list[Array], elapsed: Rows, rows: Rows | None, base: dict[str, Any] | None
    ) -> dict[str, dict[str, NDArray[Any]]]:
        """By kind and camera. With `rows` only those environments are looked at, the others copied from `base`."""
        found: dict[str, dict[str, NDArray[Any]]] = {kind: {} for kind in self.kinds if self.painters}
        self.blind[slice(None) if rows is None else rows] = False
        for name in self.painters:
            for kind, pictures in self._through(name, poses, elapsed, rows).items():
                if rows is not None and base is not None:
                    whole = base[kind][name].copy()
                    whole[rows] = pictures
                    pictures = whole
                found[kind][name] = pictures
        return found

    def _through(self, camera: str, poses: list[Array], elapsed: Rows, rows: Rows | None) -> dict[str, NDArray[Any]]:
        """The pictures of one camera, environments with the same painter together."""
        which = np.arange(len(elapsed)) if rows is None else rows
        tables = self.variety.tables(poses)
        eyes = [self.variety.eye(row, camera) for row in which.tolist()]
        groups: dict[int, list[int]] = {}
        for place, (look, painter) in enumerate(eyes):
            groups.setdefault(id(painter) if look is None else -1 - place, []).append(place)
        found: dict[str, NDArray[Any]] = {}
        for places in groups.values():
            look, painter = eyes[places[0]]
            members = which[places]
            everything = len(members) == len(elapsed)
            worlds = Worlds(*(tables if everything else [table[members] for table in tables]))
            for kind in self.kinds:
                try:
                    made = self._kind(kind, camera, look, painter, worlds, members, elapsed)
                except Exception:  # whatever it is, it must not stop the physics
                    made = self._empty(kind, len(members))
                    self.blind[members] = True
                    log.exception("camera %s: no %s of environments %s", camera, kind, members.tolist())
                if len(groups) == 1:
                    found[kind] = made
                    continue
                if kind not in found:
                    found[kind] = np.empty((len(which), *made.shape[1:]), made.dtype)
                found[kind][places] = made
        return found

    def _empty(self, kind: str, count: int) -> NDArray[Any]:
        """[count, H, W, ...] of nothing."""
        side = self.size
        shape = {"rgb": (side, side, 3), "flow": (side, side, 2)}.get(kind, (side, side))
        dtype = {"rgb": np.uint8, "segmentation": np.int32}.get(kind, np.float32)
        return np.full((count, *shape), NOTHING if kind == "segmentation" else 0, dtype)

    def _kind(
        self, kind: str, camera: str, look: Look | None, painter: Painter | Rider, worlds: Worlds, members: Rows,
        elapsed: Rows,
    ) -> NDArray[Any]:  # fmt: skip
        if kind == "depth":
            return painter.depths(worlds)
        if kind == "segmentation":
            return segmented(painter, worlds)
        if kind == "flow":
            table = self._before[members]
            return flowed(painter, worlds, Worlds(table[..., :3], table[..., 3:7], table[..., 7:]))
        if look is None:
            return painter.pictures(worlds)
        row = int(members[0])
        world, seed = next(each_world(worlds)), int(self.variety.seeds[row])
        return developed(look, painter, world, seed, int(elapsed[row]), camera)[None]


def segmented(painter: Painter | Rider, worlds: Worlds) -> NDArray[np.int32]:
    """[E, H, W]: the body with the greatest share of each pixel; ties go to the scene, then to the lower number."""
    bodies = np.unique(painter.movers.body[painter.movers.body != STILL])
    labels = np.array([STILL, *bodies.tolist(), NOTHING], np.int32)
    shares = []
    for first in range(0, len(bodies) + 1, 3):  # three bodies to a drawing, in the place of red, green and blue
        group = labels[:-1][first : first + 3]
        still = np.zeros(3, np.float32)
        still[: len(group)] = group == STILL
        values = np.zeros((len(painter.movers), 3), np.float32)
        values[:, : len(group)] = painter.movers.body[:, None] == group
        share, alpha = painter.blended(worlds, still, values)
        shares.append(share[..., : len(group)])
    shares.append(1 - alpha[..., None])
    found: NDArray[np.int32] = labels[np.concatenate(shares, axis=-1).argmax(axis=-1)]
    return found


def flowed(painter: Painter | Rider, worlds: Worlds, before: Worlds) -> Floats:
    """[E, H, W, 2] px: where what a pixel shows is now, less where it was before, averaged as colours are."""
    pictures = []
    cameras = zip(painter.cameras(worlds), painter.cameras(before), strict=True)
    for now, then, (camera, other) in zip(each_world(worlds), each_world(before), cameras, strict=True):
        values = _shift(camera, _means(painter.movers, now), other, _means(painter.movers, then))
        still = np.zeros(3, np.float32)
        if isinstance(painter, Rider):
            means = painter.static.means.cpu().numpy().astype(np.float64)
            still = _shift(camera, means, other, means)
        moved, alpha = painter.blended(Worlds(*(table[None] for table in now)), still, values)
        pictures.append(moved[0, ..., :2] / np.maximum(alpha[0], np.float32(1e-6))[..., None])
    return np.stack(pictures)


def _means(movers: Movers, poses: Poses) -> Array:
    """[M, 3] m where the movers are."""
    rotation = poses.matrices.reshape(-1, 3, 3)[movers.body]
    turned: Array = np.einsum("mij,mj->mi", rotation, movers.means.astype(np.float64))
    return turned + poses.positions[movers.body]


def _shift(now: Camera, means: Array, then: Camera, before: Array) -> Floats:
    """[N, 3] px right and down from `before` seen by `then` to `means` seen by `now`; 0 behind either."""
    here, z = project(now, means)
    there, z_before = project(then, before)
    seen = (z > NEAREST) & (z_before > NEAREST)
    found = np.zeros((len(means), 3), np.float32)
    found[seen, :2] = (here - there)[seen]
    return found
