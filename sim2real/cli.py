"""`sim2real train | eval | collect | import | export`: scene in; policy, report and other simulators out.

Only what is needed to print help is imported here; each command imports its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Union

import tyro

from recon.core.errors import ReconError
from sim2real.config import CollectOptions, EvalOptions, ExportOptions, ImportOptions, TrainOptions

if TYPE_CHECKING:
    from recon.core.events import Event

DESCRIPTION = """Act in a reconstructed scene.

examples:
  sim2real train --scene lab
  sim2real eval --scene lab --policy runs/lab-reach --baseline runs/lab-reach/bc
  sim2real collect --scene lab --episodes 200
  sim2real train --scene lab --data datasets/lab-reach
  sim2real import downloads/old-dataset
  sim2real export --scene lab --to mujoco,newton,maniskill
"""

AnyOptions = Union[TrainOptions, EvalOptions, CollectOptions, ImportOptions, ExportOptions]  # noqa: UP007

Options = Union[  # noqa: UP007  (evaluated, and Python 3.10 has no | of Annotated)
    Annotated[TrainOptions, tyro.conf.subcommand("train", description="Clone the expert, then improve by PPO.")],
    Annotated[EvalOptions, tyro.conf.subcommand("eval", description="Score policies on unseen scenarios.")],
    Annotated[CollectOptions, tyro.conf.subcommand("collect", description="Record episodes as a LeRobot data set.")],
    Annotated[ImportOptions, tyro.conf.subcommand("import", description="Check or convert a LeRobot data set.")],
    Annotated[ExportOptions, tyro.conf.subcommand("export", description="Write the scene for another simulator.")],
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the process exit code (see recon/core/errors.py)."""
    options = tyro.cli(
        Options,
        prog="sim2real",
        description=DESCRIPTION,
        args=list(sys.argv[1:] if argv is None else argv),
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    return run(options)


def run(options: AnyOptions) -> int:
    """Run one command with its progress on the console; returns the exit code."""
    from recon.core.console import Console

    with Console(options.console) as console:
        events = _command(options)
        try:
            for event in events:
                console.consume(event)
        except KeyboardInterrupt:
            close = getattr(events, "close", None)
            if close is not None:
                close()  # saves a checkpoint
            print("stopped; run the same command again to continue", file=sys.stderr)
            return 130
        except ReconError as error:
            console.error(error)
            return error.exit_code
    return 0


def _command(options: AnyOptions) -> Iterator[Event]:
    if isinstance(options, TrainOptions):
        from sim2real.train import train

        return train(options)
    if isinstance(options, EvalOptions):
        from sim2real.judge import judge

        return judge(options)
    if isinstance(options, CollectOptions):
        from sim2real.lerobot.collect import collect

        return collect(options)
    if isinstance(options, ImportOptions):
        from sim2real.lerobot.bring import bring

        return bring(options)
    from sim2real.export import export

    return export(options)


if __name__ == "__main__":
    sys.exit(main())
