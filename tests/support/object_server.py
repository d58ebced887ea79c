"""A small object server in this process, for tests: the XML interface that S3 and GCS share.

It is written from what the object store client sends and expects, and keeps everything in memory. How it
treats conditions is chosen:

* ``Conditions.GENERATION``: as GCS does, by ``x-goog-if-generation-match``;
* ``Conditions.QUOTED_ETAG``: as S3 does, and so strict that an etag without quotes never matches;
* ``Conditions.IGNORED``: not at all, as several small S3 servers do. A storage must notice that.

    with ObjectServer(Conditions.GENERATION) as server:
        server.make_bucket("bucket")
        ...  # http://127.0.0.1:{server.port}

``server.requests`` lists the requests seen; ``server.objects("bucket")`` is what it holds.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import Enum, auto
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.support.loopback_http import LoopbackHttp, QuietHandler

if TYPE_CHECKING:
    from collections.abc import Mapping


class Conditions(Enum):
    """How the server treats the conditions of a write."""

    GENERATION = auto()
    QUOTED_ETAG = auto()
    IGNORED = auto()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object with its generation."""

    data: bytes
    generation: int
    modified: datetime

    @property
    def etag(self) -> str:
        """The MD5 of the bytes, quoted."""
        return f'"{hashlib.md5(self.data).hexdigest()}"'

    def headers(self) -> dict[str, str]:
        """What every answer about the object tells."""
        return {
            "ETag": self.etag,
            "Last-Modified": format_datetime(self.modified, usegmt=True),
            "x-goog-generation": str(self.generation),
        }


@dataclass(frozen=True, slots=True)
class Request:
    """One request that the server has seen."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def _error(status: int, code: str) -> _Answer:
    return _Answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


class ObjectServer(LoopbackHttp):
    """Serves on a free port of 127.0.0.1 while its ``with`` block runs."""

    def __init__(self, conditions: Conditions, page: int = 1000) -> None:
        self.conditions = conditions
        self.requests: list[Request] = []
        self._page = page
        self._buckets: dict[str, dict[str, StoredObject]] = {}
        self._uploads: dict[str, dict[int, bytes]] = defaultdict(dict)
        self._generations = itertools.count(1)
        self._lock = threading.RLock()
        super().__init__(_handler(self))

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        self._buckets[name] = {}

    def objects(self, bucket: str) -> dict[str, StoredObject]:
        """What a bucket holds."""
        with self._lock:
            return dict(self._buckets[bucket])

    def answer(self, request: Request, body: bytes) -> _Answer:
        """The answer to one request; requests are taken one after the other."""
        url = urlsplit(request.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        with self._lock:
            self.requests.append(request)
            objects = self._buckets.get(bucket)
            if objects is None:
                return _error(404, "NoSuchBucket")
            match request.method:
                case "GET" | "HEAD" if not key:
                    return self._list(objects, query)
                case "GET" | "HEAD":
                    return self._read(objects, key, request.headers)
                case "PUT" if "partNumber" in query:
                    self._uploads[query["uploadId"]][int(query["partNumber"])] = body
                    return _Answer(200, headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
                case "PUT":
                    return self._write(objects, key, body, request.headers)
                case "POST" if "delete" in query:
                    return self._delete_many(objects, body)
                case "POST":
                    return self._upload(objects, key, query)
                case "DELETE":
                    return self._delete(objects, key)
                case _:
                    return _error(405, "MethodNotAllowed")

    # reading

    def _read(self, objects: dict[str, StoredObject], key: str, headers: Mapping[str, str]) -> _Answer:
        stored = objects.get(key)
        if stored is None:
            return _error(404, "NoSuchKey")
        expected = headers.get("if-match")
        if expected is not None and expected not in ("*", stored.etag):
            return _error(412, "PreconditionFailed")
        unmodified = headers.get("if-unmodified-since")
        if unmodified is not None and stored.modified.replace(microsecond=0) > _http_date(unmodified):
            return _error(412, "PreconditionFailed")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        if wanted is None:
            return _Answer(200, stored.data, stored.headers())
        size = len(stored.data)
        first, last = int(wanted[1]), min(int(wanted[2] or size), size - 1)
        if first >= size:
            return _error(416, "InvalidRange")
        content_range = {"Content-Range": f"bytes {first}-{last}/{size}"}
        return _Answer(206, stored.data[first : last + 1], stored.headers() | content_range)

    def _list(self, objects: dict[str, StoredObject], query: Mapping[str, str]) -> _Answer:
        after = query.get("continuation-token", "")
        matching = sorted(key for key in objects if key.startswith(query.get("prefix", "")) and key > after)
        page = matching[: self._page]
        more = len(matching) > len(page)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key].data)}</Size>"
            f"<LastModified>{objects[key].modified.isoformat(timespec='milliseconds')}</LastModified>"
            f"<ETag>{escape(objects[key].etag)}</ETag></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}"
        return _Answer(200, f"{text}</ListBucketResult>".encode())

    # writing

    def _write(
        self, objects: dict[str, StoredObject], key: str, body: bytes, headers: Mapping[str, str]
    ) -> _Answer:
        if not self._holds(objects.get(key), headers):
            return _error(412, "PreconditionFailed")
        return _Answer(200, headers=self._store(objects, key, body).headers())

    def _holds(self, now: StoredObject | None, headers: Mapping[str, str]) -> bool:
        match self.conditions:
            case Conditions.GENERATION:
                expected = headers.get("x-goog-if-generation-match")
                return expected is None or expected == ("0" if now is None else str(now.generation))
            case Conditions.QUOTED_ETAG:
                if headers.get("if-none-match") == "*" and now is not None:
                    return False
                expected = headers.get("if-match")
                return expected is None or (now is not None and expected == now.etag)
            case Conditions.IGNORED:
                return True

    def _store(self, objects: dict[str, StoredObject], key: str, data: bytes) -> StoredObject:
        stored = objects[key] = StoredObject(data, next(self._generations), datetime.now(UTC))
        return stored

    def _upload(self, objects: dict[str, StoredObject], key: str, query: Mapping[str, str]) -> _Answer:
        if "uploads" in query:
            name = f"upload-{next(self._generations)}"
            text = (
                f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
            return _Answer(200, text.encode())
        parts = self._uploads.pop(query["uploadId"], {})
        stored = self._store(objects, key, b"".join(parts[number] for number in sorted(parts)))
        text = f"<CompleteMultipartUploadResult><ETag>{stored.etag}</ETag></CompleteMultipartUploadResult>"
        return _Answer(200, text.encode(), stored.headers())

    def _delete(self, objects: dict[str, StoredObject], key: str) -> _Answer:
        missing = objects.pop(key, None) is None
        # GCS says so, S3 does not.
        if missing and self.conditions is Conditions.GENERATION:
            return _error(404, "NoSuchKey")
        return _Answer(204)

    def _delete_many(self, objects: dict[str, StoredObject], body: bytes) -> _Answer:
        keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode(), re.DOTALL)]
        for key in keys:
            objects.pop(key, None)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return _Answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())


def _http_date(text: str) -> datetime:
    return datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)


def _handler(server: ObjectServer) -> type[QuietHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            answer = server.answer(Request(self.command, self.path, headers), body)
            self.reply(answer.status, answer.body, answer.headers.items())

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    return Handler
