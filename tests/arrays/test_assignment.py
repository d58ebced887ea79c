"""Writes of ``frazil.Array`` beside writes of zarr: equal values, stored bytes, and missing chunks."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from tests.arrays.test_array import CODECS, FAST, arrays, indices, same
from tests.counting import python_steps
from zarr.codecs import GzipCodec, ZstdCodec

import frazil
from frazil.arrays.box_writing import BoxWriting
from frazil.errors import ErrorKind, FormatError, InvalidIndexError, InvalidInputError, ReadOnlyError


@pytest.fixture
def session() -> frazil.Session:
    return writable()


def writable(inline: int = 0, **chunks: Any) -> frazil.Session:
    config = frazil.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = inline
    if chunks:
        config.chunks = frazil.ChunksConfig(**chunks)
    return frazil.Repository.create(frazil.in_memory_storage(), config).writable_session("main")


def chunks_of(session: frazil.Session, counts: tuple[int, ...]) -> Iterator[tuple[Any, bytes | None]]:
    """Yield the coordinates and the stored bytes of each chunk of the array `/t`."""
    for coords in product(*map(range, counts)):
        data = session.workspace.read_chunk("/t", coords)
        yield coords, None if data is None else bytes(data)


def same_chunks(one: frazil.Session, other: frazil.Session, codec: type | None = None) -> None:
    array = one.workspace.require_array("/t").array
    assert array is not None
    counts = array.num_chunks
    for (coords, actual), (_, expected) in zip(chunks_of(one, counts), chunks_of(other, counts), strict=True):
        if codec is GzipCodec and actual and expected:
            actual, expected = actual[10:], expected[10:]  # zarr stores the time of the compression
        assert actual == expected, coords


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Draw an index of slices with positive steps and of integers, which zarr accepts."""
    index: list[Any] = []
    for n in shape:
        if n and draw(st.integers(0, 3)) == 0:
            index.append(draw(st.integers(0, n - 1)))
        else:
            start = draw(st.integers(0, n))
            index.append(slice(start, draw(st.integers(start, n)), draw(st.sampled_from([1, 1, 1, 2, 3]))))
    return tuple(index)


@pytest.mark.deep
@given(st.data())
def test_as_zarr(data: st.DataObject) -> None:
    values, options = data.draw(arrays())
    inline = data.draw(st.sampled_from([0, 30]))
    one, other = writable(inline), writable(inline)
    if values.dtype.kind not in "MSU":
        options["fill_value"] = data.draw(st.sampled_from([0, 1]))
    for session in (one, other):
        created = zarr.create_array(
            session.store, name="t", shape=values.shape, dtype=values.dtype, **options
        )
    if data.draw(st.booleans()):
        one, other = (committed(each) for each in (one, other))
    codec = type(created.compressors[0]) if created.compressors else None
    expected = np.full(values.shape, created.fill_value, values.dtype)
    with zarr.config.set({"array.write_empty_chunks": data.draw(st.booleans())}):
        for _ in range(data.draw(st.integers(1, 3))):
            index = data.draw(boxes(values.shape))
            new = values[index] if data.draw(st.booleans()) else created.fill_value
            expected[index] = new
            frazil.Array(one, "/t")[index] = new
            zarr.open_array(other.store, path="t")[index] = new
            same_chunks(one, other, codec)
            same(frazil.Array(one, "/t")[...], expected)
    assert one.status().updated_chunks == other.status().updated_chunks
    if one.has_uncommitted_changes:
        one.commit("values")
    same(frazil.Array(one, "/t")[...], expected)


def committed(session: frazil.Session) -> frazil.Session:
    """Commit. Return another session of the repository."""
    context = session.workspace.context
    session.commit("an array")
    return frazil.Repository.open(context.storage, context.config).writable_session("main")


