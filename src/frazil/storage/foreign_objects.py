"""Reads of the objects that virtual chunks refer to: objects of other owners, in any storage.

A virtual chunk is a range of an object, often with a condition: the etag of the object, or a time after which
it did not change. The reader compares both with the answer that contains the bytes. So no change can happen
in between, and no server needs to support conditions.

URLs are read as the reference reads them: in ``file:`` URLs percent codes are decoded, ``..`` is resolved,
and ``?`` and ``#`` end the path. In ``s3:``, ``gs:`` and ``az:`` all characters after the bucket are the key.
"""

from __future__ import annotations

import os
import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, override
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, NotFoundError

from frazil.argument_docs import with_keywords
from frazil.errors import ErrorKind, InvalidInputError, StorageError, UnreachableError
from frazil.storage import failures, files, system, web_client
from frazil.storage.access import anonymous_access, require_scheme
from frazil.storage.base import Storage
from frazil.storage.buckets import AzureContainer, Bucket, GcsBucket, S3Bucket
from frazil.storage.checks import TRAFFIC, enter_runtime
from frazil.storage.class_methods import TIGRIS_ENDPOINT
from frazil.storage.credential_families import (
    AnyCredential,
    Credentials,
    HttpAccess,
    LocalFileSystemAccess,
    wrong_credentials,
)
from frazil.storage.files import MISSING_FILE, open_inside
from frazil.storage.files import reason_of as reason_of_file
from frazil.storage.local import LocalStorage
from frazil.storage.object_store import ObjectStorage
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import secret_options, shown_url
from frazil.storage.settings import StorageSettings
from frazil.storage.urls import StorageUrl
from frazil.storage.web_client import WebClient, reason_of_status, web_options
from frazil.storage.web_storages import HttpStorage

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterator

    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore

    from frazil.storage.web_client import Response


def address_of(storage: Storage, folder: str) -> tuple[str, AnyObjectStoreConfig] | None:
    """Return the URL of a folder in a storage, with a slash at its end, and the store of a container for it.

    Neither contains options that may hold credentials. The result is None for a storage without a URL.
    """
    storage = storage.origin()
    if isinstance(storage, LocalStorage):
        root = os.path.join(storage.root, folder, "")
        return system.files.file_url(root), ObjectStoreConfig.LocalFileSystem(root)
    if isinstance(storage, HttpStorage):
        return f"{storage.url.rstrip('/')}/{folder}/", ObjectStoreConfig.Http(_public(storage.options))
    if not isinstance(storage, ObjectStorage):
        return None
    prefix = "".join(f"{part}/" for part in (storage.prefix, folder) if part)
    match storage.bucket:
        case S3Bucket(name, options):
            store = ObjectStoreConfig.S3Compatible if options.endpoint_url else ObjectStoreConfig.S3
            return StorageUrl("s3", name, prefix).chunk_location, store(options)
        case GcsBucket(name, config):
            return StorageUrl("gs", name, prefix).chunk_location, ObjectStoreConfig.Gcs(_public(config))
        case AzureContainer(account, name, config):
            azure = ObjectStoreConfig.Azure({**(_public(config) or {}), "account": account})
            return StorageUrl("az", name, prefix, account).chunk_location, azure
    return None


def access_of(storage: Storage) -> AnyCredential | None:
    """Return the credentials with which a storage is opened, as those of a container for its objects."""
    storage = storage.origin()
    if isinstance(storage, LocalStorage):
        return LocalFileSystemAccess
    if isinstance(storage, HttpStorage):
        return HttpAccess
    match storage.bucket if isinstance(storage, ObjectStorage) else None:
        case S3Bucket(credentials=keys):
            return Credentials.S3(keys)
        case GcsBucket(credentials=token):
            return Credentials.Gcs(token)
        case AzureContainer(credentials=secret):
            return Credentials.Azure(secret)
    return None


def _public(options: Mapping[str, str]) -> dict[str, str] | None:
    secret = set(secret_options(options))
    return {name: value for name, value in options.items() if name not in secret} or None


