"""Files of every format in a bucket and on a web server: read in ranges, or as a copy that is removed."""

from __future__ import annotations

import http.server
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import xarray as xr
from tests.readers import test_geotiff, test_netcdf3
from tests.readers import test_grib as test_grib2
from tests.readers.comparing import read_all, same
from tests.support import servers

from frazil.errors import FormatError, InvalidInputError, StorageError
from frazil.readers import base_reader
from frazil.readers.base_reader import ChunkReferences, Schemas
from frazil.readers.files import find_file
from frazil.readers.registry import open_source

h5py = pytest.importorskip("h5py")
pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata:UserWarning"),
]
BIG = np.random.default_rng(3).random((400, 5000))  # 16 MB


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


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Files with ranges, which the server of Python does not know. Counts the bytes that it sent."""

    sent: ClassVar[list[int]] = []

    def send_head(self) -> Any:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return None
        data = path.read_bytes()
        start, stop = 0, len(data)
        asked = self.headers.get("Range")
        if asked:
            first, last = asked.removeprefix("bytes=").split("-")
            start, stop = int(first), min(int(last) + 1 if last else stop, stop)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.end_headers()
        if self.command != "HEAD":
            self.sent.append(stop - start)
            self.wfile.write(data[start:stop])
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def places(folder: Path) -> Iterator[dict[str, tuple[str, dict[str, Any]]]]:
    """Where the files are besides: URL of the folder, and options of its storage."""
    with (
        servers.ministack() as stack,
        http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *args: Ranges(*args, directory=folder)
        ) as web,
    ):
        threading.Thread(target=web.serve_forever, daemon=True).start()
        stack.make_bucket("archive")
        storage = stack.storage("archive")
        for path in folder.rglob("*"):
            if path.is_file():
                storage.put(f"deep/in here/{path.relative_to(folder)}", path.read_bytes())
        yield {
            "s3": (
                "s3://archive/deep/in here",
                {
                    "endpoint_url": f"http://127.0.0.1:{stack.port}",
                    "allow_http": True,
                    "force_path_style": True,
                    "region": "us-east-1",
                    "access_key_id": "testkey",
                    "secret_access_key": "testsecret",
                },
            ),
            "http": (f"http://127.0.0.1:{web.server_port}", {"opts": {"allow_http": "true"}}),
        }
        web.shutdown()


@pytest.mark.sample(7, 7)
@pytest.mark.parametrize("scheme", ["s3", "http"])
@pytest.mark.parametrize("name", ["big.h5", "a.nc", "a.tif", "a.grib", "2.zarr", "3.zarr"])
def test_every_format(
    name: str, scheme: str, places: dict, folder: Path, monkeypatch, tmp_path: Path
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


def test_a_part_is_not_the_whole(places: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata and two chunks of sixteen megabytes: a few blocks."""
    monkeypatch.setattr(base_reader, "SCHEMAS", Schemas())
    url, options = places["http"]
    with open_source(f"{url}/big.h5", storage_options=options) as reader:
        reader.schema()
        Ranges.sent.clear()
        same(reader.read("v", (slice(3, 12), slice(700, 800))), BIG[3:12, 700:800])
        assert sum(Ranges.sent) < 1 << 20
        Ranges.sent.clear()
        same(reader.read("v", (slice(0, 400), slice(0, 5000))), BIG)
        assert len(Ranges.sent) < 20
        assert sum(Ranges.sent) < 1.1 * BIG.nbytes


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_missing_files(scheme: str, places: dict) -> None:
    url, options = places[scheme]
    with pytest.raises(StorageError, match="none"):
        open_source(f"{url}/none.nc", storage_options=options)
    with pytest.raises(FormatError, match="begins as one of") as raised:
        open_source(f"{url}/text", storage_options=options)
    assert f"{url}/text" in str(raised.value)


def test_what_no_storage_is_for() -> None:
    with pytest.raises(InvalidInputError, match="ftp://a/b"):
        find_file("ftp://a/b")
    with pytest.raises(InvalidInputError, match="format must be one of"):
        open_source("a.nc", "excel")
