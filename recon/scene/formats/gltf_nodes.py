"""The nodes of a glTF file: where each is, at rest and over time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recon.geometry.convert import wxyz_from_xyzw
from recon.geometry.quaternion import matrix_to_quat, quat_multiply, quat_normalize, quat_rotate, quat_slerp
from recon.scene.formats.gltf import KIND
from recon.scene.formats.gltf_data import Buffers
from recon.scene.formats.splats import unreadable

MAX_NODES, MAX_KNOTS, MAX_POSES = 100_000, 1_000_000, 4_000_000
EVEN = 1e-4  # relative difference of scales that counts as none
PATHS = {"translation": "VEC3", "rotation": "VEC4"}


@dataclass(frozen=True)
class Place:
    """x_world = scale R(quat) x + position; wxyz [4], [3] float64."""

    quat: np.ndarray
    position: np.ndarray
    scale: float

    def of(self, inner: Place) -> Place:
        """Where something is that stands at `inner` in what stands here."""
        position = self.position + self.scale * quat_rotate(self.quat, inner.position)
        return Place(quat_multiply(self.quat, inner.quat), position, self.scale * inner.scale)


HERE = Place(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), 1.0)


class Tree:
    """The nodes of the default scene, their parents and their animations."""

    def __init__(self, path: Path, top: dict[str, Any], data: Buffers) -> None:
        self.path, self.data = path, data
        nodes = top.get("nodes")
        if (
            not isinstance(nodes, list)
            or not 0 < len(nodes) <= MAX_NODES
            or not all(isinstance(n, dict) for n in nodes)
        ):
            raise unreadable(path, KIND, "its list of nodes cannot be")
        self.nodes: list[dict[str, Any]] = nodes
        scenes = top.get("scenes")
        scene = data.entry("scenes", top.get("scene", 0)) if scenes else {"nodes": list(range(len(nodes)))}
        self.scene_words = _words(scene) or {}
        self.start = self.number(self.scene_words.get("start"), 0.0)
        self.parents: dict[int, int] = {}
        self.reached = self._walk(scene.get("nodes", []))
        self._odd: set[str] = set()
        self._motion = self._animations(top)
        self._poses = 0

    def notes(self) -> list[str]:
        """What of its motion is read otherwise than it is meant."""
        return sorted(self._odd)

    def number(self, value: Any, other: float) -> float:
        """The value when it is a plain number of seconds, else `other`."""
        return float(value) if type(value) in (int, float) and abs(value) < 1e9 else other

    def words(self, index: int) -> dict[str, Any] | None:
        """What we wrote about a body's node; None for any other."""
        return _words(self.nodes[index])

    def moves(self, index: int) -> bool:
        """Whether the node or one above it is animated."""
        return any(k in self._motion for k in self._chain(index))

    def placed(self, index: int) -> tuple[np.ndarray, list[Place]]:
        """(times [T] float64 seconds, where the node is then); one time when it does not move."""
        chain = self._chain(index)
        knots = [times for k in chain for times, _ in self._motion.get(k, {}).values()]
        words = self.words(index) or {}
        single = np.array([self.number(words.get("at"), self.start)])
        times = np.unique(np.concatenate(knots)) if knots else single
        self._poses += len(times) * len(chain)
        if self._poses > MAX_POSES:
            raise unreadable(self.path, KIND, "its animations have too many knots")
        places = []
        for t in times:
            place = HERE
            for k in chain:
                place = place.of(self._local(k, t))
            places.append(place)
        return times + self.start if knots else times, places

    def _chain(self, index: int) -> list[int]:
        chain = [index]
        while chain[-1] in self.parents:
            chain.append(self.parents[chain[-1]])
        return chain[::-1]

    def _walk(self, roots: Any) -> list[int]:
        order: list[int] = []
        seen: set[int] = set()
        stack = [(root, -1) for root in reversed(roots)] if isinstance(roots, list) else []
        while stack:
            index, parent = stack.pop()
            node = self.data.entry("nodes", index)
            if index in seen:
                raise unreadable(self.path, KIND, f"its node {index} hangs in two places")
            seen.add(index)
            order.append(index)
            if parent >= 0:
                self.parents[index] = parent
            if len(self._chain(index)) > 256:
                raise unreadable(self.path, KIND, "its nodes are nested too deeply")
            children = node.get("children", [])
            stack += [(child, index) for child in reversed(children)] if isinstance(children, list) else []
        return order

    def _animations(self, top: dict[str, Any]) -> dict[int, dict[str, tuple[np.ndarray, np.ndarray]]]:
        """node -> path -> (times [T], values [T, 3 or 4: xyzw]) of the first animation."""
        listed = top.get("animations") or []
        if not isinstance(listed, list) or not listed:
            return {}
        if len(listed) > 1:
            self._odd.add(f"it has {len(listed)} animations; the first is read")
        animation = self.data.entry("animations", 0)
        channels, samplers = animation.get("channels"), animation.get("samplers")
        if not isinstance(channels, list) or not isinstance(samplers, list):
            raise unreadable(self.path, KIND, "its animation has no channels")
        motion: dict[int, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for channel in channels:
            target = channel.get("target") if isinstance(channel, dict) else None
            if not isinstance(target, dict) or type(target.get("node")) is not int:
                continue
            if target.get("path") not in PATHS:
                self._odd.add(f"its animation of {str(target.get('path'))[:20]} is left out")
                continue
            number = channel.get("sampler")
            sampler = samplers[number] if type(number) is int and 0 <= number < len(samplers) else None
            if not isinstance(sampler, dict):
                raise unreadable(self.path, KIND, "an animation's sampler is missing")
            motion.setdefault(target["node"], {})[target["path"]] = self._curve(sampler, PATHS[target["path"]])
        return motion

    def _curve(self, sampler: dict[str, Any], kind: str) -> tuple[np.ndarray, np.ndarray]:
        times = self.data.floats(sampler.get("input"), "SCALAR", "the times of its animation").astype(np.float64)
        values = self.data.floats(sampler.get("output"), kind, "the values of its animation").astype(np.float64)
        form = sampler.get("interpolation", "LINEAR")
        if form == "CUBICSPLINE" and len(values) == 3 * len(times):  # tangent, value, tangent
            values = values[1::3]
        if form != "LINEAR":
            self._odd.add(f"its animation is {str(form)[:20]}; it is read as straight between its knots")
        if len(times) != len(values) or len(times) > MAX_KNOTS or not np.isfinite(values).all():
            raise unreadable(self.path, KIND, "its animation has times and values that do not match")
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any() or abs(times).max() > 1e9:
            raise unreadable(self.path, KIND, "the times of its animation do not increase")
        return times, wxyz_from_xyzw(values) if kind == "VEC4" else values

    def _local(self, index: int, t: float) -> Place:
        node = self.nodes[index]
        rest = self._rest(node, index)
        motion = self._motion.get(index, {})
        position, quat = rest.position, rest.quat
        if "translation" in motion:
            before, after, weight = _between(motion["translation"][0], t)
            values = motion["translation"][1]
            position = values[before] if weight == 0 else (1 - weight) * values[before] + weight * values[after]
        if "rotation" in motion:
            before, after, weight = _between(motion["rotation"][0], t)
            values = motion["rotation"][1]
            quat = values[before] if weight == 0 else quat_slerp(values[before], values[after], weight)
        return Place(quat, position, rest.scale)

    def _rest(self, node: dict[str, Any], index: int) -> Place:
        if "matrix" in node:
            matrix = self._numbers(node["matrix"], 16, index).reshape(4, 4).T
            columns = np.linalg.norm(matrix[:3, :3], axis=0)
            scale = self._even(columns, index)
            rotation = matrix[:3, :3] / scale
            if np.linalg.det(rotation) < 0.99:
                raise unreadable(self.path, KIND, f"its node {index} is sheared or mirrored")
            return Place(matrix_to_quat(rotation), matrix[:3, 3], scale)
        position = self._numbers(node.get("translation", [0.0, 0.0, 0.0]), 3, index)
        quat = wxyz_from_xyzw(self._numbers(node.get("rotation", [0.0, 0.0, 0.0, 1.0]), 4, index))
        scale = self._even(self._numbers(node.get("scale", [1.0, 1.0, 1.0]), 3, index), index)
        return Place(quat if abs(quat @ quat - 1) < 1e-6 else quat_normalize(quat), position, scale)

    def _even(self, scales: np.ndarray, index: int) -> float:
        mean = float(scales.mean())
        if not (mean > 1e-12 and (np.abs(scales - mean) <= EVEN * mean).all()):
            raise unreadable(self.path, KIND, f"its node {index} is scaled unevenly, which Gaussians cannot be")
        return 1.0 if abs(mean - 1.0) < 1e-7 else mean

    def _numbers(self, values: Any, count: int, index: int) -> np.ndarray:
        good = isinstance(values, list) and len(values) == count
        if not good or not all(type(v) in (int, float) and abs(v) < 1e9 for v in values):
            raise unreadable(self.path, KIND, f"its node {index} has a transform that cannot be")
        return np.array(values, np.float64)


def _between(times: np.ndarray, t: float) -> tuple[int, int, float]:
    """(knot before, knot after, share of the way)."""
    after = int(np.clip(np.searchsorted(times, t), 0, len(times) - 1))
    if times[after] <= t or after == 0:
        return after, after, 0.0
    return after - 1, after, float((t - times[after - 1]) / (times[after] - times[after - 1]))


def _words(entry: dict[str, Any]) -> dict[str, Any] | None:
    extras = entry.get("extras")
    words = extras.get("recon") if isinstance(extras, dict) else None
    return words if isinstance(words, dict) else None
