"""The files of a repository as plain dictionaries: the results of ``Repository.inspect_*``.

Times are text in ISO 8601, ids are text. A field that a file does not have has no key.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from frazil.format.envelope import Compression, FileType, open_envelope, parse_header
from frazil.format.ids import id_to_text, ids_to_text
from frazil.format.manifest import ChunkKind, Manifest, stored_locations
from frazil.format.nodes import ArrayData
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind
from frazil.format.snapshot import Node, Snapshot
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.repository.clock import to_datetime

#: A dictionary that JSON can hold.
Json = dict[str, Any]

_TYPES: Final = {
    FileType.SNAPSHOT: "snapshot",
    FileType.MANIFEST: "manifest",
    FileType.TRANSACTION_LOG: "transaction-log",
    FileType.REPO_INFO: "repo-info",
}
_KINDS: Final = {"inline": ChunkKind.INLINE, "native": ChunkKind.NATIVE, "virtual": ChunkKind.VIRTUAL}


def header_document(data: Any, file_type: FileType) -> Json:
    """Return the header of a file as a dictionary."""
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
    """Return a time in ISO 8601, with as many digits as it needs: none, three or six.

    >>> iso(1_700_000_000_120_000), iso(1_700_000_000_000_000)
    ('2023-11-14T22:13:20.120Z', '2023-11-14T22:13:20Z')
    """
    when: datetime = to_datetime(us).astimezone(UTC).replace(tzinfo=None)
    digits = "seconds" if us % 1_000_000 == 0 else "milliseconds" if us % 1000 == 0 else "microseconds"
    return when.isoformat(timespec=digits) + "Z"


def repo_info_document(info: RepoInfo) -> Json:
    """Return the contents of the file ``repo``, without its header."""
    rows = np.arange(len(info.snapshots))
    name = info.repo_before_updates
    before = {} if name is None else {"repo_before_updates": name}
    return {
        "spec_version": f"{info.spec_version}.0",
        "branches": {name: id_to_text(id_) for name, id_ in sorted(info.branches.items())},
        "tags": {name: id_to_text(id_) for name, id_ in sorted(info.tags.items())},
        "deleted_tags": sorted(info.deleted_tags),
        "snapshots": list(map(_snapshot_entry_document, info.snapshots.entries(rows))),
        "metadata": info.metadata,
        "latest_updates": list(map(_update_document, map(info.ops.entry, range(len(info.ops))))),
        **before,
    }


def _snapshot_entry_document(entry: SnapshotEntry) -> Json:
    parent = {} if entry.parent is None else {"parent_id": id_to_text(entry.parent)}
    return {
        "id": id_to_text(entry.id),
        **parent,
        "flushed_at": iso(entry.flushed_at),
        "message": entry.message,
        "metadata": entry.metadata,
    }


def _ref_details(entry: OpsEntry) -> Json:
    return {"name": entry.name}


def _moved_ref_details(entry: OpsEntry) -> Json:
    return {"name": entry.name, "previous_snap_id": id_to_text(entry.previous_snapshot or b"")}


def _detached_snapshot_details(entry: OpsEntry) -> Json:
    return {"new_snap_id": id_to_text(entry.new_snapshot or b"")}


def _commit_details(entry: OpsEntry) -> Json:
    return {"branch": entry.name, **_detached_snapshot_details(entry)}


def _amendment_details(entry: OpsEntry) -> Json:
    return {**_commit_details(entry), "previous_snap_id": id_to_text(entry.previous_snapshot or b"")}


def _migration_details(entry: OpsEntry) -> Json:
    before, after = entry.versions or (0, 0)
    return {"from_version": f"{before}.0", "to_version": f"{after}.0"}


def _flag_details(entry: OpsEntry) -> Json:
    id_, value, is_set = entry.flag or (0, False, False)
    return {"id": id_, "new_value": value if is_set else None}


def _status_details(entry: OpsEntry) -> Json:
    status = entry.status
    assert status is not None
    return {
        "status": {
            "availability": status.availability.name.title().replace("_", ""),
            "limited_availability_reason": status.reason,
            "set_at": iso(status.set_at),
        }
    }


def _no_details(entry: OpsEntry) -> Json:
    return {}


#: The name of each kind of update, and the function for its details.
_UPDATES: Final[dict[UpdateKind, tuple[str, Callable[[OpsEntry], Json]]]] = {
    UpdateKind.REPO_INITIALIZED: ("RepoInitializedUpdate", _no_details),
    UpdateKind.REPO_MIGRATED: ("RepoMigratedUpdate", _migration_details),
    UpdateKind.CONFIG_CHANGED: ("ConfigChangedUpdate", _no_details),
    UpdateKind.METADATA_CHANGED: ("MetadataChangedUpdate", _no_details),
    UpdateKind.TAG_CREATED: ("TagCreatedUpdate", _ref_details),
    UpdateKind.TAG_DELETED: ("TagDeletedUpdate", _moved_ref_details),
    UpdateKind.BRANCH_CREATED: ("BranchCreatedUpdate", _ref_details),
    UpdateKind.BRANCH_DELETED: ("BranchDeletedUpdate", _moved_ref_details),
    UpdateKind.BRANCH_RESET: ("BranchResetUpdate", _moved_ref_details),
    UpdateKind.NEW_COMMIT: ("NewCommitUpdate", _commit_details),
    UpdateKind.COMMIT_AMENDED: ("CommitAmendedUpdate", _amendment_details),
    UpdateKind.NEW_DETACHED_SNAPSHOT: ("NewDetachedSnapshotUpdate", _detached_snapshot_details),
    UpdateKind.GC_RAN: ("GCRanUpdate", _no_details),
    UpdateKind.EXPIRATION_RAN: ("ExpirationRanUpdate", _no_details),
    UpdateKind.FEATURE_FLAG_CHANGED: ("FeatureFlagChanged", _flag_details),
    UpdateKind.REPO_STATUS_CHANGED: ("RepoStatusChangedUpdate", _status_details),
}


def _update_document(entry: OpsEntry) -> Json:
    name, details = _UPDATES[entry.kind]
    backup = {} if entry.backup_path is None else {"backup_path": entry.backup_path}
    return {"update_type": {"type": name, **details(entry)}, "updated_at": iso(entry.updated_at), **backup}


def manifest_document(manifest: Manifest, data: Buffer, key: str) -> Json:
    """Return a manifest, with the header of its file ``data``."""
    kinds = {node: _count_kinds(table.kind) for node, table in manifest.arrays.items()}
    totals = sum(kinds.values(), np.zeros(len(ChunkKind), np.int64))
    uses_compression, dictionary, compressed = stored_locations(data, key)
    return {
        "id": id_to_text(manifest.id),
        "header": header_document(data, FileType.MANIFEST),
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
            "uses_location_compression": uses_compression,
            "num_compressed_refs": compressed,
            **({} if dictionary is None else {"dictionary_size_bytes": dictionary}),
        },
    }


def snapshot_document(snapshot: Snapshot) -> Json:
    """Return the contents of a snapshot, without the header of its file."""
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
        "nodes": list(map(_node_document, map(snapshot.nodes.node, range(len(snapshot.nodes))))),
    }


def _node_document(node: Node) -> Json:
    base = {"id": id_to_text(node.id), "path": node.path}
    if node.array is None:
        return {**base, "node_type": "group"}
    return {**base, "node_type": "array", **_array_document(node.array)}


def _array_document(array: ArrayData) -> Json:
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


def _count_kinds(kinds: Any) -> Any:
    return np.bincount(kinds, minlength=len(ChunkKind))


def transaction_log_document(log: TransactionLog) -> Json:
    """Return the contents of a transaction log, without the header of its file."""
    return {
        **{name: sorted(set(ids_to_text(getattr(log, name)))) for name in ID_LISTS},
        "updated_chunks": [
            {"node_id": id_to_text(node), "chunks": log.updated_chunks[node].tolist()}
            for node in sorted(log.updated_chunks)
        ],
        "moved_nodes": [{"from": move.source, "to": move.target} for move in log.moves],
    }
