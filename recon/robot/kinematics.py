"""Where the links are: forward kinematics through MuJoCo, and the recorded joint positions that drive it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from recon.core.errors import InputError, did_you_mean
from recon.robot.source import import_mujoco

if TYPE_CHECKING:
    from recon.robot.description import RobotModel

MAX_LOG_BYTES = 256 * 2**20
MAX_COLUMNS = 256
MAX_GAP_S = 0.5
_TIME_NAMES = ("time_s", "time", "t", "timestamp")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Coupling:
    """A joint that follows another.

    With x = q_leader - leader_zero:

        q_follower = follower_zero + a0 + a1 x + a2 x^2 + a3 x^3 + a4 x^4
    """

    follower: str
    leader: str
    polynomial: tuple[float, ...]  # a0..a4
    follower_zero: float
    leader_zero: float

    def position(self, leader: float) -> float:
        """Position of the follower for a position of the leader."""
        return self.follower_zero + float(np.polyval(self.polynomial[::-1], leader - self.leader_zero))


def complete_joints(model: RobotModel, q: Mapping[str, float]) -> dict[str, float]:
    """Return a position for every joint: stated, else coupled to one that is, else home.

    Raises:
        InputError: `q` names an unknown joint or holds a number that is not finite.
    """
    for name, value in q.items():
        if name not in model.joints:
            raise InputError(f"robot {model.path} has no joint {name!r}", fix=did_you_mean(name, model.joints))
        if not np.isfinite(value):
            raise InputError(f"joint {name!r} has the position {value}", why="it is not a finite number")
    known = {name: float(value) for name, value in q.items()}
    for _ in model.couplings:  # a chain of followers resolves in at most that many rounds
        for c in model.couplings:
            if c.follower not in known and c.leader in known:
                known[c.follower] = c.position(known[c.leader])
    return {**model.home, **known}


def forward_kinematics(
    model: RobotModel, q: Mapping[str, float], world_from_base: Floats | None = None
) -> dict[str, Floats]:
    """Return the pose of every link.

        world_from_link = world_from_base (model_from_base)^-1 model_from_link

    Args:
        model: The robot.
        q: Joint name -> position (radians, metres). Joints left out follow their coupling or rest at home.
        world_from_base: [4, 4] pose of the link `model.base`; None leaves the robot where its description puts it.

    Returns:
        {link: world_from_link [4, 4] float64}.

    Raises:
        InputError: Unknown joint, or a number that is not finite.
    """
    mujoco = import_mujoco()
    data = mujoco.MjData(model.mj_model)
    for name, value in complete_joints(model, q).items():
        data.qpos[model.joints[name].address] = value
    mujoco.mj_kinematics(model.mj_model, data)
    poses = {}
    for name, link in model.links.items():
        pose = np.eye(4)
        pose[:3, :3] = data.xmat[link.body].reshape(3, 3)
        pose[:3, 3] = data.xpos[link.body]
        poses[name] = pose
    if world_from_base is None:
        return poses
    world_from_model = np.asarray(world_from_base, np.float64) @ np.linalg.inv(poses[model.base])
    return {name: world_from_model @ pose for name, pose in poses.items()}


@dataclass(frozen=True, eq=False)
class JointLog:
    """Recorded joint positions on the robot's own clock.

    Attributes:
        times: [T] seconds, strictly increasing.
        names: Joint names, one per column.
        values: [T, J] radians or metres.
        where: The file, for messages.
    """

    times: Floats
    names: tuple[str, ...]
    values: Floats
    where: str = "joint log"

    def at(self, t: float) -> dict[str, float]:
        """Return the positions at `t`, linear between samples and held within `MAX_GAP_S` beyond the ends.

        Raises:
            InputError: `t` is not finite or lies further outside the log.
        """
        first, last = float(self.times[0]), float(self.times[-1])
        if not first - MAX_GAP_S <= t <= last + MAX_GAP_S:
            raise InputError(
                f"{self.where} has no joint positions at {t:.3f} s",
                why=f"it covers {first:.3f} to {last:.3f} s",
                fix="Check the clock offset between the robot and the cameras.",
            )
        return {name: float(np.interp(t, self.times, self.values[:, j])) for j, name in enumerate(self.names)}

    def check_against(self, model: RobotModel) -> None:
        """Raise InputError when a column is no joint of `model`."""
        for name in self.names:
            if name not in model.joints:
                raise InputError(
                    f"{self.where} has a column {name!r} that is no joint of {model.path}",
                    fix=did_you_mean(name, model.joints),
                )


def read_joint_log(path: str | Path, max_gap_s: float = MAX_GAP_S) -> JointLog:
    """Read a CSV file: a header `time_s,<joint>,...`, then one row of finite numbers per sample.

    Args:
        path: The file, UTF-8, at most `MAX_LOG_BYTES`.
        max_gap_s: Longest accepted pause between samples, seconds.

    Raises:
        InputError: Names the file and the line.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise InputError(f"joint log {path} is too large", why=f"more than {MAX_LOG_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"joint log {path} cannot be read", why=str(error)) from error
    rows = csv.reader(text.splitlines())
    header = [name.strip() for name in next(rows, [])]
    _check_header(header, path)
    table = []
    for line, row in enumerate(rows, start=2):
        if row:
            table.append(_numbers(row, len(header), path, line))
    if len(table) < 2:
        raise InputError(f"joint log {path} has {len(table)} samples", fix="At least two are needed.")
    values = np.array(table, np.float64)
    steps = np.diff(values[:, 0])
    if np.any(steps <= 0):
        line = int(np.argmax(steps <= 0)) + 3
        raise InputError(f"joint log {path}, sample {line - 1}", why="its time is not later than the one before")
    if np.any(steps > max_gap_s):
        worst = int(np.argmax(steps))
        raise InputError(
            f"joint log {path} has a gap of {steps[worst]:.2f} s at {values[worst, 0]:.3f} s",
            why=f"more than {max_gap_s} s without a sample",
        )
    return JointLog(values[:, 0], tuple(header[1:]), values[:, 1:], str(path))


def _check_header(header: list[str], path: Path) -> None:
    if len(header) < 2 or header[0].lower() not in _TIME_NAMES:
        raise InputError(
            f"joint log {path} has no header",
            why=f"the first line is {','.join(header)[:60]!r}",
            fix="Start it with time_s,<joint>,...",
        )
    if len(header) > MAX_COLUMNS or len(set(header)) != len(header) or "" in header:
        raise InputError(f"joint log {path} has a bad header", why="names are empty, repeated or too many")


def _numbers(row: list[str], count: int, path: Path, line: int) -> list[float]:
    if len(row) != count:
        raise InputError(f"joint log {path}, line {line}", why=f"{len(row)} values where the header has {count}")
    try:
        numbers = [float(cell) for cell in row]
    except ValueError as error:
        raise InputError(f"joint log {path}, line {line}", why=str(error)) from error
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"joint log {path}, line {line}", why="a value is not finite")
    return numbers
