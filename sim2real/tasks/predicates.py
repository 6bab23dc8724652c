"""Predicates of a task, evaluated for N environments at once on facts of the simulator (see facts.py).

{near: [a, b], dist: 0.03}          |a - b| < dist
{above: [a, b], height: 0.05}       a is at least `height` higher than b
{inside: [body, place]}             the body's middle lies over the place's disc, its underside within 2 cm of it
{on_top: [a, b], dist: 0.02}        a touches b from above, its middle within `dist` of b's sideways (b: also table)
{inserted: [a, b], depth: 0.02}     a reaches at least `depth` into the hole of the socket b
{lifted: body, height: 0.05}        its underside is at least `height` over the table
{grasped: body}                     every finger touches it
{released: body}                    no finger touches it
{touching: [a, b]}                  a body touches a body, the gripper or the table
{upright: body, deg: 10}            its z axis is within `deg` of vertical
{still: body, speed: 0.05}          it moves more slowly than `speed`, m/s
{held: {...}, steps: 5}             the predicate has been true for so many control steps
{all: [...]}, {any: [...]}, {not: {...}}

`gap` measures in metres what a tree lacks, for rewards: 0 where it is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from sim2real.tasks.facts import Facts

Points = Mapping[str, NDArray[np.float64]]
Bools = NDArray[np.bool_]
BRANCHES = ("all", "any", "not", "held")
BODY = ("body", "socket")
ANY = ("point", "place", *BODY)
SET_DOWN = 0.02  # m, between a body's underside and the place it is inside of
RESTING = 0.012  # m, between a body's underside and the top of what it is on
MISSING = 0.05  # m, that counts for a touch or a turn that is not there


class Leaf(NamedTuple):
    """What a predicate takes. kinds: accepted kinds per name. threshold: its key, unit; default None: required."""

    kinds: tuple[tuple[str, ...], ...]
    threshold: str | None = None
    unit: str = "metres"
    default: float | None = None


LEAVES = {
    "near": Leaf((ANY, ANY), "dist"),
    "above": Leaf((ANY, ANY), "height"),
    "inside": Leaf((BODY, ("place",))),
    "on_top": Leaf((BODY, (*BODY, "support")), "dist", default=0.02),
    "inserted": Leaf((BODY, ("socket",)), "depth", default=0.02),
    "lifted": Leaf((BODY,), "height"),
    "grasped": Leaf((BODY,)),
    "released": Leaf((BODY,)),
    "touching": Leaf((BODY, (*BODY, "gripper", "support"))),
    "upright": Leaf((BODY,), "deg", "degrees", 10.0),
    "still": Leaf((BODY,), "speed", "m/s", 0.05),
}
NOUNS = {
    "point": "a point", "body": "a body", "place": "a place", "socket": "a socket", "gripper": "the gripper",
    "support": "the table",
}  # fmt: skip


def check_tree(tree: Any, names: Mapping[str, str] | Sequence[str]) -> None:
    """Refuse a malformed tree. names: what each name stands for (see Task.kinds), or names of points.

    Raises:
        UsageError: unknown predicate, name or key, a name of the wrong kind, or a threshold that is not positive.
    """
    kinds = names if isinstance(names, Mapping) else dict.fromkeys(names, "point")
    if not isinstance(tree, dict) or not tree:
        raise UsageError("a predicate must be a table such as {near: [tcp, target], dist: 0.03}", why=f"got {tree!r}")
    name = next((key for key in tree if key in LEAVES or key in BRANCHES), None)
    if name is None:
        key = str(next(iter(tree)))
        raise UsageError(f"unknown predicate {key!r}", fix=did_you_mean(key, [*LEAVES, *BRANCHES]))
    extra_key = "steps" if name == "held" else LEAVES[name].threshold if name in LEAVES else name
    extra = set(tree) - {name, extra_key}
    if extra:
        raise UsageError(f"predicate {name!r} has no key {sorted(map(str, extra))[0]!r}")
    if name == "not":
        check_tree(tree[name], kinds)
    elif name == "held":
        check_tree(tree[name], kinds)
        if not isinstance(tree.get("steps"), int) or isinstance(tree["steps"], bool) or tree["steps"] < 1:
            raise UsageError("predicate 'held' needs steps >= 1", why=f"got {tree.get('steps')!r}")
        if next(held_nodes(tree[name]), None) is not None:
            raise UsageError("predicate 'held' cannot stand inside another")
    elif name in BRANCHES:
        if not isinstance(tree[name], list) or not tree[name]:
            raise UsageError(f"predicate {name!r} needs a list of predicates")
        for branch in tree[name]:
            check_tree(branch, kinds)
    else:
        _check_leaf(name, tree, kinds)


def _check_leaf(name: str, tree: dict[str, Any], kinds: Mapping[str, str]) -> None:
    leaf, given = LEAVES[name], tree[name]
    listed = given if isinstance(given, list) else [given]
    if len(listed) != len(leaf.kinds) or (len(leaf.kinds) == 2 and not isinstance(given, list)):
        count = {1: "one name", 2: "two names"}[len(leaf.kinds)]
        raise UsageError(f"predicate {name!r} needs {count}", why=f"got {given!r}")
    for thing, accepted in zip(listed, leaf.kinds, strict=True):
        if thing not in kinds:
            raise UsageError(f"predicate {name!r} names {thing!r}", fix=did_you_mean(str(thing), kinds))
        if kinds[thing] not in accepted:
            wanted = " or ".join(NOUNS[kind] for kind in accepted if kind != "socket" or "body" not in accepted)
            raise UsageError(f"predicate {name!r} needs {wanted}", why=f"{thing!r} is {NOUNS[kinds[thing]]}")
    if name in ("grasped", "released") and "gripper" not in kinds:
        raise UsageError(f"predicate {name!r} needs a gripper", fix="Set control.gripper: true.")
    if leaf.threshold is None:
        return
    threshold = tree.get(leaf.threshold, leaf.default)
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not threshold > 0:
        raise UsageError(f"predicate {name!r} needs {leaf.threshold!r} > 0 in {leaf.unit}", why=f"got {threshold!r}")


def held_nodes(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All `held` nodes of a tree, in order: each needs a counter per environment."""
    if "held" in tree:
        yield tree
    elif "not" in tree:
        yield from held_nodes(tree["not"])
    for name in ("all", "any"):
        for branch in tree.get(name, ()):
            yield from held_nodes(branch)


