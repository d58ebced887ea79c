"""Changed rows beside the comparison of all rows of both versions."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import zarr

import frazil
from frazil.errors import InvalidInputError
from frazil.spark.data_source import FrazilDataSource
from frazil.spark.tables import repository_tables


def change_rows(tmp_path: Path, **options: str) -> list[dict[str, Any]]:
    """What Spark does, with a pickle for each of its processes."""
    given = {"path": str(tmp_path / "ice"), "table": "row_changes", "variables": "tas", **options}
    source = pickle.loads(pickle.dumps(FrazilDataSource(given)))
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    parts = reader.partitions()
    on_executor = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in on_executor.read(pickle.loads(pickle.dumps(part)))]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_only_changed_chunks_are_read(tmp_path: Path) -> None:
    """All other chunks are deleted from the storage."""
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "ice")), config)
    with repo.transaction("main", message="values") as store:
        for name, dims in (("tas", ["day", "place"]), ("height", ["place"])):
            shape = (8, 6)[-len(dims) :]
            zarr.create_array(
                store, name=name, shape=shape, chunks=(2, 3)[-len(dims) :], dtype="f8", dimension_names=dims
            )
            zarr.open_array(store, path=name)[:] = np.random.default_rng(1).random(shape)
    repo.create_tag("v1", "main")
    with repo.transaction("main", message="one cell, and the same values again") as store:
        tas = zarr.open_array(store, path="tas")
        tas[7, 5] = -1
        tas[2:4, :3] = tas[2:4, :3]
    needed = {("/tas", 1, 0), ("/tas", 3, 1), ("/height", 1)}
    files = [
        each["location"]
        for version in (repo.lookup_tag("v1"), repo.lookup_branch("main"))
        for each in repository_tables.chunks(repo.readonly_session(snapshot_id=version)).to_pylist()
        if (each["path"], *each["chunk"]) in needed
    ]
    for file in (tmp_path / "ice" / "chunks").rglob("*"):
        if file.is_file() and not any(each.endswith(file.name) for each in files):
            file.unlink()
    rows = change_rows(tmp_path, start="v1", variables="tas,height", **{"block-rows": "1"})
    assert [(row["change"], row["day"], row["place"], row["tas"]) for row in rows] == [
        ("updated", 7, 5, -1.0)
    ]


@pytest.fixture
def line(tmp_path: Path) -> frazil.Repository:
    """Four values along x, and the tag v1."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "ice")))
    with repo.transaction("main", message="four values") as store:
        zarr.create_array(store, name="x", data=np.array([1.0, 2.0, 3.0, 4.0]), dimension_names=["x"])
        for name, data in (("v", [10.0, 20.0, 30.0, 40.0]), ("w", [1.0, 2.0, 3.0, 4.0])):
            zarr.create_array(store, name=name, data=np.array(data), chunks=(2,), dimension_names=["x"])
    repo.create_tag("v1", repo.lookup_branch("main"))
    return repo


def test_what_has_no_table_of_changes(line: frazil.Repository, tmp_path: Path) -> None:
    with line.transaction("main", message="change") as store:
        zarr.create_array(store, name="change", data=np.zeros(4), dimension_names=["x"])
    with pytest.raises(InvalidInputError, match="must not have the name change"):
        change_rows(tmp_path, start="v1", variables="change")
    with pytest.raises(InvalidInputError, match="include-missing"):
        change_rows(tmp_path, start="v1", variables="v", **{"include-missing": "null"})


def assign(repo: frazil.Repository, **arrays: Any) -> None:
    with repo.transaction("main", message=f"other {', '.join(arrays)}") as store:
        for name, values in arrays.items():
            zarr.open_array(store, path=name)[:] = values


def test_columns_are_chosen_and_commits_must_follow_each_other(
    line: frazil.Repository, tmp_path: Path
) -> None:
    for values in ([11.0, 20.0, 30.0, 40.0], [12.0, 20.0, 33.0, 40.0]):
        assign(line, v=values)
    net = change_rows(tmp_path, start="v1", variables="v", columns="before_v,v,snapshot_id")
    newest = line.lookup_branch("main")
    assert [list(row.values()) for row in net] == [
        ["updated", 10.0, 12.0, newest],
        ["updated", 30.0, 33.0, newest],
    ]
    with pytest.raises(InvalidInputError, match="in the history of"):
        change_rows(tmp_path, start="main", end="v1", variables="v", **{"net-changes": "false"})


def test_numbers_of_other_types_are_compared_exactly(line: frazil.Repository, tmp_path: Path) -> None:
    large = 2**53 + 1
    with line.transaction("main", message="integers") as store:
        data = np.array([1, 2, 3, large])
        zarr.create_array(store, name="v", data=data, dimension_names=["x"], overwrite=True)
    line.create_tag("integers", "main")
    with line.transaction("main", message="the same numbers, as far as float64 has them") as store:
        zarr.create_array(store, name="v", data=data.astype("f8"), dimension_names=["x"], overwrite=True)
        zarr.create_array(
            store, name="x", data=np.array([1, 2, 3, 4], "i4"), dimension_names=["x"], overwrite=True
        )
    rows = change_rows(tmp_path, start="integers", variables="v")
    assert [(row["x"], row["v"], row["before_v"]) for row in rows] == [(4.0, 2.0**53, large)]


def test_values_of_instances_are_compared(tmp_path: Path) -> None:
    """Ragged data: a name of a station belongs to each of its observations."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "ice")))
    with repo.transaction("main", message="two stations") as store:
        zarr.create_array(
            store, name="count", data=np.array([2, 1]), dimension_names=["station"],
            attributes={"sample_dimension": "obs"},
        )  # fmt: skip
        zarr.create_array(store, name="name", data=np.array(["a", "b"]), dimension_names=["station"])
        zarr.create_array(store, name="t", data=np.arange(3.0), dimension_names=["obs"])
    repo.create_tag("v1", "main")
    assign(repo, name=np.array(["c", "b"]))
    rows = change_rows(tmp_path, start="v1", variables="t")
    assert [(row["obs"], row["name"], row["before_name"]) for row in rows] == [(0, "c", "a"), (1, "c", "a")]
    assign(repo, count=np.array([1, 2]))
    rows = change_rows(tmp_path, variables="t")
    assert [(row["obs"], row["name"], row["before_name"]) for row in rows] == [(1, "b", "c")]
