"""A storage in S3, GCS, Azure, or a similar server, through obstore. The servers differ.

=====================  ==================================================================================
etag in ``If-Match``   Most servers accept it only with quotes, Ceph only without, so versions have none. The
                       module sends it with quotes, and repeats the first request without after a refusal
refusal                409 or 412, as "already exists" or "precondition"; AWS may answer 404 to an update
                       of a missing object. All of these are ``Refused``
generation             GCS compares the generation of the object, other servers compare the etag
no answer              the client does not retry, because the write may have taken effect: ``StorageError``
5xx                    the client retries, and may then find its own write: ``Refused``
delete, missing        an error on GCS and Azure, which ends the batch: the module deletes one by one
multipart              the answer may have no etag: the version is empty. Never used with a condition
=====================  ==================================================================================
"""

from __future__ import annotations

import builtins
import logging
import time
from contextlib import contextmanager, suppress
from copy import copy
from itertools import batched
from typing import TYPE_CHECKING, Any, Final, override

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.logs import SLOW
from frazil.storage.base import (
    ALWAYS,
    Always,
    Condition,
    IfAbsent,
    IfVersion,
    ObjectInfo,
    Refused,
    Storage,
    Stored,
    Version,
)
from frazil.storage.checks import (
    TRAFFIC,
    check_key,
    check_prefix,
    check_range,
    enter_runtime,
    object_not_found,
    read_only,
)
from frazil.storage.failures import ErrorParts, first_line, is_missing_bucket, shorten, storage_error
from frazil.storage.option_names import check_headers
from frazil.storage.settings import StorageConcurrencySettings, StorageSettings
from frazil.threads import Purpose, map_bounded

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator, Mapping, Sequence

    from obstore import ObjectMeta
    from obstore.store import ObjectStore

    from frazil.storage.buckets import Bucket

    #: The bytes of an object, in one buffer or in several.
    type _Data = Buffer | list[Buffer]

_DEFAULT_MULTIPART: Final = 100 << 20
_DEFAULT_PART: Final = 12 << 20
_DEFAULT_PARTS_AT_ONCE: Final = 18
_log: Final = logging.getLogger(__name__)
_DELETE_BATCH: Final = 1000


