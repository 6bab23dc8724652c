"""`recon calibrate`: rendered clips of a board give back the cameras that took them; what cannot be used is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from recon.calibrate.board import Board
from recon.calibrate.corners import Corners, Finder
from recon.calibrate.diagnose import printed_inverted
from recon.calibrate.instants import pair_frames
from recon.calibrate.intrinsics import start_camera
from recon.calibrate.rig import load_rig
from recon.calibrate.solve import Solved, solve, start
from recon.calibrate.verdict import judge_cameras, told, weakest
from recon.calibrate.world import world_from_rig
from recon.calibration import calibrate
from recon.capture.session import open_capture
from recon.config import CalibrateConfig
from recon.core.errors import CalibrationError, InputError
from recon.geometry.camera import Camera, project
from recon.geometry.pose import invert_pose
from tests.recon.calibrate.printed import BOARD, SIZE, carried, photo, rig, write_clips

WORD = "charuco:5x7:0.04:0.03:DICT_4X4_50"
VIEWS = 12
Views = dict[tuple[int, int], Corners]


def clips(root: Path, cameras: list[Camera], poses: list[np.ndarray], inverted: bool = False) -> Path:
    return write_clips(root, {c.name: [photo(c, BOARD, pose, inverted) for pose in poses] for c in cameras})


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One camera, three pictures."""
    return clips(tmp_path_factory.mktemp("few") / "clips", rig(1), carried(3))


def run(videos: Path, out: Path, board: str = WORD) -> None:
    for _ in calibrate(CalibrateConfig(videos, board, out=out)):
        pass


def seen(cameras: list[Camera], poses: list[np.ndarray], noise: float = 0.1) -> Views:
    """Corners as `cameras` see them, with pixel noise."""
    rng = np.random.default_rng(0)
    views = {}
    for c, camera in enumerate(cameras):
        for t, pose in enumerate(poses):
            uv = project(camera, BOARD.corners @ pose[:3, :3].T + pose[:3, 3])[0]
            inside = np.isfinite(uv).all(1) & (uv > 0).all(1) & (uv < SIZE).all(1)
            ids = np.flatnonzero(inside)
            views[c, t] = Corners(ids, uv[ids] + rng.normal(0, noise, (len(ids), 2)))
    return views


def solved(cameras: list[Camera], views: Views, lens: str = "auto") -> Solved:
    like, state, usable = start([c.name for c in cameras], [SIZE] * len(cameras), views, BOARD.corners, lens)
    return solve(like, state, usable, BOARD.corners, lens, 0.2 * np.arange(100))


def assert_like(
    found: dict[str, Camera], true: list[Camera], focal: float = 0.004, metres: float = 0.003, turn: float = 0.006
) -> None:
    first = found[true[0].name].cam_from_world
    for camera in true:
        ours = found[camera.name]
        assert ours.fx == pytest.approx(camera.fx, rel=focal), camera.name
        expected = camera.cam_from_world @ np.linalg.inv(true[0].cam_from_world)
        got = ours.cam_from_world @ np.linalg.inv(first)
        assert np.abs(expected[:3, 3] - got[:3, 3]).max() < metres, camera.name
        assert np.abs(expected[:3, :3] - got[:3, :3]).max() < turn, camera.name


def test_board_clips_give_back_focal_lengths_and_metric_poses(tmp_path: Path) -> None:
    """Twenty views: twelve of so small pictures know a focal length to 0.4 % only, and it is to be known to 0.3 %."""
    run(clips(tmp_path / "clips", rig(), carried(20)), tmp_path / "rig")
    found = load_rig([tmp_path / "rig"])
    assert_like(found.cameras, rig(), focal=0.003)
    assert found.units == "metres"
    assert json.loads((tmp_path / "rig" / "report.json").read_text())["reprojection_px"] < 0.2


def test_a_fisheye_is_told_by_its_own_views() -> None:
    """Half a field of view of 75 degrees: no Brown-Conrady lens bends like that."""
    true = Camera("wide", *SIZE, 120.0, 121.0, 160.5, 119.0, (0.02, -0.01, 0.004, -0.001), np.eye(4), "fisheye")
    views = [view for view in seen([true], in_directions(14), 0.05).values() if len(view) >= 10]
    found = start_camera("wide", SIZE, views, BOARD.corners)
    assert found.camera.lens == "fisheye"
    assert found.camera.fx == pytest.approx(true.fx, rel=0.01)
    edge = np.array([[0.9, 0.3, 0.4]])
    assert project(found.camera, edge)[0] == pytest.approx(project(true, edge)[0], abs=1.0)


