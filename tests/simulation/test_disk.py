"""Power cuts: what the local storage acknowledged stays, and no object is torn."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.disk import Recorder, lost_promises, recorded
from tests.simulation.mutants import Mutant, applied
from tests.simulation.pools import installed
from tests.simulation.scheduler import Preempting, Scheduler

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import ALWAYS, Condition, IfAbsent, IfVersion, Stored
from frazil.storage.local import FileReplacement, LocalStorage
from frazil.storage.local_commit import Replacement

_FILES = "frazil.storage.files"
_LOCAL = "frazil.storage.local:LocalStorage"


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


def offences(sequence: Sequence_, folder: Path) -> list[str]:
    root = folder / "ice"
    root.mkdir()
    with installed(Scheduler(Preempting({}))), recorded() as recorder:
        sequence(recorder, LocalStorage(root))
    assert [call for call in recorder.calls if call.kind == "done"]
    return lost_promises(recorder.calls, str(root), may_tear=lambda key: sequence in _JOINT and key != "repo")


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_power_cut_loses_nothing(sequence: Sequence_, tmp_path: Path) -> None:
    assert offences(sequence, tmp_path) == []


def _replacing(old: str, new: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function whose source has another text: these functions decide what reaches the disk."""

    def change(original: Any) -> Any:
        source = textwrap.dedent(inspect.getsource(original))
        assert source.count(old) == 1, source
        names: dict[str, Any] = {}
        text = "from __future__ import annotations\n" + source.replace(old, new)
        exec(compile(text, old, "exec"), original.__globals__, names)
        return names[original.__name__]

    return change


MUTANTS = (
    (
        Mutant(
            "no flush of a file",
            f"{_FILES}:write_file",
            _replacing("flusher.flush_file(new.descriptor)", "pass"),
            (),
        ),
        put_always,
    ),
    (
        Mutant(
            "no flush of the name",
            f"{_FILES}:write_file",
            _replacing("flusher.flush_names(os.path.dirname(path))", "pass"),
            (),
        ),
        put_always,
    ),
    (
        Mutant(
            "the name before the bytes",
            f"{_FILES}:write_file",
            _replacing(
                "flusher.flush_file(new.descriptor)",
                "os.link(new.temporary, path); flusher.flush_file(new.descriptor)",
            ),
            (),
        ),
        put_always,
    ),
    (
        Mutant(
            "no flush of a batch",
            f"{_LOCAL}.put_many",
            _replacing("[(file.key, file.descriptor) for file in new]", "[]"),
            (),
        ),
        put_many,
    ),
    (
        Mutant(
            "a backup without a flush",
            f"{_LOCAL}.backup",
            _replacing("[os.path.dirname(self._path(to))]", "[]"),
            (),
        ),
        back_up,
    ),
    (
        Mutant(
            "a backup of bytes without a flush",
            f"{_LOCAL}._back_up",
            _replacing("self._flusher.is_flushed(path, descriptor)", "True"),
            (),
        ),
        back_up_another_program,
    ),
    (
        Mutant(
            "the new bytes of a replacement without a flush",
            f"{_LOCAL}.open_replacement",
            _replacing("[new, *named]", "named"),
            (),
        ),
        replace_twice,
    ),
    (
        Mutant(
            "new files of a replacement without a flush",
            f"{_LOCAL}.open_replacement",
            _replacing("[new, *named]", "[new]"),
            (),
        ),
        replace_twice,
    ),
    (
        Mutant(
            "the backup of a replacement without a flush",
            f"{_LOCAL}.open_replacement",
            _replacing("folders.append(os.path.dirname(self._path(replacement.backup)))", "pass"),
            (),
        ),
        replace_twice,
    ),
    (
        Mutant(
            "no flush after a replacement",
            "frazil.storage.local:FileReplacement.finish",
            _replacing("self.flusher.flush_names(os.path.dirname(path))", "pass"),
            (),
        ),
        replace_twice,
    ),
    (
        Mutant(
            "a directory without a flush",
            f"{_FILES}:Flusher.flush_names",
            _replacing("self._flush_name_of(directory)", "pass"),
            (),
        ),
        after_a_killed_writer,
    ),
)


@pytest.mark.parametrize(("mutant", "sequence"), MUTANTS, ids=[mutant.name for mutant, _ in MUTANTS])
def test_the_disk_notices_a_mutant(mutant: Mutant, sequence: Sequence_, tmp_path: Path) -> None:
    with applied(mutant):
        assert offences(sequence, tmp_path) != []
