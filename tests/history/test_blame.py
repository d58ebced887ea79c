"""Blame: the commit of each chunk, against a model. Differences in values, against numpy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.errors import of_kind

import frazil
from frazil.format.ids import id_from_text
from frazil.snapshots import Blame, ValueDifference

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


NAN = float("nan")


def two_versions(
    before: Any, after: Any, *, chunks: tuple[int, ...] = (2, 2), **options: Any
) -> frazil.Repository:
    """A repository with the array ``a`` before (tag ``v1``) and after (branch ``main``)."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="before") as store:
        zarr.create_array(store, name="a", data=np.asarray(before), chunks=chunks, **options)
    repo.create_tag("v1", "main")
    new = np.asarray(after)
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array.resize(new.shape)
    for block in np.ndindex(array.cdata_shape):
        where = tuple(slice(at * size, (at + 1) * size) for at, size in zip(block, chunks, strict=True))
        if not np.array_equal(array[where], new[where], equal_nan=new.dtype.kind == "f"):
            array[where] = new[where]
    session.commit("after", allow_empty=True)
    return repo


def difference(repo: frazil.Repository, path: str = "a") -> ValueDifference:
    return repo.history.diff_values(path, from_tag="v1", to_branch="main")


def test_the_statistics_are_those_of_numpy() -> None:
    before = np.arange(20, dtype="f8").reshape(4, 5)
    after = before.copy()
    after[0, 0], after[1, 1], after[3, 4] = 5, -1, 100
    report = difference(two_versions(before, after))
    steps = (after - before)[after != before]
    assert (report.cells, report.changed) == (20, 3)
    assert report.mean == pytest.approx(steps.mean())
    assert report.max == np.abs(steps).max()
    assert report.rmse == pytest.approx(np.sqrt((steps**2).mean()))
    assert report.grid().tolist() == [[2, 0, 0], [0, 0, 1]]
    assert report.index.tolist() == [[0, 0], [1, 2]]
    assert report.max_by_chunk.tolist() == [7.0, 81.0]
    assert report.chunks_read == 2
    assert "rmse" in repr(report)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("u1", 255.0), ("i8", 255.0), ("?", 1.0), ("<U3", NAN), ("c8", NAN)]
)
def test_data_types(dtype: str, expected: float) -> None:
    before = np.zeros((2, 2)).astype(dtype)
    after = before.copy()
    after[0, 0] = 255
    report = difference(two_versions(after, before))
    assert report.changed == 1
    assert np.array_equal([report.max], [expected], equal_nan=True)
    assert np.array_equal([report.mean], [-expected], equal_nan=True)


def test_a_scalar() -> None:
    report = difference(two_versions(1, 4, chunks=()))
    assert (report.cells, report.changed, report.mean, report.grid().tolist()) == (1, 1, 3.0, 1)


def test_equal_versions_are_not_read() -> None:
    repo = two_versions(np.ones((4, 4)), np.ones((4, 4)))
    report = repo.history.diff_values("a", from_branch="main", to_branch="main")
    assert (report.changed, report.chunks_read, report.cells) == (0, 0, 16)
    assert np.isnan(report.mean)


def test_another_shape_compares_the_common_cells() -> None:
    before, after = np.ones((4, 4)), np.ones((6, 2))
    after[0, 0] = after[5, 1] = 9
    report = difference(two_versions(before, after))
    assert (report.cells, report.changed, report.grid().shape) == (8, 1, (3, 1))
    assert (report.new_cells, report.removed_cells) == (4, 8)


def test_a_moved_array_and_another_grid() -> None:
    repo = two_versions(np.ones((4, 4)), np.ones((4, 4)))
    session = repo.rearrange_session("main")
    session.move("/a", "/moved")
    session.commit("move")
    assert difference(repo, "moved").chunks_read == 0
    with repo.transaction("main", message="rechunked") as store:
        data = np.ones((4, 4), "f4")
        data[3, 3] = 2
        zarr.create_array(store, name="a", data=data, chunks=(3, 4))
    report = difference(repo)
    assert (report.changed, report.chunks_read, report.grid().tolist()) == (1, 2, [[0], [1]])


