"""What users read when a storage fails: the cause first, then what to do, and never a wrong cause."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.messages import check
from tests.support.loopback_http import LoopbackHttp, QuietHandler

import frazil
from frazil.errors import ErrorKind
from frazil.storage.base import IfAbsent, Storage
from frazil.storage.credential_families import Credentials
from frazil.storage.foreign_objects import open_foreign
from frazil.testing.processes import free_port

_ONCE: Final = frazil.StorageSettings(
    retries=frazil.StorageRetriesSettings(max_tries=1, initial_backoff_ms=1, max_backoff_ms=1)
)
#: For a server that never answers.
_AT_MOST: Final = frazil.StorageTimeoutSettings(operation_timeout_ms=2000, operation_attempt_timeout_ms=500)
_SHORT: Final = replace(_ONCE, timeouts=_AT_MOST)


# Object stores


def answering(status: int, body: str) -> type[QuietHandler]:
    """A server that gives this answer to every request."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.reply(status, body.encode())

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815  # names of http.server

    return Handler


def s3(endpoint: str, **options: Any) -> Storage:
    arguments = {"access_key_id": "key", "secret_access_key": "secret", "force_path_style": True}
    arguments |= {"bucket": "ice", "prefix": "p", "region": "us-east-1", "allow_http": True}
    return frazil.s3_storage(**{**arguments, "endpoint_url": endpoint, **options}).with_settings(_ONCE)


def gcs(endpoint: str) -> Storage:
    config = {"base_url": endpoint, "allow_http": "true"}
    return frazil.gcs_storage(bucket="ice", prefix="p", bearer_token="t", config=config).with_settings(_ONCE)


def azure(endpoint: str) -> Storage:
    config = {"endpoint": endpoint, "allow_http": "true"}
    storage = frazil.azure_storage(
        account="me", container="ice", prefix="p", access_key="YWJj", config=config
    )
    return storage.with_settings(_ONCE)


def xml(code: str, message: str = "as the server says") -> str:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"


_K = ErrorKind
_GCS_BUCKET: Final = '{"error":{"code":404,"message":"The specified bucket does not exist."}}'
_GCS_ACCESS: Final = '{"error":{"code":403,"message":"me does not have storage.objects.get access"}}'
_REGION: Final = "the region 'us-east-1' is wrong; expecting 'eu-west-1'"
#: A server answers with a status and a body: the kind of error of every read, write and listing, and a word.
ANSWERED: Final = [
    (s3, 404, xml("NoSuchBucket"), _K.BUCKET_NOT_FOUND, "ice"),
    (s3, 403, xml("AccessDenied"), _K.STORAGE_PERMISSION, "AccessDenied"),
    (s3, 403, xml("SignatureDoesNotMatch"), _K.CREDENTIALS_REFUSED, "as the server says"),
    (s3, 400, xml("ExpiredToken"), _K.CREDENTIALS_REFUSED, "get_credentials"),
    (s3, 403, xml("RequestTimeTooSkewed"), _K.CREDENTIALS_REFUSED, "clock"),
    (s3, 400, xml("AuthorizationHeaderMalformed", _REGION), _K.STORAGE_CONFIG, "eu-west-1"),
    (s3, 301, "", _K.STORAGE_CONFIG, "`region`"),
    (s3, 503, xml("SlowDown"), _K.THROTTLED, "SlowDown"),
    (s3, 507, "", _K.STORAGE_FULL, "space"),
    (s3, 401, "", _K.CREDENTIALS_REFUSED, "credentials"),
    (s3, 403, "", _K.STORAGE_PERMISSION, "HTTP 403"),
    (s3, 418, xml("Teapot", "short and stout"), _K.OBJECT_STORE, "short and stout"),
    (gcs, 404, _GCS_BUCKET, _K.BUCKET_NOT_FOUND, "ice"),
    (gcs, 403, _GCS_ACCESS, _K.STORAGE_PERMISSION, "me does not have storage.objects.get access"),
    (azure, 404, xml("ContainerNotFound"), _K.BUCKET_NOT_FOUND, "container 'ice' of account 'me'"),
    (azure, 403, xml("AuthenticationFailed"), _K.CREDENTIALS_REFUSED, "AuthenticationFailed"),
    (azure, 403, xml("AuthorizationFailure"), _K.STORAGE_PERMISSION, "permission"),
]


