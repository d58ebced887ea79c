"""The bytes of one file, local or in an object store, for all readers, and the errors of damaged files.

A file is a path, a ``file:`` URL, or an object: ``s3://bucket/key``, ``gs://bucket/key``,
``az://account/container/key``, ``https://host/path`` (see `frazil.storage.urls`). Objects are read in
ranges. A library that reads from file objects gets a file object that caches blocks (``open``). A library
that reads from paths gets a temporary copy (``local``), which is removed at the end. A file that is
compressed as a whole is decompressed to a temporary file (``decompressed``).
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import pickle
import shutil
import tempfile
import weakref
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import batched, chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, override

import zstandard

from frazil import host
from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, StorageError
from frazil.storage.base import ObjectInfo, Storage
from frazil.storage.urls import StorageUrl, parse_url
from frazil.threads import Purpose, map_bounded


def damaged(url: str, expected: str, actual: object) -> FormatError:
    """Return the error for a file that is damaged, truncated or of another format. All readers raise it."""
    text = " ".join(str(actual).split())
    return FormatError(f"{url}: expected {expected}, got {text}", ErrorKind.INVALID_FILE_FORMAT)


def no_group(url: str, group: str, actual: object) -> FormatError:
    """Return the error for a group that a file does not have. All readers raise it."""
    return FormatError(f"{url}: no group {group}: {actual}", ErrorKind.KEY_NOT_FOUND)


@contextmanager
def file_access(url: str) -> Iterator[None]:
    """Return a context in which errors of the operating system become ``StorageError`` with the URL."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"{url}: the file does not exist", ErrorKind.OBJECT_NOT_FOUND) from error
    except OSError as error:
        raise StorageError(f"{url}: cannot be read: {error}", ErrorKind.IO) from error


#: The bytes of one block, which is the smallest request.
BLOCK: Final = 512 << 10
#: The number of blocks that one stream caches.
CACHED_BLOCKS: Final = 64
#: One request reads ranges with at most this many bytes between them.
LARGEST_GAP: Final = 64 << 10


class BlockStream(io.RawIOBase):
    """A file object that reads an object in blocks of `BLOCK` bytes, and caches the last used blocks."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0
        self._block = lru_cache(CACHED_BLOCKS)(file.block)
        self._ranges: list[tuple[int, int]] = []
        self._prefetched: list[bytes] = []

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._file.size)[whence]
        return self._position

    @override
    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._file.size)
        count = max(stop - self._position, 0)
        view[:count] = self._bytes(self._position, self._position + count)
        self._position += count
        return count

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read ranges in parallel, for the next reads inside of them. No ranges free the memory."""
        self._ranges = list(merge_ranges(ranges))
        self._prefetched = self._file.read_many(self._ranges)

    def _bytes(self, start: int, stop: int) -> bytes | memoryview:
        row = bisect_right(self._ranges, start, key=itemgetter(0)) - 1
        if row >= 0 and stop <= self._ranges[row][1]:
            first = self._ranges[row][0]
            return memoryview(self._prefetched[row])[start - first : stop - first]
        if stop - start > BLOCK:
            return self._file.read(start, stop)
        first, last = start // BLOCK, max(stop - 1, start) // BLOCK
        whole = b"".join(map(self._block, range(first, last + 1)))
        return memoryview(whole)[start - first * BLOCK : stop - first * BLOCK]


def merge_ranges(ranges: Iterable[tuple[int, int]], gap: int = LARGEST_GAP) -> Iterator[tuple[int, int]]:
    """Yield ranges in the order of the file, and merge ranges that are close to each other."""
    first, last = 0, -1
    for start, stop in sorted(ranges):
        if last < 0:
            first, last = start, stop
        elif start <= last + gap:
            last = max(last, stop)
        else:
            yield first, last
            first, last = start, stop
    if last >= 0:
        yield first, last


#: The number of bytes at the beginning and at the end of a file that its fingerprint covers.
ENDS: Final = 64 << 10
#: The largest object that is copied for a library that needs a path, in bytes.
LARGEST_COPY: Final = 16 << 30


