"""Depth of flat Gaussians is that of their planes, and what bends or gapes is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import trimesh

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.mesh.depth import bending, look
from recon.mesh.fuse import FAR, without_holes
from recon.scene.motion import pose_gaussians
from tests.recon.mesh.shapes import splats

EYE = look_at(np.array([0.5, 0.0, 0.25]), np.zeros(3))
CAMERA = Camera("probe", 120, 90, 150.0, 150.0, 60.0, 45.0, cam_from_world=EYE)


def board(hole: float = 0.0):  # type: ignore[no-untyped-def]
    """Gaussians on the plane z = 0, without those nearer than `hole` to the origin."""
    mesh = trimesh.creation.box((0.6, 0.6, 1e-6))
    g = splats(mesh, (0.5, 0.2, 0.7), spacing=0.008)
    return pose_gaussians(g.select(torch.linalg.vector_norm(g.means, dim=1) >= hole), {}, 0.0)


def test_a_slanted_board_has_the_depth_of_its_plane_and_not_of_the_nearer_centres() -> None:
    view = look(board(), CAMERA)
    keep = bending(view.depth) < 0.003
    heights = view.points(keep)[:, 2]
    assert keep.mean() > 0.6
    assert abs(np.median(heights)) < 2e-4 and np.percentile(np.abs(heights), 95) < 1e-3
    assert np.allclose(view.color[45, 60], [0.5, 0.2, 0.7], atol=0.05)


def test_without_colour_the_depth_is_the_same() -> None:
    posed = board()
    assert np.array_equal(look(posed, CAMERA, colour=False).depth, look(posed, CAMERA).depth, equal_nan=True)


def test_a_narrow_hole_says_nothing_and_a_wide_one_is_looked_through() -> None:
    middle = (slice(40, 50), slice(55, 65))
    for hole, voxel, expected in ((0.025, 0.02, {0.0}), (0.06, 0.004, {FAR})):
        view = look(board(hole), CAMERA)
        assert view.clear[45, 60]
        depth = without_holes(view, voxel)[middle]
        assert expected <= set(np.unique(depth[view.clear[middle]]))
        assert (FAR in depth) == (FAR in expected)


def test_things_that_are_too_thin_have_no_depth() -> None:
    posed = board()
    thin = look(replace(posed, opacities=torch.full_like(posed.opacities, 0.02)), CAMERA)
    assert np.isnan(thin.depth).all() and thin.clear.any()
