"""Where new coordinates go, in each mode, and which chunks new arrays have."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import zarr
from tests.spark.tables.test_reading import memory
from tests.support.faulty_storage import FaultyStorage

import frazil
from frazil.arrow.target_arrays import WriteOptions
from frazil.errors import IcechunkError, InvalidInputError
from frazil.spark import Target, write_table
from frazil.spark.streams.sink import Stamp, commit_once, write_batch
from frazil.storage.memory import MemoryStorage


def array(repo: frazil.Repository, name: str) -> zarr.Array[Any]:
    return zarr.open_array(repo.readonly_session("main").store, path=name, mode="r")


def table(labels: Any, values: list[float] | None = None) -> pa.Table:
    return pa.table({"x": labels, "v": values or [float(n) for n in range(len(labels))]})


def write(repo: frazil.Repository, rows: pa.Table, mode: str) -> None:
    write_table(rows, Target(repo), mode=mode, dims=["x"])


NEW_YORK = pa.timestamp("us", "America/New_York")
TIMES = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2)]
NOT_BEHIND = r"mode append, .*upsert"


@pytest.mark.sample(8, 12)
@pytest.mark.parametrize(
    ("mode", "existing", "more", "refused"),
    [
        ("append", [10, 20], [30, 25], ""),
        ("append", [10, 20], [15], NOT_BEHIND),
        ("append", [10, 20], [30, 5], NOT_BEHIND),
        ("append", [10, 20], [20, 30], NOT_BEHIND),
        ("append", [20.0, 10.0], [5.0, 0.0], ""),
        ("append", [20.0, 10.0], [15.0], NOT_BEHIND),
        ("append", [10], [5], NOT_BEHIND),
        ("append", ["b", "a"], ["0"], ""),
        ("append", [date(2024, 1, 2), date(2024, 1, 3)], [date(2024, 1, 1)], NOT_BEHIND),
        ("append", pa.array(TIMES[1:], NEW_YORK), TIMES[:1], "got x = 2024-01-01T00:00:00Z"),
        ("insert", [10, 20], [30], r"mode insert, .*got x = 30. Mode upsert adds it"),
        ("insert", [10, 20], [20], ""),
    ],
    ids=str,
)
def test_each_mode_says_where_new_coordinates_go(mode: str, existing: Any, more: Any, refused: str) -> None:
    repo = memory()
    kind = pa.array(existing).type
    write(repo, table(existing), "upsert")
    falls = kind == pa.float64()
    if falls:  # tables are made in ascending order
        with repo.transaction("main", message="falling") as session:
            zarr.open_array(session, path="x")[:] = np.array(existing)
    before = repo.lookup_branch("main")
    rows = table(pa.array(more, kind), [float(n) + 100 for n in range(len(more))])
    if refused:
        with pytest.raises(IcechunkError, match=refused):
            write(repo, rows, mode)
        assert repo.lookup_branch("main") == before
        return
    write(repo, rows, mode)
    stored = frazil.read_many(repo.readonly_session("main"), ["/x", "/v"])
    assert stored["/x"][-len(more) :].tolist() == sorted(more, reverse=falls)
    assert sorted(stored["/v"][-len(more) :]) == [100.0 + n for n in range(len(more))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "append", "append_dim": "time"}, "append_dim must be one of x, got 'time'"),
        ({"chunks": {"time": 24}}, "chunks must be for x, got time"),
    ],
)
def test_dimensions_of_the_first_write_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        write_table(table([1]), Target(memory()), dims=["x"], **arguments)


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
