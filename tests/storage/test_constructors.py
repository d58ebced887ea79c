from __future__ import annotations

import pickle
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.object_server import Conditions, ObjectServer
from tests.support.patience import patience

import frazil
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, ReadOnlyError, StorageError
from frazil.storage.base import IfAbsent, Stored
from frazil.storage.buckets import s3_addressing
from frazil.storage.object_store_config import ChecksumAlgorithm, S3Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.servers import RunningServer

    from frazil.storage.base import Storage


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("bucket")
        server.make_bucket("account")
        yield server


def _s3(server: ObjectServer, **options: Any) -> Storage:
    return frazil.s3_storage(bucket="bucket", prefix="p", endpoint_url=server.url, allow_http=True, **options)


_SECRET = "TOP-SECRET"
_S3_KEY: dict[str, Any] = {
    "access_key_id": "AKIAEXAMPLE",
    "secret_access_key": _SECRET,
    "session_token": _SECRET,
}

_MAKE: dict[str, Callable[[], Storage]] = {
    "s3": lambda: frazil.s3_storage(bucket="b", prefix="p", **_S3_KEY),
    "r2": lambda: frazil.r2_storage(bucket="b", prefix="p", account_id="id", **_S3_KEY),
    "tigris": lambda: frazil.tigris_storage(bucket="b", prefix="p", region="iad", **_S3_KEY),
    "hf": lambda: frazil.hf_storage(bucket="b", prefix="p", namespace="me", **_S3_KEY),
    "gcs": lambda: frazil.gcs_storage(bucket="b", prefix="p", bearer_token=_SECRET),
    "azure": lambda: frazil.azure_storage(account="a", container="c", prefix="p", access_key=_SECRET),
    "http": lambda: frazil.http_storage("https://127.0.0.1/p", headers={"authorization": _SECRET}),
    "redirect": lambda: frazil.redirect_storage("https://127.0.0.1/p"),
}


@pytest.mark.parametrize("name", _MAKE)
def test_no_secret_is_printed(name: str) -> None:
    storage = _MAKE[name]()
    assert repr(storage).startswith("<frazil.Storage>\ntype: ")
    for text in (repr(storage), str(storage), repr(getattr(storage, "bucket", ""))):
        assert _SECRET not in text
    assert repr(pickle.loads(pickle.dumps(storage))) == repr(storage)


def test_what_is_sent(server: ObjectServer) -> None:
    storage = _s3(
        server,
        access_key_id="AKIAEXAMPLE",
        secret_access_key=_SECRET,
        session_token="session",
        requester_pays=True,
        checksum_algorithm=ChecksumAlgorithm.Sha256,
        headers={"x-both": "1", "x-mine": "1"},
        read_headers={"x-mine": "read"},
        write_headers={"x-mine": "write"},
    ).with_settings(frazil.StorageSettings(storage_class="STANDARD_IA", chunks_storage_class="GLACIER_IR"))
    storage.put("chunks/a", b"1")
    storage.put("repo", b"1", IfAbsent())
    storage.get("repo")
    chunk, repo, read = (request.headers for request in server.requests)
    assert (chunk["x-mine"], read["x-mine"], read["x-both"]) == ("write", "read", "1")
    assert chunk["x-amz-storage-class"] == "GLACIER_IR"
    assert repo["x-amz-storage-class"] == "STANDARD_IA"
    assert repo["x-amz-request-payer"] == "requester"
    assert repo["x-amz-security-token"] == "session"
    assert "Credential=AKIAEXAMPLE/" in repo["authorization"]
    assert "x-amz-checksum-sha256" in repo
    assert repo["if-none-match"] == "*"


def test_static_keys_are_not_mixed_with_the_environment(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROMENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    given: dict[str, Any] = {"access_key_id": "GIVEN", "secret_access_key": "s"}
    for keys in (given, {"anonymous": True}, {"from_env": True}, {}):
        _s3(server, **keys).head("repo")
        headers = server.requests.pop().headers
        if "access_key_id" in keys:
            assert "Credential=GIVEN/" in headers["authorization"]
            assert "x-amz-security-token" not in headers
        elif "anonymous" in keys:
            assert "authorization" not in headers
        else:
            assert "Credential=FROMENV/" in headers["authorization"]


@pytest.mark.parametrize(
    ("profile", "in_environment", "expected"),
    [
        (None, None, "DEFAULTKEY/{}/eu-west-1/"),
        ("work", None, "WORKKEY/{}/us-east-1/"),
        ("work", "ENVKEY", "ENVKEY/{}/us-east-1/"),
    ],
)
def test_keys_of_a_profile(
    server: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profile: str | None,
    in_environment: str | None,
    expected: str,
) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = DEFAULTKEY\naws_secret_access_key = s%s\n"
        "[work]\naws_access_key_id = WORKKEY\naws_secret_access_key = s\naws_session_token = t\n"
    )
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n[profile work]\noutput = json\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    if profile is not None:
        monkeypatch.setenv("AWS_PROFILE", profile)
    if in_environment is not None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", in_environment)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    _s3(server).head("repo")
    headers = server.requests[-1].headers
    assert f"Credential={expected.format(headers['x-amz-date'][:8])}" in headers["authorization"]
    assert headers.get("x-amz-security-token") == ("t" if expected.startswith("WORKKEY") else None)


