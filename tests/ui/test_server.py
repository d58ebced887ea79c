"""The server of the explorer: who may read, what, and in which parts."""

from __future__ import annotations

import gzip
import http.client
import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patience
from tests.ui.serving import Client, pids, repository, runs, served, tree_of, wait_for

import frazil
from frazil.cli.main import main
from frazil.errors import ErrorKind, StorageError
from frazil.handle.opening import HandleOptions, open_context
from frazil.repository.target import Target
from frazil.storage.local import LocalStorage
from frazil.ui.server import Site


def chunk_of(folder: Path) -> tuple[str, bytes]:
    path = max((folder / "chunks").iterdir(), key=lambda each: each.stat().st_size)
    return f"chunks/{path.name}", path.read_bytes()


# ---- who ---------------------------------------------------------------------------------------------


def test_the_page_needs_no_token_and_everything_else_does(client: Client) -> None:
    for path in ("/", "/index.html", "/widget.js", "/?x=1"):
        assert client.send("GET", path, {}).status == 200, path
    for path in ("/repo/repo", "/api/info", "/virtual", "/repo/secret", "/nothing", "/explorer.json"):
        reply = client.send("GET", path, {})
        assert (reply.status, reply.document["error"]["kind"]) == (403, "token"), path
    assert client.get("/api/info").status == 200


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Bearer x", "Basic {}", "{}", "Bearer {}x", "Bearer é"]
)
def test_a_wrong_token_is_refused(client: Client, value: str) -> None:
    header = value.format(client.server.site.token)
    assert client.send("GET", "/api/info", {"Authorization": header}).status == 403
    assert client.send("GET", "/api/info?token=" + client.server.site.token, {}).status == 403


def test_each_start_has_another_token(site: Site) -> None:
    other = Site(site.target, site.storage, 2, site.virtual)
    assert len(site.token) >= 43
    assert other.token != site.token


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:9000", 200),  # a tunnel
        ("127.0.0.1:{}", 200),
        ("[::1]:80", 200),
        ("LOCALHOST", 200),
        ("evil.example", 403),
        ("evil.example:{}", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.nip.io", 403),
        ("10.0.0.1", 403),
        ("", 403),
        ("[", 403),
    ],
)
def test_host(client: Client, host: str, status: int) -> None:
    host = host.format(client.port)
    assert client.get("/api/info", Host=host).status == status
    assert client.send("GET", "/", {"Host": host}).status == status


def test_a_request_has_one_host(client: Client) -> None:
    for hosts in ("", "Host: localhost\r\nHost: evil.example\r\n"):
        answer = raw(client, f"GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")


