"""``frazil history``: the commits that wrote one cell of an array."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import click
import numpy as np

from frazil.cli.cells import OpenArray, raw_option
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import OpenVersion, open_version
from frazil.cli.output import Output, table
from frazil.cli.selections import SELECTION, Indices, Labels, indices_of
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, clock
from frazil.errors import IcechunkError, MissingExtraError
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.nodes import Node
from frazil.repository.handle.sessions import readonly_session_of
from frazil.repository.history.blame import ChunkCommit
from frazil.threads import Purpose, map_bounded

_DESCRIPTION: Final = """\
Show the commits that wrote the chunk of one cell, newest first: id, time in UTC, what happened to the cell,
its value after the commit, author, message. `unchanged` marks a commit that wrote only other cells of the
chunk. `attributes` marks a commit that wrote no chunk, and changed the value by other attributes. Values are
decoded as in `frazil cat`, with the attributes of their version; --raw shows the stored elements.

CELL is an index for each dimension, separated by commas, or a label for each dimension: NAME=LABEL,...
(labels need the extra `pipeline`). `frazil blame` shows the last commit of every chunk."""

_EXAMPLES: Final = """\
frazil history ice:era5/t 0,1           the cell at an index
frazil history ice@v2:era5/time time=2  the cell at a label, in the history of a tag"""


@verb("history", description=_DESCRIPTION, examples=_EXAMPLES, ignore_unknown_options=True)
@target_argument(metavar="LOCATION[@VERSION]:PATH")
@click.argument("cell", type=SELECTION)
@raw_option
def command(output: Output, target: Target, cell: Indices | Labels, raw: bool) -> None:
    """Print the commits."""
    if target.path is None:
        raise click.UsageError("name an array: LOCATION[@VERSION]:PATH")
    if isinstance(cell, tuple) and not all(isinstance(each, int) for each in cell):
        raise click.UsageError("name one cell: an index for each dimension, such as 0,1, or labels")
    version = open_version(target)
    commits = version.repo.history_of(version.path, cell, snapshot_id=version.id)
    session = readonly_session_of(version.context, version.info, snapshot_id=version.id)
    node = session.workspace.require_array(version.path)
    assert node.array is not None
    lengths = node.array.shape
    # a label can select a list of one index
    index = tuple(
        int(np.arange(length)[at].reshape(-1)[0])
        for at, length in zip(indices_of(session, version.path, cell), lengths, strict=True)
    )
    values = _Values(version, node, index, raw)
    ends = [(values.parent_of(each.snapshot_id), each.snapshot_id) for each in commits]
    values.read({version.id, *(id_ for pair in ends for id_ in pair if id_ is not None)})
    documents = [
        {
            **commit_document(commit),
            **values.document(after),
            "change": "before" if commit.is_before else values.change(before, after),
        }
        for commit, (before, after) in zip(commits, ends, strict=True)
    ]
    newer = [version.id, *(before for before, _ in ends)]
    for tip, (_, older) in zip(newer, ends, strict=False):
        documents += [
            {**commit_document(_chunk_commit(version, id_)), **values.document(id_), "change": "attributes"}
            for id_ in values.changes_between(older, tip)
        ]
    documents.sort(key=lambda each: each["time"], reverse=True)
    rows = table(map(_row, documents))
    for each in documents:
        del each["text"]
    output.emit(documents, map(output.cut, rows), pages=True)


#: The text, the units and the value of a version without the cell.
_NOTHING: Final = ("", "", None)
#: Those of a version whose chunk cannot be read.
_UNREADABLE: Final = ("unreadable", "", None)


def _chunk_commit(version: OpenVersion, id_: str) -> ChunkCommit:
    """Return the commit of a version, in the form of commits that wrote chunks."""
    info = version.repo.lookup_snapshot(id_)
    author = info.metadata.get("author")
    return ChunkCommit(id_, info.written_at, info.message, author if isinstance(author, str) else None)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of one cell of an array in several versions, by the ids of their snapshots."""

    version: OpenVersion
    node: Node
    index: tuple[int, ...]
    raw: bool
    by_id: dict[str, tuple[str, str, Any]] = field(default_factory=dict)

    def parent_of(self, id_: str) -> str | None:
        """Return the version before a version; None if there is none."""
        snapshots = self.version.info.snapshots
        parent = snapshots.entry(snapshots.find_snapshot(id_from_text(id_))).parent
        return None if parent is None else id_to_text(parent)

    def read(self, ids: set[str]) -> None:
        """Read the values of versions, each with its units; empty where the array does not have the cell."""
        every = sorted(ids)
        self.by_id.update(zip(every, map_bounded(Purpose.CHUNK_COPIES, self._value_at, every), strict=True))

    def document(self, id_: str) -> dict[str, Any]:
        """Return the value of a version in the form that JSON has, and its text for people."""
        text, units, value = self.by_id[id_]
        return {"value": value, "units": units or None, "text": f"{text} {units}".rstrip()}

    def change(self, before: str | None, after: str) -> str:
        """Return what happened to the cell between two versions."""
        old, new = self.by_id.get(before or "", _NOTHING), self.by_id[after]
        if _UNREADABLE in (old, new):
            return "unknown"
        if old == new:
            return "unchanged"
        return "created" if old == _NOTHING else "removed" if new == _NOTHING else "changed"

    def changes_between(self, older: str, newer: str | None) -> list[str]:
        """Return versions between two that no commit of the chunk separates, in which the value changed.

        Other attributes decode the same elements as other values. The search halves each part of the history
        whose ends have different values.
        """
        if newer is None or self.change(older, newer) == "unchanged":
            return []
        chain = [newer]
        while chain[-1] != older:
            parent = self.parent_of(chain[-1])
            if parent is None:
                return []  # the older version is on another branch, which was merged
            chain.append(parent)
        out, pending = [], [(0, len(chain) - 1)]
        while pending:
            first, last = pending.pop()
            self.read({chain[first], chain[last]} - set(self.by_id))
            if self.change(chain[last], chain[first]) == "unchanged":
                continue
            middle = (first + last) // 2
            if last - first == 1:
                out.append(chain[first])
            else:
                pending += [(first, middle), (middle, last)]
        return out

    def _value_at(self, id_: str) -> tuple[str, str, Any]:
        session = readonly_session_of(self.version.context, self.version.info, snapshot_id=id_)
        node = session.workspace.same_node(self.node)
        array = None if node is None else node.array
        if node is None or array is None or len(array.shape) != len(self.index):
            return _NOTHING
        if not all(at < length for at, length in zip(self.index, array.shape, strict=True)):
            return _NOTHING
        try:
            opened = OpenArray(session, node.path, raw=self.raw)
            cells = opened.cells(opened.elements(self.index))
        except MissingExtraError:
            raise
        except IcechunkError:  # for example a virtual chunk without access
            return _UNREADABLE
        return cells.texts().item(), cells.units, cells.documents()


def _row(document: dict[str, Any]) -> tuple[str, ...]:
    id_, time, author, message = commit_row(document)
    return (id_, time, document["change"], document["text"], author, message)


def commit_document(commit: Any) -> dict[str, Any]:
    """Return a commit that wrote chunks, in the form that JSON has."""
    return {
        "id": commit.snapshot_id,
        "before": commit.is_before,
        "time": commit.written_at,
        "author": commit.author,
        "job": commit.job,
        "message": commit.message,
    }


def commit_row(document: dict[str, Any]) -> tuple[str, ...]:
    """Return the columns of a commit: id, time, author, message."""
    return (
        f"{'before ' if document['before'] else ''}{document['id'][:SHORT]}",
        clock(document["time"]),
        document["author"] or "",
        document["message"].partition("\n")[0],
    )
