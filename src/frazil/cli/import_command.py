"""The command ``frazil import``: it imports a repository of an older format."""

from __future__ import annotations

import argparse
from typing import Final

from frazil.cli.command import Command
from frazil.importing import upgrade
from frazil.storage import storage_from_url
from frazil.storage.url_parts import COMMON_URLS


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help=COMMON_URLS)
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="the new repository; without TARGET the import is in place",
    )
    chunks = parser.add_mutually_exclusive_group()
    chunks.add_argument(
        "--copy-chunks",
        dest="chunks",
        action="store_const",
        const="copy",
        help="copy the chunk files (the default, except for an import in place)",
    )
    chunks.add_argument(
        "--reference-chunks",
        dest="chunks",
        action="store_const",
        const="reference",
        help="do not copy the chunk files, but refer to them as virtual chunks",
    )
    parser.set_defaults(chunks="auto")


def _run(arguments: argparse.Namespace) -> int:
    target = None if arguments.target in (None, arguments.source) else storage_from_url(arguments.target)
    print(upgrade(storage_from_url(arguments.source), target, chunks=arguments.chunks))
    return 0


IMPORT: Final = Command(
    "import",
    help="import a repository of a format older than version 1",
    description="""\
Import a repository that was written by icechunk 0.1.0a1 to 0.1.3, or by the draft format before that, into a
repository of spec version 2, with all snapshots, branches and tags. The old files do not change. If an import
was interrupted, run the same command again to continue it.""",
    epilog="""\
examples:
  frazil import old new                                    copy everything
  frazil import old                                        import in place
  frazil import s3://bucket/old new --reference-chunks     leave the chunks in the bucket""",
    declare=_declare,
    run=_run,
)
