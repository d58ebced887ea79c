"""Leases: what they spare, when they end, and how people see and break them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.maintenance.test_in_use import TOMORROW, repository, require_refusal, values, write, written

import frazil
from frazil.errors import ErrorKind, InvalidInputError
from frazil.maintenance.collection import DeletionResult, Sweeper
from frazil.repository.catalog import collection_guard as leases
from frazil.repository.clock import now_us
from frazil.storage.memory import MemoryStorage
from frazil.survey.columns import ObjectListing

HOUR = 3600 * 1_000_000


def forked(repo: frazil.Repository) -> frazil.Session:
    session = repo.writable_session("main")
    write(session, 4)
    session.fork()
    return session


def test_leases_end() -> None:
    repo = repository()
    forked(repo)
    now = now_us()
    (lease,) = leases.in_force(repo.storage, now)
    assert lease.since < now
    assert leases.in_force(repo.storage, now + 25 * HOUR) == []
    leases.delete_ended(repo.storage, now + 23 * HOUR)
    assert len(repo.upkeep.leases()) == 1
    leases.delete_ended(repo.storage, now + 25 * HOUR)
    assert repo.upkeep.leases() == []


def test_no_lease_lasts_longer_than_a_job() -> None:
    """It was taken while the host's clock was wrong by years."""
    storage = MemoryStorage()
    leases.Lease.take(storage, now_us(), now_us() + 10 * 365 * 24 * HOUR)
    assert leases.in_force(storage, now_us() + 9 * 24 * HOUR) == []


def test_a_lease_that_is_broken() -> None:
    repo = repository()
    session = forked(repo)
    (lease,) = repo.upkeep.leases()
    assert lease.purpose == "fork"
    assert lease.protects_since <= lease.taken_at < lease.ends_at
    repo.upkeep.break_lease(lease.id)
    assert repo.garbage_collect(TOMORROW).chunks_deleted == 1
    require_refusal(session)
    assert values(repo) == [1] * 8


@pytest.mark.parametrize("name", ["", "x", "../repo", "job.x"])
def test_only_leases_are_broken(name: str) -> None:
    repo = repository()
    with pytest.raises(InvalidInputError, match="lease_id must be the id of a lease") as error:
        repo.upkeep.break_lease(name)
    assert error.value.kind == ErrorKind.NOT_ALLOWED
    assert values(repo) == [1] * 8


def test_a_resumed_job_keeps_the_lease_that_it_has() -> None:
    """The host that resumes it may have another clock."""
    storage = MemoryStorage()
    place = leases.place_of("main", "monday")
    leases.take_lease(storage, place, now_us() - 5 * HOUR, now_us(), "a")
    (first,) = leases.leases(storage)
    leases.take_lease(storage, place, now_us() + HOUR, now_us(), "b", resumes=True)
    assert leases.leases(storage) == [first]
    leases.take_lease(storage, place, now_us(), now_us(), "c")
    assert leases.leases(storage) != [first]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff", b'{"age": "x", "left": -1e400}', b'{"age": -5}', b'{"left": -%d}' % 10**40],
)
def test_a_damaged_lease_spares_nothing_for_long(content: bytes) -> None:
    repo = repository()
    repo.storage.put("leases/damaged", content)
    assert repo.upkeep.leases()[0].purpose == ""
    assert leases.in_force(repo.storage, now_us() + HOUR) == []


