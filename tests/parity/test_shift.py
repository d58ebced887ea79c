"""Chunks moved within their array: Frazil and the published icechunk agree."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interop.both import check_same, log_of, sides
from tests.support.examples import examples
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop]

Coords = tuple[int, ...]
FILL = -1
CHUNK = 2

grids = st.sampled_from([(5,), (3, 4), (2, 3, 2), ()])
steps = st.lists(
    st.tuples(
        st.sampled_from(["shift", "shift", "turn", "spread", "write", "commit"]),
        st.tuples(*[st.integers(-3, 3)] * 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def turned(grid: Coords, offset: Coords) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """All chunks around the grid, and back."""

    def forward(at: Any) -> list[int]:
        return [(c + o) % n for c, o, n in zip(at, offset, grid, strict=True)]

    def backward(at: Any) -> list[int]:
        return [(c - o) % n for c, o, n in zip(at, offset, grid, strict=True)]

    return forward, backward


def spread(grid: Coords, offset: Coords) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """No bijection: some stay, several meet."""

    def forward(at: Any) -> list[int] | None:
        if sum(at) % 3 == 0:
            return None
        return [min(max(c + o, 0), n - 1) for c, o, n in zip(at, offset, grid, strict=True)]

    def backward(at: Any) -> list[int] | None:
        return None if sum(at) % 2 else [abs(c - o) for c, o in zip(at, offset, strict=True)]

    return forward, backward


def put(session: Any, at: Coords, block: Any) -> None:
    key = "/".join(["a", "c", *map(str, at)])
    value = default_buffer_prototype().buffer.from_bytes(np.ascontiguousarray(block).tobytes())
    sync(session.store.set(key, value))


@settings(max_examples=examples(40))
@given(grid=grids, steps=steps, data=st.data(), inline=st.booleans())
def test_both_shift_the_same(grid: Coords, steps: list[Any], data: Any, inline: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="frazil-shift-"))
    try:
        every = list(np.ndindex(grid))
        filled = data.draw(st.lists(st.sampled_from(every), unique=True))
        seen: list[list[Any]] = []
        for side in sides(folder):
            seen.append([])
            side.path = folder / side.name
            repo = side.create(side.config(inline_chunk_threshold_bytes=512 if inline else 0)).repo
            session = repo.writable_session("main")
            shape = tuple(n * CHUNK for n in grid)
            chunks = (CHUNK,) * len(grid)
            zarr.create_array(
                session.store, name="a", shape=shape, chunks=chunks, dtype="i4", fill_value=FILL,
                compressors=None,
            )  # fmt: skip
            for number, at in enumerate(filled):
                put(session, at, np.full(chunks, number, "i4"))
            for number, (kind, offset, flag) in enumerate(steps):
                offset = offset[: len(grid)]
                if kind == "commit":
                    session.commit(f"commit {number}", allow_empty=True)
                    session = repo.writable_session("main")
                elif kind == "write":
                    put(session, every[sum(offset) % len(every)], np.full(chunks, 100 + number, "i4"))
                elif kind == "shift":
                    session.shift_array("/a", offset)
                else:
                    # The reference moves what the session has deleted; Frazil never moves what is not there.
                    session.commit(f"before {number}", allow_empty=True)
                    session = repo.writable_session("main")
                    forward, backward = (turned if kind == "turn" else spread)(grid, offset)
                    session.reindex_array("/a", forward, backward if flag else None)
                seen[-1].append(np.asarray(zarr.open_array(session.store, path="a", mode="r")[...]).tolist())
            session.commit("end", allow_empty=True)
            ours, theirs = sides(side.path)
            check_same(ours.open(), theirs.open())
        assert seen[0] == seen[1]
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("offset", [(1,), (-2,), (0,), (9,), (2**40,), (-(2**63),)])
def test_logs_of_shifts_are_the_same(tmp_path: Path, offset: Coords) -> None:
    logs = []
    for side in sides(tmp_path):
        side.path = tmp_path / side.name
        repo = side.create().repo
        session = repo.writable_session("main")
        array = zarr.create_array(session.store, name="a", shape=(20,), chunks=(2,), dtype="i4")
        array[4:10] = 1
        array[16:18] = 2
        session.commit("first")
        session = repo.writable_session("main")
        assert session.shift_array("/a", iter(offset)) is None
        assert session.has_uncommitted_changes
        status = session.status().updated_chunks
        id_ = session.commit("shifted")
        logs.append((status, [each["chunks"] for each in log_of(side, id_)["updated_chunks"]]))
    assert logs[0] == logs[1]


def test_virtual_chunks_are_shifted_as_well(tmp_path: Path) -> None:
    virtual = tmp_path / "files"
    virtual.mkdir()
    (virtual / "data.bin").write_bytes(bytes(range(100)))
    for side in sides(tmp_path, virtual):
        side.path = tmp_path / side.name
        repo = side.create(side.config()).repo
        session = repo.writable_session("main")
        array = zarr.create_array(
            session.store, name="a", shape=(8,), chunks=(2,), dtype="u1", compressors=None
        )
        session.store.set_virtual_ref("a/c/1", f"{side.prefix}data.bin", offset=10, length=2)
        session.store.set_virtual_ref("a/c/3", "vcc://files/data.bin", offset=20, length=2)
        session.shift_array("/a", [-1])
        assert np.asarray(array[:]).tolist() == [10, 11, 0, 0, 20, 21, 0, 0]
        session.commit("shifted")
        ours, theirs = sides(side.path, virtual)
        check_same(ours.open(), theirs.open())


def rectilinear(*axes: Any) -> bytes:
    shape = [sum(axis) if isinstance(axis, list) else 3 * axis for axis in axes]
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(axes)}}
    return json.dumps(
        {
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int8", "chunk_grid": grid,
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}],
        }
    ).encode()  # fmt: skip


def test_chunks_of_a_rectilinear_grid_go_where_they_fit() -> None:
    """The reference refuses all of these."""
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    session.workspace.set_node("/r", rectilinear(2, [2, 3, 3]))
    for at in np.ndindex(3, 3):
        session.workspace.write_chunk("/r", at, bytes([10 * at[0] + at[1]]) * 2 * (2 if at[1] == 0 else 3))

    def numbers() -> list[list[int | None]]:
        chunks = [[session.workspace.read_chunk("/r", (i, j)) for j in range(3)] for i in range(3)]
        return [[None if data is None else bytes(data)[0] for data in row] for row in chunks]

    session.shift_array("/r", [1, 0])
    assert numbers() == [[None] * 3, [0, 1, 2], [10, 11, 12]]
    session.reindex_array("/r", lambda at: [at[0], {0: 0, 1: 2, 2: 1}[at[1]]])
    assert numbers() == [[None] * 3, [0, 2, 1], [10, 12, 11]]
    with pytest.raises(
        frazil.InvalidInputError, match="other chunk lengths there along dimension 1"
    ) as error:
        session.reindex_array("/r", lambda at: [at[0], 0])
    assert error.value.kind == frazil.ErrorKind.INVALID_ARRAY_METADATA
    assert numbers() == [[None] * 3, [0, 2, 1], [10, 12, 11]]
    session.shift_array("/r", [0, 1])  # the lengths move, too
    assert numbers() == [[None] * 3, [None, 0, 2], [None, 10, 12]]


@pytest.mark.parametrize("given", [[0, 0], [], "a", 0, [0.0], [-1], [2**70], [5]])
def test_coordinates_that_are_none(given: Any) -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(10,), chunks=(2,), dtype="i4")
    array[:] = 1
    status = session.status()
    with pytest.raises(frazil.InvalidInputError) as error:
        session.reindex_array("/a", lambda at: given)
    assert error.value.kind == frazil.ErrorKind.INVALID_CHUNK_INDEX
    assert session.status() == status


def test_only_existing_chunks_are_moved() -> None:
    """A deleted chunk is nothing, whether the deletion has been committed or not."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    results = []
    for commits in (False, True):
        session = repo.writable_session("main")
        array = zarr.create_array(
            session.store, name="a", shape=(6,), chunks=(2,), dtype="i4", overwrite=True
        )
        array[:] = range(6)
        session.commit("filled")
        session = repo.writable_session("main")
        sync(session.store.delete("a/c/0"))
        if commits:
            session.commit("deleted")
            session = repo.writable_session("main")
        session.reindex_array("/a", lambda at: [(at[0] + 1) % 3])
        results.append(np.asarray(zarr.open_array(session.store, path="a")[:]).tolist())
    assert results[0] == results[1] == [4, 5, 2, 3, 2, 3]
