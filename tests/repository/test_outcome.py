"""An error says whether the change took effect: never "failed" for what is there, "done" for what is not, and
"unknown" only where nobody can tell. Commits, expirations, collections and resets of others between any two
requests of an operation tear nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.maintenance.schedules import Interrupted, Seen, make_old
from tests.maintenance.test_in_use import opened_by
from tests.repository.version_1 import copy_of
from tests.support.errors import of_kind
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.patience import patience

import frazil
from frazil import host
from frazil.conflicts import ConflictDetector
from frazil.errors import (
    ConflictError,
    ErrorKind,
    IcechunkError,
    NotFoundError,
    OutcomeUnknownError,
    SessionStateError,
    StorageError,
)
from frazil.format.ids import OVERWRITTEN, REPO
from frazil.format.repo_info import UpdateKind, decode_repo_info, encode_repo_info, new_repo_info
from frazil.repository.catalog.repo_changes import set_metadata
from frazil.repository.catalog.repo_update import UpdateSettings, ops_log, read_repo_info, update_repo_info
from frazil.repository.retries import RetryPolicy
from frazil.storage.base import ALWAYS, Condition, IfAbsent, Refused, Storage, Stored
from frazil.storage.memory import MemoryStorage


@contextmanager
def _raise_after(what: str) -> Iterator[None]:
    yield
    raise StorageError(f"injected after {what}", ErrorKind.OBJECT_STORE)


class Failing(Seen):
    """Requests fail where ``choose(number, what)`` says "before" or "after" they take effect."""

    def __init__(self, inner: MemoryStorage, *, local: bool = False) -> None:
        super().__init__(inner, lambda what: None)
        self.is_local = local
        self.count = 0
        self.choose: Callable[[int, str], str | None] = lambda number, what: None
        self.meet = self._meet

    def _meet(self, what: str) -> Any:
        self.count += 1
        fault = self.choose(self.count, what)
        if fault == "before":
            raise StorageError(f"injected before {what}", ErrorKind.OBJECT_STORE)
        return _raise_after(what) if fault == "after" else None


def quick(**options: Any) -> frazil.RepositoryConfig:
    retries = frazil.config.RepoUpdateRetryConfig(
        default=frazil.StorageRetriesSettings(max_tries=20, initial_backoff_ms=1, max_backoff_ms=2)
    )
    return frazil.RepositoryConfig(repo_update_retries=retries, **options)


@cache
def _template(version: int) -> MemoryStorage:
    storage = MemoryStorage()
    populated(storage, version)
    return storage


def populated(
    storage: Storage, version: int, config: frazil.RepositoryConfig | None = None
) -> frazil.Repository:
    """Three commits on ``main``, and a tag. ``dev`` has its own behind the second, ``old`` is there."""
    repo = frazil.Repository.create(storage, config, spec_version=version)
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="x", shape=(16,), chunks=(1,), dtype="i4", compressors=None)
    repo.create_tag("v1", repo.lookup_branch("main"))
    write(repo, 1)
    for name in ("dev", "old"):
        repo.create_branch(name, repo.lookup_branch("main"))
    write(repo, 9, "dev")
    write(repo, 2)
    return repo


def write(repo: frazil.Repository, n: int, branch: str = "main") -> None:
    with repo.transaction(branch, message=f"write {n}") as store:
        zarr.open_array(store, path="x")[n] = n


def _ids(repo: frazil.Repository) -> list[str]:
    return [commit.id for commit in repo.ancestry(branch="main")]


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
    "create branch": lambda repo: (lambda ids: lambda: repo.create_branch("new", ids[1]))(_ids(repo)),
    "reset branch": lambda repo: (lambda ids: lambda: repo.reset_branch("main", ids[1]))(_ids(repo)),
    "delete branch": lambda repo: lambda: repo.delete_branch("dev"),
    "create tag": lambda repo: (lambda ids: lambda: repo.create_tag("new", ids[1]))(_ids(repo)),
    "delete tag": lambda repo: lambda: repo.delete_tag("v1"),
    "metadata": lambda repo: lambda: repo.set_metadata({"n": 1}),
    "config": lambda repo: repo.save_config,
    "merge": lambda repo: lambda: repo.merge("main", into="old"),
    "revert": lambda repo: lambda: repo.revert("main", message="mine"),
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
        if lost and what == "get repo" and len(others.list_branches()) == 3:
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


# Others between any two requests

PATIENT = quick(fast_forward_timeout=timedelta(seconds=patience(20)))
#: What somebody who is told of it can do something about.
REFUSALS = {
    ErrorKind.COMMIT_CONFLICT,
    ErrorKind.BRANCH_UPDATE_CONFLICT,
    ErrorKind.BRANCH_ALREADY_EXISTS,
    ErrorKind.TAG_ALREADY_EXISTS,
    ErrorKind.REBASE_TX_LOG_PRUNED,
    ErrorKind.SNAPSHOT_NOT_FOUND,
    ErrorKind.REF_NOT_FOUND,
    ErrorKind.BRANCH_NOT_FOUND,
    ErrorKind.NO_CHANGES_TO_COMMIT,
    ErrorKind.GARBAGE_COLLECTION_RUNNING,
}
REBASING = ConflictDetector()
MORE_OPERATIONS: dict[str, Prepare] = {
    **{
        name: OPERATIONS[name]
        for name in sorted(OPERATIONS.keys() - {"delete branch", "delete tag", "metadata", "config"})
    },
    "commit and rebase": _with_session(lambda s: s.commit("mine", rebase_with=REBASING)),
    "rebase": _with_session(lambda s: s.rebase(REBASING)),
    "rewrite": lambda repo: lambda: repo.rewrite_manifests("mine", branch="main"),
    "rewrite and amend": lambda repo: (
        lambda: repo.rewrite_manifests("mine", branch="main", commit_method="amend")
    ),
    "merge commit": lambda repo: lambda: repo.merge("dev", message="mine"),
    "cherry-pick": lambda repo: lambda: repo.cherry_pick("dev", message="mine"),
    "reset from": lambda repo: (
        lambda ids: lambda: repo.reset_branch("main", ids[1], from_snapshot_id=ids[0])
    )(_ids(repo)),
    "diff": lambda repo: (lambda ids: lambda: repo.diff(from_snapshot_id=ids[1], to_snapshot_id=ids[0]))(
        _ids(repo)
    ),
}


# What others do meanwhile.


def _collect(repo: frazil.Repository) -> None:
    # Version 1 has no ops log in which a commit could see a collection: there, limits are to spare sessions.
    limit = timedelta(days=1) if repo.spec_version == 1 else -timedelta(hours=1)
    repo.garbage_collect(datetime.now(UTC) - limit)


def _expire(repo: frazil.Repository, collect: bool = False) -> None:
    write(repo, 12)
    repo.expire_snapshots(datetime.now(UTC))
    if collect:
        _collect(repo)


def _reset(repo: frazil.Repository, collect: bool = False) -> None:
    repo.reset_branch("main", _ids(repo)[1])
    write(repo, 12)
    if collect:
        _collect(repo)


def _delete(repo: frazil.Repository) -> None:
    repo.delete_branch("dev")
    _collect(repo)


MEANWHILE: dict[str, Callable[[frazil.Repository], object]] = {
    "expire": lambda repo: repo.expire_snapshots(datetime.now(UTC)),
    "commit, expire": _expire,
    "commit, expire, collect": lambda repo: _expire(repo, True),
    "reset, commit": _reset,
    "reset, commit, collect": lambda repo: _reset(repo, True),
    "delete dev, collect": _delete,
}


def days_old(version: int) -> MemoryStorage:
    storage = copy_of(_template(version))
    make_old(storage, days=2)
    return storage


def outcome_at(
    step: int, storage: MemoryStorage, config: frazil.RepositoryConfig, operation: str, meanwhile: str
) -> tuple[Any, int]:
    """Return what comes of the operation when the others act right before its request ``step``; and how many
    requests it makes.
    """
    seen = Interrupted(storage, -1, lambda: MEANWHILE[meanwhile](frazil.Repository.open(storage)))
    work = MORE_OPERATIONS[operation](opened_by(storage, seen, config))
    seen.step, seen.count = step, 0
    try:
        return work(), seen.count
    except Exception as error:  # the test looks at it
        return error, seen.count


def require_whole(storage: MemoryStorage) -> None:
    """The branches and their histories can be read, by a handle that has read nothing before."""
    repo = frazil.Repository.open(storage)
    for branch in sorted(repo.list_branches()):
        assert list(repo.ancestry(branch=branch))
        session = repo.readonly_session(branch)
        assert len(session.chunk_table("/x")) if session.workspace.node("/x") else branch == "main"


COLLECTIONS = ["commit, expire, collect", "reset, commit, collect"]
ORDERS = [
    *((2, op, event) for op in MORE_OPERATIONS for event in ("expire", *COLLECTIONS, "delete dev, collect")),
    *((1, op, event) for op in MORE_OPERATIONS if "amend" not in op for event in COLLECTIONS),
]


@pytest.mark.sample(4, 4)
@pytest.mark.deep
@pytest.mark.parametrize(("version", "operation", "meanwhile"), ORDERS)
def test_any_order(version: int, operation: str, meanwhile: str) -> None:
    for config in (quick(), PATIENT) if operation == "commit" else (quick(),):
        for step in range(1, 100):
            storage = days_old(version)
            result, requests = outcome_at(step, storage, config, operation, meanwhile)
            if isinstance(result, Exception):
                assert isinstance(result, ConflictError | NotFoundError | SessionStateError | IcechunkError)
                assert getattr(result, "kind", None) in REFUSALS, (step, repr(result))
                assert "Internal" not in type(result).__name__
            if version == 2 or operation != "merge":  # version 1 moves refs one by one
                require_whole(storage)
            if requests < step:
                break


@pytest.mark.sample(5, 5)
@pytest.mark.deep
@pytest.mark.parametrize("meanwhile", ["expire", "commit, expire", "reset, commit"])
@pytest.mark.parametrize("operation", ["commit and rebase", "commit", "merge commit"])
def test_what_can_succeed_does(operation: str, meanwhile: str) -> None:
    for step in range(1, 100):
        storage = days_old(2)
        result, requests = outcome_at(step, storage, PATIENT, operation, meanwhile)
        assert isinstance(result, str), (step, repr(result))
        messages = [commit.message for commit in frazil.Repository.open(storage).ancestry(branch="main")]
        assert messages.count("mine") == 1
        if requests < step:
            break


QUICK = RetryPolicy(tries=20, initial_backoff_ms=1, max_backoff_ms=2)


def counting() -> Any:
    return set_metadata(lambda existing: {"n": existing.get("n", 0) + 1})


def repository(choose: Any = lambda key, condition: None) -> FaultyStorage:
    storage = FaultyStorage(MemoryStorage(), choose)
    storage.inner.put(REPO, encode_repo_info(new_repo_info(1)), IfAbsent())
    return storage


def update(storage: frazil.Storage, change: Any, keep: int = 1000, policy: Any = QUICK) -> Any:
    return update_repo_info(storage, change, UpdateSettings(policy, keep, 1))


def log(storage: frazil.Storage) -> list[Any]:
    return list(ops_log(storage, read_repo_info(storage)[0]))


@pytest.mark.parametrize("keep", [1, 2, 1000])
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("times", [1, 3])
def test_every_fault_counts_once(fault: str, times: int, keep: int) -> None:
    faults = iter([fault] * times)
    storage = repository(lambda key, condition: next(faults, None) if key == REPO else None)
    for n in range(1, 4):
        assert update(storage, counting(), keep).metadata == {"n": n}
    assert read_repo_info(storage)[0].metadata == {"n": 3}
    kinds = [entry.kind for entry in log(storage)]
    assert kinds == [UpdateKind.METADATA_CHANGED] * 3 + [UpdateKind.REPO_INITIALIZED]


def test_always_refused_ends_after_the_given_tries_and_leaves_no_backups() -> None:
    storage = repository(lambda key, condition: Fault.REFUSED if key == REPO else None)
    with pytest.raises(ConflictError, check=of_kind(ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED)):
        update(storage, counting(), policy=RetryPolicy(tries=7, initial_backoff_ms=1, max_backoff_ms=1))
    assert storage.puts.count(REPO) == 7
    assert len(list(storage.list(OVERWRITTEN))) <= 1


POLICY = RetryPolicy()


class Dice(host.Host):
    """A host with the same random numbers on each run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random_between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def test_pauses_after_losses_are_bounded_and_become_shorter() -> None:
    with host.replace_host(Dice(1)):
        longest = [max(POLICY.pause_after_loss(attempt) for _ in range(200)) for attempt in range(60)]
    assert max(longest) <= 5
    assert max(longest[:5]) <= 0.01
    assert max(longest[8:16]) > 2
    assert max(longest[40:]) <= 1


