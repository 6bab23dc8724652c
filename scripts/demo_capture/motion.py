"""What happens in the demo: the arm, simulated by MuJoCo, carries a cube elsewhere while a ball rolls by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from recon.robot import load_spec

Floats = npt.NDArray[np.float64]

TIMESTEP_S = 0.001
LOG_HZ = 100
CUBE_HALF = 0.0225
BALL_RADIUS = 0.032
CAN = (0.033, 0.055)  # radius, half height
BASE_POSITION = (-0.42, 0.02, 0.0)
BASE_YAW = np.deg2rad(4.0)
ROD = np.array([[-1.0, 0, 0], [0, 1, 0], [0, 0, -1]])  # hand pointing down

PICK = np.array([0.05, -0.17])
PLACE = np.array([0.10, 0.19])
# time s, tool centre x y z, finger opening m; straight lines in between, eased at both ends
WAYPOINTS = (
    (0.00, (-0.04, 0.02, 0.26), 0.040),
    (0.20, (-0.04, 0.02, 0.26), 0.040),
    (0.85, (*PICK, 0.13), 0.040),
    (1.20, (*PICK, 0.022), 0.040),
    (1.42, (*PICK, 0.022), 0.012),
    (1.80, (*PICK, 0.15), 0.012),
    (2.45, (*PLACE, 0.15), 0.012),
    (2.80, (*PLACE, 0.024), 0.012),
    (2.95, (*PLACE, 0.024), 0.036),
    (3.25, (*PLACE, 0.14), 0.036),
    (3.60, (0.00, 0.10, 0.24), 0.036),
)


@dataclass(frozen=True)
class Motion:
    """A simulated recording.

    Attributes:
        times: [T] frame times, seconds.
        poses: Per body name [T, 4, 4] world_from_body: links of the arm, cube, ball, can.
        log_times, log: [L], [L, J] joint positions at `LOG_HZ`; joint_names: their order.
        world_from_base: [4, 4].
    """

    times: Floats
    poses: dict[str, Floats]
    log_times: Floats
    log: Floats
    joint_names: tuple[str, ...]
    world_from_base: Floats

    def still(self) -> dict[str, Floats]:
        """Poses of the bodies that never move, and of the world."""
        fixed = {name: track[0] for name, track in self.poses.items() if np.ptp(track, axis=0).max() == 0}
        return {"world": np.eye(4), **fixed}


def build_model(arm: Path) -> mujoco.MjModel:
    """The arm on the table with three objects."""
    spec = load_spec(arm)
    for key in list(spec.keys):
        spec.delete(key)
    spec.option.timestep = TIMESTEP_S
    base = spec.body("base")
    base.pos = BASE_POSITION
    base.quat = [np.cos(BASE_YAW / 2), 0, 0, np.sin(BASE_YAW / 2)]
    kinds = mujoco.mjtGeom
    spec.worldbody.add_geom(name="table", type=kinds.mjGEOM_BOX, size=[0.75, 0.55, 0.02], pos=[0.05, 0, -0.02])
    grip = {"condim": 4, "friction": [1.2, 0.02, 0.0005], "solref": [0.004, 1]}
    cube = spec.worldbody.add_body(name="cube", pos=[*PICK, CUBE_HALF], quat=_yaw(BASE_YAW))
    cube.add_freejoint()
    cube.add_geom(type=kinds.mjGEOM_BOX, size=[CUBE_HALF] * 3, mass=0.08, **grip)
    ball = spec.worldbody.add_body(name="ball", pos=[0.30, 0.30, BALL_RADIUS])
    ball.add_freejoint()
    ball.add_geom(type=kinds.mjGEOM_SPHERE, size=[BALL_RADIUS, 0, 0], mass=0.06, condim=6, friction=[0.8, 0.01, 0.0008])
    can = spec.worldbody.add_body(name="can", pos=[0.20, -0.03, CAN[1]])
    can.add_geom(type=kinds.mjGEOM_CYLINDER, size=[*CAN, 0])
    return spec.compile()


def _yaw(angle: float) -> list[float]:
    return [float(np.cos(angle / 2)), 0.0, 0.0, float(np.sin(angle / 2))]


def target_at(t: float) -> tuple[Floats, float]:
    """Tool centre [3] and finger opening at time `t`: minimum-jerk along each leg."""
    times = [w[0] for w in WAYPOINTS]
    leg = min(max(int(np.searchsorted(times, t, side="right")) - 1, 0), len(times) - 2)
    (t0, p0, g0), (t1, p1, g1) = WAYPOINTS[leg], WAYPOINTS[leg + 1]
    s = float(np.clip((t - t0) / (t1 - t0), 0, 1))
    s = s**3 * (10 - 15 * s + 6 * s * s)
    return np.array(p0) * (1 - s) + np.array(p1) * s, g0 * (1 - s) + g1 * s


def solve_arm(model: mujoco.MjModel, q: Floats, position: Floats, rotation: Floats, steps: int = 60) -> Floats:
    """Joint angles [6] that bring `tcp` to a pose, by damped least squares from `q`: dq = J^T (J J^T + d I)^-1 e."""
    data = mujoco.MjData(model)
    site = model.site("tcp").id
    addresses = [int(model.joint(f"joint{i}").qposadr[0]) for i in range(1, 7)]
    columns = [int(model.joint(f"joint{i}").dofadr[0]) for i in range(1, 7)]
    q = q.copy()
    jacobian = np.zeros((6, model.nv))
    for _ in range(steps):
        data.qpos[addresses] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        turn = rotation @ data.site_xmat[site].reshape(3, 3).T
        axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2
        error = np.concatenate([position - data.site_xpos[site], axis])
        if np.abs(error).max() < 1e-6:
            break
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
        j = jacobian[:, columns]
        q += j.T @ np.linalg.solve(j @ j.T + 1e-5 * np.eye(6), error)
    return q


def simulate(arm: Path, seconds: float, fps: float, seed: int) -> Motion:
    """Simulate and record."""
    model = build_model(arm)
    data = mujoco.MjData(model)
    cos, sin = np.cos(BASE_YAW), np.sin(BASE_YAW)
    rotation = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]) @ ROD
    joints = [*(f"joint{i}" for i in range(1, 7)), "finger_joint1", "finger_joint2"]
    addresses = [int(model.joint(name).qposadr[0]) for name in joints]
    q = solve_arm(model, np.array([0, 0.2, 1.5, 0, 1.44, 0.0]), target_at(0)[0], rotation, 300)
    data.qpos[addresses] = [*q, 0.04, 0.04]
    ball = int(model.joint(int(model.body("ball").jntadr[0])).dofadr[0])
    velocity = np.array([-0.16, -0.13, 0.0])
    data.qvel[ball : ball + 3] = velocity
    data.qvel[ball + 3 : ball + 6] = np.cross([0, 0, 1.0], velocity) / BALL_RADIUS
    frames = np.arange(int(round(seconds * fps))) / fps
    names = [model.body(i).name for i in range(1, model.nbody)]
    poses: dict[str, list[Floats]] = {name: [] for name in names}
    log, log_times = [], []
    steps = int(round(seconds / TIMESTEP_S))
    frame_steps = set(np.round(frames / TIMESTEP_S).astype(int).tolist())
    for step in range(steps + 1):
        if step % 10 == 0:  # the servo gets a new target every 10 ms
            position, opening = target_at(step * TIMESTEP_S + 0.03)  # ahead by about the servo's lag
            q = solve_arm(model, q, position, rotation)
            data.ctrl[:6], data.ctrl[6] = q, opening
        mujoco.mj_kinematics(model, data)
        if step % (1000 // LOG_HZ) == 0:
            log_times.append(step * TIMESTEP_S)
            log.append(data.qpos[addresses].copy())
        if step in frame_steps:
            for name in names:
                poses[name].append(_pose(data, model.body(name).id))
        mujoco.mj_step(model, data)
    noise = np.random.default_rng([seed, 1]).normal(0, 5e-5, (len(log), len(joints)))  # encoder noise
    return Motion(
        times=frames,
        poses={name: np.array(rows) for name, rows in poses.items()},
        log_times=np.array(log_times),
        log=np.array(log) + noise,
        joint_names=tuple(joints),
        world_from_base=poses["base"][0],
    )


def _pose(data: mujoco.MjData, body: int) -> Floats:
    pose = np.eye(4)
    pose[:3, :3] = data.xmat[body].reshape(3, 3)
    pose[:3, 3] = data.xpos[body]
    return pose
