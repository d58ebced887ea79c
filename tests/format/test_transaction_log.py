"""Transaction logs: what is written is read, sorted, and quickly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.format.ids import id_matrix
from frazil.format.transaction_log import (
    Move,
    TransactionLog,
    decode_transaction_log,
    empty_log,
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
    log = replace(
        empty_log(ID),
        **cast("Any", {name: id_matrix([b, a, b], 8) for name in LISTS}),
        updated_chunks={b: np.array([[1, 0], [0, 5]], np.uint32), a: np.array([[9]], np.uint32)},
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
