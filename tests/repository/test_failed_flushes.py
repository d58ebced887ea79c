"""The disk refuses a system call of an operation.

A change that is not durable is never a success. A change that is there is never an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import zarr
from tests.repository.test_outcome import (
    ONLY_VERSION_2,
    OPERATIONS,
    Prepare,
    populated,
    quick,
    raised_by,
    write,
)

import frazil
from frazil.errors import ErrorKind, IcechunkError, OutcomeUnknownError, StorageError, TaskFailedError
from frazil.handle.upgrade import upgrade_icechunk_repository
from frazil.jobs.staging import Folder
from frazil.storage import files, local_filesystem_storage, system
from frazil.storage.base import IfAbsent, IfVersion, Stored

_LATER = datetime(2100, 1, 1, tzinfo=UTC)


def _with_forks(repo: frazil.Repository) -> Callable[[], Any]:
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.open_array(fork.store, path="x")[7] = 7
    session.merge(fork)
    return lambda: session.commit("mine")


def _rebased(repo: frazil.Repository) -> Callable[[], Any]:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="x")[7] = 7
    write(repo, 3)
    return lambda: session.commit("mine", rebase_with=frazil.ConflictDetector())


def _redone(repo: frazil.Repository) -> Callable[[], Any]:
    repo.history.undo().apply()
    return repo.history.redo().apply


def _job(repo: frazil.Repository, *, resumable: bool = False) -> Callable[[], Any]:
    jobs = pytest.importorskip("tests.jobs.test_job")  # with the packages of the extra `pipeline`
    return lambda: jobs.ops.run_job(jobs.counting(repo), jobs.ops.Inline(resumable=resumable))


def _shared_job(repo: frazil.Repository) -> Callable[[], Any]:
    jobs = pytest.importorskip("frazil.jobs")
    job = jobs.open_shared(repo, 1)
    with job.task(0) as session:
        zarr.open_array(session.store, path="x")[7] = 7
    return lambda: job.commit("mine")


EVERY: dict[str, Prepare] = {
    **OPERATIONS,
    "rebase": _rebased,
    "forks": _with_forks,
    "job": _job,
    "resumable job": partial(_job, resumable=True),
    "shared job": _shared_job,
    "undo": lambda repo: repo.history.undo().apply,
    "redo": _redone,
    "restore_to": lambda repo: repo.history.restore_to(list(repo.ops_log())[1]).apply,
    "expire": lambda repo: lambda: repo.expire_snapshots(_LATER),
    "retain": lambda repo: repo.upkeep.retain(frazil.Retention(last=1)).apply,
    "squash": lambda repo: repo.upkeep.squash("main", list(repo.ancestry(branch="main"))[-2].id).apply,
    "compact": lambda repo: (
        (
            repo.upkeep.compact(
                "mine", branch="main", limits=frazil.CompactionLimits(manifests=True), engine="inline"
            )
        ).apply
    ),
    "rewrite": lambda repo: lambda: repo.rewrite_manifests("mine", branch="main"),
    "status": lambda repo: lambda: repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.read_only)),
    "upgrade": lambda repo: lambda: upgrade_icechunk_repository(repo, dry_run=False),
}
CASES = [(2, name) for name in EVERY if name != "upgrade"] + [
    (1, name) for name in (*OPERATIONS, "upgrade") if name not in {*ONLY_VERSION_2, "flush"}
]
#: In spec version 1, these create a file, which is removed again. So the operation had no effect.
CREATING = {(1, "create branch"), (1, "create tag"), (1, "delete tag")}


class Flushes:
    """The flushes of the folder of a storage. Those whose number is in ``refused`` fail."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.refused: range | tuple[int, ...] = ()
        self.count = 0
        self._flush = system.files.flush_directory

    def flush(self, path: str) -> None:
        if path.startswith((self.root + "/refs", self.root + "/trans")) or path == self.root:
            self.count += 1
            if self.count in self.refused:
                raise OSError(errno.EIO, "Input/output error")
        self._flush(path)


@contextmanager
def _refusing(root: Path) -> Iterator[Flushes]:
    flushes = Flushes(root)
    with mock.patch.object(system.files, "flush_directory", flushes.flush):
        yield flushes


@pytest.mark.parametrize(("version", "name"), CASES)
def test_the_last_flush_fails(version: int, name: str, tmp_path: Path) -> None:
    """A flush that fails once is repeated. If the second one fails, too, nobody can tell what stays."""
    outcomes: list[tuple[IcechunkError | None, int]] = []
    for number in range(3):
        root = tmp_path / str(number)
        work = EVERY[name](populated(local_filesystem_storage(root), version, quick()))
        with _refusing(root) as flushes:
            if outcomes:
                last = outcomes[0][1]
                flushes.refused = (last,) if number == 1 else range(last, last + 1000)
            error = raised_by(work)
            if number == 2 and name in {"resumable job", "shared job"}:
                # The commit is there. The staged results stay until its name is durable.
                assert isinstance(raised_by(work), StorageError)
                assert list(frazil.local_filesystem_storage(str(root)).list("staging"))
        outcomes.append((error, flushes.count))
        repo = frazil.Repository.open(local_filesystem_storage(root))
        if name != "status":
            repo.create_tag("later", repo.lookup_branch("main"))
    assert [error for error, _ in outcomes[:2]] == [None, None]
    assert outcomes[1][1] == outcomes[0][1] + 1
    assert isinstance(outcomes[2][0], StorageError)
    assert isinstance(outcomes[2][0], OutcomeUnknownError) == ((version, name) not in CREATING), outcomes


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first", range(1, 9))
def test_a_creation_that_failed_can_be_repeated(version: int, first: int, tmp_path: Path) -> None:
    """All flushes from one on fail: of new folders, of the first files, and of the file that says all."""
    storage = local_filesystem_storage(tmp_path)

    def create() -> frazil.Repository:
        return frazil.Repository.create(storage, quick(), spec_version=version)

    with _refusing(tmp_path) as flushes:
        flushes.refused = range(first, 1000)
        error = raised_by(create)
    assert isinstance(error, StorageError) == (flushes.count >= first)
    if error is not None and "Repository.open" in error.message:
        return  # in spec version 1, the configuration is the last file
    assert frazil.Repository.exists(storage) == (error is None)
    if error is not None:
        create().create_tag("first", frazil.Repository.open(storage).lookup_branch("main"))


