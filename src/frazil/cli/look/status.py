"""``frazil status``: what goes on in a repository."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.look.refs import ref_documents
from frazil.cli.opening import context_at
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, clock
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.leases import lease_info, leases
from frazil.repository.catalog.presentation import repo_status

_DESCRIPTION: Final = """\
Show whether the repository accepts changes, the tip of each branch, and the leases of running work:
sessions with forks, and jobs."""

_EXAMPLES: Final = """\
frazil status ice          the state of a repository
frazil status ice --json   the same for programs"""


@verb("status", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
def command(output: Output, target: Target) -> None:
    """Print the state."""
    document = status_document(context_at(target))
    output.emit(document, _lines(output, document))


def status_document(context: Context) -> dict[str, Any]:
    """Return the state of a repository in the form that JSON has."""
    info = context.catalog.repo_info()
    status = repo_status(info.status)
    return {
        "status": status.availability.name,
        "reason": status.limited_availability_reason,
        "spec_version": int(context.spec_version),
        "branches": [each for each in ref_documents(info) if each["kind"] == "branch"],
        "leases": [
            {
                "id": each.id,
                "holder": each.holder(),
                "since": each.taken_at,
                "ends": each.ends_at,
                "stale": each.is_stale,
            }
            for each in map(lease_info, leases(context.storage))
        ],
    }


def _lines(output: Output, document: dict[str, Any]) -> Iterator[str]:
    reason = f": {document['reason']}" if document["reason"] else ""
    yield f"{document['status'].replace('_', '-')}{reason}, spec version {document['spec_version']}"
    rows = table(
        (each["name"], each["id"][:SHORT], clock(each["time"]), each["message"].partition("\n")[0])
        for each in document["branches"]
    )
    yield from (output.cut(f"  {line}") for line in rows)
    for lease in document["leases"]:
        stale = ", stale: its process has ended (`frazil lease --stale`)" if lease["stale"] else ""
        yield f"lease {lease['id']}: {lease['holder']}, until {clock(lease['ends'])}{stale}"
