"""Tables about a repository: what they say is what the API says, of repositories of both writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import zarr
from tests.counting import python_steps

import frazil
from frazil.errors import InvalidInputError, RefNotFoundError
from frazil.format.manifest import ChunkTable
from frazil.spark.tables import repository_tables


def filled(module: Any, place: str) -> Any:
    """A history with groups, moves, deletions, inline, native and virtual chunks; by either library."""
    repo = module.Repository.create(module.local_filesystem_storage(place))
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)
    group.attrs["by"] = "test"
    below = group.create_group("below")
    one = below.create_array("one", shape=(6, 4), chunks=(2, 2), dtype="i4", dimension_names=["y", "x"])
    one[:2, :] = 1
    big = group.create_array("big", shape=(3000,), chunks=(1000,), dtype="f8", compressors=None)
    big[:2000] = np.arange(2000)
    session.commit("first", {"n": 1})
    repo.create_tag("v1", repo.lookup_branch("main"))
    repo.create_branch("dev", repo.lookup_branch("main"))
    session = repo.writable_session("main")
    one = zarr.open_array(session.store, path="below/one")
    one[:2, :2] = 2
    one[4:, 2:] = 3
    group = zarr.open_group(session.store)
    group.attrs["by"] = "another"
    group.create_array("new", shape=(4,), chunks=(2,), dtype="i2")[2:] = 5
    del group["big"]
    session.commit("second")
    return repo


@pytest.fixture(params=["frazil", pytest.param("icechunk", marks=pytest.mark.interop)])
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> frazil.Repository:
    place = str(tmp_path / "repo")
    filled(pytest.importorskip(request.param), place)
    return frazil.Repository.open(frazil.local_filesystem_storage(place))


def rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_every_table_has_its_schema(repo: frazil.Repository) -> None:
    for name, schema in repository_tables.SCHEMAS.items():
        table = repository_tables.table(repo, {"table": name})
        assert table.schema.equals(schema), name
        assert len(table) or name == "derived"
        table.validate(full=True)


def test_history(repo: frazil.Repository) -> None:
    infos = list(repo.ancestry(branch="main"))
    table = repository_tables.history(repo.readonly_session("main"))
    assert table["snapshot_id"].to_pylist() == [each.id for each in infos]
    assert table["parent_id"].to_pylist() == [each.parent_id for each in infos]
    assert table["written_at"].to_pylist() == [each.written_at for each in infos]
    assert table["message"].to_pylist() == ["second", "first", "Repository initialized"]
    assert table["metadata"][1].as_py() == '{"n": 1}'
    assert len(repository_tables.history(repo.readonly_session(tag="v1"))) == 2
    assert set(repository_tables.snapshots(repo)["snapshot_id"].to_pylist()) == {each.id for each in infos}
    tips = {("main", "branch", infos[0].id), ("dev", "branch", infos[1].id), ("v1", "tag", infos[1].id)}
    assert set(rows(repository_tables.refs(repo), "name", "type", "snapshot_id")) == tips
    ops = repository_tables.ops(repo)
    assert ops["updated_at"].to_pylist() == [each.updated_at for each in repo.ops_log()]
    assert ops["update"].to_pylist()[:2] == ["new-commit", "branch-created"]


def test_nodes_and_arrays(repo: frazil.Repository) -> None:
    assert rows(repository_tables.nodes(repo.readonly_session("main")), "path", "type") == [
        ("/", "group"), ("/below", "group"), ("/below/one", "array"), ("/new", "array"),
    ]  # fmt: skip
    table = repository_tables.arrays(repo.readonly_session(tag="v1"))
    arrays = rows(table, "path", "shape", "chunk_shape", "num_chunks", "dimensions", "data_type")
    assert arrays == [
        ("/below/one", [6, 4], [2, 2], [3, 2], ["y", "x"], "int32"),
        ("/big", [3000], [1000], [3], None, "float64"),
    ]


def test_chunks_and_manifests(repo: frazil.Repository) -> None:
    table = repository_tables.chunks(repo.readonly_session(tag="v1"))
    chunks = rows(table, "path", "chunk", "kind", "length")
    sizes = {kind for path, _, kind, _ in chunks if path == "/big"}
    assert [each[:2] for each in chunks] == [
        ("/below/one", [0, 0]), ("/below/one", [0, 1]), ("/big", [0]), ("/big", [1]),
    ]  # fmt: skip
    assert sizes == {"native"}
    assert chunks[-1][3] == 8000
    files = {info.key: info.size for info in repo.storage.list("")}
    for location, offset, length, kind in rows(table, "location", "offset", "length", "kind"):
        assert (location is None) == (kind == "inline")
        assert location is None or offset + length <= files[location]
    manifests = repository_tables.manifests(repo.readonly_session("main"))
    files_by_id = {each.id: each for each in repo.list_manifest_files(repo.lookup_branch("main"))}
    for id_, location, size, count in rows(manifests, "manifest_id", "location", "bytes", "references"):
        assert (files[location], files_by_id[id_].num_chunk_refs) == (size, count)
    assert dict(rows(manifests, "path", "end_chunk"))["/below/one"] == [3, 2]
    storage = {
        kind: (count, size)
        for kind, count, size in rows(repository_tables.storage(repo), "kind", "files", "bytes")
    }
    assert sum(size for _, size in storage.values()) == sum(files.values())
    assert storage["manifests"][0] == sum(key.startswith("manifests/") for key in files)


def test_regions(repo: frazil.Repository) -> None:
    table = repository_tables.regions(repo.readonly_session("main"))
    assert rows(table, "path", "chunks", "stored", "fill_ratio") == [
        ("/below/one", 6, 3, 0.5),
        ("/new", 2, 1, 0.5),
    ]
    slabs = repository_tables.regions(repo.readonly_session("main"), slab="y")
    regions = rows(slabs, "path", "dimension", "start", "stop", "chunks", "stored")
    assert regions == [
        ("/below/one", "y", 0, 2, 2, 2), ("/below/one", "y", 2, 4, 2, 0), ("/below/one", "y", 4, 6, 2, 1),
    ]  # fmt: skip
    assert repository_tables.regions(repo.readonly_session("main"), slab="0", array="new")[
        "stop"
    ].to_pylist() == [2, 4]


def test_changes(repo: frazil.Repository) -> None:
    table = repository_tables.changes(repo, "v1", "main")
    assert rows(table, "change", "path", "chunk") == [
        ("new_array", "/new", None),
        ("deleted_array", "/big", None),
        ("updated_group", "/", None),
        ("chunk_changed", "/below/one", [0, 0]),
        ("chunk_added", "/below/one", [2, 1]),
        ("chunk_added", "/new", [1]),
    ]
    assert table.equals(repository_tables.changes(repo))
    assert len(repository_tables.changes(repo, "main", "main")) == 0
    session = repo.rearrange_session("main")
    session.move("/below", "/moved")
    session.commit("moved")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="moved/one")[:2, :] = 0
    session.commit("cleared")
    changes = rows(repository_tables.changes(repo, "v1"), "change", "path", "from_path", "chunk")
    assert ("moved", "/moved", "/below", None) in changes
    assert {each[3][1] for each in changes if each[0] == "chunk_removed" and each[1] == "/moved/one"} == {
        0,
        1,
    }


@pytest.mark.deep
def test_a_million_references_are_read_without_a_loop(tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="x", shape=(1000, 1000), chunks=(1, 1), dtype="f4")
    index = np.stack(np.divmod(np.arange(1_000_000), 1000), axis=1)
    places = [f"s3://bucket/{number}.nc" for number in range(1000)]
    virtual = ChunkTable.from_virtual(index, np.repeat(places, 1000).tolist(), index[:, 1] * 4, 4, etag="e")
    session.workspace.set_refs("/x", virtual)
    session = repo.readonly_session(snapshot_id=session.commit("a million"))
    tables = []
    assert (
        python_steps(
            lambda: tables.append(repository_tables.chunks(repo.readonly_session("main"))), all_threads=True
        )
        < 100_000
    )
    [table] = tables
    assert len(table) == 1_000_000
    assert list(table.slice(123_456, 1).to_pylist()[0].values()) == [
        *("/x", [123, 456], "virtual", "s3://bucket/123.nc", 1824, 4, "e", None)
    ]


def test_what_is_no_table_and_no_option(repo: frazil.Repository) -> None:
    with pytest.raises(InvalidInputError, match="one of snapshots, history"):
        repository_tables.table(repo, {"table": "files"})
    with pytest.raises(RefNotFoundError, match=r"first 4 or more characters\), got `v9`"):
        repository_tables.changes(repo, "v9")


def test_slabs_of_a_rectilinear_grid(tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    shapes = [[2, [3, 2], 5], 4]
    with zarr.config.set({"array.rectilinear_chunks": True}):
        session = repo.writable_session("main")
        array = zarr.create_array(session.store, name="r", shape=(11, 4), chunks=(2, 4), dtype="i1")
        grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}
        document = {**array.metadata.to_dict(), "chunk_grid": grid}
        session.workspace.set_node("/r", json.dumps(document).encode())
        session.commit("rectilinear")
    assert repository_tables.regions(repo.readonly_session("main"), slab="0").select(
        ["start", "stop"]
    ).to_pydict() == {"start": [0, 2, 5, 8], "stop": [2, 5, 8, 11]}
    assert repository_tables.regions(repo.readonly_session("main"), slab="1")["stop"].to_pylist() == [4]
