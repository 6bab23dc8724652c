"""Actions to servo commands: joint steps, joint positions, tool steps, and the hand.

All modes end in commanded joint positions, which lead the real ones by at most LAG, so that an arm that is held back
does not store up a jump.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recon.geometry.pose import angle_between, so3_exp, so3_log
from sim2real.kinematics import Kinematics, at_most
from sim2real.physics import World
from sim2real.tasks.script import Wish
from sim2real.tasks.spec import Control

Array = NDArray[np.float64]

LAG = 0.3  # rad or m: the command may lead the joint by at most this much
LEAD, LEAD_TURN = 0.03, 0.2  # m, rad: a commanded tool may lead what its joints can reach by at most this much
HAND_TIME = 0.3  # s, of the hand's command from closed to open
SPEED, TURN_SPEED = 0.4, 2.0  # m/s, rad/s of a scripted expert's tool
NEAR, CATCH_UP = 0.02, 0.3  # m from the goal within which it looks where the tool really is; share of it per step
SLOW = 0.35  # of that where it must be careful


def action_names(control: Control, joints: Sequence[str]) -> list[str]:
    """What each action value moves, for data sets."""
    if control.mode == "ee_delta":
        moved = [f"tool.{what}" for what in ("dx", "dy", "dz", "rx", "ry", "rz")]
    else:
        kind = "delta" if control.mode == "joint_delta" else "pos"
        moved = [f"{joint}.{kind}" for joint in joints]
    return [*moved, "hand"] if control.gripper else moved


class Controller:
    """Commands of N environments. command [N, A] joint positions; aim [N, 12] commanded tool: position, rotation."""

    def __init__(self, world: World, control: Control, count: int) -> None:
        self.world, self.arm, self.control = world, world.arm, control
        self.command = np.zeros((count, self.arm.size))
        self.aim = np.zeros((count, 12))
        self.by_tool = control.mode == "ee_delta"
        self.hand = world.gripper if control.gripper else None
        self.moves = 6 if self.by_tool else self.arm.size
        self.size = self.moves + control.gripper
        self._kinematics: Kinematics | None = None

    @property
    def kinematics(self) -> Kinematics:
        """Of the arm; made when it is first needed."""
        if self._kinematics is None:
            self._kinematics = Kinematics(self.world)
        return self._kinematics

    def restart(self, row: int, q: Array) -> None:
        """Take joint positions [A] as what is commanded."""
        self.command[row] = q
        if self.by_tool:
            self._aim_at(row)

    def neutral(self, row: int) -> Array:
        """[size] the action that leaves environment `row` as it is, hand open."""
        still = np.zeros(self.size)
        if self.control.mode == "joint_position":
            low, high = self.arm.low, self.arm.high
            still[: self.moves] = 2 * (self.command[row] - low) / (high - low) - 1
        if self.control.gripper:
            still[-1] = 1.0
        return still

    def act(self, action: Array, position: Array) -> None:
        """Move the commands by actions [N, size] in [-1, 1]; position [N, A]: where the joints are."""
        moves = action[:, : self.moves]
        if self.by_tool:
            command = np.stack([self._tool_step(row, moves[row]) for row in range(len(moves))])
        elif self.control.mode == "joint_position":
            low, high = self.arm.low, self.arm.high
            wanted = low + (moves + 1) / 2 * (high - low)
            step = self.control.max_delta
            command = self.command + np.clip(wanted - self.command, -step, step)
        else:
            command = self.command + self.control.max_delta * moves
        command = np.clip(command, position - LAG, position + LAG)
        self.command[:] = np.clip(command, self.arm.low, self.arm.high)
        if self.by_tool:
            for row in range(len(moves)):
                self._bound_aim(row)

    def hand_command(self, action: Array, present: Array) -> Array:
        """[N, G] commands of the hand's servos, from the present ones [N, G], for actions [N, size]."""
        assert self.hand is not None
        span = self.hand.open - self.hand.closed
        wanted = self.hand.closed + (action[:, -1:] + 1) / 2 * span
        step = np.abs(span) / (HAND_TIME * self.control.hz)
        return present + np.clip(wanted - present, -step, step)

    def toward(self, row: int, wish: Wish, tool: Array) -> NDArray[np.float32]:
        """[size] the action that brings environment `row`, whose tool is at `tool` [3] m, to what a script wishes."""
        control, kin = self.control, self.kinematics
        pace = SLOW if wish.slow else 1.0
        step, turn = pace * SPEED / control.hz, TURN_SPEED / control.hz
        if self.by_tool:
            place, turned = self.aim[row, :3], self.aim[row, 3:].reshape(3, 3)
            step, turn = min(step, control.max_delta), min(turn, control.max_turn)
        else:
            place, turned = kin.tool(self.command[row])
        yaw = kin.yaw(turned) if wish.yaw is None else wish.yaw
        way = wish.position - place
        if np.linalg.norm(way) < NEAR:  # servos that yield to gravity stop short: lead them by what is missing
            way = CATCH_UP * (wish.position - tool)
        way = at_most(way, step)
        spin = at_most(so3_log(kin.down(yaw) @ turned.T), turn)
        if self.by_tool:
            moves = np.concatenate([way / control.max_delta, spin / control.max_turn])
        else:
            q = kin.toward(self.command[row], place + way, so3_exp(spin) @ turned)
            if control.mode == "joint_position":
                moves = np.clip(2 * (q - self.arm.low) / (self.arm.high - self.arm.low) - 1, -1, 1)
            else:
                moves = (q - self.command[row]) / control.max_delta
                moves = moves / max(1.0, float(np.abs(moves).max()))
        if control.gripper:
            moves = np.append(moves, 2 * (1.0 if wish.grip is None else wish.grip) - 1)
        return moves.astype(np.float32)

    def _tool_step(self, row: int, moves: Array) -> Array:
        aim = self.aim[row]
        aim[:3] += self.control.max_delta * moves[:3]
        aim[3:] = (so3_exp(self.control.max_turn * moves[3:]) @ aim[3:].reshape(3, 3)).ravel()
        return self.kinematics.toward(self.command[row], aim[:3], aim[3:].reshape(3, 3))

    def _aim_at(self, row: int) -> None:
        place, turned = self.kinematics.tool(self.command[row])
        self.aim[row, :3], self.aim[row, 3:] = place, turned.ravel()

    def _bound_aim(self, row: int) -> None:
        place, turned = self.kinematics.tool(self.command[row])
        aim = self.aim[row]
        aim[:3] = place + at_most(aim[:3] - place, LEAD)
        if angle_between(aim[3:].reshape(3, 3), turned) > LEAD_TURN:
            aim[3:] = turned.ravel()
