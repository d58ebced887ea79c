"""Versions, differences, groups and arrays as documents for JSON and as lines; results of changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.opening import OpenTarget
from frazil.cli.output import Output, picked, visible
from frazil.display import counted
from frazil.format.ids import NODE_ID_BYTES, id_to_text
from frazil.format.nodes import Node
from frazil.repository.target import Target

if TYPE_CHECKING:
    from frazil.format.repo_info import RepoInfo
    from frazil.repository.catalog.version_info import Diff, SnapshotInfo
    from frazil.repository.session.workspace import Workspace


#: The number of characters of an id in a line. JSON and `frazil show` have the whole id.
SHORT: Final = 8
#: Sign, style and field of the changed nodes of a difference.
_NODES: Final = (
    ("+", "add", "new_groups", "group"),
    ("+", "add", "new_arrays", "array"),
    ("~", "change", "updated_groups", "group"),
    ("~", "change", "updated_arrays", "array"),
    ("-", "remove", "deleted_groups", "group"),
    ("-", "remove", "deleted_arrays", "array"),
)


def clock(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def refs_of_snapshots(info: RepoInfo) -> dict[str, list[tuple[str, str]]]:
    """Return pairs of a kind, ``branch`` or ``tag``, and a name, by the ids of snapshots."""
    refs: dict[str, list[tuple[str, str]]] = {}
    for kind, names in (("branch", info.branches), ("tag", info.tags)):
        for name in sorted(names):
            refs.setdefault(id_to_text(names[name]), []).append((kind, name))
    return refs


def version_document(version: SnapshotInfo, refs: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return a version in the form that JSON has."""
    names = list(refs)
    return {
        **picked(version, "id", "message", parent="parent_id", time="written_at"),
        "branches": [name for kind, name in names if kind == "branch"],
        "tags": [name for kind, name in names if kind == "tag"],
        "metadata": version.metadata,
    }


def version_line(output: Output, version: Mapping[str, Any]) -> str:
    """Return one line for the document of a version: id, time, refs and the first line of the message."""
    names = [output.paint(name, "branch") for name in version["branches"]]
    names += [output.paint(name, "tag") for name in version["tags"]]
    refs = f"({', '.join(names)}) " if names else ""
    message = version["message"].partition("\n")[0]
    author = version["metadata"].get("author")
    by = f"  [{author}]" if isinstance(author, str) else ""
    return f"{output.paint(version['id'][:SHORT], 'id')}  {clock(version['time'])}  {refs}{message}{by}"


def diff_document(diff: Diff, path: str = "/") -> dict[str, Any]:
    """Return a difference in the form that JSON has, of the nodes at and below a path."""
    nodes = {
        name: [each for each in sorted(getattr(diff, name)) if below(each, path)] for *_, name, _ in _NODES
    }
    chunks = {
        array: rows.tolist() for array, rows in sorted(diff.chunk_coordinates.items()) if below(array, path)
    }
    moved = [list(pair) for pair in diff.moved_nodes if any(below(each, path) for each in pair)]
    return {**nodes, "moved_nodes": moved, "updated_chunks": chunks}


def diff_lines(output: Output, document: Mapping[str, Any], *, chunks: bool = False) -> Iterator[str]:
    """Yield the lines of a difference: a line for each node, and with ``chunks`` for each chunk."""
    updated = document["updated_chunks"]
    rows = [(path, sign, style, kind) for sign, style, field, kind in _NODES for path in document[field]]
    listed = {path for path, *_ in rows}
    rows += [(path, "~", "change", "array") for path in updated if path not in listed]
    for path, sign, style, kind in sorted(rows):
        if "/." in path.rpartition("/")[0]:
            continue  # in a hidden group, such as the list of ingested files
        count = f"  {counted(len(updated[path]), 'chunk')}" if path in updated else ""
        shapes = document.get("shapes", {}).get(path)
        growth = f"  {shapes['from']} -> {shapes['to']}" if shapes else ""
        yield output.paint(f"{sign} {kind} {path}", style) + count + growth
        if chunks and path in updated:
            yield from (f"    {','.join(map(str, each))}" for each in updated[path])
    for old, new in document["moved_nodes"]:
        yield output.paint(f"> moved {old} -> {new}", "change")


def below(path: str, group: str) -> bool:
    """Return whether a path is a group or in it."""
    return group in ("/", path) or path.startswith(f"{group}/")


def shown(names: Iterable[str], everything: bool) -> list[str]:
    """Return names, without hidden ones unless ``everything`` is shown."""
    return [name for name in names if everything or not name.startswith(".")]


