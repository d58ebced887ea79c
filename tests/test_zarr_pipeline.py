"""The pipeline that zarr uses for Frazil's arrays, beside zarr's own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.arrays.test_array import CODECS, FAST, arrays, local, same
from tests.arrays.test_assignment import same_chunks, writable
from tests.support.examples import examples
from zarr.storage import MemoryStore

import frazil
import frazil.zarr_pipeline
from frazil import zarr_pipeline as zarr_reads
from frazil.arrays.box_writing import BoxWriting
from frazil.errors import InvalidInputError, ReadOnlyError
from frazil.zarr_pipeline import OpenedArray, ZarrRead


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[ZarrRead]:
    """The reads that Frazil takes."""
    reads: list[ZarrRead] = []
    run = ZarrRead.run

    def counted(read: ZarrRead) -> bool:
        reads.append(read)
        return run(read)

    monkeypatch.setattr(zarr_reads.ZarrRead, "run", counted)
    return reads


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether Frazil has written the values, for each write that it takes."""
    writes: list[bool] = []
    run = BoxWriting.run

    def noted(*args: Any) -> bool:
        writes.append(run(*args))
        return writes[-1]

    monkeypatch.setattr(BoxWriting, "run", noted)
    return writes


def without_pipeline(session: frazil.Session) -> zarr.Array[Any]:
    """Open the array `/t` with another pipeline."""
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        return zarr.open_array(session.store, path="t")


@pytest.mark.parametrize("codec", sorted({*FAST} - {"gzip"}))
def test_boxes_are_written(writes: list[bool], codec: str) -> None:
    """Boxes are written in one call, with the bytes of zarr."""
    one, other = writable(), writable()
    values = np.arange(1, 131, dtype="i4").reshape(10, 13)
    for session in (one, other):
        array = zarr.create_array(
            session.store, name="t", shape=(10, 13), chunks=(2, 3), dtype="i4", **CODECS[codec](2)
        )
    plain, array = without_pipeline(other), zarr.open_array(one.store, path="t")
    indices: Any = np.s_[:], np.s_[3:9:2, ::5], np.s_[..., 4], np.s_[1, 2:], np.s_[:, 1:3], np.s_[2:8]
    for number, index in enumerate(indices):
        for value in (values[index], 0 if number % 2 else np.float64(3)):
            array[index] = value
            plain[index] = value
            same_chunks(one, other)
    assert writes == [True] * 2 * len(indices)
    assert one.status().updated_chunks == other.status().updated_chunks


def test_other_writes_stay_with_zarr(writes: list[bool]) -> None:
    session = writable()
    values = np.arange(40, dtype="i4")
    array = zarr.create_array(session.store, name="t", shape=(40,), dtype="i4", chunks=(5,))
    array[3:12] = 1  # three chunks
    array.oindex[np.array([1, 30, 11, 20, 35])] = 2
    array.vindex[[1, 30, 11, 20, 36]] = 3
    array[values % 7 == 2] = 4
    other = zarr.create_array(MemoryStore(), data=values, chunks=(5,))
    same(other[:], values)
    zarr.create_array(session.store, name="s", data=values, chunks=(5,), shards=(10,))
    zarr.create_array(session.store, name="u", data=values.astype(str).astype("T"), chunks=(5,))
    with pytest.raises(Exception, match="broadcast"):
        array[:] = np.zeros(3)
    assert not writes
    expected = np.zeros(40, "i4")
    expected[3:12] = 1
    expected[[1, 30, 11, 20, 35]] = 2
    expected[[1, 30, 11, 20, 36]] = 3
    expected[values % 7 == 2] = 4
    same(array[:], expected)


STALE: dict[str, dict[str, Any]] = {
    "codecs": {"compressors": None},
    "an unknown codec": {"compressors": zarr.codecs.BloscCodec(cname="lz4")},
    "fill value": {"fill_value": 3},
    "dtype": {"dtype": "u4"},
    "text": {"dtype": "<U4", "fill_value": ""},
    "chunks": {"chunks": (3,)},
    "larger chunks": {"chunks": (10,)},
    "shards": {"chunks": (5,), "shards": (20,)},
    "dimensions": {"shape": (40, 2), "chunks": (5, 2)},
    "uneven chunks": {"chunks": [[5, 5, 10, 20]]},
}


@pytest.fixture
def rectilinear() -> Iterator[None]:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


