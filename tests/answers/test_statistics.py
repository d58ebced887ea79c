"""Statistics of chunks: `frazil.reduce` and `frazil.where` compared with numpy, and how little they read."""

from __future__ import annotations

import math
import operator
import pickle
import random
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it ships no types
import pytest
import zarr
from numpy.typing import NDArray
from tests.support.virtual_chunks import allow_folder
from zarr.codecs import BloscCodec, BytesCodec, ShardingCodec, TransposeCodec, ZstdCodec

import frazil
import frazil.arrow
from frazil.maintenance.chunk_statistics import coverage
from frazil.pipeline import Range, validate
from frazil.storage.checks import TRAFFIC

ON = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
DTYPES = ("f2", "f4", "f8", ">f4", ">f8", "i1", "i2", "i4", "i8", ">i4", "u1", "u2", "u4", "u8", "?")
TIMES = ("M8[s]", "m8[ns]")


@pytest.fixture(autouse=True)
def zarr_pipeline() -> None:
    """zarr uses the pipeline that users get, which writes statistics."""


def elements_of(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return random elements of a dtype, from all over its range, with NaN or NaT."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        values = (rng.normal(3, 10, shape) * 10.0 ** rng.integers(-2, 3)).astype(kind)
        values[rng.random(shape) < rng.choice([0, 0.1])] = np.nan
        return values
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "mM":
        values = rng.integers(-(2**62), 2**62, shape).astype("i8").view(kind)
        values[rng.random(shape) < 0.1] = np.array("NaT", kind)
        return values
    limits = np.iinfo(kind)
    small = rng.random() < 0.5
    low, high = (max(limits.min, -9), 9) if small else (limits.min, limits.max)
    return rng.integers(low, high, shape, dtype=kind.newbyteorder("="), endpoint=True).astype(kind)


def random_array(
    store: Any, name: str, dtype: str, seed: int, attributes: dict[str, Any] | None = None
) -> NDArray[Any]:
    """Create an array with a random grid, codecs and fill value, and return its elements."""
    rng, dice = np.random.default_rng(seed), random.Random(seed)
    ndim = dice.choice([0, 1, 2, 2, 3])
    shape = tuple(dice.randint(1, 23) for _ in range(ndim))
    chunks = tuple(dice.randint(1, 9) for _ in range(ndim))
    values = elements_of(rng, dtype, (*shape, 1))[..., 0]
    fill = values.reshape(-1)[0] if dice.random() < 0.3 else None
    filters = (
        [TransposeCodec(order=tuple(reversed(range(ndim))))] if ndim > 1 and dice.random() < 0.3 else None
    )
    array = zarr.create_array(
        store,
        name=name,
        shape=shape,
        chunks=chunks,
        dtype=values.dtype,
        fill_value=fill,
        filters=filters or (),
        compressors=dice.choice([None, [ZstdCodec(level=1)], [BloscCodec(cname="lz4")]]),
        shards=tuple(2 * n for n in chunks) if ndim and not filters and dice.random() < 0.3 else None,
        attributes=attributes or {},
    )
    written = tuple(slice(0, dice.randint(0, n)) for n in shape)
    array[written] = values[written]
    return np.asarray(array[...])


def repository_of(
    data: NDArray[Any], config: frazil.RepositoryConfig | None = ON, **options: Any
) -> frazil.Repository:
    """Return a repository with the array `t`, as a rule with statistics."""
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=config)
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="t", data=data, **options)
    return repo


def array_in(repo: frazil.Repository) -> frazil.Array:
    return frazil.Array(repo.readonly_session("main"), "/t")


