"""The methods ``Repository.inspect_*``: the contents of the repository's files, for people and for tests.

Times are text in ISO 8601, ids are text. A field that a file does not have has no key.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any, Final

import numpy as np

from frazil.changes.diff import joined
from frazil.format.envelope import Compression, FileType, open_envelope, parse_header
from frazil.format.ids import REPO, id_from_text, id_to_text, ids_to_text
from frazil.format.joined_files import stored_locations
from frazil.format.manifest import ChunkKind
from frazil.format.repo_info import OpsEntry, decode_repo_info
from frazil.format.snapshot import Node
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.handle.sessions import RepositoryBase
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.assets import MANIFEST, SNAPSHOT, TRANSACTION_LOG
from frazil.repository.catalog.context import files_of
from frazil.repository.catalog.presentation import UpdateType, update
from frazil.repository.catalog.repo_changes import resolve_id
from frazil.repository.clock import to_datetime

#: A dictionary that JSON can hold.
Json = dict[str, Any]

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
        "file_type": header.file_type.name.lower().replace("_", "-"),
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


def _update_document(entry: OpsEntry) -> Json:
    kind = update(entry).kind
    details: Json = {each.name: getattr(kind, each.name) for each in fields(kind)}
    if isinstance(kind, UpdateType.RepoMigrated):
        details = {name: f"{version}.0" for name, version in details.items()}
    if (status := entry.status) is not None:
        details["status"] = {
            "availability": status.availability.name.title().replace("_", ""),
            "limited_availability_reason": status.reason,
            "set_at": iso(status.set_at),
        }
    suffix = "" if isinstance(kind, UpdateType.FeatureFlagChanged) else "Update"
    backup = {} if entry.backup_path is None else {"backup_path": entry.backup_path}
    type_ = {"type": f"{type(kind).__name__}{suffix}", **details}
    return {"update_type": type_, "updated_at": iso(entry.updated_at), **backup}


def _node_document(node: Node) -> Json:
    base = {"id": id_to_text(node.id), "path": node.path}
    if (array := node.array) is None:
        return {**base, "node_type": "group"}
    names = array.dimension_names or [None] * len(array.shape)
    return {
        **base,
        "node_type": "array",
        "shape": [
            {**({} if name is None else {"name": name}), "array_length": length, "num_chunks": chunks}
            for name, length, chunks in zip(names, array.shape, array.num_chunks, strict=True)
        ],
        "manifest_refs": [
            {"id": id_to_text(ref.id), "extents": ref.extents.tolist()} for ref in array.manifests
        ],
    }


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


class FileInspection(RepositoryBase):
    """Methods of ``Repository`` that show the contents of its files."""

    def inspect_repo_info(self) -> Json:
        """Return refs, snapshots and the newest operations, as the file ``repo`` contains them.

        Returns:
            A dictionary with the keys ``header``, ``spec_version``, ``branches``, ``tags``, ``deleted_tags``,
            ``snapshots``, ``metadata`` and ``latest_updates``.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.inspect_repo_info()["branches"]
            {'main': '1CECHNKREP0F1RSTCMT0'}
        """
        self._context.require_version_2()
        data = self._context.storage.get(REPO)
        info = decode_repo_info(data, REPO)
        name = info.repo_before_updates
        return {
            "header": header_document(data, FileType.REPO_INFO),
            "spec_version": f"{info.spec_version}.0",
            "branches": {name: id_to_text(id_) for name, id_ in sorted(info.branches.items())},
            "tags": {name: id_to_text(id_) for name, id_ in sorted(info.tags.items())},
            "deleted_tags": sorted(info.deleted_tags),
            "snapshots": [
                {
                    "id": id_to_text(entry.id),
                    **({} if entry.parent is None else {"parent_id": id_to_text(entry.parent)}),
                    "flushed_at": iso(entry.flushed_at),
                    "message": entry.message,
                    "metadata": entry.metadata,
                }
                for entry in info.snapshots.entries(np.arange(len(info.snapshots)))
            ],
            "metadata": info.metadata,
            "latest_updates": list(map(_update_document, map(info.ops.entry, range(len(info.ops))))),
            **({} if name is None else {"repo_before_updates": name}),
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
            InvalidInputError: ``invalid-snapshot-id`` if it is not an id, or if several ids begin with it.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.inspect_snapshot(repo.lookup_branch("main"))["commit_message"]
            'Repository initialized'
        """
        id_ = resolve_id(snapshot_id, self._info)
        with files_of(self._context, id_):
            snapshot, data = SNAPSHOT.read_with_bytes(self._context.storage, id_)
        files, nodes = snapshot.manifests, snapshot.nodes
        columns = ids_to_text(files.ids), files.size_bytes.tolist(), files.num_chunk_refs.tolist()
        return {
            "header": header_document(data, FileType.SNAPSHOT),
            "id": id_to_text(snapshot.id),
            "flushed_at": iso(snapshot.flushed_at),
            "commit_message": snapshot.message,
            "metadata": snapshot.metadata,
            "manifests": [
                {"id": id_, "size_bytes": size, "num_chunk_refs": count}
                for id_, size, count in zip(*columns, strict=True)
            ],
            "nodes": list(map(_node_document, map(nodes.node, range(len(nodes))))),
        }

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

        Examples:
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
        count = partial(np.bincount, minlength=len(ChunkKind))
        kinds: dict[bytes, Any] = {
            node: count(np.concatenate([each.kind for each in (table, *table.others)]))
            for node, table in manifest.arrays.items()
        }
        totals = sum(kinds.values(), np.zeros(len(ChunkKind), np.int64))
        uses_compression, dictionary, compressed = stored_locations(data, MANIFEST.key(id_))
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
            InvalidInputError: ``invalid-snapshot-id`` if it is not an id, or if several ids begin with it.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> len(repo.inspect_transaction_log(repo.lookup_branch("main"))["new_groups"])
            2
        """
        id_ = resolve_id(snapshot_id, self._info)
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
        snapshots = self._info().snapshots
        row = snapshots.find_snapshot(id_)
        ids = snapshots.entry(row).pruned_ancestor_tx_logs if row >= 0 else ()
        return dict(zip(ids, self._context.assets.transaction_logs(ids), strict=True))

    inspect_repo_info_async: Final = awaitable(inspect_repo_info)
    inspect_snapshot_async: Final = awaitable(inspect_snapshot)
    inspect_manifest_async: Final = awaitable(inspect_manifest)
    inspect_transaction_log_async: Final = awaitable(inspect_transaction_log)