def test_a_server_for_other_machines_knows_addresses(site: Site) -> None:
    with served(site, "0.0.0.0") as client:
        for host, status in {
            "10.0.0.1:80": 200,
            "[fe80::1]:80": 200,
            "localhost": 200,
            "a.example": 403,
        }.items():
            assert client.get("/api/info", Host=host).status == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:{}", 200),
        ("http://evil.example", 403),
        ("https://127.0.0.1:{}", 403),
        ("http://127.0.0.1:1", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_origin(client: Client, origin: str, status: int) -> None:
    reply = client.get("/api/info", Origin=origin.format(client.port))
    assert reply.status == status
    assert "Access-Control-Allow-Origin" not in reply.headers


def test_every_answer_has_the_headers(client: Client) -> None:
    replies = [
        client.get("/"),
        client.get("/repo/repo"),
        client.get("/repo/repo", Range="bytes=0-1"),
        client.get("/nothing"),
        client.send("GET", "/api/info", {}),
        client.send("POST", "/"),
        client.send("OPTIONS", "/"),
        client.send("HEAD", "/nothing"),
        client.get("/repo/repo", If_None_Match="*"),
    ]
    assert [reply.status for reply in replies] == [200, 200, 206, 404, 403, 405, 405, 404, 304]
    for reply in replies:
        assert reply.headers["Content-Security-Policy"] == client.server.policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert "Python" not in reply.headers["Server"]


# ---- what --------------------------------------------------------------------------------------------


def test_info(client: Client, folder: Path) -> None:
    expected = {"version": "v1", "path": "/t", "writable": False, "specVersion": 2}
    assert expected.items() <= client.get("/api/info").document.items()
    assert str(folder) in client.get("/api/info").document["label"]
    assert client.get("/api/info").document["location"] == str(folder)


FOLDERS = ("snapshots/", "manifests/", "transactions/", "chunks/", "statistics/")


def test_files_of_the_format(client: Client, folder: Path) -> None:
    frazil.Repository.open(str(folder)).upkeep.build_statistics()
    count = 0
    for path in folder.rglob("*"):
        key = path.relative_to(folder).as_posix()
        if path.is_file() and (key == "repo" or key.startswith(FOLDERS)):
            reply = client.get(f"/repo/{key}")
            assert (reply.status, reply.body) == (200, path.read_bytes()), key
            head = client.send("HEAD", f"/repo/{key}")
            assert (head.status, head.body) == (200, b"")
            assert head.headers["Content-Length"] == str(len(reply.body))
            assert head.headers["ETag"] == reply.headers["ETag"]
            is_immutable = "immutable" in reply.headers["Cache-Control"]
            assert is_immutable == (key != "repo" and not key.startswith("statistics/"))
            again = client.get(f"/repo/{key}", If_None_Match=f'"x", W/{reply.headers["ETag"]}')
            assert (again.status, again.body) == (304, b"")
            count += 1
    assert count >= 7


ID = "0" * 20


def test_optional_file_that_does_not_exist_is_empty(client: Client) -> None:
    reply = client.get(f"/repo/statistics/{ID}?optional=")
    assert (reply.status, reply.body) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        *("/repo/secret", "/repo/../secret", "/repo/%2e%2e/secret", "/repo/..%2fsecret"),
        *("/repo/chunks/../secret", "/repo/chunks/..%2f..%2fsecret", "/repo/chunks/%2e%2e/%2e%2e/secret"),
        *("/repo/chunks/../repo", "/repo//repo", "/repo/./repo", "/repo/repo/", "/repo/repo%00"),
        *("/repo/repo%0a", "/repo/%252e%252e/secret", "/repo/..\\secret", "/repo/..%5csecret"),
        *("/repo/%c0%ae%c0%ae/secret", "/repo//etc/passwd", "/repo/%2fetc%2fpasswd"),
        *("/repo/chunks", "/repo/chunks/", "/repo/", "/repo", "/repo/index.json", "/repo/config.yaml"),
        *("/repo/refs/branch.x/../../secret", "/repo/refs/branch.../secret", "/repo/refs/..%2f/ref.json"),
        "/repo/refs/branch.x/ref.json/../../../secret",
        *(f"/repo/chunks/{ID}x", f"/repo/chunks/{ID}", f"/repo/statistics/{ID}"),
        *(f"/repo/chunks/{ID.replace('0', 'U')}", f"/repo/overwritten/{ID}"),
        *("/../src/frazil/about.py", "/%2e%2e/__init__.py", "/..%2f__init__.py", "/static/index.html"),
        *("//etc/passwd", "/explorer.json", "/api/", "/api/../repo/repo", "/apiinfo", "/virtualx"),
    ],
)
def test_nothing_else(client: Client, path: str) -> None:
    reply = client.get(path)
    assert reply.status in (400, 404), path
    assert b"secret" not in reply.body
    assert b"root:" not in reply.body


def test_links_lead_nowhere(client: Client, folder: Path) -> None:
    (folder / "chunks" / ID).symlink_to(folder.parent / "secret")
    reply = client.get(f"/repo/chunks/{ID}")
    assert reply.status != 200
    assert reply.body != b"secret"


def test_refs_of_version_1(tmp_path: Path) -> None:
    folder = repository(tmp_path / "old", 1)
    storage = frazil.local_filesystem_storage(str(folder))
    repo = frazil.Repository.open(storage)
    repo.create_branch("a%b", "v1")
    site = Site(Target(str(folder)), storage, 1, open_context(storage, HandleOptions()).virtual)
    with served(site) as client:
        tip = repo.lookup_branch("main")
        expected = {"branches": dict.fromkeys(["main", "winter", "a%b"], tip), "tags": {"v1": tip}}
        assert client.get("/repo/index.json").document == expected
        assert client.get("/repo/refs/branch.main/ref.json").document["snapshot"] == tip
        assert client.get("/repo/refs/tag.v1/ref.json").status == 200
        assert client.get("/repo/refs/tag.v2/ref.json").status == 404
        assert client.get("/repo/repo").status == 404
        # expiration rewrites them
        assert client.get(f"/repo/snapshots/{tip}").headers["Cache-Control"] == "no-cache"


