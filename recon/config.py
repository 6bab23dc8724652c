"""What `recon build` and `recon render` may be told. Each dataclass is a command line, and a YAML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Union

import tyro

from recon.fit.settings import FitSettings

Up = Literal["rig", "z", "-z", "y", "-y", "x", "-x"]
Poses = Literal["auto", "as-written", "inverted", "opengl", "inverted-opengl"]
Unit = Union[Literal["mm", "cm", "m"], float, None]  # noqa: UP007 - tyro takes the members of a Union


@dataclass(frozen=True)
class BuildConfig:
    """Videos and a calibration -> a dynamic scene."""

    videos: Path
    """Folder with one video per camera (cam00.mp4, ...) or one picture folder per camera."""
    rig: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """Calibration file, or folder of one; repeat to merge several. Default: looked for in the videos' folder, its
    parent and calibration folders beside them."""
    rig_unit: Unit = None
    """Unit of the calibration's lengths: mm, cm, m, or the metres of one unit (0.054: squares of 5.4 cm). Default: as
    the calibration says, else unknown."""
    rig_poses: Poses = "auto"
    """What the calibration's poses are: `auto` reads them as their format says, and refuses when the pictures
    contradict. The others are believed: as written, inverted, and with OpenGL camera axes."""
    out: Path | None = None
    """Scene folder to write. Default: scenes/<name of the videos' parent folder>."""
    cams: str = ""
    """Comma-separated cameras to build from. Default: all that are calibrated and not held out."""
    masks: Path | None = None
    """Folder of foreground masks laid out like the videos. Default: a `seg` or `masks` folder beside them."""
    robot: Path | None = None
    """Robot description (MJCF or URDF), or `none`. Default: the `robot` entry of the calibration, else of a rig.json
    beside the videos that places the cameras alike."""
    joints: Path | None = None
    """Joint log (CSV: time_s, then one column per joint). Default: the calibration's `robot` entry."""
    bodies: Path | None = None
    """Follow the rigid things that move, with hints on them (YAML: names and places)."""
    fps: float = 30.0
    """Frame rate of picture folders without timestamps.csv."""
    up: Up = "rig"
    """Axis of the rig's world that points up; `rig` believes the calibration, or leaves the world as it is."""
    fit: FitSettings = field(default_factory=FitSettings)
    device: str = "auto"
    """Where to compute: auto, cpu, or an accelerator (see `recon doctor`)."""
    backend: str = "auto"
    """Rasteriser: auto, cpu (native), reference (plain torch)."""
    seed: int = 0
    console: Literal["auto", "rich", "plain", "json"] = "auto"
    overwrite: bool = False
    """Replace a scene that is already there but was built otherwise."""
    keep_work: bool = False
    """Keep the work folder (decoded frames, checkpoints) after the scene is published."""


