"""Things that move: they rest where they are put, move in physics and pictures alike, and say what was assumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from recon.core.errors import InputError, UsageError
from recon.geometry.sh import rgb_to_sh0
from recon.scene.gaussians import RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body, Scene
from sim2real.bodies import Look, _hull_of
from sim2real.env import SplatVectorEnv
from sim2real.primitives import pieces_of, surface_of
from sim2real.tasks.items import Init, Item
from sim2real.tasks.spec import load_task
from sim2real.workcell import meshes_of, open_workcell

SIZE = 48
MUG = np.array([0.12, -0.12, 0.002 + 0.03])  # m, where the captured thing stands, its middle


def with_mug(scene: Scene) -> Scene:
    """The made-up scene with a captured body of Gaussians: a box of 5 x 5 x 6 cm."""
    surface = surface_of(pieces_of("box", (0.05, 0.05, 0.06)), 300)
    n = len(surface.points)
    sh = np.zeros((n, 4, 3))
    sh[:, 0] = rgb_to_sh0(np.array([0.9, 0.8, 0.1]))
    arrays = (surface.points, np.log(np.full((n, 3), 0.004)), np.tile([1.0, 0, 0, 0], (n, 1)), np.full(n, 3.0), sh)
    rows = Gaussians.static(*(torch.from_numpy(a.astype(np.float32)) for a in arrays))
    rows = replace(rows, object_id=torch.full_like(rows.object_id, 1), kind=torch.full_like(rows.kind, RIGID))
    table = replace(
        scene.gaussians, sh=torch.cat([scene.gaussians.sh, torch.zeros(len(scene.gaussians.means), 3, 3)], 1)
    )
    track = Track(np.array([0.0]), torch.tensor(MUG[None], dtype=torch.float32), torch.tensor([[1.0, 0, 0, 0]]))
    return replace(scene, gaussians=Gaussians.concat([table, rows]), bodies=[Body("mug", 1, "object", None, track)])


@pytest.fixture(scope="module")
def pick(scene, robot):
    return open_workcell(scene, "pick", robot=robot)


@pytest.fixture(scope="module")
def stack(scene, robot):
    return open_workcell(scene, "stack", robot=robot)


@pytest.fixture(scope="module")
def mug_cell(scene, robot):
    task = load_task("pick")
    item = Item(Init(pose="scene", jitter=0.02), scene="mug")
    task = replace(task, bodies={"cube": item})
    return open_workcell(with_mug(scene), task, robot=robot)


def test_things_rest_where_a_scenario_puts_them(stack) -> None:
    env = SplatVectorEnv(stack, 3)
    env.reset(seed=5)
    before = {name: env.facts()[name].copy() for name in ("lower", "cube")}
    for _ in range(20):
        env.step(np.tile([0.0] * 6 + [1.0], (3, 1)))
    facts = env.facts()
    for name, place in before.items():
        assert np.abs(facts[name] - place).max() < 1e-3
        assert facts.bottom(name) == pytest.approx(stack.world.bench.top, abs=1e-3)
        assert facts.touching(name, "table").all() and not facts.fingers_on(name).any()


def test_the_gaussians_of_a_thing_move_with_it(pick) -> None:
    env = SplatVectorEnv(pick, 1, cameras=["cam00"], size=SIZE)
    first, _ = env.reset(seed=1)
    k = int(pick.world.model.joint("thing_cube_free").qposadr[0])

    def look(dy: float, dz: float) -> np.ndarray:
        env._state["qpos"][0, k : k + 3] = start + np.array([0.0, dy, dz])
        env._refresh(np.array([0]))
        return env.observe()["rgb"]["cam00"][0].astype(int)

    start = env._state["qpos"][0, k : k + 3].copy()
    np.testing.assert_array_equal(look(0, 0), first["rgb"]["cam00"][0])
    nothing = look(0, -1.0)  # under the table, which hides it
    here, there = (np.abs(look(dy, 0) - nothing).max(axis=2) > 60 for dy in (0.0, 0.12))
    assert here.sum() >= 6 and there.sum() >= 6 and not (here & there).any()
    red = look(0, 0)[here].mean(axis=0)
    assert red[0] > 2 * red[1] and red[0] > 2 * red[2]


def test_a_captured_body_becomes_a_thing_with_its_own_gaussians(mug_cell) -> None:
    thing = mug_cell.world.things[0]
    facts = thing.facts()
    assert facts["mass_source"].startswith("assumed") and facts["friction_source"] == "assumed"
    assert "hull of its Gaussians" in facts["shape_source"]
    assert thing.mass == pytest.approx(1000 * 0.05 * 0.05 * 0.06, rel=0.15)
    env = SplatVectorEnv(mug_cell, 2, cameras=["cam00"], size=SIZE)
    observation, _ = env.reset(seed=0)
    middle = env.facts()["cube"]
    assert np.abs(middle[:, :2] - MUG[:2]).max() < 0.03
    bare = replace(mug_cell.scene, gaussians=mug_cell.scene.gaussians.select(mug_cell.scene.gaussians.kind == 0))
    without = open_workcell(replace(bare, bodies=[]), "reach", robot=mug_cell.robot)
    assert len(mug_cell.movers) > len(without.movers) and len(mug_cell.movers.sh) == len(thing.look.means)
    yellow = observation["rgb"]["cam00"].astype(int)
    assert ((yellow[..., 0] > 150) & (yellow[..., 1] > 120) & (yellow[..., 2] < 90)).any()


def test_a_stray_gaussian_gives_a_hull_no_foot() -> None:
    half = np.array([0.03, 0.025, 0.03])
    points = np.random.default_rng(0).uniform(-1, 1, (600, 3)) * half
    points[:, 2] = np.where(np.arange(600) % 2, points[:, 2], np.sign(points[:, 2]) * half[2])
    strays = np.array([[0.0, 0.0, -0.2], [0.15, 0.0, 0.0]])
    count = len(points) + len(strays)
    look = Look(
        np.concatenate([points, strays]), np.tile([1.0, 0, 0, 0], (count, 1)), np.full((count, 3), 0.002),
        np.full(count, 0.9), np.zeros((count, 1, 3)), False,
    )  # fmt: skip
    corners = _hull_of(look, "box").corners()
    assert corners.max(axis=0) == pytest.approx(half, abs=0.004) and corners.min(axis=0) == pytest.approx(
        -half, abs=0.004
    )


def test_light_turns_with_a_captured_body(mug_cell) -> None:
    """Turning body and eye together changes no colour; turning one of them does."""
    from dataclasses import replace as change

    from sim2real.draw import Poses

    rng = np.random.default_rng(0)
    light = rng.normal(size=mug_cell.movers.sh.shape).astype(np.float32) * 0.2
    movers = change(mug_cell.movers, sh=light)
    count, body = mug_cell.world.model.nbody, int(mug_cell.world.model.body("thing_cube").id)
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    still = Poses(np.zeros((count, 3)), np.tile([1.0, 0, 0, 0], (count, 1)), np.tile(np.eye(3).ravel(), (count, 1)))
    turned = Poses(still.positions, still.quats.copy(), still.matrices.copy())
    turned.quats[body], turned.matrices[body] = [np.sqrt(0.5), 0, 0, np.sqrt(0.5)], turn.ravel()
    eye = np.array([0.3, 0.2, 0.5], np.float32)
    rows = slice(len(movers) - len(light), None)
    a = movers.posed(still, eye)[2][rows]
    b = movers.posed(turned, (turn @ eye).astype(np.float32))[2][rows]
    c = movers.posed(turned, eye)[2][rows]
    assert a == pytest.approx(b, abs=1e-5) and np.abs(a - c).max() > 0.05


def test_meshes_of_another_build_are_refused(scene, robot, tmp_path: Path) -> None:
    import trimesh

    from recon.mesh.folder import Made, write_meshes
    from recon.mesh.gap import Gap
    from recon.mesh.inertia import mass_properties
    from recon.mesh.solid import Solid, SolidSettings
    from sim2real.bodies import captured

    box = trimesh.creation.box((0.05, 0.05, 0.06))
    gap = Gap(0.0, 0.0, 0.0, 0.0, 0.0)
    solid = Solid("mug", box, np.ones(len(box.faces), bool), [box], gap, 0.0)
    made = [Made(solid, "object", SolidSettings(0.005, 0.002, 8), mass_properties(box, [box], 300.0))]
    write_meshes(tmp_path / "bodies", made, "this")
    captured_scene = replace(with_mug(scene), provenance={"key": "this"})
    item = Item(Init(pose="scene"), scene="mug", friction=0.4)
    thing = captured("cup", item, captured_scene, meshes_of(captured_scene, tmp_path))
    assert thing.mass == pytest.approx(300 * 0.05 * 0.05 * 0.06, rel=1e-6)
    assert thing.facts()["mass_source"] == "declared, not measured" and thing.facts()["friction_source"] == "declared"
    assert thing.half == pytest.approx([0.025, 0.025, 0.03], abs=1e-6) and thing.facts()["shape_source"] == "recon mesh"
    with pytest.raises(InputError, match="belongs to another build"):
        meshes_of(replace(captured_scene, provenance={"key": "that"}), tmp_path)


def test_an_unknown_captured_body_names_the_nearest(scene, robot) -> None:
    task = replace(load_task("pick"), bodies={"cube": Item(Init(pose="scene"), scene="mgu")})
    with pytest.raises(UsageError, match="no body 'mgu'.*Did you mean 'mug'"):
        open_workcell(with_mug(scene), task, robot=robot)
    with pytest.raises(UsageError, match="nothing moved in it as one rigid thing"):
        open_workcell(scene, task, robot=robot)


def test_one_and_many_environments_agree_bit_for_bit(stack) -> None:
    scenarios = stack.sampler.draw_set(0, "eval", 4).scenarios
    one, many = (SplatVectorEnv(stack, n, cameras=["cam00"], size=SIZE) for n in (1, 4))
    one.reset(options={"scenarios": scenarios[2:3]})
    many.reset(options={"scenarios": scenarios})
    for _ in range(40):
        a, b = one.expert_action(), many.expert_action()
        np.testing.assert_array_equal(a[0], b[2])
        x, rx, *_ = one.step(a)
        y, ry, *_ = many.step(b)
        for name in ("proprio", "privileged"):
            np.testing.assert_array_equal(x[name][0], y[name][2], err_msg=name)
        np.testing.assert_array_equal(x["rgb"]["cam00"][0], y["rgb"]["cam00"][2])
        assert rx[0] == ry[2]
    alone, among = one.get_state(), many.get_state()
    for name in ("physics/qpos", "physics/qvel", "latched", "aim", "phase"):
        np.testing.assert_array_equal(alone[name][0], among[name][2], err_msg=name)


def test_a_saved_state_with_things_continues_bit_for_bit(stack) -> None:
    env, other = SplatVectorEnv(stack, 2, seed=3), SplatVectorEnv(stack, 2)
    env.reset()
    other.reset()
    for _ in range(25):
        env.step(env.expert_action())
    other.set_state(env.get_state())
    for _ in range(25):
        a, b = env.step(env.expert_action()), other.step(other.expert_action())
        np.testing.assert_array_equal(a[0]["privileged"], b[0]["privileged"])
        np.testing.assert_array_equal(a[1], b[1])


def test_a_thing_that_is_thrown_into_nothing_does_not_count(stack) -> None:
    env = SplatVectorEnv(stack, 2)
    env.reset()
    first = int(stack.world.model.joint("thing_cube_free").dofadr[0])
    env._state["qvel"][0, first] = 1e9
    observation, reward, terminated, _, info = env.step(np.zeros((2, 7)))
    assert info["diverged"].tolist() == [True, False] and terminated.tolist() == [True, False]
    assert np.isfinite(reward).all() and np.isfinite(observation["privileged"]).all()
    assert np.isfinite(info["final_obs"]["privileged"]).all() and not info["success"].any()


def test_gymnasium_finds_nothing_wrong(pick) -> None:
    from gymnasium.utils.env_checker import check_env

    env = SplatVectorEnv(pick, 1, cameras=["cam00"], size=32)
    check_env(_Single(env), skip_render_check=True)


class _Single(gymnasium.Env):
    """One row of a vector environment, for Gymnasium's checker of single ones."""

    def __init__(self, env: SplatVectorEnv) -> None:
        self.env, self.observation_space, self.action_space = (
            env, env.single_observation_space, env.single_action_space,
        )  # fmt: skip
        self.spec = None

    def _row(self, observation: dict) -> dict:
        return {k: v[0] if not isinstance(v, dict) else {n: i[0] for n, i in v.items()} for k, v in observation.items()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        observation, info = self.env.reset(seed=0 if seed is None else seed, options=options)
        return self._row(observation), {}

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action[None])
        return self._row(info["final_obs"]), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}
