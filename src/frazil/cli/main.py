"""The command line: one parser, with one subcommand for each entry of ``COMMANDS``.

A ``Command`` has a name, a function that declares its arguments, and a function that does the work and
returns the exit status. For an error of Frazil the status is 1, and stderr gets one line for the error and
one for each file with a problem. For wrong arguments the status is 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from frazil.about import __version__
from frazil.cli.command import Command
from frazil.cli.import_command import IMPORT
from frazil.cli.ingest_command import INGEST
from frazil.cli.repair_command import REPAIR
from frazil.cli.verify_command import VERIFY
from frazil.cli.wording import for_terminal, lines_of
from frazil.errors import IcechunkError

COMMANDS: Final[tuple[Command, ...]] = (IMPORT, INGEST, REPAIR, VERIFY)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(
        "frazil", description="Transactional, versioned storage for Zarr arrays in the Icechunk format."
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name,
            help=command.help,
            description=command.description,
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.declare(subparser)
        subparser.set_defaults(run=command.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. ``arguments`` are by default those of the process."""
    namespace = parser().parse_args(arguments)
    try:
        status: int = namespace.run(namespace)
    except IcechunkError as error:
        print(*lines_of(for_terminal(str(error)), str(error.kind)), sep="\n", file=sys.stderr)
        return 1
    return status
