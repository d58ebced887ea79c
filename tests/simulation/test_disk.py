"""Power cuts: what the local storage acknowledged stays, and no object is torn."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.disk import Call, Recorder, lost_promises, recorded
from tests.simulation.pools import installed
from tests.simulation.scheduler import Scheduler, Turns

import frazil
from frazil.errors import ErrorKind, StorageError
from frazil.storage import files
from frazil.storage.base import ALWAYS, Condition, IfAbsent, IfVersion, Replacement, Stored
from frazil.storage.local import FileReplacement, LocalStorage


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
