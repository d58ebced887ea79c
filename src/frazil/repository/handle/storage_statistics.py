"""How many bytes the chunks of a repository take."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable

from frazil.about import PACKAGE_FOLDER
from frazil.maintenance.storage_stats import storage_stats
from frazil.maintenance.walk import Bounds
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.version_info import ChunkStorageStats
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.limits import require_positive


def _deprecated[**P, R](method: Callable[P, R], name: str, instead: str) -> Callable[P, R]:
    """A method of that name that warns when it is called.

    The warning names the caller's line, whatever wraps the method: Python hides what names a library's.
    """

    @functools.wraps(method)
    def warning(*args: P.args, **kwargs: P.kwargs) -> R:
        warnings.warn(
            f"{name} is deprecated: use {instead}(...).native_bytes, which takes the same arguments",
            DeprecationWarning,
            skip_file_prefixes=(PACKAGE_FOLDER,),
        )
        return method(*args, **kwargs)

    warning.__name__ = name
    warning.__qualname__ = f"StorageStatistics.{name}"
    return inspect.markcoroutinefunction(warning) if inspect.iscoroutinefunction(method) else warning


class StorageStatistics(RepositoryBase):
    """The methods of ``Repository`` that count bytes."""

    def chunk_storage_stats(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
    ) -> ChunkStorageStats:
        """Bytes of all chunks that a branch or tag leads to, by where they are.

        A range of a chunk file or of a foreign object counts once, an inline chunk once for each manifest
        that holds it. The arguments bound memory and requests.

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
        return storage_stats(self._context, Bounds(*bounds))

    def _native_bytes(
        self,
        *,
        max_snapshots_in_memory: int = 50,
        max_compressed_manifest_mem_bytes: int = 512 << 20,
        max_decoded_manifest_mem_bytes: int = 4 << 30,
        max_concurrent_manifest_fetches: int = 500,
    ) -> int:
        """``native_bytes`` of ``chunk_storage_stats``, which returns more: use that."""
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