@pytest.mark.usefixtures("rectilinear")
@pytest.mark.parametrize("name", STALE)
@pytest.mark.parametrize("where", [slice(None), slice(3, 6), slice(0, 20), 7, [1, 30]])
def test_an_array_that_was_created_again_is_refused(name: str, where: Any) -> None:
    """With the metadata that zarr has read, coordinates and bytes are those of other elements."""
    session = writable()
    options: dict[str, Any] = {"shape": (40,), "chunks": (5,), "dtype": "i4", "fill_value": 7}
    earlier = zarr.create_array(session.store, name="t", **options)
    now = zarr.create_array(session.store, name="t", overwrite=True, **{**options, **STALE[name]})
    values = np.full(now.shape, 9).astype(now.dtype)
    now[:] = values
    with pytest.raises(InvalidInputError, match="again"):
        earlier.oindex[where]
    with pytest.raises(InvalidInputError, match="again"):
        earlier.oindex[where] = 1
    same(np.asarray(now[:]), values)


@pytest.mark.usefixtures("rectilinear")
def test_stale_uneven_chunks_are_refused() -> None:
    session = writable()
    options: dict[str, Any] = {"name": "t", "shape": (32,), "dtype": "i4", "fill_value": 0}
    earlier = zarr.create_array(session.store, chunks=[[4] * 8], **options)
    now = zarr.create_array(session.store, chunks=[[4, 2, 6, *[4] * 5]], overwrite=True, **options)
    for where in (slice(None), slice(4, 9), 5):
        with pytest.raises(InvalidInputError, match="again"):
            earlier[where]
        with pytest.raises(InvalidInputError, match="again"):
            earlier[where] = 1
    assert not np.asarray(now[:]).any()


@pytest.mark.parametrize("way", ["overwrite", "group", "merge", "commit", "discard"])
@pytest.mark.parametrize("is_read", [False, True])
def test_an_array_of_the_same_form_is_another_one(way: str, is_read: bool) -> None:
    session = writable()
    options: dict[str, Any] = {"name": "g/t", "data": np.arange(40), "chunks": (5,), "overwrite": True}
    other = zarr.create_array(session.store, name="g/tt", data=np.arange(40))
    earlier = zarr.create_array(session.store, attributes={"scale_factor": 2.0}, **options)
    if not is_read:
        earlier = zarr.open_array(session.store, path="g/t")
    target: Any = session.fork() if way == "merge" else session
    if way == "group":
        zarr.create_group(session.store, path="g", overwrite=True)
    elif way == "discard":
        session.discard_changes()
    now = zarr.create_array(target.store, attributes={"scale_factor": 3.0}, **options)
    if way == "merge":
        session.merge(target)
        session.merge(target)
        now = zarr.open_array(session.store, path="g/t")
        session.merge(target)
    if way == "commit":
        session.commit("again")
    places: Any = (slice(None), slice(3, 4), np.array([1, 30]))
    for where in places:
        with pytest.raises(InvalidInputError, match="again"):
            earlier.oindex[where]
    same(now[:], np.arange(40))
    if way not in ("group", "discard"):
        same(other[:], np.arange(40))


def test_an_array_that_was_resized_or_annotated_is_not_stale() -> None:
    session = writable()
    array = zarr.create_array(session.store, name="t", data=np.arange(40), chunks=(5,))
    zarr.open_array(session.store, path="t").attrs["units"] = "K"
    zarr.open_array(session.store, path="t").resize((60,))
    same(array[:], np.arange(40))
    array[:] = np.arange(40) + 1
    same(array[:], np.arange(40) + 1)
    zarr.open_array(session.store, path="t").resize((10,))
    same(array[:10], np.arange(10) + 1)
    assert (array[15:] == array.fill_value).all()


def test_a_new_array_of_another_byte_order_is_not_stale() -> None:
    session = writable()
    array = zarr.create_array(session.store, name="t", shape=(40,), chunks=(5,), dtype=">i2")
    array[:] = np.arange(40)
    same(array[3:30], np.arange(3, 30, dtype=array.dtype))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("byte", [0, -1], ids=["payload", "sign"])
def test_any_nan_is_a_fill_value(dtype: str, byte: int) -> None:
    """JSON has one NaN. Computed ones have other signs, and other bits."""
    data = np.frombuffer(np.array(np.nan, dtype).tobytes(), "u1").copy()
    data[byte] ^= 0x83 if byte == 0 else 0x80
    fill = data.view(dtype)[0]
    session = writable()
    options: dict[str, Any] = {"chunks": (2,), "dtype": dtype, "fill_value": fill}
    array = zarr.create_array(session.store, name="t", shape=(4,), **options)
    array[:2] = 1
    same(array[:], np.array([1, 1, np.nan, np.nan], dtype))
    full = zarr.full(store=session.store, path="full", shape=(4,), **options)
    assert np.isnan(full[:]).all()


