from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import zarr
from tests.support.loopback_http import LoopbackHttp, QuietHandler, serve_folder
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.errors import ErrorKind, ReadOnlyError, StorageError
from frazil.storage.base import IfAbsent, Version
from frazil.storage.object_store import ObjectStorage
from frazil.storage.settings import StorageSettings
from frazil.storage.web_storages import http_storage, redirect_storage, storage_of_redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from frazil.storage.base import Storage


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    """Serves its buckets as folders, too."""
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("folder")
        storage = ObjectStorage(s3_bucket("folder", server.port), "of ice")
        storage.put("repo", b"0123456789")
        storage.put("chunks/a", b"abc")
        server.requests.clear()
        yield server


class Redirects(LoopbackHttp):
    """A server that redirects, after ``failures`` answers with status 503."""

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.failures = 0
        self.asked: list[str] = []
        redirects = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802  # the name of http.server
                redirects.asked.append(self.path)
                location = redirects.locations.get(self.path)
                redirects.failures -= 1
                status = 503 if redirects.failures >= 0 else 404 if location is None else 302
                self.reply(status, headers=[("Location", location)] if location is not None else [])

        super().__init__(Handler)


@pytest.fixture
def redirects() -> Iterator[Redirects]:
    with Redirects() as redirects:
        yield redirects


def _read(storage: Storage) -> None:
    assert bytes(storage.get("repo")) == b"0123456789"
    assert bytes(storage.get("repo", 2, 5)) == b"234"
    data, version = storage.get_versioned("repo")
    assert bytes(data) == b"0123456789"
    assert version != Version()
    head = storage.head("chunks/a")
    assert head is not None
    assert head.size == 3
    assert storage.head("chunks/b") is None
    with pytest.raises(StorageError) as caught:
        storage.get("chunks/b")
    assert caught.value.kind == ErrorKind.OBJECT_NOT_FOUND


def _writes_are_refused(storage: Storage) -> None:
    assert storage.is_read_only
    writes: list[Callable[[], object]] = [
        lambda: storage.put("repo", b"1"),
        lambda: storage.put("repo", b"1", IfAbsent()),
        lambda: storage.backup("repo", Version("a"), b"", "b"),
        lambda: storage.delete(["repo"]),
    ]
    for write in writes:
        with pytest.raises(ReadOnlyError) as caught:
            write()
        assert caught.value.kind == ErrorKind.READ_ONLY_STORAGE


@pytest.mark.parametrize("slash", ["", "/"])
def test_http(server: ObjectServer, slash: str) -> None:
    storage = http_storage(f"{server.url}/folder/of%20ice{slash}", headers={"x-mine": "1"})
    _read(storage)
    assert all(request.headers["x-mine"] == "1" for request in server.requests)
    _writes_are_refused(storage)
    _read(pickle.loads(pickle.dumps(storage)))
    _read(storage.with_settings(StorageSettings()))
    with pytest.raises(StorageError, match="cannot list"):
        storage.list("")


@pytest.mark.parametrize("make", [http_storage, redirect_storage])
@pytest.mark.parametrize(
    "url", ["nonsense", "", "/path", "http://", "http://[::1", "http://h:port/", "http://h:99999"]
)
def test_what_is_no_url_is_refused(make: Callable[[str], Storage], url: str) -> None:
    with pytest.raises(StorageError) as caught:
        make(url)
    assert caught.value.kind == ErrorKind.CANNOT_PARSE_URL


def test_redirect(server: ObjectServer, redirects: Redirects) -> None:
    redirects.locations = {
        "/data": f"{redirects.url}/moved",
        "/moved": "again",
        "/again": f"http+icechunk://127.0.0.1:{server.port}/folder/of%20ice",
    }
    storage = redirect_storage(f"{redirects.url}/data")
    assert redirects.asked == []
    assert repr(storage) == f"<frazil.Storage>\ntype: redirect\nurl: {redirects.url}/data\n"
    _writes_are_refused(storage)
    redirects.failures = 2
    _read(storage)
    assert redirects.asked == ["/data"] * 3 + ["/moved", "/again"]
    _read(pickle.loads(pickle.dumps(storage)))
    assert len(redirects.asked) == 5
    _read(storage.with_settings(StorageSettings()))
    assert redirects.asked[5:] == ["/data", "/moved", "/again"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://b/p/q?region=eu-west-1", "type: S3 (native)\nbucket: b\nprefix: p/q\nregion: eu-west-1\n"),
        ("gs://b/p", "type: GCS\nbucket: b\nprefix: p\n"),
        ("gcs://b/p", "type: GCS\nbucket: b\nprefix: p\n"),
        ("r2://b/p?account_id=7", "endpoint_url: https://7.r2.cloudflarestorage.com\nanonymous: True\n"),
        ("tigris://b/p?region=iad", "region: iad\nendpoint_url: https://t3.storage.dev\n"),
        ("az://c/p?account=a", "type: Azure\naccount: a\ncontainer: c\nprefix: p\n"),
        ("https+ic://127.0.0.1:9/x", "type: HTTP\nurl: https://127.0.0.1:9/x\n"),
    ],
)
def test_targets(url: str, expected: str) -> None:
    storage = storage_of_redirect(url)
    assert expected in repr(storage)
    assert storage.is_read_only


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("s3://b/p", "query parameter 'region'"),
        ("r2://b/p", "query parameter 'account_id'"),
        ("file:///etc", "the scheme must be one of"),
        ("memory://", "the scheme must be one of"),
        ("/loop", "more than 10 times"),
        ("/missing", "got status 404"),
        ("http://127.0.0.1:9/", "failed"),
    ],
)
def test_bad_redirects(redirects: Redirects, location: str, message: str) -> None:
    redirects.locations = {"/data": location, "/loop": "/loop"}
    with pytest.raises(StorageError, match=message) as caught:
        redirect_storage(f"{redirects.url}/data").get("repo")
    assert caught.value.kind == ErrorKind.BAD_REDIRECT


def test_a_server_without_ranges(tmp_path: Path) -> None:
    repository = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    with repository.transaction("main", message="first") as store:
        zarr.create_array(store, shape=(4, 1000), chunks=(1, 1000), dtype="f8", compressors=None)[:] = 2
    with serve_folder(tmp_path) as server:
        storage = http_storage(server.url)
        whole = bytes(storage.get("repo"))
        assert bytes(storage.get("repo", 2, 5)) == whole[2:5]
        assert bytes(storage.get("repo", 2)) == whole[2:]
        assert bytes(asyncio.run(storage.get_async("repo", 2, 1 << 20))) == whole[2:]
        with pytest.raises(StorageError, match="after its end"):
            storage.get("repo", 1 << 20, 1 << 21)
        web = frazil.Repository.open(storage)
        array: Any = zarr.open_array(web.readonly_session("main").store, mode="r")
        assert (array[:] == 2).all()
        for write in (
            lambda: web.writable_session("main"),
            lambda: frazil.Repository.create(storage),
            lambda: web.create_tag("t", web.lookup_branch("main")),
        ):
            with pytest.raises(ReadOnlyError) as error:
                write()
            assert error.value.kind == ErrorKind.READ_ONLY_STORAGE
