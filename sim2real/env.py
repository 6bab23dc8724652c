"""The rendered vector environment: Gymnasium VectorEnv, SAME_STEP autoreset, pictures from splats.

One control step: the action moves the commanded joints or tool (control.py), MuJoCo takes 2 ms steps until the next
control tick, the cameras draw. Every environment's future depends on its own state row only, so a scenario gives the
same episode alone or among 64, and `set_state(get_state())` continues bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recon.core.errors import InputError, UsageError
from sim2real.control import Controller
from sim2real.detail import losses
from sim2real.draw import Painter, Poses
from sim2real.observe import privileged_size, privileged_values, proprio_names
from sim2real.physics import TIMESTEP
from sim2real.placing import put
from sim2real.rider import Rider
from sim2real.scenarios import Scenario, Split
from sim2real.sight import Sight
from sim2real.tasks.expert import reach_action
from sim2real.tasks.facts import Facts
from sim2real.tasks.predicates import evaluate_tree, gap
from sim2real.tasks.progress import Progress
from sim2real.tasks.script import Script
from sim2real.variety import Variety
from sim2real.workcell import Workcell

Array = NDArray[np.float64]
Observation = dict[str, Any]

TOO_FAST = 1e4  # rad/s or m/s: the simulation has diverged
# what a simulation's future depends on; names of MjData
STATE = (
    "time", "qpos", "qvel", "act", "history", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied", "eq_active",
    "mocap_pos", "mocap_quat", "userdata", "plugin_state", "plastic",
)  # fmt: skip


class SplatVectorEnv(gymnasium.vector.VectorEnv):
    """N copies of one task in one scene.

    Observation: {"rgb": {camera: uint8 [N, H, W, 3]}, "proprio": float32 [N, P], "privileged": float32 [N, S]}, and
    instead of or beside "rgb" what `sights` names: depth, segmentation, flow (see sight.py).
    proprio: joint positions (rad, m), joint velocities (rad/s, m/s), tool position in the world (m), and the opening of
    the hand (0 to 1) for tasks that use it. privileged: tool to target (m), target (m), or where the task's things are
    (see observe.py), fraction of the horizon left; for a critic, never for a policy.
    Action: float32 [N, size] in [-1, 1], clipped; what it moves is the task's control (see spec.py).
    info: "final_obs" (N rows, those of "_final_obs" count), "success", "distance" (m, before any reset: of the tool
    to the target, or what the success predicate lacks), "diverged", "scenario" (index of the running episode),
    "final_scenario"; for tasks with stages "progress", the share of them that is done; "blind" where a picture could
    not be drawn and is empty.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(
        self, cell: Workcell, num_envs: int, *, seed: int = 0, cameras: Sequence[str] = (), size: int = 128,
        split: Split = "train", cull: bool = True, sights: Sequence[str] = ("rgb",),
        detail: float = 0.0, part: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """part: (first, total): these are environments first, first + 1, ... of so many."""
        from mujoco import batch

        if num_envs < 1:
            raise UsageError("an environment needs num_envs >= 1", why=f"got {num_envs}")
        self.cell, self.task, self.num_envs = cell, cell.task, num_envs
        self.arm, self.model = cell.world.arm, cell.world.model
        self.painters: dict[str, Painter | Rider] = {
            name: cell.painter(name, size, cull=cull, detail=detail) for name in cameras
        }
        self.losses = losses(cell, self.painters, size) if detail else {}
        self.seed_value, self.split = seed, split
        self.first, self.total = part or (0, num_envs)
        self.scenarios: list[Scenario] | None = None
        self.substeps = round(1 / (self.task.control.hz * TIMESTEP))
        self._batch = batch.Batch(self.model, num_envs, min(num_envs, os.cpu_count() or 1))
        self._state = {name: view for name in STATE if (view := self._batch.bind(name)).size}
        self._poses = [self._batch.bind(name) for name in ("xpos", "xquat", "xmat")]
        self._tool = self._batch.bind("site_xpos")
        self._tool_turns = self._batch.bind("site_xmat")
        self._tables = {name: self._batch.bind(name) for name in ("xpos", "xmat", "qvel", "sensordata")}
        self._mocap = {m.name: int(self.model.body(m.name).mocapid[0]) for m in cell.world.markers}
        self.controller = Controller(cell.world, self.task.control, num_envs)
        self.progress = Progress(self.task, num_envs)
        self.script = Script(self.task.expert, num_envs)
        self._asked = np.full(num_envs, -1, np.int64)
        self._wanted = np.zeros((num_envs, self.controller.size), np.float32)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._held = np.zeros(num_envs, np.int64)
        self._episode = np.full(num_envs, -1, np.int64)
        self._scenario = np.zeros(num_envs, np.int64)
        proprio = len(proprio_names(self.task, self.arm.joints))
        self.variety = Variety(cell, self._batch, self.painters, self.controller, proprio)
        self.sight = Sight(cell, self.variety, self.painters, sights, size)
        self._define_spaces(size)

    def _define_spaces(self, size: int) -> None:
        box, count = gymnasium.spaces.Box, self.num_envs
        spaces: dict[str, gymnasium.Space[Any]] = {
            "proprio": box(-np.inf, np.inf, (len(proprio_names(self.task, self.arm.joints)),), np.float32),
            "privileged": box(-np.inf, np.inf, (privileged_size(self.task),), np.float32),
        }
        spaces |= self.sight.spaces()
        self.single_observation_space = gymnasium.spaces.Dict(spaces)
        self.single_action_space = box(-1.0, 1.0, (self.controller.size,), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, count)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, count)

    # ------------------------------------------------------------------ episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every environment.

        Args:
            seed: Of the scenario stream; None keeps the present one and goes on in it.
            options: {"scenarios": [Scenario, ...]}: environment i plays scenarios i, i + N, ... of the list instead.
        """
        if seed is not None:
            self.seed_value = int(seed)
            self._episode[:] = -1
        scenarios = (options or {}).get("scenarios")
        if scenarios is not None:
            self.scenarios = list(scenarios)
            self._episode[:] = -1
        return self._begun()

    def begin_at(self, episodes: NDArray[np.int64]) -> tuple[Observation, dict[str, Any]]:
        """Start these episodes [N] of the stream, counted from 0, one in every environment."""
        self._episode[:] = episodes - 1
        return self._begun()

    def _begun(self) -> tuple[Observation, dict[str, Any]]:
        self._start(np.arange(self.num_envs))
        info: dict[str, Any] = {"scenario": self._scenario.copy()}
        if self.cell.world.things:  # what was declared and what was only assumed
            info["bodies"] = {thing.name: thing.facts() for thing in self.cell.world.things}
        if self.losses:
            info["detail"] = {name: loss._asdict() for name, loss in self.losses.items()}
        if "segmentation" in self.sight.kinds:
            info["segmentation"] = self.sight.names()
        return self.observe(), info

    def _start(self, rows: NDArray[np.int64]) -> None:
        """Put the rows into the first state of their next scenario."""
        for i in rows.tolist():
            self._episode[i] += 1
            scenario = self._next_scenario(i)
            self._scenario[i] = scenario.index
            for name, view in self._state.items():
                view[i] = self._fresh(name)
            q0 = np.asarray(scenario.q0)
            self._state["qpos"][i, self.arm.qpos] = q0
            self._state["ctrl"][i, self.arm.ctrl] = q0
            for name, slot in self._mocap.items():
                self._state["mocap_pos"][i, slot] = scenario.target if name == "target" else scenario.places[name]
            if self.cell.world.things:
                none = np.zeros((self.num_envs, 0))
                where = [self._state.get(name, none)[i] for name in ("qpos", "mocap_pos", "mocap_quat")]
                put(self.cell.world, where[0], where[1], where[2], scenario.bodies)
            self.controller.restart(i, q0)
            if self.task.randomize.any:
                self.variety.begin(i, scenario.variation)
        self._elapsed[rows] = 0
        self._held[rows] = 0
        self._asked[rows] = -1
        self.progress.restart(rows)
        self.script.restart(rows)
        self._refresh(rows)
        self._forget(rows)

    def _forget(self, rows: NDArray[np.int64]) -> None:
        """Nothing was seen in these environments before now."""
        self.variety.restart(rows, self._poses, self._proprio())
        self.sight.restart(rows, self._poses)

    def _next_scenario(self, i: int) -> Scenario:
        number = self.first + i + int(self._episode[i]) * self.total
        if self.scenarios is not None:
            return self.scenarios[number % len(self.scenarios)]
        return self.cell.sampler.draw(self.seed_value, self.split, number)

    def _fresh(self, name: str) -> Any:
        arm, model = self.arm, self.model
        fixed = {"qpos": arm.home_qpos, "ctrl": arm.home_ctrl, "eq_active": model.eq_active0}
        if name in fixed:
            return fixed[name]
        mocap = np.flatnonzero(model.body_mocapid >= 0)
        if name in ("mocap_pos", "mocap_quat"):
            return (model.body_pos if name == "mocap_pos" else model.body_quat)[mocap]
        return 0.0

    def _refresh(self, rows: NDArray[np.int64]) -> None:
        import mujoco

        self._batch.forward(ids=rows, stage=int(mujoco.mjtStage.mjSTAGE_POS))

    def step(
        self, actions: Any
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One control step of every environment; finished ones are reset inside it (SAME_STEP).

        Raises:
            UsageError: an action is NaN or has the wrong shape.
        """
        action = checked_actions(actions, self.num_envs, self.controller.size)
        before = self._standing()
        self.sight.tick(self._poses)
        self._move(self.variety.delayed(action))
        diverged = ~self._sane()
        facts = self.facts()
        with np.errstate(invalid="ignore"):  # rows that diverged are not used
            self.progress.advance(facts)
            held = evaluate_tree(self.task.success, facts) & ~diverged
            after = self._standing()
        distance = np.where(diverged, before[0], after[0])
        self._held[:] = np.where(held, self._held + 1, 0)
        self._elapsed += 1
        self.variety.tick(self._poses, self._proprio(), self._elapsed)
        success = self._held >= self.task.hold
        reward = self._reward(before, (distance, np.where(diverged, before[1], after[1])), action, success)
        terminated = success | diverged
        truncated = (self._elapsed >= self.task.horizon) & ~terminated
        done = terminated | truncated
        info: dict[str, Any] = {
            "success": success, "distance": distance, "diverged": diverged, "_final_obs": done,
            "final_scenario": self._scenario.copy(),
        }  # fmt: skip
        if self.task.stages:
            info["progress"] = self.progress.share()
        observation = self._finish(done, diverged, info)
        if self.sight.blind.any():
            info["blind"] = self.sight.blind.copy()
        info["scenario"] = self._scenario.copy()
        return observation, reward, terminated, truncated, info

    def _finish(self, done: NDArray[np.bool_], diverged: NDArray[np.bool_], info: dict[str, Any]) -> Observation:
        """Observe, keep the last pictures of what ended, start the next episodes there."""
        rows = np.flatnonzero(done)
        if len(rows) == 0:
            observation = self.observe()
            info["final_obs"] = observation
            return observation
        if diverged.any():  # there is nothing to draw of a state that is not finite
            self._restore_home(np.flatnonzero(diverged))
        final = self.observe()
        self._start(rows)
        info["final_obs"] = final
        return self.observe(rows, final)

    def _restore_home(self, rows: NDArray[np.int64]) -> None:
        for i in rows.tolist():
            for name, view in self._state.items():
                view[i] = self._fresh(name)
        self._refresh(rows)
        self._forget(rows)

    def _move(self, action: Array) -> None:
        import mujoco

        self.controller.act(action, self._state["qpos"][:, self.arm.qpos])
        self._state["ctrl"][:, self.arm.ctrl] = self.controller.command
        hand = self.controller.hand
        if hand is not None:
            rows = hand.controls(self.model)
            self._state["ctrl"][:, rows] = self.controller.hand_command(action, self._state["ctrl"][:, rows])
        self._batch.step(nstep=self.substeps, stage=int(mujoco.mjtStage.mjSTAGE_POS))

    def _sane(self) -> NDArray[np.bool_]:
        """Whether each simulation's state and tool position are numbers an arm can have, [N]."""
        speed, tool = self._state["qvel"], self._tool[:, self.arm.tcp]
        with np.errstate(invalid="ignore"):
            slow = (np.abs(speed) < TOO_FAST).all(axis=1)
        return slow & np.isfinite(self._state["qpos"]).all(axis=1) & np.isfinite(tool).all(axis=1)

    def _standing(self) -> tuple[Array, Array]:
        """Distance [N] m, and the stages' potential [N] where the reward uses it."""
        potential = self.progress.potential(self.facts()) if self.task.stages else np.zeros(self.num_envs)
        return self.distance(), potential

    def _reward(
        self, before: tuple[Array, Array], after: tuple[Array, Array], action: Array, success: NDArray[np.bool_]
    ) -> Array:
        spec = self.task.reward
        shaped = {
            "progress": (before[0] - after[0]) / spec.scale,
            "dense": 1 - np.tanh(spec.k * after[0]),
            "sparse": np.zeros_like(after[0]),
            "staged": after[1],
            "potential": (spec.gamma * after[1] - before[1]) / spec.scale,
        }[spec.type]
        return shaped + spec.success_bonus * success - spec.action_penalty * np.mean(action**2, axis=1)

    # ------------------------------------------------------------------ what can be seen

    def points(self) -> dict[str, Array]:
        """The tool and the markers of the task, [N, 3] m."""
        mocap = self._state.get("mocap_pos", np.zeros((self.num_envs, 0, 3)))
        return {"tcp": self._tool[:, self.arm.tcp]} | {name: mocap[:, slot] for name, slot in self._mocap.items()}

    def facts(self) -> Facts:
        """What is true now, for predicates."""
        return Facts(self.cell.world, self.points(), self._tables, self.progress.counters())

    def distance(self) -> Array:
        """Tool to target, [N] m; or what the success predicate lacks."""
        if self.task.simple:
            points = self.points()
            return np.linalg.norm(points["tcp"] - points["target"], axis=1)
        return gap(self.task.success, self.facts())

    def observe(self, rows: NDArray[np.int64] | None = None, base: Observation | None = None) -> Observation:
        """The present observation; with `rows`, only those are looked at again and the rest copied from `base`."""
        facts = self.facts()
        left = 1 - self._elapsed[:, None] / self.task.horizon
        observation: Observation = {
            "proprio": self.variety.proprio(self._proprio()),
            "privileged": privileged_values(self.task, facts, self.progress, left).astype(np.float32),
        }
        return observation | self.sight.observe(self._poses, self._elapsed, rows, base)

    def _proprio(self) -> NDArray[np.float32]:
        """[N, P] what the robot senses of itself now."""
        own = [self._state["qpos"][:, self.arm.qpos], self._state["qvel"][:, self.arm.dof], self._tool[:, self.arm.tcp]]
        hand = self.controller.hand
        if hand is not None:
            own.append(hand.opening(self._state["qpos"][:, hand.positions(self.model)]))
        return np.concatenate(own, axis=1).astype(np.float32)

    def picture(self, env: int, painter: Painter | Rider) -> NDArray[np.uint8]:
        """[H, W, 3] uint8 of one environment through any prepared view, e.g. a larger one for a video."""
        return painter.picture(Poses(*(table[env] for table in self._poses)))

    def expert_action(self) -> NDArray[np.float32]:
        """What the scripted expert would do now, [N, size]; it reads the simulator's truth."""
        if self.task.expert:
            return self._scripted()
        points = self.points()
        jacobian, _ = self._batch.jac(int(self.model.site_bodyid[self.arm.tcp]), points["tcp"])
        home = self.arm.home_qpos[self.arm.qpos]
        way = points["target"] - points["tcp"]
        command = self.controller.command
        return reach_action(jacobian[:, :, self.arm.dof], way, command, home, self.task.control.max_delta)

    def _scripted(self) -> NDArray[np.float32]:
        facts, kin = self.facts(), self.controller.kinematics
        tools = self._tool_turns[:, self.arm.tcp].reshape(-1, 3, 3)
        for row in np.flatnonzero(self._asked != self._elapsed).tolist():
            wish = self.script.wish(row, facts, kin.yaw(tools[row]))
            self._wanted[row] = self.controller.toward(row, wish, facts["tcp"][row])
            self._asked[row] = self._elapsed[row]
        return self._wanted.copy()

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Everything the next `step` depends on, as named arrays with N rows (and one number, the seed)."""
        state = {f"physics/{name}": np.array(view) for name, view in self._state.items()}
        state |= {name: array.copy() for name, array in self._counters().items()}
        state["seed"] = np.array([self.seed_value], np.int64)
        return state

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from what `get_state` returned, in an environment of the same cell and size.

        Raises:
            InputError: an array is missing or does not fit.
        """
        for name, view in self._state.items():
            key = f"physics/{name}"
            if key not in state or state[key].shape != view.shape:
                raise InputError(f"the saved state does not fit this environment: {key}")
            view[:] = state[key]
        for name, array in self._counters().items():
            if name not in state or state[name].shape != array.shape:
                raise InputError(f"the saved state does not fit this environment: {name}")
            array[...] = state[name]
        self.seed_value = int(state["seed"][0])
        if self.task.randomize.any:
            self.variety.prepare(np.arange(self.num_envs))
        self._refresh(np.arange(self.num_envs))

    def _counters(self) -> dict[str, NDArray[Any]]:
        """Our own arrays among what the next step depends on, by name; rows stand for environments."""
        arrays: dict[str, NDArray[Any]] = {
            "command": self.controller.command, "elapsed": self._elapsed, "held": self._held,
            "episode": self._episode, "scenario": self._scenario,
        }  # fmt: skip
        if not self.task.simple:
            arrays |= {
                "aim": self.controller.aim, "phase": self.script.phase, "waited": self.script.waited,
                "grip": self.script.grip, "anchor": self.script.anchor, "asked": self._asked, "wanted": self._wanted,
                "latched": self.progress.latched, "timers": self.progress.timers,
            }  # fmt: skip
        return arrays | self.variety.arrays() | self.sight.arrays()

    def close_extras(self, **kwargs: Any) -> None:
        """Nothing is held outside this object."""


def checked_actions(actions: Any, count: int, size: int) -> Array:
    """[N, size] clipped to [-1, 1]. Raises UsageError for another shape, or an action that is not finite."""
    action = np.asarray(actions, dtype=np.float64)
    if action.shape != (count, size):
        raise UsageError(f"actions have shape {list(action.shape)}", why=f"expected [{count}, {size}]")
    bad = np.flatnonzero(~np.isfinite(action).all(axis=1))
    if len(bad):
        raise UsageError(f"the action of environment {bad[0]} is not finite", fix="Check the policy's weights.")
    return np.clip(action, -1.0, 1.0)
