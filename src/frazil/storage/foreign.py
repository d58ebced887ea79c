"""Reading the objects that virtual chunks point to: files that belong to others, anywhere.

A virtual chunk is a range of an object and, often, what the object was when it was indexed: its etag, or
a time after which it was not changed. Both are compared with what comes in the same answer as the bytes,
so nothing can change in between, and no server has to understand a condition.

URLs are read as the reference reads them. ``file:`` is a URL in full: percent codes are decoded, ``..`` is
resolved, and what follows ``?`` or ``#`` is not part of the path. In ``s3:``, ``gs:`` and ``az:`` all that
follows the bucket is the key, letter by letter. ``http:`` is a URL without a query.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage import failures, web_failures
from frazil.storage.access import anonymous_access, require_scheme
from frazil.storage.counted import COUNTS
from frazil.storage.credentials import (
    AnyCredential,
    Credentials,
)
from frazil.storage.files import failures as file_failures
from frazil.storage.files.links import open_inside
from frazil.storage.locations import (
    AzureLocation,
    GcsLocation,
    Location,
    S3Location,
)
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig, S3Options
from frazil.storage.option_names import shown_url
from frazil.storage.process_guard import enter_runtime
from frazil.storage.services import TIGRIS_ENDPOINT
from frazil.storage.settings import StorageSettings
from frazil.storage.web import WebClient
from frazil.storage.web_answer import Answer, Unreachable
from frazil.storage.web_options import web_options

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterator

    from obstore import GetResult
    from obstore.store import ObjectStore

#: One system call moves at most this much.
_CALL_BYTES: Final = 1 << 30


class ForeignObjects(ABC):
    """The objects below one URL prefix. May be pickled; connects when it is first used."""

    @abstractmethod
    def get(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        """The bytes ``start <= i < stop`` of the object at ``url``: all of them, or an error.

        Raises ``StorageError``: ``virtual-chunk-modified`` if the object has another etag or was changed
        after that time (in whole seconds), ``virtual-chunk-fetch`` if it cannot be read;
        ``InvalidInputError`` of kind ``invalid-virtual-ref`` for a URL that is not of this place.
        """

    @abstractmethod
    async def get_async(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        """``get`` for an event loop."""

    @abstractmethod
    def size(self, url: str) -> int:
        """How many bytes the object at ``url`` has. Raises ``StorageError`` (``virtual-chunk-fetch``)."""


def open_foreign(
    config: AnyObjectStoreConfig,
    credentials: AnyCredential | None,
    url_prefix: str,
    settings: StorageSettings | None = None,
    *,
    user_agent: str | None = None,
) -> ForeignObjects:
    """A reader for the objects whose URLs begin with ``url_prefix``.

    Of a local file system the URL says where a file is. What is not there is looked for below the path that
    ``config`` has: where the files of ``url_prefix`` are on this machine, if it has one.

    Without ``credentials`` requests are anonymous. Raises ``InvalidInputError`` for a store that cannot hold
    such URLs (``invalid-virtual-ref``), and for credentials of another kind of store
    (``invalid-credentials``).
    """
    if credentials is None:
        credentials = anonymous_access(url_prefix)
    match config:
        case ObjectStoreConfig.LocalFileSystem(path):
            require_scheme(config, url_prefix)
            if not isinstance(credentials, Credentials.LocalFileSystemAccess):
                raise _does_not_fit(credentials, config)
            return ForeignFiles(url_prefix, path)
        case ObjectStoreConfig.InMemory():
            raise InvalidInputError(
                "virtual chunks cannot be in memory: expected a container in S3, GCS, Azure, on the web or "
                "in local files",
                ErrorKind.STORAGE_CONFIG,
            )
        case ObjectStoreConfig.Http(opts, headers):
            require_scheme(config, url_prefix)
            if not isinstance(credentials, Credentials.HttpAccess):
                raise _does_not_fit(credentials, config)
            options = web_options(opts or {}, settings or StorageSettings(), user_agent)
            return ForeignWeb(url_prefix, WebClient(options, headers or {}))
        case _:
            require_scheme(config, url_prefix)
            return ForeignStore(url_prefix, config, credentials, settings or StorageSettings(), user_agent)


# files


@dataclass(slots=True)
class ForeignFiles(ForeignObjects):
    """Files of this machine: those below the path of ``url_prefix``, or else below ``path``.

    Links to files outside of that folder are refused: see ``frazil.storage.files.links``.
    """

    url_prefix: str
    path: str

    def get(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        with _fetching(url):
            descriptor = open_inside(*self._file(url))
            try:
                if etag is not None or not_modified_since is not None:
                    status = os.fstat(descriptor)
                    _check(url, etag, file_etag(status), not_modified_since, status.st_mtime)
                return COUNTS.read(_read(descriptor, url, start, stop))
            finally:
                os.close(descriptor)

    async def get_async(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        return self.get(url, start, stop, etag=etag, not_modified_since=not_modified_since)

    def size(self, url: str) -> int:
        with _fetching(url):
            descriptor = open_inside(*self._file(url))
            try:
                return os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)

    def _file(self, url: str) -> tuple[str, str]:
        """The path of a file, and the folder that must contain it."""
        base = _url_path(self.url_prefix).rstrip("/") + "/"
        found = _url_path(url)
        if not found.startswith(base):
            raise _not_of_this_place(url, self.url_prefix)
        if self.path and not os.path.exists(found):
            folder = self.path.removeprefix("file://")
            return os.path.join(folder, found[len(base) :]), folder
        return found, base


def _url_path(url: str) -> str:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "file" or "//" in path or "\0" in path:
        raise InvalidInputError(
            f"{url!r} is not a file URL: expected file:///path with no empty segments",
            ErrorKind.INVALID_VIRTUAL_REF,
        )
    return posixpath.normpath(path)


def file_etag(status: os.stat_result) -> str:
    """The etag of a file, as the object_store crate makes it: inode, time in us, and size."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


