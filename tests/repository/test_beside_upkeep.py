"""Every operation that moves or makes a ref, with commits, expirations, collections and resets of others
between any two of its requests: it succeeds, or says what happened and what to do, and nothing is torn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
import zarr
from tests.maintenance.schedules import Seen
from tests.maintenance.test_in_use import opened_by
from tests.repository.version_1 import copy_of
from tests.support.patience import patience

import frazil
from frazil.conflicts import ConflictDetector
from frazil.errors import ConflictError, ErrorKind, IcechunkError, NotFoundError, SessionStateError
from frazil.storage.memory import MemoryStorage

PATIENT = frazil.RepositoryConfig(fast_forward_timeout=timedelta(seconds=patience(20)))
HASTY = frazil.RepositoryConfig()
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


def write(store: Any, at: int, value: int) -> None:
    zarr.open_array(store, path="x")[at] = value


@cache
def _template(version: int) -> MemoryStorage:
    """Three commits on ``main``; ``dev`` has one of its own behind the second, ``old`` is at that. All files
    are days old.
    """
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, spec_version=version)
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="x", shape=(16,), chunks=(1,), dtype="i4", compressors=None)
    for n in (1, 2):
        with repo.transaction("main", message=str(n)) as store:
            write(store, n, n)
        if n == 1:
            repo.create_branch("dev", repo.lookup_branch("main"))
            with repo.transaction("dev", message="on dev") as store:
                write(store, 9, 9)
    repo.create_branch("old", _ids(repo)[1])
    return storage


def repository(version: int) -> MemoryStorage:
    storage = copy_of(_template(version))
    objects = storage._contents.objects
    for key, stored in objects.items():
        objects[key] = replace(stored, modified=stored.modified - timedelta(days=2))
    return storage


# What the one does: prepared before the first request that counts, then called.


def _commit(repo: frazil.Repository, how: Callable[[frazil.Session], Any]) -> Callable[[], Any]:
    session = repo.writable_session("main")
    write(session.store, 7, 7)
    return lambda: how(session)


def _ids(repo: frazil.Repository) -> list[str]:
    return [commit.id for commit in repo.ancestry(branch="main")]


OPERATIONS: dict[str, Callable[[frazil.Repository], Callable[[], Any]]] = {
    "commit": lambda repo: _commit(repo, lambda s: s.commit("mine")),
    "commit and rebase": lambda repo: _commit(
        repo, lambda s: s.commit("mine", rebase_with=ConflictDetector())
    ),
    "rebase": lambda repo: _commit(repo, lambda s: s.rebase(ConflictDetector())),
    "amend": lambda repo: _commit(repo, lambda s: s.amend("mine")),
    "flush": lambda repo: _commit(repo, lambda s: s.flush("mine")),
    "rewrite": lambda repo: lambda: repo.rewrite_manifests("mine", branch="main"),
    "rewrite and amend": lambda repo: (
        lambda: repo.rewrite_manifests("mine", branch="main", commit_method="amend")
    ),
    "merge": lambda repo: lambda: repo.merge("dev", message="mine"),
    "merge by moving": lambda repo: lambda: repo.merge("main", into="old"),
    "cherry-pick": lambda repo: lambda: repo.cherry_pick("dev", message="mine"),
    "revert": lambda repo: lambda: repo.revert("main", message="mine"),
    "reset": lambda repo: (lambda id_: lambda: repo.reset_branch("main", id_))(_ids(repo)[1]),
    "reset from": lambda repo: (
        lambda ids: lambda: repo.reset_branch("main", ids[1], from_snapshot_id=ids[0])
    )(_ids(repo)),
    "branch": lambda repo: (lambda id_: lambda: repo.create_branch("new", id_))(_ids(repo)[1]),
    "tag": lambda repo: (lambda id_: lambda: repo.create_tag("new", id_))(_ids(repo)[1]),
    "diff": lambda repo: (lambda ids: lambda: repo.diff(from_snapshot_id=ids[1], to_snapshot_id=ids[0]))(
        _ids(repo)
    ),
}
ONLY_VERSION_2 = {"amend", "rewrite and amend"}


# What others do meanwhile.


def _others_commit(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="of others") as store:
        write(store, 12, 12)


def _collect(repo: frazil.Repository) -> None:
    # Version 1 has no ops log in which a commit could see a collection: there, limits are to spare sessions.
    limit = timedelta(days=1) if repo.spec_version == 1 else -timedelta(hours=1)
    repo.garbage_collect(datetime.now(UTC) - limit)


def _expire(repo: frazil.Repository, collect: bool = False) -> None:
    _others_commit(repo)
    repo.expire_snapshots(datetime.now(UTC))
    if collect:
        _collect(repo)


def _reset(repo: frazil.Repository, collect: bool = False) -> None:
    repo.reset_branch("main", _ids(repo)[1])
    _others_commit(repo)
    if collect:
        _collect(repo)


def _delete(repo: frazil.Repository) -> None:
    repo.delete_branch("dev")
    _collect(repo)


def _only_expire(repo: frazil.Repository) -> None:
    repo.expire_snapshots(datetime.now(UTC))


MEANWHILE: dict[str, Callable[[frazil.Repository], None]] = {
    "expire": _only_expire,
    "commit, expire": _expire,
    "commit, expire, collect": lambda repo: _expire(repo, True),
    "reset, commit": _reset,
    "reset, commit, collect": lambda repo: _reset(repo, True),
    "delete dev, collect": _delete,
}


def outcome_at(
    step: int, storage: MemoryStorage, config: frazil.RepositoryConfig, operation: str, meanwhile: str
) -> tuple[Any, int]:
    """What comes of the operation when the others do their part right before its request ``step``; and how
    many requests it made.
    """
    requests = 0

    def meet(what: str) -> Any:
        nonlocal requests
        requests += 1
        if requests == step:
            MEANWHILE[meanwhile](frazil.Repository.open(storage))
        return nullcontext()

    seen = Seen(storage, lambda what: nullcontext())
    work = OPERATIONS[operation](opened_by(storage, seen, config))
    seen.meet = meet
    try:
        return work(), requests
    except Exception as error:  # the test looks at it
        return error, requests


def require_whole(storage: MemoryStorage) -> None:
    """The branches and their histories can be read, by a handle that has read nothing before."""
    repo = frazil.Repository.open(storage)
    for branch in sorted(repo.list_branches()):
        assert list(repo.ancestry(branch=branch))
        session = repo.readonly_session(branch)
        assert len(session.chunk_table("/x")) if session.workspace.node("/x") else branch == "main"


COLLECTIONS = ["commit, expire, collect", "reset, commit, collect"]
CASES = [
    *((2, op, event) for op in OPERATIONS for event in ("expire", *COLLECTIONS, "delete dev, collect")),
    *((1, op, event) for op in OPERATIONS if op not in ONLY_VERSION_2 for event in COLLECTIONS),
]


@pytest.mark.sample(4, 4)
@pytest.mark.deep
@pytest.mark.parametrize(("version", "operation", "meanwhile"), CASES)
def test_any_order(version: int, operation: str, meanwhile: str) -> None:
    for config in (HASTY, PATIENT) if operation == "commit" else (HASTY,):
        for step in range(1, 100):
            storage = repository(version)
            result, requests = outcome_at(step, storage, config, operation, meanwhile)
            if isinstance(result, Exception):
                assert isinstance(result, ConflictError | NotFoundError | SessionStateError | IcechunkError)
                assert getattr(result, "kind", None) in REFUSALS, (step, repr(result))
                assert "Internal" not in type(result).__name__
            if version == 2 or operation != "merge by moving":  # version 1 moves refs one by one
                require_whole(storage)
            if requests < step:
                break


@pytest.mark.sample(5, 5)
@pytest.mark.deep
@pytest.mark.parametrize("meanwhile", ["expire", "commit, expire", "reset, commit"])
@pytest.mark.parametrize("operation", ["commit and rebase", "commit", "merge"])
def test_what_can_succeed_does(operation: str, meanwhile: str) -> None:
    for step in range(1, 100):
        storage = repository(2)
        result, requests = outcome_at(step, storage, PATIENT, operation, meanwhile)
        assert isinstance(result, str), (step, repr(result))
        messages = [commit.message for commit in frazil.Repository.open(storage).ancestry(branch="main")]
        assert messages.count("mine") == 1
        if requests < step:
            break
