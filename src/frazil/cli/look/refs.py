"""``frazil refs``: the branches and tags of a repository."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repo_info_of, storage_of
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, clock
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.clock import to_datetime

_DESCRIPTION: Final = """\
List the branches and the tags: kind, name, the version that each of them names, and the time of this
version."""

_EXAMPLES: Final = """\
frazil refs ice          all branches and tags
frazil refs ice --json   the same for programs"""


@verb("refs", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
def command(output: Output, target: Target) -> None:
    """Print the refs."""
    documents = ref_documents(repo_info_of(storage_of(target)))
    output.emit(documents, _lines(output, documents), pages=True)


def ref_documents(info: RepoInfo) -> list[dict[str, Any]]:
    """Return branches and tags in the form that JSON has, by kind and name."""
    return [
        {
            "kind": kind,
            "name": name,
            "id": id_to_text(names[name]),
            "time": to_datetime(entry.flushed_at),
            "message": entry.message,
        }
        for kind, names in (("branch", info.branches), ("tag", info.tags))
        for name in sorted(names)
        for entry in [info.snapshots.entry(require_snapshot(info, names[name]))]
    ]


def _lines(output: Output, documents: list[dict[str, Any]]) -> Iterator[str]:
    rows = table((each["kind"], each["name"], each["id"][:SHORT], clock(each["time"])) for each in documents)
    for each, line in zip(documents, rows, strict=True):
        yield output.paint(line, each["kind"])
