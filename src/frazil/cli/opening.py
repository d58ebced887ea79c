"""The repository of a target, opened as far as a command asks.

The history, the branches and the tags are in one file, ``repo``. To look at nodes, a command opens the
context of the repository, and to change it, the class `Repository`, whose methods import all maintenance. So
each step is an attribute of `OpenTarget`, which imports and reads what it needs.

The functions of this module show what a target names: versions, differences, groups and arrays, as documents
for JSON and as lines. `BranchChange` shows the result of a change.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.command import AUTHOR, Output, picked, visible
from frazil.display import counted
from frazil.errors import FormatError, InvalidInputError, RepositoryNotFoundError
from frazil.format.ids import NODE_ID_BYTES, id_to_text
from frazil.format.nodes import Node
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.ancestry import version_id
from frazil.repository.catalog.repo_changes import find_snapshot
from frazil.repository.catalog.repo_update import RepoInfoCache, open_current_repo_info
from frazil.repository.target import MAIN, Target
from frazil.storage.base import Storage
from frazil.storage.profiles import storage_of_location

if TYPE_CHECKING:
    from frazil.handle.repository import Repository
    from frazil.repository.catalog.context import Context
    from frazil.repository.catalog.version_info import Diff, SnapshotInfo
    from frazil.repository.session.session import Session
    from frazil.repository.session.workspace import Workspace


def storage_of(target: Target, dry_run: bool = False) -> Storage:
    """Return the storage of a target's location.

    A rehearsal (``dry_run``) makes the change with the same code, on an overlay of the storage whose writes
    stay in memory. So it shows the result or the error of the change itself.
    """
    storage = storage_of_location(target.location)
    if dry_run:
        from frazil.maintenance.repair.storages import Overlay

        return Overlay(storage)
    return storage


def author_metadata() -> dict[str, Any]:
    """Return the metadata with the author of the command's commits: ``--author`` or ``FRAZIL_AUTHOR``."""
    context = click.get_current_context(silent=True)
    name = context and context.meta.get(AUTHOR)
    return {"author": name} if name else {}


class OpenTarget:
    """A repository, and the version and node of it that a target names.

    Attributes:
        target: The target.
        storage: The storage of the repository.
    """

    def __init__(self, target: Target, storage: Storage | None = None, *, dry_run: bool = False) -> None:
        self.target = target
        self.storage: Final = storage_of(target, dry_run) if storage is None else storage

    @cached_property
    def info(self) -> RepoInfo:
        """The refs and snapshots of the repository, of spec version 1 too."""
        try:
            info = open_current_repo_info(self.storage, RepoInfoCache())
            info.snapshots  # noqa: B018  # decoded here, because most commands need them
            return info
        except (FormatError, RepositoryNotFoundError):
            return self.context.catalog.repo_info()  # spec version 1, or an error with advice

    @cached_property
    def context(self) -> Context:
        """The context of the repository, for its nodes and chunks."""
        from frazil.handle.addresses import virtual_access
        from frazil.handle.opening import HandleOptions, open_context, opened_before

        options = HandleOptions(authorized=virtual_access())
        known: RepoInfo | None = self.__dict__.get("info")
        if known is None or known.spec_version == 1:
            return open_context(self.storage, options)
        return opened_before(self.storage, options, known)

    @cached_property
    def repo(self) -> Repository:
        """The repository, with all its methods. Its commits have the author of the command."""
        from frazil.handle.repository import Repository

        repo = Repository(self.context)
        repo.set_default_commit_metadata(author_metadata())
        return repo

    @cached_property
    def raw_id(self) -> bytes:
        """The id of the snapshot that the target names."""
        return version_id(self.info, self.target.version or MAIN)

    @property
    def id(self) -> str:
        """The same id as text."""
        return id_to_text(self.raw_id)

    @property
    def path(self) -> str:
        """The path of the target, ``/`` without one."""
        return self.target.path or "/"

    @cached_property
    def workspace(self) -> Workspace:
        """The nodes and chunks of the version."""
        from frazil.repository.session.workspace import Workspace

        id_ = self.raw_id  # reads the refs, before the context
        return Workspace(self.context, id_)

    def session(self, id_: str | None = None) -> Session:
        """Return a session that reads the version, or another one."""
        from frazil.handle.sessions import readonly_session_of

        id_ = id_ or self.id
        return readonly_session_of(self.context, self.info, snapshot_id=id_)

    @cached_property
    def branch(self) -> str:
        """The branch that a command changes: the version of the target, which must be a branch."""
        branch = self.target.version or MAIN
        if branch in self.repo.list_branches():
            return branch
        raise InvalidInputError(
            f"a change needs a branch, got {branch!r}. `frazil refs {self.target.location}` lists them"
        )

    def source(self, text: str) -> str:
        """Return a version as the methods of `Repository` accept it: a name as it is, or an id."""
        info = self.context.catalog.repo_info()
        return text if find_snapshot(text, lambda: info) is not None else id_to_text(version_id(info, text))


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
