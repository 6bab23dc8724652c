"""The hand of a robot: which servos close it, how wide it opens, and which way it points.

Found from the compiled model by moving it: the end of the servos' range at which the fingers are farther apart is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim2real.arm import Arm

if TYPE_CHECKING:
    import mujoco

Array = NDArray[np.float64]

TRIAL_STEPS = 400  # of the simulation, until the fingers have moved


@dataclass(frozen=True)
class Gripper:
    """servos: actuator names. fingers: bodies at the root of each finger. joints: names of the fingers' joints.

    open, closed: [G] commands. apart: [2] sum of finger joint positions, closed and open, for a fraction 0..1.
    approach, closing: [3] unit, in the axes of the tool centre point: out of the hand, and from finger to finger.
    """

    servos: tuple[str, ...]
    fingers: tuple[str, ...]
    joints: tuple[str, ...]
    open: Array
    closed: Array
    apart: tuple[float, float]
    approach: Array
    closing: Array

    def controls(self, model: mujoco.MjModel) -> NDArray[np.int64]:
        """Rows of `ctrl` in a model that contains the hand."""
        return np.array([model.actuator(name).id for name in self.servos], np.int64)

    def positions(self, model: mujoco.MjModel) -> NDArray[np.int64]:
        """Rows of `qpos` of the fingers' joints."""
        return np.array([model.joint(name).qposadr[0] for name in self.joints], np.int64)

    def opening(self, positions: Array) -> Array:
        """[N, 1] share of the full opening for finger joint positions [N, F], 0 closed."""
        closed, wide = self.apart
        total = positions[:, :1].copy()
        for k in range(1, positions.shape[1]):  # in order, so that a row does not depend on how many there are
            total += positions[:, k : k + 1]
        return np.clip((total - closed) / (wide - closed or 1.0), 0.0, 1.0)


def find_gripper(model: mujoco.MjModel, arm: Arm) -> Gripper | None:
    """The hand at the end of `arm`, None when nothing there is driven."""
    servos = [a for a in range(model.nu) if model.actuator(a).name not in arm.servos]
    chain = {model.joint(name).id for name in arm.joints}
    tool = int(model.site_bodyid[arm.tcp])
    roots = [b for b in range(1, model.nbody) if _hangs_on(model, b, tool) and _own_joint(model, b, chain) is not None]
    roots = [b for b in roots if int(model.body_parentid[b]) not in roots]
    if not servos or not roots:
        return None
    low, high = (_moved(model, arm, servos, end) for end in (0, 1))
    wide_at_high = _spread(model, high, roots) >= _spread(model, low, roots)
    wide, narrow = (high, low) if wide_at_high else (low, high)
    ranges = model.actuator_ctrlrange[servos]
    joints = [int(_own_joint(model, b, chain) or 0) for b in roots]
    rows = model.jnt_qposadr[joints]
    approach, closing = _axes(model, wide, arm, roots)
    return Gripper(
        servos=tuple(model.actuator(a).name for a in servos),
        fingers=tuple(model.body(b).name for b in roots),
        joints=tuple(model.joint(j).name for j in joints),
        open=ranges[:, 1 if wide_at_high else 0].copy(),
        closed=ranges[:, 0 if wide_at_high else 1].copy(),
        apart=(float(narrow.qpos[rows].sum()), float(wide.qpos[rows].sum())),
        approach=approach,
        closing=closing,
    )


def _hangs_on(model: mujoco.MjModel, body: int, ancestor: int) -> bool:
    parent = int(model.body_parentid[body])
    while parent > 0 and parent != ancestor:
        parent = int(model.body_parentid[parent])
    return parent == ancestor


def _own_joint(model: mujoco.MjModel, body: int, chain: set[int]) -> int | None:
    first = int(model.body_jntadr[body])
    return first if model.body_jntnum[body] > 0 and first not in chain else None


def _moved(model: mujoco.MjModel, arm: Arm, servos: list[int], end: int) -> mujoco.MjData:
    import mujoco

    data = mujoco.MjData(model)
    data.qpos[:], data.ctrl[:] = arm.home_qpos, arm.home_ctrl
    data.ctrl[servos] = model.actuator_ctrlrange[servos, end]
    for _ in range(TRIAL_STEPS):
        mujoco.mj_step(model, data)
    mujoco.mj_forward(model, data)
    return data


def _middles(model: mujoco.MjModel, data: mujoco.MjData, roots: list[int]) -> Array:
    """[F, 3] m, world: the mean of each finger's geoms."""
    result = []
    for root in roots:
        own = [g for g in range(model.ngeom) if model.geom_bodyid[g] == root or _hangs_on_geom(model, g, root)]
        result.append(data.geom_xpos[own].mean(axis=0) if own else data.xpos[root])
    return np.array(result)


def _hangs_on_geom(model: mujoco.MjModel, geom: int, root: int) -> bool:
    return _hangs_on(model, int(model.geom_bodyid[geom]), root)


def _spread(model: mujoco.MjModel, data: mujoco.MjData, roots: list[int]) -> float:
    places = _middles(model, data, roots)
    if len(places) == 1:  # one finger against a fixed jaw: farther from the palm's own geoms is wider
        palm = int(model.body_parentid[roots[0]])
        jaw = [g for g in range(model.ngeom) if model.geom_bodyid[g] == palm]
        places = np.array([places[0], data.geom_xpos[jaw].mean(axis=0) if jaw else data.xpos[palm]])
    return float(np.linalg.norm(places - places.mean(axis=0), axis=1).max())


def _axes(model: mujoco.MjModel, data: mujoco.MjData, arm: Arm, roots: list[int]) -> tuple[Array, Array]:
    """(approach, closing) in the tool's axes; the approach is the tool's own axis nearest to palm -> tool."""
    tool = data.site_xmat[arm.tcp].reshape(3, 3)
    palm = data.xpos[int(model.body_parentid[roots[0]])]
    outward = tool.T @ (data.site_xpos[arm.tcp] - palm)
    approach = np.zeros(3)
    axis = int(np.argmax(np.abs(outward)))
    approach[axis] = np.sign(outward[axis]) or 1.0
    places = _middles(model, data, roots)
    between = places[-1] - places[0] if len(places) > 1 else places[0] - data.site_xpos[arm.tcp]
    closing = tool.T @ between
    closing -= (closing @ approach) * approach
    size = float(np.linalg.norm(closing))
    if size < 1e-6:
        closing, size = np.eye(3)[(axis + 1) % 3], 1.0
    return approach, closing / size
