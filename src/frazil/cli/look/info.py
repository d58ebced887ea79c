"""``frazil info``: a repository, or a group or an array of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from frazil.cli.command import target_argument, verb
from frazil.cli.nodes import node_at, node_document, workspace_of
from frazil.cli.opening import open_version, repository_of
from frazil.cli.output import Output, table
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, clock

if TYPE_CHECKING:
    from frazil.repository.handle.repository import Repository

_DESCRIPTION: Final = """\
Describe a repository: spec version, status, branches, tags, and the newest version. With a path, describe a
group or an array: type, shape, chunks, codecs, attributes."""

_EXAMPLES: Final = """\
frazil info ice             the repository
frazil info ice@v1:era5/t   an array of a tag
frazil info ice:/           the root group with its attributes"""


@verb("info", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument()
def command(output: Output, target: Target) -> None:
    """Print the description."""
    if target.path is None and target.version is None:
        document = repository_document(repository_of(target))
    else:
        version = open_version(target)
        document = {
            "version": version.id,
            **node_document(node_at(workspace_of(version), version.path)),
        }
    output.emit(document, _lines(document))


def repository_document(repo: Repository) -> dict[str, Any]:
    """Return the description of a repository in the form that JSON has."""
    newest = repo.lookup_snapshot(repo.lookup_branch("main"))
    is_new = repo.spec_version > 1
    metadata = repo.metadata if is_new else {}
    return {
        "spec_version": int(repo.spec_version),
        "status": repo.status.availability.name if is_new else "online",
        "branches": sorted(repo.list_branches()),
        "tags": sorted(repo.list_tags()),
        "main": {"id": newest.id, "time": newest.written_at, "message": newest.message},
        "metadata": {name: value for name, value in metadata.items() if not name.startswith("frazil.")},
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    attributes = document.pop("attributes", None)
    yield from table((name.replace("_", " "), _text(name, value)) for name, value in document.items())
    for name, value in (attributes or {}).items():
        yield f"  {name}: {json.dumps(value, ensure_ascii=False)}"


def _text(name: str, value: Any) -> str:
    if name == "main":
        return f"{value['id'][:SHORT]}  {clock(value['time'])}  {value['message']}".partition("\n")[0]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)
