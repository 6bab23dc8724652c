"""Things that an arm can move: what the scene captured, and primitives that a task declares.

What nobody can see in a picture (mass, friction) is declared or assumed, and carries the word for it everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError, UsageError, did_you_mean
from recon.geometry.pose import pose_of
from sim2real.primitives import (
    NORMAL,
    OPACITY,
    TANGENT,
    Piece,
    Surface,
    pieces_of,
    quats_along,
    surface_of,
    unit_sphere,
)

if TYPE_CHECKING:
    from recon.mesh.folder import Published
    from recon.scene.scene import Body, Scene
    from sim2real.tasks.items import Item

Array = NDArray[np.float64]

FRICTION = 0.8  # sliding, where nobody declares one
SPIN, ROLL = 0.005, 0.0001  # m, torsional and rolling friction
DENSITY = 400.0  # kg/m^3 of a declared primitive without a density: wood
CAPTURED_DENSITY = 1000.0  # kg/m^3 of a captured body without one, as `recon mesh` assumes
HULL_DIRECTIONS, WITHIN = 60, 0.985  # directions in which such a hull is bounded; share of the Gaussians inside
SOLID = 0.5  # opacity from which a captured Gaussian counts for a hull made of them


def free_joint(node: str) -> str:
    """Name of the free joint of a body of MuJoCo's model."""
    return f"{node}_free"


@dataclass(frozen=True, eq=False)
class Look:
    """Gaussians in the body's frame: means [M, 3] m, quats [M, 4], scales [M, 3] m, opacities [M], sh [M, K, 3].

    lit: shaded by where they face (a declared colour); a captured one carries its light already.
    """

    means: Array
    quats: Array
    scales: Array
    opacities: Array
    sh: Array
    lit: bool


@dataclass(frozen=True, eq=False)
class Thing:
    """A rigid body besides the robot, in its own frame (metres, kg).

    free: the simulator moves it; else it stands where the scenario puts it. start: world_from_body [4, 4] where it was
    captured, None for a declared one. sources: how mass and friction are known.
    """

    name: str
    pieces: tuple[Piece, ...]
    look: Look
    mass: float
    center: Array
    inertia: Array
    friction: float
    sources: dict[str, str]
    free: bool = True
    start: Array | None = None

    @property
    def node(self) -> str:
        """Its name in MuJoCo's model, where robots have names of their own."""
        return f"thing_{self.name}"

    @property
    def joint(self) -> str:
        """Name of its free joint there."""
        return free_joint(self.node)

    @cached_property
    def corners(self) -> Array:
        """[V, 3] m: points whose hull, grown by `rounding`, holds the body."""
        return np.concatenate([piece.corners() for piece in self.pieces])

    @property
    def rounding(self) -> float:
        """m: radius of a ball, 0 of everything else."""
        return self.pieces[0].rounding

    @cached_property
    def middle(self) -> Array:
        """[3] m: centre of its bounding box: what is meant by where it is."""
        return (self.corners.min(axis=0) + self.corners.max(axis=0)) / 2

    @cached_property
    def half(self) -> Array:
        """[3] m: half extents of its bounding box."""
        return np.ptp(self.corners, axis=0) / 2 + self.rounding

    @property
    def radius(self) -> float:
        """m: of the upright cylinder around its middle that holds it however it is turned about z."""
        return float(np.linalg.norm((self.corners - self.middle)[:, :2], axis=1).max()) + self.rounding

    def facts(self) -> dict[str, Any]:
        """What was taken for it, for reports."""
        return {
            "mass_kg": float(f"{self.mass:.4g}"),
            "mass_source": self.sources["mass"],
            "friction": self.friction,
            "friction_source": self.sources["friction"],
            "pieces": len(self.pieces),
            "shape_source": self.sources["shape"],
            "free": self.free,
        }


def declared(name: str, item: Item) -> Thing:
    """A primitive as its task declares it."""
    assert item.shape is not None
    pieces = pieces_of(item.shape, tuple(item.size), item.hole)
    volume = np.array([piece.volume for piece in pieces])
    density = DENSITY if item.density is None else item.density
    mass = float(density * volume.sum()) if item.mass is None else item.mass
    share = mass * volume / volume.sum()
    places = np.array([piece.at for piece in pieces])
    center = share @ places / mass
    inertia = np.zeros((3, 3))
    for m, at, piece in zip(share, places, pieces, strict=True):
        # parallel axes: I = I_piece + m (|d|^2 - d d^T)
        d = at - center
        inertia += m * (np.diag(piece.inertia()) + d @ d * np.eye(3) - np.outer(d, d))
    told = item.mass is not None or item.density is not None
    sources = {
        "mass": "declared" if told else f"assumed ({DENSITY:g} kg/m^3)",
        "friction": "declared" if item.friction is not None else "assumed",
        "shape": "declared",
    }
    friction = FRICTION if item.friction is None else item.friction
    look = painted(surface_of(pieces), item.color)
    return Thing(name, pieces, look, mass, center, inertia, friction, sources, not item.fixed)


