"""The command ``frazil repair``: it makes a plan, and applies it with ``--yes``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from frazil.cli.command import LOCATION, verb
from frazil.cli.opening import author_metadata, storage_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.extras import needs
from frazil.maintenance.repair.repair_plan import ChunkSource, DetachedSnapshot, RepairPlan
from frazil.maintenance.verification.checks import LEVELS
from frazil.repository.handle.repository import Repository
from frazil.storage.base import Storage

_DESCRIPTION: Final = """\
Look for lost, damaged and exchanged files, and print the steps that repair them without a guess. With --yes,
also make the steps. Files that are replaced are put aside below `quarantine/`; no file is deleted.

The exit status is 0 if there is no damage, or if --yes repaired all damage. It is 1 if there is damage
that was not repaired, and after an error. It is 2 for wrong arguments."""

_EXAMPLES: Final = """\
frazil repair ice                                   print the plan
frazil repair ice --copy s3://bucket/backup --yes   repair, also with files of a copy
frazil repair ice --lost fill --yes                 cells of chunks without a copy become missing
frazil repair ice --recover KMT725G7Z0ZJ dev --yes  put a detached snapshot of the plan on a branch"""


@verb("repair", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@click.argument("location", type=LOCATION, default=".")
@click.option(
    "--copy",
    "copies",
    metavar="LOCATION",
    type=LOCATION,
    multiple=True,
    help="A copy of the repository, also an older or partial one; may be repeated.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="exists",
    help="How to look for damage, as in `frazil verify` (exists).",
)
@click.option(
    "--lost",
    type=click.Choice(["keep", "fill", "previous"]),
    default="keep",
    help="Chunks without a copy: change nothing, or make a commit in which they have the fill value or the "
    "data of an older version (keep).",
)
@click.option(
    "--sources",
    is_flag=True,
    help="Also take chunks from the files that were ingested (needs the extra `pipeline`).",
)
@click.option(
    "--recover",
    metavar="SNAPSHOT BRANCH",
    type=(str, str),
    multiple=True,
    help="Put a detached snapshot of the plan on the branch that it belongs to; may be repeated, the oldest "
    "snapshot first.",
)
@click.option("--dry-run", is_flag=True, help="Only print the plan (the default).")
@click.option("--yes", is_flag=True, help="Apply the plan.")
def command(output: Output, location: Target, dry_run: bool, yes: bool, **options: Any) -> int:
    """Make the plan, apply it with ``yes``, and print it."""
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other")
    sources: list[ChunkSource] = []
    if options["sources"]:
        with needs("repair --sources", extra="pipeline"):
            from frazil.pipeline import IngestedFiles

        sources.append(IngestedFiles())
    storage = storage_of(location)
    plan = Repository.upkeep.repair(
        storage,
        copies=[storage_of(each) for each in options["copies"]],
        level=options["level"],
        lost=options["lost"],
        sources=sources,
    )
    if yes:
        plan = plan.apply(metadata=author_metadata())
    recovered = [_recover(storage, plan, *each) for each in options["recover"]] if yes else []
    left = [each for each in plan.detached if each.id not in recovered]
    document = {**json.loads(plan.to_json()), "recovered": recovered}
    output.emit(document, [str(plan), *_next_commands(plan, left, location)])
    done = plan.complete and not left if yes else plan.ok
    return 0 if done else 1


def _recover(storage: Storage, plan: RepairPlan, snapshot: str, branch: str) -> str:
    """Put a snapshot on a branch. ``snapshot`` is an id, or the beginning of an id of the plan."""
    whole = [each.id for each in plan.detached if each.id.startswith(snapshot.upper())]
    return Repository.open(storage).upkeep.recover(whole[0] if len(whole) == 1 else snapshot, branch)


def _next_commands(plan: RepairPlan, left: Sequence[DetachedSnapshot], location: Target) -> Iterator[str]:
    """Yield the commands that go on where the plan needs a decision."""
    repair = f"frazil repair {location.location}"
    if plan.lost and not any(each.action == "commit" for each in plan.steps):
        yield f"to give lost chunks missing values: {repair} --lost fill --yes"
        yield f"to give lost chunks the data of an older version: {repair} --lost previous --yes"
    for each in left:
        for branch in each.branches or ("NEW_BRANCH",):
            yield f"to put {each.id} on `{branch}`: {repair} --recover {each.id} {branch} --yes"