def _read(descriptor: int, url: str, start: int, stop: int) -> bytes:
    parts: list[bytes] = []
    at = start
    while at < stop:
        part = os.pread(descriptor, min(stop - at, _CALL_BYTES), at)
        if not part:
            raise _too_short(url, start, stop, at)
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# object stores


@dataclass(slots=True)
class ForeignStore(ForeignObjects):
    """Objects in S3, GCS or Azure: one client for each bucket or container."""

    url_prefix: str
    config: AnyObjectStoreConfig
    credentials: AnyCredential
    settings: StorageSettings
    user_agent: str | None = None
    _clients: dict[str, ObjectStore] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.url_prefix, self.config, self.credentials, self.settings, self.user_agent)
        return (ForeignStore, values)

    def get(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        client, key = self._find(url)
        if stop <= start:
            return b""
        with _fetching(url):
            answer = obstore.get(client, key, options={"range": (start, stop)})
            _check_answer(url, answer, start, stop, etag, not_modified_since)
            return COUNTS.read(answer.bytes())

    async def get_async(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        client, key = self._find(url)
        if stop <= start:
            return b""
        with _fetching(url):
            answer = await obstore.get_async(client, key, options={"range": (start, stop)})
            _check_answer(url, answer, start, stop, etag, not_modified_since)
            return COUNTS.read(await answer.bytes_async())

    def size(self, url: str) -> int:
        client, key = self._find(url)
        with _fetching(url):
            return obstore.head(client, key)["size"]

    def _find(self, url: str) -> tuple[ObjectStore, str]:
        if not url.startswith(self.url_prefix):
            raise _not_of_this_place(url, self.url_prefix)
        place, key = _split_bucket(url)
        _check_segments(url, key)
        enter_runtime()
        client = self._clients.get(place)
        if client is None:
            location = _location(self.config, self.credentials, place)
            headers = {} if self.user_agent is None else {"User-Agent": self.user_agent}
            client = self._clients[place] = location.connect("", self.settings, headers)
        return client, key


#: Names of buckets and containers become parts of host names: they may not have characters that end one.
_BUCKET: Final = re.compile(r"[A-Za-z0-9$._-]+")


def _split_bucket(url: str) -> tuple[str, str]:
    bucket, _, key = url.partition("://")[2].partition("/")
    if _BUCKET.fullmatch(bucket) is None:
        raise InvalidInputError(
            f"cannot address {shown_url(url)!r}: expected a bucket of letters, digits, '.', '-', '_' and '$'",
            ErrorKind.INVALID_VIRTUAL_REF,
        )
    return bucket, key


def _check_segments(url: str, key: str) -> None:
    """Refuse keys that clients normalise: they would read another object."""
    if any(segment in ("", ".", "..") for segment in key.split("/")):
        raise InvalidInputError(
            f"cannot address {shown_url(url)!r}: expected a key without empty, '.' and '..' segments",
            ErrorKind.INVALID_VIRTUAL_REF,
        )


def _location(config: AnyObjectStoreConfig, credentials: AnyCredential, place: str) -> Location:
    """The location of the bucket or container ``place``, with the credentials that the user granted."""
    match config, credentials:
        case (ObjectStoreConfig.S3(options) | ObjectStoreConfig.S3Compatible(options), Credentials.S3(keys)):
            return S3Location(place, options, keys)
        case ObjectStoreConfig.Tigris(options), Credentials.S3(keys):
            return S3Location(place, _tigris(options), keys)
        case ObjectStoreConfig.Gcs(opts), Credentials.Gcs(token):
            return GcsLocation(place, dict(opts or {}), token)
        case ObjectStoreConfig.Azure(opts), Credentials.Azure(secret):
            return _azure(place, dict(opts or {}), secret)
        case _:
            raise _does_not_fit(credentials, config)


def _does_not_fit(credentials: object, config: object) -> InvalidInputError:
    return InvalidInputError(
        f"credentials of type {type(credentials).__qualname__} do not fit a store of type "
        f"{type(config).__qualname__}: give credentials of the same kind",
        ErrorKind.INVALID_CREDENTIALS,
    )


def _tigris(options: S3Options) -> S3Options:
    endpoint = TIGRIS_ENDPOINT if options.endpoint_url is None else options.endpoint_url
    return S3Options(
        region=options.region or "auto",
        endpoint_url=endpoint,
        allow_http=options.allow_http,
        anonymous=options.anonymous,
        force_path_style=options.force_path_style,
        network_stream_timeout_seconds=options.network_stream_timeout_seconds,
    )


def _azure(container: str, opts: dict[str, str], credentials: Any) -> AzureLocation:
    if "account" not in opts:
        raise InvalidInputError(
            "an Azure store needs the name of its account: use azure_store(account=...)",
            ErrorKind.STORAGE_CONFIG,
        )
    return AzureLocation(opts.pop("account"), container, opts, credentials)


# the web


@dataclass(slots=True)
class ForeignWeb(ForeignObjects):
    """Files on web servers. Redirects to other servers are refused: see ``frazil.storage.web``."""

    url_prefix: str
    client: WebClient

    def get(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        self._check(url)
        if stop <= start:
            return b""
        with _fetching(url):
            headers = {"Range": f"bytes={start}-{stop - 1}"}
            answer = self.client.request("GET", url, headers, stop - start)
            if answer.status == 200:
                raise OSError("Range request not supported by the server: expected status 206, found 200")
            _require_status(answer, 206, url)
            _check(url, etag, answer.etag, not_modified_since, int(answer.modified))
            if answer.start != start or len(answer.body) != stop - start:
                raise _too_short(url, start, stop, answer.start + len(answer.body))
            return COUNTS.read(answer.body)

    async def get_async(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        read = partial(self.get, url, start, stop, etag=etag, not_modified_since=not_modified_since)
        return await asyncio.get_running_loop().run_in_executor(self.client.in_thread(), read)

    def size(self, url: str) -> int:
        self._check(url)
        with _fetching(url):
            answer = self.client.request("HEAD", url, {})
            _require_status(answer, 200, url)
            if answer.length is None:
                raise OSError("the server did not send the size: expected a header content-length")
            return answer.length

    def _check(self, url: str) -> None:
        if not url.startswith(self.url_prefix):
            raise _not_of_this_place(url, self.url_prefix)
        parts = urlsplit(url)
        if parts.query:
            raise InvalidInputError(
                f"cannot address {shown_url(url)!r}: expected a URL without a query ('?...')",
                ErrorKind.INVALID_VIRTUAL_REF,
            )
        _check_segments(url, unquote(parts.path.removeprefix("/")))


def _require_status(answer: Answer, expected: int, url: str) -> None:
    if answer.status != expected:
        reason = web_failures.reason_of_status(answer.status, url)[1]
        raise OSError(f"expected status {expected}, found {answer.status}: {reason}")


# what was found, against what was expected


def _check_answer(
    url: str,
    answer: GetResult,
    start: int,
    stop: int,
    etag: str | None,
    not_modified_since: datetime | None,
) -> None:
    meta = answer.meta
    # object stores tell whole seconds, and some in lists more
    _check(url, etag, meta["e_tag"], not_modified_since, int(meta["last_modified"].timestamp()))
    if answer.range != (start, stop):
        raise _too_short(url, start, stop, answer.range[1])


def _check(
    url: str, etag: str | None, found_etag: str | None, not_after: datetime | None, modified: float
) -> None:
    if etag is not None and (found_etag is None or etag.strip('"') != found_etag.strip('"')):
        raise _modified(url, f"expected etag {etag}, found {found_etag}")
    # A reference holds whole seconds; of a file every fraction later is a change.
    if not_after is not None and modified > int(not_after.timestamp()):
        changed = datetime.fromtimestamp(modified, UTC)
        raise _modified(
            url, f"expected no change after {not_after.isoformat()}, found one at {changed.isoformat()}"
        )


def _modified(url: str, what: str) -> StorageError:
    return StorageError(
        f"the object of a virtual chunk has changed ({shown_url(url)}): {what}. Restore the object, or write "
        "the virtual references again",
        ErrorKind.VIRTUAL_CHUNK_MODIFIED,
    )


def _too_short(url: str, start: int, stop: int, end: int) -> StorageError:
    return StorageError(
        f"error fetching virtual reference: {shown_url(url)} ends at byte {end}, "
        f"expected the range [{start}, {stop})",
        ErrorKind.VIRTUAL_CHUNK_FETCH,
    )


def _not_of_this_place(url: str, prefix: str) -> InvalidInputError:
    return InvalidInputError(
        f"{shown_url(url)!r} is not in the virtual chunk container {shown_url(prefix)!r}: expected a "
        "location that begins with it",
        ErrorKind.INVALID_VIRTUAL_REF,
    )


@contextmanager
def _fetching(url: str) -> Iterator[None]:
    COUNTS.request()
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise StorageError(
            f"error fetching virtual reference {shown_url(url)}: {_reason(error, url)}",
            ErrorKind.VIRTUAL_CHUNK_FETCH,
        ) from error


def _reason(error: Exception, url: str) -> str:
    """Why the object could not be read, and what to do."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{file_failures.reason_of(error)[1]} ({error.strerror})"
    place = failures.Place(
        "/".join(shown_url(url).split("/", 3)[:3]),
        "virtual chunks",
        "give those of this container in `authorize_virtual_chunk_access`",
        "`allow_http=True` to the store of this container",
    )
    if isinstance(error, Unreachable):
        return web_failures.reason_of(error, url)[1]
    reason = failures.reason_of(error, place)[1]
    failures.shorten(error)
    return reason
