"""A storage in local files. It is safe between threads, between processes, and after ``kill -9``.

**Whole objects.** A write goes to a temporary file next to the object and is flushed to the disk (``fsync``).
Then one system call gives the file the object's name: ``os.replace``, or ``os.link`` if the name must be
free. Last, the directory is flushed, so that the name survives a power failure. If this flush fails, it is
tried again, and after that the outcome is unknown. No file is changed in place.

**Conditional create** is ``os.link``: the kernel refuses a name that exists.

**Conditional update** must compare and replace in one atomic step, and no system call does this. Therefore a
permanent lock file next to the object is locked with ``fcntl.lockf``. The kernel releases this lock when its
owner dies for any reason, and the lock also works over NFS. It excludes only other processes. A lock between
the threads of this process is held around it. (When a process closes any descriptor of a file, it loses all
its locks on the file. Therefore only one thread may open the lock file at a time.) Inside of both, the inode
of the object itself is locked with ``flock``, as other implementations do: ``design/074-failing-disks.md``.

**Versions** are the SHA-256 of the bytes. Inode, time and size are not sufficient: file systems reuse an
inode immediately, and their clocks have a resolution of milliseconds.

**Network file systems.** A client of NFS keeps the names of a folder for 30 s and more, and opens the old
file of a name that another client has replaced. Therefore a read of an object that may be replaced first
opens its folder, which makes the client ask the server. So does a read that finds no file. On other file
systems this costs microseconds.

**Hidden names.** Temporary files and lock files have names of the form ``<object>#<digits>``. The
object_store crate, which the reference uses to list directories, also uses such names for unfinished uploads
and does not list them. A killed writer leaves only such files behind. They do no harm.

**Links.** The root and the folders below it may be symbolic links, because administrators link folders to
other disks. An object that is a link is read only if its target is a file below the root. Otherwise it is
refused, so that a repository from an untrusted source cannot make its reader open other files. A write
replaces the link and not its target.
"""

from __future__ import annotations

import builtins
import errno
import os
import re
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import batched
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final, override

from frazil.arguments import checked
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage import base, files, system
from frazil.storage.checks import TRAFFIC, check_key, check_prefix, check_range
from frazil.storage.memory import SynchronousStorage
from frazil.storage.settings import StorageSettings

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

#: Larger objects, such as packs of chunks, need no version. Hashing runs only at 2 GB/s.
_LARGEST_HASHED_ALWAYS: Final = 256 << 10
#: Nobody replaces a chunk file under the condition of a version. So a large one needs no version either.
_NEVER_REPLACED: Final = "chunks/"
#: The folders whose objects nobody replaces. The name of such an object always means the same bytes.
_WRITTEN_ONCE: Final = (_NEVER_REPLACED, "manifests/", "snapshots/", "transactions/")
#: Number of files that are written before the first of them is flushed.
_OPEN_FILES: Final = 64

_is_hidden = re.compile(r".*#\d+", re.DOTALL).fullmatch
#: Errors of ``open`` with ``O_NOFOLLOW`` for a link.
_IS_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK})