@pytest.mark.deep
@given(st.data())
def test_as_numpy(data: st.DataObject) -> None:
    values, options = data.draw(arrays())
    session = writable()
    created = zarr.create_array(session.store, name="t", shape=values.shape, dtype=values.dtype, **options)
    expected = np.full(values.shape, created.fill_value, values.dtype)
    array = frazil.Array(session, "/t")
    for _ in range(2):
        index = data.draw(indices(values.shape))
        shape = expected[index].shape
        # Any shape that broadcasts to the selection.
        taken = tuple(1 if data.draw(st.booleans()) else n for n in shape)[
            data.draw(st.integers(0, len(shape))) :
        ]
        new = np.resize(values.ravel() if values.size else np.zeros(1, values.dtype), taken)
        expected[index] = new
        array[index] = new
        same(array[...], expected)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", ["<f4", ">i2"])
def test_codecs(session: frazil.Session, codec: str, dtype: str, request: pytest.FixtureRequest) -> None:
    other = writable()
    values = np.arange(1, 131).astype(dtype).reshape(10, 13)
    for each in (session, other):
        created = zarr.create_array(
            each.store, name="t", shape=(10, 13), dtype=dtype[1:], chunks=(2, 3), **CODECS[codec](2)
        )
    if codec in FAST:
        request.getfixturevalue("in_bulk")
    array, expected = frazil.Array(session, "/t"), np.zeros((10, 13), dtype[1:])
    for index in np.s_[:], np.s_[3:9:2, ::5], np.s_[..., 4], np.s_[7, 2:], np.s_[9:, 12], np.s_[:3, 1:7]:
        array[index] = 2 * values[index]
        expected[index] = 2 * values[index]
        created[index] = 2 * values[index]
        same(array[:], expected)
        same_chunks(session, other, type(created.compressors[0]) if created.compressors else None)
    array[4:, ::-2] = values[4:, ::-2]
    array[3, None, ...] = [7]
    expected[4:, ::-2], expected[3] = values[4:, ::-2], 7
    same(array[:], expected)


@pytest.mark.parametrize("elements", [30_000, 40_000])
@pytest.mark.parametrize("checksum", [False, True])
def test_frames_are_those_of_zarr(session: frazil.Session, elements: int, checksum: bool) -> None:
    """Smaller and larger chunks than a block of zstd."""
    other = writable()
    values = np.random.default_rng(0).standard_normal(3 * elements).astype("f4").round(1)
    for each in (session, other):
        zarr.create_array(
            each.store,
            name="t",
            shape=values.shape,
            dtype="f4",
            chunks=(elements,),
            compressors=ZstdCodec(level=1, checksum=checksum),
        )
    frazil.Array(session, "/t")[:] = values
    zarr.open_array(other.store, path="t")[:] = values
    same_chunks(session, other)


@pytest.mark.usefixtures("in_bulk")
def test_rectilinear_grids(session: frazil.Session) -> None:
    expected = np.zeros((7, 20), "i8")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        zarr.create_array(
            session.store, name="t", shape=(7, 20), chunks=[[3, 1, 3], [2, 6, 2, 2, 6, 2]], dtype="i8"
        )
        array = frazil.Array(session, "/t")
        values = np.arange(1, 141).reshape(7, 20)
        for index in np.s_[:], np.s_[2:5, ::2], np.s_[3, 3], np.s_[::-1, 7:]:
            array[index] = 3 * values[index]
            expected[index] = 3 * values[index]
            same(array[:], expected)
            same(array[index], expected[index])
        same(array[[6, 0], [10, 3]], expected[[6, 0], [10, 3]])


@pytest.mark.usefixtures("in_bulk")
@pytest.mark.parametrize(
    ("dtype", "fill", "value"),
    [
        ("f4", 0.0, -0.0),
        ("f4", -0.0, 0.0),
        ("f8", np.nan, np.nan),
        ("f2", 1.5, 1.5),
        ("c8", 0, complex(-0.0, 0.0)),
        ("c8", complex(np.nan, 0), np.nan),
        ("M8[s]", np.datetime64("NaT", "s"), np.datetime64("NaT", "s")),
        ("?", True, True),
        ("S3", b"a", b"a"),
        ("U2", "a", "b"),
    ],
)
@pytest.mark.parametrize("writes_fill", [False, True])
def test_chunks_of_the_fill_value(
    session: frazil.Session, dtype: str, fill: Any, value: Any, writes_fill: bool
) -> None:
    """A chunk of the fill value is stored if zarr stores it, and an earlier chunk is removed."""
    other = writable()
    values = np.full(12, value, dtype)
    values[9] = np.ones((), dtype)
    with zarr.config.set({"array.write_empty_chunks": writes_fill}):
        for each in (session, other):
            created = zarr.create_array(
                each.store, name="t", shape=(12,), dtype=dtype, chunks=(4,), fill_value=fill, compressors=None
            )
            created[4:8] = np.ones(4, dtype)
        frazil.Array(session, "/t")[:] = values
        created[:] = values
    same_chunks(session, other)
    stored = [data is not None for _, data in chunks_of(session, (3,))]
    assert stored[1] == stored[0]
    assert stored[0] or not writes_fill


