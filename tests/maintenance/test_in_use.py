"""Collections of garbage beside sessions: with any limit, in any order of requests, nothing that a version
refers to is missing; and what was refused says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maintenance.schedules import Killed, Schedule, Seen, killing, make_old
from tests.repository.version_1 import fill
from tests.support.errors import of_kind
from tests.support.examples import examples

import frazil
from frazil.errors import ConflictError, ErrorKind, SessionStateError
from frazil.maintenance.collection import Collection, DeletionResult, Sweeper
from frazil.repository.catalog import collection_guard
from frazil.repository.catalog.repo_update import newest_update
from frazil.repository.clock import from_datetime
from frazil.storage.memory import MemoryStorage
from frazil.survey.columns import ObjectListing

CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
TOMORROW = datetime.now(UTC) + timedelta(days=1)


def repository(storage: Any = None, version: int = 2) -> frazil.Repository:
    storage = storage or MemoryStorage()
    fill(storage, _template(version))
    return frazil.Repository.open(storage, CONFIG)


@cache
def _template(version: int) -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG, spec_version=version)
    for number in range(2):
        with repo.transaction("main", message=str(number)) as store:
            array = zarr.create_array(
                store, name="x", shape=(8,), chunks=(2,), dtype="i4", compressors=None, overwrite=True
            )
            array[:] = number
    return storage


def opened_by(storage: Any, seen: Seen, config: frazil.RepositoryConfig = CONFIG) -> frazil.Repository:
    """A handle whose every request goes through ``seen``."""
    repo = frazil.Repository.open(storage, config)
    context = repo._context
    assets = type(context.assets)(seen, context.assets.limits)
    catalog: Any = context.catalog
    catalog = replace(catalog, storage=seen, assets=assets)
    return frazil.Repository(replace(context, storage=seen, assets=assets, catalog=catalog))


def opened_by_two(
    storage: MemoryStorage, schedule: Schedule, config: frazil.RepositoryConfig = CONFIG
) -> list[frazil.Repository]:
    """Handles of two actors, whose requests have the order of the schedule."""
    return [opened_by(storage, Seen(storage, partial(schedule.request, actor)), config) for actor in (0, 1)]


def values(repo: frazil.Repository, **version: Any) -> list[int]:
    found: list[int] = frazil.read(repo.readonly_session(**(version or {"branch": "main"})), "x").tolist()
    return found


def read_everything(repo: frazil.Repository) -> list[list[int]]:
    """The values of every version on the branch, the newest first."""
    return [values(repo, snapshot_id=each.id) for each in repo.ancestry(branch="main") if each.parent_id]


def write(session: frazil.Session, value: int) -> None:
    zarr.open_array(session.store, path="x")[2:6] = value


def written(repo: frazil.Repository, value: int = 4) -> frazil.Session:
    """A session whose chunks are stored, and not committed."""
    session = repo.writable_session("main")
    write(session, value)
    session.workspace.writer.flush()
    return session


def require_refusal(session: frazil.Session, kind: ErrorKind = ErrorKind.GARBAGE_COLLECTED) -> None:
    with pytest.raises((ConflictError, SessionStateError), check=of_kind(kind)):
        session.commit("of chunks that are gone")


REFUSED = {ErrorKind.GARBAGE_COLLECTED, ErrorKind.GARBAGE_COLLECTION_RUNNING}


BY_CONTENT = frazil.RepositoryConfig(
    inline_chunk_threshold_bytes=0,
    chunks=frazil.ChunksConfig(deduplicate=True),
    packing=frazil.PackingConfig(enabled=False),
)
#: What a session commits: chunks of its own, those of a fork, or such as it finds, hours old.
HOURS = {"own": None, "of a fork": None, "young": 2, "old": 30}


def leave_a_chunk(storage: MemoryStorage, hours: int) -> None:
    """Write what nobody commits, some time ago."""
    repo = frazil.Repository.open(storage, BY_CONTENT)
    written(repo, 5)
    make_old(storage, "chunks", hours=hours)


def limit_of(hours: int) -> datetime:
    return TOMORROW if hours > 0 else datetime.now(UTC) + timedelta(hours=hours)


def play(schedule: Schedule, what: str, version: int = 2, limit: datetime = TOMORROW) -> Any:
    """One who commits and one who collects, in that order of requests; checks what is left, and gives what
    became of the commit, which succeeds beside a collection of what is older than any session.
    """
    storage = MemoryStorage()
    repository(storage, version)
    hours = HOURS[what]
    if hours is not None:
        leave_a_chunk(storage, hours)
    config = CONFIG if hours is None else BY_CONTENT
    one, other = opened_by_two(storage, schedule, config)

    def commit() -> str:
        session = one.writable_session("main")
        write(session, 5)
        if what == "of a fork":
            fork = session.fork()
            write(fork, 5)
            session.merge(fork)
        return session.commit("late")

    committed, collected = schedule.run(commit, lambda: other.garbage_collect(limit))
    assert isinstance(collected, frazil.GCSummary), collected
    repo = frazil.Repository.open(storage, CONFIG)
    if isinstance(committed, str) or limit != TOMORROW:
        assert repo.lookup_branch("main") == committed
        newest = [[1, 1, 5, 5, 5, 5, 1, 1], [1] * 8]
    else:
        assert isinstance(committed, ConflictError | SessionStateError), committed
        assert committed.kind in REFUSED
        newest = [[1] * 8]
    repo.garbage_collect(TOMORROW)  # it restores nothing that the other collection deleted
    assert read_everything(frazil.Repository.open(storage, CONFIG)) == [*newest, [0] * 8]
    return committed


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 1), max_size=80),
    st.sampled_from(list(HOURS)),
    st.sampled_from([2, 2, 1]),
    st.sampled_from([-24, 24]),
)
def test_any_order_of_requests(order: list[int], what: str, version: int, hours: int) -> None:
    play(Schedule(order), what, version, limit_of(hours))


@pytest.mark.sample(1, 2)
@pytest.mark.deep
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("what", "version", "hours"),
    [*((each, 2, 24) for each in HOURS), ("own", 1, 24), ("young", 1, 24), ("young", 2, -24)],
)
def test_one_between_any_two_requests_of_the_other(first: int, what: str, version: int, hours: int) -> None:
    """All of one actor between two requests of the other; each of these orders."""
    ends = set()
    for cut in range(200):
        schedule = Schedule([first] * cut + [1 - first] * 200)
        ends.add(getattr(play(schedule, what, version, limit_of(hours)), "kind", "committed"))
        if [actor for actor, _ in schedule.requests].count(first) <= cut:
            break
    assert "committed" in ends
    assert cut > 8


def play_flush(schedule: Schedule, version: int) -> str:
    """One who flushes what he has written and one who collects; what became of the flush."""
    storage = MemoryStorage()
    repository(storage, version)
    one, other = opened_by_two(storage, schedule)

    def flush() -> str:
        return written(one, 5).flush("not on a branch")

    flushed, collected = schedule.run(flush, lambda: other.garbage_collect(TOMORROW))
    assert isinstance(collected, frazil.GCSummary), collected
    if not isinstance(flushed, str):
        assert flushed.kind in REFUSED, flushed
        return str(flushed.kind)
    repo = frazil.Repository.open(storage, CONFIG)
    try:
        repo.create_branch("flushed", flushed)
    except frazil.SnapshotNotFoundError:  # it was there before the collection, and no branch led to it
        return "collected"
    assert values(repo, branch="flushed") == [1, 1, 5, 5, 5, 5, 1, 1]
    return "whole"


@pytest.mark.sample(2, 2)
@pytest.mark.deep
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("version", [1, 2])
def test_a_flush_between_any_two_requests_of_a_collection(first: int, version: int) -> None:
    """And the other way round. Nothing conditional is written for a flush in version 1.

    In version 2, a flush that was not refused has a lease: no order of requests loses its snapshot.
    """
    ends = set()
    for cut in range(200):
        schedule = Schedule([first] * cut + [1 - first] * 200)
        ends.add(play_flush(schedule, version))
        if [actor for actor, _ in schedule.requests].count(first) <= cut:
            break
    assert "whole" in ends
    assert ("collected" in ends) == (version == 1)
    assert cut > 8


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first", range(0, 24, 3))
def test_versions_that_go_during_a_collection(first: int, version: int) -> None:
    """Another process expires versions and collects their files between two requests of a collection."""
    storage = MemoryStorage()
    repository(storage, version)
    schedule = Schedule([1] * first + [0] * 200)
    one, other = opened_by_two(storage, schedule)

    def expire_and_collect() -> frazil.GCSummary:
        one.expire_snapshots(TOMORROW)
        return one.garbage_collect(TOMORROW)

    for summary in schedule.run(expire_and_collect, lambda: other.garbage_collect(TOMORROW)):
        assert isinstance(summary, frazil.GCSummary), summary
    assert read_everything(frazil.Repository.open(storage, CONFIG)) == [[1] * 8]


def test_old_files_go_beside_a_fork() -> None:
    """A fork keeps what may be its own, no more."""
    repo = repository()
    repo.reset_branch("main", list(repo.ancestry(branch="main"))[1].id)
    make_old(repo.storage, days=900)
    session = repo.writable_session("main")
    write(session, 4)
    session.fork()
    summary = repo.garbage_collect(TOMORROW)
    assert (summary.snapshots_deleted, summary.manifests_deleted, summary.chunks_deleted) == (1, 1, 1)
    session.commit("still good")
    assert values(repo) == [0, 0, 4, 4, 4, 4, 0, 0]


def requests_of(repo: frazil.Repository, act: Callable[[frazil.Repository], object]) -> list[str]:
    requests: list[str] = []
    act(opened_by(repo.storage, Seen(repo.storage, requests.append)))
    return requests


def test_a_commit_that_meets_no_collection_asks_for_nothing() -> None:
    repo = repository()
    repo.garbage_collect(TOMORROW)
    requests = requests_of(repo, lambda repo: written(repo).commit("good"))
    assert not [what for what in requests if what.startswith(("list", "head", "get collections"))]


def kill_collection(storage: Any, at: str, limit: datetime = TOMORROW) -> None:
    with pytest.raises(Killed):
        opened_by(storage, killing(storage, 0, prefix=at)).garbage_collect(limit)


def test_a_commit_waits_for_a_collection_under_way() -> None:
    """It goes on when another collection has ended what the killed one had begun, or is refused for good."""
    repo = repository()
    session = written(repo)
    kill_collection(repo.storage, "delete chunks")
    assert collection_guard.is_collecting(repo.storage)
    require_refusal(session, ErrorKind.GARBAGE_COLLECTION_RUNNING)
    assert repo.garbage_collect(TOMORROW).chunks_deleted == 1
    require_refusal(session)
    assert values(repo) == [1] * 8


@pytest.mark.parametrize("at", ["list snapshots", "put repo", "delete chunks"])
def test_a_killed_collection_blocks_only_commits_whose_files_it_was_about_to_delete(at: str) -> None:
    repo = repository()
    session = repo.writable_session("main")
    written(repo, 3)
    kill_collection(repo.storage, at)
    write(session, 4)
    session.commit("of files that came later")
    assert values(repo) == [1, 1, 4, 4, 4, 4, 1, 1]


@pytest.mark.parametrize("version", [1, 2])
def test_what_killed_collections_have_left_goes_after_some_days(version: int) -> None:
    """A mark of spec version 1 stays, until a collection of spec version 2 finds it after an upgrade."""
    repo = repository(version=version)
    written(repo, 3)
    kill_collection(repo.storage, "delete chunks")
    collection_guard.announce(repo.storage)[0].end(repo.storage, leaves_mark=True)
    for days, left in ((0, 3), (9, int(version == 1))):  # a record, its list, and a mark
        make_old(repo.storage, "collections", days=days)
        repo.garbage_collect(datetime(2001, 1, 1, tzinfo=UTC))
        assert len(list(repo.storage.list("collections"))) == left


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_collection_that_fails_while_tasks_delete(monkeypatch: pytest.MonkeyPatch, elsewhere: bool) -> None:
    """Tasks that nobody waits for any more may go on: the list stays."""
    if elsewhere:
        pytest.importorskip("cloudpickle")  # of the extra `pipeline`
    repo = repository()
    session = written(repo)
    swept: list[ObjectListing] = []

    def fail(files: ObjectListing) -> DeletionResult:
        if files.folder == "chunks":
            swept.append(files)
            raise KeyboardInterrupt
        return DeletionResult()

    context, limit = repo._context, from_datetime(TOMORROW)
    monkeypatch.setattr(Sweeper, "sweep", lambda self, files: fail(files))
    with pytest.raises(KeyboardInterrupt):
        Collection(context, limit, "inline" if elsewhere else None).collect()
    assert collection_guard.is_collecting(repo.storage) is elsewhere
    if elsewhere:
        require_refusal(session, ErrorKind.GARBAGE_COLLECTION_RUNNING)
        repo.storage.delete(swept[0].keys())
    else:
        session.commit("of what nobody deletes")
    read_everything(repo)


def test_a_collection_whose_record_is_gone_deletes_nothing_more() -> None:
    repo = repository()
    storage, session = repo.storage, written(repo)

    @contextmanager
    def meet(what: str) -> Iterator[None]:
        yield
        if what == "put repo":
            storage.delete([info.key for info in storage.list("collections")])

    summary = opened_by(storage, Seen(storage, meet)).garbage_collect(TOMORROW)
    assert "chunks" in summary.skipped_phases
    assert summary.chunks_deleted == 0
    session.commit("still there")
    assert values(repo) == [1, 1, 4, 4, 4, 4, 1, 1]


def test_a_log_that_went_back_is_no_proof() -> None:
    """The repository was restored from a backup. What the session has seen is in no log any more, so nobody
    knows whether an entry of a collection came before or after it.
    """
    repo = repository()
    storage = repo.storage
    older = bytes(storage.get("repo"))
    repo.create_tag("seen", repo.lookup_branch("main"))
    before = {info.key for info in storage.list("chunks")}
    session = written(repo)
    storage.put("repo", older)
    info = repo._context.catalog.repo_info()
    assert collection_guard.has_collected(info, newest_update(info)) is False
    assert collection_guard.has_collected(info, session._state.seen) is None
    storage.delete({info.key for info in storage.list("chunks")} - before)
    require_refusal(session)


@pytest.mark.parametrize("order", [*itertools.product((0, 1), repeat=6)])
def test_collections_that_end_in_any_order_leave_a_mark(order: tuple[int, ...]) -> None:
    storage = MemoryStorage()
    schedule = Schedule(order)
    ends = []
    for actor in (0, 1):
        record = collection_guard.announce(storage)[0]
        seen = Seen(storage, partial(schedule.request, actor))
        ends.append(partial(record.end, seen, leaves_mark=True))
    assert schedule.run(*ends) == [None, None]
    assert any(record.is_done for record in collection_guard.collection_records(storage))


@pytest.mark.parametrize("forked", [False, True])
def test_chunks_of_an_expired_version_that_a_session_has_moved(forked: bool) -> None:
    """They are older than the session, and only its base had them."""
    repo = repository()
    make_old(repo.storage, days=2)
    session = repo.writable_session("main")
    fork = session.fork() if forked else None
    (fork or session).shift_array("/x", [1])
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="x")[:] = 9
    if fork is not None:
        session.merge(fork)
    session.rebase(frazil.BasicConflictSolver())
    yesterday = datetime.now(UTC) - timedelta(days=1)
    if forked:  # whose lease would spare them as long as it lasts, and may be gone
        repo.storage.delete([info.key for info in repo.storage.list("leases")])
    assert len(repo.expire_snapshots(repo.lookup_snapshot(repo.lookup_branch("main")).written_at)) == 2
    assert repo.garbage_collect(yesterday).chunks_deleted == 1
    require_refusal(session)
    assert values(repo) == [9] * 8


def test_chunks_of_a_branch_that_goes_while_it_is_merged() -> None:
    repo = repository()
    repo.create_branch("dev", repo.lookup_branch("main"))
    for branch, value in (("main", 2), ("dev", 3)):
        with repo.transaction(branch, message=branch) as store:
            zarr.open_array(store, path="x")[:] = value
    make_old(repo.storage, days=2)

    class Slow(frazil.ConflictSolver):
        def solve(self, conflicts: Any) -> list[frazil.VersionSelection]:
            repo.delete_branch("dev")
            repo.garbage_collect(datetime.now(UTC) - timedelta(days=1))
            return [frazil.VersionSelection.UseOurs] * len(conflicts)

    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.GARBAGE_COLLECTED)):
        repo.merge("dev", solver=Slow())
    assert values(repo) == [2] * 8


def test_a_rebased_session_with_chunks_of_its_own_minds_no_collection_under_way() -> None:
    repo = repository()
    repo.reset_branch("main", list(repo.ancestry(branch="main"))[1].id)
    make_old(repo.storage, days=2)
    session = repo.writable_session("main")
    write(session, 4)
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="x")[:2] = 9
    session.rebase(frazil.ConflictDetector())
    kill_collection(repo.storage, "delete chunks", datetime.now(UTC) - timedelta(days=1))
    session.commit("ours")
    assert values(repo) == [9, 9, 4, 4, 4, 4, 0, 0]