class LocalStorage(SynchronousStorage):
    """A storage whose objects are files below a directory. The first write creates the directory.

    Args:
        root: Path of the directory.
        settings: Settings of the storage. Default: ``default_settings()``.
        flush: Whether writes are flushed to the disk before they return: see ``local_filesystem_storage``.

    Examples:
        >>> from frazil.storage.base import IfAbsent, IfVersion, Refused, Replacement, Stored
        >>> storage = LocalStorage("ice")
        >>> stored = storage.put("repo", b"first", IfAbsent())
        >>> storage.put("repo", b"second", IfVersion(stored.version)) != Refused()
        True
        >>> storage.put_many([("chunks/A", b"1"), ("chunks/B", b"2")])
        >>> storage.flush_folders(["chunks"])
        >>> with storage.local_queue("repo"):
        ...     old, version = storage.get_versioned("repo")
        >>> replacement = Replacement("repo", b"third", version, old, backup="overwritten/repo.1")
        >>> with storage.open_replacement(replacement, [("snapshots/A", b"new")]) as ready:
        ...     isinstance(ready.finish(), Stored)
        True
        >>> [bytes(storage.get(key)) for key in ("repo", "overwritten/repo.1", "snapshots/A")]
        [b'third', b'second', b'new']
    """

    _request_size = 4096

    def __init__(
        self, root: str | os.PathLike[str], settings: StorageSettings | None = None, *, flush: bool = True
    ) -> None:
        # Absolute, because the process may change its working directory later.
        self._root = os.path.abspath(os.fspath(root))
        self._base = self._root.rstrip("/") + "/"
        self._settings = settings
        self._flush = flush
        self._flusher = files.FLUSH if flush else files.NO_FLUSH

    @property
    def root(self) -> Path:
        """The directory that holds the objects."""
        return Path(self._root)

    def __repr__(self) -> str:
        durability = "" if self._flush else "flush: False\n"
        return f"<frazil.Storage>\ntype: local filesystem\npath: {self._root}\n{durability}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(LocalStorage, flush=self._flush), (self._root, self._settings))

    @override
    def label(self) -> str:
        if os.path.isdir(self._root):
            return f"the directory {self._root}"
        problem = "is a file and not a directory" if os.path.exists(self._root) else "does not exist"
        return f"{self._root}, which {problem}"

    def _path(self, key: str) -> str:
        check_key(key)
        if "#" in key and any(map(_is_hidden, key.split("/"))):
            raise InvalidInputError(
                f"{key!r} is not a key of a local storage: names that end with '#' and digits are reserved "
                "for unfinished files. Use another key",
                ErrorKind.BAD_KEY_PREFIX,
            )
        system.files.check_name(key)
        return self._base + key

    # reading

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        TRAFFIC.count()
        with files.file_errors(key, "read"):
            path = self._path(key)
            if not key.startswith(_WRITTEN_ONCE):
                system.files.refresh_names(os.path.dirname(path))
            descriptor = self._open(path)
            try:
                return TRAFFIC.count_read(files.read_range(descriptor, key, start, stop))
            finally:
                system.files.close(descriptor)

    @override
    def get_into(self, key: str, start: int, out: memoryview) -> int:
        check_range(start, start + len(out))
        TRAFFIC.count()
        with files.file_errors(key, "read"):
            descriptor = self._open(self._path(key))
            try:
                length = files.read_into(descriptor, start, out)
                if length < len(out):
                    files.check_short_read(descriptor, key, start, length)
            finally:
                system.files.close(descriptor)
        TRAFFIC.count_read(out[:length])
        return length

    def _open(self, path: str) -> int:
        """Open an object. It may be a link to a file below the root: the kernel detects links at no cost."""
        try:
            return system.files.open(path)
        except FileNotFoundError:
            system.files.refresh_names(os.path.dirname(path))
            return system.files.open(path)
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
        return files.open_inside(path, self._root)

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, base.Version]:
        data = self.get(key)
        return data, files.version_of(data)

    @override
    def head(self, key: str) -> base.ObjectInfo | None:
        path = self._path(key)
        TRAFFIC.count()
        with files.file_errors(key, "look up"):
            system.files.refresh_names(os.path.dirname(path))
            try:
                status = os.stat(path)
            except files.MISSING_FILE:
                return None
        return _info(key, status) if S_ISREG(status.st_mode) else None

    @override
    def list(self, prefix: str) -> Iterator[base.ObjectInfo]:
        path = check_prefix(prefix)
        system.files.check_name(path)
        TRAFFIC.count()
        return self._walk(f"{path}/" if path else "")

    @override
    def folders(self) -> builtins.list[str]:
        with files.file_errors("/", "list"), os.scandir(self._base) as scan:
            return sorted(each.name for each in scan if each.is_dir())

    def _walk(self, start: str) -> Iterator[base.ObjectInfo]:
        for folder, name in self._files(start):
            if "#" in name and _is_hidden(name):
                continue
            key = folder + name
            # Another writer may have deleted the file after the directory was read.
            with files.file_errors(key, "list"), suppress(FileNotFoundError):
                status = os.stat(self._base + key)
                if S_ISREG(status.st_mode):
                    yield _info(key, status)

    def _files(self, start: str) -> Iterator[tuple[str, str]]:
        """Yield the folder and the name of each file.

        Only the names of a folder are in memory: an ``os.DirEntry`` is ten times as large after ``stat``.
        """
        folders = [start]
        while folders:
            folder = folders.pop()
            names: list[str] = []
            with files.file_errors(folder, "list"):
                try:
                    with os.scandir(self._base + folder) as scan:
                        for entry in scan:
                            if entry.is_dir(follow_symlinks=False):
                                folders.append(f"{folder}{entry.name}/")
                            else:
                                names.append(entry.name)
                except files.MISSING_FILE:
                    continue
            for name in names:
                yield folder, name

    # writing

    @override
    def put(
        self, key: str, data: Buffer, condition: base.Condition = base.ALWAYS
    ) -> base.Stored | base.Refused:
        """Write a whole object, as ``Storage.put``.

        The version of an unconditional write of more than 256 KiB is empty, because to compute it takes time.
        ``get_versioned`` returns it.
        """
        return self.put_parts(key, [data], condition)

    @override
    def put_parts(
        self, key: str, parts: Sequence[Buffer], condition: base.Condition = base.ALWAYS
    ) -> base.Stored | base.Refused:
        """Write a whole object of several parts without a copy, as ``Storage.put_parts``."""
        path, flusher = self._path(key), self._flusher
        views = [memoryview(part).cast("B") for part in parts]
        size = sum(map(len, views))
        TRAFFIC.count(written=size)
        is_plain = size > _LARGEST_HASHED_ALWAYS
        with files.file_errors(key, "write"):
            match condition:
                case base.Always():
                    files.write_file(key, path, views, flusher)
                case base.IfAbsent():
                    system.files.refresh_names(os.path.dirname(path))
                    if os.path.lexists(path) or not files.create_file(key, path, views, flusher):
                        return base.Refused()
                    is_plain = is_plain and key.startswith(_NEVER_REPLACED)
                case base.IfVersion(version):
                    is_plain = False
                    write = partial(files.write_file, key, path, views, flusher, undo=lambda new: False)
                    if not files.replace_file(path, version, write):
                        return base.Refused()
        return base.Stored(base.Version() if is_plain else files.version_of(*views))

    @override
    def put_many(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        """Write all files and their names first, and flush all of them together, as ``Storage.put_many``.

        After a power failure in between, a file may be incomplete. No other object refers to its name.
        """
        for batch in batched(objects, _OPEN_FILES):
            with ExitStack() as stack:
                new = self._write_all(stack, batch)
                self._flusher.flush_together(
                    [(file.key, file.descriptor) for file in new],
                    [os.path.dirname(file.path) for file in new],
                )

    def _write_all(
        self, stack: ExitStack, objects: Iterable[tuple[str, Buffer]], *, is_named: bool = True
    ) -> Sequence[files.NewFile]:
        """Write the files of objects, and then give all of them their names. The caller flushes them."""
        new: list[files.NewFile] = []
        for key, data in objects:
            view, path = memoryview(data).cast("B"), self._path(key)
            TRAFFIC.count(written=len(view))
            with files.file_errors(key, "write"):
                new.append(files.NewFile(key, path, [view], self._flusher))
            stack.callback(new[-1].close)
        for file in new if is_named else ():
            with files.file_errors(file.key, "write"):
                file.rename()
        return new

    @override
    def backup(self, key: str, version: base.Version, data: Buffer, to: str) -> None:
        """Create a hard link to the file if it still has the bytes ``data``; otherwise write a copy."""
        with ExitStack() as stack:
            flushes = self._back_up(stack, key, data, to)
            self._flusher.flush_together(flushes, [os.path.dirname(self._path(to))])

    def _back_up(self, stack: ExitStack, key: str, data: Buffer, to: str) -> Sequence[tuple[str, int]]:
        """Name the backup. Return the open files whose bytes are not durable yet."""
        path, view = self._path(key), memoryview(data).cast("B")
        with files.file_errors(to, "write"):
            descriptor = files.link_file(stack, path, self._path(to), view, self._flusher)
        if descriptor is None:
            (copy,) = self._write_all(stack, [(to, view)])
            return [(to, copy.descriptor)]
        TRAFFIC.count()
        # Another program may have written the file without a flush.
        return [] if self._flusher.is_flushed(path, descriptor) else [(key, descriptor)]

    @override
    def open_replacement(
        self, replacement: base.Replacement, objects: Iterable[tuple[str, Buffer]] = ()
    ) -> base.OpenReplacement:
        """Write all files first, and flush them together, as ``Storage.open_replacement``.

        A replacement waits for the disk twice: for the new files, the backup and the new bytes of the file,
        which have a temporary name, with their directories; and, after the rename, for the directory of the
        file (``FileReplacement.finish``). A rename may become durable before its flush. By then, everything
        that the new bytes refer to is durable, so a power failure leaves either the old state or the new one.
        """
        pairs = list(objects)
        if len(pairs) > _OPEN_FILES:
            self.put_many(pairs[:-_OPEN_FILES])
        with ExitStack() as stack, ExitStack() as old_file:
            named = self._write_all(stack, pairs[-_OPEN_FILES:])
            old = self._back_up(old_file, replacement.key, replacement.old, replacement.backup)
            folders = [os.path.dirname(file.path) for file in named]
            folders.append(os.path.dirname(self._path(replacement.backup)))
            (new,) = self._write_all(stack, [(replacement.key, replacement.data)], is_named=False)
            flushes = [(file.key, file.descriptor) for file in [new, *named]]
            self._flusher.flush_together([*flushes, *old], folders)
            return FileReplacement(self, replacement, stack.pop_all(), new, self._flusher)

    @override
    def flush_folders(self, folders: Iterable[str]) -> None:
        """Flush the folders that exist, as ``Storage.flush_folders``."""
        for folder in folders:
            path = self._path(folder) if folder else self._root
            with files.file_errors(folder or self._root, "write"), suppress(FileNotFoundError):
                files.flush_name(folder, f"{path}/", self._flusher, lambda: True)

    @override
    def local_queue(self, key: str) -> AbstractContextManager[None]:
        """Wait for the other writers of an object, for a second at most, as ``Storage.local_queue``."""
        return files.object_lock(self._path(key), is_turn=True)

    @override
    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            TRAFFIC.count()
            path = self._path(key)
            with files.file_errors(key, "delete"), suppress(*files.MISSING_FILE):
                system.files.unlink(path)

    def delete_abandoned(self, before: datetime) -> int:
        """Delete the temporary files of writers that died.

        Args:
            before: Only files that were last modified before this time are deleted, so that running writers
                keep their files.

        Returns:
            The number of deleted files.

        Raises:
            StorageError: A file cannot be deleted, for example without permission.

        Examples:
            >>> from datetime import UTC, datetime, timedelta
            >>> LocalStorage("ice").delete_abandoned(datetime.now(UTC) - timedelta(days=1))
            0
        """
        count = 0
        for folder, name in self._files(""):
            if _is_hidden(name) and not name.endswith("#0"):
                path = self._base + folder + name
                with files.file_errors(folder + name, "delete"), suppress(FileNotFoundError):
                    if os.stat(path).st_mtime < before.timestamp():
                        system.files.unlink(path)
                        count += 1
        return count

    # settings

    @override
    def default_settings(self) -> StorageSettings:
        settings = super().default_settings()
        settings.unsafe_use_conditional_update = settings.unsafe_use_metadata = False
        return settings

    @override
    def with_settings(self, settings: StorageSettings) -> LocalStorage:
        return LocalStorage(self._root, settings, flush=self._flush)


@dataclass(frozen=True, slots=True)
class FileReplacement(base.OpenReplacement):
    """A replacement whose new bytes are durable in a file next to the old one."""

    stack: ExitStack
    new: files.NewFile
    flusher: files.Flusher

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    @override
    def finish(self) -> base.Stored | base.Refused:
        """Replace the file, as ``OpenReplacement.finish``.

        The lock is not held for the flush. So another writer may replace the file before the flush of its
        name. The replacement of that writer contains this one, and its backup is the inode that is flushed
        already.
        """
        new, path = self.replacement, self.new.path
        with files.file_errors(new.key, "write"):
            if not files.replace_file(path, new.version, self.new.rename, new.old):
                return base.Refused()
            files.flush_name(new.key, path, self.flusher)
        self.flusher.note_flushed(path, self.new.descriptor)
        is_plain = len(memoryview(new.data)) > _LARGEST_HASHED_ALWAYS
        return base.Stored(base.Version() if is_plain else files.version_of(new.data))


def _info(key: str, status: os.stat_result) -> base.ObjectInfo:
    return base.ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


@checked
def local_filesystem_storage(path: str | PathLike[str], *, flush: bool = True) -> base.Storage:
    """Return a storage whose objects are files below a directory.

    The first write creates the directory. Any number of threads and processes on one machine can use it at
    the same time.

    Args:
        path: Path of the directory. ``~`` at its start means the home directory of the user.
        flush: Whether each write waits until its bytes are on the disk. Default: True.

            Warning: without it, a power cut or a crash of the operating system can lose or damage the last
            commits, although they were reported as done. It can also damage the file ``repo``, and then the
            repository does not open until it is repaired. The end of a process, even by ``kill -9``, loses
            nothing. Use it only for data that can be made again.

    Returns:
        The storage.

    Examples:
        >>> local_filesystem_storage("/scratch/ice", flush=False)
        <frazil.Storage>
        type: local filesystem
        path: /scratch/ice
        flush: False
        <BLANKLINE>
    """
    return LocalStorage(os.path.expanduser(path), flush=flush)
