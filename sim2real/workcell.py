"""Everything one task in one scene needs, built once and shared: the model, the splats, the cameras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError, UsageError
from sim2real.bench import find_bench
from sim2real.bodies import Thing, captured, declared
from sim2real.cameras import best_camera, camera_named, carrier, mounted_camera, square_camera
from sim2real.detail import check_detail, coarser
from sim2real.draw import Movers, Painter, Poses, Splats, make_view, robot_movers, static_splats
from sim2real.physics import Marker, World, compose, rest
from sim2real.rider import Rider
from sim2real.scenarios import Sampler
from sim2real.surface import seen_surface
from sim2real.tasks.items import Item
from sim2real.tasks.spec import Task, load_task

if TYPE_CHECKING:
    from recon.geometry.rig import Rig
    from recon.mesh.folder import Published
    from recon.scene.scene import Scene


@dataclass(frozen=True)
class Workcell:
    """A scene made ready to act in. `rig` is in the scene's world; `source` is the scene's folder or None."""

    scene: Scene
    source: Path | None
    rig: Rig
    robot: Path
    task: Task
    world: World
    sampler: Sampler
    static: Splats
    movers: Movers
    backend: str = "auto"
    _painters: dict[tuple[str, int, bool, bool, float], Painter | Rider] = field(default_factory=dict)

    def painter(
        self, camera: str, size: int, *, cull: bool = True, framed: bool = True, detail: float = 0.0
    ) -> Painter | Rider:
        """A prepared camera: of the rig a square window on the workspace (framed), or the whole picture `size` high.

        Cameras of the task are square (framed), or as wide as 4 to 3. detail: px within which static Gaussians are
        drawn as one (see detail.py); 0 draws them all.
        """
        key = (camera, size, cull, framed, detail)
        if key not in self._painters:
            width = size if framed else round(size * 4 / 3)
            mount = self.task.cameras.get(camera)
            if mount is not None and mount.body is not None:
                self._painters[key] = self._rider(camera, width, size, detail)
            else:
                self._painters[key] = self._fixed(camera, width, size, (cull, framed), detail)
        return self._painters[key]

    def _fixed(self, name: str, width: int, height: int, how: tuple[bool, bool], detail: float) -> Painter:
        cull, framed = how
        if name in self.task.cameras:
            chosen = mounted_camera(name, self.task.cameras[name], width, height)
        elif framed:
            chosen = square_camera(camera_named(self.rig, name, self.task.cameras), self.framing_points(), height)
        else:
            ideal = camera_named(self.rig, name, self.task.cameras).pinhole()
            chosen = ideal.scaled(height / ideal.height)
        gain = self.scene.colour.get(name)
        static = coarser(self.static, chosen.center, chosen.fy, check_detail(detail))
        return Painter(make_view(chosen, static, gain, cull=cull, backend=self.backend), self.movers, self.backend)

    def _rider(self, name: str, width: int, height: int, detail: float) -> Rider:
        mount = self.task.cameras[name]
        body, frame_from_body = carrier(name, mount, self.world)
        camera = mounted_camera(name, mount, width, height)
        camera = replace(camera, cam_from_world=camera.cam_from_world @ frame_from_body)
        rider = Rider(camera, body, self.static, self.movers, self.backend)
        if check_detail(detail) == 0:
            return rider
        eye = rider.at(self.resting()).center
        # it goes about in front of what it sees at rest: half way there it still has what it needs
        roam = 0.5 * float(np.linalg.norm(self.framing_points() - eye, axis=1).min())
        static = coarser(self.static, eye, camera.fy, detail, roam)
        return Rider(camera, body, static, self.movers, self.backend)

    def resting(self) -> Poses:
        """The bodies where the arm is at rest."""
        data = rest(self.world.model, self.world.arm)
        return Poses(*(np.array(table) for table in (data.xpos, data.xquat, data.xmat)))

    def framing_points(self) -> NDArray[np.float64]:
        """What a policy's camera should show: the target region and the tool at rest."""
        tool = rest(self.world.model, self.world.arm).site_xpos[self.world.arm.tcp]
        return np.concatenate([self.sampler.region_points(), tool[None]])

    def default_cameras(self) -> tuple[str, ...]:
        """The one camera that resolves the target region best."""
        return (best_camera(self.rig, self.sampler.region_points()),)