@dataclass(frozen=True)
class CalibrateConfig:
    """Clips of a board carried before the cameras -> a metric rig, and how well each camera is known."""

    videos: Path
    """Folder with one clip per camera (or one picture folder per camera), all recorded at the same time."""
    board: str
    """The board: a file (board.json or .yaml, caliscope's charuco.toml, Kalibr's .yaml), or one word:
    charuco:COLUMNSxROWS:SQUARE:MARKER:DICTIONARY, checkerboard:COLUMNSxROWS:SQUARE, aprilgrid:COLUMNSxROWS:TAG:SPACING
    (squares or tags; lengths in metres), with :inverted or :legacy after it where it is so."""
    out: Path | None = None
    """Folder to write rig.json and report.json into. Default: rigs/<name of the clips' parent folder>."""
    cams: str = ""
    """Comma-separated cameras. Default: all that have a clip."""
    lens: Literal["auto", "pinhole", "brown", "fisheye"] = "auto"
    """Lens model; `auto` takes for each camera what its own views insist on."""
    world: Literal["auto", "camera", "table", "reference"] = "auto"
    """The rig's world: the first camera's axes, the table on which the board lies face up at --world-at (z up, table at
    z = 0), or that in which the description's world_from_board_reference says where it stands then. `auto`: the
    reference when there is one, else the camera."""
    world_at: float = 0.0
    """Seconds: when the board rests at its place in the world."""
    max_views: int = 160
    """Moments looked at, spread over the clips."""
    fps: float = 30.0
    """Frame rate of picture folders without timestamps.csv."""
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class RenderConfig:
    """A scene drawn from given cameras at given times."""

    scene: tyro.conf.Positional[Path]
    """Scene folder."""
    rig: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """Calibration whose poses are in the world of the rig the scene was built from. Default: the scene's own rig."""
    rig_poses: Poses = "auto"
    """What its poses are, as for `recon build`; `auto` reads poses whose direction is not said as the scene's were."""
    cams: str = ""
    """Comma-separated cameras. Default: all of the calibration."""
    times: str = "all"
    """Comma-separated seconds, or `all`: every frame time of the camera."""
    out: Path = Path("renders")
    """Folder to write: <cam>/<k:06d>.png, <cam>/<k:06d>.npy (depth), times.json."""
    videos: Path | None = None
    """Recordings of these cameras, to take `all` frame times from."""
    depth: bool = True
    """Write depth beside the pictures."""
    device: str = "auto"
    backend: str = "auto"
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class MeshConfig:
    """The bench and the bodies of a scene as meshes, convex pieces and masses, with an audit."""

    scene: tyro.conf.Positional[Path]
    """Scene folder."""
    out: Path | None = None
    """Folder to write. Default: `bodies` in the scene's folder."""
    only: str = ""
    """Comma-separated names: bodies, and `bench` for what stands still. Default: the bench and every object; a robot's
    links have meshes of their own."""
    voxel: float = 0.003
    """Metres, of the depth fusion of a body."""
    bench_voxel: float = 0.006
    """Metres, of the depth fusion of the bench."""
    error: float = 0.004
    """Metres that 95 % of the gap between what is drawn and what collides is to keep below."""
    pieces: int = 32
    """Most collision pieces of a body."""
    bench_pieces: int = 128
    """Most collision pieces of the bench."""
    density: float | None = None
    """kg/m^3 of every body. Nobody can see it: it is written down as declared; 1000 is assumed when it is not given."""
    densities: dict[str, float] = field(default_factory=dict)
    """kg/m^3 by body: NAME KG_PER_M3 ..."""
    device: str = "auto"
    backend: str = "auto"
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class LocateConfig:
    """Pictures of a robot by one fixed camera and its joint positions -> where it stands before the camera."""

    images: Path
    """Folder of the camera's pictures: two or more postures, the camera at one place."""
    intrinsics: Path
    """Text file with K (nine numbers, OpenCV's pixels), or a calibration that holds this one camera."""
    joints: Path
    """Joint positions (rad, m): a folder with a text file per picture, or a table with a row per picture."""
    robot: Path
    """The robot's MJCF or URDF."""
    out: Path
    """Folder to write: pose.json, masks/, overlays/."""
    joint_names: str = ""
    """Comma-separated joints of the columns. Default: the table's header, else the robot's, when there are as many."""
    base_body: str = ""
    """Link whose pose is meant. Default: the robot's first."""
    late: Literal["auto", "off"] = "auto"
    """Find joint positions from pictures that the log's clearly do not fit, or believe the log."""
    seed: int = 0
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class CheckConfig:
    """What is wrong with a recording, in half a minute."""

    videos: Path
    """Folder with one video per camera (cam00.mp4, ...) or one picture folder per camera."""
    rig: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """Calibration, as for `recon build`. Default: looked for beside the videos; without one coverage is not checked."""
    cams: str = ""
    """Comma-separated cameras to look at. Default: all."""
    fps: float = 30.0
    """Frame rate of picture folders without timestamps.csv."""
    out: Path | None = None
    """Folder to write: check.html, check.json. Default: checks/<name of the videos' parent folder>."""
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class InfoConfig:
    """What is in a scene folder."""

    scene: tyro.conf.Positional[Path]
    """Scene folder."""
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class ExportConfig:
    """A scene in another format, and what that cannot carry."""

    scene: tyro.conf.Positional[Path]
    """Scene folder."""
    to: str
    """ply, compressed-ply, splat, sog or spz: one instant. gltf, usd or 4dgs: with its motion. With -sequence
    (ply-sequence): a folder, one file a frame. nerfstudio or colmap: the pictures and cameras it was made from."""
    out: Path
    """File to write; of a sequence or a data set, the folder."""
    time: float | None = None
    """The instant, seconds on the scene's clock. Default: its first; with gltf, usd and 4dgs the whole motion; with
    nerfstudio and colmap all frames."""
    videos: Path | None = None
    """Folder of the recordings, for nerfstudio and colmap."""
    every: int = 1
    """With nerfstudio and colmap: only each so many-th frame."""
    axes: str = ""
    """Axes to write, such as rdf (x right, y down, z forward), rub or rfu. Default: the format's, else the scene's."""
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class ConvertConfig:
    """A file of Gaussians in another format, and what that cannot carry."""

    source: tyro.conf.Positional[Path]
    """File to read: ply, compressed ply, splat, ksplat, sog, spz, glTF, USD or 4dgs, told by its content where it can
    be."""
    target: tyro.conf.Positional[Path]
    """File to write; its ending tells the format."""
    to: str = ""
    """Format to write (ply, compressed-ply, splat, sog, spz, gltf, usd, 4dgs) when the ending does not tell."""
    axes_in: str = ""
    """Axes of the source when the file does not state them. Default: rdf (x right, y down, z forward)."""
    axes: str = ""
    """Axes to write. Default: the format's, else as read."""
    console: Literal["auto", "rich", "plain", "json"] = "auto"


@dataclass(frozen=True)
class DoctorConfig:
    """What this machine can run, and what is missing."""

    device: str = "auto"
    """Device to look at: auto (all), cpu, or an accelerator."""
    backend: str = "auto"
    json: bool = False
    """Print one JSON object instead of lines."""
    full: bool = False
    """Put the device through its trials too (operators, precision, checkpoints, training, timings; a minute or so) and
    write doctor-<device>.json and .md. With --json a named accelerator always is."""
    out: Path = Path(".")
    """Folder for those two files."""
    console: Literal["auto", "rich", "plain", "json"] = "auto"
