"""What is true of N simulations at one instant: where things are, what touches what. Predicates and experts read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sim2real.physics import World

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Facts(Mapping[str, Array]):
    """Named points [N, 3] m (tcp, target, places, the middles of bodies), and questions about bodies.

    The arrays are those of the simulator's batch; rows stand for environments. counters: by identity of a `held` node,
    for how many control steps it has been true, [N].
    """

    def __init__(
        self, world: World, points: dict[str, Array], tables: dict[str, Array], counters: dict[int, Array]
    ) -> None:
        """`tables`: xpos [N, B, 3], xmat [N, B, 9], qvel [N, nv] and sensordata [N, S] as MuJoCo has them."""
        self.world, self.tables, self.counters = world, tables, counters
        self.things = {thing.name: thing for thing in world.things}
        self.count = len(points["tcp"])
        self._row = {name: int(world.model.body(t.node).id) for name, t in self.things.items()}
        self._points = dict(points)
        for name, thing in self.things.items():
            self._points[name] = self.origin(name) + _turned(self.turn(name), thing.middle)
        self.table = world.bench.top
        self._places = {marker.name: marker.radius for marker in world.markers}

    def __getitem__(self, name: str) -> Array:
        return self._points[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def origin(self, body: str) -> Array:
        """[N, 3] m: where the body's own frame is."""
        return self.tables["xpos"][:, self._row[body]]

    def turn(self, body: str) -> Array:
        """[N, 3, 3] world_from_body."""
        return self.tables["xmat"][:, self._row[body]].reshape(-1, 3, 3)

    def radius(self, place: str) -> float:
        """m, of a place's disc."""
        return self._places[place]

    def heights(self, body: str) -> Array:
        """[N, V] m: heights of the points that hold the body, without their rounding."""
        # element by element: a matrix product may round differently for other N
        corners, up = self.things[body].corners, self.turn(body)[:, 2]
        z = up[:, :1] * corners[:, 0] + up[:, 1:2] * corners[:, 1] + up[:, 2:] * corners[:, 2]
        return z + self.origin(body)[:, 2:]

    def bottom(self, body: str) -> Array:
        """[N] m: the height of its lowest point."""
        return self.heights(body).min(axis=1) - self.things[body].rounding

    def top(self, name: str) -> Array:
        """[N] m: the height of its highest point, or of the table's top."""
        if name == "table":
            return np.full(self.count, self.table)
        return self.heights(name).max(axis=1) + self.things[name].rounding

    def sideways(self, a: str, b: str) -> Array:
        """[N] m: horizontal distance between two named points."""
        d = self[a] - self[b]
        return np.hypot(d[:, 0], d[:, 1])

    def tilt(self, body: str) -> Array:
        """[N] rad between its z axis and the vertical."""
        return np.arccos(np.clip(self.turn(body)[:, 2, 2], -1.0, 1.0))

    def speed(self, body: str) -> Array:
        """[N] m/s of its frame; 0 for what is fixed."""
        if not self.things[body].free:
            return np.zeros(self.count)
        first = int(self.world.model.joint(self.things[body].joint).dofadr[0])
        v = self.tables["qvel"][:, first : first + 3]
        return np.sqrt(v[:, 0] ** 2 + v[:, 1] ** 2 + v[:, 2] ** 2)

    def touching(self, a: str, b: str) -> Bools:
        """[N] whether a body touches a body, the gripper or the table (or what stands on it)."""
        if b == "gripper":
            return np.asarray(self.fingers_on(a).any(axis=1))
        if b == "table":
            from sim2real.physics import PIECES, TABLE

            return self._touch(a, TABLE) | self._touch(a, PIECES)
        return self._touch(a, b)

    def fingers_on(self, body: str) -> Bools:
        """[N, F] which fingers touch it."""
        gripper = self.world.gripper
        assert gripper is not None
        return np.stack([self._touch(body, finger) for finger in gripper.fingers], axis=1)

    def held(self, node: Mapping[str, object]) -> Array:
        """[N] control steps for which a `held` node's predicate has been true."""
        return self.counters[id(node)]

    def _touch(self, a: str, b: str) -> Bools:
        touch = self.world.touch
        column = touch.get((a, b), touch.get((b, a)))
        if column is None:  # what is fixed to the world touches nothing that is
            return np.zeros(self.count, bool)
        return self.tables["sensordata"][:, column] > 0


def _turned(rotations: Array, vector: Array) -> Array:
    """[N, 3]; element by element, so that a row does not depend on how many there are."""
    x, y, z = vector
    return rotations[:, :, 0] * x + rotations[:, :, 1] * y + rotations[:, :, 2] * z
