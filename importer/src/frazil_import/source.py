"""Reads an older repository: its refs, its files by id, and its history.

Ids of 12 bytes are kept, so that users find a snapshot by the id that they know, except in place, where new
files would overwrite the old ones. Other ids are hashed, always in the same way, so that a repeated import
writes the same files. The initial snapshot of the first versions has another id inside than its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.ids import CONFIG, MANIFESTS, OBJECT_ID_BYTES, SNAPSHOTS, id_to_text
from frazil.repository.catalog.assets import require_id
from frazil.repository.settings.config_yaml import load_config
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded
from frazil_import.generations import (
    FolderLayout,
    NodeId,
    OldLog,
    OldManifest,
    OldRef,
    OldSnapshot,
    decode_ref,
    described,
    name_to_id,
    ref_files,
)
from frazil_import.manifest import decode_old_log, decode_old_manifest, short_id
from frazil_import.snapshot import decode_old_snapshot, format_signs


@dataclass(frozen=True, slots=True)
class NewIds:
    """Converts old ids to new ids."""

    in_place: bool

    def snapshot(self, old: bytes) -> bytes:
        """Return the new id of a snapshot, 12 bytes."""
        return self._object(SNAPSHOTS, old)

    def manifest(self, old: bytes, variant: int = 0) -> bytes:
        """Return the new id of a manifest. ``variant`` counts the new files of one old manifest."""
        id_ = self._object(MANIFESTS, old)
        return id_ if not variant else _hash(id_ + bytes([variant]))

    def _object(self, folder: str, old: bytes) -> bytes:
        if self.in_place and len(old) == OBJECT_ID_BYTES:
            return _hash(f"{folder}/".encode() + old)
        return short_id(old)


def new_node_id(old: NodeId, path: str) -> bytes:
    """Return the new id of a node."""
    if isinstance(old, bytes):
        return old
    return hashlib.sha256(path.encode()).digest()[:4] + old.to_bytes(4)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:OBJECT_ID_BYTES]


@dataclass(frozen=True, slots=True)
class OlderRefs:
    """The refs of an older repository.

    Attributes:
        branches: Name -> content of each of its files, oldest first.
        tags: Name -> content of its file.
        deleted_tags: Names of deleted tags.
    """

    branches: dict[str, list[OldRef]] = field(default_factory=dict)
    tags: dict[str, OldRef] = field(default_factory=dict)
    deleted_tags: frozenset[str] = frozenset()


class Source:
    """The files of an older repository. It writes nothing, and threads may share it."""

    def __init__(self, storage: Storage, layout: FolderLayout) -> None:
        self.storage = storage
        self.layout = layout
        self._listed: dict[str, dict[str, str]] = {}

    def generation(self, tip: bytes) -> str:
        """Return the format of the repository in words, which the snapshot ``tip`` shows."""
        key = self.files(self.layout.snapshots)[id_to_text(tip)]
        has_config = self.storage.head(CONFIG) is not None
        return described(self.layout, format_signs(self.storage.get(key), key, self.layout, has_config))

    def refs(self) -> OlderRefs:
        """Return all refs.

        This reads a file for every commit, because only these files contain the history of a branch.
        """
        keys = [info.key for info in self.storage.list(self.layout.refs)]
        files = ref_files(keys, self.layout, encoded=self.storage.encodes_names())
        ref_keys = [*files.tags.values()]
        for sequence in files.branches.values():
            ref_keys += sequence.values()
        contents = dict(zip(ref_keys, in_parallel(self._ref, ref_keys), strict=True))
        return OlderRefs(
            {
                name: [contents[sequence[number]] for number in sorted(sequence)]
                for name, sequence in files.branches.items()
            },
            {name: contents[key] for name, key in files.tags.items()},
            frozenset(files.deleted_tags),
        )

    def has_snapshot(self, id_: bytes) -> bool:
        """Return whether a snapshot has a file."""
        return id_to_text(id_) in self.files(self.layout.snapshots)

    def snapshot(self, id_: bytes) -> OldSnapshot:
        """Return a snapshot."""
        name, folder = id_to_text(id_), self.layout.snapshots
        key = self.files(folder).get(name)
        if key is None:
            raise StorageError(f"object '{folder}/{name}' not found", ErrorKind.OBJECT_NOT_FOUND)
        snapshot = decode_old_snapshot(self.storage.get(key), key, self.layout)
        # The first versions wrote another id into the file of the initial snapshot.
        if snapshot.parent is not None:
            require_id(key, "snapshot", id_, snapshot.id)
        return snapshot

    def manifest(self, id_: bytes) -> OldManifest:
        """Return a manifest, which must have a file."""
        key = self.files(self.layout.manifests)[id_to_text(id_)]
        manifest = decode_old_manifest(self.storage.get(key), key, self.layout)
        if manifest.id is not None:
            require_id(key, "manifest", id_, manifest.id)
        return manifest

    def log(self, snapshot: bytes) -> OldLog | None:
        """Return the transaction log of a snapshot, or None. Formats before M2 have no logs."""
        key = self.files(self.layout.transactions).get(id_to_text(snapshot))
        return None if key is None else decode_old_log(self.storage.get(key), key)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The content of ``config.yaml``, or an empty dictionary."""
        return {} if self.storage.head(CONFIG) is None else load_config(self.storage.get(CONFIG))

    def files(self, folder: str | None) -> dict[str, str]:
        """Return the keys of the files of a folder, if the format has it, by their ids as text."""
        if folder is None:
            return {}
        if folder not in self._listed:
            keys = [info.key.removeprefix(f"{folder}/") for info in self.storage.list(folder)]
            named: dict[str, str] = {}
            for suffix in reversed(self.layout.suffixes):
                names = [key.removesuffix(suffix) for key in keys if key.endswith(suffix)]
                named |= {name: f"{folder}/{name}{suffix}" for name in names if name_to_id(name) is not None}
            self._listed[folder] = named
        return self._listed[folder]

    def _ref(self, key: str) -> OldRef:
        return decode_ref(self.storage.get(key), key)