def open_workcell(
    scene: Scene | Path | str,
    task: Task | str = "reach",
    *,
    robot: Path | str | None = None,
    backend: str = "auto",
    device: str = "cpu",
    scale: float | None = None,
) -> Workcell:
    """Build the physics and the splats of a task in a scene.

    Args:
        scene: A loaded scene or a scene folder.
        task: A task, its bundled name, or a YAML file.
        robot: MJCF or URDF file; by default the robot the scene's rig names.
        backend: Rasteriser. device: where the splats lie.
        scale: metres per unit, for a scene of unknown scale only.

    Raises:
        InputError: the scene has no known scale or up axis, no table, or no robot that can be found.
        UsageError: unknown or impossible task.
    """
    from recon.robot import load_robot

    spec = load_task(task) if isinstance(task, str) else task
    loaded, source = _loaded(scene)
    loaded = _in_metres(loaded, scale)
    markers = [Marker(name, place.radius, place.color, flat=True) for name, place in spec.places.items()]
    if spec.target is not None:
        markers.insert(0, Marker("target", spec.target.radius, spec.target.color))
    named = any(item.scene is not None for item in spec.bodies.values())
    meshed = meshes_of(loaded, source) if named else {}
    things = [thing_of(name, item, loaded, meshed) for name, item in spec.bodies.items()]
    world, rig, file, static = _world(loaded, source, robot, markers, device, backend, things)
    if spec.control.gripper and world.gripper is None:
        raise InputError(
            f"task {spec.task!r} needs a gripper",
            why=f"the robot {file} has none",
            fix="Pass --robot FILE with a hand.",
        )
    base_body = rig.robot.base_body if rig.robot is not None and robot is None else None
    movers = robot_movers(load_robot(file, base_body), world)
    return Workcell(loaded, source, rig, file, spec, world, Sampler(world, spec), static, movers, backend)


def thing_of(name: str, item: Item, scene: Scene, meshed: Mapping[str, Published]) -> Thing:
    """A body of a task: the primitive it declares, or the captured one it names."""
    return captured(name, item, scene, meshed) if item.scene is not None else declared(name, item)


def meshes_of(scene: Scene, source: Path | None) -> dict[str, Published]:
    """What `recon mesh` published in the scene's folder, by name. Raises InputError for that of another build."""
    from recon.mesh.folder import read_published

    return {} if source is None else read_published(source, str(scene.provenance.get("key", "")))


def open_world(scene: Scene | Path | str, *, robot: Path | str | None = None) -> tuple[World, Rig]:
    """The model of robot and bench without any task, and the rig in the scene's world. Raises like open_workcell."""
    loaded, source = _loaded(scene)
    world, rig, _, _ = _world(loaded, source, robot, [], "cpu")
    return world, rig


def _loaded(scene: Scene | Path | str) -> tuple[Scene, Path | None]:
    from recon.scene.folder import load_scene

    if isinstance(scene, (str, Path)):
        return load_scene(Path(scene)), Path(scene)
    return scene, None


def _in_metres(scene: Scene, scale: float | None) -> Scene:
    if scale is None:
        return scene
    if scene.metric:
        raise UsageError("--scale is for scenes of unknown scale", why="this one is in metres")
    return scene.scaled(scale)


def _world(
    scene: Scene,
    source: Path | None,
    robot: Path | str | None,
    markers: Sequence[Marker],
    device: str,
    backend: str = "auto",
    things: Sequence[Thing] = (),
) -> tuple[World, Rig, Path, Splats]:
    if scene.up != "z" or not scene.metric:
        raise InputError(
            "this scene cannot be simulated",
            why="its scale or its up axis is unknown",
            fix="Build it from a calibration in metres with +z up and the table top at z = 0"
            + (", or give --scale METRES_PER_UNIT." if scene.up == "z" else "."),
        )
    rig = scene.rig.transformed(scene.scene_from_rig)
    file = find_robot(scene, source, robot)
    if rig.robot is None or rig.robot.world_from_base is None:
        raise InputError(
            "it is unknown where the robot stands in this scene",
            why="the rig has no robot.world_from_base",
            fix="Add the robot entry with world_from_base to rig.json and build the scene again.",
        )
    base = rig.robot.world_from_base
    static = static_splats(scene.gaussians, device)
    bench = find_bench(seen_surface(static, rig, backend), near=(float(base[0, 3]), float(base[1, 3])))
    world = compose(file, base, bench, markers, rig.robot.base_body if robot is None else None, things)
    return world, rig, file, static


def find_robot(scene: Scene, source: Path | None, robot: Path | str | None) -> Path:
    """The robot's description file: the given one, or the one the scene's rig names.

    Raises:
        InputError: no robot is named, or its file is not where it should be.
    """
    if robot is not None:
        path = Path(robot)
        if not path.is_file():
            raise InputError(f"there is no robot file {path}")
        return path
    if scene.rig.robot is None:
        raise InputError("the scene names no robot", fix="Pass --robot FILE (MJCF or URDF).")
    places = _places(scene, source)
    for place in places:
        if (place / scene.rig.robot.file).is_file():
            return place / scene.rig.robot.file
    raise InputError(
        f"the robot file {scene.rig.robot.file} of this scene was not found",
        why="looked in " + ", ".join(str(p) for p in places) if places else "the scene is not in a folder",
        fix="Pass --robot FILE.",
    )


def _places(scene: Scene, source: Path | None) -> list[Path]:
    places = [source] if source is not None else []
    for key in ("capture", "rig", "robot_root"):
        value = scene.provenance.get(key)
        if isinstance(value, str):
            path = Path(value)
            places += [path, path.parent]
    return places


def chosen_cameras(cell: Workcell, cameras: Sequence[str] | None) -> tuple[str, ...]:
    """The named cameras, checked; the default one for None; none for an empty sequence."""
    if cameras is None:
        return cell.default_cameras()
    for name in cameras:
        if name not in cell.task.cameras:
            camera_named(cell.rig, name, cell.task.cameras)
    return tuple(cameras)
