"""Problems of files: what is tolerated is in the dataset, what is not is refused with what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest import netcdf_files as nc

import frazil
from frazil.pipeline import Target


def series(result: Any, group: str | None = None) -> list[tuple[int, int]]:
    """The labels of a dataset, and how much more than its label each step has."""
    store = result.version.session().store
    data = xr.open_zarr(store, group=group, consolidated=False, chunks=None, decode_times=False)
    times = data.time.values.tolist()
    return [
        (time, int(step[0, 0] - nc.field(time)[0, 0]) // 100)
        for time, step in zip(times, data.tas.values, strict=True)
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize("virtual", [False, True], ids=["copies", "references"])
def test_the_later_file_has_the_labels_of_both(
    tmp_path: Path, repo: frazil.Repository, virtual: bool
) -> None:
    more: dict[str, Any] = {"virtual": True, "containers": [nc.container(tmp_path)]} if virtual else {}
    labels = [[0, 1, 2], [3, 4, 5], [5, 6, 7, 8]]
    paths = [nc.write(tmp_path / f"{i}.nc", mine, salt=i, chunks=(1, 3, 4)) for i, mine in enumerate(labels)]
    with pytest.raises(frazil.InvalidInputError, match=r"overlap: allow=\{'overlap'\} takes the"):
        nc.ingest(paths, repo, **more)
    result = nc.ingest(paths, repo, allow={"overlap"}, chunks={"time": 2}, **more)
    assert series(result) == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2), (8, 2)]
    assert result.quarantined == ()
    assert [(each.kind, each.fatal) for each in nc.report_of(result).problems] == [("overlap", False)]
    places = nc.inspect_files(paths, allow={"overlap"}).dataset.steps.at
    assert places.tolist() == [0, 1, 2, 3, 4, -1, 5, 6, 7, 8]
    # The order is that of the files as they are given, and a file may lose all of its labels.
    target = Target(repo, group="other")
    more |= {"allow": {"overlap", "duplicate"}}
    copy = nc.write(tmp_path / "copy.nc", labels[1], salt=1, chunks=(1, 3, 4))
    result = nc.ingest([paths[2], paths[1], copy, paths[0]], target, **more)
    assert series(result, "other") == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2), (8, 2)]


@pytest.mark.deep
def test_values_of_the_first_file_stay(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [
        nc.write(tmp_path / f"{i}.nc", range(3 * i, 3 * i + 3), lat=[1.0, 2.0, 3.5 if i == odd else 3.0])
        for i, odd in enumerate((0, 0, 0))
    ]
    with pytest.raises(frazil.InvalidInputError, match=r"values: .*0\.nc: lat has other values"):
        nc.ingest(paths, repo)
    result = nc.ingest(paths, repo, allow="values")
    dataset = nc.stored_dataset(result.version)
    assert (dataset.sizes["time"], dataset.lat.values.tolist()) == (9, [1.0, 2.0, 3.5])
    later = nc.write(tmp_path / "later.nc", range(9, 12), lat=[7.0, 8.0, 9.0])
    with pytest.raises(frazil.InvalidInputError, match=r"allow=\{'values'\} keeps the values of the rep"):
        nc.ingest(later, repo, mode="append")
    for mode in ("append", "upsert"):
        dataset = nc.stored_dataset(nc.ingest(later, repo, mode=mode, allow={"values"}).version)
        assert (dataset.sizes["time"], dataset.lat.values.tolist()) == (12, [1.0, 2.0, 3.5])


@pytest.mark.deep
def test_steps_stay_in_the_order_of_their_file(tmp_path: Path, repo: frazil.Repository) -> None:
    mixed = nc.write(tmp_path / "mixed.nc", [5, 4, 6])
    assert [time for time, _ in series(nc.ingest(mixed, repo))] == [5, 4, 6]
    paths = [nc.write(tmp_path / "b.nc", [8, 9, 10]), mixed, nc.write(tmp_path / "c.nc", [0, 2, 2])]
    target = Target(repo, group="three")
    result = nc.ingest(paths, target, allow={"unordered"}, chunks={"time": 2})
    assert [time for time, _ in series(result, "three")] == [0, 2, 2, 5, 4, 6, 8, 9, 10]
    twice = nc.write(tmp_path / "twice.nc", [10, 12, 11], salt=1)
    with pytest.raises(frazil.InvalidInputError, match=r"overlap: .*10:00"):
        nc.ingest([*paths, twice], Target(repo, group="four"), allow={"unordered"})
    allow = {"unordered", "overlap"}
    result = nc.ingest([*paths, twice], Target(repo, group="four"), allow=allow)
    assert series(result, "four")[-4:] == [(9, 0), (10, 1), (12, 1), (11, 1)]


def test_a_file_without_steps_is_never_ingested_silently(tmp_path: Path, repo: frazil.Repository) -> None:
    """The order of files cannot be kept here, because families have other labels: so their overlap counts."""
    tas = {"first": [0, 1, 2], "mixed": [5, 3, 4], "again": [1, 2]}
    paths = [nc.write(tmp_path / f"{name}.nc", labels, salt=1) for name, labels in tas.items()]
    paths.append(nc.write(tmp_path / "pr.nc", [0, 1, 2], names=["pr"]))
    result = nc.ingest(paths, repo, allow={"unordered"}, on_problem="skip")
    assert set(result.quarantined) == set(paths[1:3])
    assert nc.stored_dataset(result.version).sizes["time"] == 3


def test_families_on_other_grids_are_refused(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = [
        nc.write(tmp_path / "tas.nc", range(3)),
        nc.write(tmp_path / "pr.nc", range(3), names=["pr"], lat=[4.0, 5.0, 6.0]),
    ]
    with pytest.raises(
        frazil.InvalidInputError, match=r"values: .*lat has other values, unlike files with other"
    ):
        nc.ingest(paths, repo)
    dataset = nc.stored_dataset(nc.ingest(paths, repo, allow={"values"}).version)
    assert dataset.lat.values.tolist() == [1.0, 2.0, 3.0]
    assert {"tas", "pr"} <= set(dataset.data_vars)


def test_a_gap_in_levels_is_no_hole(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = []
    for number, levels in enumerate(([10.0, 12.0, 14.0, 16.0, 18.0], [30.0, 32.0])):
        data = xr.Dataset({"x": ("lev", np.array(levels))}, {"lev": levels})
        paths.append(str(tmp_path / f"{number}.nc"))
        data.to_netcdf(paths[-1], engine="h5netcdf")
    dataset = nc.stored_dataset(nc.ingest(paths, repo, concat_dim="lev").version)
    assert dataset.lev.values.tolist() == [10, 12, 14, 16, 18, 30, 32]


def test_sound_files_are_not_damaged(tmp_path: Path, repo: frazil.Repository) -> None:
    path = nc.write(tmp_path / "a.nc", range(3))
    (tmp_path / "folder.nc").mkdir()
    (tmp_path / "text.nc").write_text("no file of a known format")
    paths = [path, str(tmp_path / "folder.nc"), str(tmp_path / "text.nc"), str(tmp_path / "nowhere.nc")]
    kinds = {Path(each.url or "").name: each.kind for each in nc.inspect_files(paths).problems}
    assert kinds == {"folder.nc": "unreadable", "text.nc": "damaged", "nowhere.nc": "unreadable"}
    with pytest.raises(frazil.InvalidInputError) as error:
        nc.ingest(paths, repo)
    for name in ("folder.nc", "text.nc", "nowhere.nc"):
        assert error.value.message.count(name) == 1
    assert "file://" not in error.value.message
    report = nc.inspect_files(path, source_group="/nothing")
    assert [each.kind for each in report.problems] == ["options"]


def test_refused_files_make_no_holes(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 12)
    for day in (2, 5, 9):
        nc.write(Path(paths[day]), range(4 * day, 4 * day + 4), lat=[1.0, 2.0, 9.0])
    Path(paths[7]).write_bytes(b"no file of a known format")
    assert _fatal(paths) == [("damaged", paths[7]), *(("values", paths[day]) for day in (2, 5, 9))]
    # A day that no file has is a hole all the same.
    assert ("hole", None) in _fatal([*paths[:3], *paths[4:]])
    result = nc.ingest(paths, repo, on_problem="skip")
    assert {url for _, url in _fatal(paths)} == set(result.quarantined)
    assert nc.stored_dataset(result.version).sizes["time"] == 32


def test_refused_files_of_one_variable_are_not_missing_labels(tmp_path: Path) -> None:
    days = [nc.daily_files(tmp_path / name, 6, names=[name]) for name in ("tas", "pr")]
    nc.write(Path(days[1][3]), range(12, 16), names=["pr"], attrs={"units": "mm"})
    assert _fatal([*days[0], *days[1]]) == [("units", days[1][3])]
    Path(days[1][3]).unlink()
    assert _fatal([*days[0], *days[1][:3], *days[1][4:]]) == [("hole", None)]


def _fatal(paths: list[str]) -> list[tuple[str, str | None]]:
    problems = nc.inspect_files(paths).fatal()
    return [(each.kind, each.url) for each in problems]
