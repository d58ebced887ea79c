"""Logs of amended commits: each node is in one list at most."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.changes.diff import amended_log, joined
from frazil.format.columns import U8
from frazil.format.ids import id_list
from frazil.format.transaction_log import (
    ID_LISTS,
    Move,
    TransactionLog,
    decode_transaction_log,
    empty_log,
    encode_transaction_log,
)

A = b"\0" * 7 + b"a"
EMPTY = empty_log(bytes(12))
COORDS = np.array([[1, 2]], np.uint32)


def log(*chosen: str, id_: bytes = A, **others: Any) -> TransactionLog:
    """A log with one node in these lists."""
    ids: U8 = np.frombuffer(id_, np.uint8).reshape(1, 8)
    return replace(EMPTY, **dict.fromkeys(chosen, ids), **others)


def lists(log: TransactionLog) -> list[str]:
    return [name for name in ID_LISTS if len(getattr(log, name))]


@pytest.mark.parametrize("kind", ["groups", "arrays"])
@pytest.mark.parametrize(
    ("first", "then", "left"),
    [
        ("new", "updated", ["new"]),
        ("new", "deleted", []),
        ("updated", "deleted", ["deleted"]),
        ("updated", "updated", ["updated"]),
        ("deleted", "new", ["updated"]),
        ("new", None, ["new"]),
        (None, "deleted", ["deleted"]),
    ],
)
def test_a_node_is_in_one_list(kind: str, first: str | None, then: str | None, left: list[str]) -> None:
    logs = [log() if name is None else log(f"{name}_{kind}") for name in (first, then)]
    assert lists(amended_log(*logs)) == [f"{name}_{kind}" for name in left]


def test_a_log_that_holds_a_node_twice_already() -> None:
    """As the reference writes it when it amends."""
    assert lists(amended_log(log("new_groups", "updated_groups"), log())) == ["new_groups"]
    assert lists(amended_log(log("new_arrays", "deleted_arrays", updated_chunks={A: COORDS}), log())) == []
    assert lists(amended_log(log("new_arrays", "updated_arrays"), log("deleted_arrays"))) == []


@pytest.mark.parametrize("first", ["new_arrays", "updated_arrays", None])
def test_chunks_and_moves_of_what_is_gone(first: str | None) -> None:
    move = (Move("/a", "/b", A, True),)
    one = log(*([first] if first else []), updated_chunks={A: COORDS}, moves=move)
    left = amended_log(one, log("deleted_arrays"))
    assert (left.updated_chunks, left.moves) == ({}, ())


def test_what_is_new_was_not_moved() -> None:
    """It had no place before; and its chunks stay."""
    created = log("new_arrays", updated_chunks={A: COORDS})
    left = amended_log(created, replace(EMPTY, moves=(Move("/a", "/b", A, True),)))
    assert (lists(left), left.moves, list(left.updated_chunks)) == (["new_arrays"], (), [A])


def test_joined_shows_what_happened() -> None:
    both = joined(log("new_groups"), log("updated_groups"))
    assert lists(both) == ["new_groups", "updated_groups"]


IDS = st.sets(st.sampled_from([bytes([n]) + bytes(7) for n in range(6)]))


@st.composite
def logs(draw: st.DrawFn) -> TransactionLog:
    columns = {name: np.frombuffer(b"".join(sorted(draw(IDS))), np.uint8).reshape(-1, 8) for name in ID_LISTS}
    return replace(EMPTY, **columns)


@given(logs(), logs())
def test_no_node_is_in_two_lists(first: TransactionLog, then: TransactionLog) -> None:
    left = decode_transaction_log(encode_transaction_log(amended_log(first, then)), "log")
    for kind in ("groups", "arrays"):
        sets = [set(id_list(getattr(left, name))) for name in ID_LISTS if name.endswith(kind)]
        assert all(one.isdisjoint(other) for one, other in combinations(sets, 2))
