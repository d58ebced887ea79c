"""Many files become one dataset: what xarray sees in the store is what it sees in the files."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.ingest import netcdf_files as nc

import frazil
import frazil.pipeline as ops
from frazil.pipeline.ingest.arrays import choose_steps
from frazil.pipeline.ingest.inspection import inspect_all


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Enough files for two tasks."""
    return nc.daily_files(tmp_path_factory.mktemp("archive"), 60, steps=2)


@pytest.mark.sample(1, 1)
def test_an_archive_is_one_commit(archive: list[str], repo: frazil.Repository, engine: ops.Engine) -> None:
    result = nc.ingest(archive, repo, chunks={"time": 7, "lon": 3}, engine=engine)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(archive))
    commit, _ = list(repo.ancestry(branch="main"))
    metadata = commit.metadata["frazil_ingest"]
    assert (metadata["files"], metadata["unchanged"], metadata["skipped"]["files"]) == (60, 0, 0)
    assert result.metrics.tasks >= 2  # 50 files each
    assert nc.report_of(result).table().num_rows == 60
    again = nc.ingest(archive, repo, chunks={"time": 7, "lon": 3}, engine=engine)
    assert again.done_before
    assert again.snapshot_id == result.snapshot_id
    more = nc.ingest(archive, repo, mode="append", engine=engine)  # another job, the same files
    assert more.done_before
    assert len(list(repo.ancestry(branch="main"))) == 2


# Sequences of modes against a dictionary


# As if a few hundred bytes were much.
TINY = {
    "frazil.pipeline.ingest.plan.LARGE": 100,
    "frazil.pipeline.ingest.plan.TASK": 150,
    "frazil.pipeline.ingest.inspection.FILES": 2,
    "frazil.pipeline.ingest.tasks.HELD": 60,
    "frazil.pipeline.ingest.tasks.OPEN": 1,
}
LABELS = st.lists(st.integers(0, 20), min_size=1, max_size=10, unique=True).map(sorted)


@st.composite
def stories(draw: st.DrawFn) -> tuple[int, list[tuple[str, list[list[int]]]]]:
    """The chunk length, and rounds of files: labels of each file, and the mode."""
    rounds = []
    for number in range(draw(st.integers(2, 3))):
        labels = draw(LABELS)
        cuts = sorted(draw(st.sets(st.integers(1, max(len(labels) - 1, 1)), max_size=3)))
        files = [labels[i:j] for i, j in itertools.pairwise([0, *cuts, len(labels)]) if labels[i:j]]
        modes = ["create"] if number == 0 else ["append", "insert", "upsert", *["backfill"] * 4]
        rounds.append((draw(st.sampled_from(modes)), files))
    return draw(st.sampled_from([3, 2, 1, 5])), rounds


def expected_after(mode: str, old: list[int], new: list[int]) -> list[int] | None:
    """The labels afterwards, or None if the mode does not allow it."""
    fresh = [label for label in new if label not in old]
    after = all(label > old[-1] for label in fresh) if old else True
    allowed = {
        "create": not old,
        "append": len(fresh) == len(new) and after,
        "insert": not fresh,
        "upsert": after,
        "backfill": True,
    }[mode]
    return sorted({*old, *new}) if allowed else None


