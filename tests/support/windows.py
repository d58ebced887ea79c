"""Stand-ins for the calls of Windows, with its rules, so that other systems can test what Frazil does there.

``stand_in`` replaces functions of ``os`` in this process. Run as a program, the file imports Frazil as on
Windows: without ``fcntl`` and other modules of POSIX, and with the platform ``win32``. On Windows itself, the
program has no stand-ins.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import struct
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any
from unittest import mock

if sys.platform == "linux":
    import fcntl

_LOCK = 2
#: The number of lines that a process adds to a file that it shares with others.
LINES = 40
#: What the module ``os`` of Windows does not have.
_ABSENT = (
    *("pread", "preadv", "pwrite", "pwritev", "register_at_fork", "fork", "getuid"),
    *("geteuid", "killpg", "statvfs", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC", "uname"),
)
_ABSENT_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "posix")
#: What Frazil imports of others.
_OTHERS = """asyncio concurrent.futures multiprocessing.connection subprocess tempfile urllib.request click
google_crc32c numpy numpy.random obstore.store urllib3 yaml zarr zstandard"""


def _refusal(path: object, text: str) -> PermissionError:
    return PermissionError(errno.EACCES, text, path)


def _is_open(path: Any) -> bool:
    """Whether this process has the file open under any of its names. A missing file is not open."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/self/fd/{descriptor}"), status):
                return True
    return False


def locking(descriptor: int, mode: int, count: int) -> None:
    """Lock bytes at the position of a file, as ``msvcrt.locking``: for one descriptor, and mandatory."""
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    assert position < 1 << 31, "the C library has 32 bits for the position"
    assert os.fstat(descriptor).st_size <= position, "nobody else can read or write locked bytes"
    kind = fcntl.F_WRLCK if mode == _LOCK else fcntl.F_UNLCK
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, position, count, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        raise _refusal(None, "another descriptor holds the lock") from None


@contextmanager
def stand_in(*, has_links: bool = True) -> Iterator[None]:
    """Let ``os`` behave as on Windows. Without ``has_links``, its file system is FAT."""
    real_open, real_fsync, real_link, real_readlink = os.open, os.fsync, os.link, os.readlink
    read_only: set[int] = set()

    def unless_open(call: Callable[..., None]) -> Callable[..., None]:
        def checked(*paths: Any, **options: Any) -> None:
            # Python's modules delete open files of their own: those are not files of Windows.
            if any(map(_is_open, paths)):
                raise _refusal(paths[0], "the process cannot access the file")
            call(*paths, **options)

        return checked

    def opened(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if not options and os.path.isdir(path):
            raise _refusal(path, "a directory has no descriptor")
        descriptor = real_open(path, flags, mode, **options)
        read_only.discard(descriptor)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            read_only.add(descriptor)
        return descriptor

    def fsync(descriptor: int) -> None:
        if descriptor in read_only:
            raise OSError(errno.EBADF, "a flush needs the right to write")
        real_fsync(descriptor)

    def link(source: str, target: str) -> None:
        if not has_links:
            raise OSError(errno.EINVAL, "Incorrect function", source)
        real_link(source, target)

    def readlink(path: Any, **options: Any) -> str:
        if os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, "there is no /proc", path)
        target: str = real_readlink(path, **options)
        return target

    replaced: dict[str, Any] = {"open": opened, "fsync": fsync, "link": link, "readlink": readlink}
    replaced |= {name: unless_open(getattr(os, name)) for name in ("replace", "rename", "unlink", "remove")}
    with mock.patch.multiple(os, **replaced):
        absent = {name: vars(os).pop(name) for name in _ABSENT if name in vars(os)}
        try:
            yield
        finally:
            vars(os).update(absent)


def import_as_windows() -> None:
    """Make the imports of Frazil those of Windows. Those of other packages come first."""
    for name in _OTHERS.split():
        importlib.import_module(name)
    msvcrt = types.ModuleType("msvcrt")
    vars(msvcrt).update(locking=locking, get_osfhandle=int)
    sys.modules["msvcrt"] = msvcrt
    vars(ctypes)["WinDLL"] = lambda name: types.SimpleNamespace(DeviceIoControl=lambda *_: 1)
    # An import of these raises ModuleNotFoundError
    sys.modules.update(dict.fromkeys(_ABSENT_MODULES))  # type: ignore[arg-type]
    sys.platform = "win32"


def main(folder: str) -> None:
    """Create a repository, commit, read, and let two writers conflict. Then write beside other processes."""
    is_real = sys.platform == "win32"
    if not is_real:
        import_as_windows()
    frazil, zarr = map(importlib.import_module, ("frazil", "zarr"))
    with nullcontext() if is_real else stand_in():
        storage = frazil.storage_from_url(os.path.join(folder, str(os.getpid())))
        repo = frazil.Repository.create(storage)
        with repo.transaction("main", message="first") as store:
            zarr.create_array(store, name="a", shape=(8,), chunks=(4,), dtype="i4")[:] = 1
        sessions = [repo.writable_session("main") for _ in range(2)]
        for value, session in enumerate(sessions, 2):
            zarr.open_array(session.store, path="a")[:4] = value
        sessions[0].commit("second")
        try:
            sessions[1].commit("third")
        except frazil.ConflictError:
            sessions[1].discard_changes()
        else:
            raise AssertionError("two writers committed to one parent")
        again = frazil.Repository.open(storage)
        array = zarr.open_array(again.readonly_session("main").store, path="a", mode="r")
        assert array[:].tolist() == [2] * 4 + [1] * 4
        assert [info.message for info in again.ancestry(branch="main")][:2] == ["second", "first"]
        again.garbage_collect(datetime.now(UTC))
        base = importlib.import_module("frazil.storage.base")
        shared = frazil.storage_from_url(os.path.join(folder, "shared"))
        shared.put("lines", b"", base.IfAbsent())
        for _ in range(LINES):
            while True:
                data, version = shared.get_versioned("lines")
                if shared.put("lines", bytes(data) + b"\n", base.IfVersion(version)) != base.Refused():
                    break
    system = importlib.import_module("frazil.storage.system")
    print(type(system.files).__name__, hasattr(system, "Posix"), frazil.__file__)


if __name__ == "__main__":
    main(sys.argv[1])
