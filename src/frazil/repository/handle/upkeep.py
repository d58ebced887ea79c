"""Upkeep of a repository: expiration, garbage collection, rewritten manifests, statistics, verification."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, get_args

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_to_text, ids_to_text
from frazil.maintenance.deletion import Patience
from frazil.maintenance.expire import Expiring, Expiry
from frazil.maintenance.expire_v1 import expire_v1
from frazil.maintenance.garbage import Collection, collect, look
from frazil.maintenance.rewrite import rewrite
from frazil.maintenance.storage_stats import storage_stats
from frazil.maintenance.verification import plan
from frazil.maintenance.walk import Bounds
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.findings import VerificationReport, VerifyLevel, verify_level
from frazil.repository.catalog.leases import LEASES, leases
from frazil.repository.catalog.version_info import ChunkStorageStats, CommitMethod, GCSummary, LeaseInfo
from frazil.repository.clock import from_datetime, to_datetime
from frazil.repository.handle.opening import require_writable
from frazil.repository.session.staged_work import give_up, place_of_lease

_PACKAGE: Final = str(Path(__file__).parents[1])


def _deprecated[**P, R](method: Callable[P, R], name: str, instead: str) -> Callable[P, R]:
    """A method of that name that warns when it is called.

    The warning names the caller's line, whatever wraps the method: Python hides what names a library's.
    """

    @functools.wraps(method)
    def warning(*args: P.args, **kwargs: P.kwargs) -> R:
        warnings.warn(
            f"{name} is deprecated: use {instead}(...).native_bytes, which takes the same arguments",
            DeprecationWarning,
            skip_file_prefixes=(_PACKAGE,),
        )
        return method(*args, **kwargs)

    warning.__name__ = name
    warning.__qualname__ = f"Upkeep.{name}"
    return inspect.markcoroutinefunction(warning) if inspect.iscoroutinefunction(method) else warning


class Upkeep:
    """Methods of ``Repository``."""

    _context: Context
    _default_metadata: dict[str, Any]

    def expire_snapshots(
        self,
        older_than: datetime,
        *,
        delete_expired_branches: bool = False,
        delete_expired_tags: bool = False,
    ) -> set[str]:
        """Take snapshots older than a time out of the history; the ids of those that went.

        The first snapshot and the tip of ``main`` stay, and so do the tips of other branches and of tags,
        unless ``delete_expired_branches`` or ``delete_expired_tags`` says that refs to old snapshots go with
        them. A snapshot written exactly at ``older_than`` is not older. The files of what went are there
        until ``garbage_collect``.

        In spec version 2 this is one update: all or nothing. Spec version 1 has no file for the whole
        repository, so there it goes branch by branch and tag by tag: readers may see some of them expired,
        and after an interruption a second call completes it.

        >>> import frazil
        >>> from datetime import UTC, datetime
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.expire_snapshots(datetime.now(UTC))
        set()
        """
        what = Expiry(from_datetime(older_than, "older_than"), delete_expired_branches, delete_expired_tags)
        if self._context.spec_version < 2:
            return set(ids_to_text(expire_v1(self._context, what)))
        change = Expiring(what)
        return set(ids_to_text(change.ids(self._context.catalog.update_repo_info(change))))

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
    ) -> GCSummary:
        """Delete files that no branch, tag or young snapshot leads to; what was deleted.

        Only files modified before ``delete_object_older_than``, by the storage's clock, are looked at.
        ``dry_run`` deletes nothing, and returns what would be deleted. The other arguments bound memory and
        requests.

        Files that sessions with forks and resumable jobs may rely on are spared: they hold leases
        (``list_leases``), and the summary counts those that were respected. A session without forks holds no
        lease. If its chunks are deleted, its commit is refused (``garbage-collected``); while they are about
        to be deleted, its commit may be tried again later (``garbage-collection-running``). No clock has to
        be right for that.

        Backups of the repository's state in ``overwritten/`` are deleted as well: those modified before the
        limit that the ops log does not need, but for the newest ones.

        Files that could not be deleted are counted in the summary, and then the kinds of files that they
        refer to are left for the next time (``skipped_phases``). Raises ``ConflictError``
        (``gc-deletes-failing``) after ``max_consecutive_delete_failures`` in a row, and ``FormatError`` or
        ``StorageError`` where a version that lives cannot be read: then nothing was deleted.

        >>> import frazil
        >>> from datetime import UTC, datetime
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.garbage_collect(datetime.now(UTC)).chunks_deleted
        0
        """
        listings = 32 if max_concurrent_listings is None else max_concurrent_listings
        _require_positive(
            max_concurrent_deletes=max_concurrent_deletes,
            max_consecutive_delete_failures=max_consecutive_delete_failures,
            max_concurrent_listings=listings,
        )
        limit = from_datetime(delete_object_older_than, "delete_object_older_than")
        bounds = _require_positive(
            max_snapshots_in_memory=max_snapshots_in_memory,
            max_compressed_manifest_mem_bytes=max_compressed_manifest_mem_bytes,
            max_decoded_manifest_mem_bytes=max_decoded_manifest_mem_bytes,
            max_concurrent_manifest_fetches=max_concurrent_manifest_fetches,
        )
        patience = Patience(max_concurrent_deletes, max_consecutive_delete_failures)
        work = look if dry_run else collect
        return work(self._context, Collection(limit, Bounds(*bounds), patience, listings))

    def list_leases(self) -> list[LeaseInfo]:
        """The leases that sessions with forks and resumable jobs hold, the oldest first.

        A garbage collection spares all files that are not older than the oldest lease. One that has ended is
        listed until the next collection deletes it.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> fork = repo.writable_session("main").fork()
        >>> [lease.purpose for lease in repo.list_leases()]
        ['fork']
        """
        return [
            LeaseInfo(
                lease.key.removeprefix(f"{LEASES}/"),
                lease.purpose,
                to_datetime(lease.taken),
                to_datetime(max(0, lease.since)),
                to_datetime(lease.until),
            )
            for lease in leases(self._context.storage)
        ]

    def break_lease(self, lease_id: str) -> None:
        """Delete a lease whose holder will not come back: a fork that was abandoned, a process that was
        killed.

        The holder is not asked. If it is still at work and a garbage collection deletes its files, its commit
        is refused (``garbage-collected``); no version ever refers to files that are gone. With the lease of a
        job goes what the job has staged, as with ``frazil.spark.discard_job``: it cannot be resumed.

        Raises ``InvalidInputError`` (``not-allowed``) if there is no lease with this id.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> fork = repo.writable_session("main").fork()
        >>> repo.break_lease(repo.list_leases()[0].id)
        >>> repo.list_leases()
        []
        """
        storage = self._context.storage
        require_writable(storage)
        key = f"{LEASES}/{lease_id}"
        if key not in {lease.key for lease in leases(storage)}:
            raise InvalidInputError(
                f"lease_id: expected the id of a lease of this repository, found {lease_id!r}: "
                "Repository.list_leases shows them. It may have been given back meanwhile",
                ErrorKind.NOT_ALLOWED,
            )
        place = place_of_lease(key)
        if place is None:
            storage.delete([key])
        else:
            give_up(storage, place)

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Write all manifests of a branch's tip anew, split as the configuration says now; the id of the
        commit that does so and nothing else.

        ``commit_method="amend"`` replaces the last commit. The splitting is told in the commit's metadata,
        under ``__icechunk``. Raises ``ConflictError`` if another commit came first, and ``FormatError`` for
        an amended commit in a repository of spec version 1.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> id_ = repo.rewrite_manifests("split anew", branch="main")
        >>> repo.lookup_branch("main") == id_
        True
        """
        if not isinstance(commit_method, str):
            raise TypeError(f"commit_method: expected text, found {type(commit_method).__name__}")
        if commit_method not in get_args(CommitMethod):
            raise ValueError(
                f"commit_method: expected one of {get_args(CommitMethod)}, found {commit_method!r}"
            )
        told = {**self._default_metadata, **(metadata or {})}
        return id_to_text(rewrite(self._context, branch, message, told, amend=commit_method == "amend"))

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
        bounds = _require_positive(
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

    def verify(self, level: VerifyLevel = "metadata") -> VerificationReport:
        """Look for what is damaged, missing or exchanged, in all versions that a branch or tag leads to.

        ``"metadata"`` reads snapshots, transaction logs, manifests and the ops log, and compares them with
        one another. ``"exists"`` also asks for all chunk files and foreign objects. ``"checksum"`` reads
        every byte of chunks, virtual ones as well, and all backups of the ops log. The format has no
        checksums of chunks: a chunk file with other bytes of the same length is not seen.

        Damage is no error but a finding. Others may commit, expire snapshots and collect garbage meanwhile.
        Nothing is written. `frazil.spark.verify` does the same with Spark tasks. Raises ``InvalidInputError``
        (``not-allowed``) for another level, and ``StorageError`` where the storage fails.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> repo.verify("checksum").ok
        True
        """
        return plan.verify(self._context, verify_level(level), plan.here(self._context))

    expire_snapshots_async = awaitable(expire_snapshots)
    garbage_collect_async = awaitable(garbage_collect)
    list_leases_async = awaitable(list_leases)
    break_lease_async = awaitable(break_lease)
    rewrite_manifests_async = awaitable(rewrite_manifests)
    chunk_storage_stats_async = awaitable(chunk_storage_stats)
    total_chunks_storage = _deprecated(_native_bytes, "total_chunks_storage", "chunk_storage_stats")
    total_chunks_storage_async = _deprecated(
        awaitable(_native_bytes), "total_chunks_storage_async", "chunk_storage_stats_async"
    )
    verify_async = awaitable(verify)


def _require_positive(**limits: int) -> Iterable[int]:
    """The limits, in their order."""
    for name, limit in limits.items():
        if limit < 1:
            raise InvalidInputError(f"{name}: expected at least 1, found {limit}", ErrorKind.NOT_ALLOWED)
    return limits.values()