def check_reduction(result: frazil.Reduction, elements: NDArray[Any], fills: tuple[Any, ...] = ()) -> None:
    """Compare a reduction with numpy."""
    kind = elements.dtype.kind
    nan = np.isnan(elements) if kind in "fmM" else np.zeros(elements.shape, np.bool_)
    missing = np.isin(elements, fills) & ~nan if fills else np.zeros(elements.shape, np.bool_)
    assert (result.size, result.nan, result.missing) == (elements.size, int(nan.sum()), int(missing.sum()))
    values = elements[~(nan | missing)]
    assert result.count == len(values)
    if not len(values):
        assert math.isnan(result.mean)
        assert math.isnan(result.min)
        return
    if kind == "f":
        wide = values.astype(np.float64)
        exact = math.fsum(wide.tolist())
        assert abs(result.sum - exact) <= result.error + 1e-300
        assert result.mean == pytest.approx(wide.mean(), rel=1e-9, abs=result.error / len(wide))
        assert result.var == pytest.approx(wide.var(), rel=1e-6, abs=1e-9)
        assert (result.min, result.max) == (wide.min(), wide.max())
    else:
        whole = [int(each) for each in (values.view("i8") if kind in "mM" else values)]
        assert (result.sum, result.min, result.max) == (sum(whole), min(whole), max(whole))
        assert result.error == 0
        mean = sum(whole) / len(whole)
        assert result.mean == mean
        exact_var = (sum(n * n for n in whole) * len(whole) - sum(whole) ** 2) / len(whole) ** 2
        assert result.var == exact_var
    assert result.any == bool((elements.view("i8") if kind in "mM" else elements).any())


@pytest.mark.parametrize("length", [256, 40_000])
def test_the_sums_of_large_chunks(length: int) -> None:
    rng, arrays = np.random.default_rng(length), dict[str, NDArray[Any]]()
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=ON)
    with repo.transaction("main", message="arrays") as store:
        for number, dtype in enumerate(DTYPES):
            values = elements_of(rng, dtype, (3 * length + 100,))
            if values.dtype.kind in "iu":  # a chunk with the largest squares, and one with small numbers
                values[:length] = np.iinfo(values.dtype).min or np.iinfo(values.dtype).max
                values[length : 2 * length] = rng.integers(0, 100, length)
            arrays[f"a{number}"] = values
            zarr.create_array(store, name=f"a{number}", data=values, chunks=(length + 1,))
    session = repo.readonly_session("main")
    for name, values in arrays.items():
        result = frazil.reduce(frazil.Array(session, f"/{name}"))
        assert result.chunks_read == 0
        check_reduction(result, values)


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", "u1", "i2", "u4", "i8"])
def test_gaps_in_parts_of_a_large_chunk(dtype: str) -> None:
    rng, kind, length = np.random.default_rng(9), np.dtype(dtype), 300_000
    values = (rng.integers(0, 100, length) + np.arange(length) // 100_000 * 50).astype(kind)
    if kind.itemsize > 2:  # floating-point numbers whose squares cancel, and integers with large squares
        values += kind.type(10**9)
    if kind.kind == "f":
        values[5_000::7] = np.nan
    values[:140_000] = values[200_000::3] = 255  # a part has no value at all
    repo = repository_of(values, chunks=(length,), attributes={"_FillValue": 255})
    result = frazil.reduce(array_in(repo), decoded=False)
    assert result.chunks_read == 0
    check_reduction(result, values, (255,))


def random_box(dice: random.Random, shape: tuple[int, ...]) -> tuple[slice, ...]:
    cuts = [sorted(dice.choices(range(n + 1), k=2)) for n in shape]
    return tuple(slice(*cut) for cut in cuts)


@pytest.mark.parametrize("dtype", [*DTYPES, *TIMES])
@pytest.mark.parametrize("built", [False, True], ids=["written", "built"])
def test_reductions_equal_numpy(dtype: str, built: bool) -> None:
    dice = random.Random(dtype)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=None if built else ON)
    with repo.transaction("main", message="arrays") as store:
        arrays = {f"a{n}": random_array(store, f"a{n}", dtype, 100 * n) for n in range(12)}
    if built:
        repo.upkeep.build_statistics()
    session = repo.readonly_session("main")
    unread = 0
    for name, elements in arrays.items():
        array = frazil.Array(session, f"/{name}")
        whole = frazil.reduce(array)
        unread += whole.chunks - whole.chunks_read
        check_reduction(whole, elements)
        if built:
            assert whole.chunks_read == 0
        for _ in range(6):
            box = random_box(dice, elements.shape)
            check_reduction(frazil.reduce(array, box), elements[box])
    assert unread > 0


