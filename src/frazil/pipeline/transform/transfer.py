"""Chunks that are taken as they are: bytes, or only references, and no codec ever runs.

What lies in the same repository is referred to from both places. What lies elsewhere (another repository, or
the file of a virtual chunk) is fetched and stored by tasks, which get a range of rows of the array's chunk
table each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from frazil.changes.chunk_edits import table_of
from frazil.errors import IcechunkError
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.jobs.blocks import groups
from frazil.jobs.task_results import Outcome
from frazil.pipeline.transform.arrays import ArrayInfo
from frazil.repository.session.chunk_errors import chunk_error
from frazil.repository.session.session import ForkSession, Session
from frazil.threads import Purpose, thread_pool

#: Bytes of a task, and of what it holds at any time.
PER_TASK: Final = 256_000_000
_AT_ONCE: Final = 32_000_000

type Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """Chunks of one array to another: those in ``low <= coordinates < high``, which become ``- low``.

    ``start`` and ``stop`` are rows of what that leaves of the table. ``virtual`` leaves only virtual chunks,
    or none of them.
    """

    source: str
    path: str
    low: Shape
    high: Shape
    virtual: bool | None = None
    start: int = 0
    stop: int | None = None

    def region(self, grid: Shape) -> tuple[slice, ...]:
        """The elements of the source."""
        ends = zip(self.low, self.high, grid, strict=True)
        return tuple(slice(low * step, high * step) for low, high, step in ends)


def move_of(old: ArrayInfo, new: ArrayInfo) -> Move:
    """All chunks of an array."""
    return Move(old.path, new.path, (0,) * old.ndim, (1 << 32,) * old.ndim)


def moved(session: Session, move: Move) -> ChunkTable:
    """The references, with their new coordinates."""
    table = session.chunk_table(move.source)
    low, high = np.array(move.low, np.int64), np.array(move.high, np.int64)
    chosen = ((table.index >= low) & (table.index < high)).all(axis=1)
    if move.virtual is not None:
        chosen &= (table.kind == ChunkKind.VIRTUAL) == move.virtual
    table = table.select_chunks(np.flatnonzero(chosen)[move.start : move.stop])
    return replace(table, index=(table.index - low).astype(np.uint32))


def share(session: Session, source: Session, move: Move) -> int:
    """On the driver, in one repository: refer to the same chunks; how many."""
    table = moved(source, move)
    session.workspace.chunks.set_refs(move.path, table)
    return len(table)


def fetches(source: Session, moves: Sequence[Move]) -> list[Move]:
    """The moves in pieces for tasks."""
    out: list[Move] = []
    for move in moves:
        offsets = groups(moved(source, move).length.astype(np.int64), PER_TASK).tolist()
        out += [replace(move, start=start, stop=stop) for start, stop in pairwise(offsets)]
    return out


def fetch(fork: ForkSession, source: Session, move: Move) -> Outcome:
    """Work: the bytes of some chunks, from wherever they are, into this repository."""
    table = moved(source, move)
    coords = list(map(tuple, table.index.tolist()))
    workspace = fork.workspace
    size = int(table.length.sum())
    with thread_pool(Purpose.CHUNK_COPIES) as threads:
        for start, stop in pairwise(groups(table.length.astype(np.int64), _AT_ONCE).tolist()):
            wanted = [(table.ref(row), 0, None) for row in range(start, stop)]
            try:
                data = source.workspace.reader.read_many(wanted)  # type: ignore[arg-type]  # none is absent
            except IcechunkError:
                _name_failure(source, move, wanted, coords[start:stop])
                raise
            kept = list(threads.map(workspace.chunks.store_bytes, data))
            refs: dict[Any, Any] = dict(zip(coords[start:stop], kept, strict=True))
            workspace.chunks.set_refs(move.path, table_of(refs, table.ndim))
    return Outcome(chunks=len(table), bytes_read=size, bytes_written=size)


def _name_failure(source: Session, move: Move, wanted: Sequence[Any], coords: Sequence[Shape]) -> None:
    """Raise the error of the first of these chunks that cannot be read, with its name."""
    low = np.array(move.low, np.int64)
    for (ref, *_), at in zip(wanted, coords, strict=True):
        try:
            source.workspace.reader.read(ref)
        except IcechunkError as error:
            place = tuple((low + at).tolist())
            raise chunk_error(source.workspace, move.source, place, ref, error) from error.__cause__
