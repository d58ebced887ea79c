"""Maintenance of large repositories by tasks: the functions do the work of methods of ``Repository``.

    garbage_collect      tasks read manifests, and delete files
    verify               tasks check every reference, up to every byte
    storage_stats        tasks sum up manifests
    rewrite_manifests    tasks write the manifests of large arrays (`frazil.jobs.bulk_commit`)

The driver lists the files, decides, and makes the one conditional write. Leases and records protect the files
of sessions from garbage collection, as they do in one process. Expiration is one conditional write and has no
tasks: ``Repository.expire_snapshots``.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from frazil.changes.prepared_manifests import PreparedManifests
from frazil.format.ids import id_to_text
from frazil.format.snapshot import Snapshot
from frazil.jobs.bulk_commit import MANIFESTS_ON_EXECUTORS_ABOVE, rewritten
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.maintenance import statistics
from frazil.maintenance.backups import OpsLogRetention
from frazil.maintenance.collection import Collection
from frazil.maintenance.deletion import DeleteLimits
from frazil.maintenance.rewrite import RewriteCommit, rewrite
from frazil.maintenance.verification import plan
from frazil.repository.catalog.findings import VerificationReport, VerifyLevel, verify_level
from frazil.repository.catalog.verification_state import VerificationState, state_at
from frazil.repository.catalog.version_info import ChunkStorageStats, CommitMethod, GCSummary
from frazil.repository.clock import from_datetime
from frazil.repository.handle.interior import context_of, default_metadata_of
from frazil.repository.handle.repository import Repository
from frazil.survey.steps import Progress, progress_of

__all__ = ["garbage_collect", "rewrite_manifests", "storage_stats", "verify"]


def garbage_collect(
    repo: Repository,
    delete_object_older_than: datetime,
    *,
    engine: Engine | EngineName | None = None,
    dry_run: bool = False,
    max_concurrent_deletes: int = 10,
    max_consecutive_delete_failures: int = 50,
    progress: Progress | None = None,
    keep_ops: OpsLogRetention | None = None,
) -> GCSummary:
    """Delete the files that no version needs, by tasks.

    It deletes the same files as ``Repository.garbage_collect``, and raises the same errors.

    Args:
        repo: The repository.
        delete_object_older_than: The cut-off, with a time zone: only files that are older are deleted.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        dry_run: Whether files are only counted, and not deleted.
        max_concurrent_deletes: The number of delete requests that one task makes at the same time.
        max_consecutive_delete_failures: A task stops and raises an error after this many failed deletes in a
            row.
        progress: An object with the methods ``expect`` and ``advance``, such as `Progress`. It counts the
            snapshots and manifests that are read.
        keep_ops: The entries of the ops log that stay. The default, None, keeps all.

    Returns:
        The number of deleted files by kind, and their size in bytes.

    Raises:
        InvalidInputError: The cut-off is not a time with a time zone.

    Examples:
        >>> import frazil
        >>> from datetime import UTC, datetime
        >>> from frazil.pipeline.maintenance import garbage_collect
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> garbage_collect(repo, datetime.now(UTC), engine="inline").chunks_deleted
        0
    """
    collection = Collection(
        context_of(repo),
        from_datetime(delete_object_older_than, "delete_object_older_than"),
        engine_of(engine),
        limits=DeleteLimits(max_concurrent_deletes, max_consecutive_delete_failures),
        progress=progress_of(progress),
        ops=keep_ops,
    )
    return collection.preview() if dry_run else collection.collect()


def storage_stats(repo: Repository, *, engine: Engine | EngineName | None = None) -> ChunkStorageStats:
    """Sum up the size of all chunks, by tasks.

    The result is that of ``Repository.chunk_storage_stats``. The driver holds 12 bytes for each distinct
    range of bytes.

    Args:
        repo: The repository.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).

    Returns:
        The sizes in bytes, by kind of chunk.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline.maintenance import storage_stats
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> storage_stats(repo, engine="inline").native_bytes
        0
    """
    return statistics.storage_stats(context_of(repo), engine_of(engine))


def rewrite_manifests(
    repo: Repository,
    message: str,
    *,
    branch: str,
    engine: Engine | EngineName | None = None,
    metadata: dict[str, Any] | None = None,
    commit_method: CommitMethod = "new_commit",
    manifests_on_executors_above: int = MANIFESTS_ON_EXECUTORS_ABOVE,
) -> str:
    """Rewrite the manifests of a branch, by tasks.

    The result is that of ``Repository.rewrite_manifests``.

    Args:
        repo: The repository.
        message: The message of the commit.
        branch: The name of the branch.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        metadata: Metadata of the commit, added to the default metadata of the repository.
        commit_method: ``"new_commit"`` (the default), or ``"amend"`` to replace the last commit of the
            branch.
        manifests_on_executors_above: Tasks write the manifests of arrays with more references than this
            number; the driver writes the others.

    Returns:
        The id of the new snapshot of the branch.

    Raises:
        ConflictError: Another writer commits to the branch during the call.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline.maintenance import rewrite_manifests
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> snapshot_id = rewrite_manifests(repo, "fewer manifests", branch="main", engine="inline")
        >>> snapshot_id == repo.lookup_branch("main")
        True
    """
    engine = engine_of(engine)
    context = context_of(repo)

    def write(parent: Snapshot) -> dict[bytes, PreparedManifests]:
        return rewritten(context, parent, manifests_on_executors_above, engine)

    all_metadata = {**default_metadata_of(repo), **(metadata or {})}
    commit = RewriteCommit(branch, message, all_metadata, commit_method == "amend")
    return id_to_text(rewrite(context, commit, write))


def verify(
    repo: Repository,
    level: VerifyLevel = "metadata",
    *,
    engine: Engine | EngineName | None = None,
    state: VerificationState | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> VerificationReport:
    """Check that all files of the repository exist and are intact, by tasks.

    The tasks read the same files as ``Repository.verify``, and the report is the same.

    Args:
        repo: The repository.
        level: How much is read: see ``Repository.verify``. The default is ``"metadata"``.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        state: A file of the driver, or a value, for the tasks that are done. A second call with the same
            state skips them, if their files have not changed. Default: no state.
        progress: A `Progress` that shows the tasks.

    Returns:
        The report, with its findings.

    Raises:
        InvalidInputError: ``unknown-choice`` for another level. ``invalid-argument`` if ``state`` is a file
            that is not the state of a verification.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import verify
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> report = verify(repo, "checksum", engine="inline")
        >>> report.ok, report.snapshots
        (True, 1)
    """
    engine, context = engine_of(engine), context_of(repo)
    return plan.verify(
        context, verify_level(level), engine=engine, state=state_at(state), progress=progress_of(progress)
    )
