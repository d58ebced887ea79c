"""Maintenance of large repositories by tasks: the same work as that of ``Repository``'s methods.

    garbage_collect      tasks read manifests, and delete files
    verify               tasks check every reference, up to every byte
    storage_stats        tasks sum up manifests
    rewrite_manifests    tasks write the manifests of large arrays (`frazil.jobs.bulk_commit`)

The driver lists, decides, and makes the one conditional write. Leases and records keep collections from
deleting what sessions need, as they do in one process. Expiration is one conditional write and has
no tasks: ``Repository.expire_snapshots``.
"""

from __future__ import annotations

from collections.abc import Callable
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
from frazil.maintenance.garbage import Collection, collect, look, referred
from frazil.maintenance.listing import Listed, distinct
from frazil.maintenance.rewrite import rewrite
from frazil.maintenance.storage_stats import summed
from frazil.maintenance.verification import plan
from frazil.maintenance.walk import Walk, each_once
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.findings import VerificationReport, VerifyLevel, verify_level
from frazil.repository.catalog.version_info import ChunkStorageStats, CommitMethod, GCSummary
from frazil.repository.clock import from_datetime
from frazil.repository.handle.interior import context_of, default_metadata_of
from frazil.repository.handle.repository import Repository
from frazil.storage.base import Storage

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
) -> GCSummary:
    """``Repository.garbage_collect`` with tasks: it deletes the same files, and raises the same errors.

    Files that no version needs and that are older than ``delete_object_older_than`` are deleted; with
    ``dry_run`` they are only counted. The limits of deletes are those of one task.

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
    )
    return (look if dry_run else collect)(context, collection)


def storage_stats(repo: Repository, *, engine: Engine | EngineName | None = None) -> ChunkStorageStats:
    """``Repository.chunk_storage_stats`` with tasks. The driver holds 16 bytes for each distinct range."""
    engine = engine_of(engine)
    context, info = context_of(repo), context_of(repo).catalog.full_repo_info()
    walk = _EngineWalk(context, engine)
    no_ids = info.snapshots.ids()[:0]
    manifests = walk.manifests(context.storage, info.snapshots.ids()[referred(info)], no_ids)
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
    """``Repository.rewrite_manifests`` with tasks.

    Returns the id of the new snapshot of ``branch``. Tasks write the manifests of arrays with more than
    ``manifests_on_executors_above`` references.
    """
    engine = engine_of(engine)
    context = context_of(repo)

    def write(parent: Snapshot) -> dict[bytes, PreparedManifests]:
        return rewritten(context, parent, manifests_on_executors_above, engine)

    all_metadata = {**default_metadata_of(repo), **(metadata or {})}
    amend = commit_method == "amend"
    return id_to_text(rewrite(context, branch, message, all_metadata, amend=amend, write=write))


def verify(
    repo: Repository, level: VerifyLevel = "metadata", *, engine: Engine | EngineName | None = None
) -> VerificationReport:
    """``Repository.verify`` with tasks: they read the same, and the report is the same.

    >>> import frazil
    >>> from frazil.pipeline import Inline, verify
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> report = verify(repo, "checksum", engine=Inline())
    >>> report.ok, report.snapshots
    (True, 1)
    """
    engine, context = engine_of(engine), context_of(repo)
    return plan.verify(context, verify_level(level), pieces_run(context, engine))


@dataclass(frozen=True, slots=True)
class _EngineWalk(Walk):
    """Tasks read the metadata of many versions."""

    context: Context
    engine: Engine

    def manifests(self, storage: Storage, snapshots: U8, optional: U8) -> ManifestFiles:
        items: list[Any] = [(batch, []) for batch in snapshot_batches(id_list(snapshots))]
        items += [([], batch) for batch in snapshot_batches(id_list(optional))]
        parts = pieces(self.context, self.engine, walk_manifests, items)
        return each_once([ManifestFiles.empty(), *parts])

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> U8:
        return distinct(list(pieces(self.context, self.engine, walk_chunks, manifest_batches(manifests))))


def _sweep_by_tasks(context: Context, engine: Engine, patience: Patience) -> Callable[[Listed], Swept]:
    """Deletes by tasks. If a task gives up, the error does not have what others deleted."""

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
