"""Where the things of a task start: drawn in its regions, apart from each other, within reach, and settled.

A drawn place is let go of in the simulator; one from which a thing falls, rolls or is thrown is drawn again. What the
scenario keeps is where things came to rest, so an episode starts from there and nothing moves at first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recon.geometry.pose import angle_between, pose_of
from recon.geometry.quaternion import matrix_to_quat
from sim2real.bodies import Thing
from sim2real.kinematics import Kinematics
from sim2real.tasks.items import Init, Region
from sim2real.tasks.spec import Task

if TYPE_CHECKING:
    import mujoco

    from sim2real.physics import World

Array = NDArray[np.float64]
Pose = tuple[float, ...]  # x y z (m) qw qx qy qz
Spot = tuple[Array, float]  # middle [3] m, radius m

UP = np.array([0.0, 0.0, 1.0])
TRIES = 40  # draws of one thing before everything is drawn again
HOVER = 0.12  # m over a thing that the tool must reach too
CLEARANCE = 0.06  # m between a thing and what stands on the bench: a hand has to get in there
BEHIND = 0.12  # m, that a way to push along begins before the thing
REACH_TOLERANCE = 0.01  # m
GAP = 0.0005  # m, at which things are let go of over the table
SETTLE = 1000  # simulation steps at most
STILL = 0.005  # m/s and rad/s x 0.1: at rest
SHIFT, TILT = 0.02, math.radians(10)  # m, rad: farther, and it did not come to rest where it was put
ROUGH_TILT = math.radians(30)  # of a captured body, whose underside is only roughly known
SINK = 0.002  # m, deepest contact of a settled scene


class Ring(NamedTuple):
    """What regions are parts of: base [2] m, the robot's; forward rad, where it points at rest; reach m."""

    base: Array
    forward: float
    reach: float

    def point(self, rng: np.random.Generator, region: Region, top: float) -> Array:
        """[3] m: evenly over the region's area, over a table whose top is at `top` m."""
        # r^2 is uniform
        radius = math.sqrt(rng.uniform(region.radius[0] ** 2, region.radius[1] ** 2)) * self.reach
        azimuth = self.forward + math.radians(rng.uniform(*region.azimuth_deg))
        height = top + rng.uniform(*region.height)
        return np.array([self.base[0] + radius * math.cos(azimuth), self.base[1] + radius * math.sin(azimuth), height])


