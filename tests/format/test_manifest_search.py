"""The search for single references: the same results as the columns of the manifest."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.support.flatbuffer_patch import Patch

from frazil.errors import FormatError
from frazil.format import manifest as manifest_module
from frazil.format.envelope import FileType
from frazil.format.manifest import (
    ChunkTable,
    LazyTables,
    LocationCompression,
    Manifest,
    VirtualRef,
    decode_manifest,
    encode_manifest,
    find_ref,
    open_manifest,
)

NODE, OTHER = b"node-001", b"node-002"
Coords = tuple[int, ...]


def lazy_of(file: bytes) -> tuple[Manifest, LazyTables]:
    manifest = open_manifest(file, "m")
    assert isinstance(manifest.arrays, LazyTables)
    return manifest, manifest.arrays


def file_of(*tables: ChunkTable) -> bytes:
    return encode_manifest(
        Manifest(bytes(12), dict(zip((NODE, OTHER), tables, strict=False))), locations=None
    )


def patch_of(table: ChunkTable) -> tuple[Patch, int, int]:
    """A file that can be changed, with the place and the number of its references."""
    patch = Patch(file_of(table), FileType.MANIFEST)
    arrays, _ = patch.vector(patch.root, 1)
    return patch, *patch.vector(patch.follow(arrays), 1)


def virtual(index: Any, **checksum: Any) -> ChunkTable:
    rows = range(len(index))
    return ChunkTable.from_virtual(
        index, [f"s3://b/{row // 3}" for row in rows], np.array(rows) + 5, 7, **checksum
    )


def mixed() -> ChunkTable:
    ids = np.arange(48, dtype=np.uint8).reshape(4, 12)
    tables = [
        ChunkTable.from_native([[0, at] for at in range(4)], ids, range(4), range(4), 9),
        virtual([[1, at] for at in range(5)], etag="e"),
        virtual([[2, at] for at in range(0, 60, 7)], modified=7),
        virtual([[5, at] for at in range(40)]),
        ChunkTable.from_inline([[6, 1], [9, 2]], [b"", b"bytes"]),
    ]
    return ChunkTable.merge_tables(tables)


TABLES = {
    "mixed": mixed(),
    "dense": virtual(list(product(range(5), range(4), range(6)))),
    "sparse": virtual([[at * at] for at in range(50)]),
    "last corner absent": virtual([[0, 9], [4, 0], [4, 1]]),
    "scalar": ChunkTable.from_inline([[]], [b"x"]),
    "largest": virtual([[0, 2**32 - 1], [2**32 - 1, 0], [2**32 - 1, 2**32 - 1]]),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_each_reference_is_found_without_columns(table: ChunkTable) -> None:
    manifest, tables = lazy_of(file_of(table, virtual([[3]])))
    for row, coords in enumerate(map(tuple, table.index.tolist())):
        assert find_ref(manifest, NODE, coords) == table.ref(row)
    assert find_ref(manifest, OTHER, (3,)) == VirtualRef("s3://b/0", 5, 7)
    assert tables.columns is None
    assert list(manifest.arrays) == [NODE, OTHER]
    assert manifest.arrays[NODE].equals(decode_manifest(file_of(table, virtual([[3]])), "m").arrays[NODE])


@pytest.mark.parametrize("coords", [(0, 4), (3, 0), (99, 99), (), (1,), (1, 1, 1), (-1, 0), (2**40, 0)])
def test_the_columns_decide_that_a_reference_is_missing(coords: Coords) -> None:
    manifest, tables = lazy_of(file_of(mixed()))
    assert find_ref(manifest, NODE, coords) is None
    assert tables.columns is not None
    assert tables.payload is None
    assert find_ref(manifest, b"node-009", coords) is None


def test_compressed_locations_are_read_with_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "_dictionary_helps", lambda *_: True)
    locations = [f"s3://bucket/a/long/prefix/of/many/files/{number:05}.nc" for number in range(2000)]
    table = ChunkTable.from_virtual([[number] for number in range(1000)], locations[:1000], 1, 2)
    file = encode_manifest(Manifest(bytes(12), {NODE: table}), locations=LocationCompression())
    manifest, tables = lazy_of(file)
    assert find_ref(manifest, NODE, (123,)) == VirtualRef(locations[123], 1, 2)
    assert tables.columns is not None


def test_unsorted_references_have_the_results_of_columns() -> None:
    table = virtual([[at] for at in range(30)])
    patch, refs, count = patch_of(table)
    targets = [patch.follow(refs + 4 * row) for row in range(count)]
    for row, target in enumerate(reversed(targets)):
        patch.put("<I", refs + 4 * row, target - refs - 4 * row)
    file = patch.sealed()
    for row in range(30):
        manifest, _ = lazy_of(file)
        assert find_ref(manifest, NODE, (row,)) == table.ref(row)


def test_of_two_references_of_one_chunk_the_first_counts() -> None:
    table = virtual([[at] for at in range(30)])
    patch, refs, _ = patch_of(table)
    index, _ = patch.vector(patch.follow(refs + 4 * 15), 0)
    patch.put("<I", index, 14)  # references 14 and 15 have the same coordinates
    file = patch.sealed()
    manifest, _ = lazy_of(file)
    assert find_ref(manifest, NODE, (14,)) == table.ref(14)
    assert find_ref(manifest, NODE, (14,)) == find_ref(decode_manifest(file, "m"), NODE, (14,))


def test_a_wrong_offset_is_a_format_error_with_the_name_of_the_file() -> None:
    patch, refs, _ = patch_of(virtual([[at] for at in range(30)]))
    patch.put("<I", refs + 4 * 15, 2**32 - 1)
    manifest, _ = lazy_of(patch.sealed())
    assert find_ref(manifest, NODE, (2,)) == VirtualRef(
        "s3://b/0", 7, 7
    )  # the search does not meet the damage
    with pytest.raises(FormatError, match=r"^m: "):
        find_ref(manifest, NODE, (15,))
    with pytest.raises(FormatError, match=r"^m: "):
        manifest.arrays[NODE]


def test_coordinates_of_a_huge_rank_are_not_read() -> None:
    patch, refs, _ = patch_of(virtual([[at] for at in range(30)]))
    index, _ = patch.vector(patch.follow(refs), 0)
    patch.put("<I", index - 4, (len(patch.payload) - index) // 4)
    manifest, _ = lazy_of(patch.sealed())
    # The reference has another number of coordinates than the others, which stay as they are.
    assert find_ref(manifest, NODE, (0,)) is None
    assert find_ref(manifest, NODE, (2,)) is not None
