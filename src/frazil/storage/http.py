"""A repository on a web server: read only, and nothing in it can be listed.

A simple server, such as ``python -m http.server``, knows no ranges and answers with whole objects. obstore
refuses such an answer; here the object is asked for whole, and cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from obstore.exceptions import NotSupportedError

from frazil.errors import ErrorKind, StorageError
from frazil.storage.keys import range_past_end
from frazil.storage.locations import HttpLocation
from frazil.storage.object_store import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterator, Mapping

    from frazil.storage.base import ObjectInfo
    from frazil.storage.settings import StorageSettings


class HttpStorage(ObjectStorage):
    """The files below ``url``.

    >>> HttpStorage("https://example.org/data").is_read_only
    True
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        settings: StorageSettings | None = None,
    ) -> None:
        location = HttpLocation(checked_url(url), dict(options or {}), dict(headers or {}))
        super().__init__(location, settings=settings, read_only=True)
        self._given = (url, options, headers)

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        try:
            return super().get(key, start, stop)
        except StorageError as error:
            if not isinstance(error.__cause__, NotSupportedError):
                raise
            return _cut(key, super().get(key), start, stop)

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        try:
            return await super().get_async(key, start, stop)
        except StorageError as error:
            if not isinstance(error.__cause__, NotSupportedError):
                raise
            return _cut(key, await super().get_async(key), start, stop)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise StorageError(
            "a storage over HTTP cannot list its objects: use the storage that the web server reads from",
            ErrorKind.OBJECT_STORE,
        )

    def with_settings(self, settings: StorageSettings) -> HttpStorage:
        other = HttpStorage(*self._given, settings=settings)
        other._user_agent = self._user_agent
        return other


def _cut(key: str, whole: Buffer, start: int, stop: int | None) -> Buffer:
    view = memoryview(whole)
    if start >= len(view):
        raise range_past_end(key, start, len(view))
    return view[start:stop]


def checked_url(url: str) -> str:
    """``url`` itself, or a ``StorageError`` of kind ``cannot-parse-url`` if it has no scheme and host."""
    try:
        parts = urlsplit(url)
        parsed = bool(parts.scheme and parts.hostname)
    except ValueError:
        parsed = False
    if not parsed:
        raise StorageError(
            f"cannot parse URL {url!r}: expected a scheme and a host, such as https://host/path",
            ErrorKind.CANNOT_PARSE_URL,
        )
    return url
