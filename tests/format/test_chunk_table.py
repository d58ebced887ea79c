"""Chunk tables against a dict from coordinates to references."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.chunk_table import ChunkTable, InlineRef, NativeRef, VirtualRef, ascending

cases = settings(max_examples=examples(150))

type Coords = tuple[int, ...]
type Model = dict[Coords, Any]


def table_of(model: Model, ndim: int) -> ChunkTable:
    """A table from references one by one, deletions as None."""
    tables = [ChunkTable.empty(ndim)]
    for at, ref in model.items():
        match ref:
            case None:
                tables.append(ChunkTable.from_absent([at]))
            case InlineRef(data):
                tables.append(ChunkTable.from_inline([at], [data]))
            case NativeRef(chunk_id, offset, length):
                ids = np.frombuffer(chunk_id, np.uint8).reshape(1, 12)
                tables.append(ChunkTable.from_native([at], ids, 0, offset, length))
            case VirtualRef(location, offset, length, etag, modified):
                tables.append(ChunkTable.from_virtual([at], [location], offset, length, etag, modified))
    return ChunkTable.merge_tables(tables)


def model_of(table: ChunkTable) -> Model:
    return {tuple(at): table.ref(row) for row, at in enumerate(table.index.tolist())}


natives = st.builds(
    NativeRef, st.binary(min_size=12, max_size=12), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)
)
checksums = st.one_of(
    st.just((None, None)),
    st.tuples(st.sampled_from(["e", '"é"']), st.none()),
    st.tuples(st.none(), st.integers(1, 2**32 - 1)),
)
virtuals = st.builds(
    lambda location, offset, checksum: VirtualRef(location, offset, 7, *checksum),
    st.sampled_from(["s3://b/a", "s3://b/ü", "file:///x", ""]),
    st.integers(0, 2**64 - 1),
    checksums,
)
inlines = st.builds(InlineRef, st.binary(max_size=9))
stored = st.one_of(natives, virtuals, inlines)
# Small boxes, and coordinates so large that keys have no room in 63 bits.
numbers = st.sampled_from([0, 1, 2, 3, 2**16, 2**31, 2**32 - 2])


def models(ndim: int, refs: st.SearchStrategy[Any]) -> st.SearchStrategy[Model]:
    return st.dictionaries(st.tuples(*[numbers] * ndim), refs, max_size=8)


tables = st.integers(0, 3).flatmap(
    lambda ndim: st.tuples(
        st.just(ndim), st.lists(models(ndim, st.one_of(stored, st.none())), min_size=1, max_size=4)
    )
)


@cases
@given(tables)
def test_merge_is_update(drawn: tuple[int, list[Model]]) -> None:
    ndim, parts = drawn
    model: Model = {}
    for part in parts:
        model.update(part)
    merged = ChunkTable.merge_tables([table_of(part, ndim) for part in parts])
    assert model_of(merged) == model
    assert merged.index.tolist() == sorted(map(list, model))
    assert merged.ndim == ndim


def test_few_changes_of_many_rows() -> None:
    at = [[row, column] for row in range(10) for column in range(10)]
    many = ChunkTable.from_virtual(at, [f"s3://b/{n}" for n in range(100)], 7, 8)
    inline = ChunkTable.from_inline([[3, 3], [9, 9]], [b"xy", b"z"])
    changed = ChunkTable.merge_tables([inline, ChunkTable.from_absent([[0, 0], [4, 4]])])
    grown = ChunkTable.from_inline([[3, 3], [9, 10]], [b"xy", b"z"])
    for few in (changed, grown):
        merged = ChunkTable.merge_tables([many, few])
        assert model_of(merged) == {**model_of(many), **model_of(few)}
        assert ascending(merged.index)


@cases
@given(tables)
def test_look_up(drawn: tuple[int, list[Model]]) -> None:
    ndim, (model, *others) = drawn
    table = table_of(model, ndim)
    wanted = [*model, *(at for other in others for at in other)]
    rows = [table.find_chunk(at) for at in wanted]
    assert [row >= 0 for row in rows] == [at in model for at in wanted]
    assert [table.ref(row) for row in rows if row >= 0] == [model[at] for at in wanted if at in model]
    many = table.find_chunks(np.array(wanted, np.uint32).reshape(len(wanted), ndim))
    assert many.tolist() == rows


@cases
@given(tables)
def test_duplicates(drawn: tuple[int, list[Model]]) -> None:
    ndim, parts = drawn
    seen = [at for part in parts for at in part]
    wanted = sorted({at for at in seen if seen.count(at) > 1})
    coords = ChunkTable.duplicates([table_of(part, ndim) for part in parts])
    assert list(map(tuple, coords.tolist())) == wanted


@cases
@given(tables, st.data())
def test_some_rows(drawn: tuple[int, list[Model]], data: st.DataObject) -> None:
    ndim, (model, *_) = drawn
    table = table_of(model, ndim)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table))), np.bool_)
    expected = {at: ref for (at, ref), keep in zip(model_of(table).items(), mask, strict=True) if keep}
    taken = table.select_chunks(mask)
    assert model_of(taken) == expected
    pruned = taken.prune()
    assert model_of(pruned) == expected
    natives = [ref for ref in expected.values() if isinstance(ref, NativeRef)]
    assert len(pruned.chunk_ids) == len(natives)
    assert len(pruned.inline) == sum(isinstance(ref, InlineRef) for ref in expected.values())
    assert model_of(pickle.loads(pickle.dumps(taken))) == expected
    assert model_of(taken.stored()) == {at: ref for at, ref in expected.items() if ref is not None}


def test_constructors_sort_and_the_last_of_equal_coordinates_counts() -> None:
    table = ChunkTable.from_inline([[3], [1], [3]], [b"old", b"one", b"new"])
    assert model_of(table) == {(1,): InlineRef(b"one"), (3,): InlineRef(b"new")}
    assert table.length.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: ChunkTable.from_inline([[-1]], [b""]), ErrorKind.INVALID_CHUNK_INDEX),
        (lambda: ChunkTable.from_inline([[2**32]], [b""]), ErrorKind.INVALID_CHUNK_INDEX),
        (lambda: ChunkTable.from_inline([1], [b""]), ErrorKind.INVALID_CHUNK_INDEX),
        (lambda: ChunkTable.from_inline([[0.5]], [b""]), ErrorKind.INVALID_CHUNK_INDEX),
        (lambda: ChunkTable.from_inline([[0], [1]], [b"one"]), ErrorKind.INVALID_CHUNK_INDEX),
        (lambda: ChunkTable.from_virtual([[0]], ["a"], 0, 1, "e", 5), ErrorKind.INVALID_VIRTUAL_REF),
        (lambda: ChunkTable.from_virtual([[0]], ["a"], -1, 1), ErrorKind.INVALID_CHUNK_INDEX),
    ],
)
def test_wrong_input(make: Callable[[], ChunkTable], kind: ErrorKind) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert caught.value.kind == kind


def test_coordinates_of_another_rank_have_no_row() -> None:
    table = ChunkTable.from_inline([[0, 0]], [b""])
    assert table.find_chunk((0,)) == table.find_chunk((0, 0, 0)) == table.find_chunk((-1, 0)) == -1
    assert table.find_chunks(np.zeros((2, 3), np.uint32)).tolist() == [-1, -1]
    assert ChunkTable.empty(2).find_chunk((0, 0)) == -1


def test_pickles_hold_only_what_is_used() -> None:
    ids = np.random.default_rng(0).integers(0, 256, (100_000, 12)).astype(np.uint8)
    table = ChunkTable.from_native(np.arange(100_000)[:, None], ids, range(100_000), 0, 1)
    few = table.select_chunks(slice(500, 510))
    assert len(pickle.dumps(few)) < 3000
    assert model_of(pickle.loads(pickle.dumps(few))) == model_of(few)