def test_values_are_converted_as_by_zarr(session: frazil.Session) -> None:
    zarr.create_array(session.store, name="t", shape=(4,), dtype="u1", chunks=(2,))
    array = frazil.Array(session, "/t")
    for value in (np.array([1.9, 2, 300, 4]), [1, 2, 3, 4], np.int64(300), 7, True):
        zarr_array = zarr.open_array(session.store, path="t")
        try:
            zarr_array[:] = value
        except Exception as error:
            with pytest.raises(type(error)):
                array[:] = value
            continue
        expected = zarr_array[:]
        array[:] = 0
        array[:] = value
        same(array[:], expected)
    with pytest.raises(OverflowError):
        array[:] = 300
    with pytest.raises(ValueError, match="invalid literal"):
        array[:] = "x"


def test_wrong_writes(session: frazil.Session) -> None:
    zarr.create_array(session.store, name="t", shape=(4, 3), dtype="i4")
    array = frazil.Array(session, "/t")
    with pytest.raises(InvalidInputError, match=r"broadcasts to \(4, 3\), got \(4,\)") as error:
        array[:] = np.zeros(4)
    assert error.value.kind == ErrorKind.INVALID_ARGUMENT
    with pytest.raises(InvalidIndexError):
        array[4] = 0
    array[:] = np.ones((1, 1, 4, 3))
    array[:0] = 5
    same(array[:], np.ones((4, 3), "i4"))
    session.commit("values")
    for index in np.s_[:], np.s_[[0, 1], [0, 1]], np.s_[:0]:
        with pytest.raises(ReadOnlyError):
            array[index] = 1


def test_outer_indices(session: frazil.Session) -> None:
    zarr.create_array(session.store, name="t", shape=(5, 6), dtype="i4", chunks=(2, 2))
    array, expected = frazil.Array(session, "/t"), np.zeros((5, 6), "i4")
    array.oindex[[4, 0], [5, 1, 2]] = np.arange(6).reshape(2, 3)
    expected[np.ix_([4, 0], [5, 1, 2])] = np.arange(6).reshape(2, 3)
    array.oindex[[True, False, True, False, False], 3] = 9
    expected[[0, 2], 3] = 9
    array[[1, 1], [0, 0]] = [5, 6]  # the last one counts
    expected[1, 0] = 6
    same(array[:], expected)


