"""Surface samples lie on the surface, evenly, outside; Gaussians made of them are flat and aligned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

from recon.core.errors import UsageError
from recon.geometry.quaternion import quat_to_matrix
from recon.robot import RobotModel, load_robot, sample_surface, surface_gaussians


def distance_to_planes_of(triangles: np.ndarray, points: np.ndarray) -> np.ndarray:
    """[N] distance to the nearest triangle, for points that project into it."""
    best = np.full(len(points), np.inf)
    for a, b, c in triangles:
        normal = np.cross(b - a, c - a)
        area2 = normal @ normal
        if area2 == 0:
            continue
        wa = np.cross(c - b, points - b) @ normal / area2
        wb = np.cross(a - c, points - c) @ normal / area2
        inside = (wa > -1e-4) & (wb > -1e-4) & (wa + wb < 1 + 1e-4)
        best[inside] = np.minimum(best[inside], np.abs((points - a) @ normal)[inside] / np.sqrt(area2))
    return best


def test_samples_add_up_lie_on_the_mesh_and_keep_their_distance(arm: RobotModel) -> None:
    samples = sample_surface(arm, 1500, seed=3)
    assert sum(len(s.points) for s in samples.values()) == 1500
    assert set(samples) == set(arm.links)
    for name in ("link2", "hand"):
        link, cloud = arm.links[name], samples[name]
        assert distance_to_planes_of(link.triangles, cloud.points.astype(np.float64)).max() < 1e-6
        np.testing.assert_allclose(np.linalg.norm(cloud.normals, axis=1), 1, atol=1e-6)
        nearest = cKDTree(cloud.points).query(cloud.points, k=2)[0][:, 1]
        assert np.quantile(nearest, 0.05) > 0.45 * cloud.spacing
        assert {tuple(c) for c in cloud.colours.round(4)} <= {
            tuple(np.float32(m.rgba[:3]).round(4)) for m in link.meshes
        }


def test_equal_seeds_give_equal_points(arm: RobotModel) -> None:
    first, again, other = (sample_surface(arm, 200, seed=s)["link3"].points for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or not np.array_equal(first, other)


def test_the_inside_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(
        '<mujoco><worldbody><body name="a"><geom type="box" size=".2 .2 .2"/>'
        '<geom type="sphere" size=".15" rgba="1 0 0 1"/>'
        "</body></worldbody></mujoco>"
    )
    model = load_robot(path)
    outside = sample_surface(model, 300)["a"]
    assert np.abs(outside.points).max(axis=1).min() > 0.199
    everything = sample_surface(model, 300, outside_only=False)["a"]
    assert (np.linalg.norm(everything.points, axis=1) < 0.151).sum() > 30
    assert everything.spacing**2 * 300 == pytest.approx(6 * 0.16 + 4 * np.pi * 0.15**2, rel=0.02)


def test_gaussians_are_flat_along_their_normals(arm: RobotModel) -> None:
    samples, gaussians = sample_surface(arm, 400), surface_gaussians(arm, 400)
    for name, g in gaussians.items():
        third = quat_to_matrix(g.quats.astype(np.float64))[:, :, 2]
        np.testing.assert_allclose(third, samples[name].normals, atol=1e-5)
        assert np.all(g.log_scales[:, 2] < g.log_scales[:, 0] - 1.5) and np.all(
            g.log_scales[:, 0] == g.log_scales[:, 1]
        )
        for field in (g.means, g.log_scales, g.quats, g.logit_opacities, g.colours):
            assert field.dtype == np.float32 and np.isfinite(field).all() and len(field) == len(g.means)


def test_too_few_points_are_refused(arm: RobotModel) -> None:
    with pytest.raises(UsageError, match="at least one per link"):
        sample_surface(arm, 3)
