"""MuJoCo's own renderer on the same world, as fast as it goes on a CPU: one environment in this process.

    MUJOCO_GL=egl python scripts/bench/rival.py SCENE SECONDS [ROBOT]     prints one line of JSON

It is the environment's own model (robot, three bodies, bench) with the surface that `recon mesh` published in the place
of the boxes that are hit, of at most `FACES` triangles; 128x128 pixels, shadows and reflections off.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import trimesh

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.worlds import HZ, bench_cell
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import matrix_to_quat
from sim2real.physics import rest
from sim2real.workcell import Workcell, meshes_of

FACES = 60_000
SIZE = 128
HIT = 3  # group of geometry that is only collided with


def drawable(cell: Workcell) -> tuple[mujoco.MjModel, int]:
    """The world with published surfaces, and how many triangles of them are drawn."""
    spec, added = cell.world.spec.copy(), 0
    thin_links(spec, cell.world.model, FACES - FACES // 3)
    published = meshes_of(cell.scene, cell.source)
    bench = published.get("bench")
    if bench is not None:
        surface = thinned(bench.surface(), FACES // 3)
        mesh = spec.add_mesh(name="bench_surface")
        mesh.uservert = np.ascontiguousarray(surface.vertices, np.float32).ravel().tolist()
        mesh.userface = np.ascontiguousarray(surface.faces, np.int32).ravel().tolist()
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
        spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_MESH, meshname="bench_surface", contype=0, conaffinity=0, group=2,
            rgba=[0.6, 0.55, 0.5, 1],
        )  # fmt: skip
        added = len(surface.faces)
    view = cell.painter(cell.default_cameras()[0], SIZE).view.camera
    world_from_camera = invert_pose(view.cam_from_world)
    turn = world_from_camera[:3, :3] @ np.diag([1.0, -1.0, -1.0])  # MuJoCo's cameras look along -z
    fov = float(np.degrees(2 * np.arctan(SIZE / 2 / view.fy)))
    spec.worldbody.add_camera(name="bench", pos=world_from_camera[:3, 3], quat=matrix_to_quat(turn), fovy=fov)
    return spec.compile(), added


def thin_links(spec: mujoco.MjSpec, model: mujoco.MjModel, most: int) -> None:
    """The robot's meshes with about `most` triangles in all, each thinned by the same share."""
    home = Path(spec.modelfiledir or ".") / (spec.meshdir or "")
    shown = {
        model.mesh(int(model.geom_dataid[g])).name
        for g in range(model.ngeom)
        if model.geom_dataid[g] >= 0 and model.geom_group[g] != HIT
    }
    links = {m.name: m for m in spec.meshes if m.name in shown and m.file}
    surfaces = {name: trimesh.load(home / link.file, force="mesh", process=False) for name, link in links.items()}
    total = sum(len(surface.faces) for surface in surfaces.values())
    for name, surface in surfaces.items():
        if total <= most:
            break
        less = thinned(surface, int(len(surface.faces) * most / total))
        mesh = spec.add_mesh(name=f"{name}_thin")
        mesh.uservert = np.ascontiguousarray(less.vertices * links[name].scale, np.float32).ravel().tolist()
        mesh.userface = np.ascontiguousarray(less.faces, np.int32).ravel().tolist()
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
        for geom in spec.geoms:
            if geom.meshname == name and geom.group != HIT:
                geom.meshname = mesh.name


def thinned(surface: trimesh.Trimesh, most: int) -> trimesh.Trimesh:
    """The surface with vertices that share a cell of a grid made one, the grid as fine as `most` triangles allow."""
    side, found = 0.0003, surface
    while len(found.faces) > most:
        cells = np.floor(np.asarray(surface.vertices) / side).astype(np.int64)
        _, first, number = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        found = trimesh.Trimesh(surface.vertices[first], number.reshape(-1)[surface.faces], process=False)
        found.update_faces(found.nondegenerate_faces() & found.unique_faces())
        side *= 1.1
    return found


def faces_of(model: mujoco.MjModel, options: mujoco.MjvOption) -> int:
    """Triangles of the meshes that are drawn."""
    shown = [g for g in range(model.ngeom) if options.geomgroup[model.geom_group[g]] and model.geom_dataid[g] >= 0]
    return int(sum(model.mesh_facenum[model.geom_dataid[g]] for g in shown))


def main() -> None:
    """Time it."""
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    cell = bench_cell(folder, Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    model, surface = drawable(cell)
    data = mujoco.MjData(model)
    start = rest(cell.world.model, cell.world.arm)
    data.qpos[:], data.ctrl[:] = start.qpos, cell.world.arm.home_ctrl
    renderer = mujoco.Renderer(model, SIZE, SIZE)
    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        renderer.scene.flags[flag] = 0
    options = mujoco.MjvOption()
    options.geomgroup[HIT] = 0
    rng, arm = np.random.default_rng(0), cell.world.arm
    substeps = round(1 / (HZ * model.opt.timestep))

    def step() -> Any:
        data.ctrl[arm.ctrl] = np.clip(
            data.ctrl[arm.ctrl] + 0.06 * rng.uniform(-1, 1, len(arm.ctrl)), *model.actuator_ctrlrange[arm.ctrl].T
        )
        mujoco.mj_step(model, data, substeps)
        renderer.update_scene(data, camera="bench", scene_option=options)
        return renderer.render()

    for _ in range(5):
        picture = step()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        picture = step()
        steps += 1
    elapsed = time.perf_counter() - began
    print(json.dumps({
        "steps_per_s": steps / elapsed, "mesh_faces": faces_of(model, options), "bench_surface_faces": surface,
        "picture_mean": float(picture.mean()), "picture_std": float(picture.std()),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