# ---- parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["chunk", "repo"])
@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=1-9", 1, 9),
        ("bytes=5-", 5, -1),
        ("bytes=-3", -3, -1),
        ("bytes=-99999999", 0, -1),
        ("bytes=2-99999999", 2, -1),
        ("Bytes = 1-2", 1, 2),
    ],
)
def test_a_range(client: Client, folder: Path, key: str, text: str, first: int, last: int) -> None:
    key, data = chunk_of(folder) if key == "chunk" else ("repo", (folder / "repo").read_bytes())
    first, last = first % len(data), last % len(data)
    reply = client.get(f"/repo/{key}", Range=text)
    assert (reply.status, reply.body) == (206, data[first : last + 1])
    assert reply.headers["Content-Range"] == f"bytes {first}-{last}/{len(data)}"
    head = client.send("HEAD", f"/repo/{key}", {**client.token, "Range": text})
    assert (head.status, head.body) == (206, b"")
    assert head.headers["Content-Length"] == str(last + 1 - first)


class _Remote(LocalStorage):
    """A storage over a network, which counts its requests."""

    is_local = False
    requests = 0

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Any:
        self.requests += 1
        return super().get(key, start, stop)

    def head(self, key: str) -> Any:
        self.requests += 1
        return super().head(key)


def test_a_range_of_a_remote_file_is_one_request(site: Site, folder: Path) -> None:
    key, data = chunk_of(folder)
    storage = _Remote(folder)
    with served(replace(site, storage=storage)) as client:
        for first, last in ((0, 9), (100, len(data) + 5), (len(data) - 1, len(data))):
            reply = client.get(f"/repo/{key}", Range=f"bytes={first}-{last}")
            end = min(last, len(data) - 1)
            assert (reply.status, reply.body) == (206, data[first : last + 1])
            assert reply.headers["Content-Range"] == f"bytes {first}-{end}/*"
        assert storage.requests == 3
        assert client.get(f"/repo/{key}", Range=f"bytes={len(data)}-{len(data) + 1}").status == 416
        assert client.get(f"/repo/chunks/{ID}", Range="bytes=0-9").status == 404
        assert client.get(f"/repo/{key}").body == data
        assert client.get(f"/repo/{key}", Range="bytes=-2").body == data[-2:]


@pytest.mark.parametrize("text", ["bytes={}-", "bytes={}-{}", "bytes=99999999-", "bytes=-0"])
def test_a_range_outside(client: Client, folder: Path, text: str) -> None:
    key, data = chunk_of(folder)
    reply = client.get(f"/repo/{key}", Range=text.format(len(data), len(data)))
    assert reply.status == 416
    assert reply.headers["Content-Range"] == f"bytes */{len(data)}"


@pytest.mark.parametrize(
    "text", ["bytes=5-2", "bytes=-", "bytes=0-1,3-4", "lines=0-1", "x", "bytes=a-b", "bytes=--1"]
)
def test_what_is_not_one_range_is_ignored(client: Client, folder: Path, text: str) -> None:
    key, data = chunk_of(folder)
    reply = client.get(f"/repo/{key}", Range=text)
    assert (reply.status, reply.body) == (200, data)


def test_a_range_of_another_version_is_the_whole_file(client: Client, folder: Path) -> None:
    etag = client.get("/repo/repo").headers["ETag"]
    assert client.get("/repo/repo", Range="bytes=0-1", If_Range=etag).status == 206
    frazil.Repository.open(str(folder)).create_branch("spring", "main")
    reply = client.get("/repo/repo", Range="bytes=0-1", If_Range=etag)
    assert (reply.status, reply.body) == (200, (folder / "repo").read_bytes())
    assert client.get("/repo/repo", If_None_Match=etag).status == 200


def test_one_connection_has_many_requests(client: Client) -> None:
    connection = client.connect()
    for path, status in {"/repo/repo": 200, "/repo/none": 404, "/": 200, "/api/info": 200}.items():
        connection.request("GET", path, headers=client.token)
        answer = connection.getresponse()
        assert (answer.status, answer.will_close) == (status, False)
        answer.read()
    connection.close()


