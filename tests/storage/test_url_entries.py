"""A URL means the same in Python, on the command line, in SQL options and for the files of an ingest."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.loopback_http import serve_folder

import frazil
from frazil.cli.opening import storage_of
from frazil.readers.files import find_file
from frazil.repository.target import parse_target

if TYPE_CHECKING:
    from tests.support.servers import RunningServer

type Options = dict[str, str]

CONTENT = b"the bytes of one object"
PREFIX = "a prefix/of two"


@dataclass(frozen=True)
class Target:
    """A storage with one object ``object``: its URLs, and its options in Python and in the environment."""

    urls: tuple[str, ...]
    options: Options
    environment: Options


# ---- the entries: each reads the object below a URL --------------------------------------------------


def from_python(url: str, options: Options) -> bytes:
    return bytes(frazil.storage_from_url(url, options).get("object"))


def from_command_line(url: str, options: Options) -> bytes:
    if options:
        pytest.skip("the command line takes the options from the environment")
    return bytes(storage_of(parse_target(url)).get("object"))


def from_sql(url: str, options: Options) -> bytes:
    pytest.importorskip("pyspark")
    from frazil.spark.tables import options as location

    hyphenated = {name.replace("_", "-"): value for name, value in options.items()}
    return bytes(location.storage_at({"path": url, **hyphenated}).get("object"))


def from_ingest(url: str, options: Options) -> bytes:
    file = find_file(f"{url}/object", options)
    return file.read(0, file.size)


ENTRIES: tuple[Callable[[str, Options], bytes], ...] = (from_python, from_command_line, from_sql, from_ingest)


# ---- the storages -----------------------------------------------------------------------------------


def fill(server: RunningServer) -> str:
    """Make a bucket with one object; its name."""
    bucket = f"bucket-{secrets.token_hex(8)}"
    server.make_bucket(bucket)
    server.storage(bucket, PREFIX).put("object", CONTENT)
    return bucket


def s3(server: RunningServer) -> Target:
    rest = f"{fill(server)}/{PREFIX}"
    endpoint = f"http://127.0.0.1:{server.port}"
    keys = {"access_key_id": "testkey", "secret_access_key": "testsecret"}
    variables = {f"AWS_{name.upper()}": value for name, value in keys.items()}
    return Target(
        (f"s3://{rest}", f"s3a://{rest}", f"s3n://{rest}"),
        {"region": "us-east-1", "endpoint_url": endpoint, **keys},
        {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint, **variables},
    )


def google(server: RunningServer) -> Target:
    rest = f"{fill(server)}/{PREFIX}"
    endpoint = f"http://127.0.0.1:{server.port}"
    return Target(
        (f"gs://{rest}", f"gcs://{rest}"),
        {"endpoint_url": endpoint, "bearer_token": "test"},
        {"GOOGLE_BASE_URL": endpoint, "GOOGLE_BEARER_TOKEN": "test"},
    )


ENTRY = pytest.mark.parametrize("entry", ENTRIES)


@pytest.mark.parametrize(
    ("make", "name"),
    [(s3, "ministack"), (google, "gcs"), pytest.param(s3, "ceph", marks=pytest.mark.servers)],
)
@pytest.mark.parametrize("source", ["options", "environment"])
@ENTRY
def test_servers(
    entry: Callable[[str, Options], bytes],
    source: str,
    make: Callable[[RunningServer], Target],
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = make(request.getfixturevalue(name))
    if source == "environment":
        for variable, value in target.environment.items():
            monkeypatch.setenv(variable, value)
    for url in target.urls:
        assert entry(url, target.options if source == "options" else {}) == CONTENT, url


@ENTRY
def test_files_and_the_web(
    entry: Callable[[str, Options], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "object").write_bytes(CONTENT)
    monkeypatch.chdir(tmp_path)
    with serve_folder(tmp_path) as server:
        web = f"{server.url}/a%20folder"
        for url in (str(folder), "a folder", folder.as_uri(), f"file:{folder}", web):
            assert entry(url, {}) == CONTENT, url
