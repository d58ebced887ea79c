"""Hold-backs: data that readers of a branch do not see until a date, and that stay stored.

A hold-back is one update of the repository: a commit that sets boxes to the fill value, and two tags.

    hold.NAME.N           the commit; its metadata have the name, the branch, the date and the boxes
    hold.NAME.N.before    its parent, which has the data

Both libraries keep the versions of tags. So no expiration and no collection deletes the data, and the end of
the hold-back can revert exactly this commit. N counts the hold-backs of a name, because the name of a deleted
tag cannot be used again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, override

import numpy as np

from frazil.arguments import require_choice
from frazil.arrays.element_solver import ElementSolver
from frazil.changes.conflicts import ConflictType
from frazil.display import Record, some_of
from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError, RefNotFoundError
from frazil.format.ids import NODE_ID_BYTES, id_matrix, id_to_text, ids_among
from frazil.format.nodes import Node
from frazil.format.repo_info import RepoInfo
from frazil.maintenance.withdrawal.selection import ArrayCut, DataSelection, PartialChunks, array_cuts
from frazil.remedies import call
from frazil.repository.catalog.ancestry import own_values
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import (
    branch_tip,
    create_tag,
    delete_tag,
    in_one_update,
    require_name,
)
from frazil.repository.catalog.repo_update import RepoChange, RepoUpdate
from frazil.repository.catalog.version_info import HOLD_TAG
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.repository.paths import HIDDEN
from frazil.repository.session.conflicts import Conflict, VersionSelection
from frazil.repository.session.workspace import Workspace

#: The key of the record in the metadata of the commit.
HOLD: Final = "hold"
#: The end of the name of the tag that has the data.
BEFORE: Final = ".before"
_LAST: Final = from_datetime(datetime.max.replace(tzinfo=UTC))
_TAG: Final = re.compile(rf"{re.escape(HOLD_TAG)}.+\.\d+")


@dataclass(frozen=True, slots=True, repr=False)
class Hold(Record, shown_as="ops.Hold"):
    """Data that readers of a branch do not see until a date.

    Attributes:
        name: The name of the hold-back.
        branch: The branch whose readers do not see the data.
        until: The date. Nothing happens by itself on this date: ``Repository.upkeep.doctor`` names it.
        what: The data in words.
        tag: The tag of the commit that hides the data; empty in a plan. The tag of the version with the data
            has ``.before`` at its end.
        snapshot_id: The id of the commit; empty in a plan.
        chunks: In a plan: the number of chunks with the data.
        visible: In a plan: the other branches, and the tags, that show the data.
    """

    name: str
    branch: str
    until: datetime
    what: tuple[str, ...]
    tag: str = ""
    snapshot_id: str = ""
    chunks: int | None = None
    visible: tuple[str, ...] = ()


def origin(hold: Hold) -> dict[str, Any]:
    """Return the values of Frazil in the metadata of the commit."""
    values = {name: getattr(hold, name) for name in ("name", "branch", "what")}
    return {HOLD: {**values, "what": [*hold.what], "until": from_datetime(hold.until)}}


def create_tags(id_: bytes, hold: Hold) -> tuple[RepoChange]:
    """Return the change that creates the tags of the commit ``id_``."""

    def change(info: RepoInfo, now: int) -> RepoUpdate:
        require_possible(info, hold)
        names = (f"{HOLD_TAG}{hold.name}.{number}" for number in count(1))
        tag = next(each for each in names if each + BEFORE not in info.tags.keys() | info.deleted_tags)
        parent = info.snapshots.entry(info.snapshots.find_snapshot(id_)).parent or b""
        return in_one_update(create_tag(tag + BEFORE, parent), create_tag(tag, id_))(info, now)

    return (change,)


def holds(info: RepoInfo) -> list[Hold]:
    """Return the hold-backs of a repository, the earliest date first."""
    rows = []
    for tag, id_ in info.tags.items():
        row = info.snapshots.find_snapshot(id_) if _TAG.fullmatch(tag) else -1
        record = own_values(info.snapshots.entry(row).metadata).get(HOLD) if row >= 0 else None
        match record:  # another program may use such a tag
            case {"name": str(name), "branch": str(branch), "until": int(until), "what": list(what)} if (
                0 < until < _LAST
            ):
                texts = tuple(map(str, what))
                rows.append(Hold(name, branch, to_datetime(until), texts, tag, id_to_text(id_)))
    return sorted(rows, key=lambda each: (each.until, each.tag))


def end_tags(info: RepoInfo, hold: Hold) -> list[RepoChange]:
    """Return the changes that delete the tags of a hold-back."""
    return [delete_tag(each) for each in (hold.tag, hold.tag + BEFORE) if each in info.tags]


def find_hold(info: RepoInfo, name: str) -> Hold:
    """Return the hold-back with a name."""
    by_name = {each.name: each for each in holds(info)}
    if name not in by_name:
        message = f"the repository has no hold-back `{name}`. It has {some_of(by_name)}"
        raise RefNotFoundError(message, ErrorKind.REF_NOT_FOUND)
    return by_name[name]


def require_possible(info: RepoInfo, hold: Hold) -> None:
    """Raise an error for a date that is not in the future, and for a name that cannot be used."""
    if hold.until <= to_datetime(now_us()):
        raise InvalidInputError(f"until must be in the future, got {hold.until.isoformat()}")
    require_name(hold.name)
    if any(each.name == hold.name for each in holds(info)):
        raise AlreadyExistsError(
            f"the repository has a hold-back `{hold.name}` already", ErrorKind.TAG_ALREADY_EXISTS
        ).with_remedy("Choose another name, or end that one with {}", call("end_hold", name=hold.name))


_SIDES: Final = {
    "refuse": VersionSelection.Fail,
    "keep": VersionSelection.UseTheirs,
    "restore": VersionSelection.UseOurs,
}


class HoldSolver(ElementSolver):
    """Decides the conflicts of an end: values go where arrays have a place for them."""

    def __init__(self, conflicts: str) -> None:
        require_choice("conflicts", conflicts, _SIDES)
        self._side = _SIDES[conflicts]
        super().__init__(otherwise=self._side)

    @override
    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        answers = super().solve(conflicts)
        for at, conflict in enumerate(conflicts if self._side is not VersionSelection.Fail else ()):
            if conflict.conflict_type is ConflictType.ChunksUpdatedInDeletedArray:
                answers[at] = self._side
            elif conflict.conflict_type is ConflictType.ChunksUpdatedInUpdatedArray:  # it is shorter
                answers[at] = VersionSelection.UseOurs
        return answers


def plan_hold(context: Context, info: RepoInfo, selection: DataSelection, hold: Hold) -> Hold:
    """Return a hold-back with the number of its chunks, and what shows the data."""
    require_possible(info, hold)
    work = Workspace(context, branch_tip(info, hold.branch))
    visible = _showing(context, info, _cuts(work, selection), hold.branch)
    return replace(hold, chunks=hide(work, selection, writes=False), visible=tuple(visible))


def hide(work: Workspace, selection: DataSelection, *, writes: bool = True) -> int:
    """Set the boxes of a selection to the fill value. Return the number of chunks that change."""
    partial, chunks = PartialChunks((work.writer, work.reader)), 0
    for cut in _cuts(work, selection).values():
        path = cut.paths[0]
        table = work.ref_table(path)
        changes, partly = cut.masks(table.index)
        rows = np.flatnonzero(partly)
        is_changed, new = partial.written(table, rows, cut, writes=writes)
        changes[rows[is_changed]] = True
        chunks += int(changes.sum())
        if writes and changes.any():
            work.delete_refs(path, table.index[changes])
            work.set_refs(path, new)
    if not chunks:
        data = some_of(selection.texts())
        raise InvalidInputError(f"the branch must have data to hold back, but {data} has only the fill value")
    return chunks


def _cuts(work: Workspace, selection: DataSelection) -> Mapping[bytes, ArrayCut]:
    """Return what is hidden of each array, without the arrays that Frazil writes for itself."""
    for path in selection.boxes:
        work.require_node(path)
    cuts = array_cuts(lambda: (work.node_table(),), selection)
    return {id_: cut for id_, cut in cuts.items() if f"/{HIDDEN}/" not in cut.paths[0]}


def _showing(context: Context, info: RepoInfo, cuts: Mapping[bytes, ArrayCut], branch: str) -> Iterator[str]:
    """Yield the other branches and the tags whose versions have chunks in the data."""
    ids, answers_of_nodes = id_matrix(list(cuts), NODE_ID_BYTES), dict[Any, bool]()

    def shows(id_: bytes) -> bool:
        work = Workspace(context, id_)
        nodes = work.snapshot.nodes
        rows = np.flatnonzero(ids_among(nodes.ids, ids) & nodes.is_array).tolist()
        return any(has_data(work, nodes.node(row)) for row in rows)

    def has_data(work: Workspace, node: Node) -> bool:
        key = node.id, tuple(each.id for each in node.array_data.manifests)  # equal in many versions
        if key not in answers_of_nodes:
            table, cut = work.ref_table(node.path), cuts[node.id]
            is_same = not cut.boxes or table.ndim == len(cut.boxes[0])  # the array may have been another one
            answers_of_nodes[key] = (
                any(mask.any() for mask in cut.masks(table.index)) if is_same else len(table) > 0
            )
        return answers_of_nodes[key]

    refs = {f"branch `{name}`": id_ for name, id_ in sorted(info.branches.items()) if name != branch}
    refs |= {f"tag `{name}`": id_ for name, id_ in sorted(info.tags.items())}
    answers = {id_: shows(id_) for id_ in set(refs.values())}
    yield from (name for name, id_ in refs.items() if answers[id_])