def evaluate_tree(tree: Mapping[str, Any], facts: Points | Facts) -> Bools:
    """Truth of a checked tree for every environment, [N] bool. Trees of near and above need named points only."""
    if "all" in tree:
        return np.logical_and.reduce([evaluate_tree(branch, facts) for branch in tree["all"]])
    if "any" in tree:
        return np.logical_or.reduce([evaluate_tree(branch, facts) for branch in tree["any"]])
    if "not" in tree:
        return ~evaluate_tree(tree["not"], facts)
    if "near" in tree:
        a, b = (facts[name] for name in tree["near"])
        return np.linalg.norm(a - b, axis=-1) < tree["dist"]
    if "above" in tree:
        a, b = (facts[name] for name in tree["above"])
        return a[..., 2] - b[..., 2] >= tree["height"]
    return _of_bodies(tree, facts)  # type: ignore[arg-type]


def _of_bodies(tree: Mapping[str, Any], facts: Facts) -> Bools:
    name = next(iter(key for key in tree if key in LEAVES or key == "held"))
    if name == "held":
        return facts.held(tree) >= tree["steps"]
    leaf, given = LEAVES[name], tree[name]
    threshold = 0.0 if leaf.threshold is None else float(tree.get(leaf.threshold, leaf.default))
    if name == "inside":
        body, place = given
        flat = facts.sideways(body, place) < facts.radius(place)
        return flat & (np.abs(facts.bottom(body) - facts[place][:, 2]) < SET_DOWN)
    if name == "on_top":
        a, b = given
        close = np.abs(facts.bottom(a) - facts.top(b)) < RESTING
        level = close if b == "table" else close & (facts.sideways(a, b) < threshold)
        return level & facts.touching(a, b)
    if name == "inserted":
        a, b = given
        within = facts.sideways(a, b) < facts.things[b].half[:2].min()
        return within & (facts.top(b) - facts.bottom(a) >= threshold)
    if name == "lifted":
        return facts.bottom(given) - facts.table >= threshold
    if name == "grasped":
        return np.asarray(facts.fingers_on(given).all(axis=1))
    if name == "released":
        return ~np.asarray(facts.fingers_on(given).any(axis=1))
    if name == "touching":
        return facts.touching(*given)
    if name == "upright":
        return facts.tilt(given) <= np.deg2rad(threshold)
    return facts.speed(given) < threshold


def gap(tree: Mapping[str, Any], facts: Facts) -> NDArray[np.float64]:
    """What a checked tree lacks, [N] m: 0 where it is true; the worst of `all`, the best of `any`."""
    if "all" in tree:
        return np.maximum.reduce([gap(branch, facts) for branch in tree["all"]])
    if "any" in tree:
        return np.minimum.reduce([gap(branch, facts) for branch in tree["any"]])
    true = evaluate_tree(tree, facts)
    return np.where(true, 0.0, _lack(tree, facts))


def _lack(tree: Mapping[str, Any], facts: Facts) -> NDArray[np.float64]:
    if "held" in tree:
        return np.maximum(gap(tree["held"], facts), 1e-3)
    if "near" in tree:
        a, b = (facts[name] for name in tree["near"])
        return np.linalg.norm(a - b, axis=-1)
    if "above" in tree:
        a, b = (facts[name] for name in tree["above"])
        return np.maximum(tree["height"] - (a[..., 2] - b[..., 2]), 0.0)
    if "inside" in tree:
        body, place = tree["inside"]
        return np.hypot(facts.sideways(body, place), facts.bottom(body) - facts[place][:, 2])
    if "on_top" in tree:
        a, b = tree["on_top"]
        sideways = 0.0 if b == "table" else facts.sideways(a, b)
        return np.hypot(sideways, facts.bottom(a) - facts.top(b)) + 1e-3
    if "inserted" in tree:
        a, b = tree["inserted"]
        missing = np.maximum(tree.get("depth", 0.02) - (facts.top(b) - facts.bottom(a)), 0.0)
        return np.hypot(facts.sideways(a, b), missing)
    if "lifted" in tree:
        return np.maximum(tree["height"] - (facts.bottom(tree["lifted"]) - facts.table), 0.0)
    if "grasped" in tree:
        body = tree["grasped"]
        apart = np.linalg.norm(facts["tcp"] - facts[body], axis=-1)
        return np.minimum(apart, 1.0) + MISSING * (~facts.fingers_on(body)).mean(axis=1)
    if "touching" in tree and tree["touching"][1] in facts:
        a, b = tree["touching"]
        return np.linalg.norm(facts[a] - facts[b], axis=-1)
    return np.full(facts.count, MISSING)
