"""Where components run: the placement grammar of the RLinf family, read and checked.

    cluster:
      num_nodes: 1
      component_placement: {"actor,env,rollout": all}       # everything together
    # component_placement: {actor: 0-3, env: 4-7, rollout: 4-7}
    # component_placement: {env: {node_group: robots, placement: 0-1}, ...}

    spec := part ("," part)*      part := resources [":" processes]
    ranks := int | a-b (inclusive) | all       ("all" only for resources)

Resources are accelerator ranks of the node group, or, where it has none, ranks of its
robots or nodes. Process ranks tile 0..N-1; left out, they go on from the last. Per part
one count divides the other: processes share a resource, or one owns several.

Only the in-process placement runs today: one node, every component in this process.
Others are parsed, checked, and refused by `require_in_process` saying what is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from recon.core.errors import UnavailableError, UsageError, did_you_mean

COMPONENTS = ("actor", "critic", "env", "reward", "rollout")
RESERVED_GROUPS = ("cluster", "node")
MAX_RANK = 65_535
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


@dataclass(frozen=True)
class NodeGroup:
    """Nodes with a name. `hardware` names a robot type; `ignore_hardware` counts nodes, not accelerators."""

    label: str
    node_ranks: tuple[int, ...]
    hardware: str = ""
    ignore_hardware: bool = False


@dataclass(frozen=True)
class Process:
    """One process of a component and the resource ranks it owns or shares."""

    rank: int
    resources: tuple[int, ...]


@dataclass(frozen=True)
class ComponentPlacement:
    """Processes of one component over the resources of its node groups."""

    component: str
    groups: tuple[str, ...]
    processes: tuple[Process, ...]

    @property
    def world_size(self) -> int:
        """Number of processes of the component."""
        return len(self.processes)


@dataclass(frozen=True)
class Placement:
    """A checked `cluster` block."""

    num_nodes: int
    node_groups: tuple[NodeGroup, ...]
    components: dict[str, ComponentPlacement]


def parse_placement(cluster: dict[str, Any], resources: dict[str, int] | int = 1) -> Placement:
    """Read a `cluster` block.

    Args:
        cluster: Its plain YAML values.
        resources: Resource count of each node group, or one number for all: what "all" stands for.

    Raises:
        UsageError: Names the component, the part and the rule that is broken.
    """
    if not isinstance(cluster, dict):
        raise UsageError("'cluster' must be a table")
    known = {"num_nodes", "component_placement", "node_groups"}
    for key in cluster:
        if key not in known:
            raise UsageError(f"unknown key 'cluster.{key}'", fix=did_you_mean(str(key), known))
    num_nodes = cluster.get("num_nodes", 1)
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int) or num_nodes < 1:
        raise UsageError(f"'cluster.num_nodes' is {num_nodes!r}", why="it must be a whole number, at least 1")
    groups = _node_groups(cluster.get("node_groups", []), num_nodes)
    placements = cluster.get("component_placement")
    if not isinstance(placements, dict) or not placements:
        raise UsageError("'cluster.component_placement' must be a table of components")
    components: dict[str, ComponentPlacement] = {}
    for key, value in placements.items():
        for name in (part.strip() for part in str(key).split(",")):
            if name not in COMPONENTS:
                raise UsageError(f"unknown component {name!r} in {key!r}", fix=did_you_mean(name, COMPONENTS))
            if name in components:
                raise UsageError(f"component {name!r} is placed twice", why="each belongs to one key")
            components[name] = _component(name, value, groups, resources)
    return Placement(num_nodes, tuple(groups.values()), components)


def _node_groups(entries: Any, num_nodes: int) -> dict[str, NodeGroup]:
    everything = tuple(range(num_nodes))
    groups = {"cluster": NodeGroup("cluster", everything), "node": NodeGroup("node", everything, ignore_hardware=True)}
    if not isinstance(entries, list):
        raise UsageError("'cluster.node_groups' must be a list")
    known = {"label", "node_ranks", "env_configs", "hardware", "ignore_hardware"}
    for index, entry in enumerate(entries):
        where = f"cluster.node_groups[{index}]"
        if not isinstance(entry, dict) or "label" not in entry or "node_ranks" not in entry:
            raise UsageError(f"'{where}' needs a label and node_ranks")
        for key in entry:
            if key not in known:
                raise UsageError(f"unknown key '{where}.{key}'", fix=did_you_mean(str(key), known))
        label = str(entry["label"])
        if label in groups:
            kind = "reserved" if label in RESERVED_GROUPS else "used twice"
            raise UsageError(f"node group label {label!r} is {kind}")
        ranks = _ranks(entry["node_ranks"], num_nodes, f"{where}.node_ranks", allow_all=True)
        hardware = entry.get("hardware") or {}
        robot = str(hardware.get("type", "")) if isinstance(hardware, dict) else ""
        groups[label] = NodeGroup(label, ranks, robot, bool(entry.get("ignore_hardware", False)))
    return groups


def _component(
    name: str, value: Any, groups: dict[str, NodeGroup], resources: dict[str, int] | int
) -> ComponentPlacement:
    labels: tuple[str, ...] = ("cluster",)
    spec = value
    if isinstance(value, dict):
        for key in value:
            if key not in ("node_group", "placement"):
                raise UsageError(f"unknown key '{name}.{key}'", fix=did_you_mean(str(key), ("node_group", "placement")))
        spec = value.get("placement", "all")
        named = value.get("node_group", "cluster")
        parts = named if isinstance(named, list) else str(named).split(",")
        labels = tuple(str(part).strip() for part in parts)
    for label in labels:
        if label not in groups:
            raise UsageError(f"component {name!r} names node group {label!r}", fix=did_you_mean(label, groups))
    return ComponentPlacement(name, labels, parse_spec(spec, _available(labels, groups, resources), name))


def _available(labels: tuple[str, ...], groups: dict[str, NodeGroup], resources: dict[str, int] | int) -> int:
    """Resources of the groups together: ranks are numbered on from one group to the next."""
    total = 0
    for label in labels:
        group = groups[label]
        if group.ignore_hardware:
            total += len(group.node_ranks)
        else:
            total += resources if isinstance(resources, int) else resources.get(label, len(group.node_ranks))
    return total


def parse_spec(spec: Any, available: int, where: str = "placement") -> tuple[Process, ...]:
    """Turn a placement string into processes. "0-1:0-3,3-5" -> 0,1 with two processes each, then 3, 4, 5.

    Raises:
        UsageError: Bad grammar; a resource rank at or above `available`; process ranks that do
            not tile 0..N-1 in order; counts that do not divide one another.
    """
    processes: list[Process] = []
    for part in str(spec).split(","):
        text = part.strip()
        left, colon, right = text.partition(":")
        owned = _ranks(left, available, f"{where}: part {text!r}", allow_all=True)
        first = len(processes)
        ranks = tuple(range(first, first + len(owned)))
        if colon:
            ranks = _ranks(right, MAX_RANK + 1, f"{where}: part {text!r}", allow_all=False)
        if ranks[0] != first:
            raise UsageError(
                f"{where}: part {text!r} starts at process {ranks[0]}",
                why=f"process ranks must tile 0..N-1 in order, the next one is {first}",
            )
        if len(ranks) % len(owned) and len(owned) % len(ranks):
            raise UsageError(
                f"{where}: part {text!r} puts {len(ranks)} processes on {len(owned)} resources",
                why="one count must divide the other",
            )
        if len(ranks) >= len(owned):
            share = len(ranks) // len(owned)
            processes += [Process(rank, (owned[k // share],)) for k, rank in enumerate(ranks)]
        else:
            each = len(owned) // len(ranks)
            processes += [Process(rank, owned[k * each : (k + 1) * each]) for k, rank in enumerate(ranks)]
    return tuple(processes)


def _ranks(text: Any, available: int, where: str, allow_all: bool) -> tuple[int, ...]:
    """Read `int | a-b | all` (comma lists are split by the caller)."""
    words = str(text).strip()
    if words == "all":
        if not allow_all:
            raise UsageError(f"{where}: 'all' cannot stand for process ranks")
        return tuple(range(available))
    match = _RANGE.fullmatch(words)
    if not match:
        raise UsageError(f"{where}: {words!r} is not a rank", why="a rank is a number, a-b or all")
    low, high = int(match[1]), int(match[2] or match[1])
    if high < low:
        raise UsageError(f"{where}: range {words!r} runs backwards")
    if high >= available:
        raise UsageError(f"{where}: rank {high} does not exist", why=f"there are {available}, numbered from 0")
    return tuple(range(low, high + 1))


def require_in_process(placement: Placement) -> None:
    """Accept a placement that this process alone can run.

    Raises:
        UnavailableError: It needs several nodes, processes, or a robot; says which component does.
    """
    fix = 'Use num_nodes: 1 with component_placement {"actor,env,rollout": all} on one resource.'
    if placement.num_nodes > 1:
        raise UnavailableError(
            f"the placement needs {placement.num_nodes} nodes",
            why="running on several nodes is not implemented",
            fix=fix,
        )
    groups = {group.label: group for group in placement.node_groups}
    for component in placement.components.values():
        robots = [groups[label].hardware for label in component.groups if groups[label].hardware]
        if robots:
            raise UnavailableError(
                f"component {component.component!r} needs hardware of type {robots[0]!r}",
                why="placement on robots is not implemented",
                fix=fix,
            )
        if component.world_size > 1:
            raise UnavailableError(
                f"component {component.component!r} needs {component.world_size} processes",
                why="several processes per component are not implemented",
                fix=fix,
            )
        if len(component.processes[0].resources) > 1:
            raise UnavailableError(
                f"component {component.component!r} needs {len(component.processes[0].resources)} devices at once",
                why="a process drives one device",
                fix=fix,
            )
    used = {component.processes[0].resources for component in placement.components.values()}
    if len(used) > 1:
        raise UnavailableError(
            "components lie on different devices", why="one process drives one device for all of them", fix=fix
        )
