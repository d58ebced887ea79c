"""Connections to web servers: what keeps them, what tries again, and what stays secret."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.forks import in_child
from tests.support.loopback_http import LoopbackHttp, QuietHandler
from tests.support.patience import patience

import frazil
from frazil.errors import StorageError, UnreachableError
from frazil.storage.settings import StorageRetriesSettings, StorageSettings, StorageTimeoutSettings
from frazil.storage.web_client import CONNECTIONS, Response, WebClient, web_options

CERTIFICATE = Path(__file__).with_name("loopback.pem")
AUTHORITY = "-----BEGIN CERT" + CERTIFICATE.read_text().partition("-----BEGIN CERT")[2]
DATA = bytes(range(100))
QUICK = StorageSettings(retries=StorageRetriesSettings(4, 1, 2))

type Reply = Callable[[Handler], None]


class Handler(QuietHandler):
    """Replies as ``replies`` say, then with ``DATA``."""

    protocol_version = "HTTP/1.1"
    replies: list[Reply]
    #: The port of the client, and the request.
    visits: list[tuple[int, str, dict[str, str]]]

    def answer(self) -> None:
        headers = {name.lower(): ", ".join(self.headers.get_all(name, [])) for name in self.headers}
        self.visits.append((self.client_address[1], self.requestline, headers))
        (self.replies.pop(0) if self.replies else send(200))(self)

    do_GET = do_HEAD = do_CONNECT = answer  # noqa: N815  # as http.server wants it


def send(status: int, body: bytes = DATA, **headers: str) -> Reply:
    def reply(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)
            handler.wfile.flush()

    return reply


def hang_up(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def break_off(handler: Handler) -> None:
    send(200, DATA[:50], Content_Length="100")(handler)
    hang_up(handler)


def chunked(handler: Handler) -> None:
    send(
        200, b"32\r\n" + DATA[:50] + b"\r\n32\r\n" + DATA[50:] + b"\r\n0\r\n\r\n", Transfer_Encoding="chunked"
    )(handler)


def endless(handler: Handler) -> None:
    send(200, b"", Content_Length=str(1 << 40))(handler)
    try:
        while True:
            handler.wfile.write(bytes(1 << 16))
    except OSError:
        handler.close_connection = True


class Web:
    """A server, and what came to it."""

    def __init__(self, scheme: str, port: int, handler: type[Handler]) -> None:
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.replies, self.visits = handler.replies, handler.visits

    @property
    def connections(self) -> int:
        return len({port for port, _, _ in self.visits})


@contextmanager
def serving(scheme: str = "http") -> Iterator[Web]:
    handler = type("OneHandler", (Handler,), {"replies": [], "visits": []})
    context = None
    if scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
    with LoopbackHttp(handler, context) as loopback:
        yield Web(scheme, loopback.port, handler)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture
def secure() -> Iterator[Web]:
    with serving("https") as server:
        yield server


def client(options: dict[str, str] | None = None, settings: StorageSettings = QUICK) -> WebClient:
    return WebClient(web_options(options or {}, settings), {})


def test_one_connection_for_all_requests(web: Web) -> None:
    web.replies += [
        send(200),
        send(200, Content_Encoding="gzip"),
        chunked,
        send(200),
        send(404),
        send(302, b"moved", Location="/there"),
        send(200, b""),
        send(503),
    ]
    asker = client()
    for max_bytes in (None, None, 100):
        assert asker.request("GET", f"{web.url}/x", {}, max_bytes).body == DATA
    assert asker.request("HEAD", f"{web.url}/x", {}).body == b""
    assert asker.request("GET", f"{web.url}/x", {}, 100).status == 404
    assert asker.request("GET", f"{web.url}/x", {}, 200).body == b""
    assert asker.request("GET", f"{web.url}/x", {}, 100).status == 200
    assert len(web.visits) == 9
    assert web.connections == 1


def test_a_body_is_bounded(web: Web) -> None:
    """One byte more shows that it is too long."""
    asker = client()
    web.replies += [endless, chunked, send(200)]
    for _ in range(3):
        assert len(asker.request("GET", f"{web.url}/x", {}, 10).body) == 11
    assert asker.request("GET", f"{web.url}/x", {}, 100).body == DATA


@pytest.mark.sample(6, 6)
@pytest.mark.deep
@pytest.mark.parametrize(
    "fault",
    [
        hang_up,
        break_off,
        send(429),
        *[
            send(503, Retry_After=after)
            for after in ("0", "soon", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT")
        ],
    ],
)
@pytest.mark.parametrize("max_bytes", [None, 100])
def test_faults_are_tried_again(web: Web, fault: Reply, max_bytes: int | None) -> None:
    web.replies += [fault] * 3
    began = time.monotonic()
    assert client().request("GET", f"{web.url}/x", {}, max_bytes).body == DATA
    assert time.monotonic() - began < patience(30)
    web.visits.clear()
    web.replies += [fault] * 4
    try:
        assert client().request("GET", f"{web.url}/x", {}, max_bytes).status >= 429
    except UnreachableError:
        assert fault in (hang_up, break_off)
    assert len(web.visits) == 4


def test_all_tries_have_one_limit(web: Web) -> None:
    web.replies += [send(503, Retry_After="60")] * 2
    settings = StorageSettings(timeouts=StorageTimeoutSettings(operation_timeout_ms=1000))
    began = time.monotonic()
    assert client(settings=settings).request("GET", f"{web.url}/x", {}).status == 503
    assert time.monotonic() - began < patience(30)
    assert len(web.visits) == 1


def test_a_forked_process_opens_its_own_connections(web: Web) -> None:
    asker = client()
    asker.request("GET", f"{web.url}/x", {})
    assert in_child(lambda: asker.request("GET", f"{web.url}/x", {}).body == DATA)
    assert asker.request("GET", f"{web.url}/x", {}).body == DATA
    ports = [port for port, _, _ in web.visits]
    assert ports[0] == ports[2] != ports[1]


def test_threads_share_at_most_64_connections(web: Web) -> None:
    def slow(handler: Handler) -> None:
        time.sleep(0.1)  # longer than all threads need to start
        send(200)(handler)

    web.replies += [slow] * 100
    asker, together = client(), threading.Barrier(100)

    def ask(_: int) -> bytes:
        together.wait()
        return asker.request("GET", f"{web.url}/x", {}).body

    with ThreadPoolExecutor(100) as threads:
        assert set(threads.map(ask, range(100))) == {DATA}
    assert len(web.visits) == 100
    assert web.connections <= CONNECTIONS


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_certificates(secure: Web) -> None:
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        client().request("GET", f"{secure.url}/x", {})
    for options in ({"root_certificate": AUTHORITY}, {"allow_invalid_certificates": "true"}):
        asker = client(options)
        for _ in range(2):
            assert asker.request("GET", f"{secure.url}/x", {}, 100).body == DATA
    assert (len(secure.visits), secure.connections) == (4, 2)
    with pytest.raises(StorageError, match="root_certificate") as error:
        client({"root_certificate": "none"}).request("GET", f"{secure.url}/x", {})
    assert error.value.kind == "storage-config"


def test_a_name_and_password_in_the_address(web: Web) -> None:
    web.replies += [send(302, Location=f"{web.url}/y")]
    client().request("GET", f"http://me:p%40ss@{web.url[7:]}/x", {"X-Name": "Jökull 氷"})
    for _, line, headers in web.visits:
        assert "me" not in line
        assert headers["authorization"] == "Basic bWU6cEBzcw=="
        assert headers["x-name"].encode("latin-1").decode() == "Jökull 氷"


def test_a_proxy_opens_a_tunnel(web: Web, secure: Web) -> None:
    def tunnel(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with socket.create_connection(("127.0.0.1", int(secure.url.rpartition(":")[2]))) as upstream:

            def copy(source: socket.socket, target: socket.socket) -> None:
                with suppress(OSError):
                    while data := source.recv(1 << 16):
                        target.sendall(data)
                    target.shutdown(socket.SHUT_WR)

            back = threading.Thread(target=copy, args=(upstream, handler.connection))
            back.start()
            copy(handler.connection, upstream)
            back.join()
        handler.close_connection = True

    web.replies += [tunnel]
    asker = client({"proxy_url": f"me:pw@{web.url[7:]}", "root_certificate": AUTHORITY})
    assert asker.request("GET", f"{secure.url}/x", {"X-Api-Key": "secret"}).body == DATA
    ((_, line, headers),) = web.visits
    assert line.startswith(f"CONNECT {secure.url[8:]} ")
    assert headers["proxy-authorization"] == "Basic bWU6cHc="
    assert "x-api-key" not in headers
    assert "proxy-authorization" not in secure.visits[0][2]
    # A proxy that does not let us through is named, without its password.
    web.replies += [send(403, b"")] * 4
    with pytest.raises(UnreachableError, match=r"through the proxy http://\*\*\*\*@127\.0\.0\.1.* 403"):
        client({"proxy_url": f"http://me:pw@{web.url[7:]}"}).request("GET", f"{secure.url}/x", {})


def test_where_proxies_are_named(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", web.url)
    assert client().request("GET", "http://nowhere.example/x?a=b", {}).body == DATA
    assert web.visits[0][1] == "GET http://nowhere.example/x?a=b HTTP/1.1"
    assert web.visits[0][2]["accept"] == "*/*"  # once
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    client().request("GET", f"{web.url}/direct", {})
    assert web.visits[1][1] == "GET /direct HTTP/1.1"
    excludes = "somewhere.example, 0.0.1, 127.0.0.1"
    client({"proxy_url": "http://127.0.0.1:9", "proxy_excludes": excludes}).request("GET", f"{web.url}/x", {})
    assert web.visits[2][1] == "GET /x HTTP/1.1"
    for wrong in ("socks5://me:secret@h", "http://h:99999"):
        with pytest.raises(StorageError, match="proxy") as error:
            client({"proxy_url": wrong}).request("GET", "http://nowhere.example/", {})
        assert error.value.kind == "storage-config"
        assert "secret" not in "".join(traceback.format_exception(error.value))


def test_errors_and_logs_keep_passwords_and_name_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    storage = frazil.http_storage("http://me:hush@127.0.0.1:9/x?signature=hush").with_settings(QUICK)
    caplog.set_level(logging.INFO)

    def get_while_another_error_is_handled() -> None:
        try:
            raise KeyError("something else")
        except KeyError:
            storage.get("k")

    with pytest.raises(StorageError, match="refused") as error:
        get_while_another_error_is_handled()
    assert "something else" not in str(error.value)
    assert "hush" not in "".join(traceback.format_exception(error.value)) + caplog.text


@pytest.mark.parametrize("number", ["", "-1", "x", "²", "1" * 5000, "1_0", " 1"])
def test_numbers_that_no_server_should_send(number: str) -> None:
    answer = Response(206, {"content-range": f"bytes {number}-/{number}", "content-length": number}, b"")
    assert (answer.size, answer.length) == (0, None)
    with pytest.raises(UnreachableError, match="content-range"):
        answer.range()
    answer = Response(206, {"content-range": "bytes 8-15/99", "content-length": "8"}, bytes(8))
    assert (answer.range(), answer.size, answer.length) == ((8, 16), 99, 8)


def test_times() -> None:
    for text, seconds in (("Thu, 01 Jan 1970 00:00:08 GMT", 8), ("Fri, 31 Dec 99999999999 1:1:1 GMT", 0)):
        assert Response(200, {"last-modified": text}, b"").modified == seconds