@dataclass(slots=True, weakref_slot=True)
class SourceFile:
    """One file: a local file at ``path``, or else the object ``key`` of ``storage``.

    ``original`` is the file whose decompressed or changed contents this temporary file has. ``validator`` is
    a digest of what a listing says of the file (`local_validator`, `object_validator`).
    """

    url: str
    size: int
    modified: datetime | None = None
    etag: str | None = None
    path: str | None = None
    storage: Storage | None = None
    key: str = ""
    original: SourceFile | None = None
    validator: str = ""
    _head: bytes | None = field(default=None, init=False, repr=False)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``, or raise ``FormatError`` if the file is shorter."""
        stop = max(start, stop)
        if stop > self.size or start < 0:
            raise damaged(self.url, f"bytes up to {stop}", f"a file of {self.size} bytes: it is truncated")
        if start == stop:
            return b""
        if self.path is not None:
            with file_access(self.url), open(self.path, "rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        else:
            assert self.storage is not None
            data = bytes(self.storage.get(self.key, start, stop))
        if len(data) != stop - start:
            raise damaged(self.url, f"{stop - start} bytes at {start}", f"{len(data)}")
        return data

    def block(self, number: int) -> bytes:
        """Return one block."""
        return self.read(number * BLOCK, min((number + 1) * BLOCK, self.size))

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of many ranges. Ranges of an object are read in parallel."""
        pairs = list(ranges)
        if self.path is not None or len(pairs) < 2:
            return [self.read(start, stop) for start, stop in pairs]
        return map_bounded(Purpose.RANGE_READS, lambda each: self.read(*each), pairs)

    def open(self) -> io.RawIOBase | io.BufferedReader:
        """Return a file object for reads and seeks."""
        if self.path is not None:
            with file_access(self.url):
                return open(self.path, "rb")
        return BlockStream(self)

    @contextmanager
    def local(self) -> Iterator[str]:
        """Return a context with a path for libraries that need one: of the file, or of a temporary copy."""
        if self.path is not None:
            yield self.path
            return
        if self.size > LARGEST_COPY:
            raise InvalidInputError(
                f"{self.url}: an object of this format must have at most {LARGEST_COPY} bytes, because its "
                f"library reads only local files, got {self.size}. Copy it to a local disk",
                ErrorKind.INVALID_OBJECT_SIZE,
            )
        # Some libraries depend on the ending of the name.
        with tempfile.NamedTemporaryFile(
            suffix=os.path.basename(self.key)[-32:], delete_on_close=False
        ) as copy:
            with self.open() as source:
                shutil.copyfileobj(source, copy, 16 * BLOCK)
            copy.close()  # on Windows, no other library can open an open temporary file
            yield copy.name

    @property
    def head(self) -> bytes:
        """The first bytes, which identify the format."""
        if self._head is None:
            self._head = self.read(0, min(self.size, ENDS))
        return self._head

    @property
    def location(self) -> str:
        """The URL in the form of the locations of virtual chunks."""
        return self.url if self.path is not None else parse_url(self.url).chunk_location

    def fingerprint(self) -> str:
        """Return a digest of size, etag and both ends: 32 hexadecimal digits, equal for copies of a file."""
        if self.original is not None:
            return self.original.fingerprint()
        tail = self.head if self.size <= ENDS else self.read(self.size - ENDS, self.size)
        hashed = hashlib.sha256(f"{self.size} {self.etag or ''} ".encode())
        hashed.update(len(self.head).to_bytes(8, "little") + self.head + tail)
        return hashed.hexdigest()[:32]


# Files that are compressed as a whole

#: The bytes of zstd that are decompressed at once: at most 32 MB of content.
_ZSTD_STEP: Final = 1 << 10
_DAMAGED: Final = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def _zstd_content(raw: Any) -> Iterator[bytes]:
    """Yield the content of the frames of a file. A frame without its end is an error."""
    decoder = None
    while data := raw.read(_ZSTD_STEP):
        while data:
            decoder = decoder or zstandard.ZstdDecompressor().decompressobj()
            yield decoder.decompress(data)
            data, decoder = (decoder.unused_data, None) if decoder.eof else (b"", decoder)
    if decoder is not None:
        raise EOFError("the file ends within a frame")


def _content_with(opener: Callable[[Any], Any]) -> Callable[[Any], Iterator[bytes]]:
    """Return a function that yields the content of a file in blocks, by a module of Python."""

    def content(raw: Any) -> Iterator[bytes]:
        with opener(raw) as file:
            yield from iter(lambda: file.read(BLOCK), b"")

    return content


#: The first bytes of a file -> the program that has compressed it, and what yields the content.
_COMPRESSIONS: Final = {
    b"\x1f\x8b": ("gzip", _content_with(gzip.open)),
    b"BZh": ("bzip2", _content_with(bz2.open)),
    b"\xfd7zXZ\0": ("xz", _content_with(lzma.open)),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd_content),
}


