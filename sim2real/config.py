"""What `sim2real train | eval | collect | import | export` may be told. Light to import: no torch, no simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

ConsoleMode = Literal["auto", "rich", "plain", "json", "quiet"]


@dataclass(frozen=True)
class TrainOptions:
    """A scene and a task -> a cloned policy, then one improved by PPO, both from pixels."""

    scene: str
    """Scene folder, or its name: NAME itself, then scenes/NAME."""
    task: str = "reach"
    """Bundled task, or a YAML file."""
    preset: str = "default"
    """Bundled training preset, or a YAML file with the same keys."""
    robot: Path | None = None
    """Robot description (MJCF or URDF). Default: the scene's own robot."""
    scale: float | None = None
    """Metres per unit of a scene of unknown scale. Such scenes are refused without it."""
    bodies: str = ""
    """Captured bodies instead of the task's own: cube=NAME, comma-separated."""
    data: Path | None = None
    """LeRobot data set to clone from, instead of fresh episodes of the expert. `sim2real collect` writes such sets."""
    out: Path | None = None
    """Run folder. Default: runs/<scene>-<task>. Running again continues there."""
    cameras: str = ""
    """Comma-separated cameras the policy sees, of the rig or the task. Default: the one that shows the task best."""
    device: str = "auto"
    """Where the networks are trained and the pictures drawn: auto, cpu, or an accelerator (see `recon doctor`)."""
    backend: str = "auto"
    """Rasteriser: auto (the fastest on the device), cpu (native; draws on the CPU whatever the device), reference
    (plain torch, on the device)."""
    seed: int = 0
    console: ConsoleMode = "auto"


@dataclass(frozen=True)
class EvalOptions:
    """Policies on scenarios none of them has seen -> an offline report with intervals and videos."""

    scene: str
    """Scene folder, or its name: NAME itself, then scenes/NAME."""
    policy: str = "ppo"
    """Policy folder, a run folder (its best policy is taken), or: expert, random, zero."""
    baseline: str | None = None
    """What to compare with on the same scenarios, given like --policy. Default: the clone of the same run; or none."""
    episodes: int | None = None
    """Number of scenarios. Default: the task's own, 100 where it names none."""
    task: str | None = None
    """Task for expert, random and zero. Default: the task the policy was trained for, else reach."""
    robot: Path | None = None
    """Robot description. Default: the one the policy was trained with, else the scene's own."""
    scale: float | None = None
    """Metres per unit of a scene of unknown scale. Such scenes are refused without it."""
    bodies: str = ""
    """Captured bodies instead of the task's own: cube=NAME, comma-separated."""
    out: Path | None = None
    """Report folder. Default: runs/<scene>-<task>/eval."""
    videos: int = 6
    """Number of scenarios to film."""
    device: str = "auto"
    """Where the policy runs and the pictures are drawn, as for `sim2real train`."""
    backend: str = "auto"
    """Rasteriser, as for `sim2real train`."""
    seed: int | None = None
    """Of the evaluation scenarios. Default: the task's own, 0 where it names none."""
    console: ConsoleMode = "auto"


@dataclass(frozen=True)
class CollectOptions:
    """Episodes of the expert or of a policy -> a LeRobot data set of version 3.0."""

    scene: str
    """Scene folder, or its name: NAME itself, then scenes/NAME."""
    task: str | None = None
    """Bundled task, or a YAML file. Default: the task the policy was trained for, else reach."""
    policy: str = "expert"
    """expert, zero, a policy folder, or a run folder (its best policy is taken)."""
    episodes: int = 50
    """Number of episodes kept: successful ones, unless --failures."""
    out: Path | None = None
    """Data set folder. Default: datasets/<scene>-<task>. After a stop the same command continues."""
    failures: bool = False
    """Keep episodes that fail, too."""
    noise: float = 0.0
    """Deviation of Gaussian noise on what is done; what is recorded is the policy's own answer in each state."""
    cameras: str = ""
    """Comma-separated cameras of the rig or the task. Default: the policy's, else the one that shows the task best."""
    size: int | None = None
    """Side of the square pictures, px, even. Default: the policy's, else 128."""
    num_envs: int = 8
    """Environments stepped together. The data set does not depend on it."""
    robot: Path | None = None
    """Robot description (MJCF or URDF). Default: the policy's, else the scene's own."""
    scale: float | None = None
    """Metres per unit of a scene of unknown scale. Such scenes are refused without it."""
    bodies: str = ""
    """Captured bodies instead of the task's own: cube=NAME, comma-separated."""
    device: str = "auto"
    """Where the policy runs and the pictures are drawn, as for `sim2real train`."""
    backend: str = "auto"
    """Rasteriser, as for `sim2real train`."""
    seed: int = 0
    """Of the scenarios (the training split) and the noise."""
    console: ConsoleMode = "auto"


@dataclass(frozen=True)
class ImportOptions:
    """Check a LeRobot data set of version 2.1 or 3.0, say what it holds, and bring 2.1 to 3.0."""

    folder: tyro.conf.Positional[Path]
    """Data set folder: the one with meta/info.json."""
    out: Path | None = None
    """Where the converted data set goes. Default: <folder>-v3. Version 3.0 is used where it is."""
    console: ConsoleMode = "auto"


@dataclass(frozen=True)
class ExportOptions:
    """A scene -> folders that other simulators load."""

    scene: str | None = None
    """Scene folder, or its name: NAME itself, then scenes/NAME. Needed but for `--to list`."""
    to: Annotated[str, tyro.conf.arg(name="to")] = "mujoco"
    """Targets, with commas between them; `list` shows all with one line each."""
    out: Path | None = None
    """Folder to write; of several targets their parent. Default: exports/<scene>-<target>. An earlier export there is
    replaced, anything else is refused."""
    robot: Path | None = None
    """Robot description (MJCF or URDF). Default: the scene's own robot."""
    console: ConsoleMode = "auto"
