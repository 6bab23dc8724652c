"""The scores of `scripts/bench_recon` see planted errors, at their size, and nothing of how the world is laid."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from safetensors.numpy import save_file

from recon.core.files import read_json
from recon.geometry.camera import Camera, project
from recon.geometry.pose import look_at, pose_of, se3_exp
from recon.geometry.quaternion import matrix_to_quat
from recon.geometry.rig import Rig, RobotEntry, rig_to_json
from recon.scene.gaussians import RIGID, STATIC, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body, Scene
from scripts.bench.alignment import align, poses, write_moved
from scripts.bench.clocks import compare_clocks
from scripts.bench.links import base_errors, iou, link_iou
from scripts.bench.pictures import score_camera
from scripts.bench.spread import merged
from scripts.bench.surfaces import surface_error
from scripts.bench.tracks import follow

MOTION = np.asarray(se3_exp(np.array([0.03, -0.02, 0.01, 0.02, 0.01, -0.03])))  # of the whole rig


def ring(count: int = 6) -> Rig:
    """Cameras round a table; the last is held out."""
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    eyes = [np.array([1.4 * np.cos(a), 1.4 * np.sin(a), 0.7 + 0.05 * k]) for k, a in enumerate(angles)]
    cameras = {
        f"c{k}": Camera(f"c{k}", 64, 48, 60.0, 60.0, 32.0, 24.0, cam_from_world=look_at(eye, np.zeros(3)))
        for k, eye in enumerate(eyes)
    }
    return Rig(cameras, {f"c{count - 1}": "test"}, units="metres", world_up="z")


def test_a_rig_that_moved_as_a_whole_is_no_error(tmp_path: Path) -> None:
    true = rig_to_json(ring())
    found = rig_to_json(ring().transformed(MOTION))
    alignment = align(poses(true, "train"), poses(found, "train"))
    assert np.allclose(alignment.found_from_true, MOTION, atol=1e-9)
    assert alignment.scores()["alignment_mm_max"] < 1e-6
    write_moved(true, alignment.found_from_true, tmp_path / "rig.json")
    held_out = read_json(tmp_path / "rig.json")["cameras"]["c5"]["cam_from_world"]
    point = np.array([0.1, 0.05, 0.02, 1.0])
    assert np.allclose(np.array(held_out) @ MOTION @ point, ring().cameras["c5"].cam_from_world @ point, atol=1e-9)


def test_what_a_rig_is_off_is_left_by_the_alignment() -> None:
    true = poses(rig_to_json(ring()))
    turned = dict(true)
    turned["c2"] = np.asarray(se3_exp(np.array([0, 0, 0, 0, np.radians(1.0), 0]))) @ true["c2"]
    left = align(true, turned)
    assert left.degrees["c2"] > 0.75 and max(v for n, v in left.degrees.items() if n != "c2") < 0.25
    larger = {name: np.vstack([np.c_[pose[:3, :3], 1.01 * pose[:3, 3]], pose[3]]) for name, pose in true.items()}
    off = align(true, larger)  # a rig of the wrong size is not excused
    assert off.scores()["alignment_mm"] == pytest.approx(14, abs=1.5)
    assert off.scores()["alignment_deg_max"] < 1e-6


def test_base_errors_are_those_planted() -> None:
    base = pose_of(np.array([-0.4, 0.02, 0.01]), np.array([0.99, 0.0, 0.02, 0.1]))
    error = np.asarray(se3_exp(np.array([0, 0, 0, 0, 0, np.radians(0.5)])))
    found = MOTION @ base @ error
    found[:3, 3] += [0.003, 0.0, 0.0]
    rig = ring()
    rig = Rig(rig.cameras, rig.roles, RobotEntry("robot.xml", "MJCF", world_from_base=found))
    scores = base_errors(rig, MOTION, base)
    assert scores["robot_base_mm"] == pytest.approx(3.0, abs=1e-6)
    assert scores["robot_base_deg"] == pytest.approx(0.5, abs=1e-6)
    assert base_errors(ring(), MOTION, base) == {}


def test_clock_errors_are_those_planted() -> None:
    frames = np.arange(20) / 15
    timing = {
        "robot_clock_offset_s": 0.037,
        "cameras": {n: {"offset_s": o, "pts_s": frames.tolist()} for n, o in {"a": 0.0, "b": 0.0, "c": 0.0267}.items()},
    }
    shift, late = 0.5, 0.004  # the scene's clock runs half a second ahead: nobody can know
    times = {"a": frames + shift, "b": frames + shift, "c": frames + shift + 0.0267 + late}
    clocks = compare_clocks(times, 0.037 - shift + 0.006, timing)
    assert clocks.shift == pytest.approx(shift)
    assert clocks.lag_errors == pytest.approx({"a": 0.0, "b": 0.0, "c": late})
    assert clocks.robot_error == pytest.approx(0.006)
    assert compare_clocks(times, None, timing).robot_error is None


def patch(x: float, z: float, kind: int, owner: int, side: float = 0.2) -> Gaussians:
    """A dense, opaque square [x, x + side] x [0, side] at height z, facing up."""
    u, v = np.meshgrid(np.arange(0.0025, side, 0.005), np.arange(0.0025, side, 0.005))
    means = np.stack([x + u.ravel(), v.ravel(), np.full(u.size, z)], 1).astype(np.float32)
    rows = len(means)
    table = Gaussians.static(
        torch.from_numpy(means), torch.log(torch.tensor([0.002, 0.002, 0.0005])).expand(rows, 3).contiguous(),
        torch.tensor([1.0, 0, 0, 0]).expand(rows, 4).contiguous(), torch.full((rows,), 5.0), torch.zeros(rows, 1, 3),
    )  # fmt: skip
    table.object_id[:], table.kind[:] = owner, kind
    return table


def above() -> Camera:
    """Looks straight down from 1 m: a millimetre is a fifth of a pixel."""
    pose = np.diag([1.0, -1.0, -1.0, 1.0])
    pose[2, 3] = 1.0
    return Camera("above", 160, 120, 200.0, 200.0, 80.0, 60.0, cam_from_world=pose)


def seen_square(camera: Camera, left: float, right: float) -> np.ndarray:
    """bool [H, W]: x from left to right, y from 0 to 0.2 on the ground."""
    corners = project(camera, np.array([[left, 0.2, 0.0], [right, 0.0, 0.0]]))[0].round().astype(int)
    mask = np.zeros((camera.height, camera.width), bool)
    mask[corners[0, 1] : corners[1, 1], corners[0, 0] : corners[1, 0]] = True
    return mask


def test_link_iou_sees_place_time_and_what_is_in_front() -> None:
    camera = above()
    quat = torch.tensor([[1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    track = Track(np.array([0.0, 1.0]), torch.tensor([[0.0, 0, 0], [0.1, 0, 0]]), quat)
    table = patch(0.0, 0.0, RIGID, 1)
    scene = Scene(table, ring(), (0.0, 1.0), [Body("link", 1, "link", None, track)])

    def score(scene: Scene, true: tuple[float, float], t: float) -> float:
        masks = {"above": {0: seen_square(camera, *true)}}
        return link_iou(scene, {"above": camera}, masks, {"above": np.array([t])})["link_iou"]

    assert score(scene, (0.0, 0.2), 0.0) > 0.93
    assert score(scene, (0.1, 0.3), 1.0) > 0.93
    assert score(scene, (0.1, 0.3), 0.0) == pytest.approx(1 / 3, abs=0.03)  # half a side off
    cover = Gaussians.concat([table, patch(0.1, 0.05, STATIC, 0)])
    hidden = score(Scene(cover, ring(), (0.0, 1.0), scene.bodies), (0.0, 0.2), 0.0)
    assert hidden == pytest.approx(0.5, abs=0.06)
    assert iou(np.zeros((2, 2), bool), np.zeros((2, 2), bool)) == 1.0


def track_of(times: np.ndarray) -> np.ndarray:
    """[N, 4, 4]: rests for a second, then slides and turns."""
    s = np.clip(times - 1.0, 0, 1)
    made = [
        pose_of(np.array([0.2 + 0.3 * k, 0.1, 0.02]), np.array([np.cos(0.5 * k), 0, 0, np.sin(0.5 * k)])) for k in s
    ]
    return np.stack(made)


def write_tracks(scene: Path, truth: Path, found: np.ndarray, times: np.ndarray) -> None:
    """A scene folder's tracks, and the true object's."""
    truth.mkdir()
    box = {"kind": "box", "size": [0.02, 0.03, 0.04]}
    entry = {"name": "box", "moves": True, "max_displacement_m": 0.3, "texture": None, "collision": [box]}
    (truth / "objects.json").write_text(json.dumps({"objects": [entry]}))
    fine = np.arange(0, 2.5, 0.01)
    with (truth / "object_poses_100hz.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time_s", "object", "x", "y", "z", "qw", "qx", "qy", "qz"])
        for t, pose in zip(fine, track_of(fine), strict=True):
            writer.writerow([t, "box", *pose[:3, 3], *matrix_to_quat(pose[:3, :3])])
    scene.mkdir()
    body = {"name": "thing", "id": 3, "kind": "object"}
    sigmas = np.tile([1e-3, 1e-2], (len(times), 1)).tolist()
    header = {"bodies": [body], "provenance": {"objects": {"thing": {"sigmas": sigmas}}}}
    (scene / "scene.json").write_text(json.dumps(header))
    quats = np.stack([matrix_to_quat(pose[:3, :3]) for pose in found])
    tensors = {"3.times": times, "3.positions": found[:, :3, 3].copy(), "3.quats": quats}
    save_file(tensors, scene / "tracks.safetensors")


def test_tracks_are_compared_in_the_scenes_world_and_time(tmp_path: Path) -> None:
    times, shift = np.arange(0, 2.4, 0.1), 0.25
    own_frame = np.asarray(se3_exp(np.array([0.01, 0, 0.02, 0.3, -0.2, 0.1])))  # nobody prescribes a body's frame
    exact = MOTION @ track_of(times) @ own_frame
    write_tracks(tmp_path / "a", tmp_path / "truth_a", exact, times + shift)
    scores, followed = follow(tmp_path / "a", tmp_path / "truth_a", MOTION, shift)
    assert scores["objects_found"] == 1 and scores["objects_invented"] == 0
    assert scores["object_position_mm"] < 0.5 and scores["object_rotation_deg"] < 0.5
    assert followed["box"].body == "thing"
    late, _ = follow(tmp_path / "a", tmp_path / "truth_a", MOTION, 0.15)  # 100 ms at 0.3 m/s
    assert late["objects_found"] == 0 or late["object_position_mm"] > 10
    off = exact.copy()
    off[times > 1.05, :3, 3] += [0.0, 0.004, 0.0]
    write_tracks(tmp_path / "b", tmp_path / "truth_b", off, times + shift)
    assert follow(tmp_path / "b", tmp_path / "truth_b", MOTION, shift)[0]["object_position_mm"] == pytest.approx(
        4, abs=0.5
    )


def test_surfaces_count_where_they_are_seen() -> None:
    true = trimesh.creation.box((0.1, 0.1, 0.1))
    mesh = true.copy()
    mesh.vertices = np.where(mesh.vertices[:, 2:] < 0, mesh.vertices - [0, 0, 0.03], mesh.vertices)  # a bottom too low
    mesh = mesh.subdivide_to_size(0.01)
    eyes = np.array([[0.0, 0.0, 1.0], [1.0, 0.3, 0.9]])
    top_only, share = surface_error(mesh, true, np.eye(4), eyes[:1])
    assert top_only < 1e-6 and share == pytest.approx(0.01 / (0.02 + 4 * 0.013), abs=0.02)
    lifted = np.eye(4)
    lifted[2, 3] = 0.003
    assert surface_error(mesh, true, lifted, eyes[:1])[0] == pytest.approx(3.0, abs=0.01)
    below = np.array([[0.0, 0.0, -1.0]])
    assert surface_error(mesh, true, np.eye(4), below)[0] == pytest.approx(30.0, abs=0.1)


def test_a_region_is_scored_after_the_best_colours() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.2, 0.8, (6, 40, 48, 3)).astype(np.float32)
    drawn = (0.8 * truth + 0.1).astype(np.float32)
    mask = np.zeros((40, 48), bool)
    mask[10:20, 10:20] = True
    exact = score_camera(drawn, truth, {"fg_psnr": {0: mask, 5: ~mask & False}})
    assert exact["test_psnr"] < 30 and exact["fg_psnr"] > 60
    drawn[5, mask] += 0.1
    assert score_camera(drawn, truth, {"fg_psnr": {5: mask}})["fg_psnr"] == pytest.approx(18.1, abs=0.3)


def test_seeds_become_median_and_spread() -> None:
    runs = [{"seed": s, "device": "cpu", "a": a, "odd": {}} for s, a in enumerate((3.0, 1.0, 2.0))]
    result = merged(runs)
    assert result["a"] == 2.0 and result["spread"] == {"a": [1.0, 3.0]} and result["seeds"] == [0, 1, 2]
    assert merged(runs[:1]) == runs[0]
