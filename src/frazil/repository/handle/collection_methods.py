"""The methods of ``Repository`` for upkeep: garbage collection, manifests, verification."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from frazil.format.ids import id_to_text
from frazil.format.metadata_items import MetadataColumn
from frazil.maintenance.garbage_files import GCSummary
from frazil.maintenance.ops_retention import OpsLogRetention
from frazil.maintenance.progress import Progress, progress_of
from frazil.repository import handle
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.version_info import CommitMethod
from frazil.repository.clock import from_datetime
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.limits import require_positive

#: A value of a method is public, so that `frazil` imports it from this room.
__all__ = ["CollectionMethods", "OpsLogRetention"]


class CollectionMethods(RepositoryBase):
    """Methods of ``Repository`` that delete unused files, rewrite manifests, and verify."""

    def garbage_collect(
        self,
        delete_object_older_than: datetime,
        *,
        dry_run: bool = False,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
        max_concurrent_deletes: int = 10,
        max_consecutive_delete_failures: int = 50,
        max_concurrent_listings: int | None = None,
        progress: Progress | None = None,
        keep_ops: OpsLogRetention | None = None,
    ) -> GCSummary:
        """Delete files that no branch, tag or young snapshot needs.

        The method considers only files that were modified before ``delete_object_older_than``, by the clock
        of the storage. It also deletes backups of the repository's state in ``overwritten/`` that were
        modified before this time, except the newest ones and those that the ops log needs.

        Sessions with forks and resumable jobs hold leases (``upkeep.leases``), which protect their files. The
        summary counts the respected leases. A session without forks holds no lease. If a collection deletes
        its chunks, its commit is refused (``garbage-collected``). While a collection is about to delete them,
        the commit is refused too, and may be retried later (``garbage-collection-running``). No clock has to
        be right for this protection.

        If files cannot be deleted, the summary counts them, and the collection leaves the kinds of files that
        they refer to for the next time (``skipped_phases``).

        Args:
            delete_object_older_than: A time with a time zone.
            dry_run: Whether to delete nothing, and to return what would be deleted.
            max_snapshots_in_memory: How many snapshots to hold in memory at once.
            max_compressed_manifest_mem_bytes: How many bytes of fetched manifests to hold in memory at once.
            max_decoded_manifest_mem_bytes: How many bytes of decoded manifests to hold in memory at once.
            max_concurrent_manifest_fetches: How many manifests to fetch at once.
            max_concurrent_deletes: How many requests to delete files to send at once.
            max_consecutive_delete_failures: After how many failures in a row the collection stops.
            max_concurrent_listings: How many folders to list at once. Default: 32.
            progress: An object with the methods ``expect`` and ``advance``, such as
                ``frazil.pipeline.Progress``. It counts the snapshots and manifests that are read, and the
                requests that delete files.
            keep_ops: The entries of the ops log that stay. Default: all. Removed entries cannot be restored.

        Returns:
            What was deleted. A dry run also lists the files, with reasons (``files``).

        Raises:
            ConflictError: ``gc-deletes-failing`` after ``max_consecutive_delete_failures`` failures in a row.
            FormatError: If a file of a version in use is damaged. Nothing was deleted.
            StorageError: If a file of a version in use cannot be read. Nothing was deleted.
            InvalidInputError: ``invalid-argument`` if a limit is less than 1.
            TypeError: If ``delete_object_older_than`` has no time zone.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.garbage_collect(datetime.now(UTC)).chunks_deleted
            0
        """
        listings = 32 if max_concurrent_listings is None else max_concurrent_listings
        require_positive(
            max_concurrent_deletes=max_concurrent_deletes,
            max_consecutive_delete_failures=max_consecutive_delete_failures,
            max_concurrent_listings=listings,
        )
        limit = from_datetime(delete_object_older_than, "delete_object_older_than")
        bounds = require_positive(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        )
        patience = handle.operations.Patience(max_concurrent_deletes, max_consecutive_delete_failures)
        work = handle.operations.look if dry_run else handle.operations.collect
        collection = handle.operations.Collection(
            limit,
            handle.operations.Bounds(*bounds),
            patience,
            listings,
            progress=progress_of(progress),
            ops=keep_ops,
        )
        return work(self._context, collection)

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Rewrite all manifests at the tip of a branch, with the splitting of this handle's configuration.

        The new commit changes nothing else. Its metadata describe the splitting under ``__icechunk``.

        Args:
            message: The message of the commit.
            branch: The name of the branch.
            metadata: The metadata of the commit: a dictionary that JSON can hold. Default: empty.
            commit_method: ``"new_commit"`` for a new commit, ``"amend"`` to replace the last one.

        Returns:
            The id of the commit.

        Raises:
            ConflictError: ``commit-conflict`` if another commit came first.
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            FormatError: ``unsupported-spec-version`` for ``"amend"`` in a repository of spec version 1.
            ValueError: If ``commit_method`` is another text.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> id_ = repo.rewrite_manifests("split anew", branch="main")
            >>> repo.lookup_branch("main") == id_
            True
        """
        commit_metadata = {**self._default_metadata, **(metadata or {})}
        commit = handle.operations.RewriteCommit(
            branch, message, commit_metadata, handle.operations.is_amend(commit_method)
        )
        MetadataColumn.of([commit_metadata])  # raises an error before the first file is written
        return id_to_text(handle.operations.rewrite(self._context, commit))

    garbage_collect_async = awaitable(garbage_collect)
    rewrite_manifests_async = awaitable(rewrite_manifests)