@dataclass(frozen=True, slots=True)
class ForeignRange:
    """A range of an object and the conditions on the object; None is no condition.

    The object must have the ``etag``, and must not have changed after ``not_modified_since``, in whole
    seconds. ``states`` gets the state of the object: its etag, else the time of its last change.
    """

    url: str
    start: int
    stop: int
    etag: str | None = None
    not_modified_since: datetime | None = None
    states: set[str] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the range has no bytes."""
        return self.stop <= self.start

    def check_object(self, etag: str | None, modified: float) -> None:
        """Check the conditions on the object."""
        limit = self.not_modified_since
        if self.etag is not None and (etag is None or self.etag.strip('"') != etag.strip('"')):
            difference = f"its etag must be {self.etag}, got {etag}"
        # References contain whole seconds. A file that is newer by a fraction of a second has changed.
        elif limit is not None and modified > int(limit.timestamp()):
            changed = datetime.fromtimestamp(modified, UTC)
            difference = f"its last change must not be after {limit.isoformat()}, got {changed.isoformat()}"
        else:
            if self.states is not None:
                self.states.add(etag or str(modified))
            return
        raise StorageError(
            f"the object of a virtual chunk has changed ({shown_url(self.url)}): {difference}. Restore the "
            "object, or write the virtual references again",
            ErrorKind.VIRTUAL_CHUNK_MODIFIED,
        )

    def too_short(self, end: int) -> StorageError:
        """Return the error for an object that ends at byte ``end``, before the end of the range."""
        return StorageError(
            f"error fetching virtual reference: {shown_url(self.url)} must have the range "
            f"[{self.start}, {self.stop}), but it ends at byte {end}",
            ErrorKind.VIRTUAL_CHUNK_FETCH,
        )


class RangeConditions(TypedDict, total=False):
    """Conditions on the object of a range.

    Attributes:
        etag: Etag that the object must have. Default: no condition.
        not_modified_since: Time after which the object must not have changed, compared in whole seconds.
            Default: no condition.
        states: A set to which the state of the object is added: two states of one read are of two objects.
            Default: none.
    """

    etag: str | None
    not_modified_since: datetime | None
    states: set[str] | None


class ForeignObjects(ABC):
    """The objects below one URL prefix.

    It can be pickled, and it connects at its first use. ``open_foreign`` creates it.
    """

    @with_keywords(RangeConditions)
    def get(self, url: str, start: int, stop: int, **conditions: Unpack[RangeConditions]) -> Buffer:
        """Return a range of an object: all its bytes, or an error.

        Args:
            url: URL of the object, below the prefix.
            start: First byte of the range.
            stop: End of the range; the byte at this position is not part of the range.

        Returns:
            The bytes ``start <= i < stop``.

        Raises:
            StorageError: ``virtual-chunk-modified`` if a condition does not hold; ``virtual-chunk-fetch`` if
                the range cannot be read.
            InvalidInputError: ``invalid-virtual-ref`` for a URL that is not below the prefix.

        Examples:
            >>> from pathlib import Path
            >>> from frazil.storage import local_filesystem_store, open_foreign
            >>> size = Path("data.bin").write_bytes(b"0123456789")
            >>> folder = Path.cwd().as_uri() + "/"
            >>> files = open_foreign(local_filesystem_store(""), None, folder)
            >>> bytes(files.get(f"{folder}data.bin", 2, 5))
            b'234'
        """
        return self._read(ForeignRange(url, start, stop, **conditions))

    async def get_async(
        self, url: str, start: int, stop: int, **conditions: Unpack[RangeConditions]
    ) -> Buffer:
        """Do the same as ``get``, for an event loop."""
        return await self._read_async(ForeignRange(url, start, stop, **conditions))

    @abstractmethod
    def _read(self, byte_range: ForeignRange) -> Buffer:
        """Return the bytes of a range. Each kind of store implements this method for ``get``."""

    async def _read_async(self, byte_range: ForeignRange) -> Buffer:
        """Do the same as ``_read``, for an event loop."""
        return self._read(byte_range)

    @abstractmethod
    def size(self, url: str) -> int:
        """Return the size of an object.

        Args:
            url: URL of the object, below the prefix.

        Returns:
            The size in bytes.

        Raises:
            StorageError: ``virtual-chunk-fetch`` if the object cannot be found.
            InvalidInputError: ``invalid-virtual-ref`` for a URL that is not below the prefix.

        Examples:
            >>> from pathlib import Path
            >>> from frazil.storage import local_filesystem_store, open_foreign
            >>> size = Path("data.bin").write_bytes(b"0123456789")
            >>> folder = Path.cwd().as_uri() + "/"
            >>> open_foreign(local_filesystem_store(""), None, folder).size(f"{folder}data.bin")
            10
        """


def _wrong_location(text: str) -> InvalidInputError:
    return InvalidInputError(text, ErrorKind.INVALID_VIRTUAL_REF)


def outside_prefix(url: str, prefix: str) -> InvalidInputError:
    """Return the error for a URL that is not below the prefix."""
    return _wrong_location(
        f"the location {shown_url(url)!r} must begin with the prefix of its container, {shown_url(prefix)!r}"
    )


def check_segments(url: str, key: str) -> None:
    """Raise ``InvalidInputError`` for a key that clients normalise: they would read another object."""
    if any(segment in ("", ".", "..") for segment in key.split("/")):
        raise _wrong_location(f"the key in {shown_url(url)!r} must not have empty, '.' and '..' segments")


def credentials_mismatch(credentials: object, config: object) -> InvalidInputError:
    """Return the error for credentials of another kind of store."""
    return wrong_credentials(
        f"credentials of type {type(credentials).__qualname__} do not fit a store of type "
        f"{type(config).__qualname__}. Pass credentials of the same kind"
    )


@contextmanager
def fetch_errors(url: str) -> Iterator[None]:
    """Count a request, and raise its errors as ``StorageError`` (``virtual-chunk-fetch``)."""
    TRAFFIC.count()
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            kind, reason = reason_of_file(error)
            reason = f"{reason} ({error.strerror})"
            if {*"#?%"} & {*url}:
                reason += (
                    ". A location is a URL: the characters #, ? and % of a name are %23, %3F and %25 in it"
                )
        elif isinstance(error, UnreachableError):
            kind, reason = web_client.reason_of(error, url)
        else:
            server = "/".join(shown_url(url).split("/", 3)[:3])
            kind, reason = failures.reason_of(error, failures.MessageTerms(server, "virtual chunks"))
            failures.shorten(error)
        failure = StorageError(
            f"error fetching virtual reference {shown_url(url)}: {reason}", ErrorKind.VIRTUAL_CHUNK_FETCH
        )
        if kind is ErrorKind.CREDENTIALS_MISSING:
            failure.with_remedy(
                "Pass the credentials of this container in `authorize_virtual_chunk_access`",
                shell="Set the credentials of this container in the environment",
            )
        raise failure from error


def is_foreign_outage(error: BaseException) -> bool:
    """Return whether a failed read says nothing about the foreign object, as ``is_outage`` does for ours."""
    cause = error.__cause__
    if not isinstance(error, StorageError) or error.kind != ErrorKind.VIRTUAL_CHUNK_FETCH or cause is None:
        return False
    is_absent = isinstance(cause, (*MISSING_FILE, NotFoundError))
    # 416: the range is behind the end of the object.
    return not is_absent and failures.ErrorParts.from_text(str(cause)).status != "416"


@dataclass(slots=True)
class ForeignFiles(ForeignObjects):
    """Local files below the path of ``url_prefix``, or otherwise below ``path``.

    Links to files outside of that folder are refused: see ``frazil.storage.files``.
    """

    url_prefix: str
    path: str

    @override
    def _read(self, byte_range: ForeignRange) -> Buffer:
        with fetch_errors(byte_range.url):
            descriptor = open_inside(*self._path_and_folder(byte_range.url))
            try:
                status = os.fstat(descriptor)
                byte_range.check_object(file_etag(status), status.st_mtime)
                start, length, data = byte_range.start, byte_range.stop - byte_range.start, b""
                while len(data) < length:
                    part = system.files.read_at(
                        descriptor, min(length - len(data), files.CALL_BYTES), start + len(data)
                    )
                    if not part:
                        raise byte_range.too_short(start + len(data))
                    data = data + part if data else part
                return TRAFFIC.count_read(data)
            finally:
                system.files.close(descriptor)

    @override
    def size(self, url: str) -> int:
        with fetch_errors(url):
            descriptor = open_inside(*self._path_and_folder(url))
            try:
                return os.fstat(descriptor).st_size
            finally:
                system.files.close(descriptor)

    def _path_and_folder(self, url: str) -> tuple[str, str]:
        """Return the path of a file, and the folder that must contain it."""
        base = _url_path(self.url_prefix).rstrip("/") + "/"
        path = _url_path(url)
        if not path.startswith(base):
            raise outside_prefix(url, self.url_prefix)
        if self.path and not os.path.exists(path):
            folder = system.files.path_of_url("", self.path.removeprefix("file://"))
            return os.path.join(folder, path[len(base) :]), folder
        return path, base


def _url_path(url: str) -> str:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "file" or "//" in path or "\0" in path:
        raise _wrong_location(f"a file URL must be file:///path without empty segments, got {url!r}")
    return system.files.path_of_url(parts.netloc, posixpath.normpath(path))


def file_etag(status: os.stat_result) -> str:
    """Return the etag of a file, as the object_store crate computes it: inode, time in us, and size."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


