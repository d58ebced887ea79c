"""Power cuts: what the local storage acknowledged stays, and no object is torn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.disk import Recorder, lost_promises, recorded
from tests.simulation.mutants import Mutant, applied
from tests.simulation.pools import installed
from tests.simulation.scheduler import Preempting, Scheduler

from frazil.storage.base import ALWAYS, Condition, IfAbsent, IfVersion, Stored
from frazil.storage.local import LocalStorage

_WRITES = "frazil.storage.files.writes"


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


SEQUENCES = (put_always, update, back_up, put_many, after_a_killed_writer)
type Sequence_ = Callable[[Recorder, LocalStorage], None]


def offences(sequence: Sequence_, folder: Path) -> list[str]:
    root = folder / "ice"
    root.mkdir()
    with installed(Scheduler(Preempting({}))), recorded() as recorder:
        sequence(recorder, LocalStorage(root))
    assert [call for call in recorder.calls if call.kind == "done"]
    return lost_promises(recorder.calls, str(root), may_tear=lambda key: sequence is put_many)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_power_cut_loses_nothing(sequence: Sequence_, tmp_path: Path) -> None:
    assert offences(sequence, tmp_path) == []


MUTANTS = (
    (
        Mutant("no flush of a file", f"{_WRITES}:write_and_name", "os.fsync(descriptor)", "pass", ()),
        put_always,
    ),
    (
        Mutant(
            "no flush of the name",
            f"{_WRITES}:write_and_name",
            "flush_directory(os.path.dirname(path))",
            "pass",
            (),
        ),
        put_always,
    ),
    (
        Mutant(
            "the name before the bytes",
            f"{_WRITES}:write_and_name",
            "os.fsync(descriptor)",
            "set_name(temporary, path); os.link(path, temporary); os.fsync(descriptor)",
            (),
        ),
        put_always,
    ),
    (
        Mutant(
            "no flush of a batch", f"{_WRITES}:UnnamedFile.flush", "os.fsync(self._descriptor)", "pass", ()
        ),
        put_many,
    ),
    (
        Mutant(
            "a backup without a flush",
            f"{_WRITES}:link_if_equal",
            "flush_directory(os.path.dirname(target))",
            "pass",
            (),
        ),
        back_up,
    ),
    (
        Mutant(
            "a directory without a flush",
            "frazil.storage.files.directories:flush_directory",
            "_flush_name_of(directory)",
            "pass",
            (),
        ),
        after_a_killed_writer,
    ),
)


@pytest.mark.parametrize(("mutant", "sequence"), MUTANTS, ids=[mutant.name for mutant, _ in MUTANTS])
def test_the_disk_notices_a_mutant(mutant: Mutant, sequence: Sequence_, tmp_path: Path) -> None:
    with applied(mutant):
        assert offences(sequence, tmp_path) != []