@pytest.mark.parametrize("dtype", [*DTYPES, *TIMES])
def test_matches_equal_numpy(dtype: str) -> None:
    dice = random.Random(dtype)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=ON)
    with repo.transaction("main", message="arrays") as store:
        arrays = {f"a{n}": random_array(store, f"a{n}", dtype, 7 + 100 * n) for n in range(8)}
    session = repo.readonly_session("main")
    for name, elements in arrays.items():
        array = frazil.Array(session, f"/{name}")
        for _ in range(8):
            box = random_box(dice, elements.shape)
            part = elements[box].view("i8") if elements.dtype.kind in "mM" else elements[box]
            nothing = np.isnat(elements[box]) if elements.dtype.kind in "mM" else False
            if not part.size:
                continue
            name_of_comparison = dice.choice(list(COMPARE))
            number = dice.choice(part.reshape(-1).tolist())
            number = number if number == number else 0.0
            expected = COMPARE[name_of_comparison](part, number) & ~np.asarray(nothing)
            text = repr(number) if isinstance(number, float) else str(int(number))
            matches = frazil.where(array, f"{name_of_comparison} {text}", box)
            points = np.argwhere(expected) + np.array([each.start for each in box], np.int64)
            assert np.array_equal(matches.points(), points)
            assert matches.count() == len(points)
            assert matches.any() == bool(len(points))
            inside = np.zeros(elements.shape, np.bool_)
            for each in matches.boxes:
                inside[each] = True
            assert not len(points) or inside[tuple(points.T)].all()


def arrays_of(values: NDArray[Any], chunks: tuple[int, ...], **options: Any) -> list[frazil.Array]:
    """Return an array with statistics, and one without."""
    return [array_in(repository_of(values, config, chunks=chunks, **options)) for config in (ON, None)]


@pytest.mark.parametrize(
    ("dtype", "huge"), [("f4", 9.97e36), ("f4", 3.4e38), ("f4", -3.4e38), ("f8", 1e150), ("f8", -1e300)]
)
@pytest.mark.parametrize("cells", [1, 200])
def test_huge_numbers_in_other_chunks_do_not_change_a_box(dtype: str, huge: float, cells: int) -> None:
    values = np.random.default_rng(0).normal(280, 5, (6, 200)).astype(dtype)
    values[0, :cells] = huge
    for array in arrays_of(values, (1, 50)):
        for box in ((slice(1, 6),), (slice(2, 5), slice(25, 150))):
            check_reduction(frazil.reduce(array, box), values[box])


@pytest.mark.parametrize(
    "numbers",
    [
        [np.inf, -np.inf],
        [np.inf, 1.0],
        [1e308, -1e308, 1e308, 1e308],
        [1e308] * 4,
        [1e200, 2e200],
        [1e200, 1e200],
        [0.0, np.nan],
        [np.nan, np.nan],
    ],
)
def test_numbers_without_a_finite_answer_have_that_of_numpy(numbers: list[float]) -> None:
    values = np.array(numbers)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a mean of nothing
        expected = [np.nansum(values), np.nanmean(values), np.nanvar(values), values.any()]
    for array in (*arrays_of(values, (1,)), *arrays_of(values, (len(values),))):
        result = frazil.reduce(array)
        np.testing.assert_equal([result.sum, result.mean, result.var, result.any], expected)


