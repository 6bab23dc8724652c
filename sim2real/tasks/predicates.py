"""Predicates of a task, evaluated for N environments at once on named points [N, 3] in metres.

{near: [a, b], dist: 0.03}      |a - b| < dist
{above: [a, b], height: 0.05}   a is at least `height` higher than b
{all: [...]}, {any: [...]}, {not: {...}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import UsageError, did_you_mean

Points = Mapping[str, NDArray[np.float64]]
LEAVES = {"near": "dist", "above": "height"}  # predicate -> its threshold's key
BRANCHES = ("all", "any", "not")


def check_tree(tree: Any, points: Sequence[str]) -> None:
    """Refuse a malformed tree.

    Raises:
        UsageError: unknown predicate, point or key, or a threshold that is not a positive number.
    """
    if not isinstance(tree, dict) or not tree:
        raise UsageError("a predicate must be a table such as {near: [tcp, target], dist: 0.03}", why=f"got {tree!r}")
    name = next((key for key in tree if key in LEAVES or key in BRANCHES), None)
    if name is None:
        key = str(next(iter(tree)))
        raise UsageError(f"unknown predicate {key!r}", fix=did_you_mean(key, [*LEAVES, *BRANCHES]))
    extra = set(tree) - {name, LEAVES.get(name, name)}
    if extra:
        raise UsageError(f"predicate {name!r} has no key {sorted(extra)[0]!r}")
    if name == "not":
        check_tree(tree[name], points)
    elif name in BRANCHES:
        if not isinstance(tree[name], list) or not tree[name]:
            raise UsageError(f"predicate {name!r} needs a list of predicates")
        for branch in tree[name]:
            check_tree(branch, points)
    else:
        _check_leaf(name, tree, points)


def _check_leaf(name: str, tree: dict[str, Any], points: Sequence[str]) -> None:
    pair, threshold = tree[name], tree.get(LEAVES[name])
    if not isinstance(pair, list) or len(pair) != 2:
        raise UsageError(f"predicate {name!r} needs two names", why=f"got {pair!r}")
    for point in pair:
        if point not in points:
            raise UsageError(f"predicate {name!r} names {point!r}", fix=did_you_mean(str(point), points))
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not threshold > 0:
        raise UsageError(f"predicate {name!r} needs {LEAVES[name]!r} > 0 in metres", why=f"got {threshold!r}")


def evaluate_tree(tree: Mapping[str, Any], points: Points) -> NDArray[np.bool_]:
    """Truth of a checked tree for every environment, [N] bool."""
    if "all" in tree:
        return np.logical_and.reduce([evaluate_tree(branch, points) for branch in tree["all"]])
    if "any" in tree:
        return np.logical_or.reduce([evaluate_tree(branch, points) for branch in tree["any"]])
    if "not" in tree:
        return ~evaluate_tree(tree["not"], points)
    if "near" in tree:
        a, b = (points[name] for name in tree["near"])
        return np.linalg.norm(a - b, axis=-1) < tree["dist"]
    a, b = (points[name] for name in tree["above"])
    return a[..., 2] - b[..., 2] >= tree["height"]
