"""Light and pictures for the demo: primary visibility by our z-buffer, soft shadows and ambient occlusion by rays.

What never moves is shaded once per camera; a frame adds what moves and the shadows that it throws. Every sample keeps
its light samples from frame to frame, so that still parts of the picture stay still.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recon.geometry.camera import Camera, unproject
from recon.geometry.srgb import to_encoded, to_linear
from recon.robot import rasterize_triangles
from scripts.demo_capture.world import Sensor, Surface

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Poses = dict[str, Floats]

SUPERSAMPLING = 2  # per axis
LIFT = 1e-3  # metres; shadow rays start that far off the surface
SAMPLES = 2  # shadow rays per light, per picture sample
AMBIENT = np.array([0.30, 0.31, 0.33])
AMBIENT_REACH = 0.6  # metres; occluders further away do not darken
READ_NOISE, SHOT_NOISE = 0.0016, 2.0e-4


@dataclass(frozen=True)
class Light:
    """A rectangular lamp: middle, two half edges, colour times strength (of a surface facing it)."""

    middle: tuple[float, float, float]
    edges: tuple[tuple[float, float, float], tuple[float, float, float]]
    colour: tuple[float, float, float]


LIGHTS = (
    Light((0.9, -1.1, 1.9), ((0.22, 0.0, 0.0), (0.0, 0.22, 0.0)), (0.62, 0.58, 0.52)),
    Light((-0.5, 0.8, 2.1), ((0.9, 0.0, 0.0), (0.0, 0.7, 0.0)), (0.30, 0.32, 0.36)),
)


class Occluder:
    """Triangles that block light."""

    def __init__(self, triangles: Floats):
        try:
            from embreex import rtcore_scene
            from embreex.mesh_construction import TriangleMesh
        except ImportError as error:
            raise SystemExit(f"scripts/make_demo needs embreex, part of the sim extra ({error})") from error
        self._scene = rtcore_scene.EmbreeScene()
        self._mesh = TriangleMesh(self._scene, np.ascontiguousarray(triangles, np.float32))

    def blocks(self, origins: Floats32, towards: Floats32) -> Bools:
        """[N] bool: something lies between the origins [N, 3] and the origins plus `towards` [N, 3]."""
        if not len(origins):
            return np.zeros(0, bool)
        # The ray's parameter runs from 0 to 1 along `towards`: no need of unit directions.
        ends = np.ones(len(origins), np.float32)
        hit = self._scene.run(origins.astype(np.float32), towards.astype(np.float32), dists=ends, query="OCCLUDED")
        return np.asarray(hit) != -1


@dataclass(frozen=True, eq=False)
class Samples:
    """Shaded points: where, facing where, reflecting how much (linear), and whose random numbers are theirs."""

    points: Floats32
    normals: Floats32
    albedo: Floats32
    rows: npt.NDArray[np.int64]


class _Cones:
    """Which points may lose light of one lamp to given spheres; conservative.

    For a point p, the lamp's middle at p + d and a sphere (c, r): s = (c - p) . d / d . d is how far along the centre
    ray the sphere lies, and the rays to the whole lamp (radius l) stay within s l of it there.
    """

    def __init__(self, points: Floats32, lamp: Light):
        towards = np.array(lamp.middle, np.float32) - points
        self._points, self._towards = np.ascontiguousarray(points.T), np.ascontiguousarray(towards.T)
        self._length2 = (self._towards**2).sum(axis=0)
        self._along = (self._points * self._towards).sum(axis=0)
        self._norm2 = (self._points**2).sum(axis=0)
        self._lamp_radius = np.float32(np.linalg.norm(np.abs(np.array(lamp.edges)).sum(axis=0)))

    def meet(self, spheres: list[tuple[Floats, float]]) -> Bools:
        """[N] bool."""
        result = np.zeros(self._points.shape[1], bool)
        for middle, size in spheres:
            centre, radius = middle.astype(np.float32), np.float32(size + 0.01)
            dot = centre @ self._towards - self._along
            s = np.clip(dot / self._length2, 0, 1)
            off2 = self._norm2 - 2 * (centre @ self._points) + centre @ centre + s * (s * self._length2 - 2 * dot)
            result |= off2 < (radius + s * self._lamp_radius) ** 2
        return result


def _sphere(corners: Floats) -> tuple[Floats, float]:
    middle = (corners.min(axis=(0, 1)) + corners.max(axis=(0, 1))) / 2
    return middle, float(np.linalg.norm(corners - middle, axis=2).max())


class Renderer:
    """Pictures of one camera.

    Args:
        surfaces: The world.
        still: Poses of the bodies that never move, "world" among them.
        camera, sensor: The camera.
        seed: Of light samples and sensor noise.
    """

    def __init__(self, surfaces: list[Surface], still: Poses, camera: Camera, sensor: Sensor, seed: int):
        self.camera, self.sensor, self.seed = camera, sensor, seed
        self._fine = camera.scaled(SUPERSAMPLING)
        self._still = [s for s in surfaces if s.body in still]
        self._moving = [s for s in surfaces if s.body not in still]
        rng = np.random.default_rng([seed, 4])
        pixels = self._fine.width * self._fine.height
        # Stratified: the four samples of a pixel look at four quarters of each lamp.
        v, u = np.divmod(np.arange(pixels), self._fine.width)
        quarter = np.column_stack([u % 2, v % 2]).astype(np.float32)[:, None, None] / 2
        self._spots = rng.random((pixels, len(LIGHTS), SAMPLES, 2), np.float32) / 2 + quarter
        self._domes = rng.random((pixels, SAMPLES, 2), np.float32)
        self._walls = np.concatenate([_placed(s.corners, still[s.body]) for s in self._still])
        occluder = Occluder(self._walls)
        self._depth, self._rows, self._base = self._visible(self._still, still, None)
        self._seen = self._lit(self._base, occluder)
        self._dome = self._open_sky(self._base, occluder)
        self._plate = self._shade(self._base, self._seen, self._dome)
        self._cones = [_Cones(self._base.points, lamp) for lamp in LIGHTS]

    def frame(self, poses: Poses, index: int) -> Bytes:
        """Return the picture [H, W, 3] uint8 with the moving bodies at `poses` {body: world_from_body}."""
        placed = [_placed(s.corners, poses[s.body]) for s in self._moving]
        picture = np.zeros((self._fine.height * self._fine.width, 3), np.float32)
        picture[self._rows] = self._plate
        self._add_shadows(picture, placed)
        everything = Occluder(np.concatenate([self._walls, *placed]))
        _, rows, front = self._visible(self._moving, poses, self._depth)
        picture[rows] = self._shade(front, self._lit(front, everything), self._open_sky(front, everything))
        n = SUPERSAMPLING
        coarse = picture.reshape(self.camera.height, n, self.camera.width, n, 3).mean(axis=(1, 3))
        return self._develop(coarse, index)

    def _add_shadows(self, picture: Floats32, placed: list[Floats]) -> None:
        """Shade again the still samples whose light the moving bodies may block."""
        bodies = dict.fromkeys(s.body for s in self._moving)
        parts = {
            b: np.concatenate([p for p, s in zip(placed, self._moving, strict=True) if s.body == b]) for b in bodies
        }
        spheres = [_sphere(part) for part in parts.values()]
        near = np.array([cones.meet(spheres) for cones in self._cones])  # [lights, N]
        some = np.flatnonzero(near.any(axis=0))
        base = self._base
        touched = Samples(base.points[some], base.normals[some], base.albedo[some], base.rows[some])
        seen = self._seen[:, :, some] & self._lit(touched, Occluder(np.concatenate(placed)), self._seen[:, :, some])
        picture[touched.rows] = self._shade(touched, seen, self._dome[some])

    def _visible(
        self, surfaces: list[Surface], poses: Poses, before: Floats32 | None
    ) -> tuple[Floats32, npt.NDArray[np.int64], Samples]:
        """Depth picture, sample rows where these surfaces are nearest (and nearer than `before`), and those samples."""
        pose = self._fine.cam_from_world
        corners = np.concatenate([_placed(s.corners, poses[s.body]) for s in surfaces])
        picture = rasterize_triangles(corners @ pose[:3, :3].T + pose[:3, 3], self._fine)
        hit = picture.mask if before is None else picture.mask & ((picture.depth < before) | (before == 0))
        rows = np.flatnonzero(hit)
        v, u = np.divmod(rows, self._fine.width)
        rays = unproject(self._fine, np.column_stack([u + 0.5, v + 0.5]))
        points = (rays * picture.depth.ravel()[rows, None] - pose[:3, 3]) @ pose[:3, :3]
        triangle = picture.triangles.ravel()[rows]
        owner = np.repeat(np.arange(len(surfaces)), [len(s.corners) for s in surfaces])[triangle]
        weights = _barycentric(points, corners[triangle])
        normals, albedo = np.empty_like(points), np.empty_like(points)
        inner = np.concatenate([s.normals for s in surfaces])[triangle]
        smooth = np.einsum("nk,nki->ni", weights, inner)
        for index, part in enumerate(surfaces):
            mine = owner == index
            body = poses[part.body]
            local = (points[mine] - body[:3, 3]) @ body[:3, :3]
            normals[mine] = smooth[mine] @ body[:3, :3].T
            albedo[mine] = to_linear(np.clip(part.paint(local, smooth[mine]), 0, 1))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        towards_eye = np.einsum("ni,ni->n", normals, self._fine.center - points)
        normals[towards_eye < 0] *= -1  # a wall seen from behind
        single = (values.astype(np.float32) for values in (points, normals, albedo))
        return picture.depth, rows, Samples(*single, rows)

    def _to_light(self, samples: Samples, light: int, k: int) -> Floats32:
        lamp = LIGHTS[light]
        spot = self._spots[samples.rows, light, k] * 2 - 1
        return spot @ np.array(lamp.edges, np.float32) + (np.array(lamp.middle, np.float32) - samples.points)

    def _lit(self, samples: Samples, occluder: Occluder, asked: Bools | None = None) -> Bools:
        """[lights, SAMPLES, N] bool: the light sample reaches the point. Where not `asked`, False without tracing."""
        start = samples.points + np.float32(LIFT) * samples.normals
        result = np.zeros((len(LIGHTS), SAMPLES, len(start)), bool)
        for light in range(len(LIGHTS)):
            for k in range(SAMPLES):
                towards = self._to_light(samples, light, k)
                ahead = np.einsum("ni,ni->n", towards, samples.normals) > 0
                if asked is not None:
                    ahead &= asked[light, k]
                result[light, k, ahead] = ~occluder.blocks(start[ahead], towards[ahead])
        return result

    def _open_sky(self, samples: Samples, occluder: Occluder) -> Floats32:
        """[N] share of the hemisphere (cosine-weighted) without occluders within AMBIENT_REACH."""
        start = samples.points + np.float32(LIFT) * samples.normals
        free = np.zeros(len(start), np.float32)
        for k in range(SAMPLES):
            u = self._domes[samples.rows, k]
            z = 2 * u[:, 0] - 1  # normal + uniform point on the unit sphere is cosine-distributed
            ring = np.sqrt(1 - z * z)
            ball = np.column_stack([ring * np.cos(2 * np.pi * u[:, 1]), ring * np.sin(2 * np.pi * u[:, 1]), z])
            towards = (samples.normals * np.float32(1.001) + ball) * np.float32(AMBIENT_REACH / 2)
            free += np.where(occluder.blocks(start, towards), np.float32(0), np.float32(1 / SAMPLES))
        return free

    def _shade(self, samples: Samples, seen: Bools, sky: Floats32) -> Floats32:
        """Lambert: albedo (ambient sky + sum over lamps of colour, visible share, cosine)."""
        light = AMBIENT.astype(np.float32) * (0.35 + 0.65 * sky[:, None])
        for index, lamp in enumerate(LIGHTS):
            towards = np.array(lamp.middle, np.float32) - samples.points
            cosine = np.einsum("ni,ni->n", samples.normals, towards) / np.sqrt(np.einsum("ni,ni->n", towards, towards))
            share = seen[index].sum(axis=0, dtype=np.float32) / SAMPLES
            light = light + np.array(lamp.colour, np.float32) * (share * np.clip(cosine, 0, None))[:, None]
        return samples.albedo * light

    def _develop(self, light: Floats, index: int) -> Bytes:
        """Sensor: exposure and white balance, shot and read noise (linear), sRGB curve, 8 bits."""
        signal = light * self.sensor.exposure * np.array(self.sensor.balance)
        name = [ord(letter) for letter in self.camera.name]
        rng = np.random.default_rng([self.seed, 5, index, *name])
        sigma = np.sqrt(READ_NOISE**2 + SHOT_NOISE * np.clip(signal, 0, None))
        noisy = signal + sigma * rng.standard_normal(signal.shape)
        return np.round(to_encoded(np.clip(noisy, 0, 1)) * 255).astype(np.uint8)


def _placed(corners: Floats, world_from_body: Floats) -> Floats:
    return corners @ world_from_body[:3, :3].T + world_from_body[:3, 3]


def _barycentric(points: Floats, corners: Floats) -> Floats:
    """Weights [N, 3] of points in their triangles [N, 3, 3], from sub-areas."""
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    normal = np.cross(b - a, c - a)
    area = np.einsum("ni,ni->n", normal, normal)
    wa = np.einsum("ni,ni->n", np.cross(c - b, points - b), normal) / area
    wb = np.einsum("ni,ni->n", np.cross(a - c, points - c), normal) / area
    return np.clip(np.column_stack([wa, wb, 1 - wa - wb]), 0, 1)
