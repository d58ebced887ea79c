"""The server of ``frazil ui``: raw files of a repository for the page, on this machine.

A folder of repositories has a page that lists them. The page of each one is below ``/r/NAME/``, with the same
requests. The names come from one listing at the start, so no request names another place.

**Who may read.** Any web page can send requests to servers of this machine, and any user of this machine can
connect to them. So every answer except the assets of the page, which are public, needs the token of this
start (``Authorization: Bearer``). The page gets it in the fragment of its address, which browsers send to
nobody. A cookie would also go to other servers of this machine, because cookies ignore ports. A page that a
foreign name leads to this machine (DNS rebinding) has the foreign name in ``Host``, and is refused, and so is
a request with the ``Origin`` of another page.

**Slow answers** of ``api/`` are commands of Frazil in processes of their own. Such a process cannot delay the
threads that send files, and ends with its client.

**Changes** are commands too (`frazil.ui.commands`). Only a server that was started for them accepts ``POST``.
The bearer header makes forged requests impossible, and a change that has begun does not end with its client.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import re
import secrets
import selectors
import socket
import sys
from collections.abc import Buffer, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote

from frazil.about import __version__
from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.format.chunk_table import VirtualRef
from frazil.repository.target import Target
from frazil.storage.base import Storage
from frazil.ui import files
from frazil.ui.commands import Change, CommandProcesses, CommandResult, answer_command, planned

_log: Final = logging.getLogger(__name__)

#: The headers of every answer, besides the policy of the page.
_HEADERS: Final = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FOREVER: Final = "private, max-age=31536000, immutable"
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: The largest body of a request.
_LONGEST_BODY: Final = 64 << 10
#: Seconds until a client that neither sends nor receives is disconnected.
_PATIENCE: Final = 60

_STATUS: Final[Mapping[str, HTTPStatus]] = {
    ErrorKind.OBJECT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER: HTTPStatus.FORBIDDEN,
    ErrorKind.VIRTUAL_CHUNK_MODIFIED: HTTPStatus.CONFLICT,
    ErrorKind.BRANCH_UPDATE_CONFLICT: HTTPStatus.CONFLICT,
    ErrorKind.REPO_INFO_UPDATED: HTTPStatus.CONFLICT,
}


@dataclass(frozen=True, slots=True)
class Site:
    """What a server shows.

    Attributes:
        target: The repository, and the version and the path that the page shows first.
        storage: The storage of the repository, with its credentials.
        spec_version: The version of the format.
        virtual: The containers of virtual chunks that the user has authorised.
        token: What a request must present.
        is_writable: Whether the page may change the repository.
        label: What the page calls the repository. Default: the place of the storage.
        folder_address: The address of the list of repositories, relative to the page; None without a list.
    """

    target: Target
    storage: Storage
    spec_version: int
    virtual: VirtualSources
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    is_writable: bool = False
    label: str | None = None
    folder_address: str | None = None

    @property
    def info(self) -> dict[str, Any]:
        """The description of the site for the page."""
        return {
            "label": self.label or self.storage.label(),
            "location": self.target.location,
            **files.start(self.target),
            **({"folder": self.folder_address} if self.folder_address else {}),
            "writable": self.is_writable,
            "specVersion": self.spec_version,
            "frazil": __version__,
        }


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder or a prefix of a bucket with several repositories, which a server shows side by side.

    Attributes:
        label: What the page calls the folder.
        names: The names of the repositories.
        open: Returns the site of a repository by its name.
        token: What a request must present.
    """

    label: str
    names: frozenset[str]
    open: Callable[[str], Site]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    is_writable: ClassVar[bool] = False

    @property
    def info(self) -> dict[str, Any]:
        """The description of the folder for the page."""
        return {"label": self.label, "repositories": sorted(self.names), "frazil": __version__}


@dataclass(frozen=True, slots=True)
class _SiteFiles:
    """A site with its files."""

    site: Site
    files: files.RepositoryFiles

    @classmethod
    def of(cls, site: Site) -> _SiteFiles:
        return cls(site, files.RepositoryFiles(site.storage, site.spec_version))


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    address = _address_of(host)
    return host == "localhost" if address is None else address.is_loopback


class Refusal(Exception):
    """An answer that is an error: its status, its kind, and a text for people."""

    def __init__(self, status: HTTPStatus, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status: HTTPStatus = status
        self.kind: str = kind
        self.headers: Final = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, slots=True)
class PageResponse:
    """A status, headers, and a body of ``size`` bytes."""

    status: HTTPStatus
    headers: Mapping[str, str]
    size: int
    body: Iterable[Buffer] = ()


