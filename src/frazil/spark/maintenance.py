"""Upkeep of large repositories, on executors: the same pieces of work as ``Repository``'s methods do in one
process, and what one process would need days for.

    garbage_collect      manifests are read, and files deleted, by tasks
    verify               every reference is looked at, up to every byte
    storage_stats        each manifest is summed up by a task
    rewrite_manifests    the manifests of large arrays are written by tasks (`frazil.spark.bulk`)

The driver lists, decides, and makes the one conditional write. What keeps collections out of the way of
sessions (leases and records, ``repository.in_use``) is the same. Expiration is one conditional write and has
no tasks: ``Repository.expire_snapshots``.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from frazil.changes.ready import Ready
from frazil.format.columns import U8
from frazil.format.ids import id_list, id_matrix, id_to_text
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.maintenance.batches import manifest_batches, snapshot_batches
from frazil.maintenance.garbage import Collection, collect, look, referred
from frazil.maintenance.listing import Listed, distinct
from frazil.maintenance.rewrite import rewrite
from frazil.maintenance.storage_stats import Parts, parts_of, summed
from frazil.maintenance.sweep import Patience, Sweeper, Swept
from frazil.maintenance.verification import plan
from frazil.maintenance.walk import Bounds, Here, Walk, chunks_of, each_once
from frazil.repository.clock import from_datetime
from frazil.repository.context import Context
from frazil.repository.findings import VerificationReport, VerifyLevel, verify_level
from frazil.repository.repository import Repository
from frazil.repository.values import ChunkStorageStats, CommitMethod, GCSummary
from frazil.spark.bulk import MANIFESTS_ON_EXECUTORS_ABOVE, rewritten
from frazil.spark.engine import Engine
from frazil.spark.engines import engine_of
from frazil.storage.base import Storage

#: A task deletes so many files.
_DELETED: Final = 50_000
_ERRORS_TOLD: Final = 10


def garbage_collect(
    repo: Repository,
    delete_object_older_than: datetime,
    *,
    engine: Engine | None = None,
    dry_run: bool = False,
    max_concurrent_deletes: int = 10,
    max_consecutive_delete_failures: int = 50,
) -> GCSummary:
    """``Repository.garbage_collect`` with tasks: the same files go, and it raises the same.

    The limits of deleting are those of one task.
    """
    engine = engine_of(engine)
    context = repo._context
    patience = Patience(max_concurrent_deletes, max_consecutive_delete_failures)
    what = Collection(
        from_datetime(delete_object_older_than, "delete_object_older_than"),
        patience=patience,
        walk=_OnEngine(context, engine),
        sweep=_sweep(context, engine, patience),
    )
    return (look if dry_run else collect)(context, what)


def storage_stats(repo: Repository, *, engine: Engine | None = None) -> ChunkStorageStats:
    """``Repository.chunk_storage_stats`` with tasks. The driver holds 16 bytes for each distinct range."""
    engine = engine_of(engine)
    context, info = repo._context, repo._context.whole()
    walk = _OnEngine(context, engine)
    nothing = info.snapshots.ids()[:0]
    manifests = walk.manifests(context.storage, info.snapshots.ids()[referred(info)], nothing)
    return summed(_each(context, engine, _parts, manifest_batches(manifests)))


def rewrite_manifests(
    repo: Repository,
    message: str,
    *,
    branch: str,
    engine: Engine | None = None,
    metadata: dict[str, Any] | None = None,
    commit_method: CommitMethod = "new_commit",
    manifests_on_executors_above: int = MANIFESTS_ON_EXECUTORS_ABOVE,
) -> str:
    """``Repository.rewrite_manifests``; tasks write those of arrays with many references."""
    engine = engine_of(engine)
    context = repo._context

    def write(parent: Snapshot) -> dict[bytes, Ready]:
        return rewritten(context, parent, manifests_on_executors_above, engine)

    told = {**repo._default_metadata, **(metadata or {})}
    amend = commit_method == "amend"
    return id_to_text(rewrite(context, branch, message, told, amend=amend, write=write))


def verify(
    repo: Repository, level: VerifyLevel = "metadata", *, engine: Engine | None = None
) -> VerificationReport:
    """``Repository.verify`` with tasks: the same is read, and the same is found.

    >>> import frazil
    >>> from frazil.spark import Inline, verify
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> report = verify(repo, "checksum", engine=Inline())
    >>> report.ok, report.snapshots
    (True, 1)
    """
    engine, context = engine_of(engine), repo._context
    return plan.verify(context, verify_level(level), pieces_run(context, engine))


# Tasks: a function of a context and an item, and its name


def _parts(context: Context, ids: list[bytes]) -> Iterator[Parts]:
    return (parts_of(context.storage, id_) for id_ in ids)


def _manifests(context: Context, item: Any) -> Iterator[ManifestFiles]:
    ids, others = map(id_matrix, item)
    yield Here(Bounds()).manifests(context.storage, ids, others)


def _chunks(context: Context, ids: list[bytes]) -> Iterator[U8]:
    yield distinct([chunks_of(context.storage, id_) for id_ in ids])


def _deleted(context: Context, item: Any) -> Iterator[Swept]:
    files, patience = item
    yield Sweeper(context.storage, patience).sweep(files)


_PIECES: Final[dict[str, plan.Piece]] = {
    piece.__name__: piece for piece in (*plan.PIECES, _parts, _manifests, _chunks, _deleted)
}


def run_piece(shared: bytes, task: bytes) -> bytes:
    """The task: a piece of work on one item; all that it gave."""
    name, context = _unpacked(shared)
    return pickle.dumps(list(_PIECES[name](context, pickle.loads(task))))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[str, Context]:
    said: tuple[str, Context] = pickle.loads(shared)
    return said


def pieces_run(context: Context, engine: Engine) -> plan.Run:
    """How pieces of a verification are done by tasks."""
    return functools.partial(_each, context, engine)


def _each(context: Context, engine: Engine, piece: plan.Piece, items: Sequence[Any]) -> Iterator[Any]:
    """What the piece gives for all items, one after the other."""
    shared = pickle.dumps((piece.__name__, context))
    for result in engine.run(run_piece, list(map(pickle.dumps, items)), shared):
        yield from pickle.loads(result)


@dataclass(frozen=True, slots=True)
class _OnEngine(Walk):
    """Metadata of many versions, read by tasks."""

    context: Context
    engine: Engine

    def manifests(self, storage: Storage, snapshots: U8, optional: U8) -> ManifestFiles:
        items: list[Any] = [(batch, []) for batch in snapshot_batches(id_list(snapshots))]
        items += [([], batch) for batch in snapshot_batches(id_list(optional))]
        parts = _each(self.context, self.engine, _manifests, items)
        return each_once([ManifestFiles.empty(), *parts])

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> U8:
        return distinct(list(_each(self.context, self.engine, _chunks, manifest_batches(manifests))))


def _sweep(context: Context, engine: Engine, patience: Patience) -> Callable[[Listed], Swept]:
    """Deletes by tasks. What has been deleted when one gives up is not told."""

    def sweep(files: Listed) -> Swept:
        numbers = np.arange(len(files)) // _DELETED
        parts = [files.take(numbers == number) for number in range(-(-len(files) // _DELETED))]
        done = Swept()
        for swept in _each(context, engine, _deleted, [(part, patience) for part in parts]):
            done.objects += swept.objects
            done.size += swept.size
            done.failed += swept.failed
            done.throttled += swept.throttled
            done.errors = (done.errors + swept.errors)[:_ERRORS_TOLD]
        return done

    return sweep