@pytest.mark.deep
@settings(max_examples=12)
@given(stories(), st.booleans())
def test_modes_are_what_a_dictionary_does(
    story: tuple[int, list[tuple[str, list[list[int]]]]], tiny: bool
) -> None:
    chunk, rounds = story
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        folder = Path(name)
        for each in TINY.items() if tiny else ():
            nc.replace_seam(patched, *each)
        repo = frazil.Repository.create(frazil.in_memory_storage())
        values: dict[int, int] = {}
        for salt, (mode, files) in enumerate(rounds):
            paths = [
                nc.write(folder / f"r{salt}_{i}.nc", labels, salt=100 * salt, compression=None)
                for i, labels in enumerate(files)
            ]
            labels = sorted(itertools.chain.from_iterable(files))
            expected = expected_after(mode, sorted(values), labels)
            chunks = {"time": chunk, "lat": 2 if tiny else 3}  # tasks for parts of steps
            request: dict[str, Any] = {"mode": mode, "chunks": chunks, "allow": {"hole"}}
            if expected is None:
                with pytest.raises(frazil.InvalidInputError, match=f"mode '{mode}'"):
                    nc.ingest(paths, repo, **request)
                continue
            result = nc.ingest(paths, repo, **request)
            values |= dict.fromkeys(labels, salt)
            data = xr.open_zarr(
                result.version.session().store, consolidated=False, chunks=None, decode_times=False
            )
            assert data.time.values.tolist() == expected
            steps = [nc.field(label + 100 * values[label]) for label in expected]
            np.testing.assert_array_equal(data.tas.values, np.stack(steps))
            assert data.time_bnds.values[:, 1].tolist() == [label + 1 for label in expected]


# What is in the files


@pytest.mark.deep
def test_patterns_merge_variables(tmp_path: Path, repo: frazil.Repository) -> None:
    def name(day: int, variable: str) -> str:
        return str(tmp_path / f"{variable}_{day}.nc")

    for day, variable in itertools.product(range(5), ("tas", "pr")):
        nc.write(Path(name(day, variable)), range(3 * day, 3 * day + 3), names=[variable])
    pattern = ops.FilePattern(
        lambda time, variable: name(time, variable),
        ops.ConcatDim("time", range(5)),
        ops.MergeDim("variable", ["tas", "pr"]),
    )
    result = nc.ingest(pattern, ops.Target(repo, group="both"), chunks={"time": 4})
    expected = xr.merge(
        [nc.files_dataset([name(day, variable) for day in range(5)]) for variable in ("tas", "pr")],
        combine_attrs="override",
        compat="override",
    )
    nc.assert_same_dataset(nc.stored_dataset(result.version, "both"), expected)
    by_glob = nc.ingest(str(tmp_path / "*_*.nc"), repo, chunks={"time": 4})
    assert set(nc.stored_dataset(by_glob.version).data_vars) >= {"tas", "pr"}


def test_files_of_one_step_without_the_dimension(tmp_path: Path, repo: frazil.Repository) -> None:
    for day in range(6):
        xr.Dataset({"x": (("lat",), np.arange(3.0) + day)}, {"lat": [1, 2, 3]}).to_netcdf(
            tmp_path / f"{day}.nc", engine="h5netcdf"
        )
    pattern = ops.FilePattern(lambda run: str(tmp_path / f"{run}.nc"), ops.ConcatDim("run", range(6)))
    result = nc.ingest(pattern, repo, chunks={"run": 4})
    dataset = nc.stored_dataset(result.version)
    assert dataset.x.dims == ("run", "lat")
    assert dataset.run.values.tolist() == list(range(6))
    np.testing.assert_array_equal(dataset.x.values, np.arange(3.0) + np.arange(6)[:, None])


