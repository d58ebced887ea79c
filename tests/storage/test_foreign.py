from __future__ import annotations

import asyncio
import os
import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import frazil
from frazil.credentials import Credentials, HttpAccess, LocalFileSystemAccess, s3_anonymous_credentials
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, StorageError
from frazil.storage.foreign_objects import ForeignObjects, file_etag, open_foreign

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.servers import RunningServer

_DATA = bytes(range(100))
_KEY = frazil.s3_static_credentials(access_key_id="testkey", secret_access_key="testsecret")
Place = tuple[ForeignObjects, str, str]


def _s3(server: RunningServer) -> Place:
    storage = server.storage()
    bucket = storage.bucket.name
    storage.put("data/a b%20c.nc", _DATA)
    config = frazil.s3_store(
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        allow_http=True,
        s3_compatible=True,
        force_path_style=True,
    )
    foreign = open_foreign(config, Credentials.S3(_KEY), f"s3://{bucket}/")
    etag = storage.get_versioned("data/a b%20c.nc")[1].etag
    return foreign, f"s3://{bucket}/data/a b%20c.nc", f'"{etag}"'


def _gcs(server: RunningServer) -> Place:
    storage = server.storage()
    bucket = storage.bucket.name
    storage.put("a.nc", _DATA)
    config = frazil.gcs_store({"base_url": f"http://127.0.0.1:{server.port}", "allow_http": "true"})
    foreign = open_foreign(
        config, Credentials.Gcs(frazil.gcs_credentials(bearer_token="t")), f"gs://{bucket}/"
    )
    return foreign, f"gs://{bucket}/a.nc", f'"{storage.get_versioned("a.nc")[1].etag}"'


def _http(server: RunningServer) -> Place:
    storage = server.storage()
    bucket = storage.bucket.name
    storage.put("dir/a b.nc", _DATA)
    prefix = f"http://127.0.0.1:{server.port}/{bucket}/"
    foreign = open_foreign(frazil.http_store(), HttpAccess, prefix)
    return foreign, f"{prefix}dir/a%20b.nc", f'"{storage.get_versioned("dir/a b.nc")[1].etag}"'


def _azure(server: RunningServer) -> Place:
    storage = server.storage()
    bucket: Any = storage.bucket
    storage.put("a.nc", _DATA)
    config = frazil.storage.azure_store(account=bucket.account, config=dict(bucket.config))
    container = bucket.name
    foreign = open_foreign(config, Credentials.Azure(bucket.credentials), f"az://{container}/")
    return foreign, f"az://{container}/a.nc", f'"{storage.get_versioned("a.nc")[1].etag}"'


def _file(path: Path) -> Place:
    (path / "a.nc").write_bytes(_DATA)
    foreign = open_foreign(frazil.local_filesystem_store(str(path)), LocalFileSystemAccess, f"file://{path}/")
    return foreign, f"file://{path}/a.nc", file_etag(os.stat(path / "a.nc"))


_STRICT = (pytest.param(name, marks=pytest.mark.servers) for name in ("ceph", "azurite"))


@pytest.fixture(params=["file", "ministack", "gcs", "http", *_STRICT])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    make: dict[str, Callable[[], Place]] = {
        "file": lambda: _file(tmp_path),
        "http": lambda: _http(request.getfixturevalue("gcs")),
        "gcs": lambda: _gcs(request.getfixturevalue("gcs")),
        "azurite": lambda: _azure(request.getfixturevalue("azurite")),
    }
    name = request.param
    return make[name]() if name in make else _s3(request.getfixturevalue(name))


def test_a_place(place: Place) -> None:
    foreign, url, etag = place
    reads = (foreign.get, lambda *args, **more: asyncio.run(foreign.get_async(*args, **more)))

    def require(kind: ErrorKind, *args: Any, **conditions: Any) -> None:
        for read in reads:
            with pytest.raises(IcechunkError) as caught:
                read(*args, **conditions)
            assert caught.value.kind == kind

    for start, stop in ((0, 100), (10, 20), (99, 100), (5, 5)):
        for read in (*reads, pickle.loads(pickle.dumps(foreign)).get):
            assert bytes(read(url, start, stop)) == _DATA[start:stop]
    for start, stop in ((90, 101), (100, 101), (500, 600)):
        require(ErrorKind.VIRTUAL_CHUNK_FETCH, url, start, stop)
    require(ErrorKind.VIRTUAL_CHUNK_FETCH, f"{url}.missing", 0, 1)
    now = datetime.now(UTC)
    for good in (etag, etag.strip('"')):
        later = now + timedelta(seconds=2)
        assert bytes(foreign.get(url, 0, 5, etag=good, not_modified_since=later)) == _DATA[:5]
    require(ErrorKind.VIRTUAL_CHUNK_MODIFIED, url, 0, 5, etag='"other"')
    require(ErrorKind.VIRTUAL_CHUNK_MODIFIED, url, 0, 5, not_modified_since=now - timedelta(hours=1))
    for other in (f"{url.partition('://')[0]}://elsewhere/a.nc", f"x{url}"):
        require(ErrorKind.INVALID_VIRTUAL_REF, other, 0, 1)


