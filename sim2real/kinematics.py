"""Where the tool is for given joint positions, and joint positions that bring it somewhere: damped least squares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from recon.geometry.pose import angle_between, so3_log
from sim2real.physics import World, rest

Array = NDArray[np.float64]

ARM_LENGTH = 0.15  # m per rad: how much a turn of the tool counts against its way
DAMPING = 0.01  # m: keeps joint speeds bounded near singular postures
STEP, TURN = 0.06, 0.4  # m, rad: longest errors worked on in one iteration
POSTURE = 0.05  # fraction of the way back to the rest pose per iteration, in directions the tool does not feel


class Kinematics:
    """Forward and inverse kinematics of the arm of one world, row by row, so that rows do not depend on each other."""

    def __init__(self, world: World) -> None:
        import mujoco

        self.world, self.arm, self._mj = world, world.arm, mujoco
        self._data = rest(world.model, world.arm)
        self._jacobian = np.zeros((6, world.model.nv))
        self.home = world.arm.home_qpos[world.arm.qpos]
        self.home_position, self.home_rotation = self.tool(self.home)
        self.approach, self.closing = self._axes()

    def tool(self, q: Array) -> tuple[Array, Array]:
        """(position [3] m, rotation [3, 3]) of the tool centre point for arm joints q [A]."""
        self._place(q)
        data = self._data
        return data.site_xpos[self.arm.tcp].copy(), data.site_xmat[self.arm.tcp].reshape(3, 3).copy()

    def toward(self, q: Array, position: Array, rotation: Array, iterations: int = 3) -> Array:
        """Joints [A] near q whose tool is at, or nearer to, position [3] m and rotation [3, 3]."""
        model, data, arm, mj = self.world.model, self._data, self.arm, self._mj
        q = q.copy()
        for _ in range(iterations):
            self._place(q)
            mj.mj_comPos(model, data)
            mj.mj_jacSite(model, data, self._jacobian[:3], self._jacobian[3:], arm.tcp)
            way = at_most(position - data.site_xpos[arm.tcp], STEP)
            turn = at_most(so3_log(rotation @ data.site_xmat[arm.tcp].reshape(3, 3).T), TURN)
            error = np.concatenate([way, ARM_LENGTH * turn])
            jacobian = self._jacobian[:, arm.dof].copy()
            jacobian[3:] *= ARM_LENGTH
            # dq = J^T (J J^T + l^2 I)^-1 e + (I - J^+ J) posture
            inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + DAMPING**2 * np.eye(6))
            posture = POSTURE * (self.home - q)
            q = np.clip(q + inverse @ error + posture - inverse @ (jacobian @ posture), arm.low, arm.high)
        return q

    def reaches(self, q: Array, position: Array, rotation: Array, tolerance: float, iterations: int = 120) -> bool:
        """Whether the tool gets within `tolerance` m and 0.1 rad from q, whatever is in between."""
        for _ in range(iterations):
            q = self.toward(q, position, rotation, 1)
            place, turned = self.tool(q)
            if np.linalg.norm(position - place) < tolerance and angle_between(rotation, turned) < 0.1:
                return True
        return False

    def down(self, yaw: float) -> Array:
        """[3, 3] rotation of a tool that points straight down, its closing direction at `yaw` rad from +x."""
        across = np.array([math.cos(yaw), math.sin(yaw), 0.0])
        below = np.array([0.0, 0.0, -1.0])
        world = np.stack([across, below, np.cross(across, below)], axis=1)
        tool = np.stack([self.closing, self.approach, np.cross(self.closing, self.approach)], axis=1)
        return world @ tool.T

    def yaw(self, rotation: Array) -> float:
        """rad: where the closing direction of a tool turned by [3, 3] points, seen from above."""
        across = rotation @ self.closing
        return math.atan2(across[1], across[0])

    def _axes(self) -> tuple[Array, Array]:
        gripper = self.world.gripper
        if gripper is not None:
            return gripper.approach, gripper.closing
        # without a hand: the tool's own axis that points down most at rest, and the next one
        axis = int(np.argmax(np.abs(self.home_rotation[2])))
        approach = -np.sign(self.home_rotation[2, axis]) * np.eye(3)[axis]
        return approach, np.eye(3)[(axis + 1) % 3]

    def _place(self, q: Array) -> None:
        self._data.qpos[self.arm.qpos] = q
        self._mj.mj_kinematics(self.world.model, self._data)


def at_most(vector: Array, length: float) -> Array:
    """The vector, shortened to `length` where it is longer."""
    size = float(np.linalg.norm(vector))
    return vector * min(1.0, length / max(size, 1e-12))
