"""The plan of a repair: rounds of steps on an overlay, until a verification finds nothing to repair.

Damaged metadata hide damage of the files that they refer to. So each round verifies the overlay again, with
the repaired files of the rounds before. The plan is a rehearsal with the code of the repair itself.

A file that the storage does not return may be good. The plan leaves it as it is, and its finding remains.
Then the plan has no lost chunks, because the file may refer to others. An error of the storage
that leaves no finding ends the plan.

A repair makes commits only if the caller asks for them. A lost chunk gets the reference of the newest version
with other data (``previous``), or missing values (``fill``). Readers decode the fill value of zarr as a
value, mostly 0, unless an attribute says that it means a missing value. So ``fill`` stores a chunk of the
element that means a missing value, if it is another one than the fill value. An array without such an element
reads its fill value, and the plan says so. Earlier versions still have the damaged reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.display import counted
from frazil.format.chunk_table import within
from frazil.format.columns import U8, U32
from frazil.format.ids import CHUNKS, id_from_text, id_keys, id_list, id_matrix, id_to_text, is_id_text
from frazil.format.manifest import ChunkKind, ChunkTable, NativeRef
from frazil.format.nodes import Node, NodeTable
from frazil.maintenance.repair.copies import FileSearch, RepairContext, Step, users_of_files
from frazil.maintenance.repair.repair_plan import (
    DetachedSnapshot,
    LostChoice,
    LostChunks,
    RepairPlan,
    RepairStep,
)
from frazil.maintenance.repair.repo_file import (
    config_step,
    is_version_1,
    relist_steps,
    require_copies,
    restore_step,
)
from frazil.maintenance.repair.storages import Overlay
from frazil.maintenance.verification.findings import Finding, VerifyLevel
from frazil.maintenance.verification.plan import verify
from frazil.repository.catalog.ancestry import FRAZIL
from frazil.repository.catalog.collection_guard import SessionStart
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.catalog.repo_update import newest_update
from frazil.repository.clock import now_us
from frazil.repository.session.commit import write_commit
from frazil.repository.session.commit_files import COMMIT, PendingCommit
from frazil.repository.session.session import reading
from frazil.repository.session.workspace import Workspace
from frazil.storage.base import Storage
from frazil.storage.checks import skip_damage
from frazil.survey.columns import among

_WORDS: Final = {"fill": "the missing value of each array", "previous": "the data of an older version"}


def lost_chunks(
    context: Context, findings: Iterable[Finding], paths: Mapping[bytes, str]
) -> list[LostChunks]:
    """Return the chunks with findings about their chunk files."""
    groups: dict[tuple[str, bytes], list[Finding]] = {}
    for each in findings:
        folder, _, name = each.key.partition("/")
        if folder == CHUNKS and is_id_text(name) and len(each.offsets):
            groups.setdefault((each.key, each.node), []).append(each)
    if not groups:
        return []
    ids = {key: _id_of(key) for key, _ in groups}
    versions, _, users = users_of_files(context, id_matrix(list(ids.values())))
    needing = {
        key: tuple(map(id_to_text, reversed(id_list(versions.users(id_matrix(users.get(id_, [])))))))
        for key, id_ in ids.items()
    }
    lost: list[LostChunks] = []
    for (key, node), parts in groups.items():
        cells = np.concatenate([each.coordinates for each in parts])
        offsets = np.concatenate([each.offsets for each in parts])
        pairs = np.column_stack((cells.astype(np.uint64), offsets))
        _, rows = np.unique(pairs, axis=0, return_index=True)
        lost.append(LostChunks(key, paths.get(node), node, cells[rows], needing[key], (), offsets[rows]))
    ranges = lost_ranges(lost)
    newest_first = list(reversed(id_list(versions.ids)))
    previous: dict[bytes, list[str | None]] = {}
    for node in {each.node for each in lost}:
        cells = np.concatenate([each.coordinates for each in lost if each.node == node])
        previous[node] = _previous(context, newest_first, node, cells, ranges)
    answer: list[LostChunks] = []
    for chunks in lost:
        count = len(chunks.coordinates)
        answer.append(replace(chunks, previous=tuple(previous[chunks.node][:count])))
        del previous[chunks.node][:count]
    return answer


def _id_of(key: str) -> bytes:
    return id_from_text(key.rpartition("/")[2])


def _previous(
    context: Context, newest_first: Sequence[bytes], node: bytes, cells: U32, ranges: U8
) -> list[str | None]:
    """Return for each chunk of an array the newest version that has other, readable data for it."""
    answer: list[str | None] = [None] * len(cells)
    waiting = np.ones(len(cells), bool)
    good_in: dict[bytes, NDArray[np.bool_]] = {}
    for version in newest_first:
        if not waiting.any():
            break
        with skip_damage():  # there is a finding for the snapshot
            nodes = context.assets.snapshot(version).nodes
            path = _path_of(nodes, node)
            array = None if path is None else nodes.node(nodes.find_node(path)).array
            for ref in () if array is None else array.manifests:
                box = np.array(ref.extents, np.uint64)
                if len(box) != cells.shape[1]:
                    continue
                inside = waiting & ((cells >= box[:, 0]) & (cells < box[:, 1])).all(axis=1)
                if inside.any():
                    if ref.id not in good_in:
                        good_in[ref.id] = _good_at(context, ref.id, node, cells, ranges)
                    inside &= good_in[ref.id]
                    for row in np.flatnonzero(inside).tolist():
                        answer[row] = id_to_text(version)
                    waiting &= ~inside
    return answer


def _good_at(context: Context, manifest: bytes, node: bytes, cells: U32, ranges: U8) -> NDArray[np.bool_]:
    """Return which chunks have a reference to readable data in a manifest."""
    good = np.zeros(len(cells), bool)
    with skip_damage():
        table = context.assets.manifest(manifest).arrays.get(node)
        if table is not None:
            rows = table.find_chunks(cells)
            good[rows >= 0] = ~is_lost(table.select_chunks(rows[rows >= 0]), ranges)
    return good


def is_lost(table: ChunkTable, ranges: U8) -> NDArray[np.bool_]:
    """Return which references of a table point to one of the lost ranges."""
    native = table.kind == ChunkKind.NATIVE
    hit = np.zeros(len(table), bool)
    ids = table.chunk_ids[table.source[native]]
    hit[native] = among(_ranges(ids, table.offset[native]), ranges)
    return hit


def lost_ranges(lost: Iterable[LostChunks]) -> U8:
    """Return the ranges of lost chunks: the id of the file and the offset of each, uint8 (n, 20)."""
    return np.concatenate(
        [
            _ranges(np.tile(np.frombuffer(_id_of(each.key), np.uint8), (len(each.offsets), 1)), each.offsets)
            for each in lost
        ]
    )


def _ranges(ids: U8, offsets: NDArray[np.uint64]) -> U8:
    return np.hstack((ids, offsets.astype(">u8").view(np.uint8).reshape(len(offsets), 8)))


# Commits without lost chunks


def lost_commits(repair: RepairContext, choice: LostChoice, lost: Sequence[LostChunks]) -> Iterator[Step]:
    """Make the commits for the branches whose tips need lost chunks, and yield their steps.

    A branch whose tip has another damaged file that the commit must read is left out.
    """
    if choice == "keep" or not lost:
        return
    keys = tuple(dict.fromkeys(each.key for each in lost))
    for name in sorted(repair.context.catalog.full_repo_info().branches):
        commit = partial(_commit, branch=name, choice=choice, lost=lost)
        effects: list[str] = []
        with skip_damage():
            effects = commit(repair)
        if effects:
            why = f"the tip of branch `{name}` needs the lost chunks, and the caller asks for this commit"
            why = "; ".join([why, *effects])
            yield Step(RepairStep("commit", keys, _WORDS[choice], why, "consistent"), commit)


def _commit(repair: RepairContext, branch: str, choice: LostChoice, lost: Sequence[LostChunks]) -> list[str]:
    """Commit without the lost chunks of the tip. Return what cells read afterwards, nothing for no chunk."""
    context = repair.context
    since = now_us()
    info = context.catalog.repo_info()
    workspace = Workspace(context, branch_tip(info, branch))
    edits = [_edit(workspace, node, lost, choice) for node in dict.fromkeys(each.node for each in lost)]
    number = sum(count for count, _ in edits)
    if number:
        write_commit(
            PendingCommit(
                context,
                COMMIT,
                branch,
                workspace.snapshot,
                workspace.durable_changes(),
                f"repair: {counted(number, 'lost chunk')} with {_WORDS[choice]}",
                {**repair.metadata, FRAZIL: {"repair": {"lost": sorted({each.key for each in lost})}}},
                SessionStart(newest_update(info), since),
                workspace.writer,
            )
        )
    return [effect for count, effect in edits if count]


def _edit(
    workspace: Workspace, id_: bytes, lost: Sequence[LostChunks], choice: LostChoice
) -> tuple[int, str]:
    """Change the references of one array that are still lost at the tip.

    Returns their number, and what the cells read afterwards.
    """
    parts = [each for each in lost if each.node == id_]
    cells, ranges = np.concatenate([each.coordinates for each in parts]), lost_ranges(parts)
    path = _path_of(workspace.base, id_)
    node = None if path is None else workspace.base.node(workspace.base.find_node(path))
    if node is None or node.array is None:
        return 0, ""
    at_tip = within(cells, node.array.num_chunks)
    at_tip[at_tip] = is_lost(workspace.refs_at(node.path, cells[at_tip]), ranges)
    index, first = np.unique(cells[at_tip], axis=0, return_index=True)
    if not len(index):
        return 0, ""
    if choice == "fill":
        return len(index), f"{counted(len(index), 'chunk')} of {node.path} {_fill(workspace, node, index)}"
    versions = [version for each in parts for version in each.previous]
    previous = np.array(versions, object)[at_tip][first]
    number = 0
    for version in dict.fromkeys(previous.tolist()):
        if version is not None:
            older = Workspace(workspace.context, id_from_text(version))
            older_path = _path_of(older.base, id_)
            if older_path is not None:
                refs = older.refs_at(older_path, index[previous == version]).stored()
                refs = refs.select_chunks(~is_lost(refs, ranges))
                number += len(refs)
                if len(refs):
                    workspace.set_refs(node.path, refs)
    return number, f"{counted(number, 'chunk')} of {node.path} read the data of an older version"


def _fill(workspace: Workspace, node: Node, index: U32) -> str:
    """Set references to chunks of missing values, or delete references if the fill value is the best."""
    decoder = reading(workspace).store.chunk_decoder(node.path)
    element = decoder.missing_element()
    if element is None:
        workspace.set_refs(node.path, ChunkTable.from_absent(index))
        fill = json.loads(node.user_data).get("fill_value")
        return f"read {fill}, because nothing marks missing values there"
    # One chunk of each shape is stored. Chunks of a regular grid have one shape.
    edges = chunk_lengths(node.user_data)
    shapes = [
        np.broadcast_to(np.asarray(edge)[at] if isinstance(edge, list) else edge, len(at))
        for edge, at in zip(edges, index.T, strict=True)
    ]
    table = np.array(shapes, np.int64).T.reshape(len(index), len(edges))
    _, first, shape_of = np.unique(table, axis=0, return_index=True, return_inverse=True)
    for number, row in enumerate(first.tolist()):
        chosen = index[shape_of.reshape(-1) == number]
        data = decoder.encoded(tuple(index[row].tolist()), element)
        ref = workspace.store_bytes(data) if data else None
        if not data:  # the chunk has only the fill value
            refs = ChunkTable.from_absent(chosen)
        elif isinstance(ref, NativeRef):
            refs = ChunkTable.from_native(chosen, id_matrix([ref.chunk_id]), 0, ref.offset, ref.length)
        else:
            refs = ChunkTable.from_inline(chosen, [data] * len(chosen))
        workspace.set_refs(node.path, refs)
    return "read as missing values"


def _path_of(nodes: NodeTable, node: bytes) -> str | None:
    ids = id_keys(nodes.ids)
    rows = np.flatnonzero(ids == np.frombuffer(node, ids.dtype)[0])
    return nodes.paths.text(int(rows[0])) if len(rows) else None


#: Each round repairs a kind of files that others refer to: repo, snapshots, manifests, chunks. One more
#: round is for each copy that turns out to be damaged.
_ROUNDS: Final = 16


def repair_plan(
    storage: Storage,
    open_context: Callable[[Storage], Context],
    *,
    copies: Sequence[Storage] = (),
    level: VerifyLevel = "exists",
    lost: LostChoice = "keep",
) -> RepairPlan:
    """Return the plan of a repair. It changes no file. ``open_context`` opens a repository."""
    require_copies(storage, copies)
    repair = RepairContext(Overlay(storage), open_context)
    steps: list[Step] = []
    detached: tuple[DetachedSnapshot, ...] = ()
    if is_version_1(storage, copies):
        if (config := config_step(storage, copies)) is not None:
            config.perform(repair)
            steps.append(config)
    elif (restored := restore_step(storage, copies)) is not None:
        restore, info = restored
        restore.perform(repair)
        relists, detached = relist_steps(repair, info)
        steps += [restore, *relists]
    search = FileSearch(storage, copies)
    damage = verify(repair.context, level)
    for _ in range(_ROUNDS):
        new = search.steps(repair, damage.problems)
        if not new:
            break
        for step in new:
            step.perform(repair)
        steps += new
        damage = verify(repair.context, level)
    chunks = []
    if not any(each.check == "unavailable" for each in damage.problems):
        chunks = lost_chunks(repair.context, damage.problems, damage.paths)
        steps += lost_commits(repair, lost, chunks)

    def apply(metadata: Mapping[str, Any]) -> str:
        """Make the steps, and return the prefix of the files that were put aside."""
        repair = RepairContext(storage, open_context, metadata)
        for step in steps:
            step.perform(repair)
        return repair.quarantine.prefix

    shown = tuple(step.shown for step in steps)
    return RepairPlan(storage.label(), shown, tuple(chunks), detached, damage.problems, perform=apply)
