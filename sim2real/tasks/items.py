"""What a task names: regions to draw places from, things that move, places that are shown, and where each may start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Region:
    """A part of a ring around the robot's base.

    radius: fraction of the arm's horizontal reach. azimuth_deg: from the rest pose's direction, counter-clockwise seen
    from above. height: m above the table, of a thing's underside.
    """

    radius: tuple[float, float]
    azimuth_deg: tuple[float, float]
    height: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if not 0 < self.radius[0] <= self.radius[1] <= 1:
            raise ValueError("region radius must be two ascending fractions of the reach in (0, 1]")
        if not -180 <= self.azimuth_deg[0] <= self.azimuth_deg[1] <= 180:
            raise ValueError("region azimuth_deg must be two ascending angles within -180..180")
        if not 0 <= self.height[0] <= self.height[1] <= 2:
            raise ValueError("region height must be two ascending heights in metres within 0..2")


@dataclass(frozen=True)
class Target:
    """The place to go to, drawn as a sphere. radius m; color RGB 0-1."""

    region: Region
    radius: float = 0.02
    color: tuple[float, float, float] = (0.9, 0.1, 0.1)


@dataclass(frozen=True)
class Init:
    """Where something starts.

    region: name of one of the task's regions; its place is drawn from it, evenly over the area.
    pose: "scene" starts a captured body where it was captured, moved by up to jitter m along x and y.
    yaw_deg: turned about z by a draw from this range, from the region's radial direction (or the captured pose).
    apart: m, least gap between its outline and that of whatever was placed before it.
    within: by name of what was placed before: least and greatest distance to it, m.
    clear_to: name of something placed before to which the straight way must be free of what stands on the bench, from
    12 cm behind, so that it can be pushed there.
    """

    region: str | None = None
    pose: Literal["scene"] | None = None
    jitter: float = 0.0
    yaw_deg: tuple[float, float] = (0.0, 0.0)
    apart: float = 0.02
    within: dict[str, tuple[float, float]] = field(default_factory=dict)
    clear_to: str | None = None

    def __post_init__(self) -> None:
        if (self.region is None) == (self.pose is None):
            raise ValueError("init needs either region: NAME or pose: scene")
        if not 0 <= self.jitter <= 0.5 or not 0 <= self.apart <= 0.5:
            raise ValueError("init jitter and apart must lie within 0..0.5 m")
        if not -180 <= self.yaw_deg[0] <= self.yaw_deg[1] <= 180:
            raise ValueError("init yaw_deg must be two ascending angles within -180..180")
        for name, (low, high) in self.within.items():
            if not 0 <= low < high <= 2:
                raise ValueError(f"init within.{name} must be two ascending distances in metres within 0..2")


@dataclass(frozen=True)
class Item:
    """A thing besides the robot.

    shape, size: a primitive of that full size, m: box and socket [x, y, z], cylinder [diameter, height], sphere
    [diameter]; hole: side of a socket's square hole. scene: or the name of a body that the scene captured.
    mass kg (or density kg/m^3) and sliding friction: assumed, and reported so, where they are not given.
    fixed: it stands where it is put and does not yield.
    """

    init: Init
    shape: Literal["box", "cylinder", "sphere", "socket"] | None = None
    size: list[float] = field(default_factory=list)
    hole: float = 0.0
    scene: str | None = None
    color: tuple[float, float, float] = (0.8, 0.15, 0.1)
    mass: float | None = None
    density: float | None = None
    friction: float | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.scene is None):
            raise ValueError("a body needs either shape and size, or scene: NAME of a captured one")
        if self.init.pose == "scene" and self.scene is None:
            raise ValueError("init pose: scene is for captured bodies only")
        if self.shape is not None:
            wanted = {"box": 3, "socket": 3, "cylinder": 2, "sphere": 1}[self.shape]
            if len(self.size) != wanted or not all(0.003 <= s <= 1 for s in self.size):
                raise ValueError(f"a {self.shape} needs {wanted} sizes within 0.003..1 m")
            if (self.shape == "socket") != (self.hole > 0):
                raise ValueError("hole is for sockets, which need one")
            if self.shape == "socket" and self.hole > min(self.size[:2]) - 0.008:
                raise ValueError("a socket's walls must be at least 4 mm thick")
        elif self.density is not None:
            raise ValueError("the density of a captured body is given to `recon mesh`; here its mass can be")
        _positive(self, "mass", "density", "friction")


@dataclass(frozen=True)
class Place:
    """Somewhere on the table that is shown as a flat disc and touched by nothing. radius m; color RGB 0-1."""

    init: Init
    radius: float = 0.05
    color: tuple[float, float, float] = (0.1, 0.6, 0.25)

    def __post_init__(self) -> None:
        if not 0.005 <= self.radius <= 0.5:
            raise ValueError("a place's radius must lie within 0.005..0.5 m")
        if self.init.pose is not None:
            raise ValueError("a place is drawn from a region")


def _positive(item: Item, *names: str) -> None:
    for name in names:
        value = getattr(item, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive")