def test_the_cost_of_answers_follows_the_chunks_that_are_stored() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=ON)
    with repo.transaction("main", message="array") as store:
        shape = (10**6, 10**6)
        array = zarr.create_array(store, name="t", shape=shape, chunks=(10, 100), dtype="f4", fill_value=0)
        for place in (7, 999_999, 500_003):
            array[place, place] = 3
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t")[7, 7] = 0.5  # a change that is not committed
    stored = frazil.Array(session, "/t")
    matches, result = frazil.where(stored, "> 0 and < 5"), frazil.reduce(stored)
    assert matches.chunks.tolist() == [[0, 0], [50_000, 5_000], [99_999, 9_999]]
    assert (matches.count(), matches.num_chunks) == (3, 10**9)
    assert (result.sum, result.max, result.count, result.chunks) == (6.5, 3.0, 10**12, 10**9)
    assert frazil.where(stored, "> 0", slice(10, 10**6)).count() == 2


@pytest.mark.parametrize("seed", range(4))
def test_lists_of_stored_tiles_equal_all_tiles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.answers.tiles.MOST_TILES", 0)
    monkeypatch.setattr("frazil.answers.tiles._SLAB", 5)
    test_writes_of_whole_shards_have_statistics(seed)
    test_matches_equal_numpy(DTYPES[seed])
    test_reductions_equal_numpy(DTYPES[seed], False)