class Placer:
    """Draws the places and poses of one task in one world."""

    def __init__(self, world: World, task: Task, data: mujoco.MjData) -> None:
        import mujoco

        self._mj, self.world, self.task, self._data = mujoco, world, task, data
        self.kinematics = Kinematics(world)
        boxes = world.bench.boxes
        yaws = np.array([box.yaw for box in boxes])
        self._boxes = (
            np.array([box.center[:2] for box in boxes]).reshape(-1, 2),
            np.array([box.half[:2] for box in boxes]).reshape(-1, 2),
            (np.cos(yaws), np.sin(yaws)),
        )
        self._wasted = 0

    def draw(self, rng: np.random.Generator, ring: Ring) -> tuple[dict[str, Pose], dict[str, Pose], int, str | None]:
        """Places [3] m and poses by name, draws thrown away, and why the last of them will not do (None: it will).

        Each thing is drawn up to TRIES times where those before it leave it no room.
        """
        spots: dict[str, Spot] = {}
        places: dict[str, Pose] = {}
        poses: dict[str, Pose] = {}
        self._wasted = 0
        for name, place in self.task.places.items():
            init = place.init

            def on_ring(init: Init = init, radius: float = place.radius) -> tuple[Array, Spot]:
                middle = self._on_ring(rng, ring, init)
                return middle, (middle, radius)

            middle, spots[name], reason = self._first_fitting(on_ring, init, spots)
            if reason is not None:
                return {}, {}, self._wasted, reason
            places[name] = tuple(map(float, middle))
        for thing in self.world.things:
            init = self.task.bodies[thing.name].init

            def posed(init: Init = init, thing: Thing = thing) -> tuple[Array, Spot]:
                pose = self._pose(rng, ring, thing, init)
                return pose, (pose[:3, :3] @ thing.middle + pose[:3, 3], thing.radius)

            pose, spots[thing.name], reason = self._first_fitting(posed, init, spots)
            if reason is not None:
                return {}, {}, self._wasted, reason
            poses[thing.name] = _as_pose(pose)
        return places, poses, self._wasted, None

    def _first_fitting(
        self, draw: Callable[[], tuple[Array, Spot]], init: Init, spots: dict[str, Spot]
    ) -> tuple[Array, Spot, str | None]:
        """The first of up to TRIES draws that fits, else the last with the reason why it does not."""
        for _ in range(TRIES):
            value, spot = draw()
            reason = self._refusal(*spot, init, spots)
            if reason is None:
                break
            self._wasted += 1
        return value, spot, reason

    def _on_ring(self, rng: np.random.Generator, ring: Ring, init: Init) -> Array:
        assert init.region is not None
        return ring.point(rng, self.task.regions[init.region], self.world.bench.top)

    def _pose(self, rng: np.random.Generator, ring: Ring, thing: Thing, init: Init) -> Array:
        """[4, 4] world_from_body, its lowest point GAP over where it is to stand."""
        start = thing.start if thing.start is not None else np.eye(4)
        yaw = math.radians(rng.uniform(*init.yaw_deg))
        if init.region is not None:
            middle = self._on_ring(rng, ring, init)
            ground = middle[2]
            yaw += ring.forward if thing.start is None else 0.0
        else:
            middle = start[:3, :3] @ thing.middle + start[:3, 3]
            middle[:2] += rng.uniform(-init.jitter, init.jitter, 2)
            ground = None
        c, s = math.cos(yaw), math.sin(yaw)
        pose = np.eye(4)
        pose[:3, :3] = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ start[:3, :3]
        pose[:3, 3] = middle - pose[:3, :3] @ thing.middle
        low = float((thing.corners @ pose[2, :3]).min()) - thing.rounding + pose[2, 3]
        over = GAP if thing.free else 0.0
        if ground is not None:
            pose[2, 3] += ground + over - low
        else:
            pose[2, 3] += max(0.0, self.world.bench.top + over - low)
        return pose

    def _refusal(self, middle: Array, radius: float, init: Init, spots: dict[str, Spot]) -> str | None:
        table = self.world.bench.table
        flat = np.array([[middle[0], middle[1], table.center[2]]])
        if not table.contains(flat, -radius * np.array([1, 1, 0]))[0]:
            return "off the table"
        if init.pose is None and self._near_boxes(middle[None], radius + CLEARANCE):
            return "inside something on the bench"
        if init.clear_to is not None:
            way = _way(middle, spots[init.clear_to][0])
            if self._near_boxes(way, radius + CLEARANCE):
                return f"cut off from {init.clear_to}"
        for other, (there, size) in spots.items():
            apart = float(np.hypot(*(middle[:2] - there[:2])))
            low, high = init.within.get(other, (None, None))
            if low is not None and high is not None:
                if not low <= apart <= high:
                    return f"not within its distance of {other}"
            elif apart < radius + size + init.apart:
                return f"too close to {other}"
        return None

    def _near_boxes(self, points: Array, margin: float) -> bool:
        """Whether any of the points [P, 3] is within `margin` of what stands on the bench, whatever their heights."""
        centers, halves, turns = self._boxes
        d = points[:, None, :2] - centers  # [P, B, 2]
        c, s = turns
        across, along = np.abs(c * d[..., 0] + s * d[..., 1]), np.abs(-s * d[..., 0] + c * d[..., 1])
        return bool(((across <= halves[:, 0] + margin) & (along <= halves[:, 1] + margin)).any())

    def reachable(self, q0: Array, places: dict[str, Pose], poses: dict[str, Pose]) -> bool:
        """Whether a tool that points down gets to every thing and place, and over it, whatever is in between."""
        kin = self.kinematics
        rotation = kin.down(kin.yaw(kin.home_rotation))
        points = [np.array(place[:3]) + 0.03 * UP for place in places.values()]
        for thing in self.world.things:
            pose = _matrix(poses[thing.name])
            points.append(pose[:3, :3] @ thing.middle + pose[:3, 3])
        for point in points:
            for lift in (0.0, HOVER):
                if not kin.reaches(q0, point + lift * UP, rotation, REACH_TOLERANCE):
                    return False
        return True

    def settle(self, q0: Array, poses: dict[str, Pose]) -> dict[str, Pose] | None:
        """Where things come to rest with the arm held at q0; None when they do not where they were put."""
        mj, model, data, arm = self._mj, self.world.model, self._data, self.world.arm
        mj.mj_resetData(model, data)
        data.qpos[:], data.ctrl[:] = arm.home_qpos, arm.home_ctrl
        data.qpos[arm.qpos], data.ctrl[arm.ctrl] = q0, q0
        put(self.world, data.qpos, data.mocap_pos, data.mocap_quat, poses)
        free = [thing for thing in self.world.things if thing.free]
        first = [int(model.joint(thing.joint).dofadr[0]) for thing in free]
        for step in range(SETTLE):
            mj.mj_step(model, data)
            if step >= 50 and all(_slow(data.qvel[k : k + 6]) for k in first):
                break
        else:
            return None
        mj.mj_forward(model, data)
        if any(c.dist < -SINK for c in data.contact[: data.ncon]):
            return None
        rested = dict(poses)
        for thing in free:
            k = int(model.joint(thing.joint).qposadr[0])
            pose = _matrix(tuple(data.qpos[k : k + 7]))
            before = _matrix(poses[thing.name])
            moved = np.linalg.norm((pose - before)[:3] @ np.append(thing.middle, 1.0))
            turned = angle_between(pose[:3, :3], before[:3, :3])
            if moved > SHIFT or turned > (TILT if thing.start is None else ROUGH_TILT):
                return None
            rested[thing.name] = tuple(map(float, data.qpos[k : k + 7]))
        return rested


def put(world: World, qpos: Array, mocap_pos: Array, mocap_quat: Array, poses: dict[str, Pose]) -> None:
    """Write poses of things into one simulation's state rows."""
    for thing in world.things:
        pose = np.asarray(poses[thing.name])
        if thing.free:
            k = int(world.model.joint(thing.joint).qposadr[0])
            qpos[k : k + 7] = pose
        else:
            slot = int(world.model.body(thing.node).mocapid[0])
            mocap_pos[slot], mocap_quat[slot] = pose[:3], pose[3:]


def _matrix(pose: Pose) -> Array:
    """[4, 4] of x y z qw qx qy qz."""
    return pose_of(np.asarray(pose[:3]), np.asarray(pose[3:]))


def _as_pose(matrix: Array) -> Pose:
    return (*map(float, matrix[:3, 3]), *map(float, matrix_to_quat(matrix[:3, :3])))


def _way(start: Array, end: Array) -> Array:
    """Points [P, 3] m every 2 cm or less from BEHIND the start, straight to the end."""
    along = end - start
    length = float(np.linalg.norm(along))
    first = start - along * (BEHIND / max(length, 1e-6))
    return first + np.linspace(0, 1, 2 + int((length + BEHIND) / 0.02))[:, None] * (end - first)


def _slow(velocity: Array) -> bool:
    return bool(np.linalg.norm(velocity[:3]) < STILL and 0.1 * np.linalg.norm(velocity[3:]) < STILL)
