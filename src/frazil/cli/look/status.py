"""``frazil status``: what goes on in a repository."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.look.refs import ref_documents
from frazil.cli.opening import repository_of
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, clock
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository

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
    document = status_document(repository_of(target))
    output.emit(document, _lines(output, document))


def status_document(repo: Repository) -> dict[str, Any]:
    """Return the state of a repository in the form that JSON has."""
    refs = ref_documents(context_of(repo).catalog.repo_info())
    status = repo.status if repo.spec_version > 1 else None
    return {
        "status": "online" if status is None else status.availability.name,
        "reason": None if status is None else status.limited_availability_reason,
        "spec_version": int(repo.spec_version),
        "branches": [each for each in refs if each["kind"] == "branch"],
        "leases": [
            {"id": each.id, "holder": each.holder(), "since": each.taken_at, "ends": each.ends_at}
            for each in repo.list_leases()
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
        yield f"lease {lease['id']}: {lease['holder']}, until {clock(lease['ends'])}"
