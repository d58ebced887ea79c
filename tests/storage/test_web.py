"""Requests to web servers stay with the server that they were meant for."""

from __future__ import annotations

import asyncio
import gzip
import pickle
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.repository.hostile import DATA, Listener, hostile, listening, read

import frazil
from frazil.credentials import HttpAccess
from frazil.errors import InvalidInputError, StorageError
from frazil.storage.foreign_objects import open_foreign
from frazil.storage.object_store_config import http_store, s3_store
from frazil.storage.settings import StorageRetriesSettings, StorageSettings
from frazil.storage.web_client import _is_same_server, web_options

HEADERS = {"X-Api-Key": "secret", "Authorization": "Bearer secret", "Cookie": "secret"}
QUICK = StorageSettings(retries=StorageRetriesSettings(2, 1, 1))


@pytest.fixture
def server() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


@pytest.fixture
def other() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


def _gets(url: str, options: dict[str, str] | None = None) -> list[Callable[[], Any]]:
    storage = frazil.http_storage(url, options, HEADERS)
    copy = pickle.loads(pickle.dumps(storage))
    foreign = open_foreign(http_store(options, HEADERS), HttpAccess, f"{url}/")
    return [
        lambda: storage.get("x"),
        lambda: storage.get("x", 0, 8),
        lambda: copy.get_versioned("x")[0],
        lambda: asyncio.run(storage.with_settings(StorageSettings()).get_async("x")),
        lambda: foreign.get(f"{url}/x", 0, 8),
        lambda: asyncio.run(pickle.loads(pickle.dumps(foreign)).get_async(f"{url}/x", 0, 8)),
    ]


def _heads(url: str) -> list[Callable[[], Any]]:
    return [
        lambda: frazil.http_storage(url, None, HEADERS).head("x"),
        lambda: open_foreign(http_store(None, HEADERS), HttpAccess, f"{url}/").size(f"{url}/x"),
    ]


def test_a_redirect_to_another_server_is_refused(server: Listener, other: Listener) -> None:
    port = server.url.rpartition(":")[2]
    for target in (
        f"{other.url}/x",
        f"//{other.url.removeprefix('http://')}/x",
        f"http://localhost:{port}/x",
        f"https://127.0.0.1:{port}/x",
        f"{server.url}@{other.url.removeprefix('http://')}/x",
        "file:///etc/passwd",
        "s3://bucket/x",
        "http://[::1/x",
    ):
        server.redirects["/x"] = target
        for ask in _gets(server.url) + _heads(server.url):
            with pytest.raises(StorageError) as error:
                ask()
            assert error.value.kind == "redirect-refused"
    assert other.visits == []


def test_a_redirect_on_the_same_server_is_followed_with_headers(server: Listener) -> None:
    server.redirects = {"/x": "/moved", "/moved": f"{server.url}/again"}
    for get in _gets(server.url):
        server.visits.clear()
        assert bytes(get()) == DATA
        assert [each.line.split()[1] for each in server.visits] == ["/x", "/moved", "/again"]
        assert all(each.headers["x-api-key"] == "secret" for each in server.visits)
    server.redirects["/again"] = "/x"
    with pytest.raises(StorageError, match="redirects more than 10 times"):
        _gets(server.url)[0]()


def test_the_user_may_follow_redirects_without_headers(server: Listener, other: Listener) -> None:
    server.redirects["/x"] = f"{other.url}/y"
    for get in _gets(server.url, {"follow_redirects": "true"}):
        other.visits.clear()
        assert bytes(get()) == DATA
        assert "secret" not in other.everything
        assert len(other.visits) == 1


def test_a_repository_may_not(server: Listener, other: Listener) -> None:
    server.redirects["/data"] = f"{other.url}/data"
    prefix = f"{server.url}/"
    theirs = hostile(prefix, {"http": {"follow_redirects": "true"}})
    with pytest.raises(InvalidInputError) as error:
        read(frazil.Repository.open(theirs, None, {prefix: HttpAccess}))
    assert error.value.kind == "untrusted-virtual-chunk-container"
    with pytest.raises(StorageError) as refused:
        read(frazil.Repository.open(hostile(prefix, {"http": {}}), None, {prefix: HttpAccess}))
    assert refused.value.kind == "redirect-refused"
    assert other.visits == []


