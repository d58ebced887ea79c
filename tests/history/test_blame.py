"""Blame: the commit of each chunk, against a model; merges, moves, expiration and lost logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.errors import of_kind

import frazil
from frazil.format.ids import id_from_text
from frazil.snapshots import Blame

CHUNKS = 4


@pytest.fixture
def repo() -> frazil.Repository:
    return created()


def created() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    options: dict[str, Any] = {"chunks": (2,), "dtype": "i4", "dimension_names": ("x",)}
    zarr.create_array(session.store, name="a", shape=(2 * CHUNKS,), **options)[:] = 1
    session.commit("create", {"author": "Ada"})
    return repo


def write(repo: frazil.Repository, chunk: int, message: str, *, branch: str = "main", path: str = "a") -> str:
    session = repo.writable_session(branch)
    array = zarr.open_array(session.store, path=path)
    array[2 * chunk] = np.asarray(array[2 * chunk]) + 1
    return session.commit(message)


def messages(blame: Blame) -> list[str | None]:
    names = [f"before {each.message}" if each.is_before else each.message for each in blame.commits]
    return [None if number < 0 else names[number] for number in blame.grid().tolist()]


def test_the_last_commit_of_each_chunk(repo: frazil.Repository) -> None:
    expected = ["create"] * CHUNKS
    histories = [["create"] for _ in range(CHUNKS)]
    path = "a"
    for number, (chunk, moves) in enumerate([(1, False), (3, True), (1, False), (0, True), (3, False)]):
        if moves:
            session = repo.rearrange_session("main")
            session.move(f"/{path}", f"/{path}b")
            session.commit("move")
            path += "b"
        write(repo, chunk, str(number), path=path)
        expected[chunk] = str(number)
        histories[chunk].insert(0, str(number))
        assert messages(repo.history.blame(path)) == expected
    for chunk, history in enumerate(histories):
        assert [each.message for each in repo.history.history_of(path, (2 * chunk + 1,))] == history


def test_the_columns(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array[0] = 9
    metadata = {"frazil_job": {"name": "mean", "id": "nightly"}}
    id_ = session.commit("job", metadata)
    blame = repo.history.blame("a")
    newest, oldest = blame.commits
    assert (newest.snapshot_id, newest.author, newest.job) == (id_, None, "mean nightly")
    assert (oldest.message, oldest.author, oldest.job) == ("create", "Ada", None)
    columns = blame.columns()
    assert columns["chunk"].tolist() == [[0], [1], [2], [3]]
    assert columns["message"].tolist() == ["job", "create", "create", "create"]
    assert columns["author"].tolist() == [None, "Ada", "Ada", "Ada"]
    assert columns["written_at"].dtype == "M8[us]"
    assert "job" in repr(blame)


def test_a_table_of_arrow(repo: frazil.Repository) -> None:
    pytest.importorskip("pyarrow")
    write(repo, 1, "one")
    table = repo.history.blame("a").to_arrow()
    assert table.column("message").to_pylist() == ["create", "one", "create", "create"]
    assert table.column("chunk").to_pylist() == [[0], [1], [2], [3]]
    assert table.column("is_before").to_pylist() == [False] * CHUNKS


def test_missing_chunks_have_no_commit(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[2:4] = 0  # the fill value: zarr deletes the chunk
    session.commit("delete")
    blame = repo.history.blame("a")
    assert messages(blame) == ["create", None, "create", "create"]
    assert [each.message for each in repo.history.history_of("a", (2,))] == ["delete", "create"]


def test_a_merge_has_the_commits_of_its_branch(repo: frazil.Repository) -> None:
    repo.create_branch("dev", "main")
    write(repo, 0, "dev 0", branch="dev")
    write(repo, 1, "dev 1", branch="dev")
    write(repo, 2, "main 2")
    repo.merge("dev")
    assert messages(repo.history.blame("a")) == ["dev 0", "dev 1", "main 2", "create"]
    write(repo, 1, "later")
    assert messages(repo.history.blame("a")) == ["dev 0", "later", "main 2", "create"]
    assert [each.message for each in repo.history.history_of("a", (2,))][:2] == [
        "later",
        "Merge dev into main",
    ]


def test_a_conflict_of_a_merge_that_is_decided_for_the_target(repo: frazil.Repository) -> None:
    repo.create_branch("dev", "main")
    write(repo, 0, "dev 0", branch="dev")
    write(repo, 1, "dev 1", branch="dev")
    write(repo, 0, "main 0")
    selection = frazil.VersionSelection.UseTheirs  # the branch that receives the merge
    repo.merge("dev", solver=frazil.BasicConflictSolver(on_chunk_conflict=selection))
    value = np.asarray(zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:2]).tolist()
    assert value == [2, 1]
    assert messages(repo.history.blame("a")) == ["main 0", "dev 1", "create", "create"]


def test_expired_versions_are_before_a_commit(repo: frazil.Repository) -> None:
    write(repo, 0, "expired")
    write(repo, 1, "oldest")
    write(repo, 2, "newest")
    info = list(repo.ancestry(branch="main"))
    repo.expire_snapshots(info[1].written_at)
    assert messages(repo.history.blame("a")) == ["before oldest", "oldest", "newest", "before oldest"]
    assert [(each.message, each.is_before) for each in repo.history.history_of("a", (2,))] == [
        ("oldest", False),
        ("oldest", True),
    ]
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert messages(repo.history.blame("a")) == ["before oldest", "oldest", "newest", "before oldest"]


def test_commits_before_a_lost_log_are_uncertain(repo: frazil.Repository) -> None:
    lost = write(repo, 0, "lost")
    write(repo, 1, "kept")
    repo.storage.delete([f"transactions/{lost}"])
    assert messages(repo.history.blame("a")) == ["before kept", "kept", "before kept", "before kept"]


def test_a_compaction_writes_no_data(repo: frazil.Repository) -> None:
    write(repo, 0, "data")
    info = repo._context.catalog.repo_info()
    tip = info.branches["main"]
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array[:] = array[:]
    session.commit("compaction", {"__frazil": {"compaction": True}})
    assert id_from_text(repo.lookup_branch("main")) != tip
    assert messages(repo.history.blame("a")) == ["data", "create", "create", "create"]


def test_versions_and_wrong_arguments(repo: frazil.Repository) -> None:
    first = repo.lookup_branch("main")
    repo.create_tag("v1", "main")
    write(repo, 0, "later")
    assert messages(repo.history.blame("a", tag="v1")) == messages(
        repo.history.blame("a", snapshot_id=first[:8])
    )
    assert messages(repo.history.blame("a", tag="v1")) == ["create"] * CHUNKS
    with pytest.raises(frazil.NodeNotFoundError):
        repo.history.blame("b")
    with pytest.raises(ValueError, match="exactly one"):
        repo.history.blame("a", branch="main", tag="v1")
    for index in ((8,), (-9,), (0, 0), ()):
        with pytest.raises(frazil.InvalidInputError, match="must name a cell") as error:
            repo.history.history_of("a", index)
        assert error.value.kind == "invalid-chunk-index"


def test_the_history_of_a_cell_by_labels() -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("pyarrow")  # of the extra `pipeline`
    pipeline = pytest.importorskip("frazil.pipeline")
    repo = frazil.Repository.create(frazil.in_memory_storage())
    times = np.arange("2026-01-01", "2026-01-05", dtype="M8[D]").astype("M8[ns]")
    data = xr.Dataset({"t": (("time", "x"), np.ones((4, 2)))}, {"time": times, "x": [10, 20]})
    session = repo.writable_session("main")
    options = {"t": {"chunks": (2, 1)}}
    data.to_zarr(session.store, mode="w", consolidated=False, encoding=options)
    session.commit("create")
    with repo.transaction("main", message="correct") as store:
        zarr.open_array(store, path="t")[3, 0] = 7

    def history(**labels: Any) -> list[str]:
        index = pipeline.cell(repo.readonly_session("main"), "t", labels)
        return [each.message for each in repo.history.history_of("t", index)]

    assert history(time="2026-01-03", x=10) == ["correct", "create"]
    assert history(time="2026-01-02", x=10) == history(time="2026-01-03", x=20) == ["create"]
    for labels in ({"time": "2026-01-03"}, {"time": "2026", "x": 10}, {"time": "2026-01-03", "x": 11}):
        with pytest.raises(frazil.InvalidInputError, check=of_kind("invalid-chunk-index")):
            history(**labels)
