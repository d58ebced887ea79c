"""Commits without chunks that are lost for good. A repair makes them only if the caller asks for them.

A lost chunk gets the reference of the newest version with other data (``previous``), or missing values
(``fill``). Readers decode the fill value of zarr as a value, mostly 0, unless an attribute says that it means
a missing value. So ``fill`` stores a chunk of the element that means a missing value, if it is another one
than the fill value. An array without such an element reads its fill value, and the plan says so. Earlier
versions still have the damaged reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.display import counted
from frazil.format.columns import U8, U32
from frazil.format.coordinates import within
from frazil.format.ids import NODE_ID_BYTES, id_from_text, id_keys, id_list, id_matrix
from frazil.format.manifest import ChunkTable, NativeRef
from frazil.format.nodes import Node, NodeTable
from frazil.maintenance.repair.lost import is_lost, lost_ranges
from frazil.maintenance.repair.repair_plan import LostChoice, LostChunks, RepairStep
from frazil.maintenance.repair.steps import Site
from frazil.repository.catalog.collection_guard import SessionStart, newest_update
from frazil.repository.catalog.lineage import FRAZIL
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.clock import now_us
from frazil.repository.session.commit import write_commit
from frazil.repository.session.pending_commit import COMMIT, PendingCommit
from frazil.repository.session.session import reading
from frazil.repository.session.workspace import Workspace
from frazil.storage.outages import skip_damage

_WORDS: Final = {"fill": "the missing value of each array", "previous": "the data of an older version"}


@dataclass(frozen=True, slots=True)
class LostCommit:
    """Makes a commit on one branch, without the lost chunks of its tip."""

    branch: str
    choice: LostChoice
    lost: Sequence[LostChunks]
    effects: tuple[str, ...] = ()

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        keys = tuple(dict.fromkeys(each.key for each in self.lost))
        why = f"the tip of branch `{self.branch}` needs the lost chunks, and the caller asks for this commit"
        why = "; ".join([why, *self.effects])
        return RepairStep("commit", keys, _WORDS[self.choice], why, "consistent")

    def perform(self, site: Site) -> None:
        """Make the commit, unless the tip has no lost chunk any more."""
        self.commit(site)

    def commit(self, site: Site) -> tuple[str, ...]:
        """Make the commit, and return what cells read afterwards. Nothing if the tip has no lost chunk."""
        context = site.context
        since = now_us()
        info = context.catalog.repo_info()
        workspace = Workspace(context, branch_tip(info, self.branch))
        edits = [_edit(workspace, each, self.choice) for each in _by_array(self.lost)]
        number = sum(each.number for each in edits)
        if not number:
            return ()
        write_commit(
            PendingCommit(
                context,
                COMMIT,
                self.branch,
                workspace.snapshot,
                workspace.durable_changes(),
                f"repair: {counted(number, 'lost chunk')} with {_WORDS[self.choice]}",
                {**site.metadata, **_metadata(self.lost)},
                SessionStart(newest_update(info), since),
                workspace.writer,
            )
        )
        return tuple(each.effect for each in edits if each.number)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The lost chunks of one array: coordinates, the version with other data of each, and all lost ranges."""

    node: bytes
    coordinates: U32
    previous: tuple[str | None, ...]
    ranges: U8


def _by_array(lost: Iterable[LostChunks]) -> list[_Cells]:
    groups: dict[bytes, list[LostChunks]] = {}
    for each in lost:
        groups.setdefault(each.node, []).append(each)
    return [
        _Cells(
            node,
            np.concatenate([each.coordinates for each in parts]),
            tuple(version for each in parts for version in each.previous),
            lost_ranges(parts),
        )
        for node, parts in groups.items()
    ]


def _metadata(lost: Iterable[LostChunks]) -> dict[str, Any]:
    """Return the metadata of the commit, which name the lost chunk files."""
    return {FRAZIL: {"repair": {"lost": sorted({each.key for each in lost})}}}


@dataclass(frozen=True, slots=True)
class _Edit:
    """The number of changed references of an array, and what its cells read afterwards."""

    number: int = 0
    effect: str = ""


