"""Pictures: culling changes no bit, movers stand where physics has them, cameras look where they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from recon.core.errors import UsageError
from recon.geometry.camera import project
from recon.geometry.quaternion import quat_multiply, quat_normalize, quat_rotate, quat_to_matrix
from recon.render.stage import Worlds
from sim2real.cameras import best_camera, camera_named, square_camera
from sim2real.draw import Painter, Poses, make_view
from sim2real.env import SplatVectorEnv


@pytest.fixture(scope="module")
def poses(cell) -> list[Poses]:
    """Body poses along an expert's way to a few targets."""
    env = SplatVectorEnv(cell, 2)
    env.reset()
    collected = []
    for _ in range(8):
        env.step(env.expert_action())
        collected.append(Poses(*(np.array(table[0]) for table in env._poses)))
    return collected


@pytest.mark.parametrize("name", ["cam00", "cam01"])
def test_culled_pictures_are_bit_identical(cell, poses, name: str) -> None:
    full, culled = cell.painter(name, 48, cull=False), cell.painter(name, 48)
    assert len(culled.view.static) < len(full.view.static)
    for pose in poses:
        a, b = full.render(pose), culled.render(pose)
        for field in ("color", "alpha", "depth"):
            assert torch.equal(getattr(a, field), getattr(b, field)), field


@pytest.mark.parametrize("size", [48, 70, 200])
def test_drawing_only_what_moves_is_bit_identical(cell, poses, size: int) -> None:
    native, full = cell.painter("cam00", size), cell.painter("cam00", size, cull=False)
    by_tiles = Painter(native.view, cell.movers)
    by_tiles.native = False
    shares = []
    for pose in poses:
        whole = full.render(pose).color[0]
        assert torch.equal(native.color(pose), whole) and torch.equal(by_tiles.color(pose), whole)
        nothing = torch.zeros(0, dtype=torch.int64)
        subset = by_tiles._still.touched(by_tiles._draw(nothing, by_tiles._posed(pose)))
        shares.append(float(subset.pixels.float().mean()))
        assert len(subset.rows) < len(native.view.static) or size == 48
    assert max(shares) < 1 and (size < 200 or max(shares) < 0.6)


def test_many_worlds_at_once_are_each_their_own(cell, poses) -> None:
    painter = cell.painter("cam01", 70)
    by_tiles = Painter(painter.view, cell.movers)
    by_tiles.native = False
    worlds = Worlds(*(np.stack(table) for table in zip(*poses, strict=True)))
    together, twin = painter.pictures(worlds), by_tiles.pictures(worlds)
    assert together.shape == (len(poses), 70, 70, 3) and np.array_equal(together, twin)
    for pose, picture in zip(poses, together, strict=True):
        assert np.array_equal(painter.picture(pose), picture)


def test_movers_are_posed_natively_to_the_same_bits(cell, poses) -> None:
    """Also those that carry their light, by the direction they are seen from."""
    rng = np.random.default_rng(3)
    sh = rng.normal(0, 0.4, (600, 3, 3)).astype(np.float32)
    painter = Painter(cell.painter("cam00", 96).view, replace(cell.movers, sh=sh))
    turned = [pose._replace(**_turned(pose, rng)) for pose in poses[:4]]
    for pose in turned:
        assert torch.equal(painter.color(pose), painter.render(pose).color[0])


def _turned(pose: Poses, rng: np.random.Generator) -> dict[str, np.ndarray]:
    quats = quat_normalize(rng.normal(size=pose.quats.shape))
    return {"quats": quats, "matrices": quat_to_matrix(quats).reshape(-1, 9)}


