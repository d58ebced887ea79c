"""Pieces of maintenance as tasks: each is a function of a context and an item, found by its name."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Final

from frazil.format.columns import U8
from frazil.format.ids import id_matrix
from frazil.format.snapshot import ManifestFiles
from frazil.jobs.engine import Engine
from frazil.maintenance.deletion import Sweeper, Swept
from frazil.maintenance.listing import distinct
from frazil.maintenance.storage_stats import Parts, parts_of
from frazil.maintenance.verification import plan
from frazil.maintenance.walk import Bounds, LocalWalk, chunks_of
from frazil.repository.catalog.context import Context


def sum_parts(context: Context, ids: list[bytes]) -> Iterator[Parts]:
    return (parts_of(context.storage, id_) for id_ in ids)


def walk_manifests(context: Context, item: Any) -> Iterator[ManifestFiles]:
    ids, others = map(id_matrix, item)
    yield LocalWalk(Bounds()).manifests(context.storage, ids, others)


def walk_chunks(context: Context, ids: list[bytes]) -> Iterator[U8]:
    yield distinct([chunks_of(context.storage, id_) for id_ in ids])


def delete_files(context: Context, item: Any) -> Iterator[Swept]:
    files, patience = item
    yield Sweeper(context.storage, patience).sweep(files)


_PIECES: Final[dict[str, plan.Piece]] = {
    piece.__name__: piece for piece in (*plan.PIECES, sum_parts, walk_manifests, walk_chunks, delete_files)
}


def run_piece(shared: bytes, task: bytes) -> bytes:
    """The task: a piece of work on one item; all that it gave."""
    name, context = _unpacked(shared)
    return pickle.dumps(list(_PIECES[name](context, pickle.loads(task))))


@functools.lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[str, Context]:
    unpickled: tuple[str, Context] = pickle.loads(shared)
    return unpickled


def pieces_run(context: Context, engine: Engine) -> plan.Run:
    """How pieces of a verification are done by tasks."""
    return functools.partial(pieces, context, engine)


def pieces(context: Context, engine: Engine, piece: plan.Piece, items: Sequence[Any]) -> Iterator[Any]:
    """What the piece gives for all items, one after the other."""
    shared = pickle.dumps((piece.__name__, context))
    for result in engine.run(run_piece, list(map(pickle.dumps, items)), shared):
        yield from pickle.loads(result)
