"""Task files are strict, predicates mean what they say, the expert solves what the sampler offers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.core.errors import CorruptError, UsageError
from sim2real.scenarios import load_set, save_set
from sim2real.tasks.expert import reach_action
from sim2real.tasks.predicates import check_tree, evaluate_tree
from sim2real.tasks.spec import Region, load_task


def test_the_bundled_reach_task_loads_and_its_hash_sees_every_number() -> None:
    task = load_task("reach")
    assert task.task == "reach" and len(task.hash) == 16
    assert load_task("reach").hash == task.hash
    assert replace(task, success={"near": ["tcp", "target"], "dist": 0.0301}).hash != task.hash


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("horizon:", "horizn:", "unknown key 'horizn'.*Did you mean 'horizon'"),
        ("near: [tcp, target]", "near: [tcp, targt]", "names 'targt'.*Did you mean 'target'"),
        ("near: [tcp, target]", "nera: [tcp, target]", "unknown predicate 'nera'.*Did you mean 'near'"),
        ("dist: 0.0", "dist: -0.0", "needs 'dist' > 0"),
        ("hz: 10", "hz: 11", "hz must divide 500"),
        ("radius: [0.", "radius: [7.", "fractions of the reach"),
    ],
)
def test_wrong_task_files_are_refused_with_the_right_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    from recon.core.files import data_root

    text = (data_root() / "tasks" / "reach.yaml").read_text()
    assert old in text
    path = tmp_path / "reach.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=message):
        load_task(str(path))


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no task 'raech'.*Did you mean 'reach'"):
        load_task("raech")


def test_predicates_by_hand() -> None:
    points = {"tcp": np.array([[0.0, 0, 0.1], [0, 0, 0]]), "target": np.array([[0.0, 0, 0.08], [0.05, 0, 0]])}
    near = {"near": ["tcp", "target"], "dist": 0.03}
    above = {"above": ["tcp", "target"], "height": 0.01}
    assert evaluate_tree(near, points).tolist() == [True, False]
    assert evaluate_tree(above, points).tolist() == [True, False]
    assert evaluate_tree({"not": near}, points).tolist() == [False, True]
    assert evaluate_tree({"any": [near, {"not": above}]}, points).tolist() == [True, True]
    assert evaluate_tree({"all": [near, {"not": above}]}, points).tolist() == [False, False]


@pytest.mark.parametrize("tree", [[], {}, {"near": ["tcp"]}, {"all": []}, {"near": ["tcp", "target"]}, {"not": 3}])
def test_malformed_predicates_are_refused(tree: object) -> None:
    with pytest.raises(UsageError, match="predicate"):
        check_tree(tree, ("tcp", "target"))


@given(seed=st.integers(0, 2**31))
def test_expert_actions_are_bounded_and_go_the_right_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jacobian, error = rng.normal(size=(5, 3, 6)), rng.normal(size=(5, 3)) * 0.2
    home = rng.normal(size=6)
    action = reach_action(jacobian, error, np.tile(home, (5, 1)), home, 0.1)
    assert action.shape == (5, 6) and action.dtype == np.float32 and np.abs(action).max() <= 1 + 1e-6
    moved = np.einsum("nij,nj->ni", jacobian, action.astype(float))
    assert (np.einsum("ni,ni->n", moved, error) > 0).all()


def test_scenarios_depend_on_seed_split_and_index_only(cell) -> None:
    sampler = cell.sampler
    first = sampler.draw_set(3, "eval", 12)
    assert sampler.draw(3, "eval", 7) == first.scenarios[7]
    assert sampler.draw_set(3, "eval", 12).hash == first.hash != sampler.draw_set(4, "eval", 12).hash
    train = sampler.draw_set(3, "train", 40)
    assert not {s.target for s in train.scenarios} & {s.target for s in first.scenarios}


def test_targets_lie_over_the_table_and_clear_of_things(cell) -> None:
    bench, region = cell.world.bench, cell.task.target.region
    assert bench.boxes
    for scenario in cell.sampler.draw_set(0, "eval", 40).scenarios:
        target = np.array(scenario.target)
        assert region.height[0] <= target[2] - bench.top <= region.height[1]
        assert bench.table.contains(np.array([[*target[:2], bench.table.center[2]]]))[0]
        assert not any(box.contains(target[None], 0.05)[0] for box in bench.boxes)


def test_an_impossible_region_is_refused_with_the_reason(cell) -> None:
    from sim2real.scenarios import Sampler

    far = replace(cell.task, target=replace(cell.task.target, region=Region((0.9, 1.0), (170, 180), (0.0, 0.1))))
    with pytest.raises(UsageError, match="finds no place for its target here: 200 of 200 places are off the table"):
        Sampler(cell.world, far).draw(0, "train", 0)


def test_scenario_files_carry_their_hash(cell, tmp_path: Path) -> None:
    scenarios = cell.sampler.draw_set(0, "eval", 3)
    path = tmp_path / "scenarios.json"
    save_set(scenarios, path)
    assert load_set(path) == scenarios
    path.write_text(path.read_text().replace(scenarios.task, "0" * 16))
    with pytest.raises(CorruptError, match="changed since it was written"):
        load_set(path)
