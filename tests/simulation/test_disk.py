"""Power cuts: what the local storage acknowledged stays, and no object is torn.

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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.simulation.pools import installed
from tests.simulation.scheduler import Scheduler, Turns

import frazil
from frazil.errors import ErrorKind, StorageError
from frazil.storage import files
from frazil.storage.base import ALWAYS, Condition, IfAbsent, IfVersion, Replacement, Stored
from frazil.storage.local import FileReplacement, LocalStorage

#: With more changes of names at a time, only the loss of all, of none, and of each single one is tried.
_ALL_SUBSETS = 6
#: What is left of the bytes of a file that were flushed and that were written: all, a half, what was flushed.
_LOSSES: tuple[Callable[[bytes | None, bytes], bytes], ...] = (
    lambda flushed, data: data,
    lambda flushed, data: data if flushed == data else data[: max(len(flushed or b""), len(data) // 2)],
    lambda flushed, data: flushed or b"",
)


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
            for loss in _LOSSES:
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


def put(
    recorder: Recorder, storage: LocalStorage, key: str, data: bytes, condition: Condition = ALWAYS
) -> Stored:
    recorder.begin(key, data)
    answer = storage.put(key, data, condition)
    assert isinstance(answer, Stored)
    recorder.done(key, data)
    return answer


def put_always(recorder: Recorder, storage: LocalStorage) -> None:
    put(recorder, storage, "chunks/A", b"the first chunk")
    put(recorder, storage, "chunks/B", b"the second chunk")


def update(recorder: Recorder, storage: LocalStorage) -> None:
    first = put(recorder, storage, "repo", b"first state", IfAbsent())
    second = put(recorder, storage, "repo", b"second, longer state", IfVersion(first.version))
    put(recorder, storage, "repo", b"third", IfVersion(second.version))


def back_up(recorder: Recorder, storage: LocalStorage) -> None:
    first = put(recorder, storage, "repo", b"first state", IfAbsent())
    recorder.begin("overwritten/repo.1", b"first state")
    storage.backup("repo", first.version, b"first state", "overwritten/repo.1")
    recorder.done("overwritten/repo.1", b"first state")
    put(recorder, storage, "repo", b"second state", IfVersion(first.version))


def back_up_another_program(recorder: Recorder, storage: LocalStorage) -> None:
    """Another program has written the file without a flush."""
    path = f"{storage.root}/repo"
    descriptor = recorder.open(f"{path}.new", os.O_WRONLY | os.O_CREAT)
    recorder.write(descriptor, b"first state")
    recorder.close(descriptor)
    recorder.replace(f"{path}.new", path)
    data, version = storage.get_versioned("repo")
    recorder.begin("overwritten/repo.1", b"first state")
    storage.backup("repo", version, data, "overwritten/repo.1")
    recorder.done("overwritten/repo.1", b"first state")


def replace(recorder: Recorder, storage: LocalStorage, new: bytes, name: str = "A") -> None:
    """Replace ``repo``. All that it refers to must be durable before it has the new bytes."""
    old, version = storage.get_versioned("repo")
    objects = [(f"snapshots/{name}", b"a snapshot"), (f"transactions/{name}", b"a log")]
    backup = f"overwritten/repo.{name}"
    for key, data in [*objects, (backup, bytes(old))]:
        recorder.begin(key, data)
    with storage.open_replacement(Replacement("repo", new, version, old, backup), objects) as ready:
        for key, data in [*objects, (backup, bytes(old))]:
            recorder.done(key, data)
        recorder.begin("repo", new)
        assert isinstance(ready.finish(), Stored)
    recorder.done("repo", new)


def replace_twice(recorder: Recorder, storage: LocalStorage) -> None:
    put(recorder, storage, "repo", b"first state", IfAbsent())
    replace(recorder, storage, b"second, longer state")
    replace(recorder, storage, b"third", "B")


def replace_before_the_flush_of_another_writer(recorder: Recorder, storage: LocalStorage) -> None:
    """The first writer was killed between its rename and the flush of the name."""
    put(recorder, storage, "repo", b"first state", IfAbsent())
    with pytest.MonkeyPatch.context() as patch, suppress(StorageError):
        patch.setattr(FileReplacement, "finish", _finish_without_flush)
        replace(recorder, storage, b"second, longer state")
    replace(recorder, storage, b"third", "B")


def _finish_without_flush(replacement: FileReplacement) -> Stored:
    replacement.new.rename()
    raise StorageError("the writer was killed", ErrorKind.IO)


def put_many(recorder: Recorder, storage: LocalStorage) -> None:
    objects = [("snapshots/A", b"a snapshot"), ("transactions/A", b"a log"), ("snapshots/B", b"another")]
    for key, data in objects:
        recorder.begin(key, data)
    storage.put_many(objects)
    for key, data in objects:
        recorder.done(key, data)


def after_a_killed_writer(recorder: Recorder, storage: LocalStorage) -> None:
    """A process that was killed has created the directory, and has not flushed its name."""
    recorder.mkdir(str(storage.root / "chunks"))
    put(recorder, storage, "chunks/A", b"the first chunk")


def update_a_repository(recorder: Recorder, storage: LocalStorage) -> None:
    """What an operation reports as done is durable."""
    repo = frazil.Repository.create(storage)
    recorder.begin("repo", bytes(storage.get("repo")))
    begin = LocalStorage.open_replacement

    def open_replacement(self: LocalStorage, new: Replacement, objects: Any = ()) -> Any:
        recorder.begin("repo", bytes(new.data))
        return begin(self, new, objects)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "open_replacement", open_replacement)
        for name in ("first", "second"):
            repo.create_tag(name, repo.lookup_branch("main"))
            recorder.done("repo", bytes(storage.get("repo")))


SEQUENCES = (
    put_always,
    update,
    back_up,
    back_up_another_program,
    replace_twice,
    replace_before_the_flush_of_another_writer,
    put_many,
    after_a_killed_writer,
)
#: Sequences in which objects that are not durable yet may be torn, because no other object refers to them.
_JOINT = (
    put_many,
    back_up,
    back_up_another_program,
    replace_twice,
    replace_before_the_flush_of_another_writer,
)
type Sequence_ = Callable[[Recorder, LocalStorage], None]


def recording(sequence: Sequence_, root: Path, refused: range = range(0)) -> Recorder:
    """Run a sequence, which ends with the first error of a refused flush."""
    root.mkdir()
    errors = (StorageError,) if refused else ()
    with installed(Scheduler(Turns({}))), recorded(refused) as recorder, suppress(*errors):
        sequence(recorder, LocalStorage(root))
    assert refused or [call for call in recorder.calls if call.kind == "done"]
    return recorder


def offences(sequence: Sequence_, calls: list[Call], root: Path) -> list[str]:
    return lost_promises(calls, str(root), may_tear=lambda key: sequence in _JOINT and key != "repo")


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_power_cut_loses_nothing_and_every_flush_is_needed(sequence: Sequence_, tmp_path: Path) -> None:
    calls = recording(sequence, tmp_path / "ice").calls
    assert offences(sequence, calls, tmp_path / "ice") == []
    for flush in {call for call in calls if call.kind in ("flush", "flush-names")}:
        if flush.kind == "flush" or flush.path.startswith(str(tmp_path / "ice")):  # not the folders above
            assert offences(sequence, [call for call in calls if call != flush], tmp_path / "ice"), flush


def refused_flushes(sequence: Sequence_, root: Path) -> list[str]:
    """Return what is broken if one flush of a sequence fails, or all flushes from one on."""
    root.mkdir()
    broken: list[str] = []
    for first in range(1, recording(sequence, root / "whole").flushes + 1):
        for last in (first + 1, 1000):
            folder = root / f"{first}-{last}"
            calls = recording(sequence, folder, range(first, last)).calls
            broken += offences(sequence, calls, folder)
    return broken


@pytest.mark.deep
@pytest.mark.parametrize("sequence", [*SEQUENCES, update_a_repository])
def test_a_refused_flush_is_no_success(sequence: Sequence_, tmp_path: Path) -> None:
    assert refused_flushes(sequence, tmp_path / "ice") == []


def _believed(key: str, path: str, flusher: files.Flusher, undo: object = None) -> None:
    with suppress(OSError):
        flusher.flush_names(os.path.dirname(path))


@pytest.mark.deep
@pytest.mark.parametrize("sequence", [update, replace_twice, update_a_repository])
def test_the_simulation_notices_that_a_failed_flush_is_a_success(
    sequence: Sequence_, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "flush_name", _believed)
    assert refused_flushes(sequence, tmp_path / "ice")


@pytest.mark.deep
def test_the_simulation_notices_that_a_failed_flush_is_a_lost_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "OutcomeUnknownError", StorageError)
    assert refused_flushes(update_a_repository, tmp_path / "ice")