def test_the_limit_of_the_settings_holds() -> None:
    policy = RetryPolicy(initial_backoff_ms=1, max_backoff_ms=4)
    assert max(policy.pause_after_loss(attempt) for attempt in range(5, 100)) <= 0.004
    assert RetryPolicy(max_backoff_ms=60_000).pause(30) >= 30  # after errors of the storage


@pytest.mark.parametrize("extra", [b"", b"\0\x01later", bytes(1000)])
def test_extra_bytes_are_preserved(extra: bytes, tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path))
    repo = frazil.Repository.create(storage)
    info = decode_repo_info(storage.get("repo"), "repo")
    assert info.extra is None
    storage.put("repo", encode_repo_info(replace(info, extra=extra)))
    repo = frazil.Repository.open(storage)
    repo.create_tag("v1", repo.lookup_branch("main"))
    repo.writable_session("main").commit("m", allow_empty=True)
    assert decode_repo_info(storage.get("repo"), "repo").extra == extra
    assert repo.list_tags() == {"v1"}


@pytest.mark.interop
def test_the_reference_reads_a_repo_with_extra_bytes(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    storage = frazil.local_filesystem_storage(str(tmp_path))
    repo = frazil.Repository.create(storage)
    info = decode_repo_info(storage.get("repo"), "repo")
    storage.put("repo", encode_repo_info(replace(info, extra=b"later")))
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    assert theirs.lookup_branch("main") == repo.lookup_branch("main")
