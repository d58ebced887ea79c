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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from frazil.changes.ready import Ready
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import U8
from frazil.format.ids import id_list, id_matrix, id_to_text
from frazil.format.keys import CHUNKS
from frazil.format.snapshot import ManifestFiles, Snapshot
from frazil.maintenance.garbage import Collection, collect, look, referred
from frazil.maintenance.listing import Listed, distinct, listed
from frazil.maintenance.rewrite import rewrite
from frazil.maintenance.storage_stats import Parts, parts_of, summed
from frazil.maintenance.sweep import Patience, Sweeper, Swept
from frazil.maintenance.verify import (
    Finding,
    Level,
    Uses,
    absent,
    check_manifest,
    check_snapshot,
    read_rows,
    split_rows,
    without_files,
)
from frazil.maintenance.walk import Bounds, Here, Walk, chunks_of, each_once
from frazil.repository.clock import from_datetime
from frazil.repository.context import Context
from frazil.repository.repository import Repository
from frazil.repository.values import ChunkStorageStats, CommitMethod, GCSummary
from frazil.spark.bulk import MANIFESTS_ON_EXECUTORS_ABOVE, rewritten
from frazil.spark.engine import Engine
from frazil.spark.job import default_engine
from frazil.storage.base import Storage

#: A task reads manifests with about so many references, and no more manifests or snapshots than that.
_REFS: Final = 1 << 20
_MANIFESTS: Final = 200
_SNAPSHOTS: Final = 200
#: A task deletes so many files, and reads so many bytes.
_DELETED: Final = 50_000
_BYTES: Final = 1 << 30
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
    engine = engine or default_engine()
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
    engine = engine or default_engine()
    context, info = repo._context, repo._context.whole()
    walk = _OnEngine(context, engine)
    nothing = info.snapshots.ids()[:0]
    manifests = walk.manifests(context.storage, info.snapshots.ids()[referred(info)], nothing)
    return summed(_each(context, engine, _parts, _groups(manifests)))


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
    engine = engine or default_engine()
    context = repo._context

    def write(parent: Snapshot) -> dict[bytes, Ready]:
        return rewritten(context, parent, manifests_on_executors_above, engine)

    told = {**repo._default_metadata, **(metadata or {})}
    amend = commit_method == "amend"
    return id_to_text(rewrite(context, branch, message, told, amend=amend, write=write))


@dataclass(frozen=True, slots=True)
class Verified:
    """What ``verify`` looked at, and all that is wrong. ``paths`` has those of the nodes in findings."""

    snapshots: int
    manifests: int
    references: int
    bytes_read: int
    findings: tuple[Finding, ...]
    paths: dict[bytes, str]

    def rows(self) -> list[dict[str, Any]]:
        """The findings as rows, one for each chunk that is lost: problem, key, path, coordinates, detail."""
        return [
            {
                "problem": each.problem,
                "key": each.key,
                "path": self.paths.get(each.node),
                "coordinates": coordinates,
                "detail": each.detail,
            }
            for each in self.findings
            for coordinates in each.coordinates.tolist() or [None]
        ]


def verify(repo: Repository, level: Level = "metadata", *, engine: Engine | None = None) -> Verified:
    """Look for what is damaged or gone, in all versions that a branch or tag leads to.

    ``"metadata"`` reads snapshots, transaction logs and manifests; ``"exists"`` also asks for all chunk files
    and foreign objects; ``"checksum"`` reads every byte of chunks, virtual ones as well, which have to be in
    the state that their references remember. See `frazil.maintenance.verify`. What is wrong is no error but a
    finding. Raises ``InvalidInputError`` (``not-allowed``) for another level.

    >>> import frazil
    >>> from frazil.spark import Inline
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> done = verify(repo, "checksum", engine=Inline())
    >>> done.snapshots, done.rows()
    (1, [])
    """
    if level not in ("metadata", "exists", "checksum"):
        raise InvalidInputError(
            f"level: expected metadata, exists or checksum, found {level!r}", ErrorKind.NOT_ALLOWED
        )
    engine = engine or default_engine()
    context, info = repo._context, repo._context.whole()
    snapshots = info.snapshots.ids()[referred(info)]
    findings: list[Finding] = []
    lists: list[ManifestFiles] = [ManifestFiles.empty()]
    users: list[Uses] = []
    for found, files, uses in _each(context, engine, _snapshot, _batches(snapshots, _SNAPSHOTS)):
        findings += found
        lists.append(files)
        users.append(uses)
    manifests, uses = each_once(lists), Uses.union(users)
    work = [
        (level, [(id_, (size, count), uses.of(id_)) for id_, size, count in group])
        for group in _groups(manifests, with_sizes=True)
    ]
    checked = list(_each(context, engine, _manifest, work))
    for found, _ in checked:
        findings += found
    needed = dict(zip(id_list(manifests.ids), [need for _, need in checked], strict=True))
    read = 0
    if level != "metadata":
        there = listed(context.storage, CHUNKS)
        lost, sizes = absent(needed.values(), there)
        if len(lost):
            for found in _each(
                context, engine, _lost, [(group, lost, sizes) for group in _groups(manifests)]
            ):
                findings += found
    if level == "checksum":
        ranges = [
            (id_, low, high)
            for id_, need in needed.items()
            for low, high in split_rows(need.count, need.size, _BYTES)
            if need.size
        ]
        said = {each.key for each in findings}
        for found, size in _each(context, engine, _bytes, ranges):
            findings += [each for each in found if each.key not in said]
            read += size
    total = int(manifests.num_chunk_refs.sum())
    paths = _paths(context, snapshots, {each.node for each in findings})
    return Verified(len(snapshots), len(manifests), total, read, tuple(findings), paths)


