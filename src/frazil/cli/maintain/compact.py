"""``frazil compact``: small and mostly unused chunk files become packs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import frazil
from frazil.cli.changes import dry_run_option, message_option, metadata_option
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import branch_of, repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.versions import SHORT
from frazil.display import counted
from frazil.jobs.progress import size

_DESCRIPTION: Final = """\
Write the live chunks of small and of mostly unused chunk files again, as packs, in one commit on a
branch. Values do not change. `frazil expire` and `frazil gc` then delete the old files."""

_EXAMPLES: Final = """\
frazil compact ice --dry-run         show what would be written again
frazil compact ice@dev -m "Pack"     on a branch, with a message"""


@verb("compact", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@target_argument(metavar="LOCATION[@BRANCH]")
@message_option
@metadata_option
@dry_run_option
def command(
    output: Output, target: Target, message: str | None, metadata: dict[str, Any], dry_run: bool
) -> None:
    """Compact the branch."""
    repo = repository_of(target)
    branch = branch_of(repo, target)
    report = repo.upkeep.compact(
        message or "Compact chunk files", branch=branch, dry_run=dry_run, metadata=metadata or None
    )
    document = {each.name: getattr(report, each.name) for each in fields(report)}
    output.emit({**document, "files": len(report.files)}, [_line(report, branch)])


def _line(report: frazil.CompactionReport, branch: str) -> str:
    manifests = f"{report.manifests:,} manifests to {report.new_manifests:,}" if report.new_manifests else ""
    if not len(report.files) and not manifests:
        return "nothing to do"
    files = counted(len(report.files), "chunk file")
    work = f"{files} to {report.new_files:,}, {size(report.bytes_moved)} moved"
    text = ", ".join(filter(None, (work, manifests)))
    if report.dry_run:
        return f"would write {text}"
    return f"{branch} is at {report.snapshots[branch][:SHORT]}: wrote {text}"