def painted(surface: Surface, color: tuple[float, float, float]) -> Look:
    """Flat Gaussians of one colour on a surface."""
    count = len(surface.points)
    scales = surface.spacing[:, None] * np.array([TANGENT, TANGENT, NORMAL])
    rgb = np.tile(np.asarray(color, float), (count, 1))
    return Look(
        surface.points, quats_along(surface.normals), scales, np.full(count, OPACITY), _sh0(rgb)[:, None], lit=True
    )


def _sh0(rgb: Array) -> Array:
    from recon.geometry.sh import rgb_to_sh0

    return np.asarray(rgb_to_sh0(rgb), float)


def captured(name: str, item: Item, scene: Scene, meshed: Mapping[str, Published]) -> Thing:
    """A body of the scene, with the pieces and the mass that `recon mesh` made, else with a hull of its Gaussians.

    Raises:
        UsageError: the scene has no such body. InputError: it is empty.
    """
    body = _body(scene, item.scene or name)
    quat, position = body.pose_at(scene.time_range[0])
    pose = pose_of(position.numpy(), quat.numpy())
    look = _captured_look(scene, body)
    made = meshed.get(body.name)
    if made is None:
        hull = _hull_of(look, body.name)
        pieces: tuple[Piece, ...] = (hull,)
        shape = "hull of its Gaussians (`recon mesh` makes closer pieces)"
        volume, inertia, center = _solid(hull)
        mass, origin = CAPTURED_DENSITY * volume, "assumed (1000 kg/m^3)"
        inertia = CAPTURED_DENSITY * inertia
    else:
        assert made.mass is not None  # objects have one
        pieces, shape = tuple(Piece("hull", vertices=vertices) for vertices in made.pieces), "recon mesh"
        mass, origin = float(made.mass["mass"]), str(made.mass["density_source"])
        center, inertia = np.asarray(made.mass["center"], float), np.asarray(made.mass["inertia"], float)
    if item.mass is not None:
        inertia, mass, origin = inertia * (item.mass / mass), item.mass, "declared"
    friction = FRICTION if item.friction is None else item.friction
    sources = {"mass": origin, "friction": "declared" if item.friction is not None else "assumed", "shape": shape}
    return Thing(name, pieces, look, mass, center, inertia, friction, sources, not item.fixed, pose)


def _body(scene: Scene, name: str) -> Body:
    known = {body.name: body for body in scene.bodies if body.kind == "object"}
    if name not in known:
        nothing = "nothing moved in it as one rigid thing, or it was built with `--fit.no-bodies`"
        raise UsageError(
            f"the scene has no body {name!r}",
            why=f"its objects are: {', '.join(known)}" if known else nothing,
            fix=did_you_mean(name, known) if known else "Take a task with its own bodies.",
        )
    return known[name]


def _captured_look(scene: Scene, body: Body) -> Look:
    from recon.scene.gaussians import RIGID

    table = scene.gaussians
    rows = (table.object_id == body.id) & (table.kind == RIGID)
    if not bool(rows.any()):
        raise InputError(f"body {body.name!r} of the scene has no Gaussians")

    def column(values: Any) -> Array:
        return np.asarray(values[rows].detach().cpu().numpy(), float)

    quats = column(table.quats)
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    opacities = 1 / (1 + np.exp(-column(table.logit_opacities)))
    return Look(column(table.means), quats, np.exp(column(table.log_scales)), opacities, column(table.sh), lit=False)


def _hull_of(look: Look, name: str) -> Piece:
    """What lies, in every one of many directions, no farther out than all but a few of the Gaussians: a hull that one
    stray Gaussian does not give a foot to tip over."""
    from scipy.spatial import HalfspaceIntersection, QhullError

    points = look.means[look.opacities >= SOLID]
    try:
        normals = _directions()
        reach = np.quantile(points @ normals.T, WITHIN, axis=0)  # [D]: d . x <= reach
        middle = np.median(points, axis=0)
        inside = HalfspaceIntersection(np.column_stack([normals, -reach]), middle)
    except (QhullError, ValueError, IndexError) as error:
        raise InputError(f"body {name!r} of the scene is not solid", why="its Gaussians span no volume") from error
    return Piece("hull", vertices=np.unique(np.round(inside.intersections, 6), axis=0))


def _directions() -> Array:
    """[D, 3] unit: the axes both ways, and a lattice between them."""
    return np.concatenate([np.eye(3), -np.eye(3), unit_sphere(HULL_DIRECTIONS)])


def _solid(piece: Piece) -> tuple[float, Array, Array]:
    """Volume m^3, inertia [3, 3] m^5 about the centre of mass (for density 1), centre [3] m of a hull."""
    import trimesh

    hull = trimesh.convex.convex_hull(piece.corners())
    return float(hull.volume), np.asarray(hull.moment_inertia) / hull.density, np.asarray(hull.center_mass)
