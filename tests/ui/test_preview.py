"""`frazil ui FILE`: files as a repository in a temporary folder, and the ranges that the page gets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
import xarray as xr
import zarr
from tests.support.buckets import S3_ACCESS_KEY, S3_SECRET_KEY
from tests.support.patience import patience
from tests.support.servers import ministack
from tests.ui.serving import Client, served, tree_of

import frazil
from frazil.cli.main import main
from frazil.cli.opening import OpenTarget
from frazil.cli.preview import LARGEST_COPY, preview
from frazil.errors import InvalidInputError
from frazil.format.chunk_table import VirtualRef
from frazil.repository.target import Target

DAYS = 3
TEMPERATURE = np.arange(DAYS * 8 * 12, dtype="f4").reshape(DAYS, 8, 12)


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A folder with one NetCDF file for each day, and a file that nobody may read."""
    folder = tmp_path / "days"
    folder.mkdir()
    for day in range(DAYS):
        data = xr.Dataset(
            {"t": (("time", "lat", "lon"), TEMPERATURE[day : day + 1], {"units": "K"})},
            {
                "time": ("time", [day], {"units": "days since 2000-01-01"}),
                "lat": ("lat", np.linspace(70, -70, 8), {"units": "degrees_north"}),
                "lon": ("lon", np.arange(0, 360, 30.0), {"units": "degrees_east"}),
            },
        )
        encoding = {"t": {"zlib": True, "chunksizes": (1, 4, 12)}}
        data.to_netcdf(folder / f"d{day}.nc", engine="h5netcdf", unlimited_dims=["time"], encoding=encoding)
    (folder / "secret").write_bytes(b"secret" * 1000)
    return folder


@contextmanager
def previewed(tmp_path: Path, *sources: object, **options: Any) -> Iterator[tuple[Client, Any, Path]]:
    """A client of the preview, the preview, and the folder with its repository."""
    folder = tmp_path / "preview"
    folder.mkdir()
    targets = [each if isinstance(each, Target) else Target(str(each)) for each in sources]
    result = preview(targets, folder, options, [], None)
    with served(result.site) as client:
        yield client, result, folder


def contents(folder: Path, group: str = "/") -> xr.Dataset:
    repo = frazil.Repository.open(str(folder))
    access = dict.fromkeys(
        repo.config.virtual_chunk_containers or {}, frazil.credentials.LocalFileSystemAccess
    )
    repo = repo.reopen(authorize_virtual_chunk_access=access)
    store = repo.readonly_session("main").store
    dataset: xr.Dataset = xr.open_zarr(store, group=group, consolidated=False).load()
    return dataset


def references(folder: Path, path: str = "/t") -> list[VirtualRef]:
    table = OpenTarget(Target(str(folder))).workspace.ref_table(path)
    refs = map(table.ref, range(len(table)))
    return [each for each in refs if isinstance(each, VirtualRef)]


def status(client: Client, url: str, start: int, end: int) -> int:
    return client.get(f"/virtual?{urlencode({'url': url, 'start': start, 'end': end})}").status


def test_files_are_one_dataset_of_references(tmp_path: Path, days: Path) -> None:
    before = tree_of(days)
    with previewed(tmp_path, days / "d*.nc") as (client, result, folder):
        assert np.array_equal(contents(folder).t, TEMPERATURE)
        assert contents(folder).time.dt.day.values.tolist() == [1, 2, 3]
        refs = references(folder)
        assert len(refs) == 2 * DAYS
        for ref in refs:
            query = urlencode({"url": ref.location, "start": ref.offset, "end": ref.offset + ref.length})
            data = Path(ref.location.removeprefix("file://")).read_bytes()
            assert client.get(f"/virtual?{query}").body == data[ref.offset : ref.offset + ref.length]
        info = client.get("/api/info").document
        assert (info["label"], info["writable"]) == ("d*.nc (preview)", False)
        assert result.command == f"frazil ingest '{days}/d*.nc' REPOSITORY"
        opened = OpenTarget(Target(str(folder)))
        assert (
            result.command
            in opened.info.snapshots.entry(opened.info.snapshots.find_snapshot(opened.raw_id)).message
        )
    assert tree_of(days) == before