def _content(file: SourceFile, program: str, parts: Callable[[Any], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the content of a file. Errors of the program become ``FormatError`` with the name of the file."""
    try:
        with file.open() as raw:
            yield from parts(raw)
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            with file_access(file.url):
                raise
        raise damaged(file.url, f"a file of {program}", f"{type(error).__name__}: {error}") from error


def decompressed(file: SourceFile) -> SourceFile:
    """Return the content of a file that is compressed as a whole, as a temporary file; else the file itself.

    The temporary file is deleted with the returned object.
    """
    chosen = next((each for magic, each in _COMPRESSIONS.items() if file.head.startswith(magic)), None)
    if chosen is None:
        return file
    content = temporary_file(file)
    assert content.path is not None
    with open(content.path, "wb") as copy:
        for part in _content(file, *chosen):
            content.size += copy.write(part)
            if content.size > LARGEST_COPY:
                raise InvalidInputError(
                    f"{file.url}: the content of a compressed file must have at most {LARGEST_COPY} bytes, "
                    "got more. Decompress it, and use the file inside",
                    ErrorKind.INVALID_OBJECT_SIZE,
                )
    return content


def temporary_file(file: SourceFile) -> SourceFile:
    """Return an empty temporary file for other contents of a file. It is deleted with the returned object."""
    handle, path = tempfile.mkstemp(prefix="frazil-")
    os.close(handle)
    content = SourceFile(file.url, 0, file.modified, file.etag, path, original=file.original or file)
    weakref.finalize(content, _delete, path)
    return content


def _delete(path: str) -> None:
    with suppress(OSError):  # another process may have cleaned the folder
        os.unlink(path)


# The storage of a URL


def find_file(url: str, storage_options: Mapping[str, Any] | None = None) -> SourceFile:
    """Return the file at a path or URL. ``storage_options`` are options of the storage of its scheme."""
    path = local_path(url)
    if path is not None:
        url = Path(path).as_uri()
        with file_access(url):
            status = os.stat(path)
            if os.path.isdir(path):
                raise damaged(url, "a file", "a directory that is not a Zarr group")
        modified = datetime.fromtimestamp(status.st_mtime, UTC)
        return SourceFile(url, status.st_size, modified, None, path, validator=local_validator(status))
    storage, key = object_storage(url, storage_options)
    info = storage.head(key) if key else None
    if info is None:
        raise StorageError(f"{url}: the object does not exist", ErrorKind.OBJECT_NOT_FOUND)
    return SourceFile(
        url, info.size, info.modified, info.etag, None, storage, key, validator=object_validator(info)
    )


#: The clock of a file system may stand still this long: FAT writes even seconds. A file that has changed
#: within this time has no validator, because another change may leave its times as they are.
RACY_SECONDS: Final = 3


def local_validator(status: os.stat_result) -> str:
    """Return a digest of size and times of a local file, 32 hexadecimal digits; "" if it has just changed.

    A program can set the time of the last write, but not that of the last change of the entry.
    """
    return _validator(status.st_size, (status.st_mtime_ns, status.st_ctime_ns))


def object_validator(info: ObjectInfo) -> str:
    """Return a digest of size and etag (or else time) of an object; "" if it has no etag and is new."""
    return _validator(info.size, info.etag or (round(info.modified.timestamp() * 1e9),))


def _validator(size: int, version: str | tuple[int, ...]) -> str:
    if not isinstance(version, str) and max(version) > (host.time_us() - RACY_SECONDS * 10**6) * 1000:
        return ""
    return hashlib.sha256(f"{size} {version}".encode()).hexdigest()[:32]


#: The number of files that a thread looks at, one after the other.
_AT_ONCE: Final = 500


def _local_validators(paths: Iterable[str]) -> list[str]:
    validators = []
    for path in paths:
        try:
            validators.append(local_validator(os.stat(path)))
        except OSError:
            validators.append("")
    return validators


#: One listing of a folder replaces this number of requests, or more.
LISTED: Final = 100


def file_validators(
    urls: Sequence[str], listed: Mapping[str, str], storage_options: Mapping[str, Any] | None
) -> list[str]:
    """Return the validators of files without opening them; "" without one, or if there is no such file.

    ``listed`` are validators that are known, by URL. The folders of other objects are listed, up to a number
    of objects that depends on the number of files here.
    """
    validators = dict(listed)
    folders: dict[str, int] = {}
    paths: dict[str, str] = {}
    for url in urls:
        if url in validators:
            continue
        if (path := local_path(url)) is None:
            folder = url[: url.rfind("/") + 1]
            folders[folder] = folders.get(folder, 0) + 1
        else:
            paths[url] = path
    # Without a cache, the disk answers several threads at a time.
    parts = map_bounded(Purpose.FILE_INSPECTIONS, _local_validators, batched(paths.values(), _AT_ONCE))
    validators |= zip(paths, chain.from_iterable(parts), strict=True)
    for folder, count in folders.items():
        if count >= LISTED:
            with suppress(IcechunkError):  # a web server lists nothing
                storage, key = object_storage(folder, storage_options)
                place = folder.removesuffix(key)
                validators |= {
                    place + each.key: object_validator(each) for each in islice(storage.list(key), 10 * count)
                }
    return [validators.get(url, "") for url in urls]


def local_path(url: str) -> str | None:
    """Return the absolute path of a local file; None for other URLs."""
    try:
        return parse_url(url).path or None
    except InvalidInputError:  # the reader raises it later
        return None


def object_storage(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Storage, str]:
    """Return the storage of the bucket (container, host) of a URL, and the key in it."""
    bucket, key = parse_url(url).split_key()
    return _connected(bucket, pickle.dumps(storage_options or None)), key


@lru_cache(32)
def _connected(bucket: StorageUrl, storage_options: bytes) -> Storage:
    """Return a storage of this process: files of one bucket share the connections of a client."""
    return bucket.storage(pickle.loads(storage_options))
