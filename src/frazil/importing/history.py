"""The history of an older repository: which snapshots there are, in which order, and who is whose parent.

*Which*: those that a file of a branch or a tag names, at whatever time, and their ancestors. Other snapshot
files are what commits left behind that lost a race.

*The initial snapshot* of the first versions says in its file that it has another id than its name. Children
quote the id inside. So parents are looked for by name first, and then by what files say of themselves.

*Times* rise from parent to child; where clocks did not keep that, a child is a microsecond later.
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

#: Which arrays use a manifest: (old node, rank) -> new ids.
Users = dict[tuple[NodeId, int], set[bytes]]


@dataclass(frozen=True, slots=True)
class Summary:
    """A snapshot without its nodes; ``file`` is the id that it is stored under."""

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
class Version:
    """A snapshot of the new repository. ``old_parent`` is the name of the parent's file."""

    summary: Summary
    id: bytes
    old_parent: bytes | None
    parent: bytes | None
    flushed_at: int

    @property
    def old_id(self) -> bytes:
        return self.summary.file


@dataclass(frozen=True, slots=True)
class History:
    """All versions by the names of their old files, parents before children."""

    versions: Mapping[bytes, Version]
    left_out: tuple[str, ...]

    def users(self) -> dict[bytes, Users]:
        """Which arrays use each manifest, in any snapshot."""
        out: dict[bytes, Users] = {}
        for version in self.versions.values():
            for manifest, users in version.summary.users.items():
                manifest_users = out.setdefault(manifest, {})
                for key, ids in users.items():
                    manifest_users.setdefault(key, set()).update(ids)
        return out


def read_history(source: Source, refs: Refs, ids: NewIds) -> History:
    """Raises ``StorageError`` (``object-not-found``) if the tip of a branch or a tag is not there."""
    newest = [sequence[-1] for sequence in refs.branches.values()]
    tips = {ref.snapshot for ref in (*newest, *refs.tags.values())}
    earlier = {ref.snapshot for sequence in refs.branches.values() for ref in sequence} - tips
    lost = sorted(id_ for id_ in earlier if not source.has_snapshot(id_))
    left_out = [f"snapshot {id_to_text(id_)}: a branch was on it once, but it has no file" for id_ in lost]
    summaries = _read(source, tips | earlier - set(lost))
    versions, missing = _ordered(summaries, ids)
    left_out += [f"snapshot {id_to_text(id_)}: an ancestor without a file" for id_ in sorted(missing)]
    # Of an earlier import in place, the new files are there as well.
    reached = {id_to_text(id_) for version in versions.values() for id_ in (version.old_id, version.id)}
    unreached = sorted(source.snapshot_files.keys() - reached)
    left_out += [f"snapshot {name}: no branch or tag ever reached it" for name in unreached]
    return History(versions, tuple(left_out))


def _read(source: Source, wanted: set[bytes]) -> dict[bytes, Summary]:
    """These snapshots and their ancestors, as far as there are files."""
    summaries: dict[bytes, Summary] = {}
    while wanted:
        for summary in in_parallel(partial(_summary, source), sorted(wanted)):
            summaries[summary.file] = summary
        quoted = {summary.quoted_parent for summary in summaries.values()} - {None}
        unknown = quoted - summaries.keys() - {summary.inner for summary in summaries.values()}
        wanted = {id_ for id_ in unknown if id_ is not None and source.has_snapshot(id_)}
        if unknown and not wanted:
            # Perhaps a file says it is this one, and is stored under another name.
            others = source.snapshot_files.keys() - {id_to_text(id_) for id_ in summaries}
            wanted = _named_inside(source, sorted(others), unknown)
    return summaries


def _named_inside(source: Source, names: list[str], unknown: Iterable[bytes | None]) -> set[bytes]:
    def inner(file: bytes) -> bytes | None:
        try:
            return source.snapshot(file).id
        except (FormatError, StorageError):
            return None  # nobody reaches it

    files = [file for file in map(name_to_id, names) if file is not None]
    inner_ids = zip(files, in_parallel(inner, files), strict=True)
    return {file for file, id_ in inner_ids if id_ is not None and id_ in set(unknown)}


def _summary(source: Source, file: bytes) -> Summary:
    snapshot = source.snapshot(file)
    users: dict[bytes, Users] = {}
    for node in snapshot.nodes:
        for ref in node.manifests or ():
            key = (node.id, node.rank)
            users.setdefault(ref.id, {}).setdefault(key, set()).add(new_node_id(node.id, node.path))
    return Summary(
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


def _ordered(summaries: Mapping[bytes, Summary], ids: NewIds) -> tuple[dict[bytes, Version], set[bytes]]:
    """Parents before children; and the ids of parents that are not there.

    ``FormatError`` if the ancestors of a snapshot form a cycle, or two get the same id.
    """
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
    out: dict[bytes, Version] = {}
    # Each child right after its parent where possible: then the parent's nodes are still at hand.
    pending = children.get(None, [])
    while pending:
        file = pending.pop()
        summary, parent = summaries[file], parents[file]
        before = -1 if parent is None else out[parent].flushed_at
        out[file] = Version(
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
