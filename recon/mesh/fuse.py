"""Depth pictures to one closed surface: Open3D's truncated signed distance grid, with what no picture shows closed off.

A voxel in front of a surface is free, one just behind it lies inside. One that every picture shows hidden behind
something is unknown: it is taken to be solid as far as a given convex bound reaches, and free beyond. So a surface
comes out closed, and where it bounds the unknown only, no camera has seen it.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import trimesh
from numpy.typing import NDArray

from recon.core.errors import InputError, UnavailableError
from recon.geometry.camera import pixel_cells
from recon.geometry.convert import integer_centres_from_pixels
from recon.mesh.depth import Array, View, bending

BLOCK = 8  # voxels along the side of one block of the grid
TRUNCATION = 3.0  # voxels
HOLE = 3.0  # voxels
FAR = 1e3  # m, the depth given to pixels that are looked through
MAX_VOXELS = 40_000_000


def open3d() -> Any:
    """Open3D, imported now. Raises UnavailableError, naming the extra, when it is not installed or does not load."""
    try:
        import open3d
    except (ImportError, OSError) as error:
        raise UnavailableError(
            "meshes need Open3D", why=str(error) or "it is not installed",
            fix="pip install 'recon4d[geom]' (on Debian also: apt-get install libusb-1.0-0)",
        ) from error  # fmt: skip
    return open3d


class Fusion:
    """What views show inside a box, as a truncated signed distance grid that surfaces are taken from."""

    def __init__(self, views: list[View], low: Array, high: Array, voxel: float) -> None:
        """views: of pinhole cameras. low, high [3] m: the box. voxel: m.

        Raises UnavailableError when Open3D is missing, InputError when the box holds too many voxels.
        """
        o3d = open3d()
        blocks = _blocks(low, high, voxel)
        core = o3d.core
        self._grid = o3d.t.geometry.VoxelBlockGrid(
            ("tsdf", "weight"), (core.float32, core.float32), ((1), (1)), voxel, BLOCK, len(blocks),
            core.Device("CPU:0"),
        )  # fmt: skip
        keys = core.Tensor(blocks)
        self._grid.hashmap().activate(keys)
        for view in views:
            _integrate(o3d, self._grid, keys, view, voxel)
        places, rows = self._grid.voxel_coordinates_and_flattened_indices()
        self._points, self._index = places.numpy(), rows.numpy()
        # numpy views of the grid's own memory
        self._tsdf = self._grid.attribute("tsdf").reshape((-1, 1)).numpy()[:, 0]
        weight = self._grid.attribute("weight").reshape((-1, 1)).numpy()[:, 0]
        self._close(views, weight)

    def _close(self, views: list[View], weight: NDArray[np.float32]) -> None:
        """Give every voxel a value: -1 (inside) where all pictures that hold it show it hidden, +1 where none does."""
        unknown = weight[self._index] == 0
        points = self._points[unknown]
        hidden = np.zeros(len(points), bool)
        for view in views:
            left = np.flatnonzero(~hidden)
            hidden[left] = pixel_cells(view.camera, points[left])[0]
        self._tsdf[self._index[unknown]] = np.where(hidden, -1.0, 1.0)
        weight[:] = 1.0

    def surface(self, bound: Array) -> trimesh.Trimesh:
        """The closed surface, wound outward, within the half-spaces n . x + d <= 0 of `bound` [P, 4].

        A later call can only cut away more. Raises InputError when nothing is there.
        """
        outside = np.zeros(len(self._index), bool)
        for plane in bound:
            outside |= self._points @ plane[:3].astype(np.float32) + np.float32(plane[3]) > 0
        self._tsdf[self._index[outside]] = 1.0
        mesh = self._grid.extract_triangle_mesh(weight_threshold=0.0)
        if mesh.triangle.indices.shape[0] == 0:
            raise InputError("no surface was found", why="no camera sees anything opaque there")
        vertices, faces = mesh.vertex.positions.numpy(), mesh.triangle.indices.numpy()
        return trimesh.Trimesh(vertices.astype(np.float64), faces.astype(np.int64), process=True)


def _blocks(low: Array, high: Array, voxel: float) -> NDArray[np.int32]:
    """[B, 3] int32: indices of all blocks that the box touches, and one voxel around it so that surfaces close."""
    side = BLOCK * voxel
    first, last = np.floor((low - voxel) / side).astype(int), np.floor((high + voxel) / side).astype(int)
    counts = last - first + 1
    if np.prod(counts.astype(float)) * BLOCK**3 > MAX_VOXELS:
        raise InputError(
            f"a box of {' x '.join(f'{x:.2f}' for x in high - low)} m holds too many voxels of {1000 * voxel:g} mm",
            fix="Choose larger voxels.",
        )
    grids = np.meshgrid(*(np.arange(a, b + 1) for a, b in zip(first, last, strict=True)), indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=1).astype(np.int32)


def _integrate(o3d: Any, grid: Any, keys: Any, view: View, voxel: float) -> None:
    camera = view.camera
    depth = without_holes(view, voxel)
    K = camera.K
    K[:2, 2] = integer_centres_from_pixels(K[:2, 2])
    image = o3d.t.geometry.Image(np.ascontiguousarray(depth, dtype=np.float32)[..., None])
    extrinsic = np.array(camera.cam_from_world)
    grid.integrate(keys, image, o3d.core.Tensor(K), o3d.core.Tensor(extrinsic), 1.0, 10 * FAR, TRUNCATION)


def without_holes(view: View, voxel: float) -> Array:
    """[H, W] m: depth, FAR where the view is looked through, 0 where it says nothing.

    It says nothing where depth bends, and in holes narrower than HOLE voxels: between splats that leave a gap one sees
    the inside of what they cover. Such a hole is what a morphological opening takes away from the depth.
    """
    depth = np.where(view.clear, FAR, np.nan_to_num(view.depth)).astype(np.float32)
    middle = np.nanmedian(view.depth) if np.isfinite(view.depth).any() else FAR
    size = max(3, round(HOLE * voxel * view.camera.fx / float(middle)) | 1)
    opened = cv2.morphologyEx(depth, cv2.MORPH_OPEN, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size)))
    says = (view.clear | (bending(view.depth) < voxel)) & (depth - opened < voxel)
    return np.where(says, depth, 0.0).astype(np.float64)
