"""Objects as files under a directory, safe between threads, between processes, and across ``kill -9``.

*Appearing whole.* Bytes go to a temporary file beside the object, are flushed to disk (``fsync``), and
then take the object's name in one step: ``os.replace``, or ``os.link`` if the name must be free. Last,
the directory is flushed, so that the name survives a power cut as well. No file is rewritten in place.

*Conditional create* is ``os.link``: the kernel refuses a name that is taken.

*Conditional update* must compare and replace as one act, and no system call does that. So there is a
permanent lock file beside the object, locked with ``fcntl.lockf``: the kernel drops that lock when its
owner dies, in whatever way, and it also works over NFS. It excludes processes only, hence a lock between
the threads of this process around it (closing *any* descriptor of a file drops the process's locks on it,
so no two threads may have it open).

*Versions* are SHA-256 of the bytes. Inode, time and size together are not enough: file systems reuse an
inode at once and their clocks tick in milliseconds.

*Hidden names.* Temporary and lock files are called ``<object>#<digits>``. The object_store crate, which
the reference lists directories with, takes such names for its own unfinished uploads and does not show
them either. What a killed writer leaves behind is such a file, and harmless.

*Links.* The root, and folders below it, may be symbolic links: administrators link folders to other disks. An
object that is a link is read if its target is a file below the root, and refused otherwise: a repository
from an untrusted source cannot make its reader open other files. A write replaces the link, never its target.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import batched
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.base import (
    ALWAYS,
    Always,
    Condition,
    IfAbsent,
    IfVersion,
    ObjectInfo,
    Refused,
    Stored,
    Version,
)
from frazil.storage.files import reads
from frazil.storage.files.directories import flush_names
from frazil.storage.files.failures import MISSING_FILE, file_errors
from frazil.storage.files.links import open_inside
from frazil.storage.files.process_state import process_state
from frazil.storage.files.reads import check_short_read, read_large, version_of
from frazil.storage.files.writes import UnnamedFile, create_file, link_if_equal, update_file, write_and_name
from frazil.storage.keys import check_key, check_prefix, check_range
from frazil.storage.settings import (
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
)
from frazil.storage.synchronous import SynchronousStorage
from frazil.storage.traffic import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator

#: Hashing runs at 2 GB/s: for a pack of chunks, which nobody conditions on, that would be wasted.
_LARGEST_HASHED_ALWAYS: Final = 256 << 10
#: Files that are written before the first of them is flushed.
_OPEN_FILES: Final = 64

_is_hidden = re.compile(r".*#\d+", re.DOTALL).fullmatch
#: Errors of ``open`` with ``O_NOFOLLOW`` for a link.
_IS_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK})


class LocalStorage(SynchronousStorage):
    """Objects in the directory ``root``, which is made at the first write.

    >>> import tempfile
    >>> storage = LocalStorage(tempfile.mkdtemp())
    >>> stored = storage.put("repo", b"first", IfAbsent())
    >>> storage.put("repo", b"second", IfVersion(stored.version)) != Refused()
    True
    >>> storage.put("repo", b"third", IfVersion(stored.version))
    Refused()
    """

    def __init__(self, root: str | os.PathLike[str], settings: StorageSettings | None = None) -> None:
        # Absolute once and for all: the process may change its working directory later.
        self._root = os.path.abspath(os.fspath(root))
        self._base = self._root.rstrip("/") + "/"
        self._settings = settings

    @property
    def root(self) -> Path:
        """The directory that holds the objects."""
        return Path(self._root)

    def __repr__(self) -> str:
        return f"<frazil.Storage>\ntype: local filesystem\npath: {self._root}\n"

    def __reduce__(self) -> tuple[Any, ...]:
        return (LocalStorage, (self._root, self._settings))

    def label(self) -> str:
        if os.path.isdir(self._root):
            return f"the directory {self._root}"
        problem = "is a file, not a directory" if os.path.exists(self._root) else "does not exist"
        return f"{self._root}, which {problem}"

    def _path(self, key: str) -> str:
        check_key(key)
        if "#" in key and any(map(_is_hidden, key.split("/"))):
            raise InvalidInputError(
                f"{key!r} is not a key of a local storage: names that end in '#' and digits are reserved for "
                "unfinished files",
                ErrorKind.BAD_KEY_PREFIX,
            )
        return self._base + key

    # reading

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        TRAFFIC.count_request()
        with file_errors(key, "read"):
            descriptor = self._open(self._path(key))
            try:
                if stop is None or stop - start > reads.CALL_BYTES:
                    return TRAFFIC.count_read(read_large(descriptor, key, start, stop))
                data = os.pread(descriptor, stop - start, start)
                if len(data) < stop - start:
                    check_short_read(descriptor, key, start, len(data))
                return TRAFFIC.count_read(data)
            finally:
                os.close(descriptor)

    def _open(self, path: str) -> int:
        """Open an object. It may be a link to a file below the root; the kernel detects links at no cost."""
        try:
            # Without O_NONBLOCK, to open a named pipe waits until somebody writes to it.
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
        return open_inside(path, self._root)

    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        data = self.get(key)
        return data, version_of(data)

    def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        TRAFFIC.count_request()
        with file_errors(key, "look up"):
            try:
                status = os.stat(path)
            except MISSING_FILE:
                return None
        return _info(key, status) if S_ISREG(status.st_mode) else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        path = check_prefix(prefix)
        TRAFFIC.count_request()
        return self._walk(f"{path}/" if path else "")

    def _walk(self, start: str) -> Iterator[ObjectInfo]:
        for folder, entry in self._files(start):
            if not _is_hidden(entry.name):
                with file_errors(folder + entry.name, "list"):
                    try:
                        status = entry.stat()
                    except FileNotFoundError:  # deleted since the directory was read
                        continue
                if S_ISREG(status.st_mode):
                    yield _info(folder + entry.name, status)

    def _files(self, start: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        folders = [start]
        while folders:
            folder = folders.pop()
            with file_errors(folder, "list"):
                try:
                    with os.scandir(self._base + folder) as scan:
                        entries = [*scan]
                except MISSING_FILE:
                    continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}{entry.name}/")
                else:
                    yield folder, entry

    # writing

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        """Write a whole object.

        The version of an unconditional write of more than 256 KiB has no etag (it would have to be hashed);
        ``get_versioned`` tells it.
        """
        path = self._path(key)
        view = memoryview(data).cast("B")
        TRAFFIC.count_request()
        TRAFFIC.count_write(view)
        with file_errors(key, "write"):
            match condition:
                case Always():
                    write_and_name(path, view, os.replace)
                    is_small = len(view) <= _LARGEST_HASHED_ALWAYS
                    return Stored(version_of(view) if is_small else Version())
                case IfAbsent():
                    is_new = not os.path.lexists(path) and create_file(path, view)
                    return Stored(version_of(view)) if is_new else Refused()
                case IfVersion(version):
                    return update_file(path, view, version)

    def put_many(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        """All files are written and named, and then all are flushed at once.

        After a power cut in between, one may be there in part, under a name that nobody refers to.
        """
        for batch in batched(objects, _OPEN_FILES):
            self._put_batch(batch)

    def _put_batch(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        with ExitStack() as stack:
            files = [stack.enter_context(UnnamedFile(self._path(key), key, data)) for key, data in objects]
            for _, data in objects:
                TRAFFIC.count_request()
                TRAFFIC.count_write(data)
            for file in files:
                file.set_name()
            directories = {os.path.dirname(file.path): None for file in files}
            flushes = [file.flush for file in files]
            flushes += [partial(flush_names, directory) for directory in directories]
            process_state().flush_together(flushes)

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        """See ``Storage.backup``: a second name for the same file, if that holds ``data``; else a copy."""
        target = self._path(to)
        view = memoryview(data).cast("B")
        TRAFFIC.count_request()
        with file_errors(to, "write"):
            if not link_if_equal(self._path(key), target, view):
                write_and_name(target, view, os.replace)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            TRAFFIC.count_request()
            with file_errors(key, "delete"), suppress(*MISSING_FILE):
                os.unlink(self._path(key))

    def delete_abandoned(self, before: datetime) -> int:
        """Delete the temporary files of writers that died before that time; how many there were."""
        count = 0
        for folder, entry in self._files(""):
            if _is_hidden(entry.name) and not entry.name.endswith("#0"):
                with file_errors(folder + entry.name, "delete"), suppress(FileNotFoundError):
                    if entry.stat().st_mtime < before.timestamp():
                        os.unlink(entry.path)
                        count += 1
        return count

    # settings

    def default_settings(self) -> StorageSettings:
        return StorageSettings(
            concurrency=StorageConcurrencySettings(
                max_concurrent_requests_for_object=5, ideal_concurrent_request_size=4096
            ),
            retries=StorageRetriesSettings(max_tries=1, initial_backoff_ms=0, max_backoff_ms=0),
            unsafe_use_conditional_update=False,
            unsafe_use_metadata=False,
        )

    def with_settings(self, settings: StorageSettings) -> LocalStorage:
        return LocalStorage(self._root, settings)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