def test_a_broken_profile_is_an_error_of_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text("no section\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(StorageError) as caught:
        frazil.s3_storage(bucket="bucket", prefix="p").head("repo")
    assert caught.value.kind == ErrorKind.STORAGE_CONFIG


def test_anonymous_gcs_asks_nobody_for_a_token(server: ObjectServer) -> None:
    config = {"base_url": server.url, "allow_http": "true"}
    storage = frazil.gcs_storage(bucket="bucket", prefix="p", anonymous=True, config=config)
    # It would have to ask the metadata address, which is a closed port here: that would be an error.
    storage.put("repo", b"1")
    assert bytes(storage.get("repo")) == b"1"
    assert [info.key for info in storage.list("")] == ["repo"]
    storage.delete(["repo"])
    reads = [request for request in server.requests if request.path.endswith("repo")][1]
    assert "authorization" not in reads.headers


@pytest.mark.parametrize(
    ("bucket", "endpoint", "force", "expected"),
    [
        ("bucket", "https://minio.example.org:9000", False, ("https://bucket.minio.example.org:9000", True)),
        ("bucket", "https://minio.example.org", True, ("https://minio.example.org", False)),
        ("with.dots", "https://minio.example.org", False, ("https://minio.example.org", False)),
        ("bucket", "http://127.0.0.1:9000", False, ("http://127.0.0.1:9000", False)),
        ("bucket", "http://[::1]:9000", False, ("http://[::1]:9000", False)),
        ("bucket", "http://localhost:9000", False, ("http://localhost:9000", False)),
        ("bucket", None, False, (None, True)),
        ("with.dots", None, False, (None, False)),
    ],
)
def test_addressing(bucket: str, endpoint: str | None, force: bool, expected: tuple[str, bool]) -> None:
    options = S3Options(endpoint_url=endpoint, force_path_style=force)
    assert s3_addressing(bucket, options) == expected


# credentials from a function

_calls: list[datetime] = []


def _keys(lifetime: int = 60) -> frazil.S3StaticCredentials:
    _calls.append(datetime.now(UTC))
    expires = _calls[-1] + timedelta(seconds=lifetime)
    return frazil.S3StaticCredentials(f"KEY{len(_calls)}", "s", expires_after=expires)


def _token() -> frazil.GcsBearerCredential:
    return frazil.GcsBearerCredential("from-a-function")


def test_refreshable_credentials(server: ObjectServer) -> None:
    _calls.clear()
    storage = pickle.loads(pickle.dumps(_s3(server, get_credentials=_keys)))
    assert not _calls
    for _ in range(3):
        storage.head("repo")
        time.sleep(0.3)
    # Kept until they are about to expire, though the client asks anew from five minutes before.
    assert len(_calls) == 1
    assert "Credential=KEY1/" in server.requests[-1].headers["authorization"]


def test_scattered_credentials_travel_until_they_expire(server: ObjectServer) -> None:
    for function, expected in ((_keys, 1), (partial(_keys, -60), 2)):
        _calls.clear()
        storage = _s3(server, get_credentials=function, scatter_initial_credentials=True)
        assert len(_calls) == 1
        pickle.loads(pickle.dumps(storage)).head("repo")
        assert len(_calls) == expected


def test_refreshable_gcs_token(server: ObjectServer) -> None:
    config = {"google_base_url": server.url, "allow_http": "true"}
    storage = frazil.gcs_storage(bucket="bucket", prefix="p", get_credentials=_token, config=config)
    storage.head("repo")
    assert server.requests[-1].headers["authorization"] == "Bearer from-a-function"


def test_azure(server: ObjectServer) -> None:
    config = {"azure_endpoint": f"{server.url}/account", "allow_http": "true"}
    ways: list[Any] = [{"access_key": "a2V5"}, {"bearer_token": "bearer"}, {"anonymous": True}]
    for arguments in ways:
        storage = frazil.azure_storage(account="a", container="c", prefix="p", config=config, **arguments)
        assert storage.head("repo") is None
    headers = [request.headers.get("authorization", "") for request in server.requests]
    assert headers[0].startswith("SharedKey a:")
    assert headers[1:] == ["Bearer bearer", ""]


# Tigris, R2


def test_tigris(server: ObjectServer) -> None:
    given: dict[str, Any] = {"access_key_id": "k", "secret_access_key": "s", "endpoint_url": server.url}
    make = partial(frazil.tigris_storage, bucket="bucket", prefix="p", allow_http=True, **given)
    with pytest.raises(StorageError, match="region") as caught:
        make()
    assert caught.value.kind == ErrorKind.STORAGE_OTHER
    strong = make(region="iad")
    strong.put("repo", b"1")
    sent = server.requests[-1].headers
    assert (sent["x-tigris-consistent"], sent["x-tigris-regions"]) == ("true", "iad")
    weak = make(use_weak_consistency=True)
    assert bytes(weak.get("repo")) == b"1"
    assert "x-tigris-consistent" not in server.requests[-1].headers
    assert weak.is_read_only
    with pytest.raises(ReadOnlyError) as refused:
        weak.put("repo", b"2")
    assert refused.value.kind == ErrorKind.READ_ONLY_STORAGE


def test_r2_and_hf() -> None:
    assert "endpoint_url: https://s3.hf.co/me\n" in repr(
        frazil.hf_storage(bucket="b", prefix="p", namespace="me")
    )
    with pytest.raises(InvalidInputError):
        frazil.s3_storage(bucket="b", prefix="p", legacy_rooted_keys=True)
    text = repr(frazil.r2_storage(prefix="the-bucket/the/prefix", account_id="id", anonymous=True))
    assert "bucket: the-bucket\nprefix: the/prefix\nregion: auto\n" in text
    assert "endpoint_url: https://id.r2.cloudflarestorage.com\n" in text
    incomplete: list[dict[str, Any]] = [{"bucket": "b"}, {"account_id": "id"}]
    for arguments in incomplete:
        with pytest.raises(StorageError) as caught:
            frazil.r2_storage(**arguments)
        assert caught.value.kind == ErrorKind.STORAGE_CONFIG


# mistakes


@pytest.mark.parametrize(
    "make",
    [
        lambda: frazil.gcs_storage(bucket="b", prefix="p", bearer_token="t", config={"nonsense": "1"}),
        lambda: frazil.azure_storage(
            account="a", container="c", prefix="p", anonymous=True, config={"nonsense": "1"}
        ),
        lambda: frazil.http_storage("http://127.0.0.1:9", opts={"timeout": "eternal"}),
        lambda: frazil.s3_storage(
            bucket="b", prefix="p", anonymous=True, checksum_algorithm=ChecksumAlgorithm.Sha1
        ),
    ],
)
def test_unknown_options_are_an_error_of_configuration(make: Callable[[], Storage]) -> None:
    with pytest.raises(IcechunkError) as caught:
        make().head("repo")
    assert caught.value.kind == ErrorKind.STORAGE_CONFIG


# settings


def test_timeouts_and_retries_reach_the_client() -> None:
    storage = frazil.s3_storage(bucket="b", prefix="p", anonymous=True).with_settings(
        frazil.StorageSettings(
            retries=frazil.StorageRetriesSettings(3, 7, 11),
            timeouts=frazil.StorageTimeoutSettings(1000, 2000, 3000, 4000),
        )
    )
    client = storage._read_client()  # type: ignore[attr-defined]
    assert client.retry_config["max_retries"] == 2
    assert client.retry_config["retry_timeout"] == timedelta(seconds=3)
    assert client.retry_config["backoff"]["init_backoff"] == timedelta(milliseconds=7)
    assert client.retry_config["backoff"]["max_backoff"] == timedelta(milliseconds=11)
    expected_options = {"connect_timeout": "1s", "read_timeout": "2s", "timeout": "4s"}
    assert client.client_options.items() >= expected_options.items()
    for given, expected in ((60, "1m"), (5, "5s"), (0, None)):
        storage = frazil.s3_storage(
            bucket="b", prefix="p", anonymous=True, network_stream_timeout_seconds=given
        )
        client = storage._read_client()  # type: ignore[attr-defined]
        assert client.client_options.get("read_timeout") == expected


def test_large_writes_go_in_parts(server: ObjectServer) -> None:
    storage = _s3(server, anonymous=True).with_settings(
        frazil.StorageSettings(
            minimum_size_for_multipart_upload=6 << 20,
            concurrency=frazil.StorageConcurrencySettings(2, 5 << 20),
        )
    )
    data = bytes(range(256)) * (11 << 12)
    storage.put("chunks/a", data)
    assert sum("partNumber" in request.path for request in server.requests) == 3
    assert bytes(storage.get("chunks/a")) == data
    server.requests.clear()
    assert isinstance(storage.put("repo", data, IfAbsent()), Stored)
    assert [request.method for request in server.requests] == ["PUT"]


# forks

_FORKED = """
import os, sys, pickle
from frazil.errors import StorageError
storage = pickle.loads(bytes.fromhex(sys.argv[1]))
if sys.argv[2] == "used":
    storage.get("repo")
child = os.fork()
if child == 0:
    try:
        content = bytes(storage.get("repo"))
    except StorageError as error:
        os._exit(7 if error.kind == "forked-process" else 1)
    os._exit(0 if content == b"1" else 2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(("used", "expected"), [("used", "7"), ("unused", "0")])
def test_a_forked_child_gets_an_error_and_does_not_hang(
    used: str, expected: str, ministack: RunningServer
) -> None:
    storage = ministack.storage()
    storage.put("repo", b"1")
    command = [sys.executable, "-W", "ignore", "-c", _FORKED, pickle.dumps(storage).hex(), used]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30))
    assert done.stdout.strip() == expected, done.stderr