def test_wrong_arguments() -> None:
    repo = two_versions(np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(frazil.NodeNotFoundError):
        difference(repo, "b")
    with repo.transaction("main", message="other") as store:
        zarr.create_array(store, name="a", data=np.ones(2), overwrite=True)
    with pytest.raises(frazil.InvalidInputError, match="number of dimensions") as error:
        difference(repo)
    assert error.value.kind == "unsupported-array"
    with pytest.raises(ValueError, match="exactly one"):
        repo.history.diff_values("a", from_branch="main")


# ---- values that are decoded


PACKING: dict[str, Any] = {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768, "units": "K"}


def with_attributes(
    before: Any, attributes: dict[str, Any], after: Any, new_attributes: dict[str, Any]
) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    for name, data, attrs in (("v1", before, attributes), ("v2", after, new_attributes)):
        with repo.transaction("main", message=name) as store:
            zarr.create_array(
                store,
                name="a",
                data=np.asarray(data),
                chunks=(max(2, len(data) // 2),),
                attributes=attrs,
                overwrite=True,
            )
        repo.create_tag(name, "main")
    return repo


def test_differences_are_those_of_decoded_values() -> None:
    before, after = np.array([0, 100, -32768, -32768, 5], "i2"), np.array([0, 350, -32768, 7, 5], "i2")
    repo = with_attributes(before, PACKING, after, PACKING)
    report = difference(repo)
    assert (report.changed, report.units) == (2, "K")
    assert (report.mean, report.max, report.rmse) == pytest.approx((2.5, 2.5, 2.5))
    raw = repo.history.diff_values("a", from_tag="v1", to_branch="main", decode=False)
    assert (raw.changed, raw.max, raw.units) == (2, 32775.0, None)


@pytest.mark.parametrize(
    ("dtype", "before", "after"),
    [
        ("i8", [2**53, 2**60, 5], [2**53 + 1, 2**60 - 1, 5]),
        ("u8", [2**64 - 1, 0, 5], [2**64 - 2, 1, 5]),
        ("i8", [-(2**63), 2**62, 5], [-(2**63) + 1, 2**62 - 1, 5]),
    ],
)
def test_differences_of_integers_that_no_float_tells_apart(
    dtype: str, before: list[int], after: list[int]
) -> None:
    report = difference(with_attributes(np.array(before, dtype), {}, np.array(after, dtype), {}))
    assert (report.changed, report.mean, report.max, report.rmse) == (2, 0, 1, 1)


def test_a_change_of_attributes_alone_is_a_change_of_values() -> None:
    repo = with_attributes(
        np.array([0, 100, -32768], "i2"), PACKING, np.array([0, 100, -32768], "i2"), PACKING
    )
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array.attrs["scale_factor"] = 0.02
    session.commit("rescaled")
    report = difference(repo)
    assert (report.changed, report.mean) == pytest.approx((1, 1.0))
    assert repo.history.diff_values("a", from_tag="v1", to_branch="main", decode=False).changed == 0
    with repo.transaction("main", message="no value is missing") as store:
        array = zarr.open_array(store, path="a")
        array.attrs.put({**PACKING, "_FillValue": -1})
    report = difference(repo)
    assert (report.changed, np.isnan(report.mean)) == (1, True)


def test_another_packing_of_the_same_values_is_no_change() -> None:
    before = np.array([*range(-999, 1000), -32768], "i2")
    values = 273.15 + before * 0.01
    cases: list[tuple[str, dict[str, Any]]] = [
        ("i4", {"scale_factor": 0.001, "add_offset": 273.15, "missing_value": -1, "units": "K"}),
        ("f8", {"_FillValue": -1.0, "units": "K"}),
        ("f8", {"units": "K"}),
    ]
    for dtype, attributes in cases:
        scale, offset = attributes.get("scale_factor", 1.0), attributes.get("add_offset", 0.0)
        after = (values - offset) / scale
        after = (np.rint(after) if dtype == "i4" else after).astype(dtype)
        after[-1] = -1 if len(attributes) > 1 else NAN
        report = difference(with_attributes(before, PACKING, after, attributes))
        assert (report.changed, report.cells, report.chunks_read) == (0, 2000, 2)


@pytest.mark.parametrize(
    ("dtype", "attributes", "expected", "units"),
    [
        ("i4", {"units": "hours since 2000-01-01"}, 2.0, "hours"),
        ("f8", {"units": "days since 2000-01-01", "calendar": "noleap"}, 2.0, "days"),
        ("i8", {"units": "seconds", "dtype": "timedelta64[s]"}, 2.0, "seconds"),
        ("M8[D]", {}, 172_800.0, "s"),
    ],
)
def test_times_differ_in_their_units(
    dtype: str, attributes: dict[str, Any], expected: float, units: str
) -> None:
    if "calendar" in attributes:
        pytest.importorskip("cftime")
    before, after = np.array([1, 2, 3]).astype(dtype), np.array([1, 4, 3]).astype(dtype)
    report = difference(with_attributes(before, attributes, after, attributes))
    assert (report.changed, report.mean, report.max, report.units) == (1, expected, expected, units)


def test_times_of_another_reference_are_equal() -> None:
    pytest.importorskip("cftime")
    before, after = np.array([31, 32], "i4"), np.array([0, 1], "i4")
    units = [{"units": f"days since 2000-{month}-01"} for month in ("01", "02")]
    assert difference(with_attributes(before, units[0], after, units[1])).changed == 0
    other = {**units[0], "calendar": "noleap"}
    assert difference(with_attributes(before, units[0], before, other)).changed == 2