def test_arrays_are_equal_by_their_values() -> None:
    session = writable()
    created = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="f4")
    other = zarr.create_array(session.store, name="other", shape=(4,), chunks=(2,), dtype="f4")
    opened = zarr.open_array(session.store, path="t")
    assert opened == created == zarr.open_group(session.store)["t"]
    assert opened != other
    pipelines = {each.async_array.codec_pipeline for each in (created, opened, other)}
    assert len(pipelines) == 1
    assert opened in [other, created]


def test_read_only_writes() -> None:
    session = writable()
    array = zarr.create_array(session.store, name="t", shape=(40,), dtype="i4", chunks=(5,))
    closed = zarr.open_array(session.store.with_read_only(True), path="t")
    session.commit("an array")
    for each in (array, closed):
        with pytest.raises((ReadOnlyError, ValueError)):
            each[:] = 1


@pytest.mark.deep
@settings(max_examples=examples(200))
@given(st.data())
def test_as_numpy(data: st.DataObject) -> None:
    values, options = data.draw(arrays())
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    array = zarr.create_array(session.store, name="t", shape=values.shape, dtype=values.dtype, **options)
    expected = np.full(values.shape, array.fill_value, values.dtype)
    spot = tuple(slice(data.draw(st.integers(0, n)), None) for n in values.shape)
    array[spot] = values[spot]
    expected[spot] = values[spot]
    index = data.draw(hnp.basic_indices(values.shape, allow_ellipsis=True).filter(_is_of_zarr))
    np.testing.assert_array_equal(array[index], expected[index])
    if values.size:
        chosen = [data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4)) for n in values.shape]
        if chosen:
            np.testing.assert_array_equal(
                array.oindex[tuple(map(np.asarray, chosen))], expected[np.ix_(*chosen)]
            )
            points = tuple(np.array(each)[: min(map(len, chosen))] for each in chosen)
            np.testing.assert_array_equal(array.vindex[points], expected[points])


def _is_of_zarr(index: Any) -> bool:
    items = index if isinstance(index, tuple) else (index,)
    return not any(isinstance(item, slice) and (item.step or 1) < 1 for item in items)


@pytest.mark.parametrize("codec", ["plain", "zstd"])
@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_boxes_are_taken(reads: list[ZarrRead], codec: str, shards: tuple[int, int] | None) -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    values = np.arange(130, dtype="i4").reshape(10, 13)
    array = zarr.create_array(
        session.store, name="t", data=values, chunks=(2, 3), shards=shards, **CODECS[codec](2)
    )
    boxes = (np.s_[:], np.s_[3:9:2, ::5], np.s_[..., 4], np.s_[7, 2:], np.s_[9:, 12])
    for index in boxes:
        same(np.asarray(array[index]), np.asarray(values[index]))
    # zarr reads few inner chunks of few shards
    assert len(reads) == (len(boxes) if shards is None else 2)
    same(array.blocks[1, 0], values[2:4, :3] if shards is None else values[4:8, :6])


def test_other_reads_stay_with_zarr(reads: list[ZarrRead]) -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    values = np.arange(40, dtype="i4")
    array = zarr.create_array(session.store, name="t", data=values, chunks=(5,))
    same(array.oindex[np.array([1, 30])], values[[1, 30]])  # few chunks
    same(array.vindex[[1, 30]], values[[1, 30]])
    same(array[values > 30], values[values > 30])
    other = zarr.create_array(MemoryStore(), data=values, chunks=(5,))
    same(other[:], values)
    texts = zarr.create_array(session.store, name="s", data=np.array(["a", "bc"], "T"), chunks=(1,))
    assert np.asarray(texts[:]).tolist() == ["a", "bc"]
    assert not reads
    out = np.zeros(40, "f8")
    array.get_basic_selection(out=zarr.core.buffer.cpu.NDBuffer.from_numpy_array(out))
    same(out, values.astype("f8"))
    with zarr.config.set({"array.read_missing_chunks": False}):
        zarr.create_array(session.store, name="empty", shape=(5,), dtype="i4")
        with pytest.raises(Exception, match="not found"):
            zarr.open_array(session.store, path="empty", mode="r")[:]


