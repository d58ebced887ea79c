"""The history of an older repository: its snapshots, their order and their parents.

**Snapshots.** The import reads all snapshots that a file of a branch or tag ever named, and their ancestors.
Other snapshot files belong to commits that were never on a branch, because another commit was faster.

**Initial snapshot.** In the first versions, the file of the initial snapshot contains another id than its
name. Children refer to the id in the file. Therefore parents are searched first by name, then by the id
in the file.

**Times** increase from parent to child. If the clocks did not, a child is one microsecond later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.older.elements import NodeId, OldSnapshot
from frazil.format.older.refs import name_to_id
from frazil.importing.ids import NewIds, new_node_id
from frazil.importing.source import Refs, Source, in_parallel

#: The arrays that use a manifest: (old node, number of dimensions) -> new ids.
Users = dict[tuple[NodeId, int], set[bytes]]


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A snapshot without its nodes. ``file`` is the id in the name of its file."""

    file: bytes
    inner: bytes
    quoted_parent: bytes | None
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    arrays: frozenset[bytes]
    groups: frozenset[bytes]
    users: Mapping[bytes, Users]
    without_attributes: tuple[str, ...]
    total_parents: int | None
    unplaced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportedVersion:
    """A snapshot of the new repository. ``old_parent`` is the id in the name of the parent's file."""

    summary: SnapshotSummary
    id: bytes
    old_parent: bytes | None
    parent: bytes | None
    flushed_at: int

    @property
    def old_id(self) -> bytes:
        """The id in the name of the old file."""
        return self.summary.file


@dataclass(frozen=True, slots=True)
class ImportedHistory:
    """All versions by the names of their old files, parents before children."""

    versions: Mapping[bytes, ImportedVersion]
    left_out: tuple[str, ...]

    def users(self) -> dict[bytes, Users]:
        """Return the arrays that use each manifest, in any snapshot."""
        out: dict[bytes, Users] = {}
        for version in self.versions.values():
            for manifest, users in version.summary.users.items():
                manifest_users = out.setdefault(manifest, {})
                for key, ids in users.items():
                    manifest_users.setdefault(key, set()).update(ids)
        return out


def read_history(source: Source, refs: Refs, ids: NewIds) -> ImportedHistory:
    """Read the history of a repository."""
    newest = [sequence[-1] for sequence in refs.branches.values()]
    tips = {ref.snapshot for ref in (*newest, *refs.tags.values())}
    earlier = {ref.snapshot for sequence in refs.branches.values() for ref in sequence} - tips
    lost = sorted(id_ for id_ in earlier if not source.has_snapshot(id_))
    left_out = [
        f"snapshot {id_to_text(id_)}: a branch once had it as its tip, but it has no file" for id_ in lost
    ]
    summaries = _read(source, tips | earlier - set(lost))
    versions, missing = _ordered(summaries, ids)
    left_out += [f"snapshot {id_to_text(id_)}: an ancestor without a file" for id_ in sorted(missing)]
    # After an earlier import in place, the new files are listed, too.
    reached = {id_to_text(id_) for version in versions.values() for id_ in (version.old_id, version.id)}
    unreached = sorted(source.snapshot_files.keys() - reached)
    left_out += [f"snapshot {name}: no branch or tag ever reached it" for name in unreached]
    return ImportedHistory(versions, tuple(left_out))


def _read(source: Source, wanted: set[bytes]) -> dict[bytes, SnapshotSummary]:
    """Return these snapshots and their ancestors, as far as they have files."""
    summaries: dict[bytes, SnapshotSummary] = {}
    while wanted:
        for summary in in_parallel(partial(_summary, source), sorted(wanted)):
            summaries[summary.file] = summary
        quoted = {summary.quoted_parent for summary in summaries.values()} - {None}
        unknown = quoted - summaries.keys() - {summary.inner for summary in summaries.values()}
        wanted = {id_ for id_ in unknown if id_ is not None and source.has_snapshot(id_)}
        if unknown and not wanted:
            # The file may have another name than the id inside.
            others = source.snapshot_files.keys() - {id_to_text(id_) for id_ in summaries}
            wanted = _named_inside(source, sorted(others), unknown)
    return summaries


def _named_inside(source: Source, names: list[str], unknown: Iterable[bytes | None]) -> set[bytes]:
    def inner(file: bytes) -> bytes | None:
        try:
            return source.snapshot(file).id
        except (FormatError, StorageError):
            return None  # no snapshot has it as its ancestor

    files = [file for file in map(name_to_id, names) if file is not None]
    inner_ids = zip(files, in_parallel(inner, files), strict=True)
    return {file for file, id_ in inner_ids if id_ is not None and id_ in set(unknown)}


def _summary(source: Source, file: bytes) -> SnapshotSummary:
    snapshot = source.snapshot(file)
    users: dict[bytes, Users] = {}
    for node in snapshot.nodes:
        for ref in node.manifests or ():
            key = (node.id, node.rank)
            users.setdefault(ref.id, {}).setdefault(key, set()).add(new_node_id(node.id, node.path))
    return SnapshotSummary(
        file,
        snapshot.id,
        snapshot.parent,
        snapshot.flushed_at,
        snapshot.message,
        snapshot.metadata,
        _ids(snapshot, arrays=True),
        _ids(snapshot, arrays=False),
        users,
        tuple(node.path for node in snapshot.nodes if node.attributes_elsewhere),
        snapshot.total_parents,
        snapshot.unplaced,
    )


def _ids(snapshot: OldSnapshot, *, arrays: bool) -> frozenset[bytes]:
    return frozenset(
        new_node_id(node.id, node.path) for node in snapshot.nodes if (node.manifests is not None) == arrays
    )


def _ordered(
    summaries: Mapping[bytes, SnapshotSummary], ids: NewIds
) -> tuple[dict[bytes, ImportedVersion], set[bytes]]:
    """Return versions with parents before children, and the ids of missing parents."""
    by_inner = {summary.inner: file for file, summary in summaries.items()}
    parents: dict[bytes, bytes | None] = {}
    children: dict[bytes | None, list[bytes]] = {}
    missing: set[bytes] = set()
    for file, summary in sorted(summaries.items()):
        quoted = summary.quoted_parent
        parent = quoted if quoted is None or quoted in summaries else by_inner.get(quoted)
        if quoted is not None and parent is None:
            missing.add(quoted)
        parents[file] = parent
        children.setdefault(parent, []).append(file)
    out: dict[bytes, ImportedVersion] = {}
    # A child follows its parent if possible, because the parent's nodes are then still cached.
    pending = children.get(None, [])
    while pending:
        file = pending.pop()
        summary, parent = summaries[file], parents[file]
        before = -1 if parent is None else out[parent].flushed_at
        out[file] = ImportedVersion(
            summary,
            ids.snapshot(file),
            parent,
            None if parent is None else out[parent].id,
            max(summary.flushed_at, before + 1),
        )
        pending += children.get(file, [])
    if len(out) < len(summaries):
        left = id_to_text(min(summaries.keys() - out.keys()))
        raise FormatError(f"snapshot {left}: its ancestors form a cycle", ErrorKind.DESERIALIZATION)
    if len({version.id for version in out.values()}) < len(out):
        raise FormatError("two snapshots have the same id", ErrorKind.DUPLICATE_SNAPSHOT_ID)
    return out, missing
