"""What a camera sees of a robot: mask, link image and depth by a z-buffer, lens distortion included, no OpenGL.

Every pixel's ray is intersected with the triangles whose image may cover it, so the picture is exact for a distorted
lens: edges are tested in space, never as straight lines in the distorted picture. For a triangle v0 v1 v2 in camera
axes and the ray r = (x, y, 1) through a pixel centre,

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
from recon.geometry.lens import Distortion

if TYPE_CHECKING:
    from recon.robot.description import RobotModel

NEAR_M = 0.02
MAX_PIECE_PX = 32.0  # larger triangles are cut up, so that their boxes hold few pixels that miss
MAX_CUTS = 12
BEND_MARGIN_PX = 1.0  # how far a distorted edge of MAX_PIECE_PX can bulge out of the box of its ends
_EMPTY = np.iinfo(np.uint64).max
CHUNK = 1 << 20  # candidate pixels tested at once: bounds the memory

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
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
    model: RobotModel,
    q: Mapping[str, float],
    camera: Camera,
    world_from_base: Floats | None = None,
    near: float = NEAR_M,
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
    # Corner, axis, triangle: every operation below then runs along contiguous rows.
    corners = np.ascontiguousarray(np.asarray(triangles, np.float64).transpose(1, 2, 0))
    lens = (camera.distortion, camera.lens)
    rays = _pixel_rays(camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy, *lens)
    buffer = np.full(camera.height * camera.width, _EMPTY, np.uint64)
    if len(triangles):
        pieces, owner = _cut_up(corners, camera, rays, near)
        planes, det = _edge_planes(corners)
        for pixel, index in _candidates(*_boxes(pieces, owner, camera), camera.width):
            _test(pixel, index, rays, planes, det, near, buffer)
    hit = buffer != _EMPTY
    nearest = np.where(hit, (buffer & np.uint64(0xFFFFFFFF)).astype(np.int64), -1).astype(np.int32)
    depth = np.where(hit, (buffer >> np.uint64(32)).astype(np.uint32).view(np.float32), np.float32(0))
    shape = (camera.height, camera.width)
    return DepthPicture(depth.reshape(shape), nearest.reshape(shape), np.zeros(shape, np.int32))


@lru_cache(maxsize=16)
def _pixel_rays(
    width: int, height: int, fx: float, fy: float, cx: float, cy: float, distortion: Distortion, lens: str
) -> Floats:
    """[2, H * W] x and y of the unit-z ray through every pixel centre; NaN where the lens has none."""
    camera = Camera("rays", width, height, fx, fy, cx, cy, distortion, lens=lens)
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    rays = unproject(camera, np.column_stack([u.ravel(), v.ravel()]))[:, :2].T.copy()
    rays.flags.writeable = False
    return rays


def _cross(a: Floats, b: Floats) -> Floats:
    """Cross products of columns [3, T]; _cross(b, a) is exactly -_cross(a, b), so that shared edges leave no gap."""
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def _edge_planes(corners: Floats) -> tuple[Floats, Floats]:
    """Normals of the planes through the eye and each edge [3, 3, T], signed so that inside is positive; |det| [T]."""
    v0, v1, v2 = corners
    planes = np.stack([_cross(v1, v2), _cross(v2, v0), _cross(v0, v1)])
    det = v0[0] * planes[0, 0] + v0[1] * planes[0, 1] + v0[2] * planes[0, 2]
    return planes * np.where(det < 0, -1.0, 1.0), np.abs(det)


def _largest(corners: Floats) -> Floats:
    return np.maximum(np.maximum(corners[0], corners[1]), corners[2])


def _smallest(corners: Floats) -> Floats:
    return np.minimum(np.minimum(corners[0], corners[1]), corners[2])


def _cut_up(corners: Floats, camera: Camera, rays: Floats, near: float) -> tuple[Floats, Longs]:
    """Cut triangles into small pieces within the view: [3, 3, P] and the triangle that each piece belongs to.

    Pieces only say where a triangle may be seen. Those across the near plane are cut like the large ones.
    """
    low = np.nanmin(rays, axis=1) - 1 / camera.fx
    high = np.nanmax(rays, axis=1) + 1 / camera.fx
    pieces, owner = corners, np.arange(corners.shape[2])
    done, done_owner = [np.empty((3, 3, 0))], [np.empty(0, np.int64)]
    for cut in range(MAX_CUTS + 1):
        x, y, z = pieces[:, 0], pieces[:, 1], pieces[:, 2]
        seen = _largest(z) > near  # False for NaN
        for c, axis in ((x, 0), (y, 1)):
            seen &= (_smallest(c - high[axis] * z) < 0) & (_largest(c - low[axis] * z) > 0)
        pieces, owner = pieces[:, :, seen], owner[seen]
        z = pieces[:, 2]
        ready = _smallest(z) > near / 2
        size = _image_size(pieces, near) * max(camera.fx, camera.fy)
        ready &= (size <= MAX_PIECE_PX) | (cut == MAX_CUTS)
        done.append(pieces[:, :, ready])
        done_owner.append(owner[ready])
        pieces, owner = pieces[:, :, ~ready], owner[~ready]
        if not len(owner):
            break
        pieces, owner = _quarters(pieces), np.tile(owner, 4)
    return np.concatenate(done, axis=2), np.concatenate(done_owner)


def _image_size(pieces: Floats, near: float) -> Floats:
    """[P] larger side of each piece's box in the image at unit distance; corners at the eye count as at near / 2."""
    z = np.maximum(pieces[:, 2], near / 2)
    x, y = pieces[:, 0] / z, pieces[:, 1] / z
    return np.maximum(_largest(x) - _smallest(x), _largest(y) - _smallest(y))


