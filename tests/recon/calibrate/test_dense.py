"""Dense depth: a slanted plane, textured but for a plain patch, seen by four cameras."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from recon.calibrate.dense import (
    WEIGHTS,
    DepthPrior,
    _best_two_reached,
    confirmed_points,
    dense_depths,
    depth_priors,
    fused_points,
    vote,
)
from recon.calibrate.shell import Shell
from recon.calibrate.sweep import DepthMap, lift
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from tests.recon.calibrate.textured import texture

WIDTH, HEIGHT = 160, 120
NORMAL = np.array([-0.35, 0.0, 1.0]) / np.linalg.norm([-0.35, 0.0, 1.0])  # the plane through the origin
TEXEL = 0.012  # metres
PLAIN = 0.16  # metres, half side of the plain patch round the origin


def rig() -> dict[str, Camera]:
    """Four cameras side by side, 1.6 m from the plane."""
    cameras = {}
    for k, x in enumerate((-0.36, -0.12, 0.12, 0.36)):
        pose = look_at(np.array([x, -0.9 + 0.1 * (k % 2), 1.4]), np.zeros(3))
        cameras[f"c{k}"] = Camera(f"c{k}", WIDTH, HEIGHT, 150.0, 151.0, 81.2, 58.7, cam_from_world=pose)
    return cameras


def exact_depth(camera: Camera) -> np.ndarray:
    """float64 [H, W]: n . (c + z R^T r) = 0 for the ray r = (x, y, 1) through each pixel centre."""
    v, u = np.mgrid[: camera.height, : camera.width] + 0.5
    rays = np.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, np.ones_like(u)], -1)
    return -(NORMAL @ camera.center) / (rays @ camera.cam_from_world[:3, :3] @ NORMAL)


def hits(camera: Camera) -> np.ndarray:
    """World points [H, W, 3] of the plane behind each pixel."""
    found = DepthMap(exact_depth(camera), np.zeros(0), camera)
    return lift(found)[0].reshape(camera.height, camera.width, 3)


def plain(camera: Camera) -> np.ndarray:
    """bool [H, W]: pixels of the patch without texture."""
    return (np.abs(hits(camera)[..., :2]) < PLAIN).all(axis=-1)


def picture(camera: Camera) -> np.ndarray:
    """uint8 [H, W, 3], averaged from 3 x 3 samples per pixel."""
    fine = camera.scaled(3)
    xyz = hits(fine)
    at = (xyz[..., :2] / TEXEL + 256).astype(np.float32)
    drawn = cv2.remap(texture(5, 512), at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    drawn[plain(fine)] = (120, 130, 125)
    return cv2.resize(drawn, (camera.width, camera.height), interpolation=cv2.INTER_AREA)


def everywhere(cameras: dict[str, Camera]) -> dict[str, np.ndarray]:
    return {name: np.ones((c.height, c.width), dtype=bool) for name, c in cameras.items()}


@pytest.fixture(scope="module")
def seen() -> tuple[dict[str, np.ndarray], dict[str, Camera]]:
    cameras = rig()
    return {name: picture(camera) for name, camera in cameras.items()}, cameras


@pytest.fixture(scope="module")
def built(seen: tuple[dict[str, np.ndarray], dict[str, Camera]]) -> tuple[dict[str, DepthPrior], Shell | None]:
    return depth_priors(seen[0], seen[1], everywhere(seen[1]))


def test_every_pixel_has_the_planes_depth(seen: tuple[dict[str, np.ndarray], dict[str, Camera]]) -> None:
    pictures, cameras = seen
    for name, found in dense_depths(pictures, cameras, everywhere(cameras)).items():
        off = np.abs(found.depth / exact_depth(cameras[name]) - 1)
        middle = np.zeros(off.shape, dtype=bool)
        middle[15:-15, 30:-30] = True  # where a neighbour sees the same
        assert (found.depth > 0).all()
        assert np.median(off[middle & ~plain(cameras[name])]) < 0.005, name
        assert np.percentile(off[middle & ~plain(cameras[name])], 95) < 0.02, name
        assert np.percentile(off[middle & plain(cameras[name])], 90) < 0.05, name  # carried in from its border


def test_pixels_that_are_not_valid_have_no_depth(seen: tuple[dict[str, np.ndarray], dict[str, Camera]]) -> None:
    pictures, cameras = seen
    valid = everywhere(cameras)
    valid["c1"][:40] = False
    found = dense_depths(pictures, cameras, valid)
    assert (found["c1"].depth[:40] == 0).all()
    assert (found["c1"].depth[40:] > 0).all()


def test_priors_are_full_and_close(
    seen: tuple[dict[str, np.ndarray], dict[str, Camera]], built: tuple[dict[str, DepthPrior], Shell | None]
) -> None:
    priors, shell = built
    assert shell is not None
    assert list(priors) == list(seen[1])
    for name, prior in priors.items():
        off = np.abs(1 / (prior.inverse * exact_depth(seen[1][name])) - 1)
        assert (prior.inverse > 0).all()
        assert set(np.unique(prior.weight)) <= {np.float32(w) for w in WEIGHTS.values()}
        assert np.median(off) < 0.01, name
        confirmed = prior.weight == np.float32(WEIGHTS["own"])
        assert confirmed.mean() > 0.4, name
        assert np.percentile(off[confirmed], 95) < 0.03, name


def test_confirmed_points_are_on_the_plane(seen: tuple[dict[str, np.ndarray], dict[str, Camera]]) -> None:
    pictures, cameras = seen
    points, masks = confirmed_points(dense_depths(pictures, cameras, everywhere(cameras)), pictures)
    assert len(points) > 5_000
    assert np.percentile(np.abs(points.xyz @ NORMAL), 95) < 0.02
    assert (points.views >= 3).all()
    assert all(mask.mean() > 0.4 for mask in masks.values())


def test_fused_points_lie_on_the_plane_and_are_limited(
    seen: tuple[dict[str, np.ndarray], dict[str, Camera]], built: tuple[dict[str, DepthPrior], Shell | None]
) -> None:
    pictures, cameras = seen
    fused = fused_points(built[0], pictures, everywhere(cameras), 2_000)
    assert 1_000 < len(fused) <= 2_000
    off = np.abs(fused.xyz @ NORMAL)
    inner = np.linalg.norm(fused.xyz, axis=1) < 0.6  # seen by all; beyond, what one camera sees alone is a guess
    assert inner.sum() > 300
    assert np.percentile(off[inner], 95) < 0.02
    assert np.percentile(off[fused.error < 0.5], 95) < 0.03  # measured


def test_a_filled_point_in_free_space_is_pushed_back_and_a_measured_one_dropped(
    seen: tuple[dict[str, np.ndarray], dict[str, Camera]],
) -> None:
    """c0 says that a block of its picture is at 70 % of the true depth; the other three look through that place."""
    pictures, cameras = seen
    exact = {
        name: DepthPrior((1 / exact_depth(c)).astype(np.float32), np.ones((HEIGHT, WIDTH), np.float32), c)
        for name, c in cameras.items()
    }
    block = (slice(50, 70), slice(70, 100))
    for kind in ("own", "filled"):
        wrong = replace(exact["c0"], inverse=exact["c0"].inverse.copy(), weight=exact["c0"].weight.copy())
        wrong.inverse[block] /= 0.7
        wrong.weight[block] = WEIGHTS[kind]
        fused = fused_points({**exact, "c0": wrong}, pictures, everywhere(cameras), 10**6)
        mine = fused.error > 0.5  # only the filled block is believed less than half
        assert (np.abs(fused.xyz[~mine] @ NORMAL) < 0.01).all(), kind
        assert mine.any() == (kind == "filled")
        assert (np.abs(fused.xyz[mine] @ NORMAL) < 0.12).all()  # the push goes in steps of a tenth


def test_a_camera_without_neighbours_sees_the_focus_hardly_believed() -> None:
    camera = rig()["c0"]
    priors, shell = depth_priors({"c0": picture(camera)}, {"c0": camera}, everywhere({"c0": camera}))
    assert shell is None
    assert (priors["c0"].weight == np.float32(WEIGHTS["filled"])).all()
    assert np.ptp(priors["c0"].inverse) == 0
    assert np.isfinite(priors["c0"].inverse).all() and priors["c0"].inverse[0, 0] > 0


def test_votes_count_who_holds_and_who_looks_through() -> None:
    cameras = rig()
    maps = {
        name: DepthMap(exact_depth(c).astype(np.float32), np.ones((HEIGHT, WIDTH), np.float32), c)
        for name, c in cameras.items()
    }
    on = np.array([[0.02, 0.03, 0.35 * 0.02]])  # n . x = 0
    up = np.array([0.0, 0.0, 0.3])
    above, below, outside = on + up, on - up, np.array([[0.0, -50.0, 0.0]])
    agree, through = vote(maps, "c0", np.concatenate([on, above, below, outside]))
    assert agree.tolist() == [3, 0, 0, 0]
    assert through.tolist() == [0, 3, 0, 0]


def test_the_best_two_that_reach_a_pixel_count() -> None:
    scores = np.array([[[0.8, -1.0, -1.0, 0.1]], [[0.2, 0.5, -1.0, 0.3]], [[0.6, -1.0, -1.0, -0.4]]], np.float32)
    assert _best_two_reached(scores) == pytest.approx(np.array([[0.7, 0.45, 0.0, 0.2]]), abs=1e-6)
