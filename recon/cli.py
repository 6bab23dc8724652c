"""The `recon` command. Only what a command needs is imported, and only when it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro

from recon.config import (
    BuildConfig,
    CalibrateConfig,
    CheckConfig,
    ConvertConfig,
    DoctorConfig,
    ExportConfig,
    InfoConfig,
    LocateConfig,
    MeshConfig,
    RenderConfig,
)
from recon.core.console import Console
from recon.core.errors import Interrupted, ReconError

if TYPE_CHECKING:
    from recon.core.events import Event

DESCRIPTION = """Multi-camera videos -> a dynamic, metric 4D Gaussian scene.

Examples:
  recon build --videos cams/                          # writes scenes/<parent folder>
  recon calibrate --videos calib/ --board board.json  # board clips -> rigs/<parent folder>/rig.json
  recon render scenes/lab --cams cam00 --times 0,1.5 --out pictures
"""

Command = Union[  # noqa: UP007 - tyro takes the subcommands of a Union; the members are Annotated forms
    Annotated[BuildConfig, tyro.conf.subcommand("build", description="Videos and a calibration -> a dynamic scene.")],
    Annotated[
        CalibrateConfig,
        tyro.conf.subcommand("calibrate", description="Clips of a board -> a calibration of all cameras."),
    ],
    Annotated[
        CheckConfig, tyro.conf.subcommand("check", description="What is wrong with a recording, before the long work.")
    ],
    Annotated[RenderConfig, tyro.conf.subcommand("render", description="Draw a scene from cameras at times.")],
    Annotated[
        MeshConfig, tyro.conf.subcommand("mesh", description="Bench and bodies as meshes to collide with, audited.")
    ],
    Annotated[
        LocateConfig,
        tyro.conf.subcommand("locate", description="A robot's pose before one camera, from pictures and joints alone."),
    ],
    Annotated[InfoConfig, tyro.conf.subcommand("info", description="What is in a scene folder.")],
    Annotated[ExportConfig, tyro.conf.subcommand("export", description="A scene in another format.")],
    Annotated[ConvertConfig, tyro.conf.subcommand("convert", description="A file of Gaussians in another format.")],
    Annotated[
        DoctorConfig,
        tyro.conf.subcommand(
            "doctor",
            description="What this machine can run, and what is missing. Exit code 0: the device and backend asked for "
            "can be used and every trial that was made passed; 5: one of the two is missing; 9: the device failed a "
            "trial. Optional packages that are missing do not change it.",
        ),
    ],
]


def _events(command: Any) -> Iterator[Event]:
    """The events of a command, its modules imported only now."""
    if isinstance(command, BuildConfig):
        from recon.pipeline import build

        return build(command)
    if isinstance(command, CalibrateConfig):
        from recon.calibration import calibrate

        return calibrate(command)
    if isinstance(command, RenderConfig):
        from recon.draw import render_scene

        return render_scene(command)
    if isinstance(command, CheckConfig):
        from recon.check import check

        return check(command)
    if isinstance(command, MeshConfig):
        from recon.meshes import mesh

        return mesh(command)
    if isinstance(command, LocateConfig):
        from recon.placing import place

        return place(command)
    if isinstance(command, InfoConfig):
        from recon.info import info

        return info(command)
    if isinstance(command, ExportConfig):
        from recon.exchange import export

        return export(command)
    if isinstance(command, ConvertConfig):
        from recon.exchange import convert

        return convert(command)
    from recon.doctor import doctor

    return doctor(command)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point; exits with the code of the error class (recon.core.errors), 0 when all went well."""
    command = tyro.cli(Command, prog="recon", description=DESCRIPTION, args=argv)
    sys.exit(run(command))


def run(command: Any) -> int:
    """Run a parsed command on the console; returns the exit code."""
    with Console(command.console) as console:
        try:
            for event in _events(command):
                console.consume(event)
        except KeyboardInterrupt:
            error = Interrupted("stopped", why="Ctrl-C", fix="run the same command again to continue")
            console.error(error)
            return error.exit_code
        except ReconError as error:
            console.error(error)
            return error.exit_code
    return 0


if __name__ == "__main__":
    main()
