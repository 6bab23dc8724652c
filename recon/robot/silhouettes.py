"""What a camera sees of a robot: mask, link image and depth by a z-buffer, lens distortion included, no OpenGL.

Every pixel's ray is intersected with the triangles whose image may cover it, so the picture is exact for a distorted lens:
edges are tested in space, never as straight lines in the distorted picture. For a triangle v0 v1 v2 in camera axes and the
ray r = (x, y, 1) through a pixel centre,

    det = v0 . (v1 x v2)      n = v1 x v2 + v2 x v0 + v0 x v1
    inside  <=>  (v1 x v2) . r,  (v2 x v0) . r  and  (v0 x v1) . r  all have the sign of det
    depth z = det / (n . r)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from recon.geometry.camera import Camera, distort, unproject

if TYPE_CHECKING:
    from recon.robot.description import RobotModel

NEAR_M = 0.02
MAX_PIECE_PX = 32.0  # larger triangles are cut up, so that their boxes hold few pixels that miss
MAX_CUTS = 12
BEND_MARGIN_PX = 1.0  # how far a distorted edge of MAX_PIECE_PX can bulge out of the box of its ends
CHUNK = 1 << 20  # candidate pixels tested at once: bounds the memory

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class DepthPicture:
    """What a z-buffer holds.

    Attributes:
        depth: [H, W] float32 metres along the optical axis; 0 where there is nothing.
        triangles: [H, W] int32 index of the visible triangle, -1 where there is nothing.
        links: [H, W] int32 as in `link_ids`, 0 where there is nothing; all 0 for bare triangles.
    """

    depth: Floats32
    triangles: Ints
    links: Ints

    @property
    def mask(self) -> Bools:
        """[H, W] bool: where there is something."""
        return self.triangles >= 0


def link_ids(model: RobotModel) -> dict[str, int]:
    """Return {link: its value in a link image}: 1, 2, ... in the order of `model.links`; 0 is the background."""
    return {name: index for index, name in enumerate(model.links, start=1)}


def silhouette(
    model: RobotModel, q: Mapping[str, float], camera: Camera, world_from_base: Floats | None = None
) -> Bools:
    """Return the mask [H, W] of the robot in the camera's own, distorted pixel grid."""
    return draw_robot(model, q, camera, world_from_base).mask


def draw_robot(
    model: RobotModel, q: Mapping[str, float], camera: Camera, world_from_base: Floats | None = None, near: float = NEAR_M
) -> DepthPicture:
    """Draw the robot's visual meshes into a z-buffer.

    Args:
        model: The robot.
        q: Joint positions, as for `forward_kinematics`.
        camera: The camera; pictures have its size and its distortion.
        world_from_base: [4, 4] pose of the robot's base.
        near: Metres; what is closer along the axis is not drawn.

    Raises:
        InputError: Unknown joint or a number that is not finite.
    """
    poses = model.link_poses(q, world_from_base)
    ids = link_ids(model)
    triangles, owners = [np.empty((0, 3, 3))], [np.empty(0, np.int32)]
    for name, link in model.links.items():
        cam_from_link = camera.cam_from_world @ poses[name]
        triangles.append(link.triangles @ cam_from_link[:3, :3].T + cam_from_link[:3, 3])
        owners.append(np.full(len(link.triangles), ids[name], np.int32))
    picture = rasterize_triangles(np.concatenate(triangles), camera, near)
    owner = np.append(np.concatenate(owners), np.int32(0))  # index -1: nothing
    return DepthPicture(picture.depth, picture.triangles, owner[picture.triangles])


def rasterize_triangles(triangles: Floats, camera: Camera, near: float = NEAR_M) -> DepthPicture:
    """Draw triangles given in camera axes; both faces are visible.

    Args:
        triangles: [T, 3, 3] metres: triangle, corner, x y z. The camera's pose is not used.
        camera: Size, intrinsics and distortion.
        near: Metres.
    """
    triangles = np.ascontiguousarray(triangles, np.float64)
    rays = _pixel_rays(camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy, camera.distortion)
    buffer = np.full(camera.height * camera.width, np.iinfo(np.uint64).max, np.uint64)
    if len(triangles):
        pieces, owner = _cut_up(triangles, camera, rays, near)
        planes, det = _edge_planes(triangles)
        for pixel, index in _candidates(*_boxes(pieces, owner, camera), camera.width):
            _test(pixel, index, rays, planes, det, near, buffer)
    hit = buffer != np.iinfo(np.uint64).max
    nearest = np.where(hit, (buffer & np.uint64(0xFFFFFFFF)).astype(np.int64), -1).astype(np.int32)
    depth = np.where(hit, (buffer >> np.uint64(32)).astype(np.uint32).view(np.float32), np.float32(0))
    shape = (camera.height, camera.width)
    return DepthPicture(depth.reshape(shape), nearest.reshape(shape), np.zeros(shape, np.int32))


@lru_cache(maxsize=16)
def _pixel_rays(
    width: int, height: int, fx: float, fy: float, cx: float, cy: float, distortion: tuple[float, ...]
) -> Floats:
    """[H * W, 2] x and y of the unit-z ray through every pixel centre; NaN where the lens has none."""
    k1, k2, p1, p2, k3 = distortion
    camera = Camera("rays", width, height, fx, fy, cx, cy, (k1, k2, p1, p2, k3))
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    rays = unproject(camera, np.column_stack([u.ravel(), v.ravel()]))[:, :2].copy()
    rays.flags.writeable = False
    return rays


