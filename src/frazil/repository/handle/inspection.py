"""What the files of a repository say, as plain dictionaries: for looking at a repository, and for tests.

Each one begins with the ``header`` of the file that was read. Times are text in ISO 8601, ids are text; what
a file does not have has no key.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

import numpy as np

from frazil.changes.log import joined
from frazil.errors import ErrorKind, StorageError
from frazil.format.envelope import Compression, FileType, open_envelope, parse_header
from frazil.format.ids import id_from_text, id_to_text, ids_to_text
from frazil.format.keys import REPO
from frazil.format.manifest import ChunkKind, stored_locations
from frazil.format.nodes import ArrayData
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, decode_repo_info
from frazil.format.snapshot import Node, Snapshot
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import files_of
from frazil.repository.catalog.files import MANIFEST, SNAPSHOT, TRANSACTION_LOG
from frazil.repository.catalog.version_names import snapshot_id as named
from frazil.repository.clock import to_datetime

Json = dict[str, Any]

_COMPOSITE: Final = (
    "Synthetic composite: this snapshot's ancestry was collapsed by expiration; the log below merges its "
    "pruned-ancestor logs with its own log. `header` describes this snapshot's own log only."
)


class Inspection:
    """Methods of ``Repository``."""

    _context: Context

    def inspect_repo_info(self) -> Json:
        """Refs, snapshots and the newest updates, as the file ``repo`` has them.

        Keys: ``header``, ``spec_version``, ``branches``, ``tags``, ``deleted_tags``, ``snapshots``,
        ``metadata``, ``latest_updates``.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.inspect_repo_info()["branches"]
        {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        self._context.require_version_2()
        data = self._context.storage.get(REPO)
        return {"header": _header(data, FileType.REPO_INFO), **_repo_info(decode_repo_info(data, REPO))}

    def inspect_snapshot(self, snapshot_id: str) -> Json:
        """Nodes and manifests of a snapshot, as its file has them.

        Keys: ``id``, ``header``, ``flushed_at``, ``commit_message``, ``metadata``, ``manifests``, ``nodes``.
        Raises ``SnapshotNotFoundError`` for a snapshot that the repository does not have.
        """
        id_ = named(snapshot_id, self._context.catalog.repo_info)
        with files_of(self._context, id_):
            snapshot, data = SNAPSHOT.read_with_bytes(self._context.storage, id_)
        return {"header": _header(data, FileType.SNAPSHOT), **_snapshot(snapshot)}

    def inspect_manifest(self, manifest_id: str) -> Json:
        """How many references of which kind a manifest has, by array.

        Keys: ``id``, ``header``, ``size_bytes``, ``num_arrays``, ``total_chunk_refs``, ``total_inline``,
        ``total_native``, ``total_virtual``, ``arrays``, ``compression``. ``size_bytes`` is the size of what
        the file holds, before its compression. Raises ``StorageError``
        (``object-not-found``) where there is no such file.
        """
        id_ = id_from_text(manifest_id)
        manifest, data = MANIFEST.read_with_bytes(self._context.storage, id_)
        kinds = {node: _kinds(table.kind) for node, table in manifest.arrays.items()}
        totals = sum(kinds.values(), np.zeros(len(ChunkKind), np.int64))
        says_compressed, dictionary, compressed = stored_locations(data, MANIFEST.key(id_))
        return {
            "id": id_to_text(manifest.id),
            "header": _header(data, FileType.MANIFEST),
            "size_bytes": memoryview(open_envelope(data, FileType.MANIFEST)[1]).nbytes,
            "num_arrays": len(kinds),
            "total_chunk_refs": int(totals.sum()),
            **{f"total_{name}": int(totals[kind]) for name, kind in _KINDS.items()},
            "arrays": [
                {
                    "node_id": id_to_text(node),
                    "num_chunk_refs": int(counts.sum()),
                    **{f"num_{name}": int(counts[kind]) for name, kind in _KINDS.items()},
                }
                for node, counts in kinds.items()
            ],
            "compression": {
                "uses_location_compression": says_compressed,
                "num_compressed_refs": compressed,
                **({} if dictionary is None else {"dictionary_size_bytes": dictionary}),
            },
        }

    def inspect_transaction_log(self, snapshot_id: str) -> Json:
        """What one commit changed, by node ids.

        Keys: ``header``, ``new_groups``, ``new_arrays``, ``deleted_groups``, ``deleted_arrays``,
        ``updated_groups``, ``updated_arrays``, ``updated_chunks``, ``moved_nodes``; where expiration has
        collapsed the commits before it, these are all their changes together, and ``synthetic_composite``
        names the logs. Raises ``SnapshotNotFoundError`` for a snapshot that the repository does not have.
        """
        id_ = named(snapshot_id, self._context.catalog.repo_info)
        with files_of(self._context, id_):
            log, data = TRANSACTION_LOG.read_with_bytes(self._context.storage, id_)
        pruned = self._pruned_logs(id_)
        if not pruned:
            return {"header": _header(data, FileType.TRANSACTION_LOG), **_transaction_log(log)}
        there = {id_: older for id_, older in pruned.items() if older is not None}
        return {
            "header": _header(data, FileType.TRANSACTION_LOG),
            **_transaction_log(reduce(joined, [*there.values(), log])),
            "synthetic_composite": {
                "note": _COMPOSITE,
                "merged_pruned_ancestor_tx_logs": list(map(id_to_text, there)),
                "missing_tx_logs": [id_to_text(each) for each in pruned if each not in there],
            },
        }

    def _pruned_logs(self, id_: bytes) -> dict[bytes, TransactionLog | None]:
        """The logs of ancestors that were expired, oldest first; None where the file is gone."""
        if self._context.spec_version < 2:
            return {}
        snapshots = self._context.catalog.repo_info().snapshots
        row = snapshots.find_snapshot(id_)
        ids = snapshots.entry(row).pruned_ancestor_tx_logs if row >= 0 else ()
        return dict(zip(ids, map(self._log_if_there, ids), strict=True))

    def _log_if_there(self, id_: bytes) -> TransactionLog | None:
        try:
            return self._context.assets.transaction_log(id_)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None

    inspect_repo_info_async = awaitable(inspect_repo_info)
    inspect_snapshot_async = awaitable(inspect_snapshot)
    inspect_manifest_async = awaitable(inspect_manifest)
    inspect_transaction_log_async = awaitable(inspect_transaction_log)


_TYPES: Final = {
    FileType.SNAPSHOT: "snapshot",
    FileType.MANIFEST: "manifest",
    FileType.TRANSACTION_LOG: "transaction-log",
    FileType.REPO_INFO: "repo-info",
}
_KINDS: Final = {"inline": ChunkKind.INLINE, "native": ChunkKind.NATIVE, "virtual": ChunkKind.VIRTUAL}


def _header(data: Any, file_type: FileType) -> Json:
    header = parse_header(data, file_type)
    name, _, version = header.implementation.partition("-")
    return {
        "written_by": header.implementation,
        "app_name": name,
        "app_version": version,
        "spec_version": f"{header.spec_version}.0",
        "file_type": _TYPES[header.file_type],
        "compression": "zstd" if header.compression is Compression.ZSTD else "none",
    }


def iso(us: int) -> str:
    """A time in ISO 8601, with as many digits as it needs: none, three or six.

    >>> iso(1_700_000_000_120_000), iso(1_700_000_000_000_000)
    ('2023-11-14T22:13:20.120Z', '2023-11-14T22:13:20Z')
    """
    when: datetime = to_datetime(us).astimezone(UTC).replace(tzinfo=None)
    digits = "seconds" if us % 1_000_000 == 0 else "milliseconds" if us % 1000 == 0 else "microseconds"
    return when.isoformat(timespec=digits) + "Z"


def _repo_info(info: RepoInfo) -> Json:
    rows = np.arange(len(info.snapshots))
    name = info.repo_before_updates
    before = {} if name is None else {"repo_before_updates": name}
    return {
        "spec_version": f"{info.spec_version}.0",
        "branches": {name: id_to_text(id_) for name, id_ in sorted(info.branches.items())},
        "tags": {name: id_to_text(id_) for name, id_ in sorted(info.tags.items())},
        "deleted_tags": sorted(info.deleted_tags),
        "snapshots": list(map(_snapshot_entry, info.snapshots.entries(rows))),
        "metadata": info.metadata,
        "latest_updates": list(map(_update, map(info.ops.entry, range(len(info.ops))))),
        **before,
    }


def _snapshot_entry(entry: SnapshotEntry) -> Json:
    parent = {} if entry.parent is None else {"parent_id": id_to_text(entry.parent)}
    return {
        "id": id_to_text(entry.id),
        **parent,
        "flushed_at": iso(entry.flushed_at),
        "message": entry.message,
        "metadata": entry.metadata,
    }


def _named(entry: OpsEntry) -> Json:
    return {"name": entry.name}


def _left(entry: OpsEntry) -> Json:
    return {"name": entry.name, "previous_snap_id": id_to_text(entry.previous_snapshot or b"")}


def _made(entry: OpsEntry) -> Json:
    return {"new_snap_id": id_to_text(entry.new_snapshot or b"")}


def _committed(entry: OpsEntry) -> Json:
    return {"branch": entry.name, **_made(entry)}


def _amended(entry: OpsEntry) -> Json:
    return {**_committed(entry), "previous_snap_id": id_to_text(entry.previous_snapshot or b"")}


def _migrated(entry: OpsEntry) -> Json:
    before, after = entry.versions or (0, 0)
    return {"from_version": f"{before}.0", "to_version": f"{after}.0"}


def _flag(entry: OpsEntry) -> Json:
    id_, value, is_set = entry.flag or (0, False, False)
    return {"id": id_, "new_value": value if is_set else None}


def _status(entry: OpsEntry) -> Json:
    status = entry.status
    assert status is not None
    return {
        "status": {
            "availability": status.availability.name.title().replace("_", ""),
            "limited_availability_reason": status.reason,
            "set_at": iso(status.set_at),
        }
    }


def _nothing(entry: OpsEntry) -> Json:
    return {}


#: Name of each kind of update, and what else is told of it.
_UPDATES: Final[dict[UpdateKind, tuple[str, Callable[[OpsEntry], Json]]]] = {
    UpdateKind.REPO_INITIALIZED: ("RepoInitializedUpdate", _nothing),
    UpdateKind.REPO_MIGRATED: ("RepoMigratedUpdate", _migrated),
    UpdateKind.CONFIG_CHANGED: ("ConfigChangedUpdate", _nothing),
    UpdateKind.METADATA_CHANGED: ("MetadataChangedUpdate", _nothing),
    UpdateKind.TAG_CREATED: ("TagCreatedUpdate", _named),
    UpdateKind.TAG_DELETED: ("TagDeletedUpdate", _left),
    UpdateKind.BRANCH_CREATED: ("BranchCreatedUpdate", _named),
    UpdateKind.BRANCH_DELETED: ("BranchDeletedUpdate", _left),
    UpdateKind.BRANCH_RESET: ("BranchResetUpdate", _left),
    UpdateKind.NEW_COMMIT: ("NewCommitUpdate", _committed),
    UpdateKind.COMMIT_AMENDED: ("CommitAmendedUpdate", _amended),
    UpdateKind.NEW_DETACHED_SNAPSHOT: ("NewDetachedSnapshotUpdate", _made),
    UpdateKind.GC_RAN: ("GCRanUpdate", _nothing),
    UpdateKind.EXPIRATION_RAN: ("ExpirationRanUpdate", _nothing),
    UpdateKind.FEATURE_FLAG_CHANGED: ("FeatureFlagChanged", _flag),
    UpdateKind.REPO_STATUS_CHANGED: ("RepoStatusChangedUpdate", _status),
}


def _update(entry: OpsEntry) -> Json:
    name, told = _UPDATES[entry.kind]
    backup = {} if entry.backup_path is None else {"backup_path": entry.backup_path}
    return {"update_type": {"type": name, **told(entry)}, "updated_at": iso(entry.updated_at), **backup}


def _snapshot(snapshot: Snapshot) -> Json:
    files = snapshot.manifests
    columns = ids_to_text(files.ids), files.size_bytes.tolist(), files.num_chunk_refs.tolist()
    return {
        "id": id_to_text(snapshot.id),
        "flushed_at": iso(snapshot.flushed_at),
        "commit_message": snapshot.message,
        "metadata": snapshot.metadata,
        "manifests": [
            {"id": id_, "size_bytes": size, "num_chunk_refs": count}
            for id_, size, count in zip(*columns, strict=True)
        ],
        "nodes": list(map(_node, map(snapshot.nodes.node, range(len(snapshot.nodes))))),
    }


def _node(node: Node) -> Json:
    about = {"id": id_to_text(node.id), "path": node.path}
    if node.array is None:
        return {**about, "node_type": "group"}
    return {**about, "node_type": "array", **_array(node.array)}


def _array(array: ArrayData) -> Json:
    names = array.dimension_names or [None] * len(array.shape)
    return {
        "shape": [
            {**({} if name is None else {"name": name}), "array_length": length, "num_chunks": chunks}
            for name, length, chunks in zip(names, array.shape, array.num_chunks, strict=True)
        ],
        "manifest_refs": [
            {"id": id_to_text(ref.id), "extents": ref.extents.tolist()} for ref in array.manifests
        ],
    }


def _kinds(kinds: Any) -> Any:
    return np.bincount(kinds, minlength=len(ChunkKind))


def _transaction_log(log: TransactionLog) -> Json:
    return {
        **{name: sorted(set(ids_to_text(getattr(log, name)))) for name in ID_LISTS},
        "updated_chunks": [
            {"node_id": id_to_text(node), "chunks": log.updated_chunks[node].tolist()}
            for node in sorted(log.updated_chunks)
        ],
        "moved_nodes": [{"from": move.source, "to": move.target} for move in log.moves],
    }
