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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from frazil.changes.prepared_manifests import PreparedManifests
from frazil.format.columns import U8
from frazil.format.ids import id_list, id_to_text
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.jobs.bulk_commit import MANIFESTS_ON_EXECUTORS_ABOVE, rewritten
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.maintenance_tasks import (
    delete_files,
    pieces,
    pieces_run,
    sum_parts,
    walk_chunks,
    walk_manifests,
)
from frazil.maintenance.deletion import Patience, Swept
from frazil.maintenance.file_batches import manifest_batches, snapshot_batches
from frazil.maintenance.garbage import Collection, collect
from frazil.maintenance.garbage_files import ChunkStorageStats, GCSummary
from frazil.maintenance.garbage_plan import referred
from frazil.maintenance.garbage_preview import look
from frazil.maintenance.listing import Listed
from frazil.maintenance.ops_retention import OpsLogRetention
from frazil.maintenance.progress import Progress, progress_of
from frazil.maintenance.rewrite import RewriteCommit, rewrite
from frazil.maintenance.storage_stats import summed
from frazil.maintenance.verification import plan
from frazil.maintenance.verification.findings import VerificationReport, VerifyLevel, verify_level
from frazil.maintenance.verification.verification_state import VerificationState, state_at
from frazil.maintenance.walk import Walk, all_manifests
from frazil.maintenance.walk_columns import ManifestChunks, SnapshotManifests
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.version_info import CommitMethod
from frazil.repository.clock import from_datetime
from frazil.repository.handle.interior import context_of, default_metadata_of
from frazil.repository.handle.repository import Repository
from frazil.storage.base import Storage

__all__ = ["garbage_collect", "rewrite_manifests", "storage_stats", "verify"]

_FILES_PER_TASK: Final = 50_000
_ERRORS_REPORTED: Final = 10


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
    engine = engine_of(engine)
    context = context_of(repo)
    patience = Patience(max_concurrent_deletes, max_consecutive_delete_failures)
    collection = Collection(
        from_datetime(delete_object_older_than, "delete_object_older_than"),
        patience=patience,
        walk=_EngineWalk(context, engine),
        sweep=_sweep_by_tasks(context, engine, patience),
        progress=progress_of(progress),
        ops=keep_ops,
    )
    return (look if dry_run else collect)(context, collection)


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
    engine = engine_of(engine)
    context, info = context_of(repo), context_of(repo).catalog.full_repo_info()
    walk = _EngineWalk(context, engine)
    manifests = all_manifests(context.storage, info.snapshots.ids()[referred(info)], walk)
    return summed(pieces(context, engine, sum_parts, manifest_batches(manifests)))


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

    The tasks read the same files as ``Repository.upkeep.verify``, and the report is the same.

    Args:
        repo: The repository.
        level: How much is read: see ``Repository.upkeep.verify``. The default is ``"metadata"``.
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
    run = pieces_run(context, engine)
    return plan.verify(
        context, plan.Request(verify_level(level), run, state_at(state), progress_of(progress))
    )


@dataclass(frozen=True, slots=True)
class _EngineWalk(Walk):
    """Tasks read the metadata of many versions."""

    context: Context
    engine: Engine

    def snapshots(self, storage: Storage, ids: U8, optional: U8) -> Iterator[SnapshotManifests]:
        items: list[Any] = [(batch, []) for batch in snapshot_batches(id_list(ids))]
        items += [([], batch) for batch in snapshot_batches(id_list(optional))]
        return pieces(self.context, self.engine, walk_manifests, items)

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> Iterator[ManifestChunks]:
        return pieces(self.context, self.engine, walk_chunks, manifest_batches(manifests))


def _sweep_by_tasks(context: Context, engine: Engine, patience: Patience) -> Callable[[Listed], Swept]:
    """Return a function that deletes files by tasks.

    If a task gives up, its error does not count the files that other tasks have deleted.
    """

    def sweep(files: Listed) -> Swept:
        numbers = np.arange(len(files)) // _FILES_PER_TASK
        parts = [files.select_files(numbers == number) for number in range(-(-len(files) // _FILES_PER_TASK))]
        total = Swept()
        for swept in pieces(context, engine, delete_files, [(part, patience) for part in parts]):
            total.objects += swept.objects
            total.size += swept.size
            total.failed += swept.failed
            total.throttled += swept.throttled
            total.errors = (total.errors + swept.errors)[:_ERRORS_REPORTED]
        return total

    return sweep