@dataclass(slots=True)
class ForeignStore(ForeignObjects):
    """Objects in S3, GCS or Azure, with one client for each bucket or container."""

    url_prefix: str
    config: AnyObjectStoreConfig
    credentials: AnyCredential
    settings: StorageSettings
    user_agent: str | None = None
    _clients: dict[str, ObjectStore] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.url_prefix, self.config, self.credentials, self.settings, self.user_agent)
        return (ForeignStore, values)

    @override
    def _read(self, byte_range: ForeignRange) -> Buffer:
        client, key = self._client_and_key(byte_range.url)
        if byte_range.is_empty:
            return b""
        with fetch_errors(byte_range.url):
            answer = obstore.get(client, key, options={"range": (byte_range.start, byte_range.stop)})
            _check_answer(byte_range, answer)
            return TRAFFIC.count_read(_whole(byte_range, answer.bytes()))

    @override
    async def _read_async(self, byte_range: ForeignRange) -> Buffer:
        client, key = self._client_and_key(byte_range.url)
        if byte_range.is_empty:
            return b""
        with fetch_errors(byte_range.url):
            options: GetOptions = {"range": (byte_range.start, byte_range.stop)}
            answer = await obstore.get_async(client, key, options=options)
            _check_answer(byte_range, answer)
            return TRAFFIC.count_read(_whole(byte_range, await answer.bytes_async()))

    @override
    def size(self, url: str) -> int:
        client, key = self._client_and_key(url)
        with fetch_errors(url):
            return obstore.head(client, key)["size"]

    def _client_and_key(self, url: str) -> tuple[ObjectStore, str]:
        if not url.startswith(self.url_prefix):
            raise outside_prefix(url, self.url_prefix)
        name, _, key = url.partition("://")[2].partition("/")
        if _BUCKET.fullmatch(name) is None:
            raise _wrong_location(f"the bucket in {shown_url(url)!r} must have only letters, digits and .-_$")
        check_segments(url, key)
        enter_runtime()
        client = self._clients.get(name)
        if client is None:
            bucket = _bucket_of(self.config, self.credentials, name)
            headers = {} if self.user_agent is None else {"User-Agent": self.user_agent}
            client = self._clients[name] = bucket.connect("", self.settings, headers)
        return client, key


