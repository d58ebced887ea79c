"""``frazil.Array`` beside numpy: the same index selects the same elements, in every encoding."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.counting import python_steps
from tests.support.examples import examples

import frazil
from frazil.arrays.encoding import encoding_of

#: Codecs with a fast decoder, and codecs that zarr decodes.
CODECS: dict[str, Callable[[int], dict[str, Any]]] = {
    "plain": lambda ndim: {"compressors": None},
    "big-endian": lambda ndim: {"compressors": None, "serializer": zarr.codecs.BytesCodec(endian="big")},
    "zstd": lambda ndim: {"compressors": zarr.codecs.ZstdCodec(level=1, checksum=True)},
    "blosc": lambda ndim: {"compressors": zarr.codecs.BloscCodec()},
    "gzip": lambda ndim: {"compressors": zarr.codecs.GzipCodec(level=1)},
    "transposed": lambda ndim: {
        "filters": zarr.codecs.TransposeCodec(order=tuple(reversed(range(ndim)))),
        "compressors": zarr.codecs.ZstdCodec(),
    },
    "transposed-plain": lambda ndim: {
        "filters": zarr.codecs.TransposeCodec(order=tuple(reversed(range(ndim)))),
        "compressors": None,
    },
    "crc32c": lambda ndim: {"compressors": zarr.codecs.Crc32cCodec()},
}
FAST = [name for name in CODECS if name != "crc32c"]
DTYPES = ["i1", "u2", "i4", "f8", "c8", "?", "M8[s]", "S3", "U2"]


def local(path: Path) -> frazil.Repository:
    """A repository without inline chunks."""
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    return frazil.Repository.create(path / "repo", config)


@pytest.fixture
def session() -> frazil.Session:
    return frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")


@st.composite
def arrays(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """Draw values, and the options of `zarr.create_array`."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
    codec = draw(st.sampled_from(sorted(CODECS))) if shape else "zstd"
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    values = np.arange(int(np.prod(shape)), dtype="i8").reshape(shape)
    values = (values % 2 == 0) if dtype.kind == "b" else values.astype(dtype)
    chunks = tuple(draw(st.integers(1, max(1, n))) for n in shape)
    options: dict[str, Any] = {"chunks": chunks, **CODECS[codec](len(shape))}
    sharded: bool = draw(st.booleans())
    if shape and sharded and codec not in ("transposed", "transposed-plain", "crc32c"):
        options["shards"] = tuple(each * draw(st.integers(1, 3)) for each in chunks)
    return values, options


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Draw an index of numpy that is valid for the shape."""
    if draw(st.booleans()) or not all(shape) or not shape:
        return draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    if draw(st.integers(0, 3)) == 0:
        return draw(hnp.arrays(bool, shape))
    array = hnp.integer_array_indices(shape[:1], result_shape=hnp.array_shapes(max_dims=2, max_side=4))
    rest = [draw(st.one_of(st.slices(n), st.integers(-n, n - 1))) for n in shape[1:]]
    items = [draw(array)[0], *rest]
    if len(shape) > 1 and draw(st.booleans()):
        count = items[0].shape
        items[-1] = draw(hnp.arrays("i8", count, elements=st.integers(-shape[-1], shape[-1] - 1)))
    return tuple(items)


@pytest.mark.deep
@settings(max_examples=examples(300))
@given(st.data())
def test_as_numpy(data: st.DataObject) -> None:
    values, options = data.draw(arrays())
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=data.draw(st.sampled_from([0, 512])))
    session = frazil.Repository.create(frazil.in_memory_storage(), config).writable_session("main")
    created = zarr.create_array(
        session.store,
        name="t",
        shape=values.shape,
        dtype=values.dtype,
        fill_value=np.array(1).astype(values.dtype)[()],
        **options,
    )
    expected = np.full(values.shape, created.fill_value, values.dtype)
    if values.ndim and data.draw(st.booleans()):  # some chunks are missing
        low = [data.draw(st.integers(0, n)) for n in values.shape]
        spot = tuple(slice(each, None) for each in low)
        expected[spot] = values[spot]
        created[spot] = values[spot]
    else:
        expected[...] = values
        created[...] = values
    array = frazil.Array(session, "/t")
    if data.draw(st.booleans()):
        session.commit("values")
    index = data.draw(indices(values.shape))
    with pytest.MonkeyPatch.context() as patch:  # chunks whose bytes are in order are read into the result
        shortest = data.draw(st.sampled_from([1, 20, 1 << 16]))
        patch.setattr("frazil.arrays.box_reading._SHORTEST_RUN", shortest)
        same(array[index], expected[index])


def same(actual: Any, expected: Any) -> None:
    assert np.asarray(actual).dtype == np.asarray(expected).dtype
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_codecs(
    session: frazil.Session, codec: str, shards: tuple[int, int] | None, request: pytest.FixtureRequest
) -> None:
    if codec in FAST:
        request.getfixturevalue("in_bulk")
    values = np.arange(130, dtype="i4").reshape(10, 13)
    options = CODECS[codec](2)
    if shards is not None and "filters" in options:
        pytest.skip("zarr has no filters outside of shards")
    created = zarr.create_array(session.store, name="t", data=values, chunks=(2, 3), shards=shards, **options)
    is_fast = encoding_of(session.workspace.require_array("/t").user_data) is not None
    assert is_fast == (codec in FAST)
    array = frazil.Array(session, "t")
    for index in np.s_[:], np.s_[3:9:2, ::-3], np.s_[[1, 7], [12, 0]]:  # `test_as_numpy` has others
        same(array[index], values[index])
    same(array.oindex[[9, 0, 3], 2:5], values[[9, 0, 3], 2:5])
    same(array.oindex[[9, 0], [1, 12, 2]], values[np.ix_([9, 0], [1, 12, 2])])
    same(array.oindex[values[:, 0] > 50, 4], values[values[:, 0] > 50, 4])
    created[:4] = 0
    values[:4] = 0
    same(array[:], values)


@pytest.mark.usefixtures("in_bulk")
def test_shards_with_the_index_first(session: frazil.Session) -> None:
    values = np.arange(60, dtype="f4").reshape(6, 10)
    codec = zarr.codecs.ShardingCodec(
        chunk_shape=(2, 2), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()], index_location="start"
    )
    array = zarr.create_array(
        session.store, name="t", shape=(6, 10), chunks=(4, 10), dtype="f4", serializer=codec, compressors=None
    )
    array[:4] = values[:4]
    values[4:] = 0
    same(frazil.Array(session, "/t")[1:6, ::3], values[1:6, ::3])


def test_properties_of_the_handle(session: frazil.Session) -> None:
    zarr.create_array(
        session.store,
        name="a/t",
        shape=(4, 5),
        dtype="f4",
        dimension_names=["y", "x"],
        attributes={"units": "K"},
    )
    array = frazil.Array(session, "a/t")
    assert (array.path, array.shape, array.ndim, array.dtype) == ("/a/t", (4, 5), 2, np.dtype("f4"))
    assert array.dimension_names == ("y", "x")
    assert array.attrs == {"units": "K"}
    assert array.session is session
    assert len(array) == 4
    assert repr(array) == "<frazil.Array /a/t, shape (4, 5), dtype float32>"
    assert "frazil.Array" in array._repr_html_()
    assert np.asarray(array).shape == (4, 5)
    assert [row.shape for row in array] == [(5,)] * 4
    assert np.asarray(array, "f8").dtype == np.dtype("f8")
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(array, copy=False)
    zarr.create_array(session.store, name="scalar", shape=(), dtype="f4")
    with pytest.raises(TypeError, match="no length"):
        len(frazil.Array(session, "scalar"))
    session.commit("array")
    frozen = frazil.Array(session.fork() if not session.read_only else session, "/a/t")
    assert pickle.loads(pickle.dumps(frozen)).attrs == {"units": "K"}


@pytest.mark.usefixtures("in_bulk")
def test_a_read_in_one_call(session: frazil.Session) -> None:
    values = np.arange(20).reshape(4, 5)
    zarr.create_array(session.store, name="a/t", data=values, chunks=(3, 2))
    same(frazil.read(session, "/a/t"), values)
    same(frazil.read(session, "a/t", np.s_[1:3, ::-1]), values[1:3, ::-1])
    same(frazil.read(session, "/a/t", ([3, 0], [4, 1])), values[[3, 0], [4, 1]])
    assert frazil.read(session, "/a/t", (2, 3)) == 13
    with pytest.raises(frazil.InvalidInputError, match="must be an array, got a group"):
        frazil.read(session, "/a", 0)
    with pytest.raises(frazil.InvalidIndexError):
        frazil.read(session, "/a/t", 4)


def test_wrong_paths(session: frazil.Session) -> None:
    zarr.create_group(session.store, path="g")
    with pytest.raises(frazil.InvalidInputError, match="must be an array, got a group"):
        frazil.Array(session, "/g")
    with pytest.raises(frazil.NodeNotFoundError):
        frazil.Array(session, "/absent")
    array = zarr.create_array(session.store, name="t", shape=(2,), dtype="f4")
    handle = frazil.Array(session, "/t")
    array.resize((5,))
    assert handle.shape == (5,)
    session.store.sync_clear()
    with pytest.raises(frazil.NodeNotFoundError):
        handle[0]


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (5, "from -5 to 4, got 5"),
        ((0, -4), "from -3 to 2, got -4"),
        ((0, 0, 0), "at most as many items, got 3"),
        ("a", "must have integers, slices"),
        (1.5, "must have integers, slices"),
        (np.s_[..., ...], "at most one ellipsis"),
        (slice(None, None, 0), "step other than 0"),
        (slice("a"), "a slice must have integers"),
        (([0, 1], [0, 1, 2]), "shapes that broadcast"),
        ([True], r"must have the shape \(5,\)"),
        ([0, 9], "from -5 to 4, got 9"),
        (True, "boolean arrays of one or more dimensions, got True"),
        ((0, np.True_), "boolean arrays of one or more dimensions"),
    ],
)
def test_wrong_indices(session: frazil.Session, index: Any, text: str) -> None:
    zarr.create_array(session.store, name="t", shape=(5, 3), dtype="f4")
    with pytest.raises(frazil.InvalidIndexError, match=text) as error:
        frazil.Array(session, "/t")[index]
    assert isinstance(error.value, IndexError)
    assert error.value.kind == frazil.ErrorKind.INVALID_ARGUMENT


def test_outer_indices_have_one_dimension(session: frazil.Session) -> None:
    zarr.create_array(session.store, name="t", shape=(5, 3), dtype="f4")
    with pytest.raises(frazil.InvalidInputError, match="must have one dimension"):
        frazil.Array(session, "/t").oindex[[[0, 1]], [0]]


@pytest.mark.parametrize("codec", ["plain", "zstd", "crc32c"])
def test_points_in_steps(session: frazil.Session, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """Many points are read in several steps, whatever the shape of the index."""
    values = np.arange(60).reshape(6, 10)
    zarr.create_array(session.store, name="t", data=values, chunks=(2, 3), **CODECS[codec](2))
    monkeypatch.setattr("frazil.arrays.array._MOST_POINTS", 7)
    array = frazil.Array(session, "/t")
    same(array[[5, 0, 3]], values[[5, 0, 3]])
    same(array[:, [9, 0, 3], None], values[:, [9, 0, 3], None])
    same(array[values % 7 == 1], values[values % 7 == 1])


@pytest.mark.parametrize("codec", ["plain", "zstd", "blosc", "gzip"])
@pytest.mark.parametrize("index", [np.s_[:], np.s_[70], np.s_[[3, 70]]])
@pytest.mark.parametrize("shortest", [1, 1 << 16], ids=["into the result", "by way of a buffer"])
def test_damage_names_the_chunk(
    tmp_path: Path, codec: str, index: Any, shortest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.arrays.box_reading._SHORTEST_RUN", shortest)
    repo = local(tmp_path)
    session = repo.writable_session("main")
    zarr.create_array(
        session.store, name="t", data=np.random.default_rng(0).random(100), chunks=(10,), **CODECS[codec](1)
    )
    session.commit("values")
    (pack,) = (tmp_path / "repo" / "chunks").iterdir()
    data = bytearray(pack.read_bytes())
    size = session.workspace.refs_at("/t", np.array([[7]], np.uint32))
    at = int(size.offset[0])
    pack.chmod(0o644)
    pack.write_bytes(data[: at + 5] if codec == "plain" else data[:at] + b"\0" * 60 + data[at + 60 :])
    session = repo.readonly_session("main")
    with pytest.raises(Exception, match=r".") as expected:
        zarr.open_array(session.store, path="t", mode="r")[7 * 10]
    is_short = isinstance(expected.value, frazil.IcechunkError)  # the error of the storage, not of a codec
    with pytest.raises(type(expected.value) if is_short else frazil.FormatError) as actual:
        frazil.Array(session, "/t")[index]
    if is_short:
        assert str(actual.value)[:60] == str(expected.value)[:60]
    else:
        assert "the chunk [7] of the array `/t`" in str(actual.value)
    same(frazil.Array(session, "/t")[:70], zarr.open_array(session.store, path="t", mode="r")[:70])


def test_a_damaged_index_of_a_shard(tmp_path: Path) -> None:
    repo = local(tmp_path)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="t", data=np.arange(400.0), chunks=(10,), shards=(200,))
    session.commit("values")
    for file in (tmp_path / "repo" / "chunks").iterdir():
        data = bytearray(file.read_bytes())
        refs = session.workspace.refs_at("/t", np.array([[1]], np.uint32))
        data[int(refs.offset[0] + refs.length[0]) - 20] ^= 1
        file.chmod(0o644)
        file.write_bytes(data)
    array = frazil.Array(repo.readonly_session("main"), "/t")
    same(array[:200], np.arange(200.0))
    with pytest.raises(Exception, match=r"(?i)checksum"):
        array[:]
    with pytest.raises(Exception, match=r"(?i)checksum"):
        array[[0, 399]]


@pytest.mark.parametrize("codec", ["plain", "zstd"])
@pytest.mark.parametrize("index", [np.s_[:], np.s_[5:-5], np.s_[::3]])
def test_no_step_of_python_for_each_chunk(tmp_path: Path, codec: str, index: Any) -> None:
    repo = local(tmp_path)
    session = repo.writable_session("main")
    steps = []
    for name, chunks in (("few", 100), ("many", 1000)):
        zarr.create_array(
            session.store, name=name, data=np.arange(16.0 * chunks), chunks=(16,), **CODECS[codec](1)
        )
    session.commit("values")
    session = repo.readonly_session("main")
    for name in ("few", "many"):
        array = frazil.Array(session, name)
        array[index]
        steps.append(python_steps(partial(operator.getitem, array, index)))
        points = np.arange(0, array.shape[0], 16)
        steps.append(python_steps(partial(operator.getitem, array, points)))
    assert steps[2] < 1.5 * steps[0] + 100
    assert steps[3] < 1.5 * steps[1] + 100
