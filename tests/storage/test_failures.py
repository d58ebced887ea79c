"""What users read when a storage fails: the cause first, then what to do, and never a wrong cause."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import pytest
from tests.messages import check
from tests.support import servers
from tests.support.loopback_http import LoopbackHttp

import frazil
from frazil.errors import ErrorKind
from frazil.storage.base import IfAbsent, Storage
from frazil.storage.credential_families import Credentials
from frazil.storage.foreign.factory import open_foreign

_FAST: Final = frazil.StorageSettings(
    retries=frazil.StorageRetriesSettings(max_tries=1, initial_backoff_ms=1, max_backoff_ms=1),
    timeouts=frazil.StorageTimeoutSettings(operation_timeout_ms=2000, operation_attempt_timeout_ms=500),
)


# Object stores


def answering(status: int, body: str) -> type[BaseHTTPRequestHandler]:
    """A server that gives this answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815  # names of http.server

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def s3(endpoint: str, **options: Any) -> Storage:
    arguments = {"access_key_id": "key", "secret_access_key": "secret", "force_path_style": True}
    arguments |= {"bucket": "ice", "prefix": "p", "region": "us-east-1", "allow_http": True}
    return frazil.s3_storage(**{**arguments, "endpoint_url": endpoint, **options}).with_settings(_FAST)


def gcs(endpoint: str) -> Storage:
    config = {"base_url": endpoint, "allow_http": "true"}
    return frazil.gcs_storage(bucket="ice", prefix="p", bearer_token="t", config=config).with_settings(_FAST)


def azure(endpoint: str) -> Storage:
    config = {"endpoint": endpoint, "allow_http": "true"}
    storage = frazil.azure_storage(
        account="me", container="ice", prefix="p", access_key="YWJj", config=config
    )
    return storage.with_settings(_FAST)


def xml(code: str, message: str = "as the server says") -> str:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"


@dataclass(frozen=True)
class Answered:
    """A server gives ``body`` with ``status``; the words are those of every read, write and listing."""

    make: Callable[[str], Storage]
    status: int
    body: str
    kind: ErrorKind
    words: tuple[str, ...]


_DENIED: Final = (
    "no permission for this request in bucket 'ice'",
    "AccessDenied",
    "use credentials with this permission",
)
_REGION: Final = (
    "The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'"
)
ANSWERED: Final = [
    Answered(
        s3,
        404,
        xml("NoSuchBucket"),
        ErrorKind.BUCKET_NOT_FOUND,
        ("bucket 'ice' does not exist at http://127.",),
    ),
    Answered(s3, 403, xml("AccessDenied"), ErrorKind.STORAGE_PERMISSION, _DENIED),
    Answered(
        s3,
        403,
        xml("SignatureDoesNotMatch"),
        ErrorKind.CREDENTIALS_REFUSED,
        ("refuses the credentials (SignatureDoesNotMatch)", "check the key", "as the server says"),
    ),
    Answered(s3, 403, xml("InvalidAccessKeyId"), ErrorKind.CREDENTIALS_REFUSED, ("refuses the credentials",)),
    Answered(s3, 400, xml("ExpiredToken"), ErrorKind.CREDENTIALS_REFUSED, ("expired", "`get_credentials`")),
    Answered(
        s3, 403, xml("RequestTimeTooSkewed"), ErrorKind.CREDENTIALS_REFUSED, ("clocks", "set the clock")
    ),
    Answered(
        s3,
        400,
        xml("AuthorizationHeaderMalformed", _REGION),
        ErrorKind.STORAGE_CONFIG,
        ("`region`", "eu-west-1"),
    ),
    Answered(s3, 301, "", ErrorKind.STORAGE_CONFIG, ("bucket 'ice' is in another region", "`region`")),
    Answered(
        s3, 503, xml("SlowDown"), ErrorKind.THROTTLED, ("too many requests (SlowDown)", "try again later")
    ),
    Answered(s3, 429, "", ErrorKind.THROTTLED, ("too many requests (HTTP 429)",)),
    Answered(
        s3, 500, xml("InternalError"), ErrorKind.OBJECT_STORE, ("failed (InternalError)", "try again later")
    ),
    Answered(s3, 507, "", ErrorKind.STORAGE_FULL, ("no space left",)),
    Answered(s3, 401, "", ErrorKind.CREDENTIALS_REFUSED, ("requires credentials, or refuses",)),
    Answered(s3, 403, "", ErrorKind.STORAGE_PERMISSION, ("refuses this request (HTTP 403)",)),
    Answered(
        s3,
        418,
        xml("Teapot", "short and stout"),
        ErrorKind.OBJECT_STORE,
        ("HTTP 418, Teapot", "short and stout"),
    ),
    Answered(
        gcs,
        404,
        '{"error":{"code":404,"message":"The specified bucket does not exist."}}',
        ErrorKind.BUCKET_NOT_FOUND,
        ("bucket 'ice' does not exist",),
    ),
    Answered(
        gcs,
        403,
        '{"error":{"code":403,"message":"me does not have storage.objects.get access"}}',
        ErrorKind.STORAGE_PERMISSION,
        ("refuses this request (HTTP 403)", "me does not have storage.objects.get access"),
    ),
    Answered(
        gcs,
        401,
        '{"error":{"message":"Invalid"}}',
        ErrorKind.CREDENTIALS_REFUSED,
        ("or refuses the credentials",),
    ),
    Answered(
        azure,
        404,
        xml("ContainerNotFound"),
        ErrorKind.BUCKET_NOT_FOUND,
        ("container 'ice' of account 'me' does not exist",),
    ),
    Answered(
        azure, 403, xml("AuthenticationFailed"), ErrorKind.CREDENTIALS_REFUSED, ("AuthenticationFailed",)
    ),
    Answered(azure, 403, xml("AuthorizationFailure"), ErrorKind.STORAGE_PERMISSION, ("no permission",)),
    Answered(azure, 503, xml("ServerBusy"), ErrorKind.THROTTLED, ("too many requests",)),
]


