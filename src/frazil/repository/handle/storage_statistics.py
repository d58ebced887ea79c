"""The methods of ``Repository`` that count the bytes of its chunks."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable

from frazil.about import PACKAGE_FOLDER
from frazil.maintenance.garbage_files import ChunkStorageStats
from frazil.repository import handle
from frazil.repository.asynchronous import awaitable
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.limits import require_positive


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
    warning.__qualname__ = f"StorageStatistics.{name}"
    return inspect.markcoroutinefunction(warning) if inspect.iscoroutinefunction(method) else warning


class StorageStatistics(RepositoryBase):
    """Methods of ``Repository`` that count the bytes of its chunks."""

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
        bounds = require_positive(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        )
        return handle.operations.storage_stats(self._context, handle.operations.Bounds(*bounds))

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

    chunk_storage_stats_async = awaitable(chunk_storage_stats)
    total_chunks_storage = _deprecated(_native_bytes, "total_chunks_storage", "chunk_storage_stats")
    total_chunks_storage_async = _deprecated(
        awaitable(_native_bytes), "total_chunks_storage_async", "chunk_storage_stats_async"
    )
