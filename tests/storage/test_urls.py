"""What a URL of a storage means, and its options. ``test_url_entries.py`` shows that all entries agree."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.object_store_config import ObjectStoreConfig, azure_store, gcs_store, http_store, s3_store
from frazil.storage.urls import SECRET_OPTION_NAMES, parse_url, storage_from_url

#: Text -> scheme, account, bucket, key.
URLS = {
    "s3://bucket": ("s3", "", "bucket", ""),
    "s3://bucket/a/b": ("s3", "", "bucket", "a/b"),
    "S3://bucket/a": ("s3", "", "bucket", "a"),
    "s3a://bucket/a": ("s3", "", "bucket", "a"),
    "s3://bucket/what? #1 100%25.nc": ("s3", "", "bucket", "what? #1 100%25.nc"),
    "gs://bucket/a/b": ("gs", "", "bucket", "a/b"),
    "az://account/container": ("az", "account", "container", ""),
    "az://account/container/a/b": ("az", "account", "container", "a/b"),
    "abfs://container@account.dfs.core.windows.net/a/b": ("az", "account", "container", "a/b"),
    "abfss://container@account.blob.core.windows.net/a": ("az", "account", "container", "a"),
    "http://127.0.0.1:8000/a/b": ("http", "", "127.0.0.1:8000", "a/b"),
    "https://me:secret@example.org/a%20b?sig=1": ("https", "", "me:secret@example.org", "a%20b"),
}
#: Text -> path.
PATHS = {
    "/data/ice": "/data/ice",
    "/data/ice/": "/data/ice",
    "/data/what? #1 100%25": "/data/what? #1 100%25",
    "file:///data/ice": "/data/ice",
    "FILE:///data/a%20b": "/data/a b",
    "file://localhost/data/ice": "/data/ice",
}
NOT_URLS = (
    *("", "ftp://host/x", "hdfs:/ice", "r2://bucket/a", "mailto:me", "s3:bucket/a", "s3:/bucket/a", "s3://"),
    *("az://", "az://account", "abfs://container@account.example.org/a", "http://", "http://host:port/a"),
    *("http://[::1/a", "file:data", "file://host/data", "file:", "file:///a%00b", "/a\0b"),
)


@pytest.mark.parametrize(("text", "expected"), URLS.items())
def test_parts(text: str, expected: tuple[str, str, str, str]) -> None:
    url = parse_url(text)
    assert (url.scheme, url.account, url.bucket, url.key) == expected
    assert not url.is_local
    assert not url.path
    assert parse_url(url.url) == url
    assert pickle.loads(pickle.dumps(url)) == url


@pytest.mark.parametrize(("text", "path"), PATHS.items())
def test_paths(text: str, path: str) -> None:
    url = parse_url(text)
    assert url.is_local
    assert url.path == path
    assert parse_url(url.url).path == path
    assert repr(url.storage()) == repr(frazil.local_filesystem_storage(path))


def test_paths_without_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home of a user")
    assert parse_url("ice").path == str(tmp_path / "ice")
    assert parse_url("run-2024-05-01T00:00.nc").path == str(tmp_path / "run-2024-05-01T00:00.nc")
    assert parse_url("~/ice").path == "/home of a user/ice"
    assert parse_url(Path("~/ice")).path == "/home of a user/ice"


@pytest.mark.parametrize("text", NOT_URLS)
def test_texts_that_are_no_urls(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"must be .*, got ") as caught:
        parse_url(text)
    assert caught.value.kind == ErrorKind.CANNOT_PARSE_URL


def test_messages_show_no_secrets() -> None:
    for text in ("http://me:secret@host:port/a?sig=secret", "ftp://me:secret@host/a"):
        with pytest.raises(InvalidInputError) as caught:
            parse_url(text)
        assert "secret" not in str(caught.value)
    for name in SECRET_OPTION_NAMES:
        with pytest.raises(InvalidInputError) as caught:
            storage_from_url("https://host/a", {name: "secret"})
        assert "secret" not in str(caught.value).replace(name, "")


@pytest.mark.parametrize(
    ("text", "url", "key"),
    [
        ("s3://bucket/a//b? #.nc", "s3://bucket", "a//b? #.nc"),
        ("az://account/container/a/b", "az://account/container", "a/b"),
        ("https://host/a/b%20c", "https://host", "a/b c"),
        ("https://host/a?sig=1", "https://host?sig=1", "a"),
        ("/data/a.nc", "file:///data", "a.nc"),
    ],
)
def test_keys(text: str, url: str, key: str) -> None:
    bucket, actual = parse_url(text).split_key()
    assert (bucket.url, actual) == (url, key)


def test_locations_of_virtual_chunks() -> None:
    container = parse_url("abfs://container@account.dfs.core.windows.net/a")
    assert container.chunk_location == "az://container/a"
    assert parse_url("/data/a b.nc").chunk_location == "file:///data/a%20b.nc"


# ---- options ----------------------------------------------------------------------------------------

KEY: dict[str, Any] = {"access_key_id": "k", "secret_access_key": "s"}
ENDPOINT = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (
            "s3://b/p",
            {"region": "r", "endpoint-url": ENDPOINT, "requester_pays": True, "session-token": "t", **KEY},
            frazil.s3_storage(
                bucket="b",
                prefix="p",
                region="r",
                endpoint_url=ENDPOINT,
                allow_http=True,
                force_path_style=True,
                requester_pays=True,
                session_token="t",
                **KEY,
            ),
        ),
        (
            "s3://b/p",
            {"endpoint_url": "https://host", "force-path-style": "false", "anonymous": "true"},
            frazil.s3_storage(bucket="b", prefix="p", endpoint_url="https://host", anonymous=True),
        ),
        (
            "gs://b/p",
            {"endpoint-url": ENDPOINT, "bearer-token": "t", "region": "has no effect"},
            frazil.gcs_storage(
                bucket="b", prefix="p", bearer_token="t", config={"base_url": ENDPOINT, "allow_http": "true"}
            ),
        ),
        (
            "az://a/c/p",
            {"endpoint_url": ENDPOINT, "account-key": "k", "account": "a"},
            frazil.azure_storage(
                account="a",
                container="c",
                prefix="p",
                access_key="k",
                config={"endpoint": ENDPOINT, "allow_http": "true"},
            ),
        ),
        (
            "az://a/c/p",
            {"access_key": "k"},
            frazil.azure_storage(account="a", container="c", prefix="p", access_key="k"),
        ),
        ("/data/ice", {"secret-access-key": "has no effect"}, frazil.local_filesystem_storage("/data/ice")),
        (
            "https://h/p",
            {"headers": {"a": "b"}, "opts": {"timeout": "3s"}, "anonymous": "true"},
            frazil.http_storage("https://h/p", {"timeout": "3s"}, {"a": "b"}),
        ),
    ],
)
def test_options(text: str, options: dict[str, Any], expected: frazil.Storage) -> None:
    storage = parse_url(text).storage(options)
    assert repr(storage) == repr(expected)
    bucket = getattr(expected, "bucket", None)
    assert getattr(storage, "bucket", None) == bucket


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("s3://b", {"regoin": "r"}, "got 'regoin'"),
        ("s3://b", {"anonymous": "perhaps"}, "must be true or false, got 'perhaps'"),
        ("s3://b", {"account_key": "k"}, "s3:// URLs must not have account_key"),
        ("gs://b", KEY, "must not have access_key_id, secret_access_key"),
        ("https://h", {"sas-token": "t"}, "must not have sas_token"),
        ("gs://b", {"requester_pays": True}, "must not have requester_pays"),
        ("az://container/key", {"account": "mine"}, "az://account/container/prefix"),
    ],
)
def test_options_that_do_not_fit(text: str, options: dict[str, Any], message: str) -> None:
    url = "az://container/key/of" if text.startswith("az:") else text
    with pytest.raises(InvalidInputError, match=message) as caught:
        parse_url(url).storage(options)
    assert caught.value.kind == ErrorKind.NOT_ALLOWED


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("/data/a", {}, ObjectStoreConfig.LocalFileSystem("/data/a")),
        ("s3://b/p", {"region": "r"}, s3_store(region="r")),
        (
            "s3://b/p",
            {"endpoint_url": ENDPOINT},
            s3_store(endpoint_url=ENDPOINT, allow_http=True, s3_compatible=True, force_path_style=True),
        ),
        ("s3://b/p", {"anonymous": True}, s3_store(anonymous=True)),
        ("gs://b/p", {}, gcs_store()),
        ("gs://b/p", {"bearer_token": "secret"}, gcs_store()),
        ("az://a/c/p", {}, azure_store(account="a")),
        ("https://h/p", {}, http_store()),
    ],
)
def test_stores_of_containers(text: str, options: dict[str, Any], expected: object) -> None:
    assert parse_url(text).store_config(options) == expected
