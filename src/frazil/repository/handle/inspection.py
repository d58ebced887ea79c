"""The methods ``Repository.inspect_*``: the contents of the repository's files, for people and for tests."""

from __future__ import annotations

from functools import reduce
from typing import Final

from frazil.changes.log import joined
from frazil.errors import ErrorKind, StorageError
from frazil.format.envelope import FileType
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.keys import REPO
from frazil.format.repo_info import decode_repo_info
from frazil.format.transaction_log import TransactionLog
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.expired_versions import files_of
from frazil.repository.catalog.files import MANIFEST, SNAPSHOT, TRANSACTION_LOG
from frazil.repository.catalog.version_names import snapshot_id as resolve_id
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.file_documents import (
    Json,
    header_document,
    manifest_document,
    repo_info_document,
    snapshot_document,
    transaction_log_document,
)

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
