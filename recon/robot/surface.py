"""Points on the robot's surface, and flat Gaussians made of them.

The environment draws robots that were never reconstructed with these, and the fit starts its rigid sets from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from recon.core.errors import UsageError
from recon.core.seeding import numpy_generator
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.geometry.quaternion import matrix_to_quat
from recon.robot.silhouettes import rasterize_triangles

if TYPE_CHECKING:
    from recon.robot.description import Link, RobotModel

CANDIDATES = 8  # random points drawn per point wanted
TANGENT_SIGMA = 0.62  # of the mean spacing: neighbours overlap enough to be opaque
NORMAL_SIGMA = 0.08  # of the mean spacing
OPACITY = 0.98
_VIEW_PX = 112  # side of the pictures that tell which points can be seen from outside

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SurfaceSamples:
    """Points of one link, in its frame.

    Attributes:
        points: [N, 3] float32 metres.
        normals: [N, 3] float32 unit, outward where the mesh is wound outward.
        colours: [N, 3] float32 sRGB-encoded in [0, 1].
        spacing: Mean distance between neighbours, metres.
    """

    points: Floats32
    normals: Floats32
    colours: Floats32
    spacing: float


@dataclass(frozen=True, eq=False)
class SurfaceGaussians:
    """Gaussians of one link, in its frame, float32.

    Attributes:
        means, log_scales: [N, 3] metres, log metres.
        quats: [N, 4] wxyz; the third axis is the surface normal.
        logit_opacities: [N].
        colours: [N, 3] sRGB-encoded.
    """

    means: Floats32
    log_scales: Floats32
    quats: Floats32
    logit_opacities: Floats32
    colours: Floats32


def sample_surface(model: RobotModel, n: int, seed: int = 0, outside_only: bool = True) -> dict[str, SurfaceSamples]:
    """Spread `n` points evenly over the visual surface of the robot.

    Args:
        model: The robot.
        n: Number of points, shared among the links by area.
        seed: Equal seeds give equal points.
        outside_only: Leave out what no outside view of the link shows, such as the insides of its meshes.

    Returns:
        {link: samples}; links without meshes are left out. The counts add up to `n`.

    Raises:
        UsageError: `n` is too small to give each link a point, or no link has a mesh.
    """
    links = [link for link in model.links.values() if len(link.triangles)]
    if not links or n < len(links):
        raise UsageError(f"{n} surface points for {len(links)} links with meshes", fix="Ask for at least one per link.")
    drawn = _shares(np.array([_double_normals(link)[1].sum() for link in links]), CANDIDATES * n)
    clouds = {link.name: _candidates(link, int(k), seed, outside_only) for link, k in zip(links, drawn, strict=True)}
    areas = np.array([cloud.area for cloud in clouds.values()])
    counts = _shares(areas, n)
    return {name: _spread(cloud, int(k)) for (name, cloud), k in zip(clouds.items(), counts, strict=True)}


def surface_gaussians(model: RobotModel, n: int, seed: int = 0) -> dict[str, SurfaceGaussians]:
    """Return flat, nearly opaque Gaussians that draw the robot; see `sample_surface` for the arguments."""
    result = {}
    for name, samples in sample_surface(model, n, seed).items():
        count = len(samples.points)
        scales = samples.spacing * np.array([TANGENT_SIGMA, TANGENT_SIGMA, NORMAL_SIGMA])
        result[name] = SurfaceGaussians(
            means=samples.points,
            log_scales=np.tile(np.log(scales), (count, 1)).astype(np.float32),
            quats=_frames(samples.normals).astype(np.float32),
            logit_opacities=np.full(count, np.log(OPACITY / (1 - OPACITY)), np.float32),
            colours=samples.colours,
        )
    return result


@dataclass(frozen=True, eq=False)
class _Cloud:
    """Uniformly random candidates of a link, and the area in square metres that they stand for."""

    points: Floats
    normals: Floats
    colours: Floats
    area: float


def _double_normals(link: Link) -> tuple[Floats, Floats]:
    """Cross products of the edges [F, 3], and their lengths [F]: twice the areas."""
    triangles = link.triangles
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    return normals, np.linalg.norm(normals, axis=1)


def _candidates(link: Link, total: int, seed: int, outside_only: bool) -> _Cloud:
    rng = numpy_generator(seed, 0, f"robot surface {link.name}")
    triangles = link.triangles
    normals, doubled = _double_normals(link)
    faces = rng.choice(len(triangles), size=total, p=doubled / doubled.sum())
    # Uniform on a triangle: with u, v in [0, 1), fold the half of the unit square beyond u + v = 1 back.
    uv = rng.random((total, 2))
    uv = np.where(uv.sum(axis=1, keepdims=True) > 1, 1 - uv, uv)
    corner = triangles[faces]
    points = corner[:, 0] + uv[:, :1] * (corner[:, 1] - corner[:, 0]) + uv[:, 1:] * (corner[:, 2] - corner[:, 0])
    seen = _seen_from_outside(points, triangles) if outside_only else np.ones(total, bool)
    if not seen.any():
        seen[:] = True
    unit = normals[faces] / doubled[faces, None]
    return _Cloud(points[seen], unit[seen], link.colours[faces[seen]], float(doubled.sum() / 2 * seen.mean()))


def _seen_from_outside(points: Floats, triangles: Floats) -> npt.NDArray[np.bool_]:
    """[N] bool: points that at least one of 14 cameras around the link sees."""
    centre = (triangles.min(axis=(0, 1)) + triangles.max(axis=(0, 1))) / 2
    radius = float(np.linalg.norm(triangles - centre, axis=2).max())
    focal = _VIEW_PX / 2 * 2.8  # at 3 radii the sphere fills the picture
    tolerance = 4 * radius * 3 / focal / 2  # two pixels' worth: grazing surfaces change that much within one
    seen = np.zeros(len(points), bool)
    offsets = np.indices((3, 3, 3)).reshape(3, -1).T - 1.0
    for offset in offsets[np.abs(offsets).sum(axis=1) % 2 == 1]:  # the faces and the corners of a cube
        away = offset / np.linalg.norm(offset)
        up = np.array([0.0, 0.0, 1.0]) if abs(away[2]) < 0.9 else np.array([0.0, 1.0, 0.0])
        pose = look_at(centre + 3 * radius * away, centre, up)
        camera = Camera("probe", _VIEW_PX, _VIEW_PX, focal, focal, _VIEW_PX / 2, _VIEW_PX / 2, cam_from_world=pose)
        depth = rasterize_triangles(triangles @ pose[:3, :3].T + pose[:3, 3], camera, near=radius).depth
        local = points @ pose[:3, :3].T + pose[:3, 3]
        pixel = np.floor(local[:, :2] / local[:, 2:] * focal + _VIEW_PX / 2).astype(np.int64).clip(0, _VIEW_PX - 1)
        front = depth[pixel[:, 1], pixel[:, 0]]
        seen |= (front == 0) | (local[:, 2] <= front + tolerance)
    return seen


def _shares(areas: Floats, n: int) -> npt.NDArray[np.int64]:
    """Share `n` in proportion to `areas`, at least one each, by largest remainders."""
    exact = areas / areas.sum() * (n - len(areas))
    counts = np.floor(exact).astype(np.int64)
    left = n - len(areas) - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
    return counts + 1


def _spread(cloud: _Cloud, count: int) -> SurfaceSamples:
    """Choose `count` candidates that keep their distance: greedily, at smaller radii until there are enough."""
    spacing = float(np.sqrt(cloud.area / count))
    tree = cKDTree(cloud.points)
    chosen: list[int] = []
    blocked = np.zeros(len(cloud.points), bool)
    for radius in (0.8 * spacing, 0.65 * spacing, 0.5 * spacing, 0.0):
        blocked[:] = False
        if chosen and radius:
            for near in tree.query_ball_point(cloud.points[chosen], radius):
                blocked[near] = True
        blocked[chosen] = True
        for index in range(len(cloud.points)):
            if len(chosen) == count:
                break
            if not blocked[index]:
                chosen.append(index)
                blocked[tree.query_ball_point(cloud.points[index], radius) if radius else index] = True
    repeats = np.resize(np.array(chosen), count)  # fewer candidates than asked for: points repeat
    return SurfaceSamples(
        cloud.points[repeats].astype(np.float32),
        cloud.normals[repeats].astype(np.float32),
        cloud.colours[repeats].astype(np.float32),
        spacing,
    )


def _frames(normals: Floats32) -> Floats:
    """Quaternions [N, 4] wxyz of frames whose third axis is the normal."""
    third = normals.astype(np.float64)
    helper = np.where(np.abs(third[:, :1]) < 0.7, [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])
    first = np.cross(helper, third)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    return matrix_to_quat(np.stack([first, np.cross(third, first), third], axis=-1))
