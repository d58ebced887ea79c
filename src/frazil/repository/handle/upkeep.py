"""Upkeep of a repository: expiration, garbage collection, rewritten manifests, verification."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from frazil.format.ids import id_to_text, ids_to_text
from frazil.maintenance.deletion import Patience
from frazil.maintenance.expire import Expiring, Expiry
from frazil.maintenance.expire_v1 import expire_v1
from frazil.maintenance.garbage import Collection, collect, look
from frazil.maintenance.rewrite import rewrite
from frazil.maintenance.verification import plan
from frazil.maintenance.walk import Bounds
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.findings import VerificationReport, VerifyLevel, verify_level
from frazil.repository.catalog.version_info import CommitMethod, GCSummary
from frazil.repository.clock import from_datetime
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.limits import require_positive


class Upkeep(RepositoryBase):
    """The methods of ``Repository`` that keep it small and sound."""

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
        expiry = Expiry(from_datetime(older_than, "older_than"), delete_expired_branches, delete_expired_tags)
        if self._context.spec_version < 2:
            return set(ids_to_text(expire_v1(self._context, expiry)))
        change = Expiring(expiry)
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
        patience = Patience(max_concurrent_deletes, max_consecutive_delete_failures)
        work = look if dry_run else collect
        return work(self._context, Collection(limit, Bounds(*bounds), patience, listings))

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
        commit_metadata = {**self._default_metadata, **(metadata or {})}
        is_amended = commit_method == "amend"
        return id_to_text(rewrite(self._context, branch, message, commit_metadata, amend=is_amended))

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
        return plan.verify(self._context, verify_level(level), plan.run_locally(self._context))

    expire_snapshots_async = awaitable(expire_snapshots)
    garbage_collect_async = awaitable(garbage_collect)
    rewrite_manifests_async = awaitable(rewrite_manifests)
    verify_async = awaitable(verify)