def test_index_arrays_are_taken(reads: list[ZarrRead], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_reads, "_TOGETHER", 100)  # bytes: several rounds
    session = writable()
    values = np.arange(130, dtype="i4").reshape(10, 13)
    array = zarr.create_array(session.store, name="t", shape=values.shape, dtype="i4", chunks=(2, 3))
    array[:8] = values[:8]  # the last chunks are missing
    values[8:] = 0
    rows, columns = [9, 1, 4, 7], [0, 12, 5, 6]
    same(array.oindex[np.asarray(rows), np.asarray(columns)], values[np.ix_(rows, columns)])
    same(array.oindex[np.asarray(rows), 5], values[rows, 5])
    same(array.oindex[:, np.asarray(columns)], values[:, columns])
    same(array.vindex[rows, columns], values[rows, columns])
    same(array[values % 7 == 2], values[values % 7 == 2])
    assert len(reads) == 5


def test_a_list_that_is_no_box() -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    array = zarr.create_array(session.store, name="t", data=np.arange(15), chunks=(5,))
    lists: list[list[Any]] = []

    class Recorder(frazil.zarr_pipeline.BulkCodecPipeline):
        async def read(self, batch_info: Any, out: Any, drop_axes: tuple[int, ...] = ()) -> Any:
            lists.append(list(batch_info))
            return await super().read(lists[-1], out, drop_axes)

    pipeline = array.async_array.codec_pipeline
    object.__setattr__(array.async_array, "codec_pipeline", Recorder(**vars(pipeline)))
    array[:]
    ((first, middle, last),) = lists
    out = zarr.core.buffer.cpu.NDBuffer.from_numpy_array(np.zeros(15, int))
    metadata: Any = array.metadata
    opened = OpenedArray(metadata)
    assert zarr_reads.zarr_read([first, middle, last], out, opened) is not None
    assert zarr_reads.zarr_read([first, last], out, opened) is None
    assert zarr_reads.zarr_read([first, middle], out, opened) is None


BATCHED = "zarr.core.codec_pipeline.BatchedCodecPipeline"
#: Prints the names of the pipelines of an array of Frazil and of another one.
PIPELINES = """
import pickle, sys, zarr
store = pickle.load(open(sys.argv[1], "rb"))
other = zarr.create_array(zarr.storage.MemoryStore(), shape=(2,), dtype="i4", chunks=(1,), shards=(2,))
for array in (zarr.open_array(store, path="t"), other):
    print(type(array.async_array.codec_pipeline).__name__)
other[:] = 1
"""


@pytest.mark.parametrize(
    ("environment", "ours", "others"),
    [
        ({}, "BulkCodecPipeline", "BatchedCodecPipeline"),
        ({"ZARR_CODEC_PIPELINE__PATH": BATCHED}, "BatchedCodecPipeline", "BatchedCodecPipeline"),
        (
            {"ZARR_CODEC_PIPELINE__PATH": BATCHED.replace("Batched", "Fused")},
            *("FusedCodecPipeline", "FusedCodecPipeline"),
        ),
    ],
)
def test_processes_use_the_pipeline_without_a_call(
    tmp_path: Path, environment: dict[str, str], ours: str, others: str
) -> None:
    """A process that only unpickles a store has the pipeline. A choice of the user is respected."""
    repo = local(tmp_path)
    with repo.transaction("main", message="values") as writable_store:
        zarr.create_array(writable_store, name="t", data=np.arange(4))
    store = repo.readonly_session("main").store
    (tmp_path / "store").write_bytes(pickle.dumps(store))
    command = [sys.executable, "-c", PIPELINES, str(tmp_path / "store")]
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert (run.stdout.split(), run.stderr) == ([ours, others], "")


def test_a_choice_of_the_user_is_respected() -> None:
    session = writable()
    with zarr.config.set({"codec_pipeline.path": BATCHED}):
        array = zarr.create_array(session.store, name="t", shape=(2,), dtype="i4")
        assert type(array.async_array.codec_pipeline).__name__ == "BatchedCodecPipeline"
        assert session.store.read_only is False  # another store does not change the choice
        array = zarr.open_array(session.store, path="t")
        assert type(array.async_array.codec_pipeline).__name__ == "BatchedCodecPipeline"
    array = zarr.open_array(session.store, path="t")
    assert type(array.async_array.codec_pipeline).__name__ == "BulkCodecPipeline"
    assert type(pickle.loads(pickle.dumps(array.async_array.codec_pipeline))).__name__ == "BulkCodecPipeline"