@pytest.mark.parametrize("seed", range(8))
def test_writes_of_whole_shards_have_statistics(seed: int) -> None:
    rng, dice = np.random.default_rng(seed), random.Random(seed)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=ON)
    inner = tuple(dice.randint(1, 4) for _ in range(2))
    shards = tuple(n * dice.randint(1, 3) for n in inner)
    shape = tuple(dice.randint(1, 4) * n + dice.randint(0, n) for n in shards)
    dtype = dice.choice(["f4", ">f8", "i2", "u1"])
    places: list[Literal["start", "end"]] = ["start", "end"]
    values = elements_of(rng, dtype, shape)
    values[: shape[0] // 2 + 1, : shape[1] // 2] = 0  # inner chunks and shards that are not stored
    serializer = ShardingCodec(
        chunk_shape=inner,
        index_location=dice.choice(places),
        codecs=[BytesCodec(endian=dice.choice(["little", "big"])), *dice.choice([[], [ZstdCodec()]])],
    )
    with repo.transaction("main", message="shards") as store:
        array = zarr.create_array(
            store,
            name="t",
            shape=shape,
            chunks=shards,
            dtype=dtype,
            serializer=serializer,
            compressors=None,
            config={"write_empty_chunks": dice.random() < 0.3},
        )
        (frazil.Array(store.session, "/t") if dice.random() < 0.5 else array)[...] = values
    session = repo.readonly_session("main")
    result = frazil.reduce(frazil.Array(session, "/t"))
    check_reduction(result, values)
    chunks = math.prod(-(-n // m) for n, m in zip(shape, inner, strict=True))
    assert (result.chunks, result.chunks_read) == (chunks, 0)
    assert len(frazil.where(frazil.Array(session, "/t"), "> 1e30").chunks) == 0
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        np.testing.assert_array_equal(zarr.open_array(session.store, path="t")[...], values)
    # Zarr writes a part of a shard, and statistics are those of a new shard.
    with repo.transaction("main", message="a part") as store:
        zarr.open_array(store, path="t")[-1, -1] = values[-1, -1] = 99
    result = frazil.reduce(array_in(repo))
    check_reduction(result, values)


def test_rectilinear_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(zarr.config.config["array"], "rectilinear_chunks", True)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=ON)
    values = np.random.default_rng(2).normal(size=(7, 20))
    with repo.transaction("main", message="array") as store:
        chunks = [[3, 1, 3], [2, 6, 2, 2, 6, 2]]
        zarr.create_array(store, name="t", shape=(7, 20), chunks=chunks, dtype="f8")[...] = values
    array = array_in(repo)
    dice = random.Random(1)
    assert (frazil.reduce(array).chunks, frazil.reduce(array).chunks_read) == (18, 0)
    for _ in range(20):
        box = random_box(dice, values.shape)
        check_reduction(frazil.reduce(array, box), values[box])
        assert frazil.where(array, "> 1", box).count() == (values[box] > 1).sum()
    for shape in ((7, 14), (5, 9), (3, 2)):
        with repo.transaction("main", message="smaller") as store:
            zarr.open_array(store, path="t").resize(shape)
        array = array_in(repo)
        for box in ((), *(random_box(dice, shape) for _ in range(10))):
            check_reduction(frazil.reduce(array, box), values[: shape[0], : shape[1]][box])


@pytest.mark.parametrize("skipna", [True, False])
def test_missing_and_packed_values(skipna: bool) -> None:
    attributes = {"_FillValue": -99, "scale_factor": -0.5, "add_offset": 10.0}
    packed = np.random.default_rng(1).integers(-100, 100, (30, 20)).astype("i2")
    packed[::7, ::3] = -99
    array = array_in(repository_of(packed, chunks=(8, 8), attributes=attributes))
    values = np.where(packed == -99, np.nan, packed * -0.5 + 10.0)
    result = frazil.reduce(array, skipna=skipna)
    assert result.missing == (packed == -99).sum()
    expected = [
        getattr(np, f"nan{name}" if skipna else name)(values) for name in ("mean", "min", "max", "std")
    ]
    assert np.allclose([result.mean, result.min, result.max, result.std], expected, equal_nan=True)
    check_reduction(frazil.reduce(array, decoded=False), packed, (-99,))
    assert frazil.where(array, "> 30 and <= 45").count() == ((values > 30) & (values <= 45)).sum()
    assert result.chunks_read == 0


@pytest.mark.parametrize("offset", [10.0, -5.0])
def test_truths_are_those_of_unpacked_values(offset: float) -> None:
    packed = np.array([[0, 0], [0, 1], [20, 0], [-20, -20], [10, 10], [10, 12]], "i2")
    attributes = {"scale_factor": 0.5, "add_offset": offset}
    array = array_in(repository_of(packed, chunks=(1, 2), attributes=attributes))
    for row, values in enumerate(packed * 0.5 + offset):
        result = frazil.reduce(array, row)
        is_open = values.min() < 0 < values.max()
        assert (result.any, result.all) == (values.any(), None if is_open else values.all())


def test_values_in_another_order_than_their_elements_are_read() -> None:
    truths = {"dtype": "bool"}  # any number but 0 is true
    data = np.array([-1, 0, 2, 0, 0, 0], "i1")
    session = repository_of(data, chunks=(3,), attributes=truths, dimension_names=["x"]).readonly_session(
        "main"
    )
    array = frazil.Array(session, "/t")
    assert [frazil.where(array, f"== {each}").count() for each in (-1, 0, 1)] == [0, 4, 2]
    rows = frazil.arrow.dataset(session)
    assert [rows.count_rows(filter=pc.field("t") == each) for each in (True, False)] == [2, 4]


def test_another_attribute_of_missing_values_makes_statistics_unknown() -> None:
    repo = repository_of(np.arange(20.0), chunks=(5,))
    with repo.transaction("main", message="attribute") as store:
        zarr.open_array(store, path="t").attrs["_FillValue"] = 7.0
    result = frazil.reduce(array_in(repo))
    assert (result.missing, result.chunks_read) == (1, 4)
    repo.upkeep.build_statistics()
    result = frazil.reduce(array_in(repo))
    assert (result.missing, result.chunks_read) == (1, 0)


def test_only_the_edges_of_a_box_are_read_and_a_whole_array_costs_four_requests() -> None:
    data = np.random.default_rng(0).normal(size=(2000, 2000)).astype("f4")
    cold = frazil.Repository.open(repository_of(data, chunks=(200, 200), compressors=None).storage)
    TRAFFIC.take_counts()
    array = frazil.Array(cold.readonly_session("main"), "/t")
    whole = frazil.reduce(array)
    traffic = TRAFFIC.take_counts()
    assert whole.chunks_read == 0
    assert traffic.requests <= 4, "repo, snapshot, manifest, statistics"
    result = frazil.reduce(array, (slice(50, 1950), slice(50, 1950)))
    edges = TRAFFIC.take_counts()
    assert (result.chunks, result.chunks_read) == (100, 36)
    assert edges.bytes_read <= 36 * 200 * 200 * 4
    assert frazil.where(array, "> 100").count() == 0
    assert TRAFFIC.take_counts().bytes_read == 0
    spikes = np.argwhere(data > 4.9)
    assert 0 < len(spikes) < 10
    assert np.array_equal(frazil.where(array, "> 4.9").points(), spikes)
    assert TRAFFIC.take_counts().bytes_read <= len(spikes) * 200 * 200 * 4


def test_size_of_statistics() -> None:
    data = np.random.default_rng(0).normal(size=(64, 512, 256)).astype("f8")
    repo = repository_of(data, chunks=(1, 512, 256), compressors=None)
    assert 0 < sum(each.size for each in repo.storage.list("statistics")) <= data.nbytes * 0.002


@pytest.mark.parametrize("wish", [True, False])
def test_the_attribute_of_an_array_overrides_the_configuration(wish: bool) -> None:
    attributes = {"frazil_statistics": wish}
    repo = repository_of(np.arange(20.0), None if wish else ON, chunks=(5,), attributes=attributes)
    assert frazil.reduce(array_in(repo)).chunks_read == (0 if wish else 4)
    assert repo.upkeep.build_statistics().chunks_read == 0


def test_changes_that_are_not_committed() -> None:
    repo = repository_of(np.arange(20.0), chunks=(5,))
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t")[5:10] = 100.0
    result = frazil.reduce(frazil.Array(session, "/t"))
    assert (result.max, result.chunks_read) == (100.0, 0)
    zarr.open_array(session.store, path="t")[7] = -1.0  # a part of a chunk, which is written whole
    result = frazil.reduce(frazil.Array(session, "/t"))
    assert result.min == -1.0
    session.discard_changes()


def test_statistics_of_forks_and_of_pickled_changes() -> None:
    repo = repository_of(np.zeros(40), chunks=(5,))
    session = repo.writable_session("main")
    forks = [session.fork() for _ in range(2)]
    for number, fork in enumerate(forks):
        zarr.open_array(fork.store, path="t")[20 * number : 20 * number + 20] = np.arange(20.0)
    session.merge(*(pickle.loads(pickle.dumps(fork)) for fork in forks))
    session.commit("forks")
    result = frazil.reduce(array_in(repo))
    assert (result.sum, result.chunks_read) == (380.0, 0)


def test_statistics_of_a_chunk_at_the_end_belong_to_the_shape_of_the_array() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=ON)
    with repo.transaction("main", message="array") as store:
        array = zarr.create_array(store, name="t", shape=(10,), chunks=(4,), dtype="i4")
        array[:] = np.arange(10)
    for size in (9, 12):
        with repo.transaction("main", message="resize") as store:
            zarr.open_array(store, path="t").resize((size,))
        result = frazil.reduce(array_in(repo))
        assert (result.sum, result.count, result.chunks_read) == (36 if size == 9 else 45, size, 1)
    session = repo.readonly_session("main")
    rows = np.flatnonzero(session.workspace.node_table().is_array).tolist()
    assert coverage(session.workspace, rows) == [("/t", 3, 2)]
    assert repo.upkeep.build_statistics().chunks_read == 1
    assert repo.upkeep.build_statistics().chunks_read == 0
    result = frazil.reduce(array_in(repo))
    assert (result.sum, result.count, result.chunks_read) == (45, 12, 0)


@pytest.mark.parametrize("kind", ["manifests", "snapshots", "statistics"])
@pytest.mark.parametrize("is_lost", [True, False])
def test_an_unhealthy_earlier_version_costs_reads_and_no_answer(kind: str, is_lost: bool) -> None:
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage, config=ON)
    with repo.transaction("main", message="array") as store:
        values = np.arange(200.0)
        zarr.create_array(store, name="t", data=values, chunks=(50,), dimension_names=["x"])

    def keys(folder: str) -> set[str]:
        return {f"{folder}/{each.key.rpartition('/')[2]}" for each in storage.list(folder)}

    old, statistics = keys(kind), keys("statistics")
    with repo.transaction("main", message="a chunk") as store:
        values[:50] += 1
        zarr.open_array(store, path="t")[:50] = values[:50]
    storage.delete(keys("statistics") - statistics)  # as if another program had written the version
    for key in old:
        storage.put(key, b"damage")
    if is_lost:
        storage.delete(old)
    repo = frazil.Repository.open(storage)
    array = array_in(repo)
    assert frazil.reduce(array).sum == values.sum()
    assert frazil.where(array, "> 190").count() == 9
    table = frazil.arrow.dataset(repo.readonly_session("main"))
    assert table.count_rows(filter=pc.field("t") > 190) == 9
    assert validate(repo, [Range("/t", 0, 200)], engine="inline").ok
    assert repo.upkeep.build_statistics().chunks_failed == 0
    assert frazil.reduce(array_in(repo)).chunks_read == 0