# ---- no writes ---------------------------------------------------------------------------------------


def raw(client: Client, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", client.port), timeout=patience(30)) as connection:
        connection.sendall(text.encode())
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    return answer


def test_nothing_writes(client: Client, folder: Path) -> None:
    before = tree_of(folder)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "BREW"):
        for path in ("/repo/repo", "/api/plan", "/api/apply", "/"):
            reply = client.send(method, path)
            assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")
    assert tree_of(folder) == before


def test_a_body_is_no_request(client: Client) -> None:
    inner = (
        f"GET /api/info HTTP/1.1\r\nHost: localhost\r\nAuthorization: {client.token['Authorization']}\r\n\r\n"
    )
    for method in ("GET", "POST"):
        head = f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(inner)}\r\n\r\n"
        assert raw(client, head + inner).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "text", ["\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9\r\n\r\n", "\x16\x03\x01\r\n\r\n", "GET " + "x" * 70_000]
)
def test_no_request(client: Client, text: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = raw(client, text)
    assert b"Traceback" not in answer
    assert not caplog.records
    assert client.get("/api/info").status == 200


# ---- errors ------------------------------------------------------------------------------------------


class _Broken:
    """A storage without a network."""

    def __getattr__(self, name: str) -> Any:
        def fail(*arguments: Any) -> Any:
            raise StorageError("the network is down", ErrorKind.STORAGE_UNREACHABLE)

        return fail


def test_an_error_of_the_storage_is_an_answer(site: Site) -> None:
    broken = Site(site.target, _Broken(), 2, site.virtual)  # type: ignore[arg-type]
    with served(broken) as client:
        for key in ("repo", f"chunks/{ID}"):
            reply = client.get(f"/repo/{key}")
            assert reply.status == 502
            assert reply.document["error"] == {
                "kind": "storage-unreachable",
                "message": "the network is down",
            }


def test_virtual_chunks_of_authorised_containers_only(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir()
    for name in ("open", "closed"):
        (tmp_path / name / "data").write_bytes(b"0123456789")
    prefix = (tmp_path / "open").as_uri() + "/"
    closed = (tmp_path / "closed").as_uri() + "/"
    config = frazil.RepositoryConfig()
    for each in (prefix, closed):
        config.set_virtual_chunk_container(
            frazil.VirtualChunkContainer(each, frazil.local_filesystem_store(str(tmp_path)))
        )
    storage = frazil.local_filesystem_storage(str(folder))
    access = frazil.containers_credentials({prefix: frazil.credentials.LocalFileSystemAccess})
    context = open_context(storage, HandleOptions(config, access))
    with served(Site(Target(str(folder)), storage, 2, context.virtual)) as client:
        assert client.get(f"/virtual?url={prefix}data&start=2&end=5").body == b"234"
        statuses = {
            f"url={closed}data&start=2&end=5": 403,
            f"url={prefix}../closed/data&start=2&end=5": 403,
            f"url={prefix}%252e%252e/closed/data&start=2&end=5": 403,
            "url=http://169.254.169.254/latest&start=0&end=5": 400,
            f"url=file://{folder}/repo&start=0&end=5": 400,
            "url=&start=0&end=5": 400,
            f"url={prefix}none&start=0&end=5": 502,
            f"url={prefix}data&start=5&end=5": 400,
            f"url={prefix}data&start=-1&end=5": 400,
            f"url={prefix}data&start=0&end=999999999999": 400,
            f"url={prefix}data&start=0&end=5&modified=1": 409,
            "": 400,
        }
        assert {query: client.get(f"/virtual?{query}").status for query in statuses} == statuses


# ---- slow answers ------------------------------------------------------------------------------------


@pytest.mark.deep
def test_answers_of_commands(client: Client) -> None:
    assert client.get("/api/statistics").document["branches"] == 2
    assert client.get("/api/verify?level=exists").document
    assert client.get("/api/sizes").document["total"]["chunks"] == 2
    (commit,) = client.get("/api/blame?path=/t").document
    assert commit["message"] == "Create the array"
    (commit, *_) = client.get("/api/history-of?path=/t&cell=0,0&version=main").document
    assert commit["message"] == "Create the array"


@pytest.mark.deep
@pytest.mark.parametrize(
    "query",
    [
        "blame?path=/none",
        "history-of?path=/t&cell=--help",
        "blame?path=/t&version=nothing",
        "verify?level=--all",
        "blame?path=%00",
    ],
)
def test_a_command_that_fails(client: Client, query: str, folder: Path) -> None:
    before = tree_of(folder)
    reply = client.get(f"/api/{query}")
    assert reply.status in (400, 422)
    assert reply.document["error"]["message"]
    assert tree_of(folder) == before


def is_answered(connection: http.client.HTTPConnection) -> bool:
    return bool(select.select([connection.sock], [], [], 0)[0])


def test_slow_answers_do_not_delay_others_and_end_with_their_clients(client: Client, slow: Path) -> None:
    waiting = [client.connect(), client.connect()]
    for connection in waiting:
        connection.request("GET", "/api/verify", headers=client.token)
    running = pids(slow, 2)
    assert client.get("/api/verify").status == 503
    assert all(client.get("/repo/repo").status == 200 for _ in range(20))

    def is_left(count: int) -> bool:
        return sum(map(runs, running)) == count

    for connection, left in zip(waiting, (1, 0), strict=True):
        connection.close()
        wait_for(partial(is_left, left))
    # there is room again, soon after the end of a process
    connection = client.connect()

    def begins() -> bool:
        connection.request("GET", "/api/verify", headers=client.token)
        wait_for(lambda: is_answered(connection) or len(slow.read_text().split()) == 3)
        if not is_answered(connection):
            return True
        assert connection.getresponse().read()
        return False

    wait_for(begins)
    connection.close()


def test_a_server_that_closes_ends_slow_answers(site: Site, slow: Path) -> None:
    with served(site) as client:
        connection = client.connect()
        connection.request("GET", "/api/statistics", headers=client.token)
        (pid,) = pids(slow, 1)
    wait_for(lambda: not runs(pid))
    connection.close()


def test_a_client_that_goes_away_is_no_error(
    client: Client, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "chunks" / ID).write_bytes(bytes(32 << 20))
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(
                f"GET /repo/chunks/{ID} HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: {client.token['Authorization']}\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    assert len(client.get(f"/repo/chunks/{ID}").body) == 32 << 20
    assert not caplog.records
    assert "Traceback" not in capfd.readouterr().err


# ---- the command -------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_interrupted(folder: Path, number: signal.Signals) -> None:
    # Programs that a shell starts in the background ignore Ctrl-C.
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from frazil.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "ui", f"{folder}@v1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, _, token = process.stdout.readline().rstrip("\n").partition("/#token=")
        assert process.stdout.readline() == "Ctrl-C stops the server\n"
        connection = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        connection.sendall(
            f"GET /api/info HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        os.kill(process.pid, number)
        output, errors = process.communicate(timeout=patience(30))
        connection.close()
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ice@nothing"], "nothing"),
        (["ice:/none"], "none"),
        (["none"], "none"),
        (["ice", "--repo-url", "https://a.example"], "--static"),
        (["ice", "--port", "99999"], "99999"),
        (["ice", "--write", "--static", "page"], "--write"),
    ],
)
def test_wrong_arguments(
    folder: Path,
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["ui", *words]) != 0
    assert message in capsys.readouterr().err


def test_assets_are_packed_for_clients_that_unpack(client: Client) -> None:
    plain = client.get("/index.html")
    packed = client.get("/index.html", Accept_Encoding="br, gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 2
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert (
        client.get("/index.html", Accept_Encoding="gzip", If_None_Match=packed.headers["ETag"]).status == 304
    )
    for headers in ({"Accept_Encoding": "gzip;q=0"}, {"Accept_Encoding": "gzip", "Range": "bytes=0-9"}):
        reply = client.get("/index.html", **headers)
        assert reply.headers["Content-Encoding"] is None
        assert plain.body.startswith(reply.body)
    # The names of parts say which bytes they have. The page itself changes with the version of Frazil
    part = next(name for name in client.server.assets if "-" in name)
    assert "immutable" in client.get(f"/{part}").headers["Cache-Control"]
    assert client.get("/index.html").headers["Cache-Control"] == "no-cache"