def test_only_ranges_of_references_are_given(tmp_path: Path, days: Path) -> None:
    with previewed(tmp_path, days / "d0.nc", days / "d1.nc") as (client, _, folder):
        ref = references(folder)[0]
        assert status(client, ref.location, ref.offset + 1, ref.offset + 9) == 200  # a part, as of a shard
        refs = [each for each in references(folder) if each.location == ref.location]
        first = min(each.offset for each in refs)
        end = max(each.offset + each.length for each in refs)
        size = (days / "d0.nc").stat().st_size
        for start, stop in ((0, 8), (first - 1, end), (first, end + 1), (0, size), (end, end + 1)):
            assert status(client, ref.location, start, stop) == 403, (start, stop)
        other = (days / "d2.nc").as_uri()
        for url in (other, (days / "secret").as_uri(), f"{days.as_uri()}/x/../secret", "file:///etc/passwd"):
            assert status(client, url, first, end) == 403, url
        upper = ref.location.replace("file://", "FILE://localhost")
        assert status(client, upper, first, end) == 403


@pytest.mark.servers
def test_files_of_a_bucket_and_of_a_web_server(
    tmp_path: Path, days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ministack() as server:
        server.make_bucket("feed")
        for path in days.glob("*.nc"):
            server.storage("feed").put(f"days/{path.name}", path.read_bytes())
        endpoint = f"http://127.0.0.1:{server.port}"
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": S3_ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": S3_SECRET_KEY,
        }.items():
            monkeypatch.setenv(name, value)
        for number, (source, count) in enumerate(
            {"s3://feed/days/*.nc": DAYS, f"{endpoint}/feed/days/d1.nc": 1}.items()
        ):
            place = tmp_path / str(number)
            place.mkdir()
            with previewed(place, source) as (client, _, folder):
                refs = references(folder)
                assert len(refs) == 2 * count
                last = refs[-1]
                assert status(client, last.location, last.offset, last.offset + last.length) == 200
                assert status(client, last.location, 0, 8) == 403
                assert status(client, "s3://feed/days/other.nc", last.offset, last.offset + 1) == 403