def test_virtual_chunks_have_statistics_only_with_a_checksum(tmp_path: Path) -> None:
    data = np.arange(40.0)
    (tmp_path / "raw").write_bytes(data.tobytes())
    repo = frazil.Repository.create(frazil.in_memory_storage(), **allow_folder(tmp_path))
    after = datetime.fromtimestamp(int((tmp_path / "raw").stat().st_mtime) + 1, UTC)
    with repo.transaction("main", message="virtual") as store:
        for name in ("with", "without"):
            zarr.create_array(store, name=name, shape=(40,), chunks=(10,), dtype="f8", compressors=None)
            for number in range(4):
                checksum: dict[str, Any] = {"checksum": after} if name == "with" else {}
                store.set_virtual_ref(
                    f"{name}/c/{number}", f"file://{tmp_path}/raw", offset=80 * number, length=80, **checksum
                )
    repo.upkeep.build_statistics()
    session = repo.readonly_session("main")
    reads = {name: frazil.reduce(frazil.Array(session, f"/{name}")) for name in ("with", "without")}
    assert {name: (each.sum, each.chunks_read) for name, each in reads.items()} == {
        "with": (780.0, 0),
        "without": (780.0, 4),
    }


@pytest.mark.parametrize("index", [slice(0, 10, 2), [1, 2], (slice(None), None, slice(None)), "a"])
def test_an_index_that_is_no_box(index: Any) -> None:
    with pytest.raises((frazil.InvalidInputError, frazil.InvalidIndexError)):
        frazil.reduce(array_in(repository_of(np.arange(20.0), chunks=(5,))), index)


