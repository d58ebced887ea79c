"""Upkeep of large repositories, on executors: the same pieces of work as ``Repository``'s methods do in one
process, and what one process would need days for.

    garbage_collect      manifests are read, and files deleted, by tasks
    verify               every reference is looked at, up to every byte
    storage_stats        each manifest is summed up by a task
    rewrite_manifests    the manifests of large arrays are written by tasks (`frazil.jobs.bulk_commit`)

The driver lists, decides, and makes the one conditional write. What keeps collections out of the way of
sessions (leases and records, ``repository.in_use``) is the same. Expiration is one conditional write and has
no tasks: ``Repository.expire_snapshots``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from frazil.changes.prepared_manifests import Ready
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
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.storage.base import Storage

#: A task deletes so many files.
_DELETED: Final = 50_000
_ERRORS_TOLD: Final = 10


def garbage_collect(
    repo: Repository,
    delete_object_older_than: datetime,
    *,
    engine: Engine | EngineName | None = None,
    dry_run: bool = False,
    max_concurrent_deletes: int = 10,
    max_consecutive_delete_failures: int = 50,
) -> GCSummary:
    """``Repository.garbage_collect`` with tasks: the same files go, and it raises the same.

    The limits of deleting are those of one task.
    """
    engine = engine_of(engine)
    context = context_of(repo)
    patience = Patience(max_concurrent_deletes, max_consecutive_delete_failures)
    what = Collection(
        from_datetime(delete_object_older_than, "delete_object_older_than"),
        patience=patience,
        walk=_OnEngine(context, engine),
        sweep=_sweep(context, engine, patience),
    )
    return (look if dry_run else collect)(context, what)


def storage_stats(repo: Repository, *, engine: Engine | EngineName | None = None) -> ChunkStorageStats:
    """``Repository.chunk_storage_stats`` with tasks. The driver holds 16 bytes for each distinct range."""
    engine = engine_of(engine)
    context, info = context_of(repo), context_of(repo).catalog.full_repo_info()
    walk = _OnEngine(context, engine)
    nothing = info.snapshots.ids()[:0]
    manifests = walk.manifests(context.storage, info.snapshots.ids()[referred(info)], nothing)
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
    """``Repository.rewrite_manifests``; tasks write those of arrays with many references."""
    engine = engine_of(engine)
    context = context_of(repo)

    def write(parent: Snapshot) -> dict[bytes, Ready]:
        return rewritten(context, parent, manifests_on_executors_above, engine)

    told = {**repo._default_metadata, **(metadata or {})}
    amend = commit_method == "amend"
    return id_to_text(rewrite(context, branch, message, told, amend=amend, write=write))


def verify(
    repo: Repository, level: VerifyLevel = "metadata", *, engine: Engine | EngineName | None = None
) -> VerificationReport:
    """``Repository.verify`` with tasks: the same is read, and the same is found.

    >>> import frazil
    >>> from frazil.spark import Inline, verify
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> report = verify(repo, "checksum", engine=Inline())
    >>> report.ok, report.snapshots
    (True, 1)
    """
    engine, context = engine_of(engine), context_of(repo)
    return plan.verify(context, verify_level(level), pieces_run(context, engine))


@dataclass(frozen=True, slots=True)
class _OnEngine(Walk):
    """Metadata of many versions, read by tasks."""

    context: Context
    engine: Engine

    def manifests(self, storage: Storage, snapshots: U8, optional: U8) -> ManifestFiles:
        items: list[Any] = [(batch, []) for batch in snapshot_batches(id_list(snapshots))]
        items += [([], batch) for batch in snapshot_batches(id_list(optional))]
        parts = pieces(self.context, self.engine, walk_manifests, items)
        return each_once([ManifestFiles.empty(), *parts])

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> U8:
        return distinct(list(pieces(self.context, self.engine, walk_chunks, manifest_batches(manifests))))


def _sweep(context: Context, engine: Engine, patience: Patience) -> Callable[[Listed], Swept]:
    """Deletes by tasks. What has been deleted when one gives up is not told."""

    def sweep(files: Listed) -> Swept:
        numbers = np.arange(len(files)) // _DELETED
        parts = [files.select_files(numbers == number) for number in range(-(-len(files) // _DELETED))]
        done = Swept()
        for swept in pieces(context, engine, delete_files, [(part, patience) for part in parts]):
            done.objects += swept.objects
            done.size += swept.size
            done.failed += swept.failed
            done.throttled += swept.throttled
            done.errors = (done.errors + swept.errors)[:_ERRORS_TOLD]
        return done

    return sweep
