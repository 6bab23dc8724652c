"""A robot is found from nothing before one camera; what it cannot be found from is refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.calibrate.rig import load_rig
from recon.config import LocateConfig
from recon.core.errors import InputError, UsageError
from recon.core.files import data_file, read_json
from recon.fit import whereabouts
from recon.fit.changes import Evidence, Sighting, pose_points
from recon.fit.posture import Posture, refine_posture
from recon.fit.robot import open_robot
from recon.fit.stance import moved
from recon.fit.uncovered import reposed, robot_views
from recon.fit.whereabouts import Body, draw_before
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.locate import apart
from recon.placing import place, place_robot
from recon.robot.description import RobotModel, load_robot
from recon.robot.poses import read_positions
from recon.robot.silhouettes import draw_robot

ARM = data_file("robots/arm/arm.xml")
TURNS = (-0.9, -0.3, 0.4, 1.0)
K = "200 0 159.5\n0 200 119.5\n0 0 1\n"


@pytest.fixture(scope="module")
def arm() -> RobotModel:
    return load_robot(ARM, root=ARM.parent)


def posture(arm: RobotModel, turn: float) -> dict[str, float]:
    q = dict(arm.home)
    for k, name in enumerate(list(arm.joints)[:4]):
        q[name] += (turn, 0.5 * turn, -0.4 * turn, 0.6 * turn)[k]
    return q


def camera(pose: np.ndarray) -> Camera:
    return Camera("camera", 320, 240, 200.0, 200.0, 160.0, 120.0, cam_from_world=pose)


TRUE = look_at(np.array([0.9, -0.75, 0.75]), np.array([0.1, 0.05, 0.25]))  # cam_from_base


def pictures(arm: RobotModel, qs: list[dict[str, float]], cam_from_base: np.ndarray = TRUE) -> list[np.ndarray]:
    """The arm, shaded by depth, before clutter that stands still, with noise and unequal light."""
    rng = np.random.default_rng(3)
    clutter = cv2.GaussianBlur(rng.random((240, 320, 3)).astype(np.float32), (0, 0), 6)
    clutter = np.clip(0.4 + 4.0 * (clutter - clutter.mean()), 0.05, 0.9)
    found = []
    for k, q in enumerate(qs):
        drawn = draw_robot(arm, q, camera(cam_from_base), np.eye(4))
        colour = np.clip(1.5 - drawn.depth, 0.1, 1.0)[..., None] * [0.95, 0.85, 0.8]
        shown = np.where(drawn.mask[..., None], colour, clutter) * (1.0 + 0.03 * k)
        found.append(np.clip(shown + rng.normal(0, 0.01, shown.shape), 0, 1).astype(np.float32))
    return found


def sightings(arm: RobotModel) -> list[Sighting]:
    qs = [posture(arm, turn) for turn in TURNS]
    return [Sighting(camera(np.eye(4)), q, p) for q, p in zip(qs, pictures(arm, qs), strict=True)]


def config(folder: Path, arm: RobotModel) -> LocateConfig:
    """A folder of what the command takes."""
    qs = [posture(arm, turn) for turn in TURNS]
    (folder / "color").mkdir()
    for k, picture in enumerate(pictures(arm, qs)):
        cv2.imwrite(str(folder / "color" / f"{k}.png"), np.round(255 * picture[..., ::-1]).astype(np.uint8))
    (folder / "K.txt").write_text(K)
    rows = [",".join(arm.joints)] + [",".join(f"{v:.6f}" for v in q.values()) for q in qs]
    (folder / "joints.csv").write_text("\n".join(rows))
    return LocateConfig(folder / "color", folder / "K.txt", folder / "joints.csv", ARM, folder / "out")


def test_the_command_finds_the_base_from_none(arm: RobotModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "DRAWN", 15_000)  # enough for an easy scene
    list(place(config(tmp_path, arm)))
    told = read_json(tmp_path / "out" / "pose.json")
    millimetres, degrees = apart(TRUE, np.array(told["cam_from_base"]))
    assert millimetres < 10.0 and degrees < 0.6  # a pixel is 6 mm there, its depth is told by its size alone
    assert not any(picture["late"] for picture in told["pictures"])
    mask = cv2.imread(str(tmp_path / "out" / "masks" / "1.png"), cv2.IMREAD_GRAYSCALE) > 0
    true = draw_robot(arm, posture(arm, TURNS[1]), camera(TRUE), np.eye(4)).mask
    assert (mask & true).sum() / (mask | true).sum() > 0.95


def test_the_true_pose_explains_most(arm: RobotModel) -> None:
    seen = sightings(arm)
    points = pose_points(arm, [s.q for s in seen])
    evidence = Evidence(seen, points, 40)
    drawn = draw_before(evidence.cameras[0], Body.around(points), True, 300, np.random.default_rng(0))
    assert evidence.score(TRUE[None])[0] > max(0.4, evidence.score(drawn).max())
    nowhere = np.eye(4)
    nowhere[2, 3] = -5.0
    assert evidence.score(nowhere[None])[0] == 0.0


def test_one_at_a_time_is_worth_what_all_together_are(arm: RobotModel) -> None:
    seen = sightings(arm)
    points = pose_points(arm, [s.q for s in seen])
    evidence = Evidence(seen, points, 40)
    masks = np.stack([evidence.shown(v, points[v], TRUE[None])[0] for v in range(len(seen))])
    slow = 0.0
    for i, j in evidence.pairs:
        one, both = (masks[i] != masks[j]), (masks[i] * masks[j] > 0)
        slow += float(evidence.xor[i, j][one].sum() + evidence.both[i, j][both].sum())
    assert evidence.score(TRUE[None])[0] == pytest.approx(slow / evidence.whole, rel=1e-4)
    others = sum(float(evidence.against(v, masks[v : v + 1], masks)[0]) for v in range(len(seen)))
    assert others / 2 == pytest.approx(slow / evidence.whole, rel=1e-4)


def test_pictures_without_the_robot_are_refused(arm: RobotModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "DRAWN", 1000)
    rng = np.random.default_rng(0)
    still = [
        Sighting(s.camera, s.q, (0.5 + rng.normal(0, 0.01, s.picture.shape)).astype(np.float32)) for s in sightings(arm)
    ]  # fmt: skip
    with pytest.raises(InputError, match="not found in the pictures"):
        list(place_robot(arm, still, 0, False))


def test_joint_positions_that_cannot_be_meant_are_refused(arm: RobotModel, tmp_path: Path) -> None:
    table = tmp_path / "joints.csv"
    names = list(arm.joints)
    row = ",".join(["0.1"] * len(names))
    table.write_text(f"{','.join(names)}\n{row}\n{row}\n")
    assert read_positions(table, arm, 2)[0] == dict.fromkeys(names, 0.1)
    with pytest.raises(InputError, match="2 sets of joint positions for 3 pictures"):
        read_positions(table, arm, 3)
    with pytest.raises(InputError, match="cannot be read"):
        read_positions(tmp_path / "none.csv", arm, 2)
    table.write_text(f"{row}\n{row.replace('0.1', '35', 2)}\n")
    with pytest.raises(InputError, match="look like degrees"):
        read_positions(table, arm, 2)
    table.write_text("0.1 0.2\n0.1 0.2\n")
    with pytest.raises(UsageError, match="joint-names"):
        read_positions(table, arm, 2)
    with pytest.raises(InputError, match="no joint 'shoulder_pam'"):
        read_positions(table, arm, 2, ["shoulder_pam", names[0]])
    table.write_text(f"{row}\n{row.replace('0.1', 'nan', 1)}\n")
    with pytest.raises(InputError, match="not finite"):
        read_positions(table, arm, 2)


def test_a_rig_finds_the_base_on_its_table(arm: RobotModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "DRAWN", 15_000)
    world_from_base = moved(np.eye(4), np.r_[0.0, 0.0, 2.0, 0.3, -0.2, 0.02])
    qs = [posture(arm, turn) for turn in TURNS]
    seen = []
    for k, angle in enumerate((0.3, 1.6, 3.5)):
        eye = np.array([0.3 + 1.1 * np.cos(angle), 1.1 * np.sin(angle) - 0.2, 0.8])
        own = replace(camera(look_at(eye, np.array([0.2, -0.1, 0.2]))), name=f"cam{k}")
        cam_from_base = own.cam_from_world @ world_from_base
        seen += [Sighting(own, q, p) for q, p in zip(qs, pictures(arm, qs, cam_from_base), strict=True)]
    found, _ = whereabouts.find_whereabouts(arm, seen, plane=True)
    millimetres, degrees = apart(world_from_base, found.world_from_base)
    assert millimetres < 30.0 and degrees < 4.0 and found.score > 0.4


def test_a_robot_without_a_base_is_to_be_sought() -> None:
    demo = data_file("demo/rig.json").parent
    entry = load_rig([demo / "rig.json"]).robot
    assert entry is not None and not open_robot(demo, entry, np.eye(4)).sought
    robot = open_robot(demo, replace(entry, world_from_base=None), np.eye(4))
    assert robot.sought and not robot.placed(np.eye(4), {}).sought


def test_a_picture_that_was_logged_at_another_moment_gets_its_own_joints(arm: RobotModel) -> None:
    seen = sightings(arm)
    late = {name: 0.85 * seen[1].q[name] + 0.15 * seen[2].q[name] for name in seen[1].q}
    seen[1] = replace(seen[1], q=late)
    found = posture_of(arm, seen, TRUE)
    true, name = posture(arm, TURNS[1]), list(arm.joints)[0]
    assert abs(found.qs[1][name] - true[name]) < 0.25 * abs(late[name] - true[name])


def posture_of(arm: RobotModel, seen: list[Sighting], base: np.ndarray) -> Posture:
    for margin, band in ((12, 16.0), (6, 8.0), (4, 5.0)):
        found = refine_posture(arm, robot_views(arm, seen, base, margin), base, True, (band, band))
        assert found is not None
        base, seen = found.world_from_base, reposed(seen, found.qs)
    return found