def test_complex_numbers_have_no_statistics() -> None:
    with pytest.raises(frazil.InvalidInputError, match="real numbers"):
        frazil.reduce(array_in(repository_of(np.ones(4, "c16"), chunks=(2,))))


def test_collections_and_copies_have_statistics(tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path / "ice"))
    repo = frazil.Repository.create(storage, config=ON)
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="t", data=np.arange(200.0), chunks=(5,))
    with repo.transaction("main", message="change") as store:
        zarr.open_array(store, path="t")[:5] = 0.0
    assert len(list(storage.list("statistics"))) == 2
    copy = frazil.local_filesystem_storage(str(tmp_path / "copy"))
    frazil.pipeline.copy_repository(repo, copy)
    result = frazil.reduce(frazil.Array(frazil.Repository.open(copy).readonly_session("main"), "/t"))
    assert (result.sum, result.chunks_read) == (19890.0, 0)
    repo.expire_snapshots(datetime.now(UTC))
    summary = repo.garbage_collect(datetime.now(UTC))
    assert (summary.statistics_deleted, summary.manifests_deleted) == (1, 1)
    result = frazil.reduce(frazil.Array(frazil.Repository.open(storage).readonly_session("main"), "/t"))
    assert (result.sum, result.chunks_read) == (19890.0, 0)
