"""What part of a robot is the arm: its joints, servos, rest pose and tool centre point.

Found from the compiled model, not from names, except that a site called tcp (or a usual synonym) wins. A gripper keeps
the command of its rest pose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError

if TYPE_CHECKING:
    import mujoco

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

TCP = "tcp"
TCP_SITES = ("tcp", "grasp", "grasp_site", "attachment_site", "pinch", "pinch_site", "ee", "ee_site", "end_effector")
TIP_MARGIN = 0.01  # m from the finger tips back towards the palm
BANDWIDTH = 8.0  # Hz, of the position servos given to joints that have none


@dataclass(frozen=True)
class Arm:
    """Indices into one compiled model; `at(model)` refreshes them after the model has grown.

    joints: names in order from base to tip. low, high: command limits, rad or m.
    home_qpos [nq], home_ctrl [nu]: the rest pose of the whole robot. servos: actuator names, one per joint.
    """

    joints: tuple[str, ...]
    servos: tuple[str, ...]
    site: str
    low: Array
    high: Array
    home_qpos: Array
    home_ctrl: Array
    qpos: Ints
    dof: Ints
    ctrl: Ints
    tcp: int

    @property
    def size(self) -> int:
        """Number of arm joints, and of action values."""
        return len(self.joints)

    def at(self, model: mujoco.MjModel) -> Arm:
        """The same arm in a model that contains it."""
        joints = [model.joint(name).id for name in self.joints]
        home = model.qpos0.copy()  # bodies added to the robot's model come after its own joints
        home[: len(self.home_qpos)] = self.home_qpos
        return replace(
            self,
            home_qpos=home,
            qpos=model.jnt_qposadr[joints].astype(np.int64),
            dof=model.jnt_dofadr[joints].astype(np.int64),
            ctrl=np.array([model.actuator(name).id for name in self.servos], np.int64),
            tcp=int(model.site(self.site).id),
        )


def find_arm(spec: mujoco.MjSpec, model: mujoco.MjModel, robot: Path) -> Arm:
    """Find the arm; add a tcp site and position servos to `spec` where the robot's file has none.

    Raises:
        InputError: there is no chain of hinge or slide joints, or its joints have servos we cannot command by position.
    """
    body, site = _tool(spec, model)
    chain = _chain(model, body)
    if not chain:
        raise InputError(
            f"the robot {robot} has no arm",
            why="no hinge or slide joint lies between its base and its tip",
            fix="Give a robot file whose base body comes first.",
        )
    home = _home(model)
    actuated = {int(model.actuator_trnid[a, 0]): a for a in range(model.nu) if model.actuator_trntype[a] == 0}
    if not any(j in actuated for j in chain):
        _add_servos(spec, model, chain, home)
    chain = [j for j in chain if j in actuated] or chain
    grown = spec.compile()
    actuated = {int(grown.actuator_trnid[a, 0]): a for a in range(grown.nu) if grown.actuator_trntype[a] == 0}
    servos = [actuated[j] for j in chain]
    for j, a in zip(chain, servos, strict=True):
        if grown.actuator_biastype[a] == 0 or grown.actuator_biasprm[a, 1] >= 0:
            raise InputError(
                f"joint {model.joint(j).name!r} of {robot} cannot be commanded by position",
                why=f"its actuator {grown.actuator(a).name!r} is a motor without position feedback",
                fix="Use position actuators, or a file without actuators (servos are then added).",
            )
    return Arm(
        joints=tuple(model.joint(j).name for j in chain),
        servos=tuple(grown.actuator(a).name for a in servos),
        site=site,
        low=np.array([_limits(grown, j, a)[0] for j, a in zip(chain, servos, strict=True)]),
        high=np.array([_limits(grown, j, a)[1] for j, a in zip(chain, servos, strict=True)]),
        home_qpos=home,
        home_ctrl=_home_ctrl(grown, home, chain, servos),
        qpos=model.jnt_qposadr[chain].astype(np.int64),
        dof=model.jnt_dofadr[chain].astype(np.int64),
        ctrl=np.array(servos, np.int64),
        tcp=int(grown.site(site).id),
    )


def _tool(spec: mujoco.MjSpec, model: mujoco.MjModel) -> tuple[int, str]:
    """The body that carries the tool centre point, and the name of that site (made if missing)."""
    names = {model.site(i).name.lower(): i for i in range(model.nsite)}
    for name in TCP_SITES:
        if name in names:
            return int(model.site_bodyid[names[name]]), model.site(names[name]).name
    palm = _palm(model)
    position = _finger_tips(model, palm) if palm else None
    body = palm or _deepest(model)
    if position is None:
        position = _far_end(model, body)
    spec.body(model.body(body).name).add_site(name=TCP, pos=position)
    return body, TCP


def _palm(model: mujoco.MjModel) -> int:
    """The deepest body with two or more jointed children (a hand with fingers); 0 if there is none."""
    children = [0] * model.nbody
    for b in range(1, model.nbody):
        if model.body_jntnum[b] > 0:
            children[model.body_parentid[b]] += 1
    hands = [b for b in range(1, model.nbody) if children[b] >= 2 and _chain(model, b)]
    return max(hands, key=lambda b: len(_chain(model, b)), default=0)


def _deepest(model: mujoco.MjModel) -> int:
    return max(range(1, model.nbody), key=lambda b: (len(_chain(model, b)), b))


def _chain(model: mujoco.MjModel, body: int) -> list[int]:
    """Hinge and slide joints from the base to `body`, in that order."""
    joints: list[int] = []
    while body > 0:
        start, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        joints = [j for j in range(start, start + count) if model.jnt_type[j] in (2, 3)] + joints
        body = int(model.body_parentid[body])
    return joints


def _bounds_in(model: mujoco.MjModel, bodies: list[int], frame: int) -> Array | None:
    """Corners [8 G, 3] m, in the axes of body `frame`, of the geoms of `bodies`, at the model's zero pose."""
    import mujoco

    data = mujoco.MjData(model)
    data.qpos[:] = _home(model)
    mujoco.mj_kinematics(model, data)
    signs = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)], float)
    corners = []
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] in bodies:
            local = model.geom_aabb[geom, :3] + signs * model.geom_aabb[geom, 3:]
            corners.append(local @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom])
    if not corners:
        return None
    return (np.concatenate(corners) - data.xpos[frame]) @ data.xmat[frame].reshape(3, 3)


