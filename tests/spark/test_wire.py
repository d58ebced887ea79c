"""Change sets as bytes: what comes out is what went in, small; and nothing but that comes out."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from frazil.changes.change_set import ChangeSet
from frazil.changes.chunk_edits import ChunkEdits
from frazil.errors import FormatError
from frazil.format.manifest import InlineRef, NativeRef, VirtualRef
from frazil.format.snapshot import ArrayData, ManifestRef, Node
from frazil.format.transaction_log import Move
from frazil.spark import wire

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
def edits(draw: st.DrawFn) -> ChunkEdits:
    ndim = draw(st.integers(0, 3))
    small = draw(st.booleans())
    at = st.tuples(*[st.integers(0, 5 if small else 2**32 - 1)] * ndim)
    made = ChunkEdits(draw(PATHS), ndim)
    for coords, ref in draw(st.dictionaries(at, REFS, max_size=12)).items():
        made.set(coords, ref)
    return made


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
        draw(st.booleans()),
    )


def plain(changes: ChangeSet) -> Any:
    """A change set as values that compare."""
    chunks = {}
    for id_, edit in changes.chunks.items():
        table = edit.table()
        refs = dict(zip(map(tuple, table.index.tolist()), map(table.ref, range(len(table))), strict=True))
        chunks[id_] = (edit.path, edit.ndim, refs)
    parts = changes.nodes, changes.created, changes.updated, changes.deleted, changes.moves
    return (*parts, changes.borrowed, chunks)


@given(change_sets())
def test_what_comes_out_is_what_went_in(changes: ChangeSet) -> None:
    expected = plain(changes)
    assert plain(wire.decode(wire.encode(changes))) == expected


@given(change_sets(), st.data())
def test_damaged_bytes_are_refused(changes: ChangeSet, data: st.DataObject) -> None:
    whole = bytearray(wire.encode(changes))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FormatError):
        wire.decode(bytes(whole))
    with pytest.raises(FormatError):
        wire.decode(bytes(whole[:at]))


@given(change_sets(), st.data())
def test_hostile_bytes_are_refused_or_read(changes: ChangeSet, data: st.DataObject) -> None:
    """With a checksum that is right."""
    payload = bytearray(zstandard.decompress(wire.encode(changes)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        plain(wire.decode(zstandard.compress(bytes(payload))))