#: Names of buckets become parts of host names. They must not contain characters that end a host name.
_BUCKET: Final = re.compile(r"[A-Za-z0-9$._-]+")


def _bucket_of(config: AnyObjectStoreConfig, credentials: AnyCredential, name: str) -> Bucket:
    """Return the bucket or container of this name, with the credentials that the user granted."""
    match config, credentials:
        case (ObjectStoreConfig.S3(options) | ObjectStoreConfig.S3Compatible(options), Credentials.S3(keys)):
            return S3Bucket(name, options, keys)
        case ObjectStoreConfig.Tigris(options), Credentials.S3(keys):
            region, endpoint = options.region or "auto", options.endpoint_url or TIGRIS_ENDPOINT
            return S3Bucket(name, replace(options, region=region, endpoint_url=endpoint), keys)
        case ObjectStoreConfig.Gcs(opts), Credentials.Gcs(token):
            return GcsBucket(name, dict(opts or {}), token)
        case ObjectStoreConfig.Azure(opts), Credentials.Azure(secret):
            others = dict(opts or {})
            if "account" not in others:
                raise InvalidInputError(
                    "an Azure store must have an account: azure_store(account=...)", ErrorKind.STORAGE_CONFIG
                )
            return AzureContainer(others.pop("account"), name, others, secret)
        case _:
            raise credentials_mismatch(credentials, config)


def _check_answer(byte_range: ForeignRange, answer: GetResult) -> None:
    meta = answer.meta
    # Object stores send whole seconds. Some send fractions in listings.
    byte_range.check_object(meta["e_tag"], int(meta["last_modified"].timestamp()))
    web_client.require_plain(answer.attributes.get("Content-Encoding"))
    if answer.range != (byte_range.start, byte_range.stop):
        raise byte_range.too_short(answer.range[1])


def _whole(byte_range: ForeignRange, data: Buffer) -> Buffer:
    """Return the bytes of an answer, if they are as many as the range has."""
    size, expected = memoryview(data).nbytes, byte_range.stop - byte_range.start
    if size != expected:
        raise UnreachableError(f"the answer must have the {expected} bytes of its range, got {size}")
    return data


