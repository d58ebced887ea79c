"""The inspection of many files: equal on all engines, and without a look into files that have not changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.pipeline.ingest import netcdf_files as nc
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.pipeline import Inline, Processes, Threads
from frazil.pipeline.ingest import inspection
from frazil.readers import files
from frazil.readers.files import SourceFile
from frazil.storage.object_store import ObjectStorage


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose bytes are read in this process."""
    names: list[str] = []
    read = SourceFile.read

    def counted(self: SourceFile, start: int, stop: int) -> bytes:
        names.append(self.url.rpartition("/")[2])
        return read(self, start, stop)

    monkeypatch.setattr(SourceFile, "read", counted)
    return names


@pytest.fixture
def old_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are so old that their times prove that they have not changed."""
    monkeypatch.setattr(files, "RACY_SECONDS", -1)


@pytest.mark.usefixtures("old_files")
def test_known_files_are_not_opened(tmp_path: Path, repo: frazil.Repository, reads: list[str]) -> None:
    paths = nc.daily_files(tmp_path / "days", 4)
    nc.ingest(paths[:3], repo, mode="append")
    reads.clear()
    again = nc.ingest(paths[:3], repo, mode="append")
    assert nc.report_of(again).unchanged == 3
    assert not reads
    result = nc.ingest(paths[::-1], repo, mode="append")
    assert nc.report_of(result).unchanged == 3
    assert set(reads) == {"day_0003.nc"}
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))


@pytest.mark.usefixtures("old_files")
def test_a_file_with_its_old_size_and_time_is_read_again(
    tmp_path: Path, repo: frazil.Repository, reads: list[str]
) -> None:
    """A program can set the time of the last write, but not that of the last change of the entry."""
    paths = nc.daily_files(tmp_path / "days", 2, compression=None)
    nc.ingest(paths, repo, mode="append")
    before = os.stat(paths[1])
    nc.write(Path(paths[1]), range(4, 8), salt=1, compression=None)
    assert os.stat(paths[1]).st_size == before.st_size
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    reads.clear()
    with pytest.raises(frazil.InvalidInputError, match=r"day_0001.nc: was ingested with other contents"):
        nc.ingest(paths[::-1], repo, mode="append")
    assert set(reads) == {"day_0001.nc"}


def test_times_of_new_files_prove_nothing(tmp_path: Path, repo: frazil.Repository, reads: list[str]) -> None:
    """A file that was written a moment ago may change again within the same tick of the clock."""
    paths = nc.daily_files(tmp_path / "days", 2)
    nc.ingest(paths, repo, mode="append")
    reads.clear()
    nc.ingest(paths, repo, mode="append")
    assert set(reads) == {"day_0000.nc", "day_0001.nc"}


def test_an_ingest_renews_what_the_ledger_knows(
    tmp_path: Path, repo: frazil.Repository, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were new at their ingest, and files of a ledger of an earlier release."""
    paths = nc.daily_files(tmp_path / "days", 4)
    nc.ingest(paths[:2], repo, mode="append")
    with repo.transaction("main", message="as older versions wrote it") as store:
        del zarr.open_group(store, path=".frazil")["validator"]
    monkeypatch.setattr(files, "RACY_SECONDS", -1)
    assert nc.report_of(nc.ingest(paths[:3], repo, mode="append")).unchanged == 2
    reads.clear()
    assert nc.report_of(nc.ingest(paths[:3], repo, mode="append")).unchanged == 3
    assert not reads
    with repo.transaction("main", message="an older version ingested a file again") as store:
        prints = zarr.open_array(store, path=".frazil/fingerprint")
        prints[1] = np.zeros(16, np.uint8)
    with pytest.raises(frazil.InvalidInputError, match=r"day_0001.nc"):
        nc.ingest(paths[:3], repo, mode="append")


