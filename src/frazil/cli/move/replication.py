"""``frazil copy`` and ``frazil clone``: the files of a repository in another storage."""

from __future__ import annotations

from typing import Any, Final

import click

import frazil.pipeline
from frazil.cli.changes import dry_run_option, options
from frazil.cli.command import LOCATION, verb
from frazil.cli.ingest_arguments import ENGINES
from frazil.cli.opening import repository_of, storage_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.display import counted
from frazil.jobs.progress import size

_arguments: Final = options(
    click.argument("source", type=LOCATION),
    click.argument("target", type=LOCATION),
    click.option("--branch", "branches", metavar="PATTERN", multiple=True, help="Only these branches."),
    click.option("--tag", "tags", metavar="PATTERN", multiple=True, help="Only these tags."),
    click.option(
        "--newest-only",
        "--shallow",
        "newest_only",
        is_flag=True,
        help="Only the newest version of each branch, without history.",
    ),
    click.option(
        "--engine",
        type=click.Choice(ENGINES[1:]),
        default="inline",
        help="Where tasks run: in this process (inline), in processes of this machine (local), on Spark.",
    ),
    dry_run_option,
)


@verb(
    "copy",
    description="Copy a repository into another storage, or bring an earlier copy up to date: only new files "
    "are copied. The copy is complete at every moment.",
    examples="""\
frazil copy ice backup --dry-run              count the objects to copy
frazil copy ice backup                        a copy in another folder
frazil copy s3://bucket/ice backup --compare  also copy files again that differ""",
)
@_arguments
@click.option("--compare", is_flag=True, help="Compare files that the copy has already, too.")
def copy(output: Output, source: Target, target: Target, **settings: Any) -> None:
    """Copy the repository."""
    _replicate(output, frazil.pipeline.copy_repository, source, target, settings)


@verb(
    "clone",
    description="Make a new repository with the files of another one, for commits of its own.",
    examples="""\
frazil clone ice mine                          with all branches and tags
frazil clone ice mine --branch main            only one branch
frazil clone ice mine --shallow                without the history""",
)
@_arguments
def clone(output: Output, source: Target, target: Target, **settings: Any) -> None:
    """Clone the repository."""
    _replicate(output, frazil.pipeline.clone_repository, source, target, settings)


def _replicate(
    output: Output, operation: Any, source: Target, target: Target, settings: dict[str, Any]
) -> None:
    part = frazil.pipeline.RepositoryPart(
        branches=settings.pop("branches") or ("*",),
        tags=settings.pop("tags") or ("*",),
        newest_only=settings.pop("newest_only"),
    )
    storage = storage_of(target)
    with output.progress(operation.__name__.partition("_")[0]) as bar:
        report = operation(
            repository_of(source), storage, part=None if part.is_whole else part, progress=bar, **settings
        )
    emit_report(output, report, storage.label(), dry_run=settings["dry_run"])


def emit_report(output: Output, report: Any, label: str, *, dry_run: bool = False) -> None:
    """Print how many objects were copied."""
    document = {
        "objects": report.objects,
        "bytes": report.bytes,
        "existing": report.existing,
        "dry_run": dry_run,
    }
    existing = f", {counted(report.existing, 'object')} existed" if report.existing else ""
    action = "would copy " if dry_run else ""
    work = f"{counted(report.objects, 'object')} ({size(report.bytes)})"
    output.emit(document, [f"{action}{work} to {label}{existing}"])