class ExplorerServer(ThreadingHTTPServer):
    """A server for one site, or for a folder. ``server_close`` also ends the processes of slow answers."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, site: Site | Folder, host: str = "127.0.0.1", port: int = 0) -> None:
        self.site = site
        self.host = host
        #: The only repository; None for a folder.
        self.site_files: Final = _SiteFiles.of(site) if isinstance(site, Site) else None
        #: A repository of the folder by its name, opened once.
        self.member: Final = cache(self._opened)
        self.assets: Final = files.assets()
        # The policy of the page names the hashes of its script and its style. The page of a server asks only
        # this server. No other page may show it in a frame: clicks in the frame could change the repository.
        policy = self.assets["index.html"].read_text(encoding="utf-8").partition('Policy" content="')[2]
        policy = policy.partition('"')[0].replace("connect-src *", "connect-src 'self'")
        self.policy: Final = f"{policy}; frame-ancestors 'none'"
        self.asset: Final = cache(
            lambda name, is_packed: files.BytesContent.of_asset(self.assets[name], is_packed)
        )
        self.processes: Final = CommandProcesses()
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)

    def _opened(self, name: str) -> _SiteFiles:
        assert isinstance(self.site, Folder)
        return _SiteFiles.of(self.site.open(name))

    @property
    def url(self) -> str:
        """The address of the page, with the token. Its query says if the page shows a folder."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "?folder" if isinstance(self.site, Folder) else ""
        return f"http://{host}:{self.server_address[1]}/{query}#token={self.site.token}"

    def knows(self, host: str) -> bool:
        """Return whether a request for this host means this server.

        The port does not matter, and may be that of a tunnel. A foreign name could lead here, an address not.
        """
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        if name.lower() in _LOCAL_NAMES or name.lower() == self.host.lower():
            return True
        return not is_loopback(self.host) and _address_of(name) is not None

    def server_bind(self) -> None:
        """Bind the socket. The base class would also ask DNS for the name of this machine."""
        super(ThreadingHTTPServer, self).server_bind()

    def server_close(self) -> None:
        """Close the socket, and end the processes of slow answers."""
        super().server_close()
        self.processes.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error. A client that went away is none."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("an answer failed")


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server_version = "frazil"
    sys_version = ""
    timeout = _PATIENCE
    disable_nagle_algorithm = True
    server: ExplorerServer
    #: The repository of the request; None before it is known, and for a folder.
    site_files: _SiteFiles | None = None

    @property
    def site(self) -> Site:
        """The site of the request."""
        assert self.site_files is not None
        return self.site_files.site

    def do_GET(self) -> None:
        """Answer a request."""
        self._reply(self._answer)

    def do_POST(self) -> None:
        """Answer a request to change the repository, if there are such requests."""
        if self.server.site.is_writable:
            self._reply(self._change)
        else:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED)

    def _reply(self, compute: Callable[[], PageResponse]) -> None:
        try:
            answer = compute()
        except Refusal as refusal:
            self._refuse(refusal)
        except IcechunkError as error:
            self._refuse(self._refusal(error))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception:
            _log.exception("an answer failed")
            self._refuse(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "other", "the server failed: see its log"))
        else:
            self._send(answer)

    do_HEAD = do_GET  # noqa: N815  # as the base class names methods

    def _require_own_page(self) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body that nobody reads would be the next request
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or not self.server.knows(hosts[0]):
            raise Refusal(HTTPStatus.FORBIDDEN, "host", "the request is for another host")
        if origins not in ([], [f"http://{hosts[0]}"]):
            raise Refusal(HTTPStatus.FORBIDDEN, "origin", "the request is from another page")

    def _answer(self) -> PageResponse:
        self._require_own_page()
        coded, _, text = self.path.partition("?")
        try:
            path = unquote(coded, errors="strict")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20)
        except ValueError:
            raise Refusal(HTTPStatus.BAD_REQUEST, "request", "the address is not valid") from None
        folder = self.server.site
        self.site_files, member = self.server.site_files, None
        if isinstance(folder, Folder) and (match := _MEMBER.fullmatch(path)):
            member, path = match[1], match[2]  # whose page is public, whether it exists or not
        name = path.removeprefix("/") or "index.html"
        if name in self.server.assets and path.startswith("/"):
            return self._asset_response(name)
        self._require_token()
        query = dict(pairs)
        if isinstance(folder, Folder) and member in folder.names:
            self.site_files = self.server.member(member)
        elif isinstance(folder, Folder):
            if path != "/api/info" or member is not None:
                raise _not_found()
            return self._memory_response(json.dumps(folder.info).encode(), files.TYPES["json"])
        for prefix, answer in _ROUTES.items():
            if path.startswith(prefix):
                return answer(self, path.removeprefix(prefix), query)
        raise _not_found()

    def _require_token(self) -> None:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            token.strip().encode(), self.server.site.token.encode()
        ):
            raise Refusal(HTTPStatus.FORBIDDEN, "token", "wrong or no token. Open the address of `frazil ui`")

    # Routes

    def _asset_response(self, name: str) -> PageResponse:
        codings = {each.strip() for each in self.headers.get("Accept-Encoding", "").split(",")}
        is_packed = "gzip" in codings and "Range" not in self.headers
        answer = self._content_response(
            self.server.asset(name, is_packed), files.TYPES.get(name.rpartition(".")[2], files.BINARY)
        )
        coding = {"Content-Encoding": "gzip"} if is_packed else {}
        return replace(answer, headers={**answer.headers, **coding, "Vary": "Accept-Encoding"})

    def _file_response(self, key: str, query: Mapping[str, str]) -> PageResponse:
        try:
            assert self.site_files is not None
            content = self.site_files.files.content(key)
        except IcechunkError as error:
            # A browser writes each status 404 into its console, also of a file that need not exist
            if error.kind is not ErrorKind.OBJECT_NOT_FOUND or "optional" not in query:
                raise
            return self._memory_response(b"", files.BINARY)
        if content is None:
            raise _not_found()
        return self._content_response(content, files.TYPES["json"] if key.endswith(".json") else files.BINARY)

    def _virtual_response(self, rest: str, query: Mapping[str, str]) -> PageResponse:
        if rest:
            raise _not_found()
        start, stop = _number(query, "start"), _number(query, "end")
        if not 0 < stop - start <= files.LONGEST:
            raise Refusal(HTTPStatus.BAD_REQUEST, "range", "`end` must be after `start`, by at most 256 MiB")
        modified = _number(query, "modified") if "modified" in query else None
        ref = VirtualRef(query.get("url", ""), start, stop - start, query.get("etag"), modified)
        return self._memory_response(self.site.virtual.locate(ref).get(start, stop), files.BINARY)

    def _api_response(self, name: str, query: Mapping[str, str]) -> PageResponse:
        if name == "info":
            return self._memory_response(json.dumps(self.site.info).encode(), files.TYPES["json"])
        arguments = answer_command(name, self.site.target, query)
        if arguments is None:
            raise _not_found()
        if self.command == "HEAD":
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "method", "only GET", Allow="GET")
        return self._command_response(self._run(arguments, self._is_gone))

    def _change(self) -> PageResponse:
        """Answer with the plan of a change, or make the change."""
        self._require_own_page()
        self._require_token()
        is_plan = self.path == "/api/plan"
        if not is_plan and self.path != "/api/apply":
            raise _not_found()
        self.site_files = self.server.site_files
        change = Change.of(self._body(), is_plan=is_plan)
        arguments = change.arguments(self.site.target, is_plan=is_plan)
        if not is_plan:
            return self._command_response(self._run(arguments, lambda: False))
        result = self._run(arguments, self._is_gone)
        return self._command_response(planned(change, result) if result.is_answer else result)

    def _body(self) -> Any:
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not re.fullmatch("[0-9]{1,15}", lengths[0]):
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "request", "the request needs one `Content-Length`")
        if int(lengths[0]) > _LONGEST_BODY:
            text = f"the body must have at most {_LONGEST_BODY} bytes, got {lengths[0]}"
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request", text)
        if self.headers.get_content_type() != "application/json":
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "request", "the body must be application/json")
        try:
            return json.loads(self.rfile.read(int(lengths[0])))
        except (ValueError, RecursionError):
            raise Refusal(HTTPStatus.BAD_REQUEST, "request", "the body is not valid JSON") from None

    def _run(self, arguments: list[str], is_gone: Callable[[], bool]) -> CommandResult:
        result = self.server.processes.run(arguments, is_gone)
        if result is None:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too many answers run", Retry_After="5")
        return result

    def _command_response(self, result: CommandResult) -> PageResponse:
        status = HTTPStatus.OK
        if not result.is_answer:
            status = _STATUS.get(result.kind, HTTPStatus.UNPROCESSABLE_ENTITY)
        return self._memory_response(result.text, files.TYPES["json"], status)

    def _is_gone(self) -> bool:
        """Return whether the client has closed the connection."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.connection, selectors.EVENT_READ)
                return bool(selector.select(0)) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    # Answers

    def _memory_response(self, data: Buffer, kind: str, status: HTTPStatus = HTTPStatus.OK) -> PageResponse:
        headers = {"Content-Type": kind, "Cache-Control": "no-store"}
        return PageResponse(status, headers, memoryview(data).nbytes, [data])

    def _content_response(self, content: files.Content, kind: str) -> PageResponse:
        """Return the answer with a content, or the part of it that the request wants."""
        etag = f'"{content.etag}"'
        headers = {
            "Content-Type": kind,
            "Accept-Ranges": "bytes",
            "Cache-Control": _FOREVER if content.is_immutable else "no-cache",
            "ETag": etag,
            # With another token, the server of this port is another one.
            "Vary": "Authorization",
        }
        etags = [each.strip().removeprefix("W/") for each in self.headers.get("If-None-Match", "").split(",")]
        if etag in etags or "*" in etags:
            return PageResponse(HTTPStatus.NOT_MODIFIED, headers, 0)
        header = self.headers.get("Range")
        if header is None or self.headers.get("If-Range", etag) != etag:
            return PageResponse(HTTPStatus.OK, headers, content.size, content.parts(0, content.size))
        exact = _EXACT.fullmatch(header)
        if isinstance(content, files.ObjectContent) and exact is not None and self.command == "GET":
            start = int(exact[1])
            data = content.part(start, int(exact[2]) + 1)
            if data is not None:
                length = memoryview(data).nbytes
                headers["Content-Range"] = f"bytes {start}-{start + length - 1}/*"
                return PageResponse(HTTPStatus.PARTIAL_CONTENT, headers, length, [data])
        size = content.size
        match _range(header, size):
            case None:
                return PageResponse(HTTPStatus.OK, headers, size, content.parts(0, size))
            case start, stop if start < stop:
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
                return PageResponse(
                    HTTPStatus.PARTIAL_CONTENT, headers, stop - start, content.parts(start, stop)
                )
        raise Refusal(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            "range",
            "the range is outside of the file",
            Content_Range=f"bytes */{size}",
        )

    def _send(self, answer: PageResponse) -> None:
        is_empty = self.command == "HEAD" or answer.status is HTTPStatus.NOT_MODIFIED
        parts = iter(() if is_empty else answer.body)
        try:
            first = next(parts, b"")  # an error of the first read is an answer of its own
        except IcechunkError as error:
            self._refuse(self._refusal(error))
            return
        self.send_response(answer.status)
        self.send_header("Content-Security-Policy", self.server.policy)
        for name, value in {**_HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        if answer.status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(answer.size))
        if self.close_connection:
            self.send_header("Connection", "close")
        try:
            self.end_headers()
            self.wfile.write(first)
            for part in parts:
                self.wfile.write(part)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except IcechunkError as error:
            # The client sees a body that is too short.
            _log.warning("an answer was not completed: %s", error)
            self.close_connection = True

    def _refusal(self, error: IcechunkError) -> Refusal:
        is_invalid = isinstance(error, InvalidInputError)
        status = _STATUS.get(error.kind, HTTPStatus.BAD_REQUEST if is_invalid else HTTPStatus.BAD_GATEWAY)
        location = self.site.target.location if self.site_files else "LOCATION"
        return Refusal(status, str(error.kind), error.for_shell(location))

    def _refuse(self, refusal: Refusal) -> None:
        text = json.dumps({"error": {"kind": refusal.kind, "message": str(refusal)}}).encode()
        headers = {"Content-Type": files.TYPES["json"], "Cache-Control": "no-store", **refusal.headers}
        self._send(PageResponse(refusal.status, headers, len(text), [text]))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request, or has an unknown method."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            allowed = f"GET, HEAD{', POST' if self.server.site.is_writable else ''}"
            refusal = Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "method", f"only {allowed}", Allow=allowed)
        else:
            refusal = Refusal(HTTPStatus(code), "request", HTTPStatus(code).phrase)
        self._refuse(refusal)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request, for the level DEBUG."""
        _log.debug(format, *args)