@pytest.mark.sample(15, 15)
@pytest.mark.deep
@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: f"{case.make.__name__}-{case.status}-{case.kind}")
def test_what_a_server_answers_is_a_cause(case: Answered) -> None:
    with LoopbackHttp(answering(case.status, case.body)) as server:
        storage = case.make(f"http://127.0.0.1:{server.port}")
        calls: list[Callable[[], object]] = [
            lambda: storage.get("repo"),
            lambda: storage.put("chunks/1", b"1"),
            lambda: storage.put("repo", b"1", IfAbsent()),
            lambda: list(storage.list("")),
        ]
        for call in calls:
            error = check(call, frazil.StorageError, case.kind, *case.words)
            # The traceback shows the client's error too: without its dump.
            assert "RetryErrorImpl" not in str(error.__cause__)


def test_a_word_in_a_name_is_not_a_cause() -> None:
    with LoopbackHttp(
        answering(418, xml("Teapot", "no NoSuchBucket, no SlowDown, no ExpiredToken"))
    ) as server:
        storage = s3(f"http://127.0.0.1:{server.port}", prefix="NoSuchBucket/latest/api-token")
        check(
            lambda: storage.get("AccessDenied/SlowDown"), frazil.StorageError, ErrorKind.OBJECT_STORE, "418"
        )


def test_a_write_that_a_server_does_not_find_a_place_for() -> None:
    with LoopbackHttp(answering(404, "<html>no such page</html>")) as server:
        storage = s3(f"http://127.0.0.1:{server.port}")
        check(
            lambda: storage.put("repo", b"1"),
            frazil.StorageError,
            ErrorKind.OBJECT_STORE,
            "answers a write with 404",
            "check that bucket 'ice' exists",
        )
        check(
            lambda: storage.get("repo"), frazil.StorageError, ErrorKind.OBJECT_NOT_FOUND, "'repo' not found"
        )


def test_a_repository_in_a_bucket_that_does_not_exist() -> None:
    with LoopbackHttp(answering(404, xml("NoSuchBucket"))) as server:
        storage = s3(f"http://127.0.0.1:{server.port}")
        words = ("bucket 'ice' does not exist at http://127.0.0.1", "create it, or correct its name")
        bucket = ErrorKind.BUCKET_NOT_FOUND
        check(lambda: frazil.Repository.open(storage), frazil.RepositoryNotFoundError, bucket, *words)
        check(lambda: frazil.Repository.create(storage), frazil.StorageError, bucket, *words)
        assert not frazil.Repository.exists(storage)


def test_anonymous_requests_that_are_refused_need_credentials() -> None:
    with LoopbackHttp(answering(403, xml("AccessDenied"))) as server:
        storage = s3(
            f"http://127.0.0.1:{server.port}", anonymous=True, access_key_id=None, secret_access_key=None
        )
        check(
            lambda: storage.get("repo"),
            frazil.StorageError,
            ErrorKind.CREDENTIALS_MISSING,
            "requires credentials for",
            "access_key_id",
        )


