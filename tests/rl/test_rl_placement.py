"""The placement grammar: what it reads, what it refuses and how it says so."""

from __future__ import annotations

import pytest
import yaml

from recon.core.errors import UnavailableError, UsageError
from rl.placement import parse_placement, parse_spec, require_in_process


def layout(spec, available=16):
    return [(p.rank, p.resources) for p in parse_spec(spec, available)]


def test_everything_together():
    placement = parse_placement(yaml.safe_load('{num_nodes: 1, component_placement: {"actor,env,rollout": all}}'))
    assert set(placement.components) == {"actor", "env", "rollout"}
    assert all(c.world_size == 1 for c in placement.components.values())
    require_in_process(placement)


def test_the_worked_example_of_processes_and_devices():
    expected = [(0, (0,)), (1, (0,)), (2, (1,)), (3, (1,)), (4, (3,)), (5, (4,)), (6, (5,))]
    expected += [(7 + 2 * k + j, (7 + k,)) for k in range(4) for j in range(2)]
    assert layout("0-1:0-3,3-5,7-10:7-14") == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (0, [(0, (0,))]),
        ("0-0", [(0, (0,))]),
        ("0-3", [(k, (k,)) for k in range(4)]),
        ("0-3:0-1", [(0, (0, 1)), (1, (2, 3))]),
        ("0:0-1", [(0, (0,)), (1, (0,))]),
        ("all:0", [(0, tuple(range(16)))]),
    ],
)
def test_specs(spec, expected):
    assert layout(spec) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("0-1:all", "'all' cannot stand for process ranks"),
        ("3-1", "range '3-1' runs backwards"),
        ("0-16", "rank 16 does not exist: there are 16"),
        ("0-1:1-2", "the next one is 0"),
        ("0-1,2-3:3-4", "the next one is 2"),
        ("0-2:0-1", "puts 2 processes on 3 resources"),
        ("x", "'x' is not a rank"),
        ("", "'' is not a rank"),
        ("-1", "'-1' is not a rank"),
    ],
)
def test_bad_specs_name_the_part_and_the_rule(spec, message):
    with pytest.raises(UsageError) as caught:
        parse_spec(spec, 16)
    assert message in str(caught.value)


HETEROGENEOUS = """
num_nodes: 3
component_placement:
  actor: {node_group: train, placement: 0-7}
  rollout: {node_group: train, placement: "0:0-1"}
  env: {node_group: franka, placement: 0-1}
node_groups:
  - {label: train, node_ranks: 0}
  - label: franka
    node_ranks: 1-2
    hardware: {type: Franka, configs: []}
"""


def test_groups_of_unlike_nodes_are_read_and_refused_at_start():
    placement = parse_placement(yaml.safe_load(HETEROGENEOUS), {"train": 8})
    assert placement.components["actor"].world_size == 8
    assert [p.resources for p in placement.components["rollout"].processes] == [(0,), (0,)]
    assert placement.components["env"].groups == ("franka",)
    with pytest.raises(UnavailableError, match="3 nodes"):
        require_in_process(placement)


def test_ranks_are_numbered_on_over_several_groups():
    cluster = {
        "num_nodes": 2,
        "node_groups": [{"label": "a", "node_ranks": 0}, {"label": "b", "node_ranks": 1}],
        "component_placement": {"actor": {"node_group": "a,b", "placement": "all"}},
    }
    assert parse_placement(cluster, {"a": 4, "b": 2}).components["actor"].world_size == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"component_placement": {"actr": 0}}, "Did you mean 'actor'?"),
        ({"component_placement": {"actor,env": 0, "env": 0}}, "component 'env' is placed twice"),
        ({"component_placement": {"actor": {"node_group": "gpu", "placement": 0}}}, "names node group 'gpu'"),
        ({"component_placement": {}}, "must be a table of components"),
        ({"num_nodes": 0}, "at least 1"),
        ({"nodes": 1}, "unknown key 'cluster.nodes'"),
        ({"node_groups": [{"label": "node", "node_ranks": 0}]}, "'node' is reserved"),
        ({"node_groups": [{"label": "a", "node_ranks": 4}]}, "rank 4 does not exist"),
    ],
)
def test_bad_clusters(change, message):
    with pytest.raises(UsageError) as caught:
        parse_placement({"num_nodes": 1, "component_placement": {"actor": 0}, **change})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"actor": "0-3"}, "'actor' needs 4 processes"),
        ({"actor": "0-1:0"}, "2 devices at once"),
        ({"actor": 0, "env": 1}, "different devices"),
    ],
)
def test_what_cannot_run_is_refused_with_what_is_missing(placement, message):
    parsed = parse_placement({"component_placement": placement}, 8)
    with pytest.raises(UnavailableError) as caught:
        require_in_process(parsed)
    assert message in str(caught.value)
    assert "num_nodes: 1" in caught.value.fix
