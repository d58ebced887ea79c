"""Storages that are read only: the files on a web server, and the storage that a web URL redirects to.

Simple servers, such as ``python -m http.server``, ignore ranges and send whole objects. ``get`` then returns
the requested part. Redirects to other servers are refused: see ``frazil.storage.web_client``.

At the first use of a ``RedirectStorage``, Frazil sends GET to the web URL, and follows at most ten redirects
over http or https. A redirect to a URL with another scheme names the storage, which is read without
credentials: ``s3://bucket/prefix?region=...``, ``gs:`` or ``gcs:``, ``r2://bucket/prefix?account_id=...``,
``tigris://bucket/prefix?region=...``, ``az://container/prefix?account=...`` (Frazil only), and
``http+icechunk://host/path`` or ``http+ic:``, also with ``https``.
"""

from __future__ import annotations

import builtins
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, override
from urllib.parse import parse_qsl, quote, urlsplit

from frazil.arguments import checked
from frazil.errors import ErrorKind, InvalidInputError, StorageError, UnreachableError
from frazil.storage import web_client
from frazil.storage.base import ALWAYS, ObjectInfo, Storage, Version
from frazil.storage.checks import TRAFFIC, check_key, check_range, object_not_found, range_past_end, read_only
from frazil.storage.credential_families import AzureCredentials, GcsCredentials, S3Credentials
from frazil.storage.object_store_config import S3Options
from frazil.storage.option_names import address_parts, shown_url
from frazil.storage.settings import StorageRetriesSettings, StorageSettings
from frazil.storage.urls import StorageUrl, parse_url

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator, Mapping

    from frazil.storage.base import Condition, Refused, Stored


class ReadOnlyStorage(Storage):
    """A storage in which every write raises ``ReadOnlyError`` (``read-only-storage``)."""

    is_read_only = True

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        raise read_only(self)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        raise read_only(self)

    @override
    def delete(self, keys: Iterable[str]) -> None:
        raise read_only(self)


#: Characters of a key that stay as they are in the path of a URL.
_UNQUOTED = "/!$&'()*+,;=:@~"


class HttpStorage(ReadOnlyStorage):
    """The files below a URL on a web server, as ``http_storage`` returns them. Read only.

    A pickle contains the headers in plain text. ``repr`` does not show them. ``url`` and ``options`` are also
    attributes.

    Args:
        url: URL of the directory that holds the objects.
        options: Options of the HTTP client and their values. Default: none.
        headers: Headers that are sent with every request. Default: none.
        settings: Time-outs and retries. Default: ``StorageSettings()``.
        user_agent: Value of the header ``User-Agent``. Default: name and version of Frazil.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        settings: StorageSettings | None = None,
        user_agent: str | None = None,
    ) -> None:
        self.url: Final = check_url(url)
        self.options: Final = dict(options or {})
        self._headers = dict(headers or {})
        self._settings = StorageSettings() if settings is None else settings
        self._user_agent = user_agent
        self._client = web_client.WebClient(
            web_client.web_options(self.options, self._settings, user_agent), self._headers
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (HttpStorage, (self.url, self.options, self._headers, self._settings, self._user_agent))

    def __repr__(self) -> str:
        return f"<frazil.Storage>\ntype: HTTP\nurl: {shown_url(self.url)}\n"

    @override
    def encodes_names(self) -> bool:
        return True

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        is_whole = start == 0 and stop is None
        headers = {} if is_whole else {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"}
        answer = self._ask("GET", key, headers)
        if answer.status == 416:
            raise range_past_end(key, start, answer.size)
        first, end = answer.range()  # which may be more than was asked for
        if first > start or (start and start >= end):
            raise range_past_end(key, start, end)
        view = memoryview(answer.body)[start - first : None if stop is None else stop - first]
        return TRAFFIC.count_read(view)

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return await web_client.in_thread(lambda: self.get(key, start, stop))

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
        raise StorageError("a web server cannot list its objects. Use the storage that the server reads from")

    @override
    def with_settings(self, settings: StorageSettings) -> HttpStorage:
        return HttpStorage(self.url, self.options, self._headers, settings, self._user_agent)

    @override
    def with_user_agent(self, user_agent: str) -> HttpStorage:
        return HttpStorage(self.url, self.options, self._headers, self._settings, user_agent)

    def _ask(self, method: str, key: str, headers: Mapping[str, str]) -> web_client.Response:
        parts = urlsplit(self.url)
        path = f"{parts.path.rstrip('/')}/{quote(check_key(key), safe=_UNQUOTED)}"
        TRAFFIC.count()
        try:
            answer = self._client.request(method, parts._replace(path=path).geturl(), headers)
            if method == "GET" and answer.status in (200, 206):
                answer.require_length(*answer.range())
        except UnreachableError as error:
            kind, reason = web_client.reason_of(error, self.url)
            raise StorageError(f"object {key!r}: {reason}", kind) from error
        if answer.status in (404, 410):
            raise object_not_found(key)
        if answer.status not in (200, 206, 416):
            kind, reason = web_client.reason_of_status(answer.status, self.url)
            raise StorageError(f"object {key!r}: {reason}", kind)
        return answer


def check_url(url: str) -> str:
    """Return ``url`` if it has a scheme, a host, and no invalid port."""
    if address_parts(url) is None:
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
        >>> http_storage("https://example.org/ice", {"timeout": "30s"}).label()
        'https://example.org/ice'
    """
    return HttpStorage(base_url, opts, headers)


