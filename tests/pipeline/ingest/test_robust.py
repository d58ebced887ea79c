"""What goes wrong around an ingest: files that change under it, others at the same time, wrong arguments."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.ingest import netcdf_files as nc

import frazil
from frazil.format.flexbuffer import MetadataColumn
from frazil.pipeline import Inline, Target, Threads
from frazil.pipeline.ingest import operation
from frazil.pipeline.ingest.operation import plan_ingest
from frazil.pipeline.ingest.tasks import Readers
from frazil.readers.hdf5 import Hdf5Reader


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", ["copies", "references", "while it is read"])
def test_a_file_that_changes_after_its_inspection_is_refused(
    tmp_path: Path, repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    paths = nc.daily_files(tmp_path / "days", 3, chunks=(2, 3, 2))

    def then_changed(place: Any, name: str) -> None:
        function = getattr(place, name)

        def replaced(*arguments: Any, **more: Any) -> Any:
            result = function(*arguments, **more)
            monkeypatch.setattr(place, name, function)
            other = nc.write(tmp_path / "other.nc", range(4, 8), salt=9, chunks=(2, 3, 2))
            Path(other).replace(tmp_path / "days" / "day_0001.nc")
            return result

        monkeypatch.setattr(place, name, replaced)

    request: dict[str, Any] = {}
    if case == "references":
        request |= {"virtual": True, "containers": [nc.container(tmp_path / "days")]}
    files = paths
    if case == "while it is read":
        files = paths[1:2]
        then_changed(Readers, "values")
    else:
        then_changed(operation, "inspect_all")
    with pytest.raises(frazil.IcechunkError, match=r"day_0001.nc: the file was changed or replaced"):
        nc.ingest(files, repo, **request)
    assert len(list(repo.ancestry(branch="main"))) == 1
    nc.assert_same_dataset(
        nc.stored_dataset(nc.ingest(files, repo, **request).version), nc.files_dataset(files)
    )


@pytest.mark.deep
def test_files_with_other_names_are_unchanged(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 3)
    nc.ingest(paths, repo)
    (tmp_path / "link").symlink_to(tmp_path / "days")
    assert nc.ingest(str(tmp_path / "link/*.nc"), repo, mode="append").done_before
    (tmp_path / "days").rename(tmp_path / "moved")
    later = nc.write(tmp_path / "moved" / "later.nc", range(12, 14))
    result = nc.ingest(str(tmp_path / "moved/*.nc"), repo, mode="append")
    assert nc.report_of(result).unchanged == 3
    nc.assert_same_dataset(
        nc.stored_dataset(result.version),
        nc.files_dataset([*(path.replace("days", "moved") for path in paths), later]),
    )
    # The same bytes and time are no proof: a file whose labels are not there is a new one.
    other = nc.write(tmp_path / "moved" / "zz.nc", range(14, 16))
    os.utime(other, ns=(1, 1))
    assert not nc.ingest(other, repo, mode="append").done_before


@pytest.mark.parametrize("folder", ["days", "copy"])
def test_a_file_with_a_new_time_is_told_from_other_labels(
    folder: str, tmp_path: Path, repo: frazil.Repository
) -> None:
    paths = nc.daily_files(tmp_path / "days", 3)
    nc.ingest(paths, repo)
    if folder != "days":
        shutil.copytree(tmp_path / "days", tmp_path / folder)
    for path in (tmp_path / folder).iterdir():
        os.utime(path, ns=(1, 1))
    nc.write(tmp_path / folder / "later.nc", range(12, 14))
    files = f"{tmp_path / folder}/*.nc"
    with pytest.raises(frazil.InvalidInputError, match="another modification time") as error:
        nc.ingest(files, repo, mode="append")
    assert "another level" not in error.value.message
    result = nc.ingest(files, repo, mode="append", on_change="ignore")
    assert nc.stored_dataset(result.version).sizes["time"] == 14
    # A file of another level has the labels too, and is no copy.
    other = nc.write(tmp_path / "other.nc", range(4), salt=3)
    with pytest.raises(frazil.InvalidInputError, match="another level"):
        nc.ingest(other, repo, mode="append")


def test_a_ledger_without_contents_is_read(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 2)
    nc.ingest(paths[0], repo, concat_dim="time")
    with repo.transaction("main", message="as older versions wrote it") as store:
        del zarr.open_group(store, path=".frazil")["contents"]
    assert nc.ingest(paths[0], repo, mode="append").done_before
    nc.ingest(paths[1], repo, mode="append")
    with repo.transaction("main", message="an older version appended a file") as store:
        array = zarr.open_group(store, path=".frazil")["contents"]
        assert isinstance(array, zarr.Array)
        array.resize((1, 16))
    assert nc.ingest(paths, repo, mode="append").done_before
    nc.ingest(nc.write(Path(paths[1]), range(4, 8), salt=1), repo, mode="append", on_change="rewrite")
    os.utime(paths[1], ns=(1, 1))
    with pytest.raises(frazil.InvalidInputError, match="another modification time"):
        nc.ingest(paths[1], repo, mode="append")


@pytest.mark.parametrize("on_problem", ["fail", "quarantine"])
def test_a_repository_does_not_name_local_folders(
    tmp_path: Path, repo: frazil.Repository, on_problem: Any
) -> None:
    paths = nc.daily_files(tmp_path / "days", 3)
    if on_problem == "quarantine":
        Path(paths[2]).write_bytes(b"damaged")
    nc.ingest(paths[:2], repo, concat_dim="time")
    with repo.transaction("main", message="as older versions wrote it") as store:
        names = zarr.open_array(store, path=".frazil/url")
        names[:] = np.array(paths[:2], np.dtypes.StringDType())
    result = nc.ingest(paths, repo, mode="append", on_problem=on_problem)
    assert nc.report_of(result).unchanged == 2
    session = repo.readonly_session("main")
    metadata = [json.dumps(each.metadata, default=str) for each in repo.ancestry(branch="main")]
    names = frazil.read(session, ".frazil/url").tolist()
    assert [each.partition(" (")[0] for each in names] == [Path(each).name for each in paths]
    assert str(tmp_path) not in repr(
        [metadata, names, zarr.open_group(session.store, mode="r").attrs.asdict()]
    )
    assert nc.ingest(paths[0], repo, mode="append").done_before


def test_references_follow_files_that_were_moved(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 2, chunks=(2, 3, 4))
    request: dict[str, Any] = {"virtual": True}
    nc.ingest(paths, repo, containers=[nc.container(tmp_path / "days")], **request)
    (tmp_path / "days").rename(tmp_path / "moved")
    moved = [path.replace("days", "moved") for path in paths]
    result = nc.ingest(moved, repo, mode="upsert", containers=[nc.container(tmp_path / "moved")], **request)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(moved))


@pytest.mark.deep
def test_other_variables_of_the_same_files(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = nc.daily_files(tmp_path / "days", 3, names=["tas", "pr"])
    request: dict[str, Any] = {"mode": "upsert"}
    nc.ingest(paths, repo, variables=["tas"], **request)
    assert nc.ingest(paths, repo, variables="tas", **request).done_before
    result = nc.ingest(paths, repo, variables=["pr"], **request)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))
    for variables in (["tas"], ["tas", "pr"]):
        assert nc.ingest(paths, repo, variables=variables, **(request | {"mode": "append"})).done_before
    assert not nc.ingest(paths, repo, **request).done_before  # there might be more in them
    assert nc.ingest(paths, repo, **(request | {"mode": "append"})).done_before


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", [Inline(), Threads(1)])
def test_two_at_once_are_one_after_the_other(
    tmp_path: Path, repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    """Another ingest commits to the same arrays while this one plans."""
    paths = nc.daily_files(tmp_path / "days", 3)
    nc.ingest(paths[:1], repo, chunks={"time": 3})

    def then_another(*arguments: Any) -> Any:
        nc.replace_seam(monkeypatch, "frazil.pipeline.ingest.operation.plan_ingest", plan_ingest)
        planned = plan_ingest(*arguments)
        nc.ingest(paths[1:2], repo, mode="append")
        return planned

    nc.replace_seam(monkeypatch, "frazil.pipeline.ingest.operation.plan_ingest", then_another)
    result = nc.ingest(paths[2:], repo, mode="append", allow={"hole"}, engine=engine)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))
    assert len(list(repo.ancestry(branch="main"))) == 4


@pytest.mark.deep
def test_every_group_can_be_opened(tmp_path: Path, repo: frazil.Repository) -> None:
    """Also that of the record."""
    paths = nc.daily_files(tmp_path / "days", 2)
    for group in ("", "a/b"):
        result = nc.ingest(paths, Target(repo, group=group))
    store: Any = result.version.session().store
    tree = xr.open_datatree(store, engine="zarr", consolidated=False, zarr_format=3)
    assert tree["a/b/.frazil/fingerprint"].shape == (2, 16)
    nc.assert_same_dataset(tree["a/b"].to_dataset().load(), nc.files_dataset(paths))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a policy": ({"on_problem": "ignore"}, "on_problem must be one of fail"),
    "a kind that leaves files out": ({"allow": {"dims"}}, "allow must .*got 'dims'. concat_dim=.*on_problem"),
    "a dimension": ({"chunks": {"tim": 3}}, "name dimensions of the files.*'tim'"),
    "no size": ({"chunks": {"time": 0}}, "at least 1, or -1 for the whole dimension, got 0"),
    "a variable": ({"encoding": {"tass": {}}}, "name variables of the files.*'tass'"),
    "no chunk": ({"encoding": {"tas": {"chunks": (0, 1, 1)}}}, "chunks of tas must"),
    "an argument": ({"encoding": {"tas": {"dtype": "f8"}}}, "only chunks, shards.*got 'dtype'"),
    "a codec": ({"encoding": {"tas": {"compressors": "zip"}}}, "/new/tas`.* that zarr accepts.*zip"),
    "shards": ({"encoding": {"tas": {"chunks": (2, 2, 2), "shards": (3, 2, 2)}}}, "one that zarr accepts"),
    "no such variable": ({"variables": ["nope"]}, "got 'nope', which no file has"),
    "a format": ({"format": "xyz"}, "format must be one of"),
    "an option": ({"reader_options": {"foo": 1}}, "must be options of the reader.*'foo'"),
    "a group above": ({"to": "../x"}, "must be the path of a group"),
    "an array": ({"to": "there/x"}, "`/there` must be a group of the repository, got an array"),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_refused_before_the_first_write(
    tmp_path: Path, repo: frazil.Repository, case: str
) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="there", shape=(1,), dtype="i4")
    session.commit("an array")
    given, match = WRONG[case]
    target = Target(repo, group=given.get("to", "new"))
    with pytest.raises(frazil.InvalidInputError, match=match):
        nc.ingest(
            nc.daily_files(tmp_path / "days", 1), target, **{k: v for k, v in given.items() if k != "to"}
        )
    assert len(list(repo.ancestry(branch="main"))) == 2


@pytest.mark.deep
def test_each_file_is_opened_once(
    tmp_path: Path, repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a task has more files than it keeps open, and they have several variables."""
    paths = nc.daily_files(tmp_path / "days", 6, names=["tas", "pr"])
    nc.ingest(paths[:1], repo)
    nc.replace_seam(monkeypatch, "frazil.pipeline.ingest.tasks.OPEN", 2)
    opened: list[str] = []
    init = Hdf5Reader.__init__

    def counted(self: Any, file: Any, group: str = "/") -> None:
        opened.append(file.url)
        init(self, file, group)

    monkeypatch.setattr(Hdf5Reader, "__init__", counted)
    result = nc.ingest(paths[1:], repo, mode="append")
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))
    assert [opened.count(Path(path).as_uri()) for path in paths[2:]] == [2] * 4  # inspected, and read


@pytest.mark.deep
def test_an_append_does_not_read_the_metadata_of_all_jobs_before(
    tmp_path: Path, repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = nc.daily_files(tmp_path / "days", 2)
    first = nc.ingest(paths[:1], repo)
    for number in range(40):
        session = repo.writable_session("main")
        session.commit("a job", {"frazil_job": {"id": f"other {number}"}}, allow_empty=True)
    decoded: list[int] = []
    load_all = MetadataColumn.load_all

    def counted(self: MetadataColumn) -> list[dict[str, Any]]:
        decoded.append(len(metadata := load_all(self)))
        return metadata

    monkeypatch.setattr(MetadataColumn, "load_all", counted)
    nc.ingest(paths, repo, mode="append")
    assert sum(decoded) < 10
    again = nc.ingest(paths[:1], repo)
    assert again.done_before
    assert again.id.startswith(first.id)
