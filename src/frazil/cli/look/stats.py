"""``frazil stats``: the numbers of a repository."""

from __future__ import annotations

from typing import Any, Final

from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.jobs.progress import size
from frazil.repository.handle.interior import context_of

_DESCRIPTION: Final = """\
Count the versions of a repository, and the bytes of the chunks of all branches and tags: in chunk files
(native), in manifests (inline), and in objects outside of the repository (virtual). Each range counts once,
even if many versions refer to it. The command reads all manifests."""

_EXAMPLES: Final = """\
frazil stats ice          the numbers for people
frazil stats ice --json   the numbers in bytes, for programs"""


@verb("stats", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
def command(output: Output, target: Target) -> None:
    """Print the numbers."""
    repo = repository_of(target)
    info = context_of(repo).catalog.full_repo_info()
    stats = repo.chunk_storage_stats()
    document: dict[str, Any] = {
        "versions": len(info.snapshots),
        "branches": len(info.branches),
        "tags": len(info.tags),
        "native_bytes": stats.native_bytes,
        "inline_bytes": stats.inlined_bytes,
        "virtual_bytes": stats.virtual_bytes,
    }
    rows = [
        (name.replace("_", " "), size(value) if name.endswith("bytes") else f"{value:,}")
        for name, value in document.items()
    ]
    output.emit(document, table(rows, right=frozenset({1})))
