"""The methods of ``Repository`` for upkeep with the names of Icechunk: calls of ``repo.upkeep``."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from frazil.about import PACKAGE_FOLDER
from frazil.maintenance.plan import ChunkStorageStats, GCSummary
from frazil.repository import handle
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.version_info import CommitMethod
from frazil.repository.handle.base import RepositoryBase

if TYPE_CHECKING:
    from frazil.maintenance.backups import OpsLogRetention
    from frazil.repository.handle.upkeep import Upkeep
    from frazil.survey.steps import Progress


def _deprecated[**P, R](method: Callable[P, R], name: str, instead: str) -> Callable[P, R]:
    """Return a method of the given name that warns when it is called.

    The warning names the line of the caller, whatever wraps the method, because Python skips the files of
    this package.
    """

    @functools.wraps(method)
    def warning(*args: P.args, **kwargs: P.kwargs) -> R:
        warnings.warn(
            f"{name} is deprecated. Use {instead}(...).native_bytes, which takes the same arguments",
            DeprecationWarning,
            skip_file_prefixes=(PACKAGE_FOLDER,),
        )
        return method(*args, **kwargs)

    warning.__doc__ = (method.__doc__ or "").replace("_native_bytes", "total_chunks_storage")
    warning.__name__ = name
    warning.__qualname__ = f"UpkeepMethods.{name}"
    return inspect.markcoroutinefunction(warning) if inspect.iscoroutinefunction(method) else warning


class UpkeepMethods(RepositoryBase):
    """Methods of ``Repository`` for upkeep, with the names of Icechunk."""

    def _upkeep(self) -> Upkeep:
        return handle.Upkeep(self._context, self._default_metadata)

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
        """Delete files that no branch, tag or young snapshot needs: see `Upkeep.collect`.

        Args:
            delete_object_older_than: A time with a time zone: ``older_than`` of `Upkeep.collect`.
            dry_run: Whether to delete nothing, and to return what would be deleted.
            max_snapshots_in_memory: See `Upkeep.collect`, as for the other limits.
            max_compressed_manifest_mem_bytes: A limit of memory.
            max_decoded_manifest_mem_bytes: A limit of memory.
            max_concurrent_manifest_fetches: A limit of requests.
            max_concurrent_deletes: A limit of requests.
            max_consecutive_delete_failures: After how many failures in a row the collection stops.
            max_concurrent_listings: A limit of requests.
            progress: A progress bar.
            keep_ops: The entries of the ops log that stay. Default: all.

        Returns:
            What was deleted. A dry run also lists the files, with reasons (``files``).

        Raises:
            IcechunkError: See `Upkeep.collect`.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.garbage_collect(datetime.now(UTC)).chunks_deleted
            0
        """
        plan = self._upkeep().collect(
            delete_object_older_than,
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
            max_concurrent_deletes=max_concurrent_deletes,
            max_consecutive_delete_failures=max_consecutive_delete_failures,
            max_concurrent_listings=max_concurrent_listings,
            progress=progress,
            keep_ops=keep_ops,
        )
        return plan.report if dry_run else plan.apply()

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
        progress: Progress | None = None,
    ) -> set[str]:
        """Remove snapshots older than a time from the history: see `Upkeep.expire`.

        Args:
            older_than: A time with a time zone. A snapshot written exactly at this time is not older.
            delete_expired_branches: Whether to delete branches whose tip is older.
            delete_expired_tags: Whether to delete tags whose snapshot is older.
            progress: A progress bar.

        Returns:
            The ids of the removed snapshots.

        Raises:
            TypeError: If ``older_than`` has no time zone.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.

        Examples:
            >>> import frazil
            >>> from datetime import UTC, datetime
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.expire_snapshots(datetime.now(UTC))
            set()
        """
        plan = self._upkeep().expire(
            older_than,
            delete_expired_branches=delete_expired_branches,
            delete_expired_tags=delete_expired_tags,
            progress=progress,
        )
        return plan.apply()

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Rewrite all manifests at the tip of a branch: see `Upkeep.rewrite_manifests`.

        Args:
            message: The message of the commit.
            branch: The name of the branch.
            metadata: The metadata of the commit. Default: empty.
            commit_method: ``"new_commit"`` for a new commit, ``"amend"`` to replace the last one.

        Returns:
            The id of the commit.

        Raises:
            ConflictError: ``commit-conflict`` if another commit came first.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> id_ = repo.rewrite_manifests("split anew", branch="main")
            >>> repo.lookup_branch("main") == id_
            True
        """
        return self._upkeep().rewrite_manifests(
            message, branch=branch, metadata=metadata, commit_method=commit_method
        )

    def chunk_storage_stats(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
    ) -> ChunkStorageStats:
        """Return how many bytes the chunks of all branches and tags take, by kind of reference.

        A range of a chunk file or of a virtual object counts once. An inline chunk counts once for each
        manifest that contains it.

        Args:
            max_snapshots_in_memory: How many snapshots to hold in memory at once.
            max_compressed_manifest_mem_bytes: How many bytes of fetched manifests to hold in memory at once.
            max_decoded_manifest_mem_bytes: How many bytes of decoded manifests to hold in memory at once.
            max_concurrent_manifest_fetches: How many manifests to fetch at once.

        Returns:
            The numbers of bytes.

        Raises:
            InvalidInputError: ``invalid-argument`` if a limit is less than 1.

        Examples:
            >>> import frazil
            >>> frazil.Repository.create(frazil.in_memory_storage()).chunk_storage_stats().total_bytes()
            0
        """
        return self._upkeep().statistics(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        )

    def _native_bytes(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
    ) -> int:
        """Return the bytes of native chunks. Deprecated: use ``chunk_storage_stats().native_bytes``.

        Args:
            max_snapshots_in_memory: See ``chunk_storage_stats``.
            max_compressed_manifest_mem_bytes: See ``chunk_storage_stats``.
            max_decoded_manifest_mem_bytes: See ``chunk_storage_stats``.
            max_concurrent_manifest_fetches: See ``chunk_storage_stats``.

        Returns:
            The number of bytes.

        Examples:
            >>> import frazil, warnings
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            ...     repo.total_chunks_storage()
            0
        """
        return self.chunk_storage_stats(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        ).native_bytes

    garbage_collect_async = awaitable(garbage_collect)
    expire_snapshots_async = awaitable(expire_snapshots)
    rewrite_manifests_async = awaitable(rewrite_manifests)
    chunk_storage_stats_async = awaitable(chunk_storage_stats)
    total_chunks_storage = _deprecated(_native_bytes, "total_chunks_storage", "chunk_storage_stats")
    total_chunks_storage_async = _deprecated(
        awaitable(_native_bytes), "total_chunks_storage_async", "chunk_storage_stats_async"
    )