@pytest.mark.deep
def test_descending_labels_and_several_widths(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [nc.write(tmp_path / f"{i}.nc", range(20 - 4 * i, 16 - 4 * i, -1)) for i in range(4)]
    encoding = {"tas": {"chunks": (3, 2, 4), "shards": (6, 2, 4)}}
    result = nc.ingest(paths, repo, encoding=encoding)
    data = xr.open_zarr(result.version.session().store, consolidated=False, chunks=None, decode_times=False)
    assert data.time.values.tolist() == list(range(20, 4, -1))
    np.testing.assert_array_equal(data.tas.values, np.stack([nc.field(label) for label in data.time.values]))
    more = nc.write(tmp_path / "more.nc", [4, 3])
    result = nc.ingest(more, repo, mode="append")
    data = xr.open_zarr(result.version.session().store, consolidated=False, chunks=None, decode_times=False)
    assert data.time.values.tolist() == list(range(20, 2, -1))
    np.testing.assert_array_equal(data.tas.values, np.stack([nc.field(label) for label in data.time.values]))


@pytest.mark.deep
def test_each_file_packed_in_its_own_way(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [
        nc.write(
            tmp_path / f"{i}.nc",
            range(3 * i, 3 * i + 3),
            attrs={"scale_factor": 0.5 + i, "add_offset": float(i)},
        )
        for i in range(3)
    ]
    report = nc.inspect_files(paths)
    assert [(each.kind, each.url) for each in report.problems] == [
        ("packing", paths[1]),
        ("packing", paths[2]),
    ]
    with pytest.raises(frazil.InvalidInputError, match=r"values must have .*, as in most files, got "):
        nc.ingest(paths, repo)
    result = nc.ingest(paths, repo, unpack=True, chunks={"time": 2})
    np.testing.assert_array_equal(
        nc.stored_dataset(result.version).tas.values, nc.files_dataset(paths).tas.values
    )


# What is wrong with files


@pytest.mark.deep
def test_every_problem_has_the_name_of_its_file(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 12)

    def again(day: int, **more: Any) -> None:
        nc.write(Path(paths[day]), **{"labels": range(4 * day, 4 * day + 4), **more})

    size = Path(paths[1]).stat().st_size
    Path(paths[1]).write_bytes(Path(paths[1]).read_bytes()[: size // 2])
    Path(paths[2]).write_text("<html>not found</html>")
    again(3, attrs={"units": "degC"})
    again(4, names=["tas", "pr"])
    again(5, lat=[1.0, 2.0, 3.5])
    again(6, labels=[24, 26, 25, 27])
    again(7, labels=[28, 29, 30, 16])  # 16 is of day 4, which is not of this dataset: not an overlap
    again(9, labels=range(32, 36))
    shutil.copy(paths[10], paths[11])
    Path(paths[0]).rename(tmp_path / "first.nc")
    report = nc.inspect_files(paths)
    kinds = {each.url: each.kind for each in report.problems if each.url is not None and each.fatal}
    assert kinds == {
        paths[0]: "unreadable",
        paths[1]: "damaged",
        paths[2]: "damaged",
        paths[3]: "units",
        paths[4]: "variables",
        paths[5]: "values",
        paths[6]: "unordered",
        paths[7]: "unordered",
        paths[9]: "overlap",
        paths[11]: "duplicate",
    }
    for name in ("degC", "with pr", "lat has other values"):
        assert name in str(report)
    with pytest.raises(frazil.InvalidInputError) as error:
        nc.ingest(paths, repo)
    assert error.value.kind == frazil.ErrorKind.BAD_SOURCE
    assert paths[1] in error.value.message
    assert len(list(repo.ancestry(branch="main"))) == 1
    result = nc.ingest(paths, repo, on_problem="quarantine")
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset([paths[8], paths[10]]))
    assert set(result.quarantined) == set(kinds)
    quarantined = next(iter(repo.ancestry(branch="main"))).metadata["frazil_ingest"]["quarantined"]
    names = [str(Path(each).relative_to(tmp_path)) for each in kinds]
    assert (quarantined["files"], quarantined["names"]) == (10, names)
    # What is known to be bad is not looked at again, until it changes.
    again(0)
    mended = nc.ingest(paths, repo, mode="backfill", on_problem="quarantine")
    assert nc.report_of(mended).unchanged == 11
    assert nc.stored_dataset(mended.version).sizes["time"] == 12


@pytest.mark.deep
def test_holes_are_reported(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 6)
    with pytest.raises(
        frazil.InvalidInputError, match="no step between 2000-01-01 11:00:00 and 2000-01-01 16:00:00"
    ):
        nc.ingest([*paths[:3], *paths[4:]], repo)
    nc.ingest(paths[:3], repo)
    with pytest.raises(frazil.InvalidInputError, match="no step between"):
        nc.ingest(paths[4:], repo, mode="append")
    nc.ingest(paths[4:], repo, mode="append", allow={"hole"})
    result = nc.ingest(paths, repo, mode="backfill")
    assert nc.report_of(result).unchanged == 5
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))


@pytest.mark.deep
def test_changed_files_are_noticed(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 4)
    nc.ingest(paths, repo, chunks={"time": 3})
    nc.write(Path(paths[1]), range(4, 8), salt=7)
    more = nc.write(tmp_path / "days" / "later.nc", range(16, 19))
    with pytest.raises(frazil.InvalidInputError, match=r"changed: .*day_0001\.nc"):
        nc.ingest([*paths, more], repo, mode="append")
    left = nc.ingest([*paths, more], repo, mode="append", on_change="ignore")
    assert nc.stored_dataset(left.version).sizes["time"] == 19
    with pytest.raises(AssertionError):
        nc.assert_same_dataset(nc.stored_dataset(left.version), nc.files_dataset([*paths, more]))
    result = nc.ingest([*paths, more], repo, mode="append", on_change="rewrite")
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset([*paths, more]))
    assert nc.ingest([*paths, more], repo, mode="append").done_before


