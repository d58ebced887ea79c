"""Some small transaction logs, which are read together.

A rebase over a thousand commits reads a thousand logs. A function of numpy takes as long for ten rows as for
a thousand. So the payloads of several logs are joined, and the lists of all logs are read as columns
(``joined_files``). Logs with moves are read alone: they are rare.

Specification: *Transaction Log Files*.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format.columns import U8, U32, windows
from frazil.format.coordinates import cut, in_order
from frazil.format.envelope import FileType, open_envelope
from frazil.format.flatbuffer import ranges_by
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_list
from frazil.format.joined_files import IRREGULAR, JoinedFiles, JoinedTables
from frazil.format.transaction_log import (
    CHUNK_COORDS,
    CHUNK_LISTS,
    ID_LIST_SLOTS,
    LOG_ID,
    LOG_MOVES,
    TransactionLog,
    require_lists,
)

#: The largest payload of a log that is read together with others.
_JOINED_BYTES: Final = 1 << 19
_NODE_ID, _CHUNKS = 0, 1


def decode_logs_together(files: Sequence[Any]) -> list[TransactionLog] | None:
    """Read some small transaction logs together."""
    try:
        payloads = (open_envelope(data, FileType.TRANSACTION_LOG, _JOINED_BYTES)[1] for data in files)
        roots = JoinedFiles.of(payloads).roots()
        require_lists(roots)
        _require_no_moves(roots)
        names = list(ID_LIST_SLOTS.values())
        lists = zip(*(_ids(roots, slot) for slot in ID_LIST_SLOTS), strict=True)
        chunks = _updated_chunks(roots)
        ids = id_list(roots.structs(LOG_ID, OBJECT_ID_BYTES))
        return [
            TransactionLog(id_, **dict(zip(names, columns, strict=True)), updated_chunks=updated)
            for id_, columns, updated in zip(ids, lists, chunks, strict=True)
        ]
    except IRREGULAR:
        return None


def _require_no_moves(roots: JoinedTables) -> None:
    present = roots.present(LOG_MOVES)
    if present.any() and roots.take(present).vectors(LOG_MOVES, 4)[1].any():
        raise FormatError("a log has moves")


def _ids(roots: JoinedTables, slot: int) -> list[U8]:
    """Return the ids of nodes in a list of each log. Raise ``FormatError`` unless they ascend in each log."""
    starts, counts = roots.vectors(slot, NODE_ID_BYTES)
    if not counts.any():
        return [np.zeros((0, NODE_ID_BYTES), np.uint8)] * len(counts)
    words = windows(roots.joined.buffer.bytes, NODE_ID_BYTES)[ranges_by(starts, counts, NODE_ID_BYTES)]
    ends = np.cumsum(counts)
    numbers = words.view(">u8").astype(np.uint64)
    ascends = numbers[1:] > numbers[:-1]
    inner = ends[:-1]
    ascends[inner[(inner > 0) & (inner < len(numbers))] - 1] = True
    if not ascends.all():
        raise FormatError("the ids of a log are not sorted")
    matrix = words.view(np.uint8).reshape(-1, NODE_ID_BYTES)
    return list(map(matrix.__getitem__, map(slice, (ends - counts).tolist(), ends.tolist())))


def _updated_chunks(roots: JoinedTables) -> list[dict[bytes, U32]]:
    """Return the coordinates of the chunks that each log names, by the id of the array."""
    arrays, counts = roots.children(CHUNK_LISTS)
    if not len(arrays):
        return [{} for _ in range(len(roots))]
    nodes = id_list(arrays.structs(_NODE_ID, NODE_ID_BYTES))
    chunks, sizes = arrays.children(_CHUNKS)
    starts, ndims = chunks.vectors(CHUNK_COORDS, 4)
    firsts = np.cumsum(sizes) - sizes
    ranks = np.zeros(len(sizes), np.int64)
    ranks[sizes > 0] = ndims[firsts[sizes > 0]]
    if not np.array_equal(np.repeat(ranks, sizes), ndims):
        raise FormatError("chunks of one array with coordinates of different rank")
    numbers = roots.joined.buffer.gather(ranges_by(starts, ndims, 4), "<u4")
    ends = np.cumsum(ranks * sizes)
    coordinates = in_order(cut(numbers, ends - ranks * sizes, sizes, ranks))
    bounds = pairwise(accumulate(counts.tolist(), initial=0))
    return [dict(zip(nodes[low:high], coordinates[low:high], strict=True)) for low, high in bounds]
