"""Rechunks: the same values, in other chunks, by plans that stay within the memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.transform.shared import TYPES, new_repository, read, rechunk, recompress, values
from tests.support.judge import same_by_reference
from zarr.codecs import BytesCodec, TransposeCodec, ZstdCodec

import frazil
from frazil.errors import IcechunkError, InvalidInputError
from frazil.jobs.blocks import split
from frazil.pipeline import Engine, Inline, JobResult, Target, Version
from frazil.pipeline.transform.arrays import array_info
from frazil.pipeline.transform.rechunking import covered, rechunk_plan


@pytest.mark.deep
@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3)), max_size=3
    ),
    st.sampled_from(TYPES),
    st.tuples(st.booleans(), st.booleans()),
    st.integers(2, 6),
)
def test_values_are_the_same(axes: list[Any], dtype: str, sharded: tuple[bool, bool], times: int) -> None:
    shape, old, new, per_shard = (tuple(each[n] for each in axes) for n in range(4))
    shards = [tuple(a * b for a, b in zip(c, per_shard, strict=True)) for c in (old, new)]
    repo, data = new_repository(), values(shape, dtype)
    with repo.transaction("main", message="made") as store:
        options: dict[str, Any] = {"shards": shards[0]} if sharded[0] else {}
        array = zarr.create_array(
            store, name="a/x", shape=shape, chunks=old, dtype=data.dtype, attributes={"units": "K"}, **options
        )
        array[...] = data
    array = read(Version.of(repo), "a/x")
    cell = max(array.dtype.itemsize, 64 if array.dtype.kind in "TO" else 1)
    least = cell * int(np.prod(old) + 2 * np.prod(shards[1] if sharded[1] else new))
    result = rechunk(repo, ["a"], new, shards=shards[1] if sharded[1] else None, max_mem=least * times)
    output = read(result, "a/x")
    np.testing.assert_array_equal(output[...], data)
    assert (output.chunks, output.dtype, dict(output.attrs)) == (new, array.dtype, {"units": "K"})
    assert output.shards == (shards[1] if sharded[1] else None)
    members = zarr.open_group(result.version.session().store, mode="r").members(max_depth=None)
    assert [path for path, _ in members] == ["a", "a/x"]


REWRITES: dict[str, Callable[[frazil.Repository], JobResult]] = {
    "rechunk": lambda repo: rechunk(repo, ["x"], (4, 2)),
    "rechunk in two stages": lambda repo: rechunk(repo, ["x"], (8, 1), max_mem=100),
    "rechunk with shards": lambda repo: rechunk(repo, ["x"], (2, 2), shards=(4, 4)),
    "compressors": lambda repo: recompress(repo, ["x"], [ZstdCodec(level=9)]),
    "a codec of arrays": lambda repo: recompress(repo, ["x"], [TransposeCodec(order=(1, 0)), ZstdCodec()]),
    "no compressor, with shards": lambda repo: recompress(repo, ["x"], [], shards=(8, 8)),
    "a bytes codec without an order": lambda repo: recompress(repo, ["x"], [{"name": "bytes"}]),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", REWRITES)
@pytest.mark.parametrize("endian", ["big", "little"])
def test_the_byte_order_stays(name: str, endian: Any) -> None:
    repo, data = new_repository(), values((8, 8), "i4")
    with repo.transaction("main", message="made") as store:
        array = zarr.create_array(
            store, name="x", shape=(8, 8), chunks=(1, 8), dtype="i4", serializer=BytesCodec(endian=endian)
        )
        array[...] = data
    result = REWRITES[name](repo)
    codecs = array_info(result.version.session(), "x").codecs
    assert [each["configuration"]["endian"] for each in codecs if each["name"] == "bytes"] == [endian]
    np.testing.assert_array_equal(read(result, "x")[...], data)


@pytest.fixture
def slices(tmp_path: Path) -> frazil.Repository:
    """Two days in slices, with coordinates and a hole."""
    repo = new_repository(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    with repo.transaction("main", message="slices") as store:
        group = zarr.create_group(store, attributes={"title": "two days"})
        for name, length in (("time", 48), ("lat", 20)):
            axis = group.create_array(name, shape=(length,), chunks=(7,), dtype="f8", dimension_names=(name,))
            axis[:] = np.arange(length)
        temperature = group.create_array(
            "t", shape=(48, 20, 30), chunks=(1, 20, 30), dtype="f4", dimension_names=("time", "lat", None)
        )
        temperature[:24] = np.random.default_rng(7).random((24, 20, 30), "f4")
    return repo


@pytest.mark.sample(1)
def test_in_place_what_is_right_already_is_left_alone(slices: frazil.Repository, engine: Engine) -> None:
    before = read(Version.of(slices), "t")[:]
    result = rechunk(slices, ["/"], {"lat": 5}, engine=engine)
    assert (read(result, "t").chunks, read(result, "lat").chunks) == ((1, 5, 30), (5,))
    np.testing.assert_array_equal(read(result, "t")[:], before)
    assert len(result.version.session().chunk_table("/t")) == 24 * 4  # what was not there is not there
    again = rechunk(slices, ["/"], {"lat": 5}, engine=engine)
    assert again.done_before
    assert again.snapshot_id == result.snapshot_id


@pytest.mark.deep
def test_recompress_keeps_all_but_the_codecs(slices: frazil.Repository) -> None:
    before = read(Version.of(slices), "t")
    codecs = [zarr.codecs.GzipCodec(level=1)]
    result = recompress(slices, ["t"], codecs, shards={"time": 4})
    output = read(result, "t")
    assert (output.chunks, output.shards) == ((1, 20, 30), (4, 20, 30))
    assert [type(codec).__name__ for codec in output.compressors] == ["GzipCodec"]
    np.testing.assert_array_equal(output[:], before[:])
    out = recompress(result.version, ["t"], [{"name": "bytes", "configuration": {"endian": "big"}}])
    assert (read(out, "t").shards, read(out, "t").compressors) == (None, ())
    np.testing.assert_array_equal(read(out, "t")[:], before[:])


def test_an_old_version_is_not_put_over_a_newer_one(slices: frazil.Repository) -> None:
    old = Version.of(slices)
    with slices.transaction("main", message="newer") as store:
        zarr.open_array(store, path="t", mode="r+")[0] = 1
    with pytest.raises(InvalidInputError, match="changed since"):
        rechunk(old, ["t"], (8, 4, 30))


@pytest.mark.deep
def test_a_job_of_two_stages_goes_on_where_it_was_and_leaves_nothing_between(
    slices: frazil.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(Version.of(slices), "t")[:]
    monkeypatch.setattr("frazil.jobs.engine.LEAST_TASK", 20_000)
    real = frazil.Array.__setitem__
    done: list[str] = []

    def broken(self: Any, region: Any, data: Any) -> None:
        if done.count("/s/t") == 3:
            raise OSError("no space left")
        done.append(self.path)
        real(self, region, data)

    def run() -> JobResult:
        chunks: Any = {"time": -1, "lat": 2, 2: 3}
        to = Target(slices, group="s")
        return rechunk(slices, ["t"], chunks, max_mem=30_000, to=to, engine=Inline(resumable=True))

    with monkeypatch.context() as patched:
        patched.setattr(frazil.Array, "__setitem__", broken)
        with pytest.raises(IcechunkError, match="no space left"):
            run()
    first = len(set(done))
    result = run()
    assert first == 2  # the array between, and the beginning of the new one
    assert result.metrics.resumed > 3
    assert result.metrics.resumed < result.metrics.tasks
    assert read(result, "s/t").chunks == (48, 2, 3)
    np.testing.assert_array_equal(read(result, "s/t")[:], before)
    session = result.version.session()
    root = zarr.open_group(session.store, mode="r")
    names = [name for name, _ in root.members(max_depth=None) if not name.startswith(".frazil")]
    assert sorted(names) == sorted(["lat", "s", "s/lat", "s/t", "s/time", "t", "time"])
    assert dict(root["s"].attrs) == {"title": "two days"}
    log = slices.diff(
        from_snapshot_id=list(slices.ancestry(branch="main"))[1].id, to_snapshot_id=result.snapshot_id
    )
    assert {path for path in log.new_arrays if "/.frazil/" not in path} == {"/s/t", "/s/time", "/s/lat"}
    assert not log.deleted_arrays
    # coordinates are the same chunks, not copies of them
    assert session.chunk_table("/lat").equals(session.chunk_table("/s/lat"))
    same_by_reference(tmp_path / "repo", slices)
    again = run()
    assert (again.done_before, again.snapshot_id) == (True, result.snapshot_id)


axis = st.tuples(st.integers(0, 60), st.integers(1, 25), st.integers(1, 25))


@given(
    st.lists(axis, max_size=4), st.integers(1, 20), st.sampled_from([1, 4, 8]), st.sampled_from([1, 2, 100])
)
def test_plans_keep_their_promises(axes: list[Any], times: int, itemsize: int, slots: int) -> None:
    shape, read, write = (tuple(each[n] for each in axes) for n in range(3))
    cells = [tuple(max(min(c, n), 1) for c, n in zip(grid, shape, strict=True)) for grid in (read, write)]
    least = itemsize * (math.prod(cells[0]) + 2 * math.prod(cells[1]))
    plan = rechunk_plan(shape, read, write, itemsize, least * times, slots)
    one = rechunk_plan(shape, read, write, itemsize, least * times)
    assert plan.bytes_at_once(slots) <= one.bytes_at_once(slots) * (1.02 if slots > 1 else 1) * (1 + 1e-9)
    assert plan.stages[-1].write == cells[1]
    assert plan.stages[0].read == cells[0]
    total = itemsize * math.prod(shape)
    if times >= 2 and slots == 1:  # with the very least there is one way only
        assert plan.bytes_read <= 6 * total
    for stage in plan.stages:  # a task holds a block, a cell that it decodes, and one that it encodes
        assert itemsize * sum(map(math.prod, (stage.block, stage.read, stage.write))) <= least * times
        assert all(b % w == 0 or b == n for b, w, n in zip(stage.block, stage.write, shape, strict=True))
        starts, stops = split(stage.shape, stage.block)
        assert int(np.prod(stops - starts, axis=1).sum()) == math.prod(shape)


def test_two_stages_where_a_block_does_not_fit() -> None:
    plan = rechunk_plan((1000, 600, 600), (1, 600, 600), (1000, 6, 6), 4, 64_000_000)
    assert plan.intermediate is not None
    assert plan.bytes_read == 2 * 4 * 1000 * 600 * 600


def test_a_long_axis_is_sampled() -> None:
    """An axis of many cells is looked at in samples."""
    plan = rechunk_plan((10**9,), (999,), (1000,), 4, 64_000_000)
    assert plan.bytes_read <= 4.01e9
    assert covered(10**9, np.array([1]), 1).tolist() == [10**9]