@pytest.mark.deep
def test_an_ingest_goes_on_where_it_stopped(
    archive: list[str], repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ops.Threads(workers=2, attempts=1)
    last = Path(archive[-1])

    def then_gone(*arguments: Any, **more: Any) -> Any:
        inspection = inspect_all(*arguments, **more)
        last.rename(last.with_suffix(".away"))
        return inspection

    nc.replace_seam(monkeypatch, "frazil.pipeline.ingest.operation.inspect_all", then_gone)
    with pytest.raises(frazil.IcechunkError, match="day_0059"):
        nc.ingest(archive, repo, chunks={"time": 6}, engine=engine)
    monkeypatch.undo()
    last.with_suffix(".away").rename(last)
    assert len(ops.staged_jobs(repo)) == 1
    result = nc.ingest(archive, repo, chunks={"time": 6}, engine=engine)
    assert result.metrics.resumed >= 1
    assert ops.staged_jobs(repo) == []
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(archive))


@pytest.mark.sample(1)
@pytest.mark.parametrize("chunks", [{"time": 3, "lat": 2, "lon": 3}, {"time": 5}])
def test_a_region_is_inserted(tmp_path: Path, repo: frazil.Repository, chunks: dict[str, int]) -> None:
    """Files with some latitudes and longitudes only, and later times."""
    paths = nc.daily_files(tmp_path / "days", 3)
    nc.ingest(paths, repo, chunks=chunks)
    expected = nc.files_dataset(paths)
    part = expected.isel(lat=slice(1, 3), lon=slice(1, 3), time=slice(3, 9)).copy(deep=True)
    part["tas"] = part.tas + 0.0
    part.tas.values[:] = -5 - np.arange(part.tas.size).reshape(part.tas.shape)
    for name, variable in part.variables.items():
        variable.encoding = {
            key: value
            for key, value in expected[name].encoding.items()
            if key in ("units", "calendar", "dtype", "_FillValue")
        }
    part.to_netcdf(tmp_path / "part.nc", engine="h5netcdf", unlimited_dims=["time"])
    with pytest.raises(frazil.InvalidInputError, match="mode 'append'"):
        nc.ingest(str(tmp_path / "part.nc"), repo, mode="append")
    result = nc.ingest(str(tmp_path / "part.nc"), repo, mode="insert")
    expected.tas.values[3:9, 1:3, 1:3] = part.tas.values
    nc.assert_same_dataset(nc.stored_dataset(result.version), expected)
    other = nc.write(tmp_path / "other.nc", [4, 5], lat=[1.0, 3.0, 2.0])
    with pytest.raises(frazil.InvalidInputError, match="consecutive labels"):
        nc.ingest(other, repo, mode="insert")


