"""Transaction logs: what is written is read, sorted, and quickly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.errors import FormatError
from frazil.format.envelope import FileType, seal
from frazil.format.ids import id_matrix
from frazil.format.transaction_log import (
    Move,
    TransactionLog,
    decode_transaction_log,
    encode_transaction_log,
)

cases = settings(max_examples=examples(100))
ID = b"snapshot-id!"
LISTS = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_arrays", "updated_groups")

nodes = st.binary(min_size=8, max_size=8)
coordinate = st.sampled_from([0, 1, 7, 2**32 - 1])
coords = st.integers(0, 3).flatmap(
    lambda ndim: st.sets(st.tuples(*[coordinate] * ndim), min_size=1, max_size=6).map(
        lambda rows: np.array(sorted(rows), np.uint32).reshape(len(rows), ndim)
    )
)
paths = st.sampled_from(["/", "/a", "/a/b", "/a-b", "/é"])
logs = st.builds(
    TransactionLog,
    st.just(ID),
    **{name: st.sets(nodes, max_size=3).map(lambda ids: id_matrix(sorted(ids), 8)) for name in LISTS},
    updated_chunks=st.dictionaries(nodes, coords, max_size=4),
    moves=st.lists(st.builds(Move, paths, paths, nodes, st.booleans()), max_size=3).map(
        lambda moves: tuple(sorted(moves, key=lambda move: move.target.split("/")))
    ),
)


def same(one: TransactionLog, two: TransactionLog) -> bool:
    return (
        one.id == two.id
        and all(np.array_equal(getattr(one, name), getattr(two, name)) for name in LISTS)
        and list(two.updated_chunks) == sorted(one.updated_chunks)
        and all(np.array_equal(one.updated_chunks[node], at) for node, at in two.updated_chunks.items())
        and one.moves == two.moves
    )


@cases
@given(logs)
def test_round_trip(log: TransactionLog) -> None:
    file = encode_transaction_log(log)
    back = decode_transaction_log(file, "t")
    assert same(log, back)
    assert encode_transaction_log(back) == file


def test_everything_is_sorted_in_the_file() -> None:
    a, b = b"aaaaaaaa", b"bbbbbbbb"
    moves = (Move("/x", "/b", a, True), Move("/y", "/a-b", b, False), Move("/z", "/a/c", b, True))
    log = TransactionLog(
        ID,
        **{name: id_matrix([b, a, b], 8) for name in LISTS},
        updated_chunks={
            b: np.array([[1, 0], [0, 5]], np.uint32),
            a: np.array([[9]], np.uint32),
        },
        moves=moves,
    )
    back = decode_transaction_log(encode_transaction_log(log), "t")
    assert all(np.array_equal(getattr(back, name), id_matrix([a, b], 8)) for name in LISTS)
    assert [(node, at.tolist()) for node, at in back.updated_chunks.items()] == [
        (a, [[9]]),
        (b, [[0, 5], [1, 0]]),
    ]
    # Segment by segment: "a" comes before "a-b".
    assert [move.target for move in back.moves] == ["/a/c", "/a-b", "/b"]


def test_a_payload_without_id() -> None:
    payload = b"\x0c\0\0\0Ichk\x04\0\x04\0\x04\0\0\0"
    with pytest.raises(FormatError, match=r"transactions/T: .*`id`"):
        decode_transaction_log(seal([payload], FileType.TRANSACTION_LOG), "transactions/T")


def test_many_arrays_and_many_chunks() -> None:
    nodes = [i.to_bytes(8, "big") for i in range(100_000)]
    many_arrays = TransactionLog(
        ID,
        **{name: np.zeros((0, 8), np.uint8) for name in LISTS},
        updated_chunks=dict.fromkeys(nodes, np.zeros((1, 2), np.uint32)),
    )
    grid = np.stack(np.divmod(np.arange(500_000), 1000), axis=1).astype(np.uint32)
    many_chunks = TransactionLog(
        ID, **{name: np.zeros((0, 8), np.uint8) for name in LISTS}, updated_chunks={nodes[0]: grid}
    )
    for log in (many_arrays, many_chunks):
        file = encode_transaction_log(log)
        assert len(decode_transaction_log(file, "t").updated_chunks) == len(log.updated_chunks)