@pytest.mark.sample(15, 15)
@pytest.mark.deep
@pytest.mark.parametrize(("make", "status", "body", "kind", "word"), ANSWERED)
def test_what_a_server_answers_is_a_cause(
    make: Callable[[str], Storage], status: int, body: str, kind: ErrorKind, word: str
) -> None:
    with LoopbackHttp(answering(status, body)) as server:
        storage = make(server.url)
        calls: list[Callable[[], object]] = [
            lambda: storage.get("repo"),
            lambda: storage.put("chunks/1", b"1"),
            lambda: storage.put("repo", b"1", IfAbsent()),
            lambda: list(storage.list("")),
        ]
        for call in calls:
            error = check(call, frazil.StorageError, kind, word)
            # The traceback shows the client's error too: without its dump.
            assert "RetryErrorImpl" not in str(error.__cause__)


def test_a_word_in_a_name_is_not_a_cause() -> None:
    with LoopbackHttp(
        answering(418, xml("Teapot", "no NoSuchBucket, no SlowDown, no ExpiredToken"))
    ) as server:
        storage = s3(server.url, prefix="NoSuchBucket/latest/api-token")
        check(
            lambda: storage.get("AccessDenied/SlowDown"), frazil.StorageError, ErrorKind.OBJECT_STORE, "418"
        )


def test_a_write_that_a_server_does_not_find_a_place_for() -> None:
    with LoopbackHttp(answering(404, "<html>no such page</html>")) as server:
        storage = s3(server.url)
        check(lambda: storage.put("repo", b"1"), frazil.StorageError, _K.OBJECT_STORE, "404")
        check(lambda: storage.get("repo"), frazil.StorageError, _K.OBJECT_NOT_FOUND, "'repo'")


def test_a_repository_in_a_bucket_that_does_not_exist() -> None:
    with LoopbackHttp(answering(404, xml("NoSuchBucket"))) as server:
        storage = s3(server.url)
        check(
            lambda: frazil.Repository.open(storage),
            frazil.RepositoryNotFoundError,
            _K.BUCKET_NOT_FOUND,
            "ice",
        )
        check(lambda: frazil.Repository.create(storage), frazil.StorageError, _K.BUCKET_NOT_FOUND, "ice")
        assert not frazil.Repository.exists(storage)


def test_anonymous_requests_that_are_refused_need_credentials() -> None:
    with LoopbackHttp(answering(403, xml("AccessDenied"))) as server:
        nobody = {"anonymous": True, "access_key_id": None, "secret_access_key": None}
        storage = s3(server.url, **nobody)
        missing = _K.CREDENTIALS_MISSING
        check(lambda: storage.get("repo"), frazil.StorageError, missing, "access_key_id")


@pytest.mark.parametrize("answer", ["refused", "denied"])
@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: frazil.s3_storage(bucket="ice", prefix="p", region="us-east-1"), "access_key_id"),
        (lambda: frazil.gcs_storage(bucket="ice", prefix="p"), "service_account_file"),
        (lambda: frazil.azure_storage(account="me", container="ice", prefix="p"), "sas_token"),
    ],
)
def test_without_credentials_the_message_says_how_to_give_them(
    make: Callable[[], Storage], word: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackHttp(answering(403, "denied")) as server:
        port = server.port if answer == "denied" else free_port()
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("METADATA_IP", f"127.0.0.1:{port}")
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{port}")
        storage = make().with_settings(_ONCE)
        for call in (lambda: storage.get("repo"), lambda: storage.put("repo", b"1", IfAbsent())):
            check(call, frazil.StorageError, _K.CREDENTIALS_MISSING, word)


def test_servers_that_cannot_be_reached() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"

    def require(endpoint: str, kind: ErrorKind, word: str, **options: Any) -> None:
        check(lambda: s3(endpoint, **options).get("repo"), frazil.StorageError, kind, word)

    require(nobody, _K.STORAGE_UNREACHABLE, nobody)
    require("https://no-such-host.invalid", _K.STORAGE_UNREACHABLE, "DNS")
    require(nobody, _K.STORAGE_CONFIG, "`allow_http`", allow_http=False)
    with LoopbackHttp(answering(200, "")) as server:
        require(f"https://127.0.0.1:{server.port}", _K.STORAGE_UNREACHABLE, "TLS")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        storage = s3(f"http://127.0.0.1:{silent.getsockname()[1]}").with_settings(_SHORT)
        check(lambda: storage.get("repo"), frazil.StorageError, _K.STORAGE_TIMEOUT, "time")


@pytest.mark.parametrize("url", ["localhost:9000", "", "http://", "s3://x", "http://h:99999", "http://[::1"])
@pytest.mark.parametrize("make", [s3, gcs, azure])
def test_an_endpoint_that_is_no_address(make: Callable[[str], Storage], url: str) -> None:
    check(lambda: make(url).get("repo"), frazil.StorageError, _K.STORAGE_CONFIG, f"{url!r}")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a?b", ".."])
def test_a_bucket_whose_name_is_none(name: str) -> None:
    storage = s3("http://127.0.0.1:9", bucket=name)
    check(lambda: storage.get("repo"), frazil.StorageError, _K.STORAGE_CONFIG, f"{name!r}")


def test_a_function_for_credentials_that_fails() -> None:
    storage = s3("http://127.0.0.1:9", access_key_id=None, secret_access_key=None, get_credentials=_fail)
    failed = _K.INVALID_CREDENTIALS
    check(lambda: storage.get("repo"), frazil.StorageError, failed, "RuntimeError: the vault is closed")


def _fail() -> frazil.S3StaticCredentials:
    raise RuntimeError("the vault is closed")


def test_secrets_of_a_client_are_in_no_message() -> None:
    storage = frazil.azure_storage(
        account="me",
        container="ice",
        prefix="p",
        sas_token="sv=1&sig=verysecret",
        config={"endpoint": f"http://127.0.0.1:{free_port()}", "allow_http": "true"},
    ).with_settings(_ONCE)
    error = check(lambda: storage.get("repo"), frazil.StorageError, ErrorKind.STORAGE_UNREACHABLE)
    assert "verysecret" not in f"{error} {error.__cause__}"


# The web


def web(url: str, user: str = "") -> Storage:
    """A storage at ``url``, with a user's name and password in its address."""
    return frazil.http_storage(url.replace("://", f"://{user}")).with_settings(_ONCE)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, ErrorKind.CREDENTIALS_REFUSED, "credentials"),
        (403, ErrorKind.STORAGE_PERMISSION, "HTTP 403"),
        (418, ErrorKind.OBJECT_STORE, "status 418"),
        (500, ErrorKind.OBJECT_STORE, "HTTP 500"),
        (503, ErrorKind.THROTTLED, "HTTP 503"),
    ],
)
def test_what_a_web_server_answers_is_a_cause(status: int, kind: ErrorKind, words: str) -> None:
    with LoopbackHttp(answering(status, "")) as server:
        url = server.url
        storage = web(url, "me:verysecret@")
        for call in (lambda: storage.get("repo"), lambda: storage.head("repo")):
            check(call, frazil.StorageError, kind, "'repo'", words, without="verysecret")
        chunks = open_foreign(frazil.http_store(), Credentials.HttpAccess(), f"{url}/", _ONCE)
        fetch = ErrorKind.VIRTUAL_CHUNK_FETCH
        check(lambda: chunks.get(f"{url}/a.nc", 0, 1), frazil.StorageError, fetch, f"{url}/a.nc", words)


