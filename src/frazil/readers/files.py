"""The bytes of one file, wherever it is: what all readers of formats stand on.

A file is a path, a ``file:`` URL, or an object: ``s3://bucket/key``, ``gs://bucket/key``,
``az://container/key`` (``account`` in the options), ``https://host/path``. Objects are read in ranges;
libraries that want a file object get one that keeps the blocks it read (``open``), libraries that want a path
get a temporary copy (``local``), which is removed when it is closed.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import tempfile
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from frazil.errors import ErrorKind, FormatError, InvalidInputError, StorageError
from frazil.readers.reader import fingerprint
from frazil.storage.constructors import azure_storage, gcs_storage, http_storage, s3_storage
from frazil.threads import Purpose, map_bounded

if TYPE_CHECKING:
    from frazil.storage.base import Storage

#: How much of the beginning and of the end of a file is in its fingerprint.
ENDS: Final = 64 << 10
#: What is read of an object at once, and how many of these blocks are kept.
BLOCK: Final = 512 << 10
_KEPT: Final = 64
#: Two ranges that are closer are one request.
_GAP: Final = 64 << 10
#: The largest object that is copied for a library that needs a path.
LARGEST_COPY: Final = 16 << 30


def damaged(url: str, expected: str, found: object) -> FormatError:
    """The error of every reader for a file that is not what it should be."""
    said = " ".join(str(found).split())
    return FormatError(f"{url}: expected {expected}, found {said}", ErrorKind.INVALID_FILE_FORMAT)


def no_group(url: str, group: str, found: object) -> FormatError:
    """The error of every reader for a group that a sound file does not have."""
    return FormatError(f"{url}: expected a group {group}, found {found}", ErrorKind.KEY_NOT_FOUND)


@dataclass(slots=True)
class File:
    """One file. ``path`` is where it is on this machine, if it is; else ``storage`` and ``key``."""

    url: str
    size: int
    modified: datetime | None = None
    etag: str | None = None
    path: str | None = None
    storage: Storage | None = None
    key: str = ""
    _head: bytes | None = field(default=None, init=False, repr=False)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes ``start <= i < stop``, all of them. Raises ``FormatError`` if the file ends before."""
        stop = max(start, stop)
        if stop > self.size or start < 0:
            raise damaged(self.url, f"bytes up to {stop}", f"a file of {self.size} bytes: it is truncated")
        if start == stop:
            return b""
        if self.path is not None:
            with reading(self.url), open(self.path, "rb") as file:
                data = os.pread(file.fileno(), stop - start, start)
                while len(data) < stop - start:  # one call moves 2 GiB at most
                    more = os.pread(file.fileno(), stop - start - len(data), start + len(data))
                    if not more:
                        raise damaged(self.url, f"{self.size} bytes", f"{start + len(data)}: it shrinks")
                    data += more
                return data
        assert self.storage is not None
        data = bytes(self.storage.get(self.key, start, stop))
        if len(data) != stop - start:
            raise damaged(self.url, f"{stop - start} bytes at {start}", f"{len(data)}")
        return data

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Many ranges, in parallel if a network is in between."""
        asked = list(ranges)
        if self.path is not None or len(asked) < 2:
            return [self.read(start, stop) for start, stop in asked]
        return map_bounded(Purpose.RANGE_READS, lambda each: self.read(*each), asked)

    def open(self) -> io.RawIOBase | io.BufferedReader:
        """A file object, to read from and to seek in."""
        if self.path is not None:
            with reading(self.url):
                return open(self.path, "rb")
        return Blocks(self)

    @contextmanager
    def local(self) -> Iterator[str]:
        """A path, for libraries that know no file objects: of the file, or of a copy for the time being."""
        if self.path is not None:
            yield self.path
            return
        if self.size > LARGEST_COPY:
            raise InvalidInputError(
                f"{self.url}: expected at most {LARGEST_COPY} bytes for a format whose library reads files "
                f"alone, found {self.size}: copy it to where it can be opened as a file",
                ErrorKind.INVALID_OBJECT_SIZE,
            )
        # the name's ending: some libraries look at it
        with tempfile.NamedTemporaryFile(suffix=os.path.basename(self.key)[-32:]) as copy:
            with self.open() as source:
                shutil.copyfileobj(source, copy, 16 * BLOCK)
            copy.flush()
            yield copy.name

    @property
    def head(self) -> bytes:
        """The first bytes: what the format is known by."""
        if self._head is None:
            self._head = self.read(0, min(self.size, ENDS))
        return self._head

    def fingerprint(self) -> str:
        """What tells this file from another one of this name."""
        tail = self.head if self.size <= ENDS else self.read(self.size - ENDS, self.size)
        return fingerprint(self.size, self.etag, self.head, tail)


class Blocks(io.RawIOBase):
    """An object as a file object, which reads blocks and keeps the last of them.

    Metadata are small and close together, so a few blocks hold all of them; what is larger than a block is
    read as it is asked for, and ``prefetch`` gets many ranges at once.
    """

    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._at = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._ranges: list[tuple[int, int]] = []
        self._found: list[bytes] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._at + len(view), self._file.size)
        count = max(stop - self._at, 0)
        view[:count] = self._bytes(self._at, self._at + count)
        self._at += count
        return count

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read these ranges in parallel, and answer from them until the next call (of none: no more)."""
        self._ranges = list(merged(ranges))
        self._found = self._file.read_many(self._ranges)

    def _bytes(self, start: int, stop: int) -> bytes | memoryview:
        place = bisect_right(self._ranges, start, key=itemgetter(0)) - 1
        if place >= 0 and stop <= self._ranges[place][1]:
            first = self._ranges[place][0]
            return memoryview(self._found[place])[start - first : stop - first]
        if stop - start > BLOCK:
            return self._file.read(start, stop)
        first, last = start // BLOCK, max(stop - 1, start) // BLOCK
        whole = b"".join(map(self._block, range(first, last + 1)))
        return memoryview(whole)[start - first * BLOCK : stop - first * BLOCK]

    def _block(self, number: int) -> bytes:
        found = self._blocks.get(number)
        if found is None:
            start = number * BLOCK
            found = self._file.read(start, min(start + BLOCK, self._file.size))
            self._blocks[number] = found
            if len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(number)
        return found