def test_who_holds_garbage_back_is_said() -> None:
    repo = repository()
    session = repo.writable_session("main", name="nightly import")
    write(session, 4)
    session.fork()
    (lease,) = repo.upkeep.leases()
    assert (lease.name, lease.host, lease.process) == ("nightly import", socket.gethostname(), os.getpid())
    for dry_run in (True, False):
        summary = repo.garbage_collect(TOMORROW, dry_run=dry_run)
        (held,) = summary.leases
        assert replace(held, held_objects=None, held_bytes=None) == lease
        assert (held.held_objects is None) == (not dry_run)
        assert (summary.chunks_deleted, summary.leases_respected) == (0, 1)
        assert summary.spared_since == lease.protects_since
        assert "`nightly import`" in repr(summary)
        assert socket.gethostname() in repr(summary)
    long_ago = repo.garbage_collect(datetime(2001, 1, 1, tzinfo=UTC))
    assert (long_ago.leases, long_ago.leases_respected, long_ago.spared_since) == ([], 0, None)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_dry_run_says_what_each_lease_holds_back(spec_version: int) -> None:
    """It is what the collection deletes as soon as the lease is broken."""
    repo = repository(version=spec_version)
    repo.create_branch("old", repo.lookup_branch("main"))
    leased = [forked(repo) for _ in range(2)]
    session = repo.writable_session("old")
    write(session, 5)
    session.commit("on a branch that is deleted")
    repo.delete_branch("old")
    before = repo.garbage_collect(TOMORROW, dry_run=True)
    assert len(before.leases) == len(leased)
    for lease in repo.upkeep.leases():
        repo.upkeep.break_lease(lease.id)
    files = [each for each in repo.garbage_collect(TOMORROW, dry_run=True).files if each.kind != "backups"]
    held = max(lease.held_objects or 0 for lease in before.leases)
    spared = {each.key for each in files} - {each.key for each in before.files}
    assert 0 < held == len(spared)
    sizes = sum(each.size_bytes for each in files if each.key in spared)
    assert max(lease.held_bytes or 0 for lease in before.leases) == sizes
    assert repo.garbage_collect(TOMORROW).chunks_deleted > 0
    assert values(repo) is not None


def test_leases_are_broken_by_name() -> None:
    repo = repository()
    storage = repo.storage
    for name in ("a", "a", "b", ""):
        session = repo.writable_session("main", name=name)
        write(session, 4)
        session.fork()
    place = leases.place_of("main", "monday")
    leases.take_lease(storage, place, now_us(), now_us(), "job `monday`", name="monday")
    storage.put(f"staging/{place}/plan", b"{}")
    repo.upkeep.break_lease(name="a")
    assert sorted(lease.name for lease in repo.upkeep.leases()) == ["", "b", "monday"]
    repo.upkeep.break_lease(name="monday")
    assert not list(storage.list("staging"))
    for name in ("a", ""):
        with pytest.raises(InvalidInputError, match="name must be the name of a lease") as error:
            repo.upkeep.break_lease(name=name)
        assert error.value.kind == ErrorKind.NOT_ALLOWED
    assert len(repo.upkeep.leases()) == 2
    for arguments in ({}, {"lease_id": "x", "name": "b"}):
        with pytest.raises(ValueError, match="exactly one of lease_id and name"):
            repo.upkeep.break_lease(**arguments)


def collect_with(repo: frazil.Repository, act: Callable[[], object]) -> frazil.GCSummary:
    """Collect garbage, and call `act` once between the plan and the first deletion."""
    acts, delete = [act], Sweeper.sweep

    def sweep(sweeper: Sweeper, files: ObjectListing) -> DeletionResult:
        if acts:
            acts.pop()()
        return delete(sweeper, files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sweeper, "sweep", sweep)
        return repo.garbage_collect(TOMORROW)


def test_a_session_with_a_lease_commits_during_a_collection() -> None:
    """The list of the collection, which commits compare with, does not have the chunks of the session."""
    repo = repository()
    session = forked(repo)
    collect_with(repo, lambda: session.commit("meanwhile"))
    assert values(repo) == [1, 1, 4, 4, 4, 4, 1, 1]


def test_a_lease_that_is_taken_during_a_collection() -> None:
    repo = repository()
    summary = collect_with(repo, written(repo).fork)
    assert (summary.chunks_deleted, summary.leases_respected) == (0, 1)