def in_directions(count: int) -> list[np.ndarray]:
    """cam_from_board poses 0.3 m away, up to 60 degrees off the axis, facing the camera but for a tilt."""
    rng, poses = np.random.default_rng(5), []
    for k in range(count):
        away, round_ = 1.05 * np.sqrt((k + 0.5) / count), 2.4 * k
        turn = Rotation.from_rotvec([-away * np.sin(round_), away * np.cos(round_), 0]).as_matrix()
        pose = np.eye(4)
        pose[:3, :3] = turn @ Rotation.from_rotvec(rng.uniform(-0.5, 0.5, 3)).as_matrix()
        pose[:3, 3] = turn @ [0, 0, 0.3] - pose[:3, :3] @ BOARD.corners.mean(0)
        poses.append(pose)
    return poses


def test_the_camera_with_few_views_is_named_and_how_many_more_it_needs() -> None:
    cameras = rig()
    views = seen(cameras, carried(VIEWS))
    views = {(c, t): view for (c, t), view in views.items() if c != 1 or t < 4}
    qualities = judge_cameras(solved(cameras, views))
    assert weakest(qualities).name == "c1"
    assert weakest(qualities).more >= 4
    assert "camera c1 is weak: 4 views" in told(qualities)


def test_cameras_that_look_at_other_moments_are_still_placed_and_their_lags_found() -> None:
    cameras, lags, times = rig(), np.array([0.05, -0.04, 0.0]), 0.2 * np.arange(24)
    start_pose = carried(1)[0]

    def board(t: float) -> np.ndarray:
        pose = np.eye(4)
        turn = [0.5 * np.sin(1.1 * t), 0.5 * np.sin(1.7 * t + 1), 0.4 * np.sin(0.9 * t + 2)]
        pose[:3, :3] = start_pose[:3, :3] @ Rotation.from_rotvec(turn).as_matrix()
        middle = [0.08 * np.sin(1.3 * t), 0.06 * np.sin(0.8 * t), 0.07 * np.sin(1.9 * t + 0.5)]
        pose[:3, 3] = np.array(middle) - pose[:3, :3] @ BOARD.corners.mean(0)
        return pose

    views = {}
    for c, camera in enumerate(cameras):
        one = seen([camera], [board(t + lags[c]) for t in times])
        views |= {(c, t): view for (_, t), view in one.items()}
    result = solved(cameras, views, "pinhole")
    assert result.timed
    lag = result.solution.state.lag
    assert lag - lag.mean() == pytest.approx(lags - lags.mean(), abs=0.004)
    assert_like({c.name: c for c in result.cameras}, cameras, focal=0.015, metres=0.006, turn=0.012)


def test_deviations_are_those_of_repeated_calibrations() -> None:
    """The focal length's claimed deviation against its scatter over noise alone."""
    cameras = rig(2)
    views, rng = seen(cameras, carried(6), 0.0), np.random.default_rng(3)
    scatter, claimed = [], []
    for _ in range(4):
        noisy = {k: Corners(v.ids, v.uv + rng.normal(0, 0.1, v.uv.shape)) for k, v in views.items()}
        result = solved(cameras, noisy, "pinhole")
        scatter.append(result.cameras[0].fx / cameras[0].fx - 1)
        claimed.append(judge_cameras(result)[0].focal_percent / 100)
    assert 0.3 < np.sqrt(np.mean(np.square(scatter))) / np.mean(claimed) < 2.0


def test_frames_are_paired_by_time_not_by_number() -> None:
    slow, late = np.arange(10) * 0.2, 0.6 + np.arange(30) * 0.05 + 0.003
    paired = pair_frames([slow, late], 100)
    assert paired.times[:10] == pytest.approx(slow)
    assert paired.frames[1, :3].tolist() == [-1, -1, -1]
    both = paired.frames[:, 3:10]
    assert np.abs(slow[both[0]] - late[both[1]]).max() < 0.026
    assert paired.late[1, 3] == pytest.approx(0.003)


def test_an_inverted_print_is_noticed_and_its_corners_are_exact(tmp_path: Path) -> None:
    camera, pose = rig(1)[0], carried(1)[0]
    with open_capture(clips(tmp_path / "clips", [camera], [pose], inverted=True), None, min_cameras=1) as capture:
        streams = list(capture.cameras.values())
        assert printed_inverted(streams, pair_frames([s.times for s in streams], 5), BOARD)
        corners = Finder(BOARD, inverted=True).find(streams[0].read(0))
    expected = project(camera, BOARD.corners @ pose[:3, :3].T + pose[:3, 3])[0]
    assert len(corners) == len(BOARD.corners)
    assert np.linalg.norm(corners.uv - expected[corners.ids], axis=1).max() < 0.25


@pytest.mark.parametrize("inverted", [False, True])
def test_a_checkerboards_corners_are_numbered_and_exact(inverted: bool) -> None:
    board, camera, pose = Board("checkerboard", 6, 7, 0.03), rig(1)[0], carried(1)[0]
    corners = Finder(board, inverted).find(photo(camera, board, pose, inverted))
    expected = project(camera, board.corners @ pose[:3, :3].T + pose[:3, 3])[0]
    assert corners.ids.tolist() == list(range(30))
    assert np.linalg.norm(corners.uv - expected, axis=1).max() < 0.25