def _edit(workspace: Workspace, cells: _Cells, choice: LostChoice) -> _Edit:
    """Change the references of one array that are still lost at the tip."""
    row = np.flatnonzero(id_keys(workspace.base.ids) == np.frombuffer(cells.node, f"S{NODE_ID_BYTES}")[0])
    if not len(row):
        return _Edit()
    node = workspace.base.node(int(row[0]))
    inside = (
        np.zeros(len(cells.coordinates), bool)
        if node.array is None
        else within(cells.coordinates, node.array.num_chunks)
    )
    at_tip = inside.copy()
    at_tip[inside] = is_lost(workspace.chunks.refs_at(node.path, cells.coordinates[inside]), cells.ranges)
    lost, first = np.unique(cells.coordinates[at_tip], axis=0, return_index=True)
    if not len(lost):
        return _Edit()
    if choice == "fill":
        return _fill(workspace, node, lost)
    previous = [cells.previous[row] for row in np.flatnonzero(at_tip)[first].tolist()]
    number = 0
    for version in dict.fromkeys(previous):
        if version is not None:
            chosen = np.fromiter((each == version for each in previous), bool, len(lost))
            number += _take_over(workspace, node.path, id_from_text(version), cells, lost[chosen])
    return _Edit(number, f"{counted(number, 'chunk')} of {node.path} read the data of an older version")


def _fill(workspace: Workspace, node: Node, coordinates: U32) -> _Edit:
    """Set references to chunks of missing values, or delete references if the fill value is the best."""
    decoder = reading(workspace).store.chunk_decoder(node.path)
    element = decoder.missing_element()
    # One chunk of each shape is stored. Chunks of a regular grid have one shape.
    edges = chunk_lengths(node.user_data)
    shapes = np.array(
        [
            np.broadcast_to(np.asarray(edge)[at] if isinstance(edge, list) else edge, len(at))
            for edge, at in zip(edges, coordinates.T, strict=True)
        ],
        np.int64,
    )
    _, first, shape_of = np.unique(
        shapes.T.reshape(len(coordinates), len(edges)), axis=0, return_index=True, return_inverse=True
    )
    for number, row in enumerate(first.tolist()):
        index = coordinates[shape_of.reshape(-1) == number]
        data = b"" if element is None else decoder.encoded(tuple(coordinates[row].tolist()), element)
        workspace.chunks.set_refs(node.path, _references(workspace, index, data))
    chunks = counted(len(coordinates), "chunk")
    if element is None:
        fill = json.loads(node.user_data).get("fill_value")
        return _Edit(
            len(coordinates),
            f"{chunks} of {node.path} read {fill}, because nothing marks missing values there",
        )
    return _Edit(len(coordinates), f"{chunks} of {node.path} read as missing values")


def _references(workspace: Workspace, index: U32, data: bytes) -> ChunkTable:
    """Store the bytes of one chunk, and return references to it. Without bytes, return deletions."""
    if not data:
        return ChunkTable.from_absent(index)
    ref = workspace.chunks.store_bytes(data)
    if isinstance(ref, NativeRef):
        return ChunkTable.from_native(index, id_matrix([ref.chunk_id]), 0, ref.offset, ref.length)
    return ChunkTable.from_inline(index, [data] * len(index))


def _take_over(workspace: Workspace, path: str, version: bytes, cells: _Cells, coordinates: U32) -> int:
    """Set references to the data that a version has. Return their number."""
    older = Workspace(workspace.context, version)
    if not len(coordinates) or (older_path := _path_of(older.base, cells.node)) is None:
        return 0
    chosen = older.chunks.refs_at(older_path, coordinates).stored()
    chosen = chosen.select_chunks(~is_lost(chosen, cells.ranges))
    if len(chosen):
        workspace.chunks.set_refs(path, chosen)
    return len(chosen)


def _path_of(nodes: NodeTable, node: bytes) -> str | None:
    ids = id_list(nodes.ids)
    return nodes.paths_list()[ids.index(node)] if node in ids else None


def lost_commits(site: Site, choice: LostChoice, lost: Sequence[LostChunks]) -> list[LostCommit]:
    """Make the commits for the branches whose tips need lost chunks, and return them.

    A branch whose tip has another damaged file that the commit must read is left out.
    """
    if choice == "keep" or not lost:
        return []
    commits: list[LostCommit] = []
    for name in sorted(site.context.catalog.full_repo_info().branches):
        with skip_damage():
            commit = LostCommit(name, choice, lost)
            if effects := commit.commit(site):
                commits.append(replace(commit, effects=effects))
    return commits
