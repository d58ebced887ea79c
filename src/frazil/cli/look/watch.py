"""``frazil watch``: new versions of a branch, as they come."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.command import target_argument, verb
from frazil.cli.opening import branch_of, repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.times import DURATION, TIME_AGO
from frazil.cli.version_text import MAIN
from frazil.cli.versions import SHORT, clock
from frazil.repository.clock import from_datetime

if TYPE_CHECKING:
    from frazil.repository.handle.repository import Repository

_DESCRIPTION: Final = """\
Print a line for each new version of a branch, until Ctrl-C: id, time in UTC, kind of the change, message.
Every version comes exactly once. With --json each line is a JSON object with a cursor, from which a later
call continues."""

_EXAMPLES: Final = """\
frazil watch ice@dev                     new versions, until Ctrl-C
frazil watch ice --since 1d --timeout 0s  the versions of the last day, and no wait
frazil watch ice --timeout 5m --json      for programs"""


@verb("watch", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(metavar="LOCATION[@BRANCH]")
@click.option("--cursor", help="Continue after the version with this cursor (only new versions).")
@click.option(
    "--since", type=TIME_AGO, metavar="TIME", help="Also the versions from TIME on: 2026-11-01, 7d."
)
@click.option("--interval", type=DURATION, default="5s", metavar="TIME", help="The pause between looks (5s).")
@click.option("--timeout", type=DURATION, metavar="TIME", help="End if no version comes for this time.")
def command(output: Output, target: Target, cursor: str | None, since: datetime | None, **times: Any) -> None:
    """Print the versions."""
    repo = repository_of(target)
    branch = (target.version or MAIN) if cursor else branch_of(repo, target)
    if since is not None and cursor is None:
        cursor = _cursor_before(repo, since)
    for version in repo.history.watch(branch, cursor=cursor, **times):
        message = "" if version.snapshot_id is None else repo.lookup_snapshot(version.snapshot_id).message
        document: dict[str, Any] = {
            "branch": branch,
            "id": version.snapshot_id,
            "kind": version.kind,
            "time": version.updated_at,
            "message": message,
            "cursor": version.cursor,
        }
        id_ = (version.snapshot_id or "deleted")[:SHORT]
        line = f"{output.paint(f'{id_:<8}', 'id')}  {clock(version.updated_at)}  {version.kind:<7}  "
        output.emit_line(document, line + message.partition("\n")[0])


def _cursor_before(repo: Repository, since: datetime) -> str:
    """Return the cursor of the newest operation before a time, or of the oldest operation."""
    updates = [each.updated_at for each in repo.ops_log()]
    earlier = next((each for each in updates if each < since), updates[-1])
    return str(from_datetime(earlier))
