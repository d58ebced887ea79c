"""Chunks that operations copy without decoding, as references or as bytes.

Within one repository both arrays refer to the same chunks. Tasks fetch chunks of another repository, and
virtual chunks that become native: each task stores the bytes of a range of rows of the array's chunk table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from frazil.changes.chunk_changes import table_of
from frazil.errors import IcechunkError
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.jobs.blocks import groups
from frazil.jobs.task_results import Outcome
from frazil.pipeline.transform.array_info import ArrayInfo, Shape
from frazil.repository.session.chunk_errors import chunk_error
from frazil.repository.session.session import ForkSession, Session
from frazil.threads import Purpose, thread_pool

#: Bytes that one task fetches, and that it holds at any time.
PER_TASK: Final = 256_000_000
_AT_ONCE: Final = 32_000_000


@dataclass(frozen=True, slots=True)
class ChunkTransfer:
    """Chunks of the array ``source`` for the array ``path``: those with ``low <= coordinates < high``.

    The new coordinates are the old ones minus ``low``. ``virtual`` True selects only virtual chunks, False
    only others, None all. ``start`` and ``stop`` are rows of the selected part of the chunk table.
    """

    source: str
    path: str
    low: Shape
    high: Shape
    virtual: bool | None = None
    start: int = 0
    stop: int | None = None

    def region(self, grid: Shape) -> tuple[slice, ...]:
        """Return the elements of the source, for chunks of the shape ``grid``."""
        ends = zip(self.low, self.high, grid, strict=True)
        return tuple(slice(low * step, high * step) for low, high, step in ends)


def whole_transfer(old: ArrayInfo, new: ArrayInfo) -> ChunkTransfer:
    """Return the transfer of all chunks of an array."""
    return ChunkTransfer(old.path, new.path, (0,) * old.ndim, (1 << 32,) * old.ndim)


def transfer_table(session: Session, transfer: ChunkTransfer) -> ChunkTable:
    """Return the references of a transfer, with their new coordinates."""
    table = session.chunk_table(transfer.source)
    low, high = np.array(transfer.low, np.int64), np.array(transfer.high, np.int64)
    selected = ((table.index >= low) & (table.index < high)).all(axis=1)
    if transfer.virtual is not None:
        selected &= (table.kind == ChunkKind.VIRTUAL) == transfer.virtual
    table = table.select_chunks(np.flatnonzero(selected)[transfer.start : transfer.stop])
    return replace(table, index=(table.index - low).astype(np.uint32))


def share_chunks(session: Session, source: Session, transfers: Sequence[ChunkTransfer]) -> None:
    """Set references to the same chunks, in one repository."""
    for transfer in transfers:
        session.workspace.set_refs(transfer.path, transfer_table(source, transfer))


def fetch_items(source: Session, transfers: Sequence[ChunkTransfer]) -> list[ChunkTransfer]:
    """Return the transfers, cut into items of about ``PER_TASK`` bytes."""
    items: list[ChunkTransfer] = []
    for transfer in transfers:
        offsets = groups(transfer_table(source, transfer).length.astype(np.int64), PER_TASK).tolist()
        items += [replace(transfer, start=start, stop=stop) for start, stop in pairwise(offsets)]
    return items


def fetch_chunks(fork: ForkSession, source: Session, transfer: ChunkTransfer) -> Outcome:
    """Read the bytes of chunks from any place, and store them in this repository: the task.

    Raises the error of the first chunk that cannot be read, with the array and the chunk's coordinates.
    """
    table = transfer_table(source, transfer)
    coords = list(map(tuple, table.index.tolist()))
    workspace = fork.workspace
    size = int(table.length.sum())
    with thread_pool(Purpose.CHUNK_COPIES) as threads:
        for start, stop in pairwise(groups(table.length.astype(np.int64), _AT_ONCE).tolist()):
            requests = [(table.ref(row), 0, None) for row in range(start, stop)]
            try:
                data = source.workspace.reader.read_many(requests)  # type: ignore[arg-type]  # none is absent
            except IcechunkError:
                _raise_with_chunk(source, transfer, requests, coords[start:stop])
                raise
            stored = list(threads.map(workspace.store_bytes, data))
            refs: dict[Any, Any] = dict(zip(coords[start:stop], stored, strict=True))
            workspace.set_refs(transfer.path, table_of(refs, table.ndim))
    return Outcome(chunks=len(table), bytes_read=size, bytes_written=size)


def _raise_with_chunk(
    source: Session, transfer: ChunkTransfer, requests: Sequence[Any], coords: Sequence[Shape]
) -> None:
    """Raise the error of the first of these chunks that cannot be read, with its coordinates."""
    low = np.array(transfer.low, np.int64)
    for (ref, *_), at in zip(requests, coords, strict=True):
        try:
            source.workspace.reader.read(ref)
        except IcechunkError as error:
            chunk = tuple((low + at).tolist())
            raise chunk_error(
                source.workspace.snapshot_id, transfer.source, chunk, ref, error
            ) from error.__cause__