def test_culling_keeps_the_gaussian_that_stops_a_pixel(cell) -> None:
    """A mover behind an opaque wall must stay hidden although the wall's last layer adds nothing to the picture."""
    view = cell.painter("cam00", 48, cull=False).view
    center = torch.tensor(view.camera.center, dtype=torch.float32)
    axis = torch.tensor(view.camera.cam_from_world[2, :3], dtype=torch.float32)
    layers = torch.arange(1.0, 1.6, 0.1)[:, None] * axis + center
    count = len(layers)
    wall = type(view.static)(
        layers, torch.tensor([[1.0, 0, 0, 0]]).repeat(count, 1), torch.full((count, 3), 3.0),
        torch.full((count,), 0.97),
        torch.rand((count, 1, 3), generator=torch.Generator().manual_seed(0)),
    )  # fmt: skip
    full, culled = (make_view(view.camera, wall, cull=cull) for cull in (False, True))
    assert 2 < len(culled.static) < count
    behind = Poses(
        np.tile((center + 1.45 * axis).numpy().astype(float), (20, 1)),
        np.tile([1.0, 0, 0, 0], (20, 1)),
        np.tile(np.eye(3).ravel(), (20, 1)),
    )
    a, b = (Painter(v, cell.movers).render(behind).color for v in (full, culled))
    assert torch.equal(a, b)


def test_movers_follow_their_bodies(cell, poses) -> None:
    movers, pose = cell.movers, poses[-1]
    means, quats, rgb = movers.posed(pose)
    q = pose.quats[movers.body]
    assert means == pytest.approx(quat_rotate(q, movers.means.astype(float)) + pose.positions[movers.body], abs=1e-5)
    assert quats == pytest.approx(quat_multiply(q, movers.quats.astype(float)), abs=1e-5)
    assert (rgb <= movers.rgb + 1e-6).all() and (rgb >= 0.59 * movers.rgb).all()


def test_the_target_is_seen_where_it_is(cell) -> None:
    env = SplatVectorEnv(cell, 4, cameras=["cam00"], size=96, seed=5)
    observation, _ = env.reset()
    camera = env.painters["cam00"].view.camera
    for i in range(4):
        image = observation["rgb"]["cam00"][i].astype(int)
        blue = (image[..., 2] > 130) & (image[..., 0] < 40) & (image[..., 1] < 60)
        uv, _ = project(camera, env.points()["target"][i : i + 1])
        rows, columns = np.nonzero(blue)
        assert len(rows) > 4
        assert np.array([columns.mean() + 0.5, rows.mean() + 0.5]) == pytest.approx(uv[0], abs=1.5)


def test_square_window_holds_the_points_with_square_pixels(cell) -> None:
    points = cell.framing_points()
    for camera in cell.rig.cameras.values():
        square = square_camera(camera, points, 64)
        uv, _ = project(square, points)
        assert square.fx / square.fy == pytest.approx(camera.fx / camera.fy)
        full, _ = project(camera, points)
        inside = (full > 0).all() and (full < [camera.width, camera.height]).all()
        assert not inside or ((uv > -1e-6).all() and (uv < 64 + 1e-6).all())
        direct, _ = project(camera, points[:1])
        back = (uv[0] - [square.cx, square.cy]) * [camera.fx / square.fx, camera.fy / square.fy] + [
            camera.cx,
            camera.cy,
        ]
        assert back == pytest.approx(direct[0], abs=1e-6)


def test_the_default_camera_is_a_train_camera_that_sees_the_task(cell) -> None:
    name = best_camera(cell.rig, cell.sampler.region_points())
    assert cell.rig.roles[name] == "train"
    with pytest.raises(UsageError, match="no camera 'cam0'.*Did you mean"):
        camera_named(cell.rig, "cam0")


def test_the_camera_colour_is_applied(cell, poses) -> None:
    view = cell.painter("cam00", 48).view
    matrix, offset = np.array([[0.5, 0.1, 0], [0, 0.8, 0], [0.2, 0, 0.6]]), np.array([0.1, 0.0, 0.05])
    plain = Painter(view, cell.movers).render(poses[0]).color[0].numpy().astype(float)
    tinted = make_view(view.camera, view.static, (matrix, offset), cull=False)
    expected = np.clip(plain @ matrix.T + offset, 0, 1) * 255
    assert Painter(tinted, cell.movers).picture(poses[0]).astype(float) == pytest.approx(expected, abs=0.51)
