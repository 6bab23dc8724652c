"""What the demo's cameras look at: triangles with smooth normals and painted surfaces, and the cameras themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.robot import RobotModel
from recon.robot.meshes import box, cylinder, ellipsoid
from scripts.demo_capture import textures
from scripts.demo_capture.motion import BALL_RADIUS, CAN, CUBE_HALF

Floats = npt.NDArray[np.float64]
# (points [N, 3], normals [N, 3]) in body axes -> sRGB-encoded colours [N, 3]
Paint = Callable[[Floats, Floats], Floats]

ROOM = 2.1  # metres from the middle to each wall
FLOOR_Z = -0.74
WALL_TOP = 2.0
SMOOTH_COS = np.cos(np.deg2rad(35))  # flatter edges are shaded as if round
WALL_TEXEL, TABLE_TEXEL = 0.005, 0.002


@dataclass(frozen=True, eq=False)
class Surface:
    """Painted triangles of one body: corners and corner normals [F, 3, 3] in body axes."""

    body: str  # "world" for what never moves
    corners: Floats
    normals: Floats
    paint: Paint


def plain(colour: tuple[float, float, float]) -> Paint:
    """One colour, faintly mottled."""

    def paint(points: Floats, normals: Floats) -> Floats:
        mottle = 1 + 0.035 * np.sin(points @ [61.0, 17.0, 43.0]) * np.sin(points @ [-23.0, 71.0, 37.0])
        return np.array(colour) * mottle[:, None]

    return paint


def picture_on_box(picture: textures.Picture, texel: float, axes: tuple[int, int], low: tuple[float, float]) -> Paint:
    """A picture laid along two axes: columns along the first, rows along the second."""

    def paint(points: Floats, normals: Floats) -> Floats:
        column, row = (points[:, axes[0]] - low[0]) / texel, (points[:, axes[1]] - low[1]) / texel
        return textures.sample(picture, row, column).astype(np.float64)

    return paint


def cube_paint(points: Floats, normals: Floats) -> Floats:
    """Every face has a colour of its own and a lighter square inside."""
    faces = np.array([[0.85, 0.15, 0.12], [0.95, 0.65, 0.10], [0.75, 0.12, 0.35]])
    axis = np.abs(normals).argmax(axis=1)
    colour = faces[axis]
    rest = np.where(np.arange(3) == axis[:, None], 0, np.abs(points)).max(axis=1)
    return np.where((rest < 0.55 * CUBE_HALF)[:, None], 0.35 * colour + 0.6, colour)


def ball_paint(points: Floats, normals: Floats) -> Floats:
    """A beach ball: eight sectors and two caps."""
    sector = np.floor((np.arctan2(points[:, 1], points[:, 0]) / np.pi + 1) * 4).astype(int) % 4
    colours = np.array([[0.95, 0.95, 0.92], [0.10, 0.35, 0.80], [0.95, 0.80, 0.15], [0.15, 0.60, 0.35]])
    cap = np.abs(points[:, 2]) > 0.86 * BALL_RADIUS
    return np.where(cap[:, None], [0.80, 0.15, 0.15], colours[sector])


def can_paint(points: Floats, normals: Floats) -> Floats:
    """A tin with a label: bands around, blocks on the label, metal lids."""
    turn = np.floor((np.arctan2(points[:, 1], points[:, 0]) / np.pi + 1) * 6).astype(int)
    height = points[:, 2] / CAN[1]
    label = np.where((turn % 2 == 0)[:, None], [0.12, 0.45, 0.40], [0.90, 0.88, 0.75])
    label = np.where(((turn + (height > 0)) % 3 == 0)[:, None], [0.85, 0.40, 0.15], label)
    band = (np.abs(height) > 0.62)[:, None]
    colour = np.where(band, [0.10, 0.25, 0.30], label)
    metal = (np.abs(normals[:, 2]) > 0.7) | (np.abs(height) > 0.93)
    return np.where(metal[:, None], [0.70, 0.71, 0.73], colour)


def smooth_normals(vertices: Floats, faces: npt.NDArray[np.int32]) -> Floats:
    """Corner normals [F, 3, 3]: the mean over faces at the vertex that are nearly coplanar with the corner's face."""
    flat = np.cross(vertices[faces[:, 1]] - vertices[faces[:, 0]], vertices[faces[:, 2]] - vertices[faces[:, 0]])
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-15)
    around: dict[int, list[int]] = {}
    for face, corner in enumerate(faces):
        for vertex in corner:
            around.setdefault(int(vertex), []).append(face)
    normals = np.empty((len(faces), 3, 3))
    for face, corner in enumerate(faces):
        for k, vertex in enumerate(corner):
            near = flat[around[int(vertex)]]
            normals[face, k] = near[near @ flat[face] > SMOOTH_COS].sum(axis=0)
    return normals / np.linalg.norm(normals, axis=2, keepdims=True)


def surface(body: str, mesh: tuple[Floats, npt.NDArray[np.int32]], paint: Paint) -> Surface:
    """A surface from a mesh in body axes."""
    vertices, faces = mesh
    return Surface(body, vertices[faces], smooth_normals(vertices, faces), paint)


def _placed_box(
    half: tuple[float, float, float], at: tuple[float, float, float], yaw: float = 0.0
) -> tuple[Floats, npt.NDArray[np.int32]]:
    vertices, faces = box(np.array(half))
    cos, sin = np.cos(yaw), np.sin(yaw)
    return vertices @ np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]).T + at, faces


