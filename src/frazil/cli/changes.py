"""What commands that change a repository have in common: options, questions, rehearsals, results.

A rehearsal (``--dry-run``) makes the change with the same code, on an overlay of the storage whose writes
stay in memory. So it shows the result or the error of the change itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.argument_types import reader_option
from frazil.cli.opening import open_repository, storage_of, version_id
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, diff_document, diff_lines
from frazil.format.ids import id_to_text
from frazil.maintenance.repair.overlay import Overlay
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.handle.interior import context_of
from frazil.storage.base import Storage

if TYPE_CHECKING:
    from frazil.repository.handle.repository import Repository

#: The exit status if a question is not answered with yes.
REFUSED: Final = 3

dry_run_option: Final = click.option(
    "--dry-run", is_flag=True, help="Change nothing: show what the command would do."
)
yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask before something is lost.")
message_option: Final = click.option("-m", "--message", metavar="TEXT", help="The message of the commit.")
metadata_option: Final = click.option(
    "--metadata",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda _ctx, _param, values: dict(map(reader_option, values)),
    help="Metadata of the commit, VALUE as JSON or text; may be repeated.",
)


def writable_storage(target: Target, dry_run: bool) -> Storage:
    """Return the storage of a target, or an overlay of it for a rehearsal."""
    storage = storage_of(target)
    return Overlay(storage) if dry_run else storage


def writable_repository(target: Target, dry_run: bool) -> Repository:
    """Open the repository of a target for a change, or for its rehearsal."""
    return open_repository(writable_storage(target, dry_run))


def confirm(output: Output, question: str, *, yes: bool) -> None:
    """Ask before something is lost, and end the command with status 3 unless the answer is yes.

    Without a terminal nobody can answer: then the command ends, and its error names ``--yes``.
    """
    if yes:
        return
    if output.as_json or not sys.stdin.isatty():
        click.echo(f"frazil: {question} Pass --yes to do it. Nothing was changed", err=True)
    elif click.confirm(question, err=True):
        return
    else:
        click.echo("Nothing was changed", err=True)
    raise click.exceptions.Exit(REFUSED)


def source_text(repo: Repository, text: str) -> str:
    """Return a version as the methods of `Repository` accept it: a name as it is, or the id of a snapshot."""
    info = context_of(repo).catalog.repo_info()
    if find_snapshot(text, lambda: info) is not None:
        return text
    return id_to_text(version_id(info, text))


def emit_tip(
    output: Output,
    repo: Repository,
    branch: str,
    before: str | None,
    *,
    dry_run: bool,
    further: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> None:
    """Print the tip of a branch after a change, what changed since ``before``, and ``further`` lines.

    ``more`` are other members of the document.
    """
    tip = repo.lookup_snapshot(repo.lookup_branch(branch))
    changes: dict[str, Any] = {}
    if before is not None and before != tip.id:
        changes = diff_document(repo.diff(from_snapshot_id=before, to_snapshot_id=tip.id))
    document = {
        "branch": branch,
        "id": tip.id,
        "before": before,
        "message": tip.message,
        "dry_run": dry_run,
        "changes": changes,
        **(more or {}),
    }
    lines = [f"{branch} stays at {tip.id[:SHORT]}"]
    if before != tip.id:
        verb = "would be" if dry_run else "is"
        name = "a new version" if dry_run else output.paint(tip.id[:SHORT], "id")
        lines = [f"{branch} {verb} at {name}: {tip.message.partition(chr(10))[0]}"]
    output.emit(document, [*lines, *(diff_lines(output, changes) if changes else ()), *further])


def options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    """Return one decorator for several, in the order of the help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