def merged(ranges: Iterable[tuple[int, int]], gap: int = _GAP) -> Iterator[tuple[int, int]]:
    """Ranges in their order in the file; those that are close to each other are one.

    >>> list(merged([(10, 20), (0, 5), (900_000, 900_001)]))
    [(0, 20), (900000, 900001)]
    """
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


@contextmanager
def reading(url: str) -> Iterator[None]:
    """What the operating system says of a file that cannot be read, as a ``StorageError``."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"{url}: expected a file, found nothing", ErrorKind.OBJECT_NOT_FOUND) from error
    except OSError as error:
        raise StorageError(f"{url}: cannot be read: {error}", ErrorKind.IO) from error


# Which storage is for a URL


def find_file(url: str, storage_options: Mapping[str, Any] | None = None) -> File:
    """The file at a path or URL; ``storage_options`` are those of the storage of its scheme.

    Raises ``StorageError`` if it is not there or cannot be read, ``InvalidInputError`` for other URLs.

    >>> find_file("nowhere.nc")
    Traceback (most recent call last):
    frazil.errors.StorageError: file:///.../nowhere.nc: expected a file, found nothing
    """
    path = local_path(url)
    if path is not None:
        url = Path(path).as_uri()
        with reading(url):
            status = os.stat(path)
            if os.path.isdir(path):
                raise damaged(url, "a file", "a directory that is no Zarr group")
        modified = datetime.fromtimestamp(status.st_mtime, UTC)
        return File(url, status.st_size, modified, None, path)
    storage, key = object_storage(url, storage_options)
    found = storage.head(key) if key else None
    if found is None:
        raise StorageError(f"{url}: expected an object, found nothing", ErrorKind.OBJECT_NOT_FOUND)
    return File(url, found.size, found.modified, found.etag, None, storage, key)


def local_path(url: str) -> str | None:
    """The absolute path of a file of this machine; None if it is elsewhere."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return os.path.abspath(unquote(parts.path))
    return None if "://" in url else os.path.abspath(url)


def object_storage(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Storage, str]:
    """The storage of the bucket (container, host) of a URL, and the key in it."""
    parts = urlsplit(url)
    connect = _STORAGES.get(parts.scheme)
    if connect is None:
        raise InvalidInputError(
            f"{url}: expected a path or a URL with one of {', '.join(sorted(_STORAGES))}, file",
            ErrorKind.CANNOT_PARSE_URL,
        )
    place = f"{parts.scheme}://{parts.netloc}"
    known = (place, pickle.dumps(storage_options or None))
    storage = _connected.get(known)
    if storage is None:
        if len(_connected) >= _MOST_CONNECTED:
            _connected.clear()
        storage = _connected[known] = connect(place, dict(storage_options or {}))
    if parts.scheme.startswith("http"):
        return storage, unquote(parts.path).strip("/")
    return storage, url[len(place) + 1 :]  # all of it, letter by letter


def _s3(place: str, options: dict[str, Any]) -> Storage:
    return s3_storage(bucket=place.partition("://")[2], prefix=None, **options)


def _gcs(place: str, options: dict[str, Any]) -> Storage:
    return gcs_storage(bucket=place.partition("://")[2], prefix=None, **options)


def _azure(place: str, options: dict[str, Any]) -> Storage:
    return azure_storage(container=place.partition("://")[2], prefix="", **options)


def _http(place: str, options: dict[str, Any]) -> Storage:
    return http_storage(place, **options)


#: Storages of this process: clients keep connections, which files of one bucket share.
_connected: Final[dict[tuple[str, bytes], Storage]] = {}
_MOST_CONNECTED: Final = 32
_STORAGES: Final[dict[str, Callable[[str, dict[str, Any]], Storage]]] = {
    "s3": _s3,
    "s3a": _s3,
    "gs": _gcs,
    "gcs": _gcs,
    "az": _azure,
    "http": _http,
    "https": _http,
}