def _finger_tips(model: mujoco.MjModel, palm: int) -> Array | None:
    """Between the tips of the fingers, a centimetre back: the mean finger direction carried to the farthest extent."""
    fingers = [b for b in range(model.nbody) if b != palm and _descends(model, b, palm)]
    corners = _bounds_in(model, fingers, palm)
    if corners is None:
        return None
    axis = int(np.argmax(np.abs((corners.min(axis=0) + corners.max(axis=0)) / 2)))
    middle = (corners.min(axis=0) + corners.max(axis=0)) / 2
    sign = np.sign(middle[axis])
    middle[axis] = sign * (np.max(sign * corners[:, axis]) - TIP_MARGIN)
    return middle


def _far_end(model: mujoco.MjModel, body: int) -> Array:
    corners = _bounds_in(model, [body], body)
    if corners is None:
        return np.zeros(3)
    middle = (corners.min(axis=0) + corners.max(axis=0)) / 2
    axis = int(np.argmax(np.maximum(np.abs(corners.min(axis=0)), np.abs(corners.max(axis=0)))))
    side = corners[:, axis]
    middle[axis] = side[np.argmax(np.abs(side))]
    return middle


def _descends(model: mujoco.MjModel, body: int, ancestor: int) -> bool:
    while body > 0 and body != ancestor:
        body = int(model.body_parentid[body])
    return body == ancestor


def _home(model: mujoco.MjModel) -> Array:
    """Joint positions at rest: the key frame called home, else the first one, else the middle of each range."""
    for key in range(model.nkey):
        if model.key(key).name == "home":
            return model.key_qpos[key].copy()
    if model.nkey:
        return model.key_qpos[0].copy()
    qpos = model.qpos0.copy()
    for j in range(model.njnt):
        low, high = model.jnt_range[j]
        if model.jnt_limited[j] and not low < 0 < high:
            qpos[model.jnt_qposadr[j]] = (low + high) / 2
    return qpos


def _home_ctrl(model: mujoco.MjModel, home: Array, chain: list[int], servos: list[int]) -> Array:
    for key in range(model.nkey):
        if model.key(key).name == "home" or model.nkey == 1:
            ctrl = model.key_ctrl[key].copy()
            break
    else:
        ctrl = np.zeros(model.nu)
        for a in range(model.nu):
            if model.actuator_trntype[a] == 0:
                ctrl[a] = home[model.jnt_qposadr[model.actuator_trnid[a, 0]]]
    ctrl[servos] = home[model.jnt_qposadr[chain]]
    return ctrl


def _limits(model: mujoco.MjModel, joint: int, actuator: int) -> tuple[float, float]:
    low, high = -np.pi, np.pi
    if model.jnt_limited[joint]:
        low, high = model.jnt_range[joint]
    if model.actuator_ctrllimited[actuator]:
        a, b = model.actuator_ctrlrange[actuator]
        low, high = max(low, a), min(high, b)
    return float(low), float(high)


def _add_servos(spec: mujoco.MjSpec, model: mujoco.MjModel, chain: list[int], home: Array) -> None:
    """Position servos of 8 Hz and critical damping on the inertia at rest; gravity is compensated, as arms do."""
    import mujoco

    data = mujoco.MjData(model)
    data.qpos[:] = home
    mujoco.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass)
    for j in range(model.njnt):
        if model.jnt_type[j] not in (2, 3):
            continue
        # kp = I w^2, kv = 2 I w
        inertia, omega = float(mass[model.jnt_dofadr[j], model.jnt_dofadr[j]]), 2 * np.pi * BANDWIDTH
        name = model.joint(j).name
        servo = spec.add_actuator(name=f"{name}_servo", target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=inertia * omega**2, kv=2 * inertia * omega)
    for body in spec.bodies[1:]:
        body.gravcomp = 1.0
