"""Tasks as data: what a file may say, what predicates, stages and scripts mean; and the experts do what they show."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recon.core.errors import CorruptError, InputError, UsageError
from recon.core.files import data_root, read_json, write_json
from recon.geometry.pose import so3_log
from sim2real.control import action_names
from sim2real.env import SplatVectorEnv
from sim2real.evaluate import Evaluation, evaluate, expert
from sim2real.kinematics import Kinematics
from sim2real.scenarios import Sampler, load_set, save_set
from sim2real.tasks.predicates import evaluate_tree, gap
from sim2real.tasks.spec import bundled, load_task, with_captured
from sim2real.workcell import open_workcell

TASKS = [name for name in bundled("tasks") if name != "reach"]
REACH_HASH = "4a7da48af506676f"  # of results published before tasks had bodies


@pytest.fixture(scope="module")
def place(scene, robot):
    return open_workcell(scene, "pick_place", robot=robot)


def test_the_hash_of_an_old_task_is_what_it_was() -> None:
    assert load_task("reach").hash == REACH_HASH
    hashes = {name: load_task(name).hash for name in bundled("tasks")}
    assert len(set(hashes.values())) == len(hashes)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("released: cube", "released: cbue", "predicate 'released' names 'cbue'.*Did you mean 'cube'"),
        ("released: cube", "released: goal", "predicate 'released' needs a body: 'goal' is a place"),
        ("inside: [cube, goal]", "inside: [goal, cube]", "predicate 'inside' needs a body: 'goal' is a place"),
        ("inside: [cube, goal]", "inside: cube", "predicate 'inside' needs two names"),
        ("lifted: cube, height: 0.04", "lifted: cube, hight: 0.04", "predicate 'lifted' has no key 'hight'"),
        ("lifted: cube, height: 0.04", "lifted: cube, height: deep", "needs 'height' > 0 in metres"),
        ("init: {region: work}", "init: {region: wrok}", "'goal' starts in region 'wrok'.*Did you mean 'work'"),
        ("within: {goal:", "within: {gaol:", "where 'cube' starts depends on 'gaol'"),
        ("needs: [reach]", "needs: [raech]", "stage 'grasp' needs 'raech'.*Did you mean 'reach'"),
        ("go: goal, carry: cube", "go: gaol, carry: cube", "step 5 of the expert names 'gaol'.*Did you mean 'goal'"),
        ("go: goal, carry: cube", "go: goal, carry: goal", "step 5 of the expert needs a body"),
        ("gripper: true", "gripper: false", "needs a gripper"),
        ("shape: box", "shape: bax", "cannot be 'bax'.*Did you mean 'box'"),
        ("size: [0.04, 0.04, 0.04]", "size: [0.04]", "a box needs 3 sizes"),
        ("density: 500", "density: -5", "density must be positive"),
        ("mode: ee_delta", "mode: ee_dleta", "Did you mean 'ee_delta'"),
        ("radius: [0.42, 0.68]", "radius: [0.68, 0.42]", "two ascending fractions"),
        ("type: staged", "type: stagde", "Did you mean 'staged'"),
    ],
)
def test_wrong_task_files_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (data_root() / "tasks" / "pick_place.yaml").read_text()
    assert old in text
    path = tmp_path / "pick_place.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=message):
        load_task(str(path))


def test_an_impossible_region_is_refused_with_the_reason(place) -> None:
    far = replace(place.task.regions["work"], radius=(0.95, 1.0), azimuth_deg=(150, 180))
    task = replace(place.task, regions={"work": far})
    with pytest.raises(UsageError, match="finds no place for its things here: 200 of 200 places are off the table"):
        Sampler(place.world, task).draw(0, "train", 0)


def test_a_robot_without_a_hand_is_refused_for_what_needs_one(scene, robot, tmp_path: Path) -> None:
    lines = [line for line in robot.read_text().splitlines() if 'name="gripper"' not in line]
    path = tmp_path / "handless.xml"
    path.write_text("\n".join(lines).replace('<key name="home" qpos', '<key name="rest" qpos'))
    path.write_text(re.sub(r"  <keyframe>.*</keyframe>", "", path.read_text()))
    with pytest.raises(InputError, match="task 'pick' needs a gripper"):
        open_workcell(scene, "pick", robot=path)


def test_things_start_where_their_regions_are_and_apart(place) -> None:
    base, forward, reach = place.sampler.ring
    region = place.task.regions["work"]
    low, high = place.task.bodies["cube"].init.within["goal"]
    for scenario in place.sampler.draw_set(0, "eval", 30).scenarios:
        cube, goal = np.array(scenario.bodies["cube"][:3]), np.array(scenario.places["goal"])
        for spot in (cube, goal):
            distance = np.linalg.norm(spot[:2] - base)
            assert region.radius[0] * reach - 2e-3 <= distance <= region.radius[1] * reach + 2e-3
            turn = np.degrees(np.arctan2(spot[1] - base[1], spot[0] - base[0]) - forward)
            assert region.azimuth_deg[0] - 0.5 <= turn <= region.azimuth_deg[1] + 0.5
        assert low - 2e-3 <= np.linalg.norm(cube[:2] - goal[:2]) <= high + 2e-3
        assert cube[2] == pytest.approx(place.world.bench.top + 0.02, abs=1e-3)


def test_scenario_files_hold_poses_and_their_hash(place, tmp_path: Path) -> None:
    scenarios = place.sampler.draw_set(2, "eval", 3)
    path = tmp_path / "scenarios.json"
    save_set(scenarios, path)
    assert load_set(path) == scenarios and load_set(path).hash == scenarios.hash
    data = read_json(path)
    data["scenarios"][1]["bodies"]["cube"][0] += 1e-9
    write_json(path, data)
    with pytest.raises(CorruptError, match="changed since it was written"):
        load_set(path)


def test_predicates_on_a_scene_arranged_by_hand(place) -> None:
    env = SplatVectorEnv(place, 2)
    env.reset(seed=0)
    k = int(place.world.model.joint("thing_cube_free").qposadr[0])
    goal, qpos = env.points()["goal"], env._state["qpos"]
    qpos[:, k : k + 2] = goal[:, :2] + [[0.01, 0.0], [0.06, 0.0]]  # in the disc of 4 cm, and beside it
    qpos[1, k + 2] += 0.08  # in the air
    half = np.sqrt(0.5)
    qpos[1, k + 3 : k + 7] = [half, half, 0, 0]  # on its side
    env._refresh(np.arange(2))
    facts = env.facts()

    def truth(tree: dict) -> list[bool]:
        return evaluate_tree(tree, facts).tolist()

    assert truth({"inside": ["cube", "goal"]}) == [True, False]
    assert truth({"lifted": "cube", "height": 0.07}) == [False, True]
    assert truth({"upright": "cube", "deg": 5}) == [True, False]
    assert truth({"released": "cube"}) == [True, True] and truth({"grasped": "cube"}) == [False, False]
    assert truth({"on_top": ["cube", "table"]}) == [True, False] and truth({"touching": ["cube", "table"]}) == [
        True,
        False,
    ]
    assert truth({"still": "cube"}) == [True, True]
    assert gap({"inside": ["cube", "goal"]}, facts)[1] == pytest.approx(np.hypot(0.06, 0.08), abs=2e-3)
    both = {"all": [{"inside": ["cube", "goal"]}, {"lifted": "cube", "height": 0.07}]}
    assert gap(both, facts)[0] == pytest.approx(0.07, abs=2e-3) and (gap({"not": both}, facts) == 0).all()


def test_held_counts_control_steps_and_starts_again(scene, robot) -> None:
    task = load_task("pick_place")
    held = {"held": {"above": ["tcp", "cube"], "height": 0.05}, "steps": 3}
    cell = open_workcell(scene, replace(task, success=held, hold=1), robot=robot)
    env = SplatVectorEnv(cell, 1)
    env.reset(seed=0)
    ended = [bool(env.step(np.zeros((1, 7)))[2][0]) for _ in range(3)]
    assert ended == [False, False, True]


def test_stages_latch_in_order_and_the_reward_follows(place) -> None:
    env = SplatVectorEnv(place, 1)
    env.reset(seed=1)
    seen, rewards, done = [np.zeros(len(place.task.stages), bool)], [], False
    while not done:
        _, reward, terminated, truncated, info = env.step(env.expert_action())
        done = bool(terminated[0] | truncated[0])
        rewards.append(float(reward[0]))
        if not done:
            seen.append(env.progress.latched[0].copy())
    assert info["success"][0] and info["progress"][0] == 1.0
    for before, after in zip(seen, seen[1:], strict=False):
        assert (after >= before).all()  # never undone
        assert (np.diff(after.astype(int)) <= 0).all()  # each needs the one before
    bonus = place.task.reward.success_bonus
    assert (
        rewards[-1] > bonus and max(rewards[:-1]) <= 1.0 + 1e-9 and np.mean(rewards[-6:-1]) > np.mean(rewards[:5]) + 0.5
    )


@pytest.mark.parametrize("name", TASKS)
def test_the_expert_solves_its_task(name: str, scene, robot) -> None:
    cell = open_workcell(scene, name, robot=robot)
    results: list[Evaluation] = []
    scenarios = cell.sampler.draw_set(9, "eval", 12)
    for _ in evaluate(cell, scenarios, expert, "expert", cameras=(), size=32, num_envs=12, done=results.append):
        pass
    assert results[0].rate.k >= 11


@pytest.mark.parametrize("mode, max_delta", [("joint_delta", 0.06), ("joint_position", 0.06)])
def test_the_same_script_works_in_every_control_mode(mode: str, max_delta: float, scene, robot) -> None:
    task = load_task("pick")
    control = replace(task.control, mode=mode, max_delta=max_delta)
    cell = open_workcell(scene, replace(task, control=control), robot=robot)
    assert len(action_names(control, cell.world.arm.joints)) == 7
    results: list[Evaluation] = []
    scenarios = cell.sampler.draw_set(9, "eval", 6)
    for _ in evaluate(cell, scenarios, expert, "expert", cameras=(), size=32, num_envs=6, done=results.append):
        pass
    assert results[0].rate.k >= 5


def test_tool_steps_move_the_tool_by_what_they_say(place) -> None:
    env = SplatVectorEnv(place, 6)
    env.reset(seed=0)
    control, kin = place.task.control, env.controller.kinematics
    start = [kin.tool(q) for q in env.controller.command]
    actions = np.column_stack([np.eye(6) * 0.5, np.ones(6)])
    for _ in range(4):
        env.step(actions)
    for row in range(6):
        place_now, turned = kin.tool(env.controller.command[row])
        way, turn = place_now - start[row][0], so3_log(turned @ start[row][1].T)
        expected = np.eye(6)[row] * 4 * 0.5
        assert way == pytest.approx(expected[:3] * control.max_delta, abs=2e-3)
        assert turn == pytest.approx(expected[3:] * control.max_turn, abs=2e-2)


def test_the_hand_opens_and_closes_at_its_speed(place) -> None:
    env = SplatVectorEnv(place, 2)
    observation, _ = env.reset(seed=0)
    assert observation["proprio"][:, -1] == pytest.approx(1.0, abs=0.05)
    for _ in range(12):
        observation, *_ = env.step(np.array([[0.0] * 6 + [-1], [0.0] * 6 + [0.0]]))
    assert observation["proprio"][:, -1] == pytest.approx([0.0, 0.5], abs=0.05)


def test_inverse_kinematics_points_the_hand_down(place) -> None:
    kin = Kinematics(place.world)
    rotation = kin.down(0.3)
    assert rotation @ kin.approach == pytest.approx([0, 0, -1]) and kin.yaw(rotation) == pytest.approx(0.3)
    q = kin.home
    goal = kin.home_position + np.array([0.03, 0.05, -0.08])
    for _ in range(60):
        q = kin.toward(q, goal, rotation, 1)
    reached, turned = kin.tool(q)
    assert reached == pytest.approx(goal, abs=2e-3) and turned == pytest.approx(rotation, abs=2e-2)


def test_captured_bodies_take_the_place_of_declared_ones() -> None:
    task = load_task("pick_place")
    swapped = with_captured(task, "cube=mug")
    assert swapped.bodies["cube"].scene == "mug" and swapped.hash != task.hash
    assert with_captured(task, "") == task
    with pytest.raises(UsageError, match="has no body 'cueb'.*Did you mean 'cube'"):
        with_captured(task, "cueb=mug")
    with pytest.raises(UsageError, match="BODY=NAME is needed"):
        with_captured(task, "cube")


def test_a_scene_of_unknown_scale_takes_one_and_only_it(scene, robot) -> None:
    unit = 0.1  # m: everything is ten times as large in the scene's own unit
    large = replace(scene.scaled(1 / unit), metric=False)
    back = open_workcell(large, "pick", robot=robot, scale=unit)
    assert back.world.bench.top == pytest.approx(open_workcell(scene, "pick", robot=robot).world.bench.top, abs=2e-3)
    with pytest.raises(UsageError, match="--scale is for scenes of unknown scale"):
        open_workcell(scene, "pick", robot=robot, scale=unit)