def test_an_april_grids_corners_are_numbered_and_near() -> None:
    board, camera, pose = Board("aprilgrid", 4, 5, 0.048, 0.04, "DICT_APRILTAG_36h11"), rig(1)[0], carried(1)[0]
    corners = Finder(board, inverted=False).find(photo(camera, board, pose))
    expected = project(camera, board.corners @ pose[:3, :3].T + pose[:3, 3])[0]
    assert len(corners) > 60
    assert np.median(np.linalg.norm(corners.uv - expected[corners.ids], axis=1)) < 0.45


def test_a_board_on_the_table_gives_z_up_and_the_table_at_zero() -> None:
    camera, board = rig(1)[0], carried(1)[0]
    times = np.array([0.0, 0.2, 0.4])
    boards = {0: carried(2)[1], 1: board, 2: board}
    pose, up, text = world_from_rig("table", 0.2, BOARD, boards, times, np.eye(4))
    assert up and "2 resting views from 0.20 s" in text
    moved = pose @ board
    assert np.abs((moved @ np.r_[BOARD.corners[3], 1])[2]) < 1e-9
    assert (pose @ np.append(camera.center, 1))[2] > 0.1  # the camera looks down on it


def test_a_surveyed_board_gives_its_world() -> None:
    reference = carried(3)[2]
    pose, _, _ = world_from_rig(
        "auto", 0.0, replace(BOARD, reference=reference), {0: np.eye(4)}, np.zeros(1), np.eye(4)
    )
    assert pose == pytest.approx(reference)
    with pytest.raises(InputError, match="no camera saw the board then or later: it was last seen at 0.00 s"):
        world_from_rig("table", 3.0, BOARD, {0: np.eye(4)}, np.zeros(1), np.eye(4))


def test_the_camera_world_is_the_first_cameras_axes() -> None:
    first = invert_pose(carried(1)[0])
    assert world_from_rig("auto", 0.0, BOARD, {0: np.eye(4)}, np.zeros(1), first)[0] == pytest.approx(first)


def test_cameras_that_share_no_view_are_named_by_group() -> None:
    cameras = rig(4)
    views = {(c, t): v for (c, t), v in seen(cameras, carried(VIEWS)).items() if (t < 6) == (c < 2)}
    with pytest.raises(CalibrationError, match=r"2 groups share no view of the board: c0, c1 \| c2, c3"):
        solved(cameras, views)


def test_boards_seen_by_one_camera_at_a_time_are_refused() -> None:
    cameras = rig(2)
    views = {(c, t): v for (c, t), v in seen(cameras, carried(VIEWS)).items() if t % 2 == c}
    with pytest.raises(CalibrationError, match="never seen by two cameras at once: c0 saw it 6 times"):
        solved(cameras, views)


def test_too_few_views_say_how_many_more(few: Path, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="camera c0 has 3 and needs 1 more"):
        run(few, tmp_path / "rig")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("charuco:7x5:0.04:0.03:DICT_4X4_50", "its layout is not that described .* 5x7 fits"),
        ("charuco:5x7:0.04:0.03:DICT_6X6_50", "markers of DICT_4X4_1000 were read at once, not of DICT_6X6_50"),
    ],
)
def test_a_wrong_description_is_explained(few: Path, tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        run(few, tmp_path / "rig", word)


def test_mirrored_pictures_are_called_mirrored(tmp_path: Path) -> None:
    cameras, poses = rig(2), carried(2)
    pictures = {c.name: [photo(c, BOARD, pose) for pose in poses] for c in cameras}
    pictures["c1"] = [np.ascontiguousarray(p[:, ::-1]) for p in pictures["c1"]]
    with pytest.raises(CalibrationError, match="pictures of c1: it is there mirrored"):
        run(write_clips(tmp_path / "clips", pictures), tmp_path / "rig")


def test_an_empty_scene_says_what_was_looked_for(tmp_path: Path) -> None:
    blank = [np.full((240, 320, 3), 120, np.uint8)] * 2
    with pytest.raises(
        CalibrationError, match="not found in the pictures of c0: looked for: charuco, 5x7 squares of 40"
    ):
        run(write_clips(tmp_path / "clips", {"c0": blank}), tmp_path / "rig")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("charuco:5x7:0.04", "expected charuco:COLUMNSxROWS:SQUARE_M:MARKER_M:DICTIONARY"),
        ("charuco:5x7:0.03:0.04:DICT_4X4_50", "markers do not fit into their squares"),
        ("charuco:5x7:0.04:0.03:DICT_4X4_5O", "Did you mean 'DICT_4X4_50'"),
        ("board.json", "no such file"),
        ("checkerboard:6x8:0.03", "looks the same upside down"),
    ],
)
def test_a_description_that_is_none_is_refused(few: Path, tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(few, tmp_path / "rig", word)
