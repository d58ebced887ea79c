"""The retry loop: what is reported as done is there, once; pauses; bytes of later versions of the format."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.errors import of_kind

import frazil
from frazil import host
from frazil.errors import ConflictError, ErrorKind
from frazil.format.ids import OVERWRITTEN, REPO
from frazil.format.repo_info import UpdateKind, decode_repo_info, encode_repo_info, new_repo_info
from frazil.repository.catalog.repo_changes import set_metadata
from frazil.repository.catalog.repo_update import UpdateSettings, ops_log, read_repo_info, update_repo_info
from frazil.repository.retries import RetryPolicy
from frazil.storage.base import IfAbsent
from frazil.storage.memory import MemoryStorage
from frazil.testing import Fault, FaultyStorage

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