def _edge_planes(triangles: Floats) -> tuple[Floats, Floats]:
    """Normals of the planes through the eye and each edge [T, 3, 3], signed so that inside is positive; |det| [T]."""
    v0, v1, v2 = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    planes = np.stack([np.cross(v1, v2), np.cross(v2, v0), np.cross(v0, v1)], axis=1)
    det = np.einsum("ti,ti->t", v0, planes[:, 0])
    return planes * np.where(det < 0, -1.0, 1.0)[:, None, None], np.abs(det)


def _cut_up(triangles: Floats, camera: Camera, rays: Floats, near: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Cut triangles into small pieces within the view: [P, 3, 3] and the triangle that each piece belongs to.

    Pieces only say where a triangle may be seen. Those across the near plane are cut like the large ones.
    """
    low = np.nanmin(rays, axis=0) - 1 / camera.fx
    high = np.nanmax(rays, axis=0) + 1 / camera.fx
    pieces, owner = triangles, np.arange(len(triangles))
    done, done_owner = [np.empty((0, 3, 3))], [np.empty(0, np.int64)]
    for cut in range(MAX_CUTS + 1):
        x, y, z = pieces[..., 0], pieces[..., 1], pieces[..., 2]
        seen = np.isfinite(pieces).all(axis=(1, 2)) & (z > near).any(axis=1)
        for c, axis in ((x, 0), (y, 1)):
            seen &= (c > low[axis] * z).any(axis=1) & (c < high[axis] * z).any(axis=1)
        pieces, owner = pieces[seen], owner[seen]
        ahead = (pieces[..., 2] > near * 0.5).all(axis=1)
        ideal = pieces[..., :2] / np.where(pieces[..., 2:] > near * 0.5, pieces[..., 2:], 1)
        size = np.ptp(ideal, axis=1).max(axis=1) * max(camera.fx, camera.fy)
        ready = ahead & ((size <= MAX_PIECE_PX) | (cut == MAX_CUTS))
        done.append(pieces[ready])
        done_owner.append(owner[ready])
        pieces, owner = pieces[~ready], owner[~ready]
        if not len(pieces):
            break
        pieces, owner = _quarters(pieces), np.tile(owner, 4)
    return np.concatenate(done), np.concatenate(done_owner)


def _quarters(triangles: Floats) -> Floats:
    """Cut every triangle at the middles of its edges: [4 T, 3, 3]."""
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
    parts = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
    return np.concatenate([np.stack(part, axis=1) for part in parts])


Boxes = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def _boxes(pieces: Floats, owner: npt.NDArray[np.int64], camera: Camera) -> Boxes:
    """Pixel boxes of the pieces: first pixel (column, row) [P, 2], size [P, 2], owner [P]; empty ones dropped."""
    flat = (pieces[..., :2] / pieces[..., 2:]).reshape(-1, 2)
    uv = (distort(camera, flat) * [camera.fx, camera.fy] + [camera.cx, camera.cy]).reshape(-1, 3, 2)
    margin = BEND_MARGIN_PX if camera.distorted else 1e-6
    limit = [camera.width, camera.height]
    valid = np.isfinite(uv).all(axis=(1, 2))  # a lens shows nothing beyond its radius
    uv, owner = uv[valid], owner[valid]
    first = np.clip(np.ceil(uv.min(axis=1) - 0.5 - margin), 0, limit).astype(np.int64)
    last = np.clip(np.floor(uv.max(axis=1) - 0.5 + margin) + 1, 0, limit).astype(np.int64)
    size = last - first
    full = (size > 0).all(axis=1)
    return first[full], size[full], owner[full]


def _candidates(
    first: npt.NDArray[np.int64], size: npt.NDArray[np.int64], owner: npt.NDArray[np.int64], width: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield (pixel, triangle) pairs of all boxes, about CHUNK at a time."""
    counts = size[:, 0] * size[:, 1]
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
        n = counts[start:stop]
        which = np.repeat(np.arange(start, stop), n)
        local = np.arange(int(n.sum())) - np.repeat(ends[start:stop] - n - done, n)
        row, column = np.divmod(local, size[which, 0])
        yield (first[which, 1] + row) * width + first[which, 0] + column, owner[which]
        start = stop


def _test(
    pixel: npt.NDArray[np.int64],
    index: npt.NDArray[np.int64],
    rays: Floats,
    planes: Floats,
    det: Floats,
    near: float,
    buffer: npt.NDArray[np.uint64],
) -> None:
    """Intersect rays with triangles and keep the nearest in `buffer`: depth bits above, triangle index below."""
    x, y = rays[pixel, 0], rays[pixel, 1]
    total = np.zeros(len(pixel))
    inside = np.ones(len(pixel), bool)
    for edge in range(3):
        side = planes[index, edge, 0] * x + planes[index, edge, 1] * y + planes[index, edge, 2]
        inside &= side >= 0
        total += side
    inside &= total > 0
    pixel, index = pixel[inside], index[inside]
    depth = (det[index] / total[inside]).astype(np.float32)
    keep = np.isfinite(depth) & (depth >= near)
    # The bits of a positive float grow with it, so the smallest key is the nearest triangle (of equals: the first).
    key = (depth[keep].view(np.uint32).astype(np.uint64) << np.uint64(32)) | index[keep].astype(np.uint64)
    np.minimum.at(buffer, pixel[keep], key)
