"""The tasks of a virtual ingest: they set references, and write the chunks that are not in a file."""

from __future__ import annotations

import itertools
import json
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.chunk_table import ChunkTable
from frazil.jobs.task_results import Outcome
from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.items import Box, Item
from frazil.pipeline.ingest.plain_chunks import cut_references
from frazil.pipeline.ingest.task_context import Readers, TaskContext
from frazil.readers.reader import INLINE, ChunkReferences, NotVirtual
from frazil.remedies import argument
from frazil.repository.session.session import ForkSession
from frazil.repository.session.virtual_refs import VirtualRows, set_rows


def set_references(fork: ForkSession, context: TaskContext, item: Item) -> Outcome:
    """Set references of the arrays of an item to the chunks in its files.

    Inline chunks of a reader (see `ChunkReferences`) become chunks of the repository. If the steps were in
    the repository before, chunks that a file does not have are deleted.
    """
    count = read = own = 0
    pieces = item.pieces
    with Readers(context.access, item) as readers:
        rows = zip(
            pieces.source.tolist(),
            pieces.start.tolist(),
            pieces.at.tolist(),
            pieces.count.tolist(),
            strict=True,
        )
        for (file, start, at, steps), box in itertools.product(rows, item.boxes):
            target = context.target(box.array)
            references = _references(readers, item, target, file, context.arrays[box.array].adds_axis)
            low, high = _place(target, box, at, steps)
            index = references.index.astype(np.int64)
            if target.axis is not None:
                index[:, target.axis] += (at - start) // target.chunks[target.axis]
            inside = ((index >= low) & (index < high)).all(axis=1)
            if len(item.old.within(at, at + steps)):
                _remove_missing(fork, target.path, low, high, index[inside])
            _set_virtual(
                fork, target.path, index, references, inside, item.checks[file] if item.checks else None
            )
            own += _set_inline(fork, target.path, index, references, inside)
            count += int(inside.sum())
            read += int(references.length[inside].sum())
    return Outcome(
        rows=int(pieces.count.sum()), chunks=count, bytes_read=0, bytes_written=own, value=read - own
    )


def _place(target: TargetArray, box: Box, at: int, steps: int) -> tuple[list[int], list[int]]:
    """Return the first and the end chunk of the part of a box that a piece of a file fills."""
    start, stop = list(box.start), list(box.stop)
    if target.axis is not None:
        start[target.axis], stop[target.axis] = at, at + steps
    low = [each // step for each, step in zip(start, target.chunks, strict=True)]
    high = [-(-each // step) for each, step in zip(stop, target.chunks, strict=True)]
    return low, high


def _remove_missing(
    fork: ForkSession, path: str, low: list[int], high: list[int], index: NDArray[np.int64]
) -> None:
    """Delete old chunks that the file does not have: their new value is the fill value."""
    before = fork.workspace.ref_table(path)
    old = before.index[((before.index >= low) & (before.index < high)).all(axis=1)]
    stays = ChunkTable.from_absent(index).find_chunks(old) >= 0
    if not stays.all():
        fork.workspace.delete_refs(path, old[~stays])


def _set_virtual(
    fork: ForkSession,
    path: str,
    index: NDArray[np.int64],
    references: ChunkReferences,
    inside: NDArray[np.bool_],
    checksum: str | datetime | None,
) -> None:
    rows = inside & (references.location != INLINE)
    columns = VirtualRows.of(
        index[rows].astype(np.uint32),
        references.locations,
        references.location[rows],
        references.offset[rows],
        references.length[rows],
        checksum,
    )
    failed = set_rows(fork.workspace, path, columns)
    if failed:
        raise without_container(references.locations[0])


def _set_inline(
    fork: ForkSession,
    path: str,
    index: NDArray[np.int64],
    references: ChunkReferences,
    inside: NDArray[np.bool_],
) -> int:
    """Write the chunks that are not in a file, and return their number of bytes. There are few of them."""
    size = 0
    for row, data in references.inline.items():
        if inside[row]:
            fork.workspace.write_chunk(path, tuple(index[row].tolist()), data)
            size += len(data)
    return size


def _references(
    readers: Readers, item: Item, target: TargetArray, file: int, adds_axis: bool
) -> ChunkReferences:
    """Return the references of a variable of a file, for the chunks of the array."""
    references = readers[file].references(target.name)
    if isinstance(references, NotVirtual):
        raise _not_as_inspected(item.urls[file], target.name, references.reason)
    if adds_axis:
        references = references.with_axis()
    codecs = tuple(json.dumps(each, sort_keys=True) for each in references.codecs)
    if codecs != target.codecs or len(references.chunks) != len(target.shape):
        raise _not_as_inspected(item.urls[file], target.name, "other codecs")
    if target.axis is not None and references.is_plain:
        references = cut_references(references, target.chunks, target.axis)
    if references.chunks != target.chunks:
        raise _not_as_inspected(item.urls[file], target.name, f"chunks of {references.chunks}")
    return references


def _not_as_inspected(url: str, name: str, actual: str) -> FormatError:
    return FormatError(
        f"{url}: the chunks of {name} have changed since the inspection, got {actual}. Ingest again",
        ErrorKind.INVALID_FILE_FORMAT,
    )


def without_container(location: str, url: str | None = None) -> InvalidInputError:
    """Return the error for a file outside of all virtual chunk containers of the repository.

    ``location`` is the location of its chunks, ``url`` the URL of the file if it differs.
    """
    prefix = location.rpartition("/")[0] + "/"
    option = prefix if url is None or "://" not in url else url.rpartition("/")[0] + "/"
    return InvalidInputError(
        f"the repository has no virtual chunk container for {location}",
        ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK,
    ).with_remedy(
        "Give containers=[VirtualChunkContainer({!r}, ...)], and open the repository with "
        "authorize_virtual_chunk_access for {!r}",
        prefix,
        prefix,
        shell=f"Give {argument(containers=[option]).command()}",
    )
