"""Manifests that contradict each other: of several references of a chunk, all readers take the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import frazil
from frazil.format.ids import id_from_text, id_matrix, manifest_key, snapshot_key
from frazil.format.manifest import ChunkTable, Manifest, encode_manifest
from frazil.format.nodes import ManifestRef, NodeTable
from frazil.format.snapshot import ManifestFiles, decode_snapshot, encode_snapshot

CHUNKS = 6
#: A manifest: its extents, and the chunks in them that it has.
type Part = tuple[int, int, list[int]]


def repository_of(parts: Sequence[Part]) -> tuple[frazil.Repository, list[int]]:
    """Return an array with these manifests, and the value of each chunk."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        options: dict[str, Any] = {"dtype": "u1", "fill_value": 0, "compressors": None}
        zarr.create_array(store, name="a", shape=(2 * CHUNKS,), chunks=(2,), **options)
    key = snapshot_key(id_from_text(repo.lookup_branch("main")))
    snapshot = decode_snapshot(repo.storage.get(key), key)
    *groups, node = map(snapshot.nodes.node, range(len(snapshot.nodes)))
    assert node.array is not None
    refs, sizes, expected = [], [], [0] * CHUNKS
    for row, (low, high, chunks) in enumerate(parts):
        id_ = bytes([row + 1] * 12)
        values = [10 * (row + 1) + chunk for chunk in chunks]
        for chunk, value in zip(chunks, values, strict=True):
            expected[chunk] = expected[chunk] or value
        table = ChunkTable.from_inline(np.array(chunks)[:, None], [bytes([value] * 2) for value in values])
        data = encode_manifest(Manifest(id_, {node.id: table}))
        repo.storage.put(manifest_key(id_), data)
        refs.append(ManifestRef(id_, np.array([[low, high]], np.uint32)))
        sizes.append(len(data))
    nodes = NodeTable.from_nodes([*groups, replace(node, array=replace(node.array, manifests=tuple(refs)))])
    counts = [len(chunks) for *_, chunks in parts]
    files = ManifestFiles(
        id_matrix([ref.id for ref in refs]), np.array(sizes, np.uint64), np.array(counts, np.uint32)
    )
    repo.storage.put(key, encode_snapshot(replace(snapshot, nodes=nodes, manifests=files)))
    return frazil.Repository.open(repo.storage), expected


def parts() -> st.SearchStrategy[list[Part]]:
    numbers = st.integers(0, CHUNKS - 1)
    boxes = st.lists(st.lists(numbers, min_size=1, unique=True).map(sorted), min_size=1, max_size=10)
    return boxes.map(lambda each: [(chunks[0], chunks[-1] + 1, chunks) for chunks in each])


@given(parts())
def test_all_readers_take_the_first_reference(parts: list[Part]) -> None:
    repo, expected = repository_of(parts)
    values = np.repeat(expected, 2).tolist()
    session = repo.readonly_session("main")
    single = [session.store.get_sync(f"a/c/{chunk}") for chunk in range(CHUNKS)]
    assert [each.to_bytes()[0] if each else 0 for each in single] == expected
    for array in (zarr.open_array(session.store, path="a", mode="r"), frazil.Array(session, "/a")):
        assert np.asarray(array[...]).tolist() == values
        assert np.asarray(array[1::3]).tolist() == values[1::3]
    table = session.chunk_table("/a")
    assert table.index[:, 0].tolist() == np.flatnonzero(expected).tolist()
    with repo.transaction("main", message="one chunk") as store:
        zarr.open_array(store, path="a")[:2] = 7
    after = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert np.asarray(after[...]).tolist() == [7, 7, *values[2:]]


@pytest.mark.parametrize("takes_all", [False, True])
def test_the_shortest_overlap(takes_all: bool) -> None:
    repo, expected = repository_of([(0, 2, [0, 1] if takes_all else [1]), (1, 3, [1, 2])])
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert np.asarray(array[...]).tolist() == np.repeat(expected, 2).tolist()
    assert "extents-overlap" in {each.check for each in repo.upkeep.verify().problems}