def _metadata_of_a_cloud() -> type[BaseHTTPRequestHandler]:
    return answering(403, "denied")


@pytest.mark.parametrize("answer", ["refused", "denied"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: frazil.s3_storage(bucket="ice", prefix="p", region="us-east-1"),
            (
                "no credentials for S3",
                "access_key_id and secret_access_key",
                "`from_env=True`",
                "`anonymous=True`",
            ),
        ),
        (
            lambda: frazil.gcs_storage(bucket="ice", prefix="p"),
            ("no credentials for Google Cloud Storage", "service_account_file", "`anonymous=True`"),
        ),
        (
            lambda: frazil.azure_storage(account="me", container="ice", prefix="p"),
            ("no credentials for Azure", "access_key, sas_token", "`anonymous=True`"),
        ),
    ],
)
def test_without_credentials_the_message_says_how_to_give_them(
    make: Callable[[], Storage], words: tuple[str, ...], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackHttp(_metadata_of_a_cloud()) as server:
        port = server.port if answer == "denied" else servers.free_port()
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("METADATA_IP", f"127.0.0.1:{port}")
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{port}")
        storage = make().with_settings(_FAST)
        for call in (lambda: storage.get("repo"), lambda: storage.put("repo", b"1", IfAbsent())):
            check(call, frazil.StorageError, ErrorKind.CREDENTIALS_MISSING, *words)


def test_servers_that_cannot_be_reached() -> None:
    unreachable = ErrorKind.STORAGE_UNREACHABLE
    nobody = f"http://127.0.0.1:{servers.free_port()}"

    def read(endpoint: str, **options: Any) -> Callable[[], object]:
        return lambda: s3(endpoint, **options).get("repo")

    check(read(nobody), frazil.StorageError, unreachable, "connection refused", nobody, "check the endpoint")
    check(
        read("https://no-such-host.invalid"),
        frazil.StorageError,
        unreachable,
        "the host name of https://no-such-host.invalid is not known (DNS)",
    )
    check(
        read(nobody, allow_http=False),
        frazil.StorageError,
        ErrorKind.STORAGE_CONFIG,
        f"{nobody} is not encrypted",
        "option `allow_http`",
    )
    with LoopbackHttp(answering(200, "")) as server:
        https = f"https://127.0.0.1:{server.port}"
        check(
            read(https),
            frazil.StorageError,
            unreachable,
            f"{https} does not answer with TLS",
            "`allow_http`",
        )
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        timeout = ErrorKind.STORAGE_TIMEOUT
        check(read(endpoint), frazil.StorageError, timeout, f"{endpoint} did not answer in time", "timeouts")


@pytest.mark.parametrize("url", ["localhost:9000", "", "http://", "s3://x", "http://h:99999", "http://[::1"])
def test_an_endpoint_that_is_no_address(url: str) -> None:
    storages = [s3(url), gcs(url), azure(url)]
    for storage in storages:
        check(
            lambda storage=storage: storage.get("repo"),  # type: ignore[misc]  # bound in the loop
            frazil.StorageError,
            ErrorKind.STORAGE_CONFIG,
            "must be a URL such as https://host",
            f"got {url!r}",
        )


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a?b", ".."])
def test_a_bucket_whose_name_is_none(name: str) -> None:
    check(
        lambda: s3("http://127.0.0.1:9", bucket=name).get("repo"),
        frazil.StorageError,
        ErrorKind.STORAGE_CONFIG,
        "the name of a bucket or container must",
        f"got {name!r}",
        "`prefix`",
    )


def test_a_function_for_credentials_that_fails() -> None:
    storage = s3("http://127.0.0.1:9", access_key_id=None, secret_access_key=None, get_credentials=_fail)
    check(
        lambda: storage.get("repo"),
        frazil.StorageError,
        ErrorKind.INVALID_CREDENTIALS,
        "the function `get_credentials` for S3 failed",
        "RuntimeError: the vault is closed",
    )


def _fail() -> frazil.S3StaticCredentials:
    raise RuntimeError("the vault is closed")


def test_secrets_of_a_client_are_in_no_message() -> None:
    storage = frazil.azure_storage(
        account="me",
        container="ice",
        prefix="p",
        sas_token="sv=1&sig=verysecret",
        config={"endpoint": f"http://127.0.0.1:{servers.free_port()}", "allow_http": "true"},
    ).with_settings(_FAST)
    error = check(lambda: storage.get("repo"), frazil.StorageError, ErrorKind.STORAGE_UNREACHABLE)
    assert "verysecret" not in f"{error} {error.__cause__}"


# The web


def web(url: str, user: str = "") -> Storage:
    """A storage at ``url``, with a user's name and password in its address."""
    return frazil.http_storage(url.replace("://", f"://{user}")).with_settings(_FAST)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, ErrorKind.CREDENTIALS_REFUSED, "requires credentials, or refuses"),
        (403, ErrorKind.STORAGE_PERMISSION, "refuses this request (HTTP 403)"),
        (418, ErrorKind.OBJECT_STORE, "status 418"),
        (429, ErrorKind.THROTTLED, "too many requests (HTTP 429)"),
        (500, ErrorKind.OBJECT_STORE, "failed (HTTP 500): try again later"),
        (503, ErrorKind.THROTTLED, "too many requests (HTTP 503)"),
    ],
)
def test_what_a_web_server_answers_is_a_cause(status: int, kind: ErrorKind, words: str) -> None:
    with LoopbackHttp(answering(status, "")) as server:
        url = f"http://127.0.0.1:{server.port}"
        storage = web(url, "me:verysecret@")
        for call in (lambda: storage.get("repo"), lambda: storage.head("repo")):
            check(call, frazil.StorageError, kind, "'repo'", words, without="verysecret")
        chunks = open_foreign(frazil.http_store(), Credentials.HttpAccess(), f"{url}/", _FAST)
        fetch = ErrorKind.VIRTUAL_CHUNK_FETCH
        check(lambda: chunks.get(f"{url}/a.nc", 0, 1), frazil.StorageError, fetch, f"{url}/a.nc", words)