def test_steps_without_labels_follow_each_other(tmp_path: Path, repo: frazil.Repository) -> None:
    def save(name: int, values: list[float]) -> str:
        data = xr.Dataset({"x": (("obs", "y"), np.array(values)[:, None] + [0.0, 0.5])})
        data.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf", unlimited_dims=["obs"])
        return str(tmp_path / f"{name}.nc")

    paths = [save(2, [3, 4]), save(1, [1, 2, 5]), save(3, [9])]
    nc.ingest(paths[:2], repo, chunks={"obs": 2})
    with pytest.raises(frazil.InvalidInputError, match="needs labels of obs"):
        nc.ingest(paths[2], repo, mode="upsert")
    result = nc.ingest(paths[2], repo, mode="append", concat_dim="obs")
    assert nc.stored_dataset(result.version).x[:, 0].values.tolist() == [3, 4, 1, 2, 5, 9]
    # Which dimensions are unlimited is not said in Zarr: it is with the record.
    hidden = zarr.open_group(result.version.session().store, path=".frazil", mode="r")
    assert dict(hidden.attrs) == {"concat_dim": "obs", "unlimited": ["obs"]}


def test_labels_that_are_words(tmp_path: Path, repo: frazil.Repository) -> None:
    def save(*words: str) -> str:
        data = xr.Dataset(
            {"x": (("station",), np.arange(len(words), dtype="f4"))}, {"station": np.array(words, object)}
        )
        data.to_netcdf(tmp_path / f"{words[0]}.nc", engine="h5netcdf")
        return str(tmp_path / f"{words[0]}.nc")

    request: dict[str, Any] = {"concat_dim": "station"}
    nc.ingest([save("köln", "bonn"), save("aachen")], repo, **request)
    result = nc.ingest(save("bonn", "trier"), repo, mode="upsert", **request)
    dataset = nc.stored_dataset(result.version)
    assert dataset.station.values.tolist() == ["köln", "bonn", "aachen", "trier"]
    assert dataset.x.values.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize(("mode", "days"), [("append", [10, 11, 12]), ("backfill", [2, 3, 4, 5])])
def test_steps_without_values_are_missing_in_arrays_of_xarray(
    tmp_path: Path, repo: frazil.Repository, chunk: int, mode: Any, days: list[int]
) -> None:
    """Arrays of xarray have the fill value 0 beside ``_FillValue``: a missing chunk would be 250 K."""

    def dataset(steps: list[int], *names: str) -> xr.Dataset:
        values = 260.0 + np.add.outer(np.array(steps), np.arange(3.0))
        times = np.array(steps, "M8[D]").astype("M8[ns]")
        return xr.Dataset(dict.fromkeys(names, (("time", "x"), values)), {"time": times, "x": [1, 2, 3]})

    packing = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 250.0, "_FillValue": -9}
    time = {"units": "days since 1970-01-01", "dtype": "i8"}
    old = dataset([0, 1, 8, 9], "one", "other")
    with repo.transaction("main", message="xarray") as store:
        encoding = {name: {**packing, "chunks": (chunk, 3)} for name in ("one", "other")} | {"time": time}
        old.to_zarr(store, consolidated=False, zarr_format=3, encoding=encoding)
    new = dataset(days, "one")
    path = tmp_path / "new.nc"
    new.to_netcdf(path, engine="h5netcdf", encoding={"one": packing, "time": time})
    nc.ingest([str(path)], repo, mode=mode, allow={"hole"})
    with xr.open_zarr(repo.readonly_session("main").store, consolidated=False) as stored:
        assert np.array_equal(stored["one"].sel(time=new["time"]), new["one"])
        assert np.array_equal(stored["one"].sel(time=old["time"]), old["one"])
        assert np.array_equal(stored["other"].sel(time=old["time"]), old["other"])
        assert stored["other"].sel(time=new["time"]).isnull().all()


