"""The methods ``Repository.inspect_*``: the contents of the repository's files, for people and for tests.

Times are text in ISO 8601, ids are text. A field that a file does not have has no key.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

import numpy as np

from frazil.changes.diff import joined
from frazil.errors import ErrorKind, StorageError
from frazil.format.envelope import Compression, FileType, open_envelope, parse_header
from frazil.format.ids import REPO, id_from_text, id_to_text, ids_to_text
from frazil.format.joined_files import stored_locations
from frazil.format.manifest import ChunkKind, Manifest
from frazil.format.nodes import ArrayData
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotEntry, UpdateKind, decode_repo_info
from frazil.format.snapshot import Node, Snapshot
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.assets import MANIFEST, SNAPSHOT, TRANSACTION_LOG
from frazil.repository.catalog.context import files_of
from frazil.repository.catalog.repo_requirements import snapshot_id as resolve_id
from frazil.repository.clock import to_datetime
from frazil.repository.handle.base import RepositoryBase

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


_COMPOSITE: Final = (
    "Synthetic composite: this snapshot's ancestry was collapsed by expiration; the log below merges its "
    "pruned-ancestor logs with its own log. `header` describes this snapshot's own log only."
)


class Inspection(RepositoryBase):
    """Methods of ``Repository`` that show the contents of its files."""

    def inspect_repo_info(self) -> Json:
        """Return refs, snapshots and the newest operations, as the file ``repo`` contains them.

        Returns:
            A dictionary with the keys ``header``, ``spec_version``, ``branches``, ``tags``, ``deleted_tags``,
            ``snapshots``, ``metadata`` and ``latest_updates``.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Specification: *Repo Info File*.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.inspect_repo_info()["branches"]
            {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        self._context.require_version_2()
        data = self._context.storage.get(REPO)
        return {
            "header": header_document(data, FileType.REPO_INFO),
            **repo_info_document(decode_repo_info(data, REPO)),
        }

    def inspect_snapshot(self, snapshot_id: str) -> Json:
        """Return the nodes and manifests of a snapshot, as its file contains them.

        Args:
            snapshot_id: The id of the snapshot, or the first characters of an id.

        Returns:
            A dictionary with the keys ``id``, ``header``, ``flushed_at``, ``commit_message``, ``metadata``,
            ``manifests`` and ``nodes``.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if the repository does not have the snapshot.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot_id`` is not an id, or if several ids
                begin with it.

        Specification: *Snapshot Files*.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.inspect_snapshot(repo.lookup_branch("main"))["commit_message"]
            'Repository initialized'
        """
        id_ = resolve_id(snapshot_id, self._context.catalog.repo_info)
        with files_of(self._context, id_):
            snapshot, data = SNAPSHOT.read_with_bytes(self._context.storage, id_)
        return {"header": header_document(data, FileType.SNAPSHOT), **snapshot_document(snapshot)}

    def inspect_manifest(self, manifest_id: str) -> Json:
        """Return how many references of which kind a manifest contains, by array.

        Args:
            manifest_id: The id of the manifest, for example from ``list_manifest_files``.

        Returns:
            A dictionary with the keys ``id``, ``header``, ``size_bytes``, ``num_arrays``,
            ``total_chunk_refs``, ``total_inline``, ``total_native``, ``total_virtual``, ``arrays`` and
            ``compression``. ``size_bytes`` is the uncompressed size of the file's contents.

        Raises:
            StorageError: ``object-not-found`` if there is no such file.
            InvalidInputError: ``invalid-snapshot-id`` if ``manifest_id`` is not an id.

        Specification: *Chunk Manifest Files*.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            ...     array[:] = [1, 2]
            >>> file = repo.list_manifest_files(repo.lookup_branch("main"))[0]
            >>> repo.inspect_manifest(file.id)["total_inline"]
            1
        """
        id_ = id_from_text(manifest_id)
        manifest, data = MANIFEST.read_with_bytes(self._context.storage, id_)
        return manifest_document(manifest, data, MANIFEST.key(id_))

    def inspect_transaction_log(self, snapshot_id: str) -> Json:
        """Return what one commit changed, by node ids.

        If expiration has removed the commits before this one, the result contains the changes of all of them
        together, and ``synthetic_composite`` names their transaction logs.

        Args:
            snapshot_id: The id of the snapshot, or the first characters of an id.

        Returns:
            A dictionary with the keys ``header``, ``new_groups``, ``new_arrays``, ``deleted_groups``,
            ``deleted_arrays``, ``updated_groups``, ``updated_arrays``, ``updated_chunks`` and
            ``moved_nodes``.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if the repository does not have the snapshot.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot_id`` is not an id, or if several ids
                begin with it.

        Specification: *Transaction Log Files*.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> len(repo.inspect_transaction_log(repo.lookup_branch("main"))["new_groups"])
            2
        """
        id_ = resolve_id(snapshot_id, self._context.catalog.repo_info)
        with files_of(self._context, id_):
            log, data = TRANSACTION_LOG.read_with_bytes(self._context.storage, id_)
        header = header_document(data, FileType.TRANSACTION_LOG)
        pruned = self._pruned_logs(id_)
        if not pruned:
            return {"header": header, **transaction_log_document(log)}
        existing = {id_: older for id_, older in pruned.items() if older is not None}
        return {
            "header": header,
            **transaction_log_document(reduce(joined, [*existing.values(), log])),
            "synthetic_composite": {
                "note": _COMPOSITE,
                "merged_pruned_ancestor_tx_logs": list(map(id_to_text, existing)),
                "missing_tx_logs": [id_to_text(each) for each in pruned if each not in existing],
            },
        }

    def _pruned_logs(self, id_: bytes) -> dict[bytes, TransactionLog | None]:
        """Return the logs of expired ancestors, oldest first; None where the file is gone."""
        if self._context.spec_version < 2:
            return {}
        snapshots = self._context.catalog.repo_info().snapshots
        row = snapshots.find_snapshot(id_)
        ids = snapshots.entry(row).pruned_ancestor_tx_logs if row >= 0 else ()
        return dict(zip(ids, map(self._existing_log, ids), strict=True))

    def _existing_log(self, id_: bytes) -> TransactionLog | None:
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
