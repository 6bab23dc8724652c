"""Cameras that stand free or ride on bodies, and what they give besides colours: depth, bodies, motion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from recon.core.config import from_dict
from recon.core.errors import UsageError
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.render.stage import Worlds
from sim2real.draw import Movers, Painter, Poses, Splats, make_view
from sim2real.env import SplatVectorEnv
from sim2real.rider import Rider
from sim2real.sight import flowed, segmented
from sim2real.tasks.mounts import Mount
from sim2real.tasks.variation import Randomize
from sim2real.workcell import open_workcell

SIZE = 40
MOUNTS = {
    "wrist": Mount((-0.12, 0.0, -0.05), (0.0, 0.0, 0.08), up=(1, 0, 0), fov_deg=70, body="tool"),
    "above": Mount((0.2, 0.0, 1.1), (0.15, 0.0, 0.0), up=(1, 0, 0), fov_deg=50),
    "box_eye": Mount((0.0, 0.0, 0.15), (0.3, 0.0, 0.05), body="cube"),
}
QUIET = np.array([1.0, 0, 0, 0])


@pytest.fixture(scope="module")
def pick(scene, robot):
    cell = open_workcell(scene, "pick", robot=robot)
    return replace(cell, task=replace(cell.task, cameras=MOUNTS, horizon=6))


def wall(distance: float, name: str = "front") -> tuple[Camera, Splats]:
    """A camera at the origin that looks along x at an opaque wall of Gaussians, and the wall."""
    camera = Camera(name, 64, 48, 60.0, 60.0, 32.0, 24.0, cam_from_world=look_at(np.zeros(3), np.array([1.0, 0, 0])))
    y, z = np.meshgrid(np.linspace(-2, 2, 81), np.linspace(-2, 2, 81))
    means = np.column_stack([np.full(y.size, distance), y.ravel(), z.ravel()])
    n = len(means)
    columns = (means, np.tile(QUIET, (n, 1)), np.tile([1e-4, 0.05, 0.05], (n, 1)), np.full(n, 0.99))
    sh = np.zeros((n, 1, 3))
    return camera, Splats(*(torch.from_numpy(np.ascontiguousarray(a, np.float32)) for a in (*columns, sh)))


def plate(half: float = 0.1) -> Movers:
    """A square plate of body 1, 0.2 m wide, that faces the camera."""
    y, z = np.meshgrid(np.linspace(-half, half, 21), np.linspace(-half, half, 21))
    n = y.size
    means = np.column_stack([np.zeros(n), y.ravel(), z.ravel()])
    scales = np.tile([1e-4, 0.01, 0.01], (n, 1))
    columns = (means, np.tile(QUIET, (n, 1)), np.tile([1.0, 0, 0], (n, 1)), scales, np.full(n, 0.99), np.ones((n, 3)))
    return Movers(np.ones(n, np.int64), *(np.ascontiguousarray(a, np.float32) for a in columns))


def standing(*places: tuple[float, float, float]) -> Worlds:
    """One world: body 0 is the world, the others stand at the places, upright."""
    positions = np.array([(0.0, 0, 0), *places])
    return Worlds(
        positions[None], np.tile(QUIET, (1, len(positions), 1)), np.tile(np.eye(3).ravel(), (1, len(positions), 1))
    )


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_depth_bodies_and_motion_of_a_plate_before_a_wall(backend: str) -> None:
    camera, splats = wall(2.0)
    painter = Painter(make_view(camera, splats, backend=backend), plate(), backend)
    before, now = standing((1.0, 0.0, 0.0)), standing((1.0, 0.05, -0.02))
    depth, labels = painter.depths(now)[0], segmented(painter, now)[0]
    # y points left in the picture, z up: the plate's middle is at 32 - 60 * 0.05, 24 + 60 * 0.02
    assert depth[25, 29] == pytest.approx(1.0, abs=0.01) and depth[5, 5] == pytest.approx(2.0, abs=0.01)
    assert labels[25, 29] == 1 and labels[5, 5] == 0 and labels.dtype == np.int32
    assert 12 < np.sqrt((labels == 1).sum()) < 16  # 12 px, and what its outermost Gaussians reach beyond
    flow = flowed(painter, now, before)[0]
    assert flow[25, 29] == pytest.approx([-60 * 0.05, 60 * 0.02], abs=0.05)
    assert (flow[5, 5] == 0).all() and flow.shape == (48, 64, 2)


def test_what_goes_behind_the_still_scene_disappears() -> None:
    camera, splats = wall(2.0)
    painter = Painter(make_view(camera, splats), plate())
    alone = painter.pictures(standing((9.0, 9.0, 9.0)))
    behind, before = standing((2.5, 0.0, 0.0)), standing((1.5, 0.0, 0.0))
    assert np.array_equal(painter.pictures(behind), alone) and not (segmented(painter, behind) == 1).any()
    assert not np.array_equal(painter.pictures(before), alone) and (segmented(painter, before) == 1).any()


def test_where_nothing_is_there_is_no_depth_and_no_body() -> None:
    camera, splats = wall(2.0)
    few = Splats(*(getattr(splats, f)[:0] for f in ("means", "quats", "scales", "opacities", "sh")))
    painter = Painter(make_view(camera, few), plate())
    world = standing((1.0, 0.0, 0.0))
    assert painter.depths(world)[0, 0, 0] == 0 and segmented(painter, world)[0, 0, 0] == -1
    assert segmented(painter, world)[0, 24, 32] == 1


def test_a_camera_that_rides_sees_the_still_scene_move(cell) -> None:
    camera, splats = wall(2.0)
    rider = Rider(camera, 2, splats, plate())
    before, now = standing((1.0, 0, 0), (0.0, 0.0, 0.0)), standing((1.0, 0, 0), (0.0, 0.1, 0.0))
    flow = flowed(rider, now, before)[0]
    # the camera goes left by 0.1: what is 2 m off goes right by 60 * 0.1 / 2
    assert flow[5, 50] == pytest.approx([3.0, 0.0], abs=0.05)
    assert flow[24, 38] == pytest.approx([6.0, 0.0], abs=0.1)  # the plate, 1 m off
    assert rider.depths(now)[0, 5, 50] == pytest.approx(2.0, abs=0.01)


def test_a_rider_draws_what_a_fixed_camera_at_its_place_draws(pick) -> None:
    env = SplatVectorEnv(pick, 3, cameras=["wrist", "above", "box_eye", "cam00"], size=SIZE)
    env.reset(seed=3)
    for _ in range(3):
        observation, *_ = env.step(env.expert_action())
    for name in ("wrist", "box_eye"):
        rider = env.painters[name]
        assert isinstance(rider, Rider)
        for i in range(3):
            poses = Poses(*(np.array(table[i]) for table in env._poses))
            fixed = Painter(make_view(rider.at(poses), pick.static), pick.movers)
            assert np.array_equal(observation["rgb"][name][i], fixed.picture(poses)), name
    assert isinstance(env.painters["above"], Painter)
    pictures = [observation["rgb"][name].std() for name in ("wrist", "above", "box_eye")]
    assert min(pictures) > 5


def test_every_kind_is_the_same_alone_or_among_others_and_continues(pick) -> None:
    settings = {"cameras": ["wrist", "cam00"], "size": SIZE, "sights": ("rgb", "depth", "segmentation", "flow")}
    one, many = SplatVectorEnv(pick, 1, **settings), SplatVectorEnv(pick, 3, **settings)
    scenarios = pick.sampler.draw_set(0, "eval", 3).scenarios
    first, info = many.reset(options={"scenarios": scenarios})
    one.reset(options={"scenarios": scenarios[1:2]})
    assert many.observation_space.contains(first) and not first["flow"]["cam00"].any()
    labels = info["segmentation"]
    assert {"scene", "nothing", "cube"} <= set(labels.values())
    assert set(np.unique(first["segmentation"]["cam00"])) <= set(labels)
    for _ in range(3):
        action = many.expert_action()
        a, b = many.step(action)[0], one.step(action[1:2])[0]
        for kind in settings["sights"]:
            for name in settings["cameras"]:
                assert np.array_equal(a[kind][name][1], b[kind][name][0]), (kind, name)
    assert np.abs(a["flow"]["wrist"]).max() > 0.1
    again = SplatVectorEnv(pick, 3, **settings)
    again.reset(options={"scenarios": scenarios})
    again.set_state(many.get_state())
    for _ in range(4):  # past the end of the episode
        action = many.expert_action()
        a, b = many.step(action)[0], again.step(action)[0]
        assert all(np.array_equal(a[k][c], b[k][c]) for k in settings["sights"] for c in settings["cameras"])


def test_a_rider_takes_the_look_of_its_episode(scene, robot, pick) -> None:
    varied = from_dict(Randomize, {"camera": {"position": 0.02, "rotation_deg": 3}, "background": 0.9})
    cell = open_workcell(scene, replace(pick.task, randomize=varied), robot=robot)
    env = SplatVectorEnv(cell, 1, cameras=["wrist", "cam00"], size=SIZE)
    env.reset(seed=1)
    look, own = env.variety.eye(0, "wrist")
    assert look is not None and isinstance(own, Rider) and own is not env.painters["wrist"]
    # the colours of what lies off the table are mixed as those of a fixed camera are
    poses = Poses(*(np.array(table[0]) for table in env._poses))
    from sim2real.look import _with_backdrop

    mixed = make_view(own.at(poses), own.static, cull=False).rgb.numpy()
    plain = _with_backdrop(make_view(own.at(poses), cell.static, cull=False), look, cell.world.bench).rgb.numpy()
    assert mixed == pytest.approx(plain, abs=1e-4)


def test_bad_cameras_and_kinds_are_refused(pick, robot, scene) -> None:
    with pytest.raises(UsageError, match="do not give 'dept'.*depth"):
        SplatVectorEnv(pick, 1, cameras=["cam00"], size=SIZE, sights=("dept",))
    with pytest.raises(UsageError, match="no camera 'wrst'.*wrist"):
        SplatVectorEnv(pick, 1, cameras=["wrst"], size=SIZE)
    for mount, text in [
        (Mount((0, 0, 0), (0, 0, 1), body="hnad", up=(1, 0, 0)), "rides on 'hnad'"),
        (Mount((0, 0, 0), (0, 0, 1)), "cannot be aimed"),
    ]:
        cell = replace(pick, task=replace(pick.task, cameras={"odd": mount}), _painters={})
        with pytest.raises(UsageError, match=text):
            SplatVectorEnv(cell, 1, cameras=["odd"], size=SIZE)
    with pytest.raises(ValueError, match="fov_deg"):
        Mount((0, 0, 0), (0, 0, 1), fov_deg=200)