@pytest.mark.usefixtures("in_bulk")
def test_a_discard_during_a_write(session: frazil.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session forgets the packs of the first attempt, so the chunks are stored again."""
    zarr.create_array(session.store, name="t", shape=(40,), dtype="i4", chunks=(4,))
    session = committed(session)
    encoded, discards = BoxWriting._encoded, list[None]()

    def discarding(*args: Any) -> Iterator[Any]:
        yield from encoded(*args)
        if not discards:
            session.discard_changes()
            discards.append(None)

    monkeypatch.setattr(BoxWriting, "_encoded", discarding)
    frazil.Array(session, "/t")[:] = np.arange(40)
    assert discards
    same(frazil.Array(session, "/t")[:], np.arange(40, dtype="i4"))
    session.commit("values")
    same(frazil.Array(session, "/t")[:], np.arange(40, dtype="i4"))


def test_a_write_that_fails_changes_nothing(session: frazil.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr.create_array(session.store, name="t", data=np.arange(40), chunks=(4,))
    writer = session.workspace.writer

    def failing(rows: Any) -> Any:
        raise frazil.StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(writer), "pack_rows", lambda self, rows: failing(rows))
        with pytest.raises(frazil.StorageError, match="full"):
            frazil.Array(session, "/t")[:] = 7
    same(frazil.Array(session, "/t")[:], np.arange(40))


def test_reads_and_partial_writes_are_tracked() -> None:
    session = writable()
    zarr.create_array(session.store, name="t", data=np.arange(40), chunks=(4,))
    session.commit("values")
    context = session.workspace.context
    repo = frazil.Repository.open(context.storage, context.config)
    session = repo.writable_session("main", track_reads=True)
    array = frazil.Array(session, "/t")
    array[2:17] = 0
    array[20:28]
    array[[0, 39]]
    tracker = session.workspace.reads
    assert tracker is not None
    reads = tracker.reads()
    assert "/t" in reads.documents
    assert sorted({*np.concatenate(reads.chunks["/t"]).ravel().tolist()}) == [0, 4, 5, 6, 9]


def test_deduplication_stays_with_zarr() -> None:
    session = writable(deduplicate=True)
    zarr.create_array(session.store, name="t", shape=(40,), dtype="i4", chunks=(4,), compressors=None)
    frazil.Array(session, "/t")[:] = 3
    refs = session.workspace.ref_table("/t")
    assert set(refs.offset.tolist()) == {0}
    same(frazil.Array(session, "/t")[:], np.full(40, 3, "i4"))


@pytest.mark.parametrize("codec", ["plain", "zstd"])
def test_no_step_of_python_for_each_chunk(session: frazil.Session, codec: str) -> None:
    steps = []
    for name, chunks in (("few", 100), ("many", 1000)):
        zarr.create_array(
            session.store, name=name, shape=(16 * chunks,), dtype="f8", chunks=(16,), **CODECS[codec](1)
        )
        array, values = frazil.Array(session, name), np.arange(16.0 * chunks)
        array[:] = values
        steps.append(python_steps(partial(operator.setitem, array, slice(3, -3), values[3:-3])))
    assert steps[1] < 1.5 * steps[0] + 100


def test_a_damaged_chunk_that_is_written_in_part(session: frazil.Session) -> None:
    """zarr writes the selection, and raises the error of the chunk. A whole write replaces the chunk."""
    zarr.create_array(session.store, name="t", data=np.arange(40), chunks=(4,), compressors=ZstdCodec())
    session.store.set_sync("t/c/2", zarr.core.buffer.cpu.Buffer.from_bytes(b"no frame of zstd"))
    array = frazil.Array(session, "/t")
    # No whole chunks: zarr's own pipeline would still write them after the error.
    with pytest.raises(FormatError, match=r"the chunk \[2\] of the array `/t`"):
        array[8:10] = 0
    array[:12] = np.arange(12)
    same(array[:], np.arange(40))


@pytest.mark.interop
@pytest.mark.deep
def test_the_reference_reads_bulk_writes(tmp_path: Path) -> None:
    """Packs, files of large chunks, inline and missing chunks, and chunks at the edges."""
    icechunk = pytest.importorskip("icechunk")
    values = np.random.default_rng(0).standard_normal((60, 200)).round(1)
    values[:20, :100] = 0
    config = frazil.RepositoryConfig.default()
    config.packing = frazil.PackingConfig(threshold_bytes=4096)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")), config)
    session = repo.writable_session("main")
    for (name, chunks), codec in product(
        {"packs": (8, 12), "files": (30, 100), "inline": (5, 9)}.items(), ("plain", "zstd")
    ):
        options = {"chunks": chunks, **CODECS[codec](2)}
        zarr.create_array(session.store, name=name + codec, shape=values.shape, dtype="f8", **options)
        array = frazil.Array(session, name + codec)
        array[:] = 1
        array[7:, ::-1] = values[7:, ::-1]
        array[:7] = values[:7]
    session.commit("values")
    other = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    group = zarr.open_group(other.readonly_session("main").store, mode="r")
    for _, written in group.arrays():
        same(written[:], values)