def test_a_web_server_that_cannot_be_reached() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    unreachable = _K.STORAGE_UNREACHABLE
    check(lambda: web(nobody).get("repo"), frazil.StorageError, unreachable, nobody)
    chunks = open_foreign(frazil.http_store(), Credentials.HttpAccess(), f"{nobody}/", _ONCE)
    check(lambda: chunks.get(f"{nobody}/a.nc", 0, 1), frazil.StorageError, _K.VIRTUAL_CHUNK_FETCH, nobody)
    missing = web("https://no-such-host.invalid")
    check(lambda: missing.get("repo"), frazil.StorageError, unreachable, "DNS")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        storage = web(f"http://127.0.0.1:{silent.getsockname()[1]}").with_settings(_SHORT)
        check(lambda: storage.get("repo"), frazil.StorageError, _K.STORAGE_TIMEOUT, "time")


# Local files


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EACCES, ErrorKind.STORAGE_PERMISSION, "permission"),
        (errno.EROFS, ErrorKind.STORAGE_PERMISSION, "read only"),
        (errno.ENOSPC, ErrorKind.STORAGE_FULL, "space"),
        (errno.EDQUOT, ErrorKind.STORAGE_FULL, "quota"),
        (errno.EMFILE, ErrorKind.PROCESS_LIMIT, "open files"),
        (errno.EPIPE, ErrorKind.IO, os.strerror(errno.EPIPE)),
    ],
)
def test_what_a_file_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: ErrorKind, words: str
) -> None:
    storage = frazil.local_filesystem_storage(tmp_path)

    def refuse(path: Any, *_: Any, **__: Any) -> int:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(os, "open", refuse)
    check(lambda: storage.put("repo", b"1"), frazil.StorageError, kind, words, str(tmp_path))
    check(lambda: storage.get("repo"), frazil.StorageError, kind, words)


def test_a_repository_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "typo", tmp_path / "file"):
        storage = frazil.local_filesystem_storage(path)
        of = frazil.RepositoryNotFoundError
        check(lambda s=storage: frazil.Repository.open(s), of, _K.REPOSITORY_NOT_FOUND, str(path))  # type: ignore[misc]  # bound in the loop
    storage = frazil.local_filesystem_storage(tmp_path / "file")
    check(lambda: frazil.Repository.create(storage), frazil.StorageError, _K.IO, "directory")