class ObjectStorage(Storage):
    """A storage in one bucket or container of an object store.

    The functions of ``frazil.storage`` create it. A pickle contains static credentials in plain
    text. ``repr`` does not show them.

    Args:
        bucket: Bucket or container, with its credentials. It is also an attribute.
        prefix: Prefix of the names of all objects. Default: the whole bucket. It is also an attribute,
            without a slash at its start and end.
        settings: Time-outs, retries, storage classes and conditions. Default: ``StorageSettings()``.
        read_headers: Headers of every request that reads. Default: none.
        write_headers: Headers of every request that writes. Default: none.
        read_only: Whether writes raise ``ReadOnlyError``. Default: False.
        user_agent: Value of the header ``User-Agent``. Default: name and version of Frazil.
    """

    def __init__(
        self,
        bucket: Bucket,
        prefix: str = "",
        settings: StorageSettings | None = None,
        *,
        read_headers: Mapping[str, str] | None = None,
        write_headers: Mapping[str, str] | None = None,
        read_only: bool = False,
        user_agent: str | None = None,
    ) -> None:
        self.bucket = bucket
        self.prefix: Final = prefix.strip("/")
        self.is_whole_bucket: bool = not self.prefix
        self._settings = StorageSettings() if settings is None else settings
        check_headers(read_headers)
        check_headers(write_headers)
        self._read_headers = dict(read_headers or {})
        self._write_headers = dict(write_headers or {})
        self.is_read_only = read_only
        self._user_agent = user_agent
        # Whether the server requires etags in quotes. None until it has accepted an etag.
        self._quoted: bool | None = None
        # Created at the first use, because a process may fork before it.
        self._reader: ObjectStore | None = None
        self._writer: ObjectStore | None = None

    @override
    def encodes_names(self) -> bool:
        return self.bucket.encodes_names

    @override
    def label(self) -> str:
        return self.bucket.address(self.prefix)

    def __repr__(self) -> str:
        rows = self.bucket.rows(self.prefix).items()
        return "<frazil.Storage>\n" + "".join(f"{name}: {each}\n" for name, each in rows if each is not None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None, "_writer": None}

    def _connect(self, headers: Mapping[str, str]) -> ObjectStore:
        named = {} if self._user_agent is None else {"User-Agent": self._user_agent}
        return self.bucket.connect(self.prefix, self._settings, {**named, **headers})

    def _read_client(self) -> ObjectStore:
        enter_runtime()
        if self._reader is None:
            self._reader = self._connect(self._read_headers)
        return self._reader

    def _write_client(self) -> ObjectStore:
        if self.is_read_only:
            raise read_only(self)
        if self._write_headers == self._read_headers:
            return self._read_client()
        enter_runtime()
        if self._writer is None:
            self._writer = self._connect(self._write_headers)
        return self._writer

    # reading

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        client = self._read_client()
        with self._errors(check_key(key)):
            if stop is not None:
                return TRAFFIC.count_read(obstore.get_range(client, key, start=start, end=stop))
            options: Any = {"range": {"offset": start}} if start else {}
            return TRAFFIC.count_read(obstore.get(client, key, options=options).bytes())

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        client = self._read_client()
        with self._errors(check_key(key)):
            if stop is not None:
                return TRAFFIC.count_read(await obstore.get_range_async(client, key, start=start, end=stop))
            options: Any = {"range": {"offset": start}} if start else {}
            answer = await obstore.get_async(client, key, options=options)
            return TRAFFIC.count_read(await answer.bytes_async())

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        client = self._read_client()
        with self._errors(check_key(key)):
            answer = obstore.get(client, key)
            return TRAFFIC.count_read(answer.bytes()), _version(answer.meta)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        client = self._read_client()
        with self._errors(check_key(key)):
            try:
                meta = obstore.head(client, key)
            except FileNotFoundError:
                return None
            return ObjectInfo(key, meta["size"], meta["last_modified"], _version(meta).etag)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        path = check_prefix(prefix)
        return self._list(self._read_client(), path)

    def _list(self, client: ObjectStore, path: str) -> Iterator[ObjectInfo]:
        pages = obstore.list(client, prefix=path or None, chunk_size=1000)
        while True:
            with self._errors(path or "/"):
                page: Sequence[ObjectMeta] | None = next(iter(pages), None)
            if page is None:
                return
            for meta in page:
                yield ObjectInfo(meta["path"], meta["size"], meta["last_modified"], _version(meta).etag)

    @override
    def folders(self) -> builtins.list[str]:
        with self._errors("/"):
            found = obstore.list_with_delimiter(self._read_client())
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])

    # writing

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        return self.put_parts(key, [data], condition)

    @override
    def put_parts(self, key: str, parts: Sequence[Buffer], condition: Condition = ALWAYS) -> Stored | Refused:
        client = self._write_client()
        data, size = _payload(parts)
        check_key(key)
        TRAFFIC.count(0, written=size)
        match self._effective_condition(key, condition):
            case None:
                return Refused()
            case Always():
                with self._errors(key, is_write=True):
                    return Stored(_version(obstore.put(client, key, data, **self._put_options(key, size))))
            case IfAbsent():
                return self._put_if(client, key, data, "create")
            case IfVersion(version):
                forms: tuple[bool, ...] = (bool(self._quoted),)
                if self._quoted is None and version.etag is not None and version.generation is None:
                    # A refusal may be due to the quotes. The repetition has the same condition: it is safe.
                    forms = (True, False)
                for quoted in forms:
                    outcome = self._put_if(client, key, data, _mode(version, quoted=quoted))
                    if isinstance(outcome, Stored):
                        self._quoted = quoted
                        return outcome
                return Refused()

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        return await self.put_parts_async(key, [data])

    @override
    async def put_parts_async(self, key: str, parts: Sequence[Buffer]) -> Stored:
        client = self._write_client()
        data, size = _payload(parts)
        TRAFFIC.count(0, written=size)
        with self._errors(check_key(key), is_write=True):
            answer = await obstore.put_async(client, key, data, **self._put_options(key, size))
        return Stored(_version(answer))

    def _put_if(self, client: ObjectStore, key: str, data: _Data, mode: Any) -> Stored | Refused:
        attributes = self._attributes(key)
        with self._errors(key, is_write=True):
            try:
                answer = obstore.put(client, key, data, mode=mode, attributes=attributes, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return Refused()
            except FileNotFoundError:
                if mode == "create":
                    raise
                return Refused()
        return Stored(_version(answer))

    def _effective_condition(self, key: str, condition: Condition) -> Condition | None:
        """Return the condition to send, or None if it does not hold.

        If the settings say that the server does not support conditions, this method checks the condition.
        This is not atomic.
        """
        match condition:
            case IfAbsent() if self._settings.unsafe_use_conditional_create is False:
                return None if self.head(key) is not None else ALWAYS
            case IfVersion(version) if self._settings.unsafe_use_conditional_update is False:
                with self._errors(key):
                    try:
                        current = obstore.head(self._read_client(), key)
                    except FileNotFoundError:
                        return None
                return ALWAYS if _version(current) == version else None
        return condition

    def _put_options(self, key: str, size: int) -> dict[str, Any]:
        settings = self._settings
        concurrency = settings.concurrency or StorageConcurrencySettings()
        smallest = settings.minimum_size_for_multipart_upload
        multipart = size >= (_DEFAULT_MULTIPART if smallest is None else smallest)
        return {
            "attributes": self._attributes(key),
            "use_multipart": multipart,
            # Servers refuse parts of less than 5 MiB.
            "chunk_size": max(concurrency.ideal_concurrent_request_size or _DEFAULT_PART, 5 << 20),
            "max_concurrency": concurrency.max_concurrent_requests_for_object or _DEFAULT_PARTS_AT_ONCE,
        }

    def _attributes(self, key: str) -> dict[str, str] | None:
        settings = self._settings
        is_chunk = key.startswith("chunks/")
        special = settings.chunks_storage_class if is_chunk else settings.metadata_storage_class
        storage_class = special or settings.storage_class
        return {"Storage-Class": storage_class} if storage_class else None

    @override
    def delete(self, keys: Iterable[str]) -> None:
        client = self._write_client()

        def delete_one(key: str) -> None:
            with self._errors(key), suppress(FileNotFoundError):
                obstore.delete(client, key)

        for batch in batched(map(check_key, keys), _DELETE_BATCH):
            try:
                with self._errors(batch[0]):
                    obstore.delete(client, [*batch])
            except StorageError as error:
                if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                    raise
                map_bounded(Purpose.OBJECT_DELETES, delete_one, batch)

    @contextmanager
    def _errors(self, key: str, *, is_write: bool = False) -> Iterator[None]:
        """Convert the errors of obstore to errors of the contract."""
        start = time.perf_counter()
        TRAFFIC.count()
        try:
            yield
        except FileNotFoundError as error:
            # If a write gets "not found", the missing thing is the bucket and not the object.
            if is_write or is_missing_bucket(ErrorParts.from_text(str(error))):
                raise storage_error(error, self.bucket.terms, key) from error
            shorten(error)
            raise object_not_found(key) from error
        except BaseError as error:
            raise storage_error(error, self.bucket.terms, key) from error
        except ValueError as error:
            raise InvalidInputError(f"{key!r}: {first_line(error)}", ErrorKind.BAD_KEY_PREFIX) from error
        finally:
            if (seconds := time.perf_counter() - start) > SLOW:
                _log.warning("a request for %r took %.1f s", key, seconds)

    # settings

    @override
    def with_settings(self, settings: StorageSettings) -> ObjectStorage:
        other = copy(self)
        other._settings = settings
        return other

    @override
    def with_user_agent(self, user_agent: str) -> Storage:
        other = copy(self)
        other._user_agent = user_agent
        return other


def _payload(parts: Sequence[Buffer]) -> tuple[_Data, int]:
    """Return the bytes of an object in a form for the client, and their number."""
    views = [part if isinstance(part, bytes) else memoryview(part).cast("B") for part in parts]
    return (views[0] if len(views) == 1 else [*views]), sum(map(len, views))


def _version(meta: Mapping[str, Any]) -> Version:
    etag = meta.get("e_tag")
    return Version(etag.strip('"') or None if etag else None, meta.get("version"))


def _mode(version: Version, *, quoted: bool) -> dict[str, str]:
    etag = f'"{version.etag}"' if quoted and version.etag is not None else version.etag
    mode = {"e_tag": etag, "version": version.generation}
    present = {name: value for name, value in mode.items() if value is not None}
    if not present:
        raise InvalidInputError("version must be that of a read object, got an empty one. Read it first")
    return present