def test_a_web_server_that_cannot_be_reached() -> None:
    nobody = f"http://127.0.0.1:{servers.free_port()}"
    words = ("connection refused", nobody, "check the endpoint")
    unreachable = ErrorKind.STORAGE_UNREACHABLE
    check(lambda: web(nobody).get("repo"), frazil.StorageError, unreachable, *words)
    chunks = open_foreign(frazil.http_store(), Credentials.HttpAccess(), f"{nobody}/", _FAST)
    fetch = ErrorKind.VIRTUAL_CHUNK_FETCH
    check(lambda: chunks.get(f"{nobody}/a.nc", 0, 1), frazil.StorageError, fetch, *words)
    missing = web("https://no-such-host.invalid")
    check(lambda: missing.get("repo"), frazil.StorageError, unreachable, "is not known (DNS)")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        timeout = ErrorKind.STORAGE_TIMEOUT
        check(lambda: web(endpoint).get("repo"), frazil.StorageError, timeout, "did not answer in time")


# Local files


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EACCES, ErrorKind.STORAGE_PERMISSION, "permission denied: check the owner and the mode"),
        (errno.EROFS, ErrorKind.STORAGE_PERMISSION, "the file system is read only"),
        (errno.ENOSPC, ErrorKind.STORAGE_FULL, "no space left"),
        (errno.EDQUOT, ErrorKind.STORAGE_FULL, "the quota is used up"),
        (errno.EMFILE, ErrorKind.IO, "too many open files"),
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
    check(
        lambda: storage.put("repo", b"1"),
        frazil.StorageError,
        kind,
        "could not write 'repo'",
        words,
        str(tmp_path),
    )
    check(lambda: storage.get("repo"), frazil.StorageError, kind, "could not read 'repo'", words)


def test_a_repository_where_nothing_is(tmp_path: Path) -> None:
    def opened(path: Path) -> Callable[[], object]:
        return lambda: frazil.Repository.open(frazil.local_filesystem_storage(path))

    missing = ErrorKind.REPOSITORY_NOT_FOUND
    of = frazil.RepositoryNotFoundError
    check(opened(tmp_path), of, missing, f"no repository in the directory {tmp_path}", "Repository.create")
    check(opened(tmp_path / "typo"), of, missing, "typo, which does not exist")
    (tmp_path / "file").touch()
    check(opened(tmp_path / "file"), of, missing, "file, which is a file and not a directory")
    check(
        lambda: frazil.Repository.create(frazil.local_filesystem_storage(tmp_path / "file")),
        frazil.StorageError,
        ErrorKind.IO,
        "a part of the path is a file, not a directory",
    )
    check(
        lambda: frazil.Repository.open(frazil.in_memory_storage()), of, missing, "no repository in in-memory"
    )
