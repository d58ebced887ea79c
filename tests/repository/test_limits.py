"""A process without threads or open files: a typed error, and the repository is whole and works again."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.repository.test_outcome import raised_by

import frazil
from frazil.errors import ErrorKind, OutcomeUnknownError, TaskFailedError
from frazil.storage import Storage, local_filesystem_storage
from frazil.testing import LatencyStorage
from frazil.threads import shared_pool

CONFIG = frazil.RepositoryConfig(
    inline_chunk_threshold_bytes=0,
    packing=frazil.PackingConfig(threshold_bytes=1000, pack_size_bytes=2000),
    chunks=frazil.ChunksConfig(deduplicate=True),
)


def _write(repo: frazil.Repository, value: int) -> frazil.Session:
    session = repo.writable_session("main")
    for name in "abc":
        array = zarr.create_array(
            session.store,
            name=name,
            shape=(8000,),
            chunks=(400,),
            dtype="u1",
            compressors=None,
            overwrite=True,
        )
        array[:] = np.arange(8000) % 251 + value
        zarr.create_array(
            session.store, name=f"{name}2", data=np.ones(4000), compressors=None, overwrite=True
        )
    return session


def _commit(repo: frazil.Repository) -> Callable[[], Any]:
    return lambda: _write(repo, 3).commit("third")


OPERATIONS: dict[str, Callable[[frazil.Repository], Callable[[], Any]]] = {
    "write and commit": _commit,
    "commit": lambda repo: partial(_write(repo, 3).commit, "third"),
    "collect": lambda repo: (
        lambda: repo.garbage_collect(repo.lookup_snapshot(repo.lookup_branch("main")).written_at)
    ),
    "compact": lambda repo: lambda: repo.upkeep.compact("small", branch="main", engine="inline").apply(),
    "read": lambda repo: lambda: frazil.Array(repo.readonly_session("main"), "a")[:],
    "verify": lambda repo: lambda: repo.upkeep.verify("checksum"),
}


class Limit:
    """A call of the system that fails from ``first`` on, ``most`` times."""

    def __init__(self, call: Callable[..., Any], error: Callable[[], Exception]) -> None:
        self.call, self.error = call, error
        self.count, self.failing = 0, range(0)

    def __get__(self, owner: object, kind: type) -> Callable[..., Any]:
        return lambda *args, **options: self(owner, *args, **options)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.count += 1
        if self.count in self.failing:
            raise self.error()
        return self.call(*args, **options)


def _limit(monkeypatch: pytest.MonkeyPatch, what: str) -> Limit:
    if what == "threads":
        limit = Limit(threading.Thread.start, lambda: RuntimeError("can't start new thread"))
        monkeypatch.setattr(threading.Thread, "start", limit)
    else:
        limit = Limit(os.open, lambda: OSError(errno.EMFILE, "Too many open files"))
        monkeypatch.setattr(os, "open", limit)
    return limit


@pytest.mark.sample(8, 8)
@pytest.mark.deep
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("what", ["threads", "files"])
def test_a_process_at_its_limits(
    what: str, is_local: bool, operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepared(number: int) -> tuple[frazil.Repository, Callable[[], Any]]:
        local: Storage = local_filesystem_storage(tmp_path / str(number))
        repo = frazil.Repository.create(local if is_local else LatencyStorage(local), CONFIG)
        for value in range(3):
            session = _write(repo, value)
            session.commit(str(value)) if value < 2 else session.discard_changes()
        shared_pool.cache_clear()
        return repo, OPERATIONS[operation](repo)

    with monkeypatch.context() as patch:
        work = prepared(0)[1]
        limit = _limit(patch, what)
        work()
        calls = limit.count
    for number, first in enumerate(range(1, calls + 1, max(1, calls // 6)), 1):
        repo, work = prepared(number)
        with monkeypatch.context() as patch:
            limit = _limit(patch, what)
            limit.failing = range(first, first + (1 if number % 2 else 10_000))
            error: BaseException | None = raised_by(work)
        while isinstance(error, TaskFailedError):  # a compaction has tasks
            error = error.__cause__
        if error is None or isinstance(error, OutcomeUnknownError):
            work = _commit(repo)
        else:
            assert getattr(error, "kind", None) == ErrorKind.PROCESS_LIMIT, error
        work()
        assert repo.upkeep.verify("checksum").ok