def _quarters(pieces: Floats) -> Floats:
    """Cut every triangle at the middles of its edges: [3, 3, 4 P]."""
    a, b, c = pieces
    ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
    parts = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
    return np.concatenate([np.stack(part) for part in parts], axis=2)


Boxes = tuple[Longs, Longs, Longs, Longs, Longs]


def _boxes(pieces: Floats, owner: Longs, camera: Camera) -> Boxes:
    """Pixel boxes of the pieces: first column, first row, width, height, owner, each [P]; empty ones dropped."""
    flat = (pieces[:, :2] / pieces[:, 2:]).transpose(0, 2, 1).reshape(-1, 2)
    u, v = (distort(camera, flat) * [camera.fx, camera.fy] + [camera.cx, camera.cy]).T.reshape(2, 3, -1)
    low, high = np.stack([_smallest(u), _smallest(v)]), np.stack([_largest(u), _largest(v)])  # [2, P]
    margin = 1e-6
    if camera.distorted:  # a curve's bulge grows with the square of its length
        margin = margin + BEND_MARGIN_PX * ((high - low).max(axis=0) / MAX_PIECE_PX) ** 2
    limit = np.array([[camera.width], [camera.height]])
    valid = np.isfinite(low + high).all(axis=0)  # a lens shows nothing beyond its radius
    low, high = np.where(valid, low - margin, 0), np.where(valid, high + margin, 0)
    first = np.clip(np.ceil(low - 0.5), 0, limit).astype(np.int64)
    size = np.clip(np.floor(high - 0.5) + 1, 0, limit).astype(np.int64) - first
    full = valid & (size[0] > 0) & (size[1] > 0)
    return first[0, full], first[1, full], size[0, full], size[1, full], owner[full]


def _candidates(
    left: Longs, top: Longs, wide: Longs, high: Longs, owner: Longs, width: int
) -> Iterator[tuple[Longs, Longs]]:
    """Yield (pixel, triangle) pairs of all boxes, about CHUNK at a time.

    Boxes become rows, rows become pixels: two `repeat`s and no division.
    """
    row_box = np.repeat(np.arange(len(owner)), high)
    row = np.arange(len(row_box)) - np.repeat(np.cumsum(high) - high, high)  # within the box
    row_start = (top[row_box] + row) * width + left[row_box]
    row_count, row_owner = wide[row_box], owner[row_box]
    ends = np.cumsum(row_count)
    start = 0
    while start < len(row_count):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
        n = row_count[start:stop]
        shift = row_start[start:stop] - (ends[start:stop] - n - done)
        yield np.arange(int(n.sum())) + np.repeat(shift, n), np.repeat(row_owner[start:stop], n)
        start = stop


def _test(
    pixel: Longs, index: Longs, rays: Floats, planes: Floats, det: Floats, near: float, buffer: npt.NDArray[np.uint64]
) -> None:
    """Intersect rays with triangles and keep the nearest in `buffer`: depth bits above, triangle index below."""
    x, y = rays[0][pixel], rays[1][pixel]
    total = np.zeros(len(pixel))
    inside = np.ones(len(pixel), bool)
    for edge in planes:
        side = edge[0][index] * x + edge[1][index] * y + edge[2][index]
        inside &= side >= 0
        total += side
    inside &= total > 0
    pixel, index = pixel[inside], index[inside]
    depth = (det[index] / total[inside]).astype(np.float32)
    keep = np.isfinite(depth) & (depth >= near)
    # The bits of a positive float grow with it, so the smallest key is the nearest triangle (of equals: the first).
    key = (depth[keep].view(np.uint32).astype(np.uint64) << np.uint64(32)) | index[keep].astype(np.uint64)
    np.minimum.at(buffer, pixel[keep], key)