def node_at(nodes: Workspace, path: str) -> Node:
    """Return the node at a path. The root exists, also in an empty version."""
    node = nodes.node(path)
    if node is None and path == "/":
        return Node(bytes(NODE_ID_BYTES), path, b"{}", None)
    return nodes.require_node(path) if node is None else node


def node_document(node: Node) -> dict[str, Any]:
    """Return a group or an array in the form that JSON has."""
    stored = json.loads(node.user_data)
    document: dict[str, Any] = {"path": node.path, "kind": "group" if node.array is None else "array"}
    if node.array is not None:
        names = node.array.dimension_names
        chunks, codecs = stored.get("chunk_grid"), stored.get("codecs", ())
        shards = [each for each in codecs if _name(each) == "sharding_indexed"]
        document |= {
            "shape": list(node.array.shape),
            "dtype": _name(stored.get("data_type")),
            "chunks": _configuration(shards[0] if shards else chunks).get("chunk_shape"),
            "shards": _configuration(chunks).get("chunk_shape") if shards else None,
            "dimensions": None if names is None else list(names),
            "fill_value": stored.get("fill_value"),
            "codecs": list(map(_name, codecs)),
        }
    return {**document, "attributes": stored.get("attributes", {})}


def _name(value: Any) -> str:
    """Return the name of a type, with its unit of times, or of a codec of Zarr: a text or an object."""
    if not isinstance(value, Mapping):
        return str(value)
    name, unit = str(value.get("name")), _configuration(value).get("unit")
    return f"{name.removeprefix('numpy.')}[{unit}]" if unit else name


def _configuration(value: Any) -> Mapping[str, Any]:
    """Return the configuration of an object of Zarr; nothing if it has none."""
    configuration = value.get("configuration") if isinstance(value, Mapping) else None
    return configuration if isinstance(configuration, Mapping) else {}


def summary(document: Mapping[str, Any]) -> str:
    """Return what an array is in a few words; nothing for a group."""
    if document["kind"] == "group":
        return ""
    names = document["dimensions"] or [None] * len(document["shape"])
    parts = (
        f"{name}: {size}" if name else str(size) for name, size in zip(names, document["shape"], strict=True)
    )
    return f"{document['dtype']} ({', '.join(parts)})"


#: The exit status if a question is not answered with yes.
REFUSED: Final = 3


def confirm(output: Output, question: str, *, yes: bool) -> None:
    """Ask before something is lost, and end the command with status 3 unless the answer is yes.

    Without a terminal nobody can answer: then the command ends, and its error names ``--yes``.
    """
    if yes:
        return
    question = visible(question)
    if output.as_json or not sys.stdin.isatty():
        click.echo(f"frazil: {question} Pass --yes to do it. Nothing was changed", err=True)
    elif click.confirm(question, err=True):
        return
    else:
        click.echo("Nothing was changed", err=True)
    raise click.exceptions.Exit(REFUSED)


class BranchChange:
    """A change of a branch, or its rehearsal: the repository, the branch, and its tip before the change.

    The command makes the change between the construction and `emit`.
    """

    def __init__(self, output: Output, target: Target, dry_run: bool, *, node: str = "") -> None:
        if node and target.path in (None, "/"):
            raise click.UsageError(f"name {node}: LOCATION[@BRANCH]:PATH")
        self.opened: Final = OpenTarget(target, dry_run=dry_run)
        self.repo: Final = self.opened.repo
        self.branch: Final = self.opened.branch
        self.path: Final = self.opened.path
        self.before: str | None = self.repo.lookup_branch(self.branch)
        self.dry_run = dry_run
        self._output = output

    def emit(self, further: Sequence[str] = (), **members: Any) -> None:
        """Print the tip of the branch, what changed, and more lines and members of the document."""
        settings: dict[str, Any] = {"dry_run": self.dry_run, "further": further, **members}
        emit_tip(self._output, self.repo, self.branch, self.before, **settings)


def emit_tip(
    output: Output,
    repo: Any,
    branch: str,
    before: str | None,
    *,
    dry_run: bool,
    further: Sequence[str] = (),
    **members: Any,
) -> None:
    """Print the tip of a branch after a change, and what changed since ``before``."""
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
        **members,
    }
    lines = [f"{branch} stays at {tip.id[:SHORT]}"]
    if before != tip.id:
        verb = "would be" if dry_run else "is"
        name = "a new version" if dry_run else output.paint(tip.id[:SHORT], "id")
        lines = [f"{branch} {verb} at {name}: {tip.message.partition(chr(10))[0]}"]
    output.emit(document, [*lines, *(diff_lines(output, changes) if changes else ()), *further])
