"""The change feed: what its rows say, where it starts, how much a batch takes, and what it survives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import zarr

import frazil
from frazil.errors import IcechunkError, InvalidInputError, SessionStateError
from frazil.spark.streams.source import FeedReader, ReadAllAvailable, ReadMaxFiles, ReadMaxRows


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    return frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))


def commit(repo: frazil.Repository, message: str, **values: Any) -> str:
    """One commit; each value is written to the first rows of an array of that name."""
    session = repo.writable_session("main")
    for name, data in values.items():
        array = zarr.open_array(session.store, path=name, mode="r+")
        array[: len(data)] = data
    return session.commit(message, {"number": message}, allow_empty=True)


def create_arrays(repo: frazil.Repository) -> str:
    session = repo.writable_session("main")
    root = zarr.create_group(session.store)
    root.create_array("a", shape=(8,), chunks=(2,), dtype="i4")
    root.create_array("b", shape=(4, 4), chunks=(2, 2), dtype="i4")
    return session.commit("arrays")


def reader(repo: frazil.Repository, **options: str) -> FeedReader:
    return FeedReader(repo, {name.replace("_", "-"): value for name, value in options.items()})


def rows(feed: FeedReader, start: dict[str, str], end: dict[str, str]) -> pa.Table:
    batches = [batch for each in feed.partitions(start, end) for batch in feed.read(each)]
    return pa.Table.from_batches(batches, feed.schema)


def as_tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = (table[name].to_pylist() for name in ("message", "change", "path", "from_path", "chunk"))
    return list(zip(*columns, strict=True))


def everything(feed: FeedReader) -> list[tuple[Any, ...]]:
    start = feed.initialOffset()
    return as_tuples(rows(feed, start, feed.latestOffset(start, ReadAllAvailable())))


def test_every_change_is_a_row(repo: frazil.Repository) -> None:
    create_arrays(repo)
    first = commit(repo, "1", a=[1, 2, 3])
    commit(repo, "nothing")
    session = repo.writable_session("main")
    root = zarr.open_group(session.store, mode="r+")
    frazil.Array(session, "/a")[2:6] = [9, 9, 9, 9]
    del root["b"]
    root["a"].attrs["units"] = "K"
    root.create_group("g")
    session.commit("2")
    moving = repo.rearrange_session("main")
    moving.move("/a", "/g/a")
    moving.commit("3")
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="g/a", mode="r+")
    array.resize((2,))
    session.commit("4")

    feed = reader(repo)
    table = rows(feed, feed.initialOffset(), feed.reportLatestOffset())
    assert as_tuples(table) == [
        ("arrays", "new_group", "/", None, None),
        ("arrays", "new_array", "/a", None, None),
        ("arrays", "new_array", "/b", None, None),
        ("1", "chunk_added", "/a", None, [0]),
        ("1", "chunk_added", "/a", None, [1]),
        ("2", "new_group", "/g", None, None),
        ("2", "deleted_array", "/b", None, None),
        ("2", "updated_array", "/a", None, None),
        ("2", "chunk_changed", "/a", None, [1]),
        ("2", "chunk_added", "/a", None, [2]),
        ("3", "moved", "/g/a", "/a", None),
        ("4", "updated_array", "/g/a", None, None),
        *[("4", "chunk_removed", "/g/a", None, [at]) for at in (1, 2)],
    ]
    mine = table.filter(pa.compute.equal(table["message"], "1")).to_pylist()[0]
    info = repo.lookup_snapshot(first)
    assert mine["snapshot_id"] == first
    assert mine["parent_id"] == info.parent_id
    assert mine["written_at"] == info.written_at
    assert mine["metadata"] == '{"number": "1"}'
    assert mine["node_id"] == repo.readonly_session(snapshot_id=first).get_node_id("/a")
    by_path = {row["path"]: row["node_id"] for row in table.to_pylist()}
    assert by_path["/g/a"] == by_path["/a"] == mine["node_id"]
    assert by_path["/b"] is not None


def test_a_query_begins_where_its_options_say(repo: frazil.Repository) -> None:
    ids = [create_arrays(repo), *(commit(repo, str(n), a=[n]) for n in range(4))]
    repo.create_tag("v1", snapshot_id=ids[2])
    repo.create_branch("side", snapshot_id=ids[1])
    before = list(repo.ancestry(branch="main"))[-1].id
    at = repo.lookup_snapshot(ids[3]).written_at
    for options, expected in [
        ({}, before),
        ({"stream_from": "earliest"}, before),
        ({"stream_from": "latest"}, ids[-1]),
        ({"stream_from": "latest", "branch": "side"}, ids[1]),
        ({"stream_from": "v1"}, ids[2]),
        ({"stream_from": ids[1]}, ids[1]),
        ({"stream_from_timestamp": at.isoformat()}, ids[3]),
        ({"stream_from_timestamp": (at - timedelta(microseconds=1)).isoformat()}, ids[2]),
        ({"stream_from_timestamp": "1000"}, before),
        ({"stream_from_timestamp": "2100-01-01"}, ids[-1]),
    ]:
        assert reader(repo, **options).initialOffset() == {"snapshot": expected}, options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"stream_max_commits": "0"},
            "Option `stream-max-commits` must be a whole number of at least 1, got '0'",
        ),
        ({"stream_from_timestamp": "noon"}, "must be a time in ISO 8601 .* got 'noon'"),
        ({"stream_from_timestamp": "1000", "stream_from": "latest"}, "got both"),
        ({"stream_fail_on_data_loss": "perhaps"}, "must be true or false, got 'perhaps'"),
        ({"stream_from": "v9"}, "v9"),
        ({"branch": "gone"}, "gone"),
        ({"tag": "v1"}, "need the option `branch`, got tag"),
    ],
)
def test_bad_options(repo: frazil.Repository, options: dict[str, str], message: str) -> None:
    with pytest.raises(IcechunkError, match=message):
        reader(repo, **options).initialOffset()


def test_unknown_columns(repo: frazil.Repository) -> None:
    with pytest.raises(InvalidInputError, match="got colour"):
        FeedReader(repo, {}, ["path", "colour"])
    create_arrays(repo)
    some = FeedReader(repo, {}, ["path", "change"])
    table = rows(some, some.initialOffset(), some.reportLatestOffset())
    assert table.column_names == ["path", "change"]
    assert table["path"].to_pylist() == ["/", "/a", "/b"]


def test_a_batch_takes_what_it_may(repo: frazil.Repository) -> None:
    ids = [create_arrays(repo), *(commit(repo, str(n), a=np.full(2 * n, n)) for n in range(1, 5))]
    for options, limit, expected in (
        ({"stream_max_commits": "2"}, ReadMaxFiles(2), [1, 3, 4]),
        ({"stream_max_rows": "3"}, ReadMaxRows(3), [2, 3, 4]),  # 1 + 2, 3 and 4 chunks
    ):
        feed = reader(repo, **options)
        assert feed.getDefaultReadLimit() == limit
        start, seen = feed.initialOffset(), []
        while (end := feed.latestOffset(start, limit)) != start:
            seen.append(end["snapshot"])
            start = end
        assert seen == [ids[at] for at in expected]


def test_what_comes_later_is_not_available_now(repo: frazil.Repository) -> None:
    last = create_arrays(repo)
    feed = reader(repo)
    feed.prepareForTriggerAvailableNow()
    commit(repo, "later", a=[1])
    start = feed.initialOffset()
    end = feed.latestOffset(start, ReadAllAvailable())
    assert end == {"snapshot": last}
    assert feed.latestOffset(end, ReadAllAvailable()) == end


def test_a_position_survives_expiration(repo: frazil.Repository) -> None:
    ids = [create_arrays(repo), *(commit(repo, str(n), a=[n] * (2 * n)) for n in range(1, 5))]
    feed = reader(repo)
    asked = {"snapshot": ids[1]}, {"snapshot": ids[3]}
    repo.expire_snapshots(repo.lookup_snapshot(ids[4]).written_at)
    assert len(list(repo.ancestry(branch="main"))) == 2
    # what was planned, but not read
    assert as_tuples(rows(feed, *asked)) == [
        (None, "chunk_added", "/a", None, [0]),
        (None, "chunk_added", "/a", None, [1]),
        (None, "chunk_added", "/a", None, [2]),
    ]
    rest = rows(feed, asked[1], feed.reportLatestOffset())
    assert rest["chunk"].to_pylist() == [[0], [1], [2], [3]]
    assert set(rest["snapshot_id"].to_pylist()) == {ids[4]}
    # and a new query sees all of it, once
    assert len(everything(reader(repo))) == 3 + 4
    repo.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    assert len(as_tuples(rows(feed, *asked))) == 3


def test_a_position_that_is_lost(repo: frazil.Repository) -> None:
    ids = [create_arrays(repo), *(commit(repo, str(n), a=[n]) for n in range(3))]
    offset = {"snapshot": ids[3]}
    repo.reset_branch("main", ids[1])
    other = commit(repo, "other", b=[[1, 0, 0, 0]])
    with pytest.raises(SessionStateError, match="stream-fail-on-data-loss") as caught:
        reader(repo).latestOffset(offset, ReadAllAvailable())
    assert caught.value.kind == "not-allowed"
    going_on = reader(repo, stream_fail_on_data_loss="false")
    end = going_on.latestOffset(offset, ReadAllAvailable())
    assert end == {"snapshot": other}
    assert as_tuples(rows(going_on, offset, end)) == [("other", "chunk_added", "/b", None, [0, 0])]
    # back to where it came from: nothing is ahead until there is a commit
    repo.reset_branch("main", ids[0])
    assert going_on.latestOffset(end, ReadAllAvailable()) == end


def test_many_chunks_are_many_tasks(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    create_arrays(repo)
    commit(repo, "1", a=[1] * 8, b=np.ones((4, 4), "i4"))
    commit(repo, "2", a=[1] * 3)
    feed = reader(repo)
    start, end = feed.initialOffset(), feed.reportLatestOffset()
    whole = rows(feed, start, end)
    assert len(feed.partitions(start, end)) == 1
    for limit in (1, 3, 4):
        monkeypatch.setattr("frazil.spark.streams.source._ROWS", limit)
        assert len(feed.partitions(start, end)) > 2
        assert rows(feed, start, end).sort_by("path") == whole.sort_by("path")
