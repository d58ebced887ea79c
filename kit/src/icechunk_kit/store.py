"""An object store with faults: the part of the S3 protocol that a repository needs, over a folder.

The store keeps no secret and checks no signature. It serves one bucket on 127.0.0.1. The key of an object,
without the prefix, is the path of a file in the folder, so that a case writes and checks files as on a file
system. A plan of faults is data: see `Fault`.
"""

from __future__ import annotations

import hashlib
import io
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET, PREFIX = "kit", "repository"


@dataclass(slots=True)
class Fault:
    """What happens to some requests.

    Attributes:
        effect: "lose answer": the store does it, and the connection breaks. "drop": the connection
            breaks, and the store does nothing. "403", "404", "412", "503": this answer, and the store
            does nothing. "slow": the answer waits for `seconds`. "ignore conditions": a write without its
            conditions. "cut": half of the body, and the connection breaks. "stale list": a list has only
            what was there when the fault was set. "before": no more than `steps`: the requests of another
            client before the store answers.
        method: The method of HTTP, or "LIST" or "COPY".
        key: A regular expression that a part of the key without the prefix matches.
        times: How often it happens. -1: always.
        skip: How many requests pass before.
    """

    effect: str
    method: str = "PUT"
    key: str = ""
    times: int = 1
    skip: int = 0
    seconds: float = 0.0
    steps: Sequence[dict[str, Any]] = ()
    keys: frozenset[str] = frozenset()
    has_happened: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the method of HTTP, "LIST" or "COPY", the key with the prefix, and the rest."""

    method: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def condition(self, name: str, default: str = "") -> str:
        """The tag of a conditional request."""
        return self.headers.get(name, default).strip('"')

    @property
    def metadata(self) -> dict[str, str]:
        """The user metadata."""
        return {name: value for name, value in self.headers.items() if name.startswith("x-amz-meta-")}


@dataclass(slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def failure(status: int, code: str) -> Answer:
    text = f"<Error><Code>{code}</Code><Message>{code} of icechunk-kit</Message></Error>"
    return Answer(status, text.encode(), {"Content-Type": "application/xml"})


FAILURES = {
    "403": failure(403, "AccessDenied"),
    "404": failure(404, "NoSuchKey"),
    "412": failure(412, "PreconditionFailed"),
    "503": failure(503, "SlowDown"),
}
EFFECTS = {*FAILURES, "lose answer", "drop", "slow", "ignore conditions", "cut", "stale list", "before"}


class Store:
    """Serves a folder while its `with` block runs.

    Args:
        root: The folder.
        ask: Makes one request as another client, for faults of the effect "before".
    """

    def __init__(self, root: Path, ask: Callable[[dict[str, Any]], None]) -> None:
        self.root, self.ask = root, ask
        #: The plan, and the faults of earlier plans.
        self.faults: list[Fault] = []
        self.before: list[Fault] = []
        #: The user metadata of each key, and the parts of each upload.
        self.metadata: dict[str, dict[str, str]] = {}
        self.uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = {}
        self.lock = threading.Lock()

    def __enter__(self) -> Store:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that went away
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def location(self) -> dict[str, str]:
        """The member `s3` of a location."""
        return {
            "endpoint": f"http://127.0.0.1:{self.server.server_address[1]}",
            "bucket": BUCKET,
            "prefix": PREFIX,
            "region": "us-east-1",
            "access_key": "kit",
            "secret_key": "kit-secret",
        }

    def plan(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Replace the faults."""
        keys = frozenset(self._keys())
        self.before += self.faults
        self.faults = [Fault(**{**fault, "keys": keys}) for fault in faults]
        assert all(fault.effect in EFFECTS for fault in self.faults)

    def respond(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[Answer, str]:
        """Return an answer, and what happens to the connection: "", "drop" or "cut"."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return failure(404, "NoSuchBucket"), ""
        if method == "GET" and not key:
            method = "LIST"
        elif "x-amz-copy-source" in headers:
            method = "COPY"
        request = Request(method, key, query, headers, body)
        fault = self._fault(method, key.removeprefix(PREFIX + "/") if key else query.get("prefix", ""))
        if fault is None:
            return self._do(request), ""
        if fault.effect in FAILURES:
            return FAILURES[fault.effect], ""
        if fault.effect == "drop":
            return Answer(503), "drop"
        time.sleep(fault.seconds)
        for step in fault.steps:
            self.ask(step)
        return self._do(request, fault), {"lose answer": "drop", "cut": "cut"}.get(fault.effect, "")

    def _fault(self, method: str, key: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.key, key):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    fault.has_happened = True
                    return fault
        return None

    def _do(self, request: Request, fault: Fault | None = None) -> Answer:
        effect, key, query = fault.effect if fault else "", request.key, request.query
        with self.lock:
            match request.method:
                case "LIST":
                    return self._list(query, fault.keys if fault and effect == "stale list" else None)
                case "GET" | "HEAD":
                    return self._read(request)
                case "POST" if "delete" in query:
                    names = re.findall(r"<Key>(.*?)</Key>", request.body.decode(), re.DOTALL)
                    for name in names:
                        self._path(unescape(name)).unlink(missing_ok=True)
                    rows = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
                    return _result("DeleteResult", rows)
                case "DELETE":
                    self.uploads.pop(query.get("uploadId", ""), None)
                    if "uploadId" not in query:
                        self._path(key).unlink(missing_ok=True)
                    return Answer(204)
                case "PUT" if "partNumber" in query:
                    self.uploads[query["uploadId"]][1][int(query["partNumber"])] = request.body
                    return Answer(200, headers={"ETag": f'"{_etag(request.body)}"'})
                case "POST" if "uploads" in query:
                    upload = uuid.uuid4().hex
                    self.uploads[upload] = (request.metadata, {})
                    return _result("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
                case "PUT" | "COPY" | "POST":
                    return self._write(request, has_conditions=effect != "ignore conditions")
        return failure(405, "MethodNotAllowed")

    def _write(self, request: Request, *, has_conditions: bool) -> Answer:
        body, metadata, path = request.body, request.metadata, self._path(request.key)
        if request.method == "COPY":
            source_key = unquote(request.headers["x-amz-copy-source"]).lstrip("/").removeprefix(f"{BUCKET}/")
            if not self._path(source_key).is_file():
                return FAILURES["404"]
            body = self._path(source_key).read_bytes()
            if request.condition("x-amz-copy-source-if-match", _etag(body)) != _etag(body):
                return FAILURES["412"]
            metadata = metadata or self.metadata.get(source_key, {})
        now = _etag(path.read_bytes()) if path.is_file() else ""
        if has_conditions and now and request.condition("if-none-match") == "*":
            return FAILURES["412"]
        if has_conditions and request.condition("if-match", now) != now:
            return FAILURES["412"] if now else FAILURES["404"]
        if request.method == "POST":
            upload = self.uploads.pop(request.query.get("uploadId", ""), None)
            if upload is None:
                return failure(404, "NoSuchUpload")
            metadata, body = upload[0], b"".join(part for _, part in sorted(upload[1].items()))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_bytes(body)
        temporary.replace(path)
        self.metadata[request.key] = metadata
        if request.method == "PUT":
            return Answer(200, headers={"ETag": f'"{_etag(body)}"'})
        name = "CopyObjectResult" if request.method == "COPY" else "CompleteMultipartUploadResult"
        return _result(name, _stamp(path))

    def _read(self, request: Request) -> Answer:
        path = self._path(request.key)
        if not path.is_file():
            return FAILURES["404"]
        data = path.read_bytes()
        if request.condition("if-match", "*") not in ("*", _etag(data)):
            return FAILURES["412"]
        modified = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
        headers = {"ETag": f'"{_etag(data)}"', "Last-Modified": format_datetime(modified, usegmt=True)}
        if request.condition("if-none-match") == _etag(data):
            return Answer(304, headers=headers)
        headers["Content-Type"] = guess_type(request.key)[0] or "application/octet-stream"
        headers |= self.metadata.get(request.key, {})
        bounds = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if bounds is None:
            return Answer(200, data, headers)
        first = int(bounds[1]) if bounds[1] else max(len(data) - int(bounds[2]), 0)
        last = min(int(bounds[2]), len(data) - 1) if bounds[1] and bounds[2] else len(data) - 1
        if first >= len(data):
            return failure(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return Answer(206, data[first : last + 1], headers)

    def _list(self, query: Mapping[str, str], stale: frozenset[str] | None) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("continuation-token", ""), query.get("start-after", ""))
        limit = int(query.get("max-keys", 1000))
        rows: dict[str, str] = {}
        for key in self._keys():
            if not key.startswith(prefix) or (stale is not None and key not in stale):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                name = f"{prefix}{rest.partition(delimiter)[0]}{delimiter}"
                rows[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            else:
                path = self._path(key)
                text = f"<Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>{_stamp(path)}"
                rows[key] = f"<Contents>{text}</Contents>"
        names = [name for name in sorted(rows, key=str.encode) if name > after]
        page, more = names[:limit], len(names) > limit
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = "".join(rows[name] for name in page)
        return _result(
            "ListBucketResult",
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<MaxKeys>{limit}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}{body}",
        )

    def _keys(self) -> list[str]:
        files = (path for path in self.root.rglob("*") if path.is_file())
        return sorted(f"{PREFIX}/{path.relative_to(self.root).as_posix()}" for path in files)

    def _path(self, key: str) -> Path:
        path = self.root / key.removeprefix(PREFIX + "/")
        assert ".." not in path.parts
        return path


def _etag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def _stamp(path: Path) -> str:
    """Return the tag and the time of a file, for an answer in XML."""
    time = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
    text = time.replace("+00:00", "Z")
    return f'<ETag>"{_etag(path.read_bytes())}"</ETag><LastModified>{text}</LastModified>'


def _result(name: str, content: str) -> Answer:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{content}</{name}>'
    return Answer(200, text.encode(), {"Content-Type": "application/xml"})


def _handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                return self._pieces(self.rfile.readline, self.rfile.read)
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def _pieces(self, line: Callable[[], bytes], read: Callable[[int], bytes]) -> bytes:
            """Return the content of a body in pieces, each after a line with its size in hexadecimal."""
            content = b""
            while size := int(line().split(b";")[0], 16):
                content += read(size)
                line()
            while line().strip():
                pass
            return content

        def _serve(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self._body()
            if "aws-chunked" in headers.get("content-encoding", "") or headers.get(
                "x-amz-content-sha256", ""
            ).startswith("STREAMING"):
                content = io.BytesIO(body)
                body = self._pieces(content.readline, content.read)
            answer, connection = store.respond(self.command, self.path, headers, body)
            if connection == "drop":
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                half = len(answer.body) // 2
                self.wfile.write(answer.body[:half] if connection == "cut" else answer.body)
            self.wfile.flush()
            self.close_connection |= connection == "cut"

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    return Handler
