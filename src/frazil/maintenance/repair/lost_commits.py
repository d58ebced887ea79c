"""Commits without chunks that are lost for good. A repair makes them only if the caller asks for them.

The commit changes references only. A lost chunk gets the fill value (``fill``), or the reference of the
newest version with other data (``previous``). Earlier versions still have the damaged reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from frazil.display import counted
from frazil.format.columns import U8, U32
from frazil.format.ids import id_from_text, id_list
from frazil.format.nodes import NodeTable
from frazil.maintenance.repair.lost import is_lost, lost_files
from frazil.maintenance.repair.steps import Site
from frazil.repository.catalog.collection_guard import SessionStart, newest_update
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.lineage import FRAZIL
from frazil.repository.catalog.repairs import LostChoice, LostChunks, RepairStep
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.clock import now_us
from frazil.repository.session.commit import write_commit
from frazil.repository.session.pending_commit import COMMIT, PendingCommit
from frazil.repository.session.workspace import Workspace

_WORDS: Final = {"fill": "the fill value", "previous": "the data of an older version"}


@dataclass(frozen=True, slots=True)
class LostCommit:
    """Makes a commit on one branch, without the lost chunks of its tip."""

    branch: str
    choice: LostChoice
    lost: Sequence[LostChunks]

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        keys = tuple(dict.fromkeys(each.key for each in self.lost))
        why = f"the tip of branch `{self.branch}` needs the lost chunks, and the caller asks for this commit"
        return RepairStep("commit", keys, _WORDS[self.choice], why, "consistent")

    def perform(self, site: Site) -> None:
        """Make the commit, unless the tip has no lost chunk any more."""
        context = site.context
        since = now_us()
        info = context.catalog.repo_info()
        workspace = Workspace(context, branch_tip(info, self.branch))
        number = sum(_edit(workspace, each, self.choice) for each in _by_array(self.lost))
        if not number:
            return
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


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The lost chunks of one array: coordinates, the version with other data of each, and all lost files."""

    node: bytes
    coordinates: U32
    previous: tuple[str | None, ...]
    files: U8


def _by_array(lost: Iterable[LostChunks]) -> list[_Cells]:
    groups: dict[bytes, list[LostChunks]] = {}
    for each in lost:
        groups.setdefault(each.node, []).append(each)
    return [
        _Cells(
            node,
            np.concatenate([each.coordinates for each in parts]),
            tuple(version for each in parts for version in each.previous),
            lost_files(parts),
        )
        for node, parts in groups.items()
    ]


def _metadata(lost: Iterable[LostChunks]) -> dict[str, Any]:
    """Return the metadata of the commit, which name the lost chunk files."""
    return {FRAZIL: {"repair": {"lost": sorted({each.key for each in lost})}}}


def _edit(workspace: Workspace, cells: _Cells, choice: LostChoice) -> int:
    """Change the references of one array that are still lost at the tip. Return their number."""
    path = _path_of(workspace.base, cells.node)
    if path is None:
        return 0
    table = workspace.chunks.ref_table(path)
    rows = table.find_chunks(cells.coordinates)
    at_tip = rows >= 0
    at_tip[at_tip] = is_lost(table.select_chunks(rows[at_tip]), cells.files)
    if choice == "fill":
        if at_tip.any():
            workspace.chunks.delete_refs(path, cells.coordinates[at_tip])
        return int(at_tip.sum())
    number = 0
    for version in dict.fromkeys(cells.previous):
        if version is not None:
            chosen = at_tip & np.fromiter((each == version for each in cells.previous), bool, len(rows))
            number += _take_over(workspace, path, id_from_text(version), cells, cells.coordinates[chosen])
    return number


def _take_over(workspace: Workspace, path: str, version: bytes, cells: _Cells, coordinates: U32) -> int:
    """Set references to the data that a version has. Return their number."""
    older = Workspace(workspace.context, version)
    older_path = _path_of(older.base, cells.node)
    if older_path is None or not len(coordinates):
        return 0
    table = older.chunks.ref_table(older_path)
    rows = table.find_chunks(coordinates)
    chosen = table.select_chunks(rows[rows >= 0])
    chosen = chosen.select_chunks(~is_lost(chosen, cells.files))
    if len(chosen):
        workspace.chunks.set_refs(path, chosen)
    return len(chosen)


def _path_of(nodes: NodeTable, node: bytes) -> str | None:
    ids = id_list(nodes.ids)
    return nodes.paths_list()[ids.index(node)] if node in ids else None


def lost_commits(context: Context, choice: LostChoice, lost: Sequence[LostChunks]) -> list[LostCommit]:
    """Return the commits for the branches whose tips need lost chunks."""
    if choice == "keep" or not lost:
        return []
    info = context.catalog.full_repo_info()
    commits: list[LostCommit] = []
    for name, tip in sorted(info.branches.items()):
        workspace = Workspace(context, tip)
        if any(_edit(workspace, each, choice) for each in _by_array(lost)):
            commits.append(LostCommit(name, choice, lost))
    return commits
