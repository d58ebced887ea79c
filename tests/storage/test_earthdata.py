"""Temporary keys of NASA Earthdata, from stand-ins of the endpoint, of the login server and of S3."""

from __future__ import annotations

import json
import pickle
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.loopback_http import LoopbackHttp, QuietHandler
from tests.support.object_server import Conditions, ObjectServer, Request
from tests.support.patience import patience

import frazil
from frazil.credentials import earthdata_credentials
from frazil.errors import ErrorKind, IcechunkError

TOKEN, USER = "hush-token", ("ann", "hush: word")


class Endpoint(LoopbackHttp):
    """The endpoint of a data centre: keys for a token, or for the cookie of a login."""

    def __init__(self) -> None:
        self.login: Login | None = None
        self.lifetime = timedelta(hours=1)
        self.issued: list[str] = []
        super().__init__(_handler(self))

    @property
    def url(self) -> str:
        return f"{super().url}/s3credentials"

    def answer(self, path: str, headers: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        if path.startswith("/redirect?code=right"):
            return (
                302,
                [
                    ("Set-Cookie", "session=s; HttpOnly"),
                    ("Set-Cookie", "x=y"),
                    ("Location", "/s3credentials"),
                ],
                b"",
            )
        has_cookie = "session=s; x=y" in headers.get("cookie", "")
        if headers.get("authorization") == f"Bearer {TOKEN}" or has_cookie:
            self.issued.append(f"AKIA{len(self.issued)}")
            keys = {"accessKeyId": self.issued[-1], "secretAccessKey": "secret", "sessionToken": "session"}
            end = datetime.now(UTC) + self.lifetime
            return 200, [], json.dumps(keys | {"expiration": f"{end:%Y-%m-%d %H:%M:%S}+00:00"}).encode()
        if "authorization" in headers or self.login is None:
            return 401, [], b"no"
        return 307, [("Location", f"{self.login.url}/oauth")], b""


class Login(LoopbackHttp):
    """The login server, which sees the password and never the token."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, endpoint.login = endpoint, self
        super().__init__(_handler(self))

    def answer(self, path: str, headers: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        if headers.get("authorization") != f"Basic {b64encode(':'.join(USER).encode()).decode()}":
            return 401, [], b"no"
        return 302, [("Location", self.endpoint.url.replace("s3credentials", "redirect?code=right"))], b""


def _handler(server: Any) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802  # the name of http.server
            status, headers, body = server.answer(
                self.path, {name.lower(): value for name, value in self.headers.items()}
            )
            self.reply(status, body, headers)

    return Handler


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint, Login(endpoint):
        yield endpoint


@pytest.mark.parametrize("user", ["token", "password", "EARTHDATA_TOKEN", "EARTHDATA_USERNAME", "netrc"])
def test_every_user_gets_keys(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    assert endpoint.login is not None
    for name in ("EARTHDATA_TOKEN", "EARTHDATA_USERNAME", "EARTHDATA_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    given: dict[str, Any] = {}
    match user:
        case "token":
            given = {"token": TOKEN}
        case "password":
            given = {"username": USER[0], "password": USER[1]}
        case "EARTHDATA_TOKEN":
            monkeypatch.setenv(user, TOKEN)
        case "EARTHDATA_USERNAME":
            monkeypatch.setenv(user, USER[0])
            monkeypatch.setenv("EARTHDATA_PASSWORD", USER[1])
        case "netrc":
            (tmp_path / "netrc").write_text(f'machine 127.0.0.1 login {USER[0]} password "{USER[1]}"')
    credentials = earthdata_credentials(endpoint.url, login_server=endpoint.login.url, **given)
    assert "hush" not in f"{credentials!r}{credentials}"
    monkeypatch.undo()  # a worker has another environment
    keys = pickle.loads(pickle.dumps(credentials)).refresh()
    assert (keys.access_key_id, keys.session_token) == ("AKIA0", "session")
    assert timedelta(minutes=59) < keys.expires_after - datetime.now(UTC) <= timedelta(hours=1)


def test_what_is_refused(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: ErrorKind, text: str, function: Any, *arguments: Any, **keywords: Any) -> None:
        with pytest.raises(IcechunkError, match=text) as error:
            function(*arguments, **keywords)
        assert error.value.kind == kind
        assert "hush" not in str(error.value)

    for name in ("EARTHDATA_TOKEN", "EARTHDATA_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    refused(ErrorKind.INVALID_CREDENTIALS, "needs a user", earthdata_credentials, "lpdaac")
    plain = "http://data.example/s3credentials"
    refused(ErrorKind.INVALID_CREDENTIALS, "must have https", earthdata_credentials, plain, token=TOKEN)
    wrong = earthdata_credentials(endpoint.url, token="hush-wrong")
    refused(ErrorKind.CREDENTIALS_REFUSED, "got status 401", wrong.refresh)
    # The password is not for a server to which the endpoint redirects.
    other = earthdata_credentials(endpoint.url, username=USER[0], password=USER[1])
    refused(ErrorKind.CREDENTIALS_REFUSED, "got status 401", other.refresh)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the tries
    nobody = earthdata_credentials("http://127.0.0.1:1/s3credentials", token=TOKEN)
    refused(ErrorKind.OBJECT_STORE, "no Earthdata keys from", nobody.refresh)


class Guarded(ObjectServer):
    """A bucket that accepts only keys of an endpoint."""

    endpoint: Endpoint

    def answer(self, request: Any, body: bytes) -> Any:
        name = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        assert request.headers["x-amz-security-token"] == "session"
        assert name in self.endpoint.issued
        return super().answer(request, body)


@pytest.mark.deep
def test_a_job_outlives_its_keys(endpoint: Endpoint, tmp_path: Path) -> None:
    """The keys live for a second, and a key that expires soon is not used again."""
    pytest.importorskip("cloudpickle")  # of the extra `pipeline`
    pipeline = pytest.importorskip("frazil.pipeline")
    endpoint.lifetime = timedelta(seconds=1)
    values = np.random.default_rng(0).integers(0, 99, (8, 1000), "i4")
    with Guarded(Conditions.QUOTED_ETAG) as server:
        server.endpoint = endpoint
        server.make_bucket("archive")
        config, prefix = frazil.RepositoryConfig.default(), "s3://archive/"
        store = frazil.s3_store(
            region="us-west-2", endpoint_url=server.url, allow_http=True, s3_compatible=True
        )
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
        access = frazil.containers_credentials({prefix: earthdata_credentials(endpoint.url, token=TOKEN)})
        repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), config, access)
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name="a", shape=(8, 1000), chunks=(1, 1000), dtype="<i4", compressors=None
        )
        for row, each in enumerate(values):
            ObjectServer.answer(server, Request("PUT", f"/archive/{row}.bin", {}), each.tobytes())
            session.store.set_virtual_ref(f"a/c/{row}/0", f"{prefix}{row}.bin", offset=0, length=4000)
        session.commit("virtual")
        end = time.monotonic() + patience(60)
        while len(keys_of(server)) < 4:  # the client asks for a key at most ten times in a second
            assert (frazil.read(repo.readonly_session("main"), "a") == values).all()
            assert time.monotonic() < end
        before = keys_of(server)
        result = pipeline.materialize(repo, ["/a"], engine=pipeline.Processes(2))
        assert (frazil.read(result.version.session(), "a") == values).all()
        assert keys_of(server) - before  # worker processes have asked, too


def keys_of(server: ObjectServer) -> set[str]:
    """Return the keys with which objects were read."""
    gets = [request for request in server.requests if request.method == "GET"]
    return {request.headers["authorization"].split("/")[0] for request in gets}