_MAX_REDIRECTS: Final = 10
#: Few retries, because the user waits for the redirect before the first read.
_FEW_TRIES: Final = StorageSettings(retries=StorageRetriesSettings(max_tries=3))


class RedirectStorage(ReadOnlyStorage):
    """The storage that a web URL redirects to, as ``redirect_storage`` returns it. Read only.

    The first use follows the redirects once. A pickle that is created after the first use contains the
    result.

    Args:
        url: Web URL that redirects to the URL of the storage.
        settings: Settings of the storage and of the requests for the redirects. Default: the defaults of the
            storage, and three tries for the redirects.
        user_agent: Value of the header ``User-Agent``. Default: name and version of Frazil.
    """

    def __init__(
        self, url: str, settings: StorageSettings | None = None, user_agent: str | None = None
    ) -> None:
        self._url = check_url(url)
        self._settings = settings
        self._user_agent = user_agent
        self._resolved: Storage | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<frazil.Storage>\ntype: redirect\nurl: {shown_url(self._url)}\n"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def target(self) -> Storage:
        """Return the storage that the URL leads to.

        The first call sends the requests. Later calls return the same storage.

        Returns:
            The storage.

        Raises:
            StorageError: ``bad-redirect`` if the server does not redirect, redirects more than ten times, or
                redirects to a URL that does not name a storage.

        Examples:
            >>> RedirectStorage("https://example.org/latest").target()  # doctest: +SKIP
            <frazil.Storage>
            type: S3 (native)
            bucket: ice
            region: eu-west-1
            anonymous: True
        """
        with self._lock:
            if self._resolved is None:
                url = follow(self._url, self._settings or _FEW_TRIES, self._user_agent)
                storage = storage_of_redirect(url)
                if self._settings is not None:
                    storage = storage.with_settings(self._settings)
                if self._user_agent is not None:
                    storage = storage.with_user_agent(self._user_agent)
                self._resolved = storage
            return self._resolved

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.target().get(key, start, stop)

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        return self.target().get_versioned(key)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        return self.target().head(key)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.target().list(prefix)

    @override
    def folders(self) -> builtins.list[str]:
        return self.target().folders()

    @override
    def encodes_names(self) -> bool:
        return self.target().encodes_names()

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return await self.target().get_async(key, start, stop)

    @override
    def default_settings(self) -> StorageSettings:
        return StorageSettings() if self._resolved is None else self._resolved.default_settings()

    @override
    def with_settings(self, settings: StorageSettings) -> RedirectStorage:
        return RedirectStorage(self._url, settings, self._user_agent)

    @override
    def with_user_agent(self, user_agent: str) -> RedirectStorage:
        return RedirectStorage(self._url, self._settings, user_agent)