@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(DATA, mtime=0), "content-encoding 'gzip'"),
        ({"Content-Encoding": "gzip"}, DATA, "content-encoding 'gzip'"),
        ({"Content-Encoding": "identity, br"}, DATA, "content-encoding 'identity, br'"),
        ({}, DATA + b"more", "the 8 bytes of its range, got more"),
        ({"Content-Range": None}, DATA, "content-range"),
        ({"Content-Range": "bytes 8-15/16"}, DATA, "range|end"),
        ({"Content-Encoding": "aws-chunked"}, DATA, None),
    ],
)
def test_an_answer_that_is_not_the_range(
    server: Listener, headers: dict[str, str | None], body: bytes, message: str | None
) -> None:
    server.headers, server.body = headers, body
    store = s3_store(region="x", endpoint_url=server.url, allow_http=True, force_path_style=True)
    settings = StorageSettings(retries=StorageRetriesSettings(1))
    objects = open_foreign(store, None, "s3://bucket/", settings)
    from_bucket: list[Callable[[], Any]] = [
        lambda: objects.get("s3://bucket/x", 0, 8),
        lambda: asyncio.run(objects.get_async("s3://bucket/x", 0, 8)),
    ]
    for get in [*_gets(server.url)[1::3], *from_bucket]:
        if message is None:
            assert bytes(get()) == DATA
            continue
        # The client of buckets has its own words for ranges.
        is_ours = get not in from_bucket or "encoding" in message
        with pytest.raises(StorageError, match=message if is_ours else "virtual"):
            get()


@pytest.mark.parametrize(
    ("url", "target", "same"),
    [
        ("http://h/a", "http://H:80/b", True),
        ("http://h/a", "https://h/a", True),
        ("https://h/a", "https://h:443/b", True),
        ("https://h/a", "http://h/a", False),
        ("http://h:8080/a", "https://h/a", False),
        ("https://h/a", "https://h.evil.example/a", False),
        ("https://h/a", "https://h:444/a", False),
    ],
)
def test_what_one_server_is(url: str, target: str, same: bool) -> None:
    assert _is_same_server(url, target) is same


def test_options() -> None:
    assert web_options({"timeout": "500ms"}, StorageSettings()).timeout == 0.5
    assert web_options({"timeout": "2 minutes", "read_timeout": "1h"}, StorageSettings()).timeout == 120
    assert web_options({"connect_timeout": "1s", "timeout": "9s"}, StorageSettings()).connect_timeout == 1
    assert web_options({"allow_invalid_certificates": "true"}, QUICK).tls().verify_mode == ssl.CERT_NONE
    assert web_options({}, QUICK).tls().verify_mode == ssl.CERT_REQUIRED
    for wrong in ({"timeout": "soon"}, {"timeout": "3 days ago"}, {"follow_redirects": "maybe"}):
        with pytest.raises(StorageError) as error:
            frazil.http_storage("http://h/", wrong)
        assert error.value.kind == "storage-config"


BAD_HEADERS = [{"bad name": "x"}, {"X\r\nY": "x"}, {"é": "x"}, {"X": "a\nb: secret"}, {"X": "\x00secret"}]


@pytest.mark.parametrize("headers", BAD_HEADERS)
def test_headers_that_http_does_not_allow(headers: dict[str, str]) -> None:
    makes: list[Callable[[], Any]] = [
        lambda: frazil.http_storage("http://127.0.0.1:9/", headers=headers),
        lambda: http_store(headers=headers),
        lambda: frazil.s3_storage(bucket="b", prefix="p", anonymous=True, headers=headers),
        lambda: frazil.s3_storage(bucket="b", prefix="p", anonymous=True, read_headers=headers),
        lambda: frazil.s3_storage(bucket="b", prefix="p", anonymous=True, write_headers=headers),
        lambda: frazil.gcs_storage(bucket="b", prefix="p", anonymous=True, headers=headers),
        lambda: frazil.r2_storage(bucket="b", prefix="p", account_id="a", anonymous=True, headers=headers),
        lambda: frazil.tigris_storage(bucket="b", prefix="p", region="r", anonymous=True, headers=headers),
        lambda: frazil.VirtualChunkContainer(
            "http://h/", frazil.config.ObjectStoreConfig.Http(None, headers)
        ).validate(),
    ]
    for make in makes:
        with pytest.raises(InvalidInputError) as error:
            make()
        assert error.value.kind == "storage-config"
        assert "secret" not in str(error.value)
