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
EFFECTS = (
    "lose answer",
    "drop",
    "403",
    "404",
    "412",
    "503",
    "slow",
    "ignore conditions",
    "cut",
    "stale list",
    "before",
)


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

    @property
    def metadata(self) -> dict[str, str]:
        """The user metadata."""
        mark = "x-amz-meta-"
        return {
            name.removeprefix(mark): value for name, value in self.headers.items() if name.startswith(mark)
        }


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
                    return self._read(key, request.headers)
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
                    return Answer(200, headers={"ETag": _etag(request.body)})
                case "POST" if "uploads" in query:
                    upload = uuid.uuid4().hex
                    self.uploads[upload] = (request.metadata, {})
                    return _result("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
                case "PUT" | "COPY" | "POST":
                    return self._write(request, has_conditions=effect != "ignore conditions")
        return failure(405, "MethodNotAllowed")

    def _write(self, request: Request, *, has_conditions: bool) -> Answer:
        method, headers, body, metadata = request.method, request.headers, request.body, request.metadata
        path = self._path(request.key)
        if method == "COPY":
            source_key = unquote(headers["x-amz-copy-source"]).lstrip("/").removeprefix(f"{BUCKET}/")
            source = self._path(source_key)
            if not source.is_file():
                return FAILURES["404"]
            body = source.read_bytes()
            if headers.get("x-amz-copy-source-if-match", _etag(body)).strip('"') != _etag(body).strip('"'):
                return FAILURES["412"]
            metadata = metadata or self.metadata.get(source_key, {})
        now = _etag(path.read_bytes()) if path.is_file() else ""
        if has_conditions and now and headers.get("if-none-match") == "*":
            return FAILURES["412"]
        if has_conditions and headers.get("if-match", now).strip('"') != now.strip('"'):
            return FAILURES["412"] if now else FAILURES["404"]
        if method == "POST":
            upload = self.uploads.pop(request.query.get("uploadId", ""), None)
            if upload is None:
                return failure(404, "NoSuchUpload")
            metadata, body = upload[0], b"".join(part for _, part in sorted(upload[1].items()))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_bytes(body)
        temporary.replace(path)
        self.metadata[request.key] = metadata
        tag = f"<ETag>{_etag(body)}</ETag>"
        if method == "PUT":
            return Answer(200, headers={"ETag": _etag(body)})
        if method == "POST":
            return _result("CompleteMultipartUploadResult", tag)
        return _result("CopyObjectResult", f"{tag}<LastModified>{_time(path)}</LastModified>")

    def _read(self, key: str, headers: Mapping[str, str]) -> Answer:
        path = self._path(key)
        if not path.is_file():
            return FAILURES["404"]
        data = path.read_bytes()
        tag = _etag(data).strip('"')
        if headers.get("if-match", tag).strip('"') not in ("*", tag):
            return FAILURES["412"]
        if headers.get("if-none-match", "").strip('"') == tag:
            return Answer(304, headers={"ETag": _etag(data)})
        modified = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
        answers = {"ETag": _etag(data), "Last-Modified": format_datetime(modified, usegmt=True)}
        answers["Content-Type"] = guess_type(key)[0] or "application/octet-stream"
        answers |= {f"x-amz-meta-{name}": value for name, value in self.metadata.get(key, {}).items()}
        bounds = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", ""))
        if bounds is None:
            return Answer(200, data, answers)
        first = int(bounds[1]) if bounds[1] else max(len(data) - int(bounds[2]), 0)
        last = min(int(bounds[2]), len(data) - 1) if bounds[1] and bounds[2] else len(data) - 1
        if first >= len(data):
            return failure(416, "InvalidRange")
        return Answer(
            206,
            data[first : last + 1],
            answers | {"Content-Range": f"bytes {first}-{last}/{len(data)}"},
        )

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
                text = f"<Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>"
                etag = f"<ETag>{_etag(path.read_bytes())}</ETag>"
                rows[key] = f"<Contents>{text}<LastModified>{_time(path)}</LastModified>{etag}</Contents>"
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
    return f'"{hashlib.md5(data).hexdigest()}"'


def _time(path: Path) -> str:
    moment = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
