"""Pieces of maintenance as tasks. A piece is a function of a context and an item, found by its name."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from frazil.format.columns import U8
from frazil.format.ids import id_matrix
from frazil.jobs.engine import Engine, described
from frazil.maintenance.compaction.relocation import relocate_piece
from frazil.maintenance.compaction.survey import survey_piece
from frazil.maintenance.deletion import Sweeper, Swept
from frazil.maintenance.listing import distinct
from frazil.maintenance.storage_stats import Parts, parts_of
from frazil.maintenance.verification.pieces import PIECES, Piece, Run
from frazil.maintenance.walk import Bounds, LocalWalk, chunks_of
from frazil.maintenance.walk_columns import ManifestChunks, SnapshotManifests
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST_CHUNK_FILES


def sum_parts(context: Context, ids: list[bytes]) -> Iterator[Parts]:
    """Yield the sums of the references in manifests, for the statistics of a storage.

    >>> list(sum_parts(None, []))
    []
    """
    return (parts_of(context.storage, id_) for id_ in ids)


def walk_manifests(context: Context, item: Any) -> Iterator[SnapshotManifests]:
    """Yield the manifests of snapshots.

    >>> import frazil
    >>> from frazil.repository.handle.interior import context_of
    >>> context = context_of(frazil.Repository.create(frazil.in_memory_storage()))
    >>> [len(part) for part in walk_manifests(context, ([], []))]
    [0]
    """
    ids, others = map(id_matrix, item)
    yield SnapshotManifests.concat(list(LocalWalk(Bounds()).snapshots(context.storage, ids, others)))


def walk_chunks(context: Context, ids: list[bytes]) -> Iterator[ManifestChunks]:
    """Yield the digests of the chunk files to which manifests refer.

    >>> import frazil
    >>> from frazil.repository.handle.interior import context_of
    >>> context = context_of(frazil.Repository.create(frazil.in_memory_storage()))
    >>> [len(part) for part in walk_chunks(context, [])]
    [0]
    """
    yield ManifestChunks.concat([ManifestChunks.of(id_, chunks_of(context.storage, id_)) for id_ in ids])


def chunk_file_ids(context: Context, ids: list[bytes]) -> Iterator[U8]:
    """Yield the distinct ids of the chunk files to which manifests refer.

    >>> [ids.shape for ids in chunk_file_ids(None, [])]
    [(0, 12)]
    """
    yield distinct([MANIFEST_CHUNK_FILES.read(context.storage, id_).chunk_ids for id_ in ids])


def delete_files(context: Context, item: Any) -> Iterator[Swept]:
    """Delete files of a repository, and yield the numbers of deleted files and bytes.

    >>> import frazil
    >>> from frazil.repository.handle.interior import context_of
    >>> context = context_of(frazil.Repository.create(frazil.in_memory_storage()))
    >>> from frazil.maintenance.deletion import Patience
    >>> from frazil.maintenance.listing import listed
    >>> files = listed(context.storage, "chunks")
    >>> [swept.objects for swept in delete_files(context, (files, Patience()))]
    [0]
    """
    files, patience = item
    yield Sweeper(context.storage, patience).sweep(files)


_PIECES: Final[dict[str, Piece]] = {
    piece.__name__: piece
    for piece in (
        *PIECES,
        sum_parts,
        walk_manifests,
        walk_chunks,
        chunk_file_ids,
        delete_files,
        survey_piece,
        relocate_piece,
    )
}


def run_piece(shared: bytes, task: bytes) -> bytes:
    """Run one task: a piece with one item. The result is a pickled list."""
    name, context = _unpacked(shared)
    return pickle.dumps(list(_PIECES[name](context, pickle.loads(task))))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[str, Context]:
    unpickled: tuple[str, Context] = pickle.loads(shared)
    return unpickled


def pieces_run(context: Context, engine: Engine) -> Run:
    """Return a function that runs the pieces of a verification as tasks.

    >>> from frazil.jobs.engine import Inline
    >>> list(pieces_run(None, Inline())(sum_parts, [[]]))
    []
    """
    return functools.partial(pieces, context, engine)


def pieces(context: Context, engine: Engine, piece: Piece, items: Sequence[Any]) -> Iterator[Any]:
    """Run a piece for items, one task for each item.

    >>> from frazil.jobs.engine import Inline
    >>> list(pieces(None, Inline(), sum_parts, [[], []]))
    []
    """
    shared = pickle.dumps((piece.__name__, context))
    results = engine.run(run_piece, list(map(pickle.dumps, items)), shared)
    with described(f"frazil {piece.__name__}"):  # the engine reads it before the first result
        first = list(islice(results, 1))
    for result in chain(first, results):
        yield from pickle.loads(result)