def test_keys_that_the_client_would_tidy_up_are_refused() -> None:
    foreign = open_foreign(frazil.s3_store(region="x"), Credentials.S3(s3_anonymous_credentials()), "s3://b/")
    for key in ("a//b", "../b", "a/./b", "", "a/"):
        with pytest.raises(InvalidInputError) as caught:
            foreign.get(f"s3://b/{key}", 0, 1)
        assert caught.value.kind == ErrorKind.INVALID_VIRTUAL_REF
    with pytest.raises(InvalidInputError, match="query"):
        open_foreign(frazil.http_store(), None, "http://127.0.0.1:9/").get("http://127.0.0.1:9/a?b", 0, 1)


# files


def test_a_file_changed_a_fraction_of_a_second_later_has_changed(tmp_path: Path) -> None:
    """As the reference has it: a reference holds whole seconds, and a file's time is exact."""
    foreign, url, _ = _file(tmp_path)
    os.utime(tmp_path / "a.nc", ns=(0, 1_600_000_000_900_000_000))
    for seconds, is_good in ((1_600_000_000, False), (1_599_999_999, False), (1_600_000_001, True)):
        since = datetime.fromtimestamp(seconds, UTC)
        if is_good:
            foreign.get(url, 0, 1, not_modified_since=since)
        else:
            with pytest.raises(StorageError):
                foreign.get(url, 0, 1, not_modified_since=since)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("plain.bin", "plain.bin"),
        ("with space.bin", "with space.bin"),
        ("with%20space.bin", "with space.bin"),
        ("with%2520code.bin", "with%20code.bin"),
        ("a%23b.bin", "a#b.bin"),
        ("sub/../plain.bin", "plain.bin"),
        ("gr%C3%B6n.bin", "grön.bin"),
        ("with%20code.bin", None),
        ("a#b.bin", None),
        ("q?x.bin", None),
    ],
)
def test_file_urls_are_read_as_the_reference_reads_them(tmp_path: Path, url: str, name: str | None) -> None:
    for each in ("plain.bin", "with space.bin", "with%20code.bin", "a#b.bin", "q?x.bin", "grön.bin"):
        (tmp_path / each).write_text(each)
    foreign = open_foreign(frazil.local_filesystem_store("/ignored"), None, f"file://{tmp_path}/")
    foreign = open_foreign(frazil.local_filesystem_store(str(tmp_path)), None, f"file://{tmp_path}")
    if name is None:
        with pytest.raises(StorageError):
            foreign.get(f"file://{tmp_path}/{url}", 0, 1)
    else:
        assert foreign.get(f"file://{tmp_path}/{url}", 0, len(name.encode())) == name.encode()


@pytest.mark.parametrize("url", ["//plain.bin", "/../../etc/passwd", "/%2e%2e/x", "2/plain.bin", "/a%00b"])
def test_files_outside_are_not_read(tmp_path: Path, url: str) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "x").write_text("secret")
    base = f"file://{tmp_path}/dir"
    foreign = open_foreign(frazil.local_filesystem_store(str(tmp_path / "dir")), LocalFileSystemAccess, base)
    with pytest.raises(InvalidInputError) as caught:
        foreign.get(f"{base}{url}", 0, 1)
    assert caught.value.kind == ErrorKind.INVALID_VIRTUAL_REF


def test_else_it_is_below_the_path_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.nc").write_bytes(_DATA)
    foreign = open_foreign(frazil.local_filesystem_store(str(tmp_path)), None, "file:///far/away/")
    assert foreign.get("file:///far/away/sub/a.nc", 3, 6) == _DATA[3:6]
    near = open_foreign(frazil.local_filesystem_store("/etc"), None, f"file://{tmp_path}/")
    assert near.get(f"file://{tmp_path}/sub/a.nc", 3, 6) == _DATA[3:6]
    nowhere = open_foreign(frazil.local_filesystem_store(""), None, "file:///far/away/")
    with pytest.raises(StorageError) as caught:
        nowhere.get("file:///far/away/sub/a.nc", 3, 6)
    assert caught.value.kind == ErrorKind.VIRTUAL_CHUNK_FETCH


def test_a_large_range_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign, url, _ = _file(tmp_path)
    monkeypatch.setattr("frazil.storage.files.CALL_BYTES", 7)
    assert foreign.get(url, 3, 90) == _DATA[3:90]


# configuration


def test_what_does_not_fit_is_refused() -> None:
    cases = [
        (frazil.ObjectStoreConfig.Gcs(None), Credentials.S3(s3_anonymous_credentials()), "gs://b/a"),
        (
            frazil.ObjectStoreConfig.Azure({}),
            Credentials.Azure(frazil.azure_credentials(anonymous=True)),
            "az://b/a",
        ),
        (frazil.s3_store(region="x"), HttpAccess, "s3://b/a"),
    ]
    for config, credentials, url in cases:
        with pytest.raises(IcechunkError):
            open_foreign(config, credentials, url[:6]).get(url, 0, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        open_foreign(frazil.ObjectStoreConfig.InMemory(), None, "memory://")
