"""Transaction logs that are read together: the same as each of them alone."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest

from frazil.errors import FormatError
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.flatbuffer import Buffer
from frazil.format.joined_files import JoinedFiles, decode_logs_together
from frazil.format.transaction_log import (
    ID_LISTS,
    Move,
    TransactionLog,
    decode_transaction_log,
    encode_transaction_log,
)

RANDOM = np.random.default_rng(0)


def file(*chunks: tuple[int, int], ids: int = 0, moves: tuple[Move, ...] = ()) -> bytes:
    """A log with arrays of (count, rank) chunks, and with lists of ids."""
    updated = {
        RANDOM.bytes(8): np.unique(RANDOM.integers(0, 9, (count, rank), np.uint32), axis=0)
        for count, rank in chunks
    }
    lists = {name: RANDOM.integers(0, 256, (ids, 8), np.uint8) for name in ID_LISTS}
    return encode_transaction_log(
        TransactionLog(RANDOM.bytes(12), **lists, updated_chunks=updated, moves=moves)
    )


def content(log: TransactionLog) -> Any:
    lists = [getattr(log, name).tolist() for name in ID_LISTS]
    chunks = [(id_, index.shape, index.tolist()) for id_, index in log.updated_chunks.items()]
    return log.id, lists, chunks, log.moves


@pytest.mark.parametrize(
    "files",
    [
        [file(), file()],
        [file((5, 2)), file(), file((3, 1), (7, 3), (1, 0)), file(ids=3), file((2, 2), ids=1)],
        [file(ids=2), file(ids=0), file(ids=5)],
        [file((0, 2)), file((4, 2))],
    ],
)
def test_the_logs_are_those_of_each_file(files: list[bytes]) -> None:
    together = decode_logs_together(files)
    assert together is not None
    assert list(map(content, together)) == [content(decode_transaction_log(data, "x")) for data in files]


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    payload = bytes(open_envelope(data, FileType.TRANSACTION_LOG)[1])
    assert payload.count(old) == 1
    return seal([payload.replace(old, new)], FileType.TRANSACTION_LOG)


def test_other_files_are_read_alone() -> None:
    good = file((2, 2), ids=2)
    ids = decode_transaction_log(good, "x").new_arrays
    turned = patched(good, ids.tobytes(), ids[::-1].tobytes())
    moved = file(moves=(Move("/a", "/b", b"node-001", True),))
    for other in (turned, moved, good[:-1], b"damaged", b""):
        assert decode_logs_together([good, other]) is None
    assert content(decode_transaction_log(turned, "x")) == content(decode_transaction_log(good, "x"))


def test_no_file_reads_the_bytes_of_another() -> None:
    good = file((3, 2), ids=2)
    payload = bytearray(open_envelope(good, FileType.TRANSACTION_LOG)[1])
    others = 0
    for place, value in product(range(0, len(payload) - 3, 4), (len(payload) + 64, 40)):
        changed = bytearray(payload)
        changed[place : place + 4] = value.to_bytes(4, "little")
        data = seal([bytes(changed)], FileType.TRANSACTION_LOG)
        together = decode_logs_together([data, good, good])
        if together is None:
            others += 1
        else:
            alone = [content(decode_transaction_log(each, "x")) for each in (data, good)]
            assert list(map(content, together)) == [*alone, alone[1]]
    assert others > 10


def test_a_vector_ends_in_its_file() -> None:
    payload = bytes(open_envelope(file(ids=2), FileType.TRANSACTION_LOG)[1])
    place = int(Buffer(payload).root().targets(1)[0])
    fits = (len(payload) - place - 4) // 8
    for count, is_inside in ((fits, True), (fits + 1, False)):
        changed = payload[:place] + count.to_bytes(4, "little") + payload[place + 4 :]
        roots = JoinedFiles.of([changed, payload]).roots()
        with nullcontext() if is_inside else pytest.raises(FormatError, match="out of its file"):
            assert roots.vectors(1, 8)[1].tolist() == [fits, 2]
