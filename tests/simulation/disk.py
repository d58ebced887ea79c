"""A disk that loses what is not flushed, and that refuses to flush.

`recorded` runs code over a real `LocalStorage` and records its system calls. `power_cuts` then replays
them, and yields what a power cut after each call may leave. POSIX promises little:

- the bytes of a file are durable after ``fsync`` of the file; before, any part of them may be lost,
- a name is durable after ``fsync`` of its directory; before, each change of a name may be lost or not, in any
  combination, and a rename is one change.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from unittest import mock

import frazil.storage.local  # noqa: F401 - the modules of local storages are loaded

#: With more changes of names at a time, only the loss of all, of none, and of each single one is tried.
_ALL_SUBSETS = 6


@dataclass(frozen=True, slots=True)
class Call:
    """One event: ``create``, ``write``, ``flush``, ``flush-names``, ``rename``, ``link``, ``unlink``,
    ``mkdir``, or a mark of the test: ``begin`` and ``done``.

    ``file`` is the number of the file, ``path`` the name that appears, ``before`` the name that disappears.
    """

    kind: str
    path: str = ""
    before: str = ""
    file: int = -1
    data: bytes = b""


@dataclass(eq=False)
class Recorder:
    """The module `os` for the code of the storage, which records calls. ``names`` has the files by path.

    The flushes whose numbers are in ``refused`` fail, and have no effect.
    """

    refused: range = range(0)
    flushes: int = 0
    calls: list[Call] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    opened: dict[int, tuple[str, int]] = field(default_factory=dict)
    count: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        descriptor = os.open(path, flags, mode)
        if is_new:
            self.count += 1
            self.names[path] = self.count
            self.calls.append(Call("create", path, file=self.count))
        self.opened[descriptor] = (path, self.names.get(path, -1))
        return descriptor

    def close(self, descriptor: int) -> None:
        self.opened.pop(descriptor, None)
        os.close(descriptor)

    def write(self, descriptor: int, data: Any) -> int:
        size = os.write(descriptor, data)
        self.calls.append(Call("write", file=self.opened[descriptor][1], data=bytes(data[:size])))
        return size

    def writev(self, descriptor: int, parts: Any) -> int:
        size = os.writev(descriptor, parts)
        self.calls.append(
            Call("write", file=self.opened[descriptor][1], data=b"".join(map(bytes, parts))[:size])
        )
        return size

    def fsync(self, descriptor: int) -> None:
        path, file = self.opened[descriptor]
        self.flushes += 1
        if self.flushes in self.refused:
            raise OSError(errno.EIO, "simulated: the disk refuses a flush")
        os.fsync(descriptor)
        self.calls.append(Call("flush-names", path) if os.path.isdir(path) else Call("flush", file=file))

    def replace(self, before: str, path: str) -> None:
        os.replace(before, path)
        same = self.names.get(path) == self.names[before]
        file = self.names[before] if same else self.names.pop(before)
        self.names[path] = file
        if not same:
            self.calls.append(Call("rename", path, before, file))

    def link(self, before: str, path: str) -> None:
        os.link(before, path)
        self.names[path] = self.names[before]
        self.calls.append(Call("link", path, file=self.names[before]))

    def unlink(self, path: str) -> None:
        os.unlink(path)
        self.names.pop(path, None)
        self.calls.append(Call("unlink", before=path))

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        os.mkdir(path, mode)
        self.calls.append(Call("mkdir", path))

    def begin(self, key: str, data: bytes) -> None:
        """Record that a write of an object begins."""
        self.calls.append(Call("begin", key, data=data))

    def done(self, key: str, data: bytes) -> None:
        """Record that a write of an object was acknowledged."""
        self.calls.append(Call("done", key, data=data))


@contextmanager
def recorded(refused: range = range(0)) -> Iterator[Recorder]:
    """Record the system calls of local storages during a block. The ``refused`` flushes fail."""
    recorder = Recorder(refused)
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("frazil.storage.") and getattr(module, "os", None) is os:
                stack.enter_context(mock.patch.object(module, "os", recorder))
        yield recorder


@dataclass(frozen=True, slots=True)
class PowerCut:
    """What a power cut may leave: the bytes by path. ``calls`` is the number of calls before it."""

    calls: int
    files: Mapping[str, bytes]


def power_cuts(calls: list[Call], root: str) -> Iterator[PowerCut]:
    """Yield what a power cut after each call may leave. ``root`` existed before."""
    durable: dict[str, int] = {}
    folders = {root}
    pending: list[Call] = []
    contents: dict[int, bytes] = {}
    flushed: dict[int, bytes] = {}
    for number, call in enumerate(calls, 1):
        match call.kind:
            case "write":
                contents[call.file] = contents.get(call.file, b"") + call.data
            case "flush":
                flushed[call.file] = contents.get(call.file, b"")
            case "flush-names":
                for each in [each for each in pending if _folder(each) == call.path]:
                    pending.remove(each)
                    _apply(each, durable, folders)
            case "begin" | "done":
                pass
            case _:
                pending.append(call)
        for chosen in _subsets(pending):
            names, present = dict(durable), set(folders)
            for each in chosen:
                _apply(each, names, present)
            for loss in (_whole, _half, _nothing):
                files = {
                    path: loss(flushed.get(file), contents.get(file, b""))
                    for path, file in names.items()
                    if _is_reachable(path, present, root)
                }
                yield PowerCut(number, files)


def _folder(call: Call) -> str:
    return os.path.dirname(call.path or call.before)


def _apply(call: Call, names: dict[str, int], folders: set[str]) -> None:
    if call.before:
        names.pop(call.before, None)
    if call.kind == "mkdir":
        folders.add(call.path)
    elif call.path:
        names[call.path] = call.file


def _subsets(pending: list[Call]) -> Iterator[list[Call]]:
    if len(pending) <= _ALL_SUBSETS:
        for choice in product((False, True), repeat=len(pending)):
            yield [each for each, chosen in zip(pending, choice, strict=True) if chosen]
        return
    yield []
    yield pending
    for lost in pending:
        yield [each for each in pending if each is not lost]


def _is_reachable(path: str, folders: set[str], root: str) -> bool:
    folder = os.path.dirname(path)
    while folder != root:
        if folder not in folders:
            return False
        folder = os.path.dirname(folder)
    return True


def _whole(flushed: bytes | None, data: bytes) -> bytes:
    return data


def _half(flushed: bytes | None, data: bytes) -> bytes:
    return data if flushed == data else data[: max(len(flushed or b""), len(data) // 2)]


def _nothing(flushed: bytes | None, data: bytes) -> bytes:
    return flushed or b""


def lost_promises(
    calls: list[Call], root: str, *, may_tear: Callable[[str], bool] = lambda key: False
) -> list[str]:
    """Return what power cuts break: acknowledged objects that are lost, and objects that are not whole."""
    offences: dict[str, None] = {}
    for cut in power_cuts(calls, root):
        marks = [call for call in calls[: cut.calls] if call.kind in ("begin", "done")]
        keys = {call.path: None for call in marks}
        for key in keys:
            began = [call.data for call in marks if call.path == key and call.kind == "begin"]
            done = [call.data for call in marks if call.path == key and call.kind == "done"]
            present = cut.files.get(os.path.join(root, key))
            if present is None and done:
                offences[f"{key} was acknowledged and is lost"] = None
            elif present is not None and present not in began and (done or not may_tear(key)):
                offences[f"{key} is not whole"] = None
            elif (
                present is not None
                and done
                and present in began
                and began.index(present) < began.index(done[-1])
            ):
                offences[f"{key} is older than it was acknowledged"] = None
    return list(offences)
