"""Work on the bytes of requests: rows by number, batches of limited size, and threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.chunks.column_reads import ColumnRequest
from frazil.chunks.reader import ChunkReader
from frazil.format.columns import I64
from frazil.threads import Purpose, shared_pool

#: Local requests for fewer bytes in total are read without threads.
_SMALL: Final = 1 << 20
#: The most bytes of chunks that are decoded together: about the cache of a processor.
_BATCH: Final = 4 << 20


def rows_by_number(numbers: NDArray[Any]) -> list[I64]:
    """Return the rows of each distinct number."""
    if not len(numbers) or (numbers == numbers[0]).all():
        return [np.arange(len(numbers))] if len(numbers) else []
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def batches_of(rows: I64, size: int) -> list[I64]:
    """Split rows with chunks of ``size`` bytes after decoding into batches."""
    most = max(1, _BATCH // max(1, size))
    return [rows] if len(rows) <= most else np.split(rows, np.arange(most, len(rows), most))


def process_all(
    reader: ChunkReader,
    process: Callable[[ColumnRequest], list[I64]],
    requests: list[ColumnRequest],
    size: int,
) -> I64:
    """Process all requests, in threads if they are large or remote. Return the failed rows in order."""
    local = [request for request in requests if request.is_local]
    remote = [request for request in requests if not request.is_local]
    failures: list[list[I64]] = []
    if len(local) < 2 or size < _SMALL:
        failures += map(process, local)
    else:
        failures += shared_pool(Purpose.CHUNK_DECODING).map(process, local)
    if len(remote) < 2:
        failures += map(process, remote)
    else:
        failures += reader.map_requests(process, remote)
    rows = [each for one in failures for each in one]
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