#: The statuses of a server that does not have an object, or not this range of it.
_ABSENT: Final = frozenset({404, 410, 416})


@dataclass(slots=True)
class ForeignWeb(ForeignObjects):
    """Files on web servers. Redirects to other servers are refused: see ``frazil.storage.web_client``."""

    url_prefix: str
    client: WebClient

    @override
    def _read(self, byte_range: ForeignRange) -> Buffer:
        url, start, stop = byte_range.url, byte_range.start, byte_range.stop
        self._check(url)
        if byte_range.is_empty:
            return b""
        with fetch_errors(url):
            headers = {"Range": f"bytes={start}-{stop - 1}"}
            answer = self.client.request("GET", url, headers, stop - start)
            if answer.status == 200:
                raise OSError("the server does not support range requests: its status must be 206, got 200")
            _require_status(answer, 206, url)
            byte_range.check_object(answer.etag, int(answer.modified))
            first, end = answer.range()
            if first == start and end < stop:
                raise byte_range.too_short(end)
            if (first, end) != (start, stop):
                raise OSError(f"the answer must have the range [{start}, {stop}), got [{first}, {end})")
            answer.require_length(start, stop)
            return TRAFFIC.count_read(answer.body)

    @override
    async def _read_async(self, byte_range: ForeignRange) -> Buffer:
        return await web_client.in_thread(lambda: self._read(byte_range))

    @override
    def size(self, url: str) -> int:
        self._check(url)
        with fetch_errors(url):
            answer = self.client.request("HEAD", url, {})
            _require_status(answer, 200, url)
            if answer.length is None:
                raise OSError("the server must send the size in the header content-length")
            return answer.length

    def _check(self, url: str) -> None:
        if not url.startswith(self.url_prefix):
            raise outside_prefix(url, self.url_prefix)
        parts = urlsplit(url)
        if parts.query:
            raise _wrong_location(f"the URL of a virtual chunk must have no query, got {shown_url(url)!r}")
        check_segments(url, unquote(parts.path.removeprefix("/")))


def _require_status(answer: Response, expected: int, url: str) -> None:
    if answer.status != expected:
        reason = reason_of_status(answer.status, url)[1]
        failure = FileNotFoundError if answer.status in _ABSENT else OSError
        raise failure(f"the status must be {expected}, got {answer.status}: {reason}")


def open_foreign(
    config: AnyObjectStoreConfig,
    credentials: AnyCredential | None,
    url_prefix: str,
    settings: StorageSettings | None = None,
    *,
    user_agent: str | None = None,
) -> ForeignObjects:
    """Return a reader for the objects whose URLs begin with a prefix.

    Args:
        config: Kind of store, and its options. If its kind is a local file system, a file that does not exist
            at the path of its URL is searched below ``config.path``. This path is the place of the prefix's
            files on this machine.
        credentials: Credentials for the store. None means requests without credentials.
        url_prefix: Prefix of the URLs of all objects.
        settings: Time-outs and retries. Default: ``StorageSettings()``.
        user_agent: Value of the header ``User-Agent``. Default: name and version of Frazil.

    Returns:
        The reader. No request is sent.

    Raises:
        InvalidInputError: ``invalid-virtual-ref`` for a store that cannot hold such URLs;
            ``invalid-credentials`` for credentials of another kind of store; ``storage-config`` for a
            store in memory.

    Examples:
        >>> from frazil.storage import open_foreign, s3_store
        >>> objects = open_foreign(s3_store(region="eu-west-1", anonymous=True), None, "s3://bucket/data/")
    """
    if isinstance(config, ObjectStoreConfig.InMemory):
        raise InvalidInputError(
            "virtual chunks must be in files or a service, got a store in memory", ErrorKind.STORAGE_CONFIG
        )
    if credentials is None:
        credentials = anonymous_access(url_prefix)
    require_scheme(config, url_prefix)
    settings = settings or StorageSettings()
    match config, credentials:
        case ObjectStoreConfig.LocalFileSystem(path), Credentials.LocalFileSystemAccess():
            return ForeignFiles(url_prefix, path)
        case ObjectStoreConfig.Http(opts, headers), Credentials.HttpAccess():
            options = web_options(opts or {}, settings, user_agent)
            return ForeignWeb(url_prefix, WebClient(options, headers or {}))
        case ((ObjectStoreConfig.LocalFileSystem() | ObjectStoreConfig.Http()), _):
            raise credentials_mismatch(credentials, config)
        case _:
            return ForeignStore(url_prefix, config, credentials, settings, user_agent)
