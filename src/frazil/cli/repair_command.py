"""The command ``frazil repair``: it makes a plan, and applies it with ``--yes``."""

from __future__ import annotations

import argparse
from typing import Final

from frazil.cli.command import Command
from frazil.extras import needs
from frazil.repository.catalog.checks import LEVELS
from frazil.repository.catalog.repairs import ChunkSource
from frazil.repository.handle.repository import Repository
from frazil.storage import storage_from_url
from frazil.storage.url_parts import COMMON_URLS


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", metavar="LOCATION", help=COMMON_URLS)
    parser.add_argument(
        "--copy",
        metavar="LOCATION",
        action="append",
        default=[],
        help="a copy of the repository, also an older or partial one; may be repeated",
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="exists",
        help="how to look for damage, as in `Repository.verify` (exists)",
    )
    parser.add_argument(
        "--lost",
        choices=("keep", "fill", "previous"),
        default="keep",
        help="chunks without a copy: change nothing, or make a commit in which they have the fill value or "
        "the data of an older version (keep)",
    )
    parser.add_argument(
        "--sources",
        action="store_true",
        help="also take chunks from the files that were ingested (needs the extra `pipeline`)",
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--dry-run", action="store_true", help="only print the plan (the default)")
    action.add_argument("--yes", action="store_true", help="apply the plan")


def _run(arguments: argparse.Namespace) -> int:
    sources: list[ChunkSource] = []
    if arguments.sources:
        with needs("repair --sources", extra="pipeline"):
            from frazil.pipeline import IngestedFiles

        sources.append(IngestedFiles())
    plan = Repository.repair(
        storage_from_url(arguments.repository),
        copies=[storage_from_url(each) for each in arguments.copy],
        level=arguments.level,
        lost=arguments.lost,
        sources=sources,
        dry_run=not arguments.yes,
    )
    print(plan.to_json() if arguments.json else plan)
    done = plan.complete and not plan.detached if arguments.yes else plan.ok
    return 0 if done else 1


REPAIR: Final = Command(
    "repair",
    help="repair lost, damaged and exchanged files of a repository",
    description="""\
Look for lost, damaged and exchanged files, and print the steps that repair them without a guess. With --yes,
also make the steps. Files that are replaced are put aside below `quarantine/`; no file is deleted.

The exit status is 0 if there is no damage, or if --yes repaired all damage. It is 1 if there is damage
that was not repaired, and after an error. It is 2 for wrong arguments.""",
    epilog="""\
examples:
  frazil repair ice                                   print the plan
  frazil repair ice --copy s3://bucket/backup --yes   repair, also with files of a copy
  frazil repair ice --lost fill --yes                 chunks without a copy get the fill value""",
    declare=_declare,
    run=_run,
)