def _paths(context: Context, snapshots: U8, nodes: set[bytes]) -> dict[bytes, str]:
    """Where some nodes are, in the newest version that can be read and has them."""
    left, paths = nodes - {b""}, dict[bytes, str]()
    for id_ in reversed(id_list(snapshots)):
        if not left:
            break
        try:
            table = context.assets.snapshot(id_).nodes
        except Exception:  # it is among the findings
            continue
        known = dict(zip(id_list(table.ids), table.paths_list(), strict=True))
        paths.update((node, known[node]) for node in left & known.keys())
        left -= paths.keys()
    return paths


# Tasks: a function of a context and an item, and its name


def _snapshot(context: Context, ids: list[bytes]) -> Iterator[Any]:
    return (check_snapshot(context.storage, id_) for id_ in ids)


def _manifest(context: Context, item: Any) -> Iterator[Any]:
    level, group = item
    return (
        check_manifest(context.storage, context.virtual, id_, said, uses, level) for id_, said, uses in group
    )


def _lost(context: Context, item: Any) -> Iterator[Any]:
    group, files, sizes = item
    return (without_files(context.storage, id_, files, sizes) for id_ in group)


def _bytes(context: Context, item: Any) -> Iterator[Any]:
    yield read_rows(context.storage, context.virtual, *item)


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


type Piece = Callable[[Context, Any], Iterable[Any]]

_PIECES: Final[dict[str, Piece]] = {
    piece.__name__: piece
    for piece in (_snapshot, _manifest, _lost, _bytes, _parts, _manifests, _chunks, _deleted)
}


def run_piece(shared: bytes, task: bytes) -> bytes:
    """The task: a piece of work on one item; all that it gave."""
    name, context = _unpacked(shared)
    return pickle.dumps(list(_PIECES[name](context, pickle.loads(task))))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[str, Context]:
    said: tuple[str, Context] = pickle.loads(shared)
    return said


def _each(context: Context, engine: Engine, piece: Piece, items: Sequence[Any]) -> Iterator[Any]:
    """What the piece gives for all items, one after the other."""
    shared = pickle.dumps((piece.__name__, context))
    for result in engine.run(run_piece, list(map(pickle.dumps, items)), shared):
        yield from pickle.loads(result)


def _batches(ids: U8, size: int) -> list[list[bytes]]:
    rows = id_list(ids)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _groups(manifests: ManifestFiles, *, with_sizes: bool = False) -> list[list[Any]]:
    """Manifests of one task each: their ids, or ids, sizes and counts."""
    rows: list[Any] = id_list(manifests.ids)
    if with_sizes:
        rows = list(zip(rows, manifests.size_bytes.tolist(), manifests.num_chunk_refs.tolist(), strict=True))
    weights = np.maximum(manifests.num_chunk_refs.astype(np.int64), _REFS // _MANIFESTS)
    cuts = (np.flatnonzero(np.diff(np.cumsum(weights) // _REFS)) + 1).tolist()
    pairs = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    return [rows[low:high] for low, high in pairs if high > low]


@dataclass(frozen=True, slots=True)
class _OnEngine(Walk):
    """Metadata of many versions, read by tasks."""

    context: Context
    engine: Engine

    def manifests(self, storage: Storage, snapshots: U8, optional: U8) -> ManifestFiles:
        items: list[Any] = [(batch, []) for batch in _batches(snapshots, _SNAPSHOTS)]
        items += [([], batch) for batch in _batches(optional, _SNAPSHOTS)]
        parts = _each(self.context, self.engine, _manifests, items)
        return each_once([ManifestFiles.empty(), *parts])

    def chunks(self, storage: Storage, manifests: ManifestFiles) -> U8:
        return distinct(list(_each(self.context, self.engine, _chunks, _groups(manifests))))


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