def build_world(robot: RobotModel, seed: int) -> list[Surface]:
    """All surfaces of the demo."""
    rng = np.random.default_rng([seed, 2])
    table = textures.table_top(rng, 550, 750)
    surfaces = [
        surface(
            "world",
            _placed_box((0.75, 0.55, 0.02), (0.05, 0, -0.02)),
            picture_on_box(table, TABLE_TEXEL, (0, 1), (-0.70, -0.55)),
        )
    ]
    for x in (-0.64, 0.74):
        for y in (-0.49, 0.49):
            surfaces.append(surface("world", _placed_box((0.03, 0.03, 0.35), (x, y, -0.39)), plain((0.35, 0.34, 0.33))))
    size = int(2 * ROOM / WALL_TEXEL)
    ground = picture_on_box(textures.floor(rng, size, size), WALL_TEXEL, (0, 1), (-ROOM, -ROOM))
    surfaces.append(surface("world", _placed_box((ROOM, ROOM, 0.05), (0, 0, FLOOR_Z - 0.05)), ground))
    half, middle = (WALL_TOP - FLOOR_Z) / 2, (WALL_TOP + FLOOR_Z) / 2
    for axis, sign in ((0, 1), (0, -1), (1, 1), (1, -1)):
        picture = textures.wall(rng, int(2 * half / WALL_TEXEL), size)
        thin = (0.05, ROOM, half) if axis == 0 else (ROOM, 0.05, half)
        at = (sign * (ROOM + 0.05), 0, middle) if axis == 0 else (0, sign * (ROOM + 0.05), middle)
        paint = picture_on_box(picture[::-1], WALL_TEXEL, (1 - axis, 2), (-ROOM, FLOOR_Z))
        surfaces.append(surface("world", _placed_box(thin, at), paint))
    bindings = (((0.20, 0.30, 0.55), 0.5), ((0.75, 0.70, 0.55), 0.75), ((0.50, 0.15, 0.20), 0.4))
    for level, (colour, turn) in enumerate(bindings):
        books = _placed_box((0.085 - 0.006 * level, 0.06, 0.014), (0.56, -0.28, 0.014 + 0.028 * level), turn)
        surfaces.append(surface("world", books, plain(colour)))
    surfaces += [
        surface("cube", box(np.full(3, CUBE_HALF)), cube_paint),
        surface("ball", ellipsoid(np.full(3, BALL_RADIUS)), ball_paint),
        surface("can", cylinder(*CAN), can_paint),
    ]
    for link in robot.links.values():
        for mesh in link.meshes:
            surfaces.append(surface(link.name, (mesh.vertices, mesh.faces), plain(mesh.rgba[:3])))
    return surfaces


@dataclass(frozen=True)
class Sensor:
    """How a camera turns light into numbers: exposure gain, white balance gains."""

    exposure: float
    balance: tuple[float, float, float]


# name, azimuth deg, elevation deg, distance m, focal length px, (k1, k2)
TRAIN = (
    ("cam00", -148, 36, 1.25, 300, (0.0, 0.0)),
    ("cam01", -98, 28, 1.10, 285, (0.0, 0.0)),
    ("cam02", -58, 44, 1.30, 330, (0.0, 0.0)),
    ("cam03", -18, 30, 1.15, 270, (-0.12, 0.025)),
    ("cam04", 18, 52, 1.20, 310, (0.0, 0.0)),
    ("cam05", 52, 27, 1.35, 345, (0.0, 0.0)),
    ("cam06", 98, 40, 1.15, 280, (0.0, 0.0)),
    ("cam07", 146, 30, 1.30, 305, (0.0, 0.0)),
)
TEST = (("cam08", -38, 35, 1.20, 300, (0.0, 0.0)), ("cam09", 74, 36, 1.25, 310, (0.0, 0.0)))


def build_cameras(seed: int, width: int, height: int) -> tuple[dict[str, Camera], dict[str, str], dict[str, Sensor]]:
    """Cameras by name, their roles and their sensors."""
    rng = np.random.default_rng([seed, 3])
    cameras, roles, sensors = {}, {}, {}
    for role, rows in (("train", TRAIN), ("test", TEST)):
        for name, azimuth, elevation, distance, focal, (k1, k2) in rows:
            a, e = np.deg2rad(azimuth), np.deg2rad(elevation)
            target = np.array([-0.05, 0.02, 0.08]) + rng.uniform(-0.03, 0.03, 3)
            eye = target + distance * np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
            scale = width / 320
            cx, cy = width / 2 + scale * rng.uniform(-3, 3), height / 2 + scale * rng.uniform(-3, 3)
            pose = look_at(eye, target, np.array([rng.uniform(-0.03, 0.03), rng.uniform(-0.03, 0.03), 1.0]))
            f = scale * focal
            cameras[name] = Camera(name, width, height, f, f, cx, cy, (k1, k2, 0.0, 0.0, 0.0), pose)
            roles[name] = role
            balance = 1 + rng.uniform(-0.035, 0.035, 3)
            sensors[name] = Sensor(2 ** float(rng.uniform(-0.15, 0.15)), tuple(balance.tolist()))
    return cameras, roles, sensors
