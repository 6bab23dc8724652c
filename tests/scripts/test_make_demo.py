"""The bundled demo capture is what it says, and the scripts that made it and the arm make them again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.capture.video import VideoFile
from recon.core.files import read_json
from recon.geometry.camera import project
from recon.geometry.rig import Rig, rig_from_json
from recon.robot import RobotModel, load_robot, read_joint_log, silhouette
from scripts.demo_capture import raytrace
from scripts.demo_capture.motion import Motion, simulate
from scripts.demo_capture.world import build_cameras, build_world

FRAMES, FPS, SEED = 54, 15, 7


def run(repository: Path, name: str, *arguments: str) -> None:
    """Run a script as a person does."""
    subprocess.run([sys.executable, str(repository / "scripts" / name), *arguments], check=True, timeout=900)


@pytest.fixture(scope="module")
def demo(repository: Path) -> Path:
    return repository / "data" / "demo"


@pytest.fixture(scope="module")
def rig(demo: Path) -> Rig:
    return rig_from_json(read_json(demo / "rig.json"), "rig.json")


@pytest.fixture(scope="module")
def robot(demo: Path) -> RobotModel:
    return load_robot(demo / "robot" / "arm.xml", base_body="base")


@pytest.fixture(scope="module")
def motion(repository: Path) -> Motion:
    return simulate(repository / "data" / "robots" / "arm" / "arm.xml", 0.2, FPS, SEED)


def test_make_arm_writes_the_bundled_arm(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(repository, "make_arm", "--out", str(tmp_path))
    for name in ("arm.xml", "arm.urdf"):
        assert (tmp_path / name).read_bytes() == (repository / "data" / "robots" / "arm" / name).read_bytes()


def test_the_demo_is_small_and_complete(demo: Path, rig: Rig, robot: RobotModel, repository: Path) -> None:
    assert sum(path.stat().st_size for path in demo.rglob("*") if path.is_file()) < 4_000_000
    assert len(rig.named("train")) == 8 and len(rig.named("test")) == 2
    assert (rig.world_up, rig.units, rig.fps) == ("z", "metres", FPS)
    for name, camera in rig.cameras.items():
        folder = "cams" if rig.roles[name] == "train" else "test"
        video = VideoFile(demo / folder / f"{name}.mp4")
        assert (video.width, video.height) == (camera.width, camera.height) == (320, 240)
        np.testing.assert_allclose(video.times, np.arange(FRAMES) / FPS, atol=1e-3)
        assert 0.9 <= np.linalg.norm(camera.center - [-0.05, 0.02, 0.08]) <= 1.5
    assert len({camera.fx for camera in rig.cameras.values()}) > 5
    assert [name for name, camera in rig.cameras.items() if camera.distorted] == ["cam03"]
    assert rig.robot is not None and rig.robot.joint_log == "robot/joints.csv" and rig.robot.base_body == "base"
    log = read_joint_log(demo / "robot" / "joints.csv")
    log.check_against(robot)
    assert np.ptp(log.values, axis=0).max() > 0.5 and log.times[-1] >= (FRAMES - 1) / FPS
    assert (demo / "robot" / "arm.xml").read_bytes() == (repository / "data/robots/arm/arm.xml").read_bytes()


def test_the_cube_is_carried_and_the_ball_rolls(demo: Path) -> None:
    truth = json.loads((demo / "truth" / "objects.json").read_text())
    cube, ball = (np.array(truth["poses"][name]) for name in ("cube", "ball"))
    assert len(cube) == len(ball) == len(truth["times_s"]) == FRAMES
    assert cube[:, 2].max() > 0.12 and abs(cube[-1, 2] - cube[0, 2]) < 1e-3
    assert np.linalg.norm(cube[-1, :2] - cube[0, :2]) > 0.3
    assert np.linalg.norm(ball[-1, :2] - ball[0, :2]) > 0.3 and abs(ball[-1, 2] - 0.032) < 1e-3


@pytest.mark.parametrize("name", ["cam03", "cam08"])
def test_what_moves_in_the_pictures_is_the_robot_of_the_log(demo: Path, rig: Rig, robot: RobotModel, name: str) -> None:
    camera, log = rig.cameras[name], read_joint_log(demo / "robot" / "joints.csv")
    video = VideoFile(demo / ("cams" if rig.roles[name] == "train" else "test") / f"{name}.mp4")
    assert rig.robot is not None

    def share(frame: int, posed: int) -> float:
        """How much of what changed since the first frame the robot covers, when posed as in frame `posed`."""
        change = np.abs(video.read(frame).astype(int) - video.read(0).astype(int)).max(axis=2) > 50
        covered = np.zeros(change.shape, np.uint8)
        for k in (0, posed):
            covered |= silhouette(robot, log.at(k / FPS), camera, rig.robot.world_from_base).astype(np.uint8)
        return float(cv2.dilate(covered, np.ones((3, 3), np.uint8))[change].mean())

    assert share(36, 36) > 0.85
    assert share(36, 36) > share(36, 14) + 0.2


def test_the_cube_is_red_where_the_truth_projects_it(demo: Path, rig: Rig) -> None:
    truth = json.loads((demo / "truth" / "objects.json").read_text())
    for name, frame in (("cam02", 5), ("cam04", 53), ("cam05", 53)):
        top = np.add(truth["poses"]["cube"][frame][:3], [0, 0, 0.01])
        u, v = project(rig.cameras[name], top[None])[0][0]
        red, green, blue = VideoFile(demo / "cams" / f"{name}.mp4").read(frame)[int(v), int(u)].astype(int)
        assert red > green + 25 and red > blue + 25


def test_equal_seeds_give_equal_pictures_and_culling_changes_nothing(
    repository: Path, motion: Motion, monkeypatch: pytest.MonkeyPatch
) -> None:
    surfaces = build_world(load_robot(repository / "data/robots/arm/arm.xml"), SEED)
    cameras, _, sensors = build_cameras(SEED, 80, 60)
    poses = {body: track[1] for body, track in motion.poses.items()}

    def draw(seed: int) -> np.ndarray:
        return raytrace.Renderer(surfaces, motion.still(), cameras["cam02"], sensors["cam02"], seed).frame(poses, 1)

    picture = draw(SEED)
    np.testing.assert_array_equal(picture, draw(SEED))
    assert not np.array_equal(picture, draw(SEED + 1))
    assert picture.std(axis=(0, 1)).min() > 25  # textured
    monkeypatch.setattr(raytrace._Cones, "meet", lambda self, spheres: np.ones(self._points.shape[1], bool))
    np.testing.assert_array_equal(picture, draw(SEED))


def test_a_small_capture_is_made_from_the_command_line(repository: Path, tmp_path: Path) -> None:
    size, cameras = "64x48", "cam02,cam09"
    out = str(tmp_path / "x")
    run(repository, "make_demo", "--out", out, "--seconds", "0.2", "--size", size, "--cams", cameras, "--jobs", "1")
    rig = rig_from_json(read_json(tmp_path / "x" / "rig.json"), "rig.json")
    assert rig.roles == {"cam02": "train", "cam09": "test"}
    assert len(VideoFile(tmp_path / "x" / "test" / "cam09.mp4").times) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x"]  # no staging folder left
