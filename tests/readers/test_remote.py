"""Files of every format in a bucket and on a web server: read in ranges, or as a copy that is removed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.readers import test_geotiff, test_netcdf3
from tests.readers import test_grib as test_grib2
from tests.readers.comparing import read_all, same
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

from frazil.errors import FormatError, StorageError
from frazil.readers import base_reader
from frazil.readers.base_reader import ChunkReferences, Schemas
from frazil.readers.registry import open_source
from frazil.storage.object_store import ObjectStorage

h5py = pytest.importorskip("h5py")
pytestmark = [
    pytest.mark.deep,
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata:UserWarning"),
]
BIG = np.random.default_rng(3).random((400, 5000))  # 16 MB

Places = dict[str, tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of each format."""
    files = tmp_path_factory.mktemp("files") / "in here"
    files.mkdir()
    with h5py.File(files / "big.h5", "w") as file:
        file.create_dataset("v", data=BIG, chunks=(10, 500))
        file.create_dataset("whole", data=BIG[0])
    test_netcdf3.write_file(files / "a.nc", "NETCDF3_CLASSIC")
    test_geotiff.write_file(files / "a.tif", compress="deflate")
    (files / "a.grib").write_bytes(test_grib2.cube(2))
    data = xr.Dataset({"v": (("y", "x"), BIG[:20, :30])}, {"x": np.arange(30)})
    for version in (2, 3):
        data.to_zarr(files / f"{version}.zarr", zarr_format=version, consolidated=True)
    (files / "text").write_text("nothing that is known")
    return files


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ObjectServer]:
    """Has the files in a bucket, which it also serves as a folder of the web."""
    with ObjectServer(Conditions.QUOTED_ETAG) as running:
        running.make_bucket("archive")
        storage = ObjectStorage(s3_bucket("archive", running.port), "in here")
        for path in folder.rglob("*"):
            if path.is_file():
                storage.put(str(path.relative_to(folder)), path.read_bytes())
        yield running


@pytest.fixture
def places(server: ObjectServer) -> Places:
    """Where the files are besides: URL of the folder, and options of its storage."""
    options = {"endpoint_url": server.url, "region": "us-east-1", "access_key_id": "a"}
    switches = {"allow_http": True, "force_path_style": True, "secret_access_key": "b"}
    return {
        "s3": ("s3://archive/in here", options | switches),
        "http": (f"{server.url}/archive/in here", {"opts": {"allow_http": "true"}}),
    }


def sent(server: ObjectServer) -> list[int]:
    """The bytes of each range that was read since the last call."""
    ranges = [each.headers["range"].removeprefix("bytes=").split("-") for each in server.requests]
    server.requests.clear()
    return [int(last) + 1 - int(first) for first, last in ranges]


@pytest.mark.sample(7, 7)
@pytest.mark.parametrize("scheme", ["s3", "http"])
@pytest.mark.parametrize("name", ["big.h5", "a.nc", "a.tif", "a.grib", "2.zarr", "3.zarr"])
def test_every_format(
    name: str, scheme: str, places: Places, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    url, options = places[scheme]
    kind = "zarr" if name.endswith("zarr") else None  # a web server says nothing of what is in a directory
    with (
        open_source(str(folder / name)) as local,
        open_source(f"{url}/{name}", kind, storage_options=options) as far,
    ):
        local_schema, remote_schema = local.schema(), far.schema()
        assert repr(local_schema.variables) == repr(remote_schema.variables)
        assert (local_schema.attrs, local_schema.dims) == (remote_schema.attrs, remote_schema.dims)
        for variable in local_schema.variables:
            same(read_all(local, variable), read_all(far, variable))
            ours, theirs = local.references(variable), far.references(variable)
            if isinstance(ours, ChunkReferences) and isinstance(theirs, ChunkReferences):
                assert ours.offset.tolist() == theirs.offset.tolist()
                assert all(each.startswith(f"{url}/{name}") for each in theirs.locations)
            else:
                assert type(ours) is type(theirs) or (scheme == "http" and name.endswith("zarr"))
        if not name.endswith("zarr"):
            assert remote_schema.url == f"{url}/{name}"
            assert remote_schema.size == local_schema.size
            assert remote_schema.etag
    assert not list(tmp_path.iterdir())


def test_a_part_is_not_the_whole(
    places: Places, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata and two chunks of sixteen megabytes: a few blocks."""
    monkeypatch.setattr(base_reader, "SCHEMAS", Schemas())
    url, options = places["http"]
    server.requests.clear()
    with open_source(f"{url}/big.h5", storage_options=options) as reader:
        reader.schema()
        assert len(server.requests) < 8, "the schema needs no index of chunks"
        reader.read("v", (slice(0, 1), slice(0, 1)))  # this needs the index
        server.requests.clear()
        same(reader.read("v", (slice(3, 12), slice(700, 800))), BIG[3:12, 700:800])
        assert sum(sent(server)) < 1 << 20
        same(reader.read("v", (slice(0, 400), slice(0, 5000))), BIG)
        ranges = sent(server)
        assert len(ranges) < 20
        assert sum(ranges) < 1.1 * BIG.nbytes


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_missing_files(scheme: str, places: Places) -> None:
    url, options = places[scheme]
    with pytest.raises(StorageError, match="none"):
        open_source(f"{url}/none.nc", storage_options=options)
    with pytest.raises(FormatError, match="begins as one of") as raised:
        open_source(f"{url}/text", storage_options=options)
    assert f"{url}/text" in str(raised.value)
