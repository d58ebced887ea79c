"""Collections of garbage beside sessions while clocks differ, or are set: the host's and the storage's. No
version refers to a file that is missing, whatever became of the session.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import zarr
from tests.maintenance.schedules import Clocked, HostTime, Seen
from tests.maintenance.test_in_use import (
    BY_CONTENT,
    CONFIG,
    REFUSED,
    leave_a_chunk,
    opened_by,
    repository,
    write,
    written,
)
from tests.support.tiers import deep

import frazil
from frazil.errors import IcechunkError, InternalError, SnapshotNotFoundError
from frazil.host import replace_host
from frazil.repository import clock

AHEAD = (-86_400, -3_600, -1_200, 1_200, 3_600)

Finish = Callable[[], str]


def commit(repo: frazil.Repository) -> Finish:
    session = written(repo)
    return lambda: session.commit("late")


def flush_and_tag(repo: frazil.Repository) -> Finish:
    session = written(repo)

    return lambda: tagged(repo, session.flush("on no branch"))


def tag(repo: frazil.Repository) -> Finish:
    session = repo.writable_session("main")
    write(session, 5)
    id_ = session.flush("on no branch")
    return lambda: tagged(repo, id_)


def tagged(repo: frazil.Repository, id_: str) -> str:
    repo.create_tag("late", id_)
    return id_


def fork(repo: frazil.Repository) -> Finish:
    session = repo.writable_session("main")
    part = session.fork()
    write(part, 5)
    session.merge(part)
    return lambda: session.commit("late")


def late_fork(repo: frazil.Repository) -> Finish:
    session = written(repo)

    def finish() -> str:
        part = session.fork()
        zarr.open_array(part.store, path="x")[6:] = 5
        session.merge(part)
        return session.commit("late")

    return finish


def rebased(repo: frazil.Repository) -> Finish:
    session = written(repo)
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="x")[:2] = 6
    return lambda: session.commit("late", rebase_with=frazil.ConflictDetector())


def tried_before(repo: frazil.Repository) -> Finish:
    """It has stored manifests that it may use again."""
    session = repo.writable_session("main")
    write(session, 5)
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="x")[:2] = 6
    with pytest.raises(frazil.ConflictError):
        session.commit("too late")
    return lambda: session.commit("late", rebase_with=frazil.ConflictDetector())


WAYS = {each.__name__: each for each in (commit, flush_and_tag, tag, fork, late_fork, rebased)}
WAYS["tried_before"] = tried_before
#: How a clock behaves: whose it is, and whether it is set while the session is open.
CLOCKS = [
    pytest.param(whose, ahead, marks=() if ahead == 1_200 else pytest.mark.deep)
    for whose in ("differs", "storage is set", "host is set")
    for ahead in AHEAD
]


@pytest.fixture
def host() -> Iterator[HostTime]:
    time = HostTime()
    with replace_host(time):
        yield time


def now() -> datetime:
    return clock.to_datetime(clock.now_us())


def attempt(finish: Finish) -> str | IcechunkError:
    try:
        return finish()
    except IcechunkError as error:
        if error.kind not in REFUSED and not isinstance(error, SnapshotNotFoundError):
            raise
        return error


def require_whole(storage: Clocked) -> None:
    repo = frazil.Repository.open(storage)
    assert repo.upkeep.verify("exists").problems == ()


class Scene:
    """A session and a collection on one storage. Clocks differ, or are set when the session has written."""

    def __init__(self, whose: str, ahead: float, host: HostTime, version: int = 2) -> None:
        self.whose, self.ahead, self.host = whose, ahead, host
        self.storage = Clocked()
        if whose == "differs":
            self.storage.ahead = ahead
        repository(self.storage, version)

    def set_clock(self) -> None:
        if self.whose == "storage is set":
            self.storage.ahead = self.ahead
        if self.whose == "host is set":
            self.host.ahead = self.ahead

    def collector(self, meet: Callable[[str], Any]) -> frazil.Repository:
        return opened_by(self.storage, Seen(self.storage, meet))


@pytest.mark.sample(1, 16)
@pytest.mark.deep
@pytest.mark.parametrize(("whose", "ahead"), CLOCKS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", ["once", *deep("put repo", "delete snapshots", "delete chunks")])
def test_a_collection_between_writing_and_committing(
    way: str, whose: str, ahead: float, at: str, host: HostTime
) -> None:
    """The session commits when the collection is over, or when the collection is about to make a certain
    request. It tries again at the end if the error said so.
    """
    scene = Scene(whose, ahead, host)
    finish = WAYS[way](frazil.Repository.open(scene.storage, CONFIG))
    scene.set_clock()
    ends: list[str | IcechunkError] = []

    @contextmanager
    def meet(what: str) -> Iterator[None]:
        if what == at and not ends:
            ends.append(attempt(finish))
        yield

    scene.collector(meet).garbage_collect(now())
    if not ends or getattr(ends[0], "kind", None) == frazil.ErrorKind.GARBAGE_COLLECTION_RUNNING:
        ends.append(attempt(finish))
        assert getattr(ends[-1], "kind", None) != frazil.ErrorKind.GARBAGE_COLLECTION_RUNNING
    require_whole(scene.storage)
    scene.collector(no_meeting).garbage_collect(now() + timedelta(days=2))
    require_whole(scene.storage)


@contextmanager
def no_meeting(what: str) -> Iterator[None]:
    yield


@pytest.mark.parametrize(("whose", "ahead"), CLOCKS)
@pytest.mark.parametrize(("hours", "version"), [(2, 2), (30, 2), (None, 1)])
def test_chunks_that_are_reused_and_version_1(
    whose: str, ahead: float, hours: int | None, version: int, host: HostTime
) -> None:
    scene = Scene(whose, ahead, host, version)
    if hours is not None:
        leave_a_chunk(scene.storage, hours)
    config = CONFIG if hours is None else BY_CONTENT
    finish = commit(frazil.Repository.open(scene.storage, config))
    scene.set_clock()
    scene.collector(no_meeting).garbage_collect(now())
    attempt(finish)
    require_whole(scene.storage)


@pytest.mark.parametrize("ahead", AHEAD)
def test_leases_last_while_clocks_differ(ahead: float, host: HostTime) -> None:
    """A lease consists of durations: a constant difference of clocks changes nothing."""
    scene = Scene("differs", ahead, host)
    session = frazil.Repository.open(scene.storage, CONFIG).writable_session("main")
    part = pickle.loads(pickle.dumps(session.fork()))
    write(part, 5)
    summary = scene.collector(no_meeting).garbage_collect(now())
    assert (summary.chunks_deleted, summary.leases_respected) == (0, 1)
    session.merge(part)
    session.commit("of a fork")
    require_whole(scene.storage)


def test_a_clock_after_the_latest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no time after the year 2262. Nothing is stored meanwhile."""
    repo = repository()
    session = written(repo)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", _too_late)
        for act in (lambda: session.commit("late"), repo.save_config, lambda: repo.writable_session("main")):
            with pytest.raises(IcechunkError, match="2262") as caught:
                act()
            assert not isinstance(caught.value, InternalError)
    session.commit("in time")


def _too_late() -> int:
    raise OverflowError("timestamp too large to convert to C PyTime_t")
