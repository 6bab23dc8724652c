"""The engines themselves, where they can be had: places, masses, rest and pictures as MuJoCo and we have them.

Each runs in an interpreter of its own, named by an environment variable, or in this one where the package is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from sim2real.export.cargo import Cargo

HERE = Path(__file__).parent


ENGINES = {  # target: (script, its interpreter, tolerance of a resting height in mm)
    "pybullet": ("pybullet_scene.py", "RECON_PYBULLET_PYTHON", 1.2),
    "robotwin": ("sapien_scene.py", "RECON_SAPIEN_PYTHON", 0.2),
    "newton": ("newton_scene.py", "RECON_NEWTON_PYTHON", 0.2),
    "genesis": ("genesis_scene.py", "RECON_GENESIS_PYTHON", 0.2),
}


def _interpreter(name: str) -> str | None:
    module = {"robotwin": "sapien"}.get(name, name)
    return os.environ.get(ENGINES[name][1]) or (sys.executable if importlib.util.find_spec(module) else None)


@pytest.mark.parametrize("name", ENGINES)
def test_the_engine_itself_agrees_about_places_masses_and_rest(
    made, name: str, cargo: Cargo, exports: Path, tmp_path
) -> None:
    script, variable, tolerance = ENGINES[name]
    python = _interpreter(name)
    if python is None:
        pytest.skip(f"{variable} names no interpreter that has it")
    sets = [made.random_joints(cargo, seed) for seed in range(5)]
    (tmp_path / "joints.json").write_text(json.dumps(sets))
    command = [
        python,
        str(HERE / "export_probe.py"),
        str(exports / name),
        script,
        str(tmp_path / "joints.json"),
        "0.05",
    ]
    done = subprocess.run([*command, "1.5"], capture_output=True, text=True, timeout=600)
    told = [line for line in done.stdout.splitlines() if line.startswith("PROBE")]
    assert told, done.stderr[-3000:]
    result = json.loads(told[0][5:])
    for q, poses in zip(sets, result["poses"], strict=True):
        expected = made.mujoco_poses(cargo, q)
        for part in cargo.parts:
            assert np.array(poses[part.name]) == pytest.approx(expected[part.name], abs=1e-5), part.name
    for body, (mass, moments) in result["masses"].items():
        number = cargo.model.body(body).id
        assert mass == pytest.approx(cargo.model.body_mass[number], rel=1e-4)
        assert sorted(moments) == pytest.approx(sorted(cargo.model.body_inertia[number]), rel=1e-4)
    data = mujoco.MjData(cargo.model)
    data.qpos[:], data.ctrl[:] = cargo.rest_qpos, cargo.rest_ctrl
    for thing in cargo.things:
        data.qpos[cargo.model.joint(f"{thing.name}_free").qposadr[0] + 2] += 0.05
    for _ in range(round(1.5 / cargo.model.opt.timestep)):
        mujoco.mj_step(cargo.model, data)
    for thing in cargo.things:
        height = 1000 * (np.array(result["rest"][thing.name])[2, 3] - data.body(thing.name).xpos[2])
        assert abs(height) < tolerance, f"{thing.name} rests {height:.2f} mm higher"
    for part in cargo.parts:  # the arm holds its pose against gravity
        assert np.array(result["rest"][part.name])[:3, 3] == pytest.approx(data.body(part.name).xpos, abs=2e-3)


NEWTON = "from newton_scene import Bench; p = Bench('.', gaussians=True).picture('cam00', 0.5)"
PICTURES = {  # target: (interpreter, code that saves the picture of cam00 at half size, least PSNR in dB)
    "newton": ("RECON_NEWTON_PYTHON", NEWTON, 20),
    "mujoco-warp": ("RECON_MJWARP_PYTHON", "from mjwarp_scene import picture; p = picture('.', 'cam00', 0.5)", 23),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_an_engine_that_draws_gaussians_shows_the_same_picture(
    made, name: str, cargo: Cargo, exports: Path, tmp_path
) -> None:
    variable, code, least = PICTURES[name]
    if variable not in os.environ:
        pytest.skip(f"{variable} names no interpreter that has it")
    save = f"import numpy as np; {code}; np.save({str(tmp_path / 'p.npy')!r}, p, allow_pickle=False)"
    done = subprocess.run(
        [os.environ[variable], "-c", save], cwd=exports / name, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    theirs = np.load(tmp_path / "p.npy", allow_pickle=False).astype(float)
    home = {j.name: j.home for part in cargo.parts for j in part.joints}
    script = made.load(exports / name / "draw.py", "exported_draw")
    ours = script.Pictures(exports / name).draw("cam00", made.mujoco_poses(cargo, home), 0.5).astype(float)
    assert 10 * np.log10(255**2 / np.mean((ours - theirs) ** 2)) > least
    # a camera that is off by a few pixels, or axes that are swapped, fall far below that
    assert 10 * np.log10(255**2 / np.mean((np.roll(ours, 8, axis=1) - theirs) ** 2)) < least - 2
