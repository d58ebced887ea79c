"""An error says whether the change took effect: never "failed" for what is there, "done" for what is not, and
"unknown" only where nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import pytest
import zarr
from tests.maintenance.schedules import Seen
from tests.maintenance.test_in_use import opened_by
from tests.repository.version_1 import copy_of

import frazil
from frazil.errors import ErrorKind, IcechunkError, OutcomeUnknownError, StorageError
from frazil.storage.base import ALWAYS, Condition, Refused, Stored
from frazil.storage.memory import MemoryStorage


@contextmanager
def _raise_after(what: str) -> Iterator[None]:
    yield
    raise StorageError(f"injected after {what}", ErrorKind.OBJECT_STORE)


class Failing(Seen):
    """Requests fail where ``choose(number, what)`` says "before" or "after" they take effect."""

    def __init__(self, inner: MemoryStorage, *, local: bool = False) -> None:
        super().__init__(inner, lambda what: nullcontext())
        self.is_local = local
        self.count = 0
        self.choose: Callable[[int, str], str | None] = lambda number, what: None
        self.meet = self._meet

    def _meet(self, what: str) -> Any:
        self.count += 1
        fault = self.choose(self.count, what)
        if fault == "before":
            raise StorageError(f"injected before {what}", ErrorKind.OBJECT_STORE)
        return _raise_after(what) if fault == "after" else nullcontext()


def quick(**options: Any) -> frazil.RepositoryConfig:
    retries = frazil.config.RepoUpdateRetryConfig(
        default=frazil.StorageRetriesSettings(max_tries=20, initial_backoff_ms=1, max_backoff_ms=2)
    )
    return frazil.RepositoryConfig(repo_update_retries=retries, **options)


@cache
def _template(version: int) -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, spec_version=version)
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="x", shape=(16,), chunks=(1,), dtype="i4", compressors=None)
    repo.create_branch("dev", repo.lookup_branch("main"))
    repo.create_tag("v1", repo.lookup_branch("main"))
    write(repo, 1)
    return storage


def write(repo: frazil.Repository, n: int) -> None:
    with repo.transaction("main", message=f"write {n}") as store:
        zarr.open_array(store, path="x")[n] = n


def _session(repo: frazil.Repository) -> frazil.Session:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="x")[7] = 7
    return session


def _with_session(act: Callable[[frazil.Session], Any]) -> Callable[[frazil.Repository], Callable[[], Any]]:
    def prepare(repo: frazil.Repository) -> Callable[[], Any]:
        session = _session(repo)
        return lambda: act(session)

    return prepare


Prepare = Callable[[frazil.Repository], Callable[[], Any]]
OPERATIONS: dict[str, Prepare] = {
    "commit": _with_session(lambda s: s.commit("mine")),
    "amend": _with_session(lambda s: s.amend("mine")),
    "flush": _with_session(lambda s: s.flush("mine")),
    "create branch": lambda repo: (lambda tip: lambda: repo.create_branch("new", tip))(
        repo.lookup_branch("main")
    ),
    "reset branch": lambda repo: (lambda tip: lambda: repo.reset_branch("main", tip))(
        repo.lookup_branch("dev")
    ),
    "delete branch": lambda repo: lambda: repo.delete_branch("dev"),
    "create tag": lambda repo: (lambda tip: lambda: repo.create_tag("new", tip))(repo.lookup_branch("main")),
    "delete tag": lambda repo: lambda: repo.delete_tag("v1"),
    "metadata": lambda repo: lambda: repo.set_metadata({"n": 1}),
    "config": lambda repo: repo.save_config,
    "merge": lambda repo: lambda: repo.merge("main", into="dev"),
    "revert": lambda repo: lambda: repo.revert("main"),
}
ONLY_VERSION_2 = {"amend", "metadata"}


def state(storage: MemoryStorage) -> Any:
    repo = frazil.Repository.open(storage)
    branches = {
        name: [commit.message for commit in repo.ancestry(branch=name)]
        for name in sorted(repo.list_branches())
    }
    tags = {name: repo.lookup_tag(name) for name in sorted(repo.list_tags())}
    config = frazil.Repository.fetch_config(storage) is not None
    if repo.spec_version == 1:
        return branches, tags, config
    kinds = [type(update.kind).__name__ for update in repo.ops_log()]
    return branches, tags, config, repo.get_metadata(), kinds


def raised_by(work: Callable[[], Any]) -> IcechunkError | None:
    try:
        work()
    except IcechunkError as error:
        return error
    return None


CASES = [(2, op) for op in OPERATIONS] + [(1, op) for op in OPERATIONS if op not in ONLY_VERSION_2]


@pytest.mark.sample(22, 22)
@pytest.mark.deep
@pytest.mark.parametrize(("version", "operation"), CASES)
@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("forever", [False, True])
def test_requests_that_fail(version: int, operation: str, fault: str, forever: bool) -> None:
    """One request fails, or all from one on."""
    unchanged = state(_template(version))
    unknown = 0
    for step in range(1, 100):
        storage = copy_of(_template(version))
        failing = Failing(storage)
        work = OPERATIONS[operation](opened_by(storage, failing, quick()))
        failing.count = 0
        failing.choose = lambda number, what: (
            fault if number == step or (forever and number > step) else None  # noqa: B023  # used in here
        )
        error = raised_by(work)
        if isinstance(error, OutcomeUnknownError):
            unknown += 1
            assert error.kind == ErrorKind.OUTCOME_UNKNOWN
            assert "Look for" in error.message
            assert (error.snapshot is not None) == (operation in {"commit", "amend", "flush", "revert"})
        elif error is not None:
            assert state(storage) == unchanged, (step, repr(error))
        else:
            assert operation == "flush" or state(storage) != unchanged, step
        if failing.count < step:
            break
    assert forever or not unknown


@pytest.mark.parametrize("keep", [1, 2, 1000])
@pytest.mark.parametrize("unreadable", [0, 1, 1000])
def test_the_answer_is_lost_and_backups_cannot_be_read(keep: int, unreadable: int) -> None:
    storage = copy_of(_template(2))
    failing = Failing(storage)
    session = _session(opened_by(storage, failing, quick(num_updates_per_repo_info_file=keep)))
    others = frazil.Repository.open(storage, frazil.RepositoryConfig(num_updates_per_repo_info_file=keep))
    left = unreadable
    lost = False

    def choose(number: int, what: str) -> str | None:
        nonlocal left, lost
        if what == "put repo" and not lost:
            lost = True
            return "after"
        if lost and what.startswith("get overwritten/") and left:
            left -= 1
            return "before"
        if lost and what == "get repo" and len(others.list_branches()) == 2:
            others.create_branch("others", others.lookup_branch("dev"))
            for n in range(3):
                write(others, n)
        return None

    failing.choose = choose
    if unreadable == 1000 and keep < 1000:
        with pytest.raises(OutcomeUnknownError) as error:
            session.commit("mine")
        assert error.value.snapshot is not None
        assert error.value.snapshot in error.value.message
        assert others.lookup_snapshot(error.value.snapshot).message == "mine"
    else:
        others.lookup_snapshot(session.commit("mine"))
    assert [commit.message for commit in others.ancestry(branch="main")].count("mine") == 1


@pytest.mark.parametrize("fault", ["lost", "met itself"])
@pytest.mark.parametrize("version", [2, 1])
def test_the_outcome_of_the_only_attempt_is_checked(fault: str, version: int) -> None:
    """With one try there is no second round in which it would be found."""
    retries = frazil.config.RepoUpdateRetryConfig(default=frazil.StorageRetriesSettings(max_tries=1))
    storage = copy_of(_template(version))
    failing = Failing(storage)

    class MeetsItself(Failing):
        def put(self, key: str, data: Any, condition: Condition = ALWAYS) -> Stored | Refused:
            answer = super().put(key, data, condition)
            return answer if condition == ALWAYS else Refused()

    if fault == "met itself":
        failing = MeetsItself(storage)
    else:
        failing.choose = lambda number, what: (
            "after" if what in {"put repo", "put refs/branch.main/ref.json"} else None
        )
    session = _session(opened_by(storage, failing, frazil.RepositoryConfig(repo_update_retries=retries)))
    id_ = session.commit("mine")
    assert frazil.Repository.open(storage).lookup_branch("main") == id_


@pytest.mark.parametrize("operation", ["reset branch", "create branch"])
def test_others_change_the_same_file_after_an_answer_was_lost(operation: str) -> None:
    """In version 1 nothing remembers what the file was in between."""
    storage = copy_of(_template(1))
    failing = Failing(storage)
    work = OPERATIONS[operation](opened_by(storage, failing, quick()))
    lost = False

    def choose(number: int, what: str) -> str | None:
        nonlocal lost
        if lost or not what.startswith("put refs/"):
            return None
        lost = True
        return "after"

    def change(what: str) -> Any:
        if lost and failing.inner is storage:
            failing.inner = copy_of(storage)  # once
            other = frazil.Repository.open(failing.inner)
            branch = "main" if operation == "reset branch" else "new"
            with other.transaction(branch, message="others") as store:
                zarr.create_group(store, path="others")
        return meet(what)

    failing.choose, meet = choose, failing.meet
    failing.meet = change
    with pytest.raises(OutcomeUnknownError, match="lookup_branch"):
        work()


@pytest.mark.deep
@pytest.mark.parametrize("version", [2, 1])
@pytest.mark.parametrize("local", [True, False])
def test_creation(version: int, local: bool) -> None:
    key = "repo" if version == 2 else "refs/branch.main/ref.json"

    def creating(choose: Callable[[int, str], str | None]) -> tuple[MemoryStorage, Failing]:
        storage = MemoryStorage()
        failing = Failing(storage, local=local)
        failing.choose = choose
        return storage, failing

    storage, failing = creating(lambda number, what: "after" if what == f"put {key}" else None)
    frazil.Repository.create(failing, spec_version=version)
    assert frazil.Repository.exists(storage)
    storage, failing = creating(lambda number, what: "before" if what == f"put {key}" else None)
    with pytest.raises(StorageError) as error:
        frazil.Repository.create(failing, spec_version=version)
    assert isinstance(error.value, OutcomeUnknownError) is not local
    assert error.value.kind != ErrorKind.OBJECT_NOT_FOUND
    storage, failing = creating(lambda number, what: "before" if what == "head repo" else None)
    error_after = raised_by(lambda: frazil.Repository.create(failing, spec_version=version))
    assert frazil.Repository.exists(storage)
    assert (error_after is not None and "Repository.open" in error_after.message) == (version == 1)
    storage, failing = creating(
        lambda number, what: {f"put {key}": "after", f"get {key}": "before"}.get(what)
    )
    with pytest.raises(OutcomeUnknownError, match=r"Repository\.exists"):
        frazil.Repository.create(failing, spec_version=version)
    assert frazil.Repository.exists(storage)


def test_what_was_stored_is_not_reported_as_failed() -> None:
    """In version 1 a request follows the write: whether there was an upgrade meanwhile."""
    storage = copy_of(_template(1))
    failing = Failing(storage)
    session = _session(opened_by(storage, failing, quick()))
    stored = False

    def choose(number: int, what: str) -> str | None:
        nonlocal stored
        stored = stored or what == "put refs/branch.main/ref.json"
        return "before" if stored and what == "head repo" else None

    failing.choose = choose
    with pytest.raises(OutcomeUnknownError) as error:
        session.commit("mine")
    assert frazil.Repository.open(storage).lookup_branch("main") == error.value.snapshot
