"""Commands that compare versions: diff, blame, history."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import prod
from typing import Annotated, Any, Final

import click
import numpy as np

from frazil.cli.arguments import AnyTarget, ArrayTarget, Raw, Version
from frazil.cli.cells import SELECTION, OpenArray, indices_of, place, selected_shape
from frazil.cli.command import Output, argument, picked, table, verb
from frazil.cli.opening import SHORT, OpenTarget, clock, diff_document, diff_lines
from frazil.display import counted
from frazil.errors import IcechunkError, MissingExtraError
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.nodes import Node
from frazil.history.blame import ChunkCommit
from frazil.repository.catalog.ancestry import version_id
from frazil.repository.session.workspace import Workspace
from frazil.repository.target import MAIN
from frazil.threads import Purpose, map_bounded

#: The fields of a difference in values.
_NUMBERS: Final = (
    *("path", "cells", "new_cells", "removed_cells", "changed", "mean", "max", "rmse", "units"),
    "chunks_read",
)


@verb("diff")
def diff(
    output: Output,
    target: Annotated[AnyTarget, argument(metavar="LOCATION@VERSION[:PATH]")],
    to: Annotated[Version, argument(default=MAIN, metavar="[TO]")],
    chunks: bool,
    values: bool,
    raw: Raw,
    exit_code: bool,
) -> int:
    """Show which nodes and chunks differ between the version of TARGET and the version TO (default: `main`).

    If the first version is an ancestor of the second, this is what the commits between them did. `+` is new,
    `-` is deleted, `~` is changed. An array that grew or shrank has both shapes. With a path, only this node
    and the nodes below it.

    --values compares decoded values (packing, missing values, booleans, times), each version with its own
    attributes, and counts new and removed cells. --raw compares the stored elements.

    Args:
        chunks: Also print the indices of changed chunks.
        values: Compare the values of changed arrays, and read their chunks.
        exit_code: End with the exit status 1 if there are differences.

    Examples:
        frazil diff ice@v1                    what happened on `main` since v1
        frazil diff ice@main dev              how `dev` differs from `main`
        frazil diff ice@main~3:era5 --chunks  changes of a group, with the indices of chunks
        frazil diff ice@v1:era5/t --values    how many values differ, and by how much
        frazil diff ice@v1 v2 --exit-code     the exit status is 1 if there are differences
    """
    if raw and not values:
        raise click.UsageError("--raw is for --values")
    version = OpenTarget(target)
    after = id_to_text(version_id(version.info, to.removeprefix("@")))
    difference = version.repo.diff(from_snapshot_id=version.id, to_snapshot_id=after)
    changes = diff_document(difference, version.path)
    changes["shapes"] = _shapes(version, id_from_text(after), changes["updated_arrays"])
    document = {"from": version.id, "to": after, **changes}
    differences: list[dict[str, Any]] = []
    if values:
        paths = {*changes["updated_chunks"], *changes["updated_arrays"]}.difference(changes["new_arrays"])
        compare = partial(version.repo.history.diff_values, decode=not raw)
        ends: dict[str, Any] = {"from_snapshot_id": version.id, "to_snapshot_id": after}
        comparisons = (compare(path, **ends) for path in sorted(paths))
        differences = [picked(each, *_NUMBERS) for each in comparisons]
        document["values"] = differences
    visible = (each for each in differences if "/." not in each["path"])
    lines = chain(diff_lines(output, changes, chunks=chunks), map(_values_line, visible))
    output.emit(document, lines, pages=True)
    return int(exit_code and any(changes.values()))


def _shapes(before: OpenTarget, after: bytes, paths: list[str]) -> dict[str, Any]:
    """Return the earlier and the later shape of arrays that grew or shrank, by their later paths."""
    if not paths:
        return {}
    old, new = before.workspace, Workspace(before.context, after)
    ends = {path: [old.same_node(new.require_array(path)), new.node(path)] for path in paths}
    shapes = {
        path: [list(each.array.shape) for each in pair if each and each.array] for path, pair in ends.items()
    }
    return {path: {"from": each[0], "to": each[-1]} for path, each in shapes.items() if each[0] != each[-1]}


def _values_line(document: dict[str, Any]) -> str:
    text = f"  {document['path']}: {document['changed']:,} of {counted(document['cells'], 'value')} differ"
    if document["max"] == document["max"]:  # not NaN: the values are numbers
        units = f" {document['units']}" if document["units"] else ""
        numbers = f", mean {document['mean']:+g}, largest {document['max']:g}, rmse {document['rmse']:g}"
        text += numbers.replace(",", f"{units},").removeprefix(units) + units
    for name in ("new", "removed"):
        if document[f"{name}_cells"]:
            text += f", {counted(document[f'{name}_cells'], f'{name} cell')}"
    return text


@verb("blame")
def blame(output: Output, target: ArrayTarget, chunks: bool) -> None:
    """Show which commits wrote the chunks of an array last, newest first.

    A line has the id, the time in UTC, the number of chunks, the author and the message of a commit. The
    command reads transaction logs, and no chunk.

    Args:
        chunks: Also print the indices of the chunks.

    Examples:
        frazil blame ice:era5/t            the commits of `main`
        frazil blame ice@v2:era5/t --chunks  also the indices of their chunks
    """
    version = OpenTarget(target)
    answer = version.repo.history.blame(version.path, snapshot_id=version.id)
    counts = np.bincount(answer.number, minlength=len(answer.commits)).tolist()
    indices: list[Any] = [[]] * len(counts)
    if chunks or output.as_json:
        order = np.argsort(answer.number, kind="stable")
        parts = np.split(answer.index[order], np.cumsum(counts)[:-1])[: len(counts)]
        indices = [part.tolist() for part in parts]
    documents = [
        {**_commit_document(each), "chunks": count, "indices": index}
        for each, count, index in zip(answer.commits, counts, indices, strict=True)
    ]
    rows = [_commit_row(each, f"{each['chunks']:,}") for each in documents]
    lines = []
    for line, each in zip(table(rows), documents, strict=True):
        lines.append(output.cut(line))
        lines += [f"    {','.join(map(str, index))}" for index in each["indices"]] if chunks else []
    output.emit(documents, lines, pages=True)


@verb("history", ignore_unknown_options=True)
def history(
    output: Output,
    target: ArrayTarget,
    cell: Annotated[Any, argument(metavar="[CELL]", type=SELECTION, default=())],
    raw: Raw,
) -> None:
    """Show the commits that wrote the chunk of one cell, newest first.

    A line has the id, the time in UTC, what happened to the cell, its value after the commit, the author and
    the message. `unchanged` marks a commit that wrote only other cells of the chunk. `attributes` marks a
    commit that wrote no chunk, and changed the value by other attributes. Values are decoded as in `frazil
    cat`, with the attributes of their version; --raw shows the stored elements.

    CELL is an index for each dimension, separated by commas, or a label for each dimension: NAME=LABEL,...
    (labels need the extra `pipeline`). An array without dimensions needs none. `frazil blame` shows the last
    commit of every chunk.

    Examples:
        frazil history ice:era5/t 0,1           the cell at an index
        frazil history ice@v2:era5/time time=2  the cell at a label, in the history of a tag
    """
    version = OpenTarget(target)
    session = version.session()
    node = session.workspace.require_array(version.path)
    assert node.array is not None
    selected, shape = indices_of(session, version.path, cell), node.array.shape
    size = list(selected_shape(shape, selected))
    # a label can select a list of one index
    if prod(size) != 1 or len(selected) != len(shape):
        raise click.UsageError(
            "name one cell: an index for each dimension, such as 0,1, or labels. The array has the shape "
            f"{list(shape)}, and the selection the shape {size}"
        )
    index = tuple(np.arange(length)[at].item() for at, length in zip(selected, shape, strict=True))
    commits = version.repo.history.history_of(version.path, index, snapshot_id=version.id)
    values = _CellHistory(version, node, index, raw)
    ends = [(values.parent_of(each.snapshot_id), each.snapshot_id) for each in commits]
    values.read({version.id, *(id_ for pair in ends for id_ in pair if id_ is not None)})
    documents = [
        {
            **_commit_document(commit),
            **values.document(after),
            "change": "before" if commit.is_before else values.change(before, after),
        }
        for commit, (before, after) in zip(commits, ends, strict=True)
    ]
    newer = [version.id, *(before for before, _ in ends)]
    for tip, (_, older) in zip(newer, ends, strict=False):
        for id_ in values.changes_between(older, tip):
            info = version.repo.lookup_snapshot(id_)
            author = info.metadata.get("author")
            author = author if isinstance(author, str) else None
            commit = ChunkCommit(id_, info.written_at, info.message, author)
            documents.append({**_commit_document(commit), **values.document(id_), "change": "attributes"})
    documents.sort(key=lambda each: each["time"], reverse=True)
    rows = [_commit_row(each, each["change"], each.pop("text")) for each in documents]
    lines = [output.cut(each) for each in table(rows)]
    if isinstance(cell, dict):
        lines.insert(0, f"{version.path} at {place(OpenArray(session, version.path, raw=raw).axes(index))}")
    output.emit(documents, lines, pages=True)


#: The text, the units and the value of a version without the cell.
_NOTHING: Final = ("", "", None)
#: Those of a version whose chunk cannot be read.
_UNREADABLE: Final = ("unreadable", "", None)


@dataclass(frozen=True, slots=True)
class _CellHistory:
    """The values of one cell of an array in several versions, by the ids of their snapshots."""

    version: OpenTarget
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
        session = self.version.session(id_)
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


def _commit_document(commit: Any) -> dict[str, Any]:
    """Return a commit that wrote chunks, in the form that JSON has."""
    names = {"id": "snapshot_id", "before": "is_before", "time": "written_at"}
    return picked(commit, "author", "job", "message", **names)


def _commit_row(document: dict[str, Any], *work: str) -> tuple[str, ...]:
    """Return the columns of a commit: id, time, what it did, author, message."""
    return (
        f"{'before ' if document['before'] else ''}{document['id'][:SHORT]}",
        clock(document["time"]),
        *work,
        document["author"] or "",
        document["message"].partition("\n")[0],
    )
