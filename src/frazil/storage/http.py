"""A storage on a web server. It is read only and cannot list objects.

Simple servers, such as ``python -m http.server``, ignore ranges and send whole objects. ``get`` then returns
the requested part. Redirects to other servers are refused: see ``frazil.storage.web.client``.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, override
from urllib.parse import quote, urlsplit

from frazil.arguments import checked
from frazil.errors import ErrorKind, StorageError, UnreachableError
from frazil.storage.base import ObjectInfo, Storage, Version
from frazil.storage.keys import check_key, check_range, object_not_found, range_past_end
from frazil.storage.option_names import shown_url
from frazil.storage.read_only import ReadOnlyStorage
from frazil.storage.settings import StorageSettings
from frazil.storage.traffic import TRAFFIC
from frazil.storage.web.answer import Answer
from frazil.storage.web.client import WebClient
from frazil.storage.web.failures import reason_of, reason_of_status
from frazil.storage.web.options import web_options

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterator, Mapping

#: Characters of a key that stay as they are in the path of a URL.
_UNQUOTED = "/!$&'()*+,;=:@~"


class HttpStorage(ReadOnlyStorage):
    """The files below a URL on a web server. Read only.

    A pickle contains the headers in plain text. ``repr`` does not show them.

    Args:
        url: URL of the directory that holds the objects.
        options: Options of the HTTP client and their values. Default: none.
        headers: Headers that are sent with every request. Default: none.
        settings: Time-outs and retries. Default: ``StorageSettings()``.
        user_agent: Value of the header ``User-Agent``. Default: name and version of Frazil.

    Raises:
        StorageError: ``cannot-parse-url`` for a URL without a scheme and a host; ``storage-config`` for an
            invalid option.
        InvalidInputError: ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> HttpStorage("https://example.org/data").is_read_only
        True
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        settings: StorageSettings | None = None,
        user_agent: str | None = None,
    ) -> None:
        self._url = check_url(url)
        self._options = dict(options or {})
        self._headers = dict(headers or {})
        self._settings = StorageSettings() if settings is None else settings
        self._user_agent = user_agent
        self._client = WebClient(web_options(self._options, self._settings, user_agent), self._headers)

    def __reduce__(self) -> tuple[Any, ...]:
        return (HttpStorage, (self._url, self._options, self._headers, self._settings, self._user_agent))

    def __repr__(self) -> str:
        return f"<frazil.Storage>\ntype: HTTP\nurl: {shown_url(self._url)}\n"

    @property
    def url(self) -> str:
        """The URL of the directory that holds the objects."""
        return self._url

    @property
    def options(self) -> dict[str, str]:
        """A copy of the options of the HTTP client."""
        return dict(self._options)

    @override
    def encodes_names(self) -> bool:
        return True

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        headers = {} if start == 0 and stop is None else {"Range": _range(start, stop)}
        if headers and start == stop:
            headers = {"Range": _range(start, start + 1)}  # HTTP has no empty ranges
        answer = self._ask("GET", key, headers)
        if answer.status == 416:
            raise range_past_end(key, start, answer.size)
        return TRAFFIC.count_read(_cut(key, answer, start, stop))

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._client.thread_pool(), self.get, key, start, stop)

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        answer = self._ask("GET", key, {})
        return TRAFFIC.count_read(answer.body), Version((answer.etag or "").strip('"') or None)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        try:
            answer = self._ask("HEAD", key, {})
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            return None
        etag = (answer.etag or "").strip('"') or None
        return ObjectInfo(key, answer.length or 0, datetime.fromtimestamp(answer.modified, UTC), etag)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise StorageError(
            "a storage on a web server cannot list its objects. Use the storage that the web server reads "
            "from",
            ErrorKind.OBJECT_STORE,
        )

    @override
    def default_settings(self) -> StorageSettings:
        return StorageSettings()

    @override
    def with_settings(self, settings: StorageSettings) -> HttpStorage:
        return HttpStorage(self._url, self._options, self._headers, settings, self._user_agent)

    @override
    def with_user_agent(self, user_agent: str) -> HttpStorage:
        return HttpStorage(self._url, self._options, self._headers, self._settings, user_agent)

    def _ask(self, method: str, key: str, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(self._url)
        path = f"{parts.path.rstrip('/')}/{quote(check_key(key), safe=_UNQUOTED)}"
        TRAFFIC.count_request()
        try:
            answer = self._client.request(method, parts._replace(path=path).geturl(), headers)
        except UnreachableError as error:
            kind, reason = reason_of(error, self._url)
            raise StorageError(f"object {key!r}: {reason}", kind) from error
        if answer.status in (404, 410):
            raise object_not_found(key)
        if answer.status not in (200, 206, 416):
            kind, reason = reason_of_status(answer.status, self._url)
            raise StorageError(f"object {key!r}: {reason}", kind)
        return answer


def _range(start: int, stop: int | None) -> str:
    return f"bytes={start}-{'' if stop is None else stop - 1}"


def _cut(key: str, answer: Answer, start: int, stop: int | None) -> Buffer:
    """Return the requested bytes from an answer that may hold more."""
    first = answer.start
    if first > start or (start and start >= first + len(answer.body)):
        raise range_past_end(key, start, first + len(answer.body))
    view = memoryview(answer.body)[start - first :]
    return view if stop is None else view[: stop - start]


def check_url(url: str) -> str:
    """Return ``url`` if it has a scheme, a host, and no invalid port."""
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.scheme and parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise StorageError(
            f"cannot parse URL {shown_url(url)!r}: it must have a scheme, a host and optionally a port, such "
            "as https://host/path",
            ErrorKind.CANNOT_PARSE_URL,
        )
    return url


@checked
def http_storage(
    base_url: str, opts: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> Storage:
    """Return a read-only storage of the objects below a URL on a web server.

    The storage cannot list its objects.

    Args:
        base_url: URL of the directory that holds the objects, for example ``https://example.org/ice``.
        opts: Options of the HTTP client and their values, for example ``{"timeout": "30s"}``,
            ``follow_redirects`` or ``proxy_url``. Default: none.
        headers: Headers that are sent with every request. Default: none.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``cannot-parse-url`` for a URL without a scheme and a host; ``storage-config`` for an
            invalid option.
        InvalidInputError: ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> http_storage("https://example.org/ice", {"timeout": "30s"})
        <frazil.Storage>
        type: HTTP
        url: https://example.org/ice
        <BLANKLINE>
    """
    return HttpStorage(base_url, opts, headers)