@pytest.mark.usefixtures("old_files")
def test_quarantined_files_are_not_opened_again(
    tmp_path: Path, repo: frazil.Repository, reads: list[str]
) -> None:
    paths = nc.daily_files(tmp_path / "days", 3)
    good = Path(paths[1]).read_bytes()
    Path(paths[1]).write_bytes(b"damaged")
    options: dict[str, Any] = {"mode": "append", "on_problem": "quarantine", "allow": {"hole"}}
    assert nc.ingest(paths, repo, **options).quarantined == (paths[1],)
    reads.clear()
    assert nc.report_of(nc.ingest(paths, repo, **options)).unchanged == 3
    assert not reads
    Path(paths[1]).write_bytes(good)
    result = nc.ingest(paths, repo, mode="backfill")
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))


@pytest.mark.parametrize("engine", [Threads(3), Processes(2)], ids=["threads", "processes"])
def test_engines_agree(tmp_path: Path, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many layouts, damaged files, no files."""
    monkeypatch.setattr(inspection, "FILES", 4)
    (tmp_path / "many").mkdir()
    paths = [
        nc.write(
            tmp_path / "many" / f"{i:03}.nc", range(3 * i, 3 * i + 1 + i % 3), names=[f"v{i % 7}"],
            attrs={"number": i % 5},
        )
        for i in range(60)
    ]  # fmt: skip
    for i in (3, 30, 59):
        Path(paths[i]).write_bytes(Path(paths[i]).read_bytes()[: 300 * i])
    paths.insert(10, str(tmp_path / "none.nc"))
    expected = nc.inspect_files(paths, concat_dim="time", engine=Inline())
    report = nc.inspect_files(paths, concat_dim="time", engine=engine)
    assert report.table().equals(expected.table())
    assert report.problems == expected.problems
    assert {each.kind for each in report.fatal()} >= {"damaged", "unreadable"}
    assert len(report.inspection.layouts) == len(expected.inspection.layouts) > 30
    assert [each.digest for each in report.inspection.layouts] == [
        each.digest for each in expected.inspection.layouts
    ]


# Objects


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer(Conditions.QUOTED_ETAG) as running:
        running.make_bucket("archive")
        yield running


def counted(server: ObjectServer) -> list[str]:
    """The requests for files since the last call; LIST for listings."""
    requests = [each for each in server.requests if "/archive" in each.path]
    server.requests.clear()
    return ["LIST" if "prefix=" in each.path else each.method for each in requests]


@pytest.mark.deep
@pytest.mark.parametrize("source", ["glob", "list"])
def test_known_objects_need_one_listing(
    tmp_path: Path,
    repo: frazil.Repository,
    server: ObjectServer,
    source: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "LISTED", 5)
    paths = nc.daily_files(tmp_path / "days", 12, compression=None)
    storage = ObjectStorage(s3_bucket("archive", server.port), "days")
    for path in paths[:10]:
        storage.put(Path(path).name, Path(path).read_bytes())
    names = [f"s3://archive/days/{Path(path).name}" for path in paths]
    options: dict[str, Any] = {
        "mode": "append",
        "storage_options": {
            "endpoint_url": server.url, "region": "us-east-1", "access_key_id": "a", "secret_access_key": "b",
            "allow_http": True, "force_path_style": True,
        },
    }  # fmt: skip
    nc.ingest(names[:10], repo, **options)
    counted(server)
    known = "s3://archive/days/day_*.nc" if source == "glob" else names[:10]
    assert nc.report_of(nc.ingest(known, repo, **options)).unchanged == 10
    assert counted(server) == ["LIST"]
    # An object with the same size and another etag.
    data = Path(paths[4]).read_bytes()
    nc.write(Path(paths[4]), range(16, 20), salt=1, compression=None)
    storage.put(Path(paths[4]).name, Path(paths[4]).read_bytes())
    assert os.stat(paths[4]).st_size == len(data)
    Path(paths[4]).write_bytes(data)
    with pytest.raises(frazil.InvalidInputError, match=r"day_0004.nc: was ingested with other contents"):
        nc.ingest(known, repo, **options)
    storage.put(Path(paths[4]).name, data)
    for path in paths[10:]:
        storage.put(Path(path).name, Path(path).read_bytes())
    result = nc.ingest(known if source == "glob" else names, repo, **options)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))
