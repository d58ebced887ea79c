"""``frazil gc``: files that no version needs are deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

import click

import frazil
from frazil.cli.changes import confirm, dry_run_option, yes_option
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.times import TIME_AGO
from frazil.display import counted
from frazil.jobs.progress import size

_DESCRIPTION: Final = """\
Delete files that no branch, no tag and no young version needs, and that were modified before TIME. Leases
of running work are respected. Choose a TIME before the start of all running sessions. --dry-run prints
each file with the reason."""

_EXAMPLES: Final = """\
frazil gc ice --older-than 7d --dry-run       show what would be deleted, and why
frazil gc ice --older-than 7d -y              delete it, without a question
frazil gc ice --older-than 7d -y --keep-ops 30d
                                              also delete entries of the operations log"""


@verb("gc", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.option(
    "--older-than", type=TIME_AGO, metavar="TIME", required=True, help="Only older files: 7d, 2026-11-01."
)
@click.option(
    "--keep-ops", type=TIME_AGO, metavar="TIME", help="Delete entries of the operations log before TIME."
)
@dry_run_option
@yes_option
def command(
    output: Output, target: Target, older_than: datetime, keep_ops: datetime | None, dry_run: bool, yes: bool
) -> int:
    """Plan the collection, ask, and delete."""
    repo = repository_of(target)
    ops = None if keep_ops is None else frazil.OpsLogRetention(newer_than=keep_ops)
    with output.progress("gc") as bar:
        plan = repo.upkeep.collect(older_than, progress=bar, keep_ops=ops)
        if dry_run or not yes:
            summary = plan.report
    if not dry_run:
        if not yes:
            files = counted(len(summary.files), "file")
            confirm(output, f"Delete {files}, {size(_bytes(summary))}?", yes=not len(summary.files))
        with bar or nullcontext():
            summary = plan.apply()
    output.emit(_document(summary, dry_run), _lines(summary, dry_run), pages=dry_run)
    return 1 if summary.objects_failed_to_delete else 0


def _bytes(summary: frazil.GCSummary) -> int:
    return summary.bytes_deleted + summary.backup_bytes_deleted


def _document(summary: frazil.GCSummary, dry_run: bool) -> dict[str, Any]:
    names = [each.name for each in fields(summary) if each.name not in ("files", "leases")]
    files = [
        {"key": each.key, "bytes": each.size_bytes, "modified": each.modified_at, "reason": str(each.reason)}
        for each in summary.files
    ]
    leases = [each.holder() for each in summary.leases]
    return {
        "dry_run": dry_run,
        **{name: getattr(summary, name) for name in names},
        "leases": leases,
        "files": files,
    }


def _lease_line(lease: frazil.LeaseInfo) -> str:
    held = ""
    if lease.held_objects is not None and lease.held_bytes is not None:
        held = f", holds back {counted(lease.held_objects, 'file')} ({size(lease.held_bytes)})"
    return f"respected the lease {lease.id}: {lease.holder()}{held}"


def _lines(summary: frazil.GCSummary, dry_run: bool) -> Iterator[str]:
    if dry_run:
        yield from (f"{size(each.size_bytes):>9}  {each.key}  {each.reason}" for each in summary.files)
        kinds = Counter(each.kind for each in summary.files)
        counts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in sorted(kinds.items()))
    else:
        kinds_of = ("snapshots", "transaction_logs", "manifests", "chunks", "backups")
        values = {kind: getattr(summary, f"{kind}_deleted") for kind in kinds_of}
        counts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in values.items() if count)
    yield f"{'would delete' if dry_run else 'deleted'} {counts or 'nothing'} ({size(_bytes(summary))})"
    yield from map(_lease_line, summary.leases)
    if summary.objects_failed_to_delete:
        failures = counted(summary.objects_failed_to_delete, "file")
        yield f"{failures} could not be deleted: {'; '.join(summary.delete_errors[:3])}"