def test_touching_and_nested_ranges_are_one(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("plain", data=np.arange(1000))
        file.create_dataset("missing", (40,), "i4", chunks=(10,))
    with previewed(tmp_path, tmp_path / "a.h5") as (client, _, folder):
        (ref,) = references(folder, "/plain")
        assert status(client, ref.location, ref.offset, ref.offset + 8000) == 200
        assert status(client, ref.location, ref.offset - 1, ref.offset + 8) == 403
        assert references(folder, "/missing") == []


def test_group_of_a_file(tmp_path: Path, days: Path) -> None:
    xr.Dataset({"v": ("x", [1, 2])}).to_netcdf(days / "d0.nc", "a", group="inner/most", engine="h5netcdf")
    with previewed(tmp_path, Target(str(days / "d0.nc"), None, "/inner/most")) as (_, result, folder):
        assert contents(folder).v.values.tolist() == [1, 2]
        assert result.command.endswith(" REPOSITORY --source-group=/inner/most")


def test_what_the_page_cannot_decode_is_copied(
    tmp_path: Path, days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(days / "text.h5", "w") as file:
        file.create_dataset("name", data=["ice", "fräzil"])
        file.create_dataset("n", data=np.arange(100), chunks=(10,), compression="lzf")
    with previewed(tmp_path, days / "text.h5") as (_, result, folder):
        assert contents(folder).name.values.tolist() == ["ice", "fräzil"]
        assert contents(folder).n.values.tolist() == list(range(100))
        assert references(folder, "/n") == []
        assert "copied" in result.notes[0]
    monkeypatch.setattr("frazil.cli.preview.LARGEST_COPY", 100)
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidInputError, match=r"copies files .* Ingest the files"):
        preview([Target(str(days / "text.h5"))], tmp_path / "other", {}, [], None)
    assert LARGEST_COPY == 1 << 30


def test_grib_is_copied(tmp_path: Path) -> None:
    from tests.readers.gribs import message

    (tmp_path / "a.grib2").write_bytes(message(2, shortName="t", level=500, values=np.arange(24.0)))
    with previewed(tmp_path, tmp_path / "a.grib2") as (_, result, folder):
        assert contents(folder).t.values.ravel().tolist() == list(range(24))
        assert references(folder) == []
        assert "copied" in result.notes[0]


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_store(tmp_path: Path, version: Any) -> None:
    root = zarr.open_group(tmp_path / "a b.zarr", zarr_format=version)
    root.create_array("t", data=np.arange(1, 41), chunks=(10,), **_named(version, "x")).attrs.update(
        {"_ARRAY_DIMENSIONS": ["x"]} if version == 2 else {}
    )
    root.create_array("deep/u", data=np.arange(1, 5), chunks=(2,), **_named(version, "y")).attrs.update(
        {"_ARRAY_DIMENSIONS": ["y"]} if version == 2 else {}
    )
    before = tree_of(tmp_path)
    with previewed(tmp_path, tmp_path / "a b.zarr") as (client, result, folder):
        assert contents(folder).t.values.tolist() == list(range(1, 41))
        ref = references(folder)[0]
        assert status(client, ref.location, 0, ref.length) == 200
        assert status(client, (tmp_path / "a b.zarr" / "zarr.json").as_uri(), 0, 10) == 403
        if version == 3:  # with all groups
            assert contents(folder, "deep").u.values.tolist() == [1, 2, 3, 4]
            assert result.command.startswith("frazil adopt ")
    assert before.items() <= tree_of(tmp_path).items()


def _named(version: int, name: str) -> dict[str, Any]:
    return {"dimension_names": [name]} if version == 3 else {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["d0.nc", "--write"], "read-only"),
        (["d*.nc", "--static", "page"], "read-only"),
        (["secret"], "damaged: .*secret"),
        (["none*.nc"], "must match at least one file"),
        (["d0.nc:/none"], "no group /none"),
        (["d0.nc", "d1.nc:/a"], "must have one group"),
        (["ice", "--concat-dim", "time"], "options of files"),
        (["none.nc"], "there is no repository in"),
    ],
)
def test_wrong_arguments(
    days: Path,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(days)
    frazil.Repository.create("ice")
    before = tree_of(days)
    assert main(["ui", *words]) != 0
    assert re.search(message, capsys.readouterr().err)
    assert tree_of(days) == before


@pytest.mark.deep
def test_the_folder_ends_with_the_command(days: Path, tmp_path: Path) -> None:
    (days / "run_12:00.nc").write_bytes((days / "d0.nc").read_bytes())
    for names, said in ((["run_12:00.nc"], "run_12:00.nc"), (["d0.nc", "d1.nc"], "d0.nc d1.nc")):
        command = [sys.executable, "-m", "frazil", "ui", *names, "--no-browser", "--json"]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=days, env=environment
        ) as process:
            assert process.stdout is not None
            document = json.loads(process.stdout.readline())
            assert document["ingest"] == f"frazil ingest {said} REPOSITORY"
            assert document["url"].startswith("http://127.0.0.1:")
            assert list(tmp_path.glob("frazil-preview-*"))
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=patience(30))
        assert (process.returncode, output, errors) == (0, "", "")
        assert not list(tmp_path.glob("frazil-preview-*"))


@pytest.mark.browser
def test_the_page_shows_the_values_of_files(tmp_path: Path, days: Path, page: Any) -> None:
    with previewed(tmp_path, days / "d*.nc") as (client, _, _):
        page.goto(client.server.url)
        page.get_by_text("d*.nc (preview)").first.wait_for()
        page.get_by_text("Preview of d*.nc. The command to store the data: frazil ingest").wait_for()
        page.goto(f"http://127.0.0.1:{client.port}/#/v/main/t?view=data&i=2,0,0")
        page.get_by_text("96 values: 192 K to 287 K").wait_for()
