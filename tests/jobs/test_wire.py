"""Change sets as bytes: what comes out is what went in, small; and nothing but that comes out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.errors import FormatError
from frazil.format.manifest import ChunkTable, InlineRef, NativeRef, VirtualRef
from frazil.format.snapshot import ArrayData, ManifestRef, Node
from frazil.format.transaction_log import Move
from frazil.jobs.task_results import decode_changes, encode_changes

U64 = st.integers(0, 2**64 - 1)
NODE_IDS = st.binary(min_size=8, max_size=8)
OBJECT_IDS = st.binary(min_size=12, max_size=12)
PATHS = st.text(min_size=0, max_size=6).map("/{}".format)
TEXTS = st.sampled_from(["s3://b/a.nc", "s3://b/ä.nc", "file:///x"]) | st.text(max_size=4)
REFS = st.one_of(
    st.none(),
    st.builds(NativeRef, OBJECT_IDS | st.just(b"p" * 12), U64, U64),
    st.builds(VirtualRef, TEXTS, U64, U64, st.none() | st.text(min_size=1, max_size=3)),
    st.builds(VirtualRef, TEXTS, U64, U64, st.none(), st.integers(1, 2**32 - 1)),
    st.builds(InlineRef, st.binary(max_size=5)),
)


@st.composite
def edits(draw: st.DrawFn) -> ChunkChanges:
    ndim = draw(st.integers(0, 3))
    small = draw(st.booleans())
    at = st.tuples(*[st.integers(0, 5 if small else 2**32 - 1)] * ndim)
    changes = ChunkChanges(draw(PATHS), ndim)
    for coords, ref in draw(st.dictionaries(at, REFS, max_size=12)).items():
        changes.set(coords, ref)
    return changes


@st.composite
def nodes(draw: st.DrawFn, path: str) -> Node:
    array = None
    if draw(st.booleans()):
        shape = tuple(draw(st.lists(st.integers(0, 2**63), max_size=3)))
        boxes = st.integers(0, 2**32 - 1)
        refs = [
            ManifestRef(
                draw(OBJECT_IDS), np.array(draw(st.lists(boxes, min_size=size, max_size=size)), np.uint32)
            )
            for size in [2 * len(shape)] * draw(st.integers(0, 2))
        ]
        refs = [ManifestRef(ref.id, ref.extents.reshape(len(shape), 2)) for ref in refs]
        names = draw(st.none() | st.tuples(*[st.none() | st.text(max_size=3)] * len(shape)))
        array = ArrayData(shape, tuple(draw(st.integers(0, 2**32 - 1)) for _ in shape), names, tuple(refs))
    return Node(draw(NODE_IDS), path, draw(st.binary(max_size=20)), array)


@st.composite
def change_sets(draw: st.DrawFn) -> ChangeSet:
    paths = draw(st.sets(PATHS, max_size=4))
    ids = draw(st.lists(NODE_IDS, max_size=3, unique=True))
    return ChangeSet(
        {path: draw(st.none() | nodes(path)) for path in sorted(paths)},
        draw(st.sets(NODE_IDS, max_size=3)),
        draw(st.sets(NODE_IDS, max_size=3)),
        draw(st.dictionaries(NODE_IDS, st.booleans(), max_size=3)),
        draw(st.dictionaries(NODE_IDS, edits(), max_size=4)),
        {id_: Move(draw(PATHS), draw(PATHS), id_, draw(st.booleans())) for id_ in ids},
    )


def plain(changes: ChangeSet) -> Any:
    """A change set as values that compare."""
    chunks = {}
    for id_, edit in changes.chunks.items():
        table = edit.table()
        refs = dict(zip(map(tuple, table.index.tolist()), map(table.ref, range(len(table))), strict=True))
        chunks[id_] = (edit.path, edit.ndim, refs)
    return changes.nodes, changes.created, changes.updated, changes.deleted, changes.moves, chunks


@st.composite
def interleaved(draw: st.DrawFn) -> ChangeSet:
    """Chunks of several arrays take turns in files, some of them not quite in the order of the array."""
    changes = {bytes([n]) * 8: ChunkChanges(f"/{n}", 1) for n in range(draw(st.integers(1, 3)))}
    count = dict.fromkeys(changes, 0)
    native = draw(st.booleans())
    for file in range(draw(st.integers(1, 3))):
        at = 0
        for id_, size, gap in draw(
            st.lists(
                st.tuples(st.sampled_from(list(changes)), st.integers(0, 300), st.integers(0, 1)), max_size=9
            )
        ):
            at += gap
            ref = (
                NativeRef(bytes([file]) * 12, at, size) if native else VirtualRef(f"s3://b/{file}", at, size)
            )
            changes[id_].set((count[id_],), ref)
            count[id_] += 1
            at += size
    if draw(st.booleans()):
        changes[next(iter(changes))].set((0,), VirtualRef("s3://b/0", 10**9, 1))
    return ChangeSet(chunks=changes)


@given(change_sets() | interleaved())
def test_what_comes_out_is_what_went_in(changes: ChangeSet) -> None:
    expected = plain(changes)
    assert plain(decode_changes(encode_changes(changes))) == expected


@given(change_sets(), st.data())
def test_damaged_bytes_are_refused(changes: ChangeSet, data: st.DataObject) -> None:
    whole = bytearray(encode_changes(changes))
    at = data.draw(st.integers(0, len(whole) - 1))
    expected = plain(changes)
    whole[at] ^= data.draw(st.integers(1, 255))
    with suppress(FormatError):  # but for a bit of a zstd frame that means nothing
        assert plain(decode_changes(bytes(whole))) == expected
    with pytest.raises(FormatError):
        decode_changes(bytes(whole[:at]))


GRID = np.indices((100, 25, 40)).reshape(3, -1).T.astype(np.uint32)
COUNT = len(GRID)
NODE = b"an array"


def part(table: ChunkTable) -> ChangeSet:
    return ChangeSet(chunks={NODE: ChunkChanges("/a", 3, (table,))})


def lengths(kind: str) -> Any:
    random = np.random.default_rng(0)
    if kind == "equal":
        return np.full(COUNT, 1 << 20)
    if kind == "compressed":
        return np.clip(random.normal(400_000, 30_000, COUNT), 1, None).astype(np.int64)
    return random.integers(0, 1 << 20, COUNT)


@pytest.mark.parametrize(("kind", "most"), [("equal", 0.1), ("compressed", 2.5), ("any", 3)])
def test_bytes_of_a_virtual_reference(kind: str, most: float) -> None:
    """A file for each thousand chunks, one after the other in it."""
    sizes = lengths(kind)
    starts = np.cumsum(sizes) - sizes
    files, etag = np.repeat(np.arange(COUNT // 1000), 1000), '"5eb63bbb"'
    names = [f"s3://archive/cmip6/day/tas/tas_{1850 + number}.nc" for number in files.tolist()]
    table = ChunkTable.from_virtual(GRID, names, starts - starts[files * 1000] + 4016, sizes, etag=etag)
    assert len(encode_changes(part(table))) <= most * COUNT


@pytest.mark.parametrize("are_native", [False, True])
@pytest.mark.parametrize("arrays", [2, 5])
def test_bytes_of_references_whose_arrays_take_turns(arrays: int, are_native: bool) -> None:
    """As classic NetCDF files have the variables of a record one after the other."""
    sizes = lengths("any").reshape(-1, arrays, 1000 // arrays).transpose(0, 2, 1)  # file, record, array
    starts = (np.cumsum(sizes.reshape(len(sizes), -1), axis=1) + 4016).reshape(sizes.shape) - sizes
    files = np.repeat(np.arange(len(sizes)), sizes.shape[1])
    ids = np.random.default_rng(1).integers(0, 256, (len(sizes), 12), np.uint8)
    names = [f"s3://archive/cmip6/day/{1850 + number}.nc" for number in files.tolist()]
    chunks = {}
    for number in range(arrays):
        rows, where = GRID[: len(files)], (starts[..., number].ravel(), sizes[..., number].ravel())
        table = ChunkTable.from_native(rows, ids, files, *where)
        if not are_native:
            table = ChunkTable.from_virtual(rows, names, *where, etag=f'"{arrays}"')
        chunks[bytes([number]) * 8] = ChunkChanges(f"/{number}", 3, (table,))
    changes = ChangeSet(chunks=chunks)
    data = encode_changes(changes)
    assert len(data) <= 5.5 * COUNT
    back = decode_changes(data).chunks
    for id_, edits in chunks.items():
        ours, theirs = back[id_].table(), edits.table()
        for name in ("index", "offset", "length"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name))
        some = range(0, len(theirs), 777)
        assert list(map(ours.ref, some)) == list(map(theirs.ref, some))


@pytest.mark.parametrize(("a_file", "most"), [(1, 16), (100, 3)])
def test_bytes_of_a_native_reference(a_file: int, most: float) -> None:
    ids = np.random.default_rng(1).integers(0, 256, (COUNT // a_file, 12), np.uint8)
    sizes = lengths("compressed")
    starts = np.cumsum(sizes) - sizes
    files = np.repeat(np.arange(len(ids)), a_file)
    table = ChunkTable.from_native(GRID, ids, files, starts - starts[files * a_file], sizes)
    assert len(encode_changes(part(table))) <= most * COUNT