#: The path of a repository of a folder: its name, and the path in it.
_MEMBER: Final = re.compile(r"/r/([^/]+)(/.*)", re.DOTALL)
#: The beginning of a path -> the method that answers.
_ROUTES: Final[dict[str, Callable[[_Handler, str, Mapping[str, str]], PageResponse]]] = {
    "/repo/": _Handler._file_response,
    "/virtual": _Handler._virtual_response,
    "/api/": _Handler._api_response,
}


def _not_found() -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "not-found", "there is no such file")


def _number(query: Mapping[str, str], name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", query.get(name, "")):
        raise Refusal(HTTPStatus.BAD_REQUEST, "range", f"`{name}` must be a number")
    return int(query[name])


_EXACT: Final = re.compile(r"bytes=([0-9]{1,15})-([0-9]{1,15})")
_RANGE: Final = re.compile(r"\s*bytes\s*=\s*([0-9]{0,15})-([0-9]{0,15})\s*", re.IGNORECASE)


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Return the range of a header, empty if it is outside. None if it is not one range: it is ignored."""
    match = _RANGE.fullmatch(text)
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        return max(0, size - int(match[2])), size
    start, stop = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    # A range that ends before it begins is not valid, and not a range outside.
    return None if match[2] and int(match[2]) < start else (start, stop)
