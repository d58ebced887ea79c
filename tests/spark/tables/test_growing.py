"""Where new coordinates go, in each mode, and which chunks new arrays have."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from tests.spark.tables.test_reading import memory

import frazil
from frazil.errors import IcechunkError, InvalidInputError
from frazil.spark import Target, write_table
from frazil.spark.streams.sink import Stamp, commit_once, write_batch
from frazil.spark.tables.target_arrays import WriteOptions
from frazil.spark.tables.write_table import TableWriter
from frazil.storage.memory import MemoryStorage
from frazil.testing import FaultyStorage


def array(repo: frazil.Repository, name: str) -> zarr.Array[Any]:
    return zarr.open_array(repo.readonly_session("main").store, path=name, mode="r")


def table(labels: list[Any], values: list[float] | None = None) -> pa.Table:
    return pa.table({"x": labels, "v": values or [float(n) for n in range(len(labels))]})


def by_table(repo: frazil.Repository, rows: pa.Table, mode: str) -> None:
    write_table(rows, Target(repo), mode=mode, dims=["x"])


def by_source(repo: frazil.Repository, rows: pa.Table, mode: str) -> None:
    writer = TableWriter(repo, {"write": mode, "dims": "x"}, rows.schema, False)
    writer.commit([writer.write(iter(rows.to_batches()))])


def by_stream(repo: frazil.Repository, rows: pa.Table, mode: str) -> None:
    write = partial(write_batch, group="/", table=rows, options=WriteOptions(mode, ["x"]))
    commit_once(repo, "main", Stamp(repo.lookup_branch("main"), 0), write, "batch")


WRITERS = {"write_table": by_table, "data source": by_source, "stream": by_stream}


@pytest.mark.sample(10, 29)
@pytest.mark.parametrize("by", WRITERS)
@pytest.mark.parametrize(
    ("existing", "more", "refused"),
    [
        ([10, 20], [30, 25], False),
        ([10, 20], [15], True),
        ([10, 20], [30, 5], True),
        ([10, 20], [20, 30], True),
        ([20.0, 10.0], [5.0, 0.0], False),
        ([20.0, 10.0], [15.0], True),
        ([10], [20], False),
        ([10], [5], True),
        (["b", "a"], ["0"], False),
        ([date(2024, 1, 2), date(2024, 1, 3)], [date(2024, 1, 4)], False),
        ([date(2024, 1, 2), date(2024, 1, 3)], [date(2024, 1, 1)], True),
    ],
    ids=str,
)
def test_append_is_behind_existing_coordinates(
    by: str, existing: list[Any], more: list[Any], refused: bool
) -> None:
    repo = memory()
    session = repo.writable_session("main")
    kind = pa.array(existing).type
    by_table(repo, table(existing), "upsert")
    if existing != sorted(existing) and kind != pa.string():  # tables are made in ascending order
        with repo.transaction("main", message="falling") as session:
            zarr.open_array(session, path="x")[:] = np.array(existing)
    before = repo.lookup_branch("main")
    rows = table(pa.array(more, kind), [float(n) + 100 for n in range(len(more))])
    if refused:
        with pytest.raises(IcechunkError, match=r"mode append, .*upsert"):
            WRITERS[by](repo, rows, "append")
        assert repo.lookup_branch("main") == before
        return
    WRITERS[by](repo, rows, "append")
    labels = array(repo, "x")[:].tolist()
    falls = kind == pa.float64()
    expected = sorted(pa.array(more, kind).to_pylist(), reverse=falls)
    if kind == pa.date32():
        return
    assert labels[-len(more) :] == expected
    assert sorted(array(repo, "v")[-len(more) :]) == [100.0 + n for n in range(len(more))]


@pytest.mark.parametrize("by", WRITERS)
@pytest.mark.parametrize("mode", ["upsert", "backfill"])
def test_late_rows_go_where_they_belong(by: str, mode: str) -> None:
    repo = memory()
    by_table(repo, table([10, 20, 40], [1.0, 2.0, 4.0]), "upsert")
    WRITERS[by](repo, table([30, 5, 20, 50], [3.0, 0.5, 2.5, 5.0]), mode)
    assert array(repo, "x")[:].tolist() == [5, 10, 20, 30, 40, 50]
    assert array(repo, "v")[:].tolist() == [0.5, 1.0, 2.5, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "append", "append_dim": "time"}, "append_dim must be one of the dimensions x, got 'time'"),
        ({"chunks": {"time": 24}}, "chunks must be for the dimensions x, got time"),
    ],
)
def test_dimensions_of_the_first_write_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        write_table(table([1]), Target(memory()), dims=["x"], **arguments)


@pytest.mark.parametrize("by", WRITERS)
def test_insert_adds_nothing(by: str) -> None:
    repo = memory()
    by_table(repo, table([10, 20]), "upsert")
    WRITERS[by](repo, table([20], [9.0]), "insert")
    with pytest.raises(IcechunkError, match=r"mode insert, .*got x = 30. Mode upsert adds it"):
        WRITERS[by](repo, table([30], [9.0]), "insert")
    assert array(repo, "v")[:].tolist() == [0.0, 9.0]


def test_times_of_messages_are_in_utc() -> None:
    repo = memory()
    new_york = pa.timestamp("us", "America/New_York")
    times = [datetime(2024, 1, day, tzinfo=UTC) for day in (2, 3)]
    by_table(repo, table(pa.array(times, new_york)), "upsert")
    early = table(pa.array([datetime(2024, 1, 1, 5, tzinfo=UTC)], new_york))
    with pytest.raises(InvalidInputError, match="got x = 2024-01-01T05:00:00Z"):
        by_table(repo, early, "append")


# Chunks


@pytest.mark.parametrize("asked", [None, {"x": 100}, {"x": 5000}])
def test_chunks_do_not_depend_on_a_small_first_batch(asked: dict[str, int] | None) -> None:
    repo = memory()
    write_table(table([0]), Target(repo), dims=["x"], chunks=asked)
    wanted = 4096 if asked is None else asked["x"]
    assert array(repo, "v").chunks == (wanted,)
    assert array(repo, "x").chunks == (max(wanted, 4096),)


@pytest.mark.deep
@pytest.mark.parametrize("chunk", [None, 1], ids=["new arrays", "a coordinate of tiny chunks"])
def test_batches_cost_what_they_bring(chunk: int | None) -> None:
    """The 41st batch reads about as many chunks as the 11th: so the exponent of all batches is about 1."""
    storage = FaultyStorage(MemoryStorage(), lambda key, condition: None)
    repo = frazil.Repository.create(storage, frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    if chunk is not None:
        with repo.transaction("main", message="arrays") as store:
            group = zarr.open_group(store)
            group.create_array("x", data=np.arange(1), chunks=(chunk,), dimension_names=["x"])
            group.create_array("v", shape=(1,), dtype="f8", chunks=(10,), dimension_names=["x"])
    how = WriteOptions("upsert", ["x"], chunks={"x": 10})
    taken = []
    for batch in range(41):
        rows = table(list(range(10 * batch + 1, 10 * batch + 11)))
        storage.gets.clear()
        write = partial(write_batch, group="/", table=rows, options=how)
        commit_once(repo, "main", Stamp("q", batch), write, "batch")
        taken.append(sum(key.startswith("chunks/") for key in storage.gets))
    assert sum(taken) / sum(taken[:11]) < (41 / 11) ** 1.3
    assert max(taken[20:]) < 8
    assert array(repo, "x").chunks == (4096,)