def follow(url: str, settings: StorageSettings = _FEW_TRIES, user_agent: str | None = None) -> str:
    """Return the first URL with a scheme other than http and https that ``url`` redirects to."""
    client, current_url = web_client.WebClient(web_client.web_options({}, settings, user_agent), {}), url
    for _ in range(_MAX_REDIRECTS + 1):
        if urlsplit(current_url).scheme not in ("http", "https"):
            return current_url
        try:
            answer = client.request("GET", current_url, {}, 0, redirects=0)
        except UnreachableError as error:
            raise _bad_redirect(str(error)) from error
        location = answer.headers.get("location")
        if location is None or not 300 <= answer.status < 400:
            raise _bad_redirect(f"{shown_url(current_url)} must redirect, got status {answer.status}")
        current_url = web_client.join_url(current_url, location)
    raise _bad_redirect(f"{shown_url(url)} redirects more than {_MAX_REDIRECTS} times")


def _bad_redirect(text: str) -> StorageError:
    return StorageError(f"bad redirect: {text}", ErrorKind.BAD_REDIRECT)


_SCHEMES: Final = (
    *("s3", "gs", "gcs", "r2", "tigris", "az"),
    *("http+icechunk", "http+ic", "https+icechunk", "https+ic"),
)


def storage_of_redirect(url: str) -> Storage:
    """Return the storage that a redirect's URL names, read without credentials."""
    plain, _, query = url.partition("#")[0].partition("?")
    scheme, _, rest = plain.partition(":")
    scheme, parameters = scheme.lower(), dict(parse_qsl(query))

    def required(name: str) -> str:
        if name not in parameters:
            raise _bad_redirect(f"{shown_url(url)} must have the query parameter {name!r}")
        return parameters[name]

    def parts(family: str, rest: str = rest) -> StorageUrl:
        try:
            return parse_url(f"{family}:{rest}")
        except InvalidInputError as error:
            raise _bad_redirect(str(error)) from error

    anonymous = S3Credentials.Anonymous()
    match scheme:
        case "s3":
            options, at = S3Options(region=required("region")), parts("s3")
            storage = Storage.new_s3(options, at.bucket, at.key, anonymous)
        case "r2":
            account_id, at = required("account_id"), parts("s3")
            storage = Storage.new_r2(S3Options(), at.bucket, at.key, account_id, anonymous)
        case "tigris":
            options, at = S3Options(region=parameters.get("region")), parts("s3")
            storage = Storage.new_tigris(options, at.bucket, at.key, True, anonymous)
        case "gs" | "gcs":
            at = parts("gs")
            storage = Storage.new_gcs(at.bucket, at.key, GcsCredentials.Anonymous())
        case "az":
            at = parts("az", rest.replace("//", f"//{required('account')}/", 1))
            storage = Storage.new_azure_blob(at.account, at.bucket, at.key, AzureCredentials.Anonymous())
        case _ if scheme in _SCHEMES:
            return HttpStorage(f"{scheme.partition('+')[0]}:{url.partition(':')[2]}")
        case _:
            raise _bad_redirect(f"the scheme must be one of {', '.join(_SCHEMES)}, got {shown_url(url)}")
    storage.is_read_only = True
    return storage


@checked
def redirect_storage(base_url: str) -> Storage:
    """Return the read-only storage that a URL on a web server redirects to.

    The first use sends a request to the URL and follows its redirects to the URL of the storage. The
    docstring of ``frazil.storage.web_storages`` lists the possible URLs.

    Args:
        base_url: URL on a web server that redirects to the URL of the storage.

    Returns:
        The storage. No request is sent before its first use.

    Raises:
        StorageError: ``cannot-parse-url`` for a URL without a scheme and a host.

    Examples:
        >>> redirect_storage("https://example.org/latest").label()
        'https://example.org/latest'
    """
    return RedirectStorage(base_url)