# ---- chunks -----------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 800), min_size=1, max_size=5) | st.integers(1, 10**6).map(lambda n: [n] * 3),
    st.integers(1, 64 << 20),
)
def test_chunks_of_data_end_where_files_end(lengths: list[int], row: int) -> None:
    steps, reason = choose_steps(np.array(lengths), row)
    assert 1 <= steps <= min(lengths)
    assert steps * row <= 64 << 20
    assert reason
    shares = any(length % steps for length in lengths)
    divisor = np.gcd.reduce(lengths)
    assert not shares or divisor * row < 4096 or divisor * row > 16 << 20
    if not shares and divisor * row >= 1 << 20:
        assert steps * row >= 1 << 20


def test_chunks_of_the_caller_and_of_the_files_stay(tmp_path: Path) -> None:
    values = np.zeros((6, 300, 300), "f8")
    data = xr.Dataset({"t": (("time", "y", "x"), values)}, {"time": np.arange(6)})
    path = str(tmp_path / "file.nc")
    cases: list[tuple[tuple[int, ...], dict[str, Any], tuple[int, ...], str]] = [
        ((3, 200, 300), {}, (3, 200, 300), "files"),  # 1.4 MB
        ((1, 10, 10), {}, (6, 300, 300), "file"),  # too small
        ((4, 200, 300), {}, (6, 300, 300), "file"),  # files end inside of a chunk
        ((3, 200, 300), {"chunks": {"time": 5}}, (5, 300, 300), "caller"),
        ((3, 200, 300), {"chunks": {"x": 10}}, (6, 300, 10), "file"),
        ((3, 200, 300), {"encoding": {"t": {"chunks": (2, 2, 300)}}}, (2, 2, 300), "caller"),
    ]
    for native, options, expected, word in cases:
        data.to_netcdf(
            path, engine="h5netcdf", unlimited_dims=["time"], encoding={"t": {"chunksizes": native}}
        )
        repo = frazil.Repository.create(frazil.in_memory_storage())
        (chosen,) = nc.report_of(nc.ingest(path, repo, **options)).chunks
        assert zarr.open_array(repo.readonly_session("main").store, path="t").chunks == expected
        assert (chosen.shape, chosen.bytes) == (expected, int(np.prod(expected)) * 8)
        assert word in chosen.reason


def test_a_later_variable_has_the_chunks_of_the_group(tmp_path: Path, repo: frazil.Repository) -> None:
    """The caller names chunks once."""
    days, grid = np.arange(4) * 12 + 700_000, ("time", "y", "x")
    for number in range(4):
        time = days[number] + np.arange(12)
        data = xr.Dataset({"t": (grid, np.full((12, 8, 8), 1.0 * number))}, {"time": time})
        if number >= 2:
            data["p"] = grid, np.full((12, 8, 8), 2, "i2"), {"missing_value": np.int16(-1)}
            data["mask"] = ("y", "x"), np.ones((8, 8))
            data["station"] = "time", np.ones(12)
        data["time"].attrs["units"] = "hours since 1900-01-01"
        data.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf", unlimited_dims=["time"])
    files = [str(tmp_path / f"{number}.nc") for number in range(4)]
    nc.ingest(files[:2], repo, concat_dim="time", chunks={"time": 24, "x": 4})
    more: dict[str, Any] = {"mode": "append", "concat_dim": "time"}
    result = nc.ingest(files[2:], repo, **more)
    arrays = {
        name: zarr.open_array(repo.readonly_session("main").store, path=name)
        for name in ("t", "p", "mask", "station")
    }
    assert arrays["p"].chunks == arrays["t"].chunks == (24, 8, 4)
    assert arrays["mask"].chunks == (8, 4)
    assert arrays["station"].chunks == (24,)
    assert {each.reason for each in nc.report_of(result).chunks} == {"as in other arrays of the group"}