def in_parallel[A, B](work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Call ``work`` for items that mostly wait for the storage. Return the results in order."""
    return map_bounded(Purpose.FILE_COPIES, work, items)


#: The arrays that use a manifest: (old node, number of dimensions) -> new ids.
Users = dict[tuple[NodeId, int], set[bytes]]


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A snapshot without its nodes. ``file`` is the id in the name of its file."""

    file: bytes
    snapshot: OldSnapshot
    arrays: frozenset[bytes]
    groups: frozenset[bytes]
    users: Mapping[bytes, Users]
    without_attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportedVersion:
    """A snapshot of the new repository. ``old_parent`` is the id in the name of the parent's file."""

    summary: SnapshotSummary
    id: bytes
    old_parent: bytes | None
    parent: bytes | None
    flushed_at: int


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


def read_history(source: Source, refs: OlderRefs, ids: NewIds) -> ImportedHistory:
    """Read the history of a repository."""
    newest = [sequence[-1] for sequence in refs.branches.values()]
    tips = {ref.snapshot for ref in (*newest, *refs.tags.values())}
    earlier = {ref.snapshot for sequence in refs.branches.values() for ref in sequence} - tips
    lost = sorted(id_ for id_ in earlier if not source.has_snapshot(id_))
    left_out = [
        f"snapshot {id_to_text(id_)}: a branch once had it as its tip, but it has no file" for id_ in lost
    ]
    summaries = _read(source, tips | earlier - set(lost))
    by_inner = {summary.snapshot.id: file for file, summary in summaries.items()}
    parents: dict[bytes, bytes | None] = {}
    children: dict[bytes | None, list[bytes]] = {}
    missing: set[bytes] = set()
    for file, summary in sorted(summaries.items()):
        quoted = summary.snapshot.parent
        parent = quoted if quoted is None or quoted in summaries else by_inner.get(quoted)
        if quoted is not None and parent is None:
            missing.add(quoted)
        parents[file] = parent
        children.setdefault(parent, []).append(file)
    versions: dict[bytes, ImportedVersion] = {}
    # A child follows its parent if possible, because the parent's nodes are then still cached.
    pending = children.get(None, [])
    while pending:
        file = pending.pop()
        summary, parent = summaries[file], parents[file]
        before = -1 if parent is None else versions[parent].flushed_at
        versions[file] = ImportedVersion(
            summary,
            ids.snapshot(file),
            parent,
            None if parent is None else versions[parent].id,
            max(summary.snapshot.flushed_at, before + 1),
        )
        pending += children.get(file, [])
    if len(versions) < len(summaries):
        left = id_to_text(min(summaries.keys() - versions.keys()))
        raise FormatError(f"snapshot {left}: its ancestors form a cycle")
    if len({version.id for version in versions.values()}) < len(versions):
        raise FormatError("two snapshots have the same id", ErrorKind.DUPLICATE_SNAPSHOT_ID)
    left_out += [f"snapshot {id_to_text(id_)}: an ancestor without a file" for id_ in sorted(missing)]
    # After an earlier import in place, the new files are listed, too.
    reached = {id_to_text(id_) for version in versions.values() for id_ in (version.summary.file, version.id)}
    unreached = sorted(source.files(source.layout.snapshots).keys() - reached)
    left_out += [f"snapshot {name}: no branch or tag ever reached it" for name in unreached]
    return ImportedHistory(versions, tuple(left_out))


def _read(source: Source, ids: set[bytes]) -> dict[bytes, SnapshotSummary]:
    """Return these snapshots and their ancestors, as far as they have files."""
    summaries: dict[bytes, SnapshotSummary] = {}
    while ids:
        for summary in in_parallel(partial(_summary, source), sorted(ids)):
            summaries[summary.file] = summary
        quoted = {summary.snapshot.parent for summary in summaries.values()} - {None}
        unknown = quoted - summaries.keys() - {summary.snapshot.id for summary in summaries.values()}
        ids = {id_ for id_ in unknown if id_ is not None and source.has_snapshot(id_)}
        if unknown and not ids:
            # The file may have another name than the id inside.
            others = source.files(source.layout.snapshots).keys() - {id_to_text(id_) for id_ in summaries}
            ids = _named_inside(source, sorted(others), unknown)
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
    kinds = [(new_node_id(node.id, node.path), node.manifests is not None) for node in snapshot.nodes]
    for node in snapshot.nodes:
        for ref in node.manifests or ():
            key = (node.id, node.rank)
            users.setdefault(ref.id, {}).setdefault(key, set()).add(new_node_id(node.id, node.path))
    return SnapshotSummary(
        file,
        replace(snapshot, nodes=()),
        frozenset(id_ for id_, is_array in kinds if is_array),
        frozenset(id_ for id_, is_array in kinds if not is_array),
        users,
        tuple(node.path for node in snapshot.nodes if node.attributes_elsewhere),
    )
