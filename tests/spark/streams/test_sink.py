"""The sink without Spark: where rows go, and that a batch is one commit, whatever fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import xarray as xr
import zarr
from tests.support.judge import same_by_reference

import frazil
from frazil.errors import IcechunkError
from frazil.repository.catalog.history_records import STREAMS
from frazil.spark.streams.sink import RowsWriter, Stamp, batches_done, commit_once

pytestmark = pytest.mark.interop

LAT, LON = [10.0, 20.0, 30.0], [1, 2, 3, 4]


def weather(repo: frazil.Repository, group: str = "/") -> None:
    session = repo.writable_session("main")
    root = zarr.create_group(session.store, path=group.strip("/"))

    def add(name: str, dims: str, data: Any, chunks: tuple[int, ...], fill: Any = 0, **attrs: Any) -> None:
        more: dict[str, Any] = {"dimension_names": dims.split(), "fill_value": fill, "attributes": attrs}
        root.create_array(name, data=np.asarray(data), chunks=chunks, **more)

    add("time", "time", np.zeros(0, "i8"), (8,), units="hours since 2024-01-01", calendar="standard")
    add("lat", "lat", np.array(LAT), (3,))
    add("lon", "lon", np.array(LON), (4,))
    add("tas", "time lat lon", np.zeros((0, 3, 4), "f4"), (2, 3, 2), fill=np.nan)
    packing = {"scale_factor": 0.5, "add_offset": 100.0, "_FillValue": -1}
    add("packed", "time lat", np.zeros((0, 3), "i2"), (4, 3), -1, **packing)
    session.commit("arrays")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "repo"


@pytest.fixture
def repo(path: Path) -> frazil.Repository:
    repository = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    weather(repository)
    return repository


HOUR = np.timedelta64(1, "h")
START = np.datetime64("2024-01-01T00", "us")


def observed(*places: tuple[int, float | None, int], **columns: Any) -> pa.Table:
    hours, lats, lons = zip(*places, strict=True)
    times = [START + hour * HOUR for hour in hours]
    table = {
        "time": pa.array(np.array(times)).cast(pa.timestamp("us", "UTC")),
        "lat": lats,
        "lon": lons,
        **columns,
    }
    return pa.table({name: values for name, values in table.items() if values is not None})


def message(writer: RowsWriter, table: pa.Table) -> Any:
    return writer.write(iter(table.to_batches()))


def shown(repo: frazil.Repository, branch: str = "main") -> xr.Dataset:
    data: xr.Dataset = xr.open_zarr(repo.readonly_session(branch).store, consolidated=False)
    return data.load()


OPTIONS = {"txnappid": "q"}


def test_rows_are_where_they_belong(repo: frazil.Repository, path: Path) -> None:
    writer = RowsWriter(repo, OPTIONS, ["time", "lat", "lon", "tas"])
    sent = [
        message(writer, observed((5, 10.0, 1), (0, 30.0, 4), tas=[1.5, 2.5])),
        message(writer, observed((5, 20.0, 2), tas=[3.5])),
        message(writer, observed((5, 20.0, 2), tas=[3.5])[:0]),
        None,
    ]
    writer.commit(sent, 0)
    commit = next(iter(repo.ancestry(branch="main")))
    assert commit.message == "Write 3 rows to `/` (time, lat, lon, tas), mode upsert: batch 0 of query q"
    writer.commit([message(writer, observed((3, 10.0, 1), (5, 10.0, 1), tas=[7.5, 8.5]))], 1)
    dataset = shown(repo)
    assert ((dataset.time.values - START) / HOUR).tolist() == [0, 3, 5]
    expected = np.full((3, 3, 4), np.nan, "f4")
    expected[0, 2, 3], expected[2, 0, 0], expected[2, 1, 1], expected[1, 0, 0] = 2.5, 8.5, 3.5, 7.5
    np.testing.assert_array_equal(dataset.tas.values, expected)
    assert dataset.packed.shape == (3, 3)  # grew with the others
    history = list(repo.ancestry(branch="main"))
    stamps = [(info.metadata["spark.query"], info.metadata["spark.batch"]) for info in history[:2]]
    assert stamps == [("q", 1), ("q", 0)]
    assert len(history) == 4
    same_by_reference(path)


APPENDING = {"write": "append", "append-dim": "time"}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        (
            observed((0, 10.0, 1), (0, 10.0, 1), tas=[1.0, 2.0]),
            {},
            r"Each cell must have one row.*lat = 10.0",
        ),
        (observed((0, 11.0, 1), tas=[1.0]), APPENDING, "lat = 11.0"),
        (observed((0, None, 1), tas=[1.0]), {}, "null"),
        (observed((0, 10.0, 1), tas=[1.0], wind=[1.0]), {}, "wind"),
        (observed((0, 10.0, 1), tas=[1.0]), {"duplicates": "first"}, "one of error, last, got 'first'"),
        (observed((0, 10.0, 1), tas=[1.0]), {"write": "overwrite-region"}, "one of upsert, append"),
        (observed((0, 10.0, 1), tas=[1.0]), {"group": "/nowhere"}, "nowhere"),
        (observed((0, 10.0, 1), tas=[1.0]), {"snapshot-id": "x"}, "got snapshot-id"),
    ],
)
def test_what_does_not_fit_is_refused(
    repo: frazil.Repository, table: pa.Table, options: dict[str, str], expected: str
) -> None:
    before = repo.lookup_branch("main")

    def write() -> None:
        writer = RowsWriter(repo, OPTIONS | options, table.column_names)
        writer.commit([message(writer, table)], 0)

    with pytest.raises(IcechunkError, match=expected):
        write()
    assert repo.lookup_branch("main") == before


def test_the_last_of_two_rows_may_win(repo: frazil.Repository) -> None:
    writer = RowsWriter(repo, OPTIONS | {"duplicates": "last"}, ["time", "lat", "lon", "tas"])
    table = observed((0, 10.0, 1), (0, 20.0, 1), (0, 10.0, 1), (0, 20.0, 1), tas=[1.0, 2.0, 3.0, None])
    writer.commit([message(writer, table)], 0)
    values = shown(repo).tas.values[0, :2, 0]
    assert values[0] == 3.0
    assert np.isnan(values[1])


def test_the_first_batch_may_create_the_arrays(repo: frazil.Repository) -> None:
    options = OPTIONS | {"group": "made/here", "dims": "time,lat", "chunks": "time=6,lat=2"}
    writer = RowsWriter(repo, options, ["time", "lat", "v"])
    for batch in range(2):
        table = observed((batch, 10.0, 0), (batch, 20.0, 0), v=[batch, batch + 0.5]).drop_columns("lon")
        writer.commit([message(writer, table)], batch)
    array = zarr.open_array(repo.readonly_session("main").store, path="made/here/v", mode="r")
    assert np.asarray(array[:]).tolist() == [[0, 0.5], [1, 1.5]]
    assert array.chunks == (6, 2)
    writer = RowsWriter(repo, options | APPENDING, ["time", "lat", "v"])
    again = observed((1, 10.0, 0), v=[9.0]).drop_columns("lon")
    with pytest.raises(IcechunkError, match="new along time"):
        writer.commit([message(writer, again)], 2)


# Once


def counted(session: frazil.Session) -> None:
    """Adds one: a batch that is done twice is seen."""
    lat = frazil.Array(session, "/lat")
    lat[0] = lat[0] + 1


def count(repo: frazil.Repository, batch: int, query: str = "q", branch: str = "main") -> str | None:
    return commit_once(repo, branch, Stamp(query, batch), counted, f"{query} {batch}")


def total(repo: frazil.Repository, branch: str = "main") -> float:
    return float(frazil.read(repo.readonly_session(branch), "/lat", 0)) - LAT[0]


def done(repo: frazil.Repository, query: str = "q", branch: str = "main") -> int:
    return batches_done(repo, repo.lookup_branch(branch), query).last


@pytest.mark.sample(1)
@pytest.mark.parametrize("records", [True, False], ids=["records", "only commits"])
def test_branches_have_done_what_is_in_their_history(repo: frazil.Repository, records: bool) -> None:
    for batch in range(3):
        count(repo, batch)
    second = list(repo.ancestry(branch="main"))[1].id
    repo.create_branch("side", snapshot_id=second)
    if not records:
        repo.set_metadata({STREAMS: {}})
    assert done(repo, branch="side") == 1
    assert count(repo, 2, branch="side")
    repo.reset_branch("main", second)
    assert done(repo) == 1
    assert count(repo, 2)
    assert (total(repo), total(repo, "side")) == (3, 3)


def test_stamps_outlive_their_commits(repo: frazil.Repository, path: Path) -> None:
    repo.update_metadata({"owner": "somebody"})
    count(repo, 0)
    count(repo, 1)
    with repo.transaction("main", message="by hand") as store:
        zarr.open_array(store, path="lon", mode="r+")[0] = 9
    tip = repo.lookup_snapshot(repo.lookup_branch("main"))
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))
    assert theirs.get_metadata()["owner"] == "somebody"
    theirs.expire_snapshots(tip.written_at)  # whoever does it
    theirs.garbage_collect(tip.written_at)
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(path)))
    assert [info.message for info in repo.ancestry(branch="main")] == ["by hand", "Repository initialized"]
    assert done(repo) == 1
    assert count(repo, 1) is None
    assert count(repo, 2)
    assert total(repo) == 3
    assert repo.get_metadata()["owner"] == "somebody"
    assert [record["batch"] for record in repo.get_metadata()[STREAMS]["q"]] == [2, 1]
    same_by_reference(path)


def test_records_do_not_pile_up(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.repository.catalog.history_records._QUERIES", 2)
    repo.set_metadata({"owner": "somebody"})
    for number, query in enumerate("cabca"):
        count(repo, number, query)
    metadata = repo.get_metadata()
    assert sorted(metadata) == [STREAMS, "owner"]
    assert sorted(metadata[STREAMS]) == ["a", "c"]
    assert [record["batch"] for record in metadata[STREAMS]["a"]] == [4]


def test_others_commit_meanwhile(repo: frazil.Repository) -> None:
    """Elsewhere: rebased. To the same chunk: written anew. The very batch, by a second driver: left alone."""
    calls: list[str] = []

    def after(interfere: Any) -> Any:
        def write(session: frazil.Session) -> None:
            counted(session)
            if not calls:
                interfere()
            calls.append(session.snapshot_id)

        return write

    def elsewhere() -> None:
        with repo.transaction("main", message="elsewhere") as store:
            zarr.open_array(store, path="lon", mode="r+")[0] = 9

    assert commit_once(repo, "main", Stamp("q", 0), after(elsewhere), "0")
    assert (len(calls), total(repo)) == (1, 1)
    calls.clear()
    assert commit_once(repo, "main", Stamp("q", 1), after(lambda: count(repo, 0, "other")), "1")
    assert (len(calls), total(repo)) == (2, 3)
    calls.clear()
    assert commit_once(repo, "main", Stamp("q", 2), after(lambda: count(repo, 2)), "2") is None
    assert (total(repo), done(repo)) == (4, 2)
    calls.clear()

    def beside() -> None:
        def lon(session: frazil.Session) -> None:
            zarr.open_array(session.store, path="lon", mode="r+")[0] = 10

        assert commit_once(repo, "main", Stamp("q", 3), lon, "3")

    assert commit_once(repo, "main", Stamp("q", 3), after(beside), "3") is None  # though nothing conflicts
    assert (len(calls), total(repo), done(repo)) == (1, 4, 3)