@pytest.mark.parametrize("first", range(1, 5))
def test_an_upgrade_deletes_nothing_before_its_file_is_durable(first: int, tmp_path: Path) -> None:
    storage = local_filesystem_storage(tmp_path)
    populated(storage, 1, quick())
    with _refusing(tmp_path) as flushes:
        flushes.refused = range(first, 1000)
        for _ in range(3):
            repo = frazil.Repository.open(storage)
            error = raised_by(lambda: upgrade_icechunk_repository(repo, dry_run=False))  # noqa: B023
            assert isinstance(error, StorageError) == (flushes.count >= first)
            assert error is None or (tmp_path / "refs/branch.main/ref.json").exists()
            if error is None:
                break


def test_conditional_writes_of_files(tmp_path: Path) -> None:
    """A new object is removed again. A replaced one stays, and the error says that this is not certain."""
    storage, folder = local_filesystem_storage(tmp_path), Folder(local_filesystem_storage(tmp_path), "a")
    first = storage.put("repo", b"1", IfAbsent())
    assert isinstance(first, Stored)
    with mock.patch.object(system.files, "flush_directory", side_effect=OSError(errno.EIO, "broken")):
        for call in (lambda: folder.put("b", b"1"), lambda: storage.put("c", b"1", IfAbsent())):
            error = raised_by(call)
            assert error is not None
            assert error.kind == ErrorKind.IO
        with pytest.raises(OutcomeUnknownError):
            storage.put("repo", b"2", IfVersion(first.version))
    assert sorted(info.key for info in storage.list("")) == ["repo"]
    assert bytes(storage.get("repo")) == b"2"
    assert folder.put("b", b"1")


class Refusals:
    """The calls of a function of the system about a folder. Those from ``first`` to ``last`` fail."""

    def __init__(self, root: Path, name: str, error: int) -> None:
        self.first = self.last = self.count = 0
        self._root, self._error, self._name = str(root), error, name
        self._module: Any = fcntl if name in {"flock", "lockf"} else os
        self._call, self._open = getattr(self._module, name), os.open
        self._descriptors: set[int] = set()

    def _opened(self, path: Any, *args: Any, **options: Any) -> int:
        if self._name == "open":
            self._check(path)
        descriptor = self._open(path, *args, **options)
        (self._descriptors.add if str(path).startswith(self._root) else self._descriptors.discard)(descriptor)
        return descriptor

    def _check(self, place: Any) -> None:
        if place in self._descriptors or str(place).startswith(self._root):
            self.count += 1
            if self.first <= self.count <= self.last:
                raise OSError(self._error, os.strerror(self._error))

    def _called(self, place: Any, *args: Any, **options: Any) -> Any:
        if self._name != "close":
            self._check(place)
            return self._call(place, *args, **options)
        self._call(place)
        self._check(place)
        self._descriptors.discard(place)
        return None

    def __enter__(self) -> None:
        self._patches: list[Any] = [mock.patch.object(os, "open", self._opened)]
        if self._name != "open":
            self._patches.append(mock.patch.object(self._module, self._name, self._called))
        for patch in self._patches:
            patch.start()

    def __exit__(self, *error: object) -> None:
        for patch in self._patches:
            patch.stop()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    populated(local_filesystem_storage(folder), 2, quick())
    return folder


@pytest.mark.deep
@pytest.mark.parametrize("most", [1, 1000])
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("close", errno.EIO),
        ("flock", errno.EIO),
        ("fstat", errno.ESTALE),
        ("link", errno.ENOSPC),
        ("lockf", errno.ENOLCK),
        ("open", errno.EMFILE),
        ("pread", errno.EIO),
        ("replace", errno.EACCES),
        ("stat", errno.EIO),
        ("write", errno.ENOSPC),
    ],
)
def test_every_call_of_an_operation_fails(
    call: str, error: int, most: int, template: Path, tmp_path: Path
) -> None:
    """One call, or all from one on. The operation is done, or has no effect; no unfinished file is left."""
    for operation in ("commit", "create tag", "compact")[: 3 if call == "open" and most > 1 else 2]:
        for first in range(1, 100):
            root = tmp_path / f"{operation}{first}"
            shutil.copytree(template, root)
            storage = local_filesystem_storage(root)
            work = EVERY[operation](frazil.Repository.open(storage, quick()))
            refusals = Refusals(root, call, error)
            refusals.first, refusals.last = first, first + most - 1
            with mock.patch.object(files, "LOCK_SECONDS", 0.1), refusals:
                problem = raised_by(work)
            repo = frazil.Repository.open(storage)
            is_done = "new" in repo.list_tags() or next(repo.ancestry(branch="main")).message == "mine"
            assert isinstance(problem, OutcomeUnknownError) or is_done == (problem is None), (first, problem)
            assert problem is None or isinstance(problem, StorageError | TaskFailedError)
            assert not [path for path in root.rglob("*#*") if not path.name.endswith("#0")], first
            if refusals.count < first:
                break
