"""`recon render`: a scene drawn from given cameras at given times, in the cameras' own (distorted) pixel grids."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import torch

from recon.calibrate.conventions import AS_WRITTEN, BY_NAME, meant
from recon.calibrate.rig import load_calibration
from recon.capture.session import PictureSizes, open_capture
from recon.config import RenderConfig
from recon.core.device import device_notes, resolve_device, set_strict_precision
from recon.core.errors import InputError, StorageError, UsageError, did_you_mean
from recon.core.events import Artifact, Event, Progress, StageFinished, StageStarted
from recon.core.files import write_json
from recon.geometry.camera import Camera, distort_map, squared_radii
from recon.geometry.rig import Rig
from recon.render.api import rasterize
from recon.render.types import RasterConfig
from recon.scene.folder import find_scene, load_scene
from recon.scene.scene import Scene

SEEN = 0.5  # alpha below which a pixel has no depth
MAX_FRAMES = 100_000


class SceneCamera:
    """Draws a scene with one camera: rendered by an ideal pinhole camera, then bent to the lens's pixel grid."""

    def __init__(self, scene: Scene, camera: Camera, device: torch.device, backend: str) -> None:
        """camera: in the scene's world."""
        self.scene, self.camera, self.backend = scene, camera, backend
        self.ideal = camera.pinhole()
        self.viewmat = torch.from_numpy(self.ideal.cam_from_world.astype(np.float32))[None].to(device)
        self.K = torch.from_numpy(self.ideal.K.astype(np.float32))[None].to(device)
        self.raster = RasterConfig(near=float(scene.provenance.get("near", RasterConfig().near)))
        self.map: np.ndarray | None = None
        if camera.distorted:
            self.map = distort_map(camera, self.ideal) - np.float32(0.5)  # cv2 puts the first pixel centre at (0, 0)

    @torch.no_grad()
    def draw(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """(uint8 [H, W, 3], depth float32 [H, W] metres with NaN where nothing is seen) at time t [s]."""
        posed = self.scene.at(t)
        degree = self.scene.gaussians.degree
        drawn = rasterize(
            posed.means, posed.quats, posed.scales, posed.opacities, posed.sh, self.viewmat, self.K,
            self.ideal.width, self.ideal.height, sh_degree=degree, config=self.raster, backend=self.backend,
        )  # fmt: skip
        picture = self._in_camera_colours(drawn.color[0].cpu().numpy())
        depth, alpha = drawn.depth[0].cpu().numpy(), drawn.alpha[0].cpu().numpy()
        if self.map is not None:
            picture = cv2.remap(picture, self.map, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
            depth = cv2.remap(depth, self.map, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT, borderValue=0)
            alpha = cv2.remap(alpha, self.map, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT, borderValue=0)
        depth = np.where(alpha >= SEEN, depth, np.nan).astype(np.float32)
        return np.round(np.clip(picture, 0.0, 1.0) * 255.0).astype(np.uint8), depth

    def _in_camera_colours(self, picture: np.ndarray) -> np.ndarray:
        """The colours that this camera would record in its ideal picture, when the scene knows how it sees."""
        name = self.camera.name
        if name not in self.scene.colour:
            return picture
        matrix, offset = self.scene.colour[name]
        falloff = self.scene.vignetting.get(name, 0.0) * squared_radii(self.ideal)
        return np.asarray((picture @ matrix + offset) * (1.0 - falloff)[..., None], dtype=np.float32)


def chosen_cameras(rig: Rig, cams: str) -> list[str]:
    """Names of the cameras asked for (comma-separated; empty: all); InputError for one that is not in the rig."""
    names = [name.strip() for name in cams.split(",") if name.strip()] or list(rig.cameras)
    for name in names:
        if name not in rig.cameras:
            raise InputError(f"--cams: no camera {name!r} in the calibration", fix=did_you_mean(name, rig.cameras))
    return names


def parse_times(text: str) -> list[float] | None:
    """Seconds from "t0,t1,..."; None for `all`."""
    if text.strip() == "all":
        return None
    try:
        times = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(f"--times {text!r}", why=str(error), fix="give seconds such as 0,0.5,1 or `all`") from error
    if not times or not np.isfinite(times).all():
        raise UsageError(f"--times {text!r} names no time", fix="give seconds such as 0,0.5,1 or `all`")
    return times


def frame_times(scene: Scene, rig: Rig, names: list[str], videos: Path | None) -> dict[str, list[float]]:
    """Every frame time of each camera: from its recording in `videos`, else as the scene was built, else those of the
    scene's first camera (recordings of one rig run together)."""
    recorded: dict[str, list[float]] = {}
    if videos is not None:
        with open_capture(videos, rig, names, role=None, min_cameras=1) as capture:
            recorded = {name: [float(t) for t in stream.times] for name, stream in capture.cameras.items()}
    reference = next(iter(scene.frame_times.values()), None)
    found = {}
    for name in names:
        times = recorded.get(name) or scene.frame_times.get(name) or reference
        if times is None:
            raise UsageError(f"the frame times of camera {name!r} are not known", fix="give --times or --videos")
        found[name] = times
    return found


def given_rig(config: RenderConfig, scene: Scene) -> Rig:
    """The calibration of --rig; what it leaves open is as in the scene: picture sizes, names, the poses' direction."""
    pictures = {camera.name: (camera.width, camera.height) for camera in scene.rig.cameras.values()}
    if config.videos is not None:
        pictures |= dict(PictureSizes(config.videos))
    calibration = load_calibration(list(config.rig), pictures)
    poses: str = config.rig_poses
    if poses == "auto":
        poses = str(scene.provenance.get("rig_poses")) if calibration.direction_open else "as-written"
    return meant(calibration.rig, BY_NAME.get(poses, AS_WRITTEN))


def render_scene(config: RenderConfig) -> Iterator[Event]:
    """Write <cam>/<k:06d>.png, <cam>/<k:06d>.npy and times.json; yields progress."""
    device = resolve_device(config.device)
    set_strict_precision()
    yield from device_notes(device)
    scene = load_scene(find_scene(config.scene))
    rig = given_rig(config, scene) if config.rig else scene.rig
    names = chosen_cameras(rig, config.cams)
    given = parse_times(config.times)
    times = dict.fromkeys(names, given) if given is not None else frame_times(scene, rig, names, config.videos)
    total = sum(len(t) for t in times.values())
    if total > MAX_FRAMES:
        raise UsageError(f"{total} pictures asked for, at most {MAX_FRAMES} at once", fix="choose cameras or times")
    placed = rig.transformed(scene.scene_from_rig)
    moved = scene.to(device)
    started, done = time.monotonic(), 0
    yield StageStarted("render", total)
    for name in names:
        folder = config.out / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot write to {folder}", why=error.strerror or str(error)) from error
        drawer = SceneCamera(moved, placed.cameras[name], device, config.backend)
        for k, t in enumerate(times[name]):
            picture, depth = drawer.draw(t)
            _write(folder / f"{k:06d}.png", picture)
            if config.depth:
                _write_depth(folder / f"{k:06d}.npy", depth)
            done += 1
            yield Progress("render", done, total)
    write_json(config.out / "times.json", times)
    yield StageFinished("render", time.monotonic() - started, {"pictures": float(done)})
    yield Artifact("renders", config.out)


def _write(path: Path, picture: np.ndarray) -> None:
    encoded, data = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, 3])
    try:
        path.write_bytes(data.tobytes() if encoded else b"")
    except OSError as error:
        raise StorageError(f"cannot write {path}", why=error.strerror or str(error)) from error


def _write_depth(path: Path, depth: np.ndarray) -> None:
    try:
        with path.open("wb") as file:
            np.save(file, depth, allow_pickle=False)
    except OSError as error:
        raise StorageError(f"cannot write {path}", why=error.strerror or str(error)) from error
