"""Sessions and commits: what is committed is there, what is not is not."""

import contextlib
import datetime as dt
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError, SnapshotNotFoundError, StorageError
from frazil.testing import Fault, FaultyStorage


@pytest.fixture(params=["memory", "local"])
def storage(request, tmp_path):
    if request.param == "memory":
        return frazil.in_memory_storage()
    return frazil.local_filesystem_storage(str(tmp_path / "repo"))


@pytest.fixture
def repo(storage):
    return frazil.Repository.create(storage)


def fill(store, name="a", value=1, shape=(4,), chunks=(2,)):
    array = zarr.create_array(
        store, name=name, shape=shape, chunks=chunks, dtype="i4", compressors=None, overwrite=True
    )
    array[:] = value
    return array


def values(session, path="a"):
    return zarr.open_array(session.store, path=path, mode="r")[:].tolist()


def test_a_commit_is_seen_by_new_sessions_only(repo):
    before = repo.readonly_session("main")
    session = repo.writable_session("main")
    fill(session.store)
    during = repo.readonly_session("main")
    id_ = session.commit("first", {"who": "me", "n": 1, "list": [1, None, {"a": 2.5}]})
    after = repo.readonly_session("main")
    assert [list(zarr.open_group(s.store, mode="r").array_keys()) for s in (after,)] == [["a"]]
    for early in (before, during):
        with pytest.raises(FileNotFoundError):
            zarr.open_group(early.store, mode="r")
    commit = next(repo.ancestry(branch="main"))
    assert (commit.id, commit.message) == (id_, "first")
    assert commit.metadata == {"who": "me", "n": 1, "list": [1, None, {"a": 2.5}]}
    assert commit.parent_id == before.snapshot_id


def test_after_its_commit_a_session_reads_the_new_snapshot(repo):
    session = repo.writable_session("main")
    fill(session.store)
    id_ = session.commit("first")
    assert (session.read_only, session.snapshot_id, session.has_uncommitted_changes) == (True, id_, False)
    assert values(session) == [1, 1, 1, 1]
    with pytest.raises(ReadOnlyError) as error:
        session.store.set_sync(
            "zarr.json", zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"{}")
        )
    assert error.value.kind == ErrorKind.READ_ONLY_STORE
    with pytest.raises(SessionStateError) as error:
        session.commit("again")
    assert error.value.kind == ErrorKind.COMMIT_NOT_ALLOWED


def test_no_changes_is_an_error_unless_allowed(repo):
    session = repo.writable_session("main")
    with pytest.raises(SessionStateError) as error:
        session.commit("nothing")
    assert error.value.kind == ErrorKind.NO_CHANGES_TO_COMMIT
    id_ = session.commit("nothing", allow_empty=True)
    assert repo.lookup_branch("main") == id_
    with pytest.raises(SessionStateError), repo.transaction("main", message="empty"):
        pass


def test_a_transaction_that_raises_commits_nothing(repo):
    def work():
        with repo.transaction("main", message="no") as store:
            fill(store)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        work()
    assert len(list(repo.ancestry(branch="main"))) == 1


def test_status_and_discard(repo):
    with repo.transaction("main", message="first") as store:
        fill(store)
    session = repo.writable_session("main")
    assert session.status().is_empty()
    zarr.open_array(session.store, path="a", mode="r+")[0] = 5
    fill(session.store, "b")
    zarr.open_array(session.store, path="a", mode="r+").update_attributes({"k": 1})
    status = session.status()
    assert (status.new_arrays, status.updated_arrays) == ({"/b"}, {"/a"})
    assert status.updated_chunks == {"/a": [[0]], "/b": [[0], [1]]}
    session.discard_changes()
    assert session.status().is_empty()
    assert values(session) == [1, 1, 1, 1]
    assert not session.has_uncommitted_changes


def test_the_loser_of_a_race_gets_both_parents_and_keeps_its_changes(repo):
    one, two = repo.writable_session("main"), repo.writable_session("main")
    base = one.snapshot_id
    fill(one.store, "one")
    fill(two.store, "two")
    won = one.commit("one")
    with pytest.raises(frazil.ConflictError) as error:
        two.commit("two")
    assert (error.value.expected_parent, error.value.actual_parent) == (base, won)
    assert error.value.kind == ErrorKind.COMMIT_CONFLICT
    assert values(two, "two") == [1, 1, 1, 1]
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_a_race_lost_at_the_last_moment():
    """The other commit comes after this one has looked at the branch, while it writes its snapshot."""
    rivals = []

    def choose(key, condition):
        if key.startswith("snapshots/") and rivals:
            rivals.pop().commit("rival")

    repo = frazil.Repository.create(FaultyStorage(frazil.in_memory_storage(), choose))
    session, rival = repo.writable_session("main"), repo.writable_session("main")
    fill(session.store, "mine")
    fill(rival.store, "rival")
    rivals.append(rival)
    with pytest.raises(frazil.ConflictError) as error:
        session.commit("mine")
    assert (error.value.expected_parent, error.value.actual_parent) == (
        session.snapshot_id,
        repo.lookup_branch("main"),
    )
    assert [commit.message for commit in repo.ancestry(branch="main")] == ["rival", "Repository initialized"]


def test_a_session_ends(storage, monkeypatch):
    config = frazil.RepositoryConfig(session_lifetime=dt.timedelta(days=7))
    repo = frazil.Repository.create(storage, config)
    session = repo.writable_session("main")
    fill(session.store)
    fork = session.fork()
    fill(fork.store, value=9)
    other = repo.writable_session("main")
    assert session.session_id == fork.session_id != other.session_id
    assert session.expires_at == fork.expires_at <= other.expires_at
    end = round(session.expires_at.timestamp() * 1e6)
    monkeypatch.setattr("frazil.repository.session.commit.now_us", lambda: end - 1)
    fill(session.store, value=2)
    monkeypatch.setattr("frazil.repository.session.commit.now_us", lambda: end)
    for write in (
        lambda: session.commit("late"),
        lambda: fill(session.store),
        lambda: fill(fork.store),
        lambda: session.merge(fork),
    ):
        with pytest.raises(SessionStateError, match=r"this session expired at .* a new session") as error:
            write()
        assert error.value.kind == ErrorKind.SESSION_EXPIRED
    assert repo.lookup_branch("main") == session.snapshot_id
    assert zarr.open_array(session.store, path="a", mode="r")[0] == 2  # reading goes on
    session.discard_changes()
    usual = frazil.Repository.open(storage, frazil.RepositoryConfig(session_lifetime=dt.timedelta(hours=24)))
    left = usual.writable_session("main").expires_at - dt.datetime.now(dt.UTC)
    assert dt.timedelta(hours=23) < left <= dt.timedelta(hours=24)


def test_one_session_has_a_lifetime_of_its_own(storage, monkeypatch):
    repo = frazil.Repository.create(storage, frazil.RepositoryConfig(session_lifetime=dt.timedelta(hours=24)))
    now = dt.datetime.now(dt.UTC)
    for days in (1 / 24, 3, 7):
        session = repo.writable_session("main", lifetime=dt.timedelta(days=days))
        fill(session.store)
        assert abs(session.expires_at - now - dt.timedelta(days=days)) < dt.timedelta(minutes=1)
        assert session.fork().expires_at == session.expires_at
        # a commit looks for what collections have taken since the session was opened, or longer
        assert session._state.session_start().since / 1e6 < now.timestamp() + 60
    end = round(session.expires_at.timestamp() * 1e6)
    monkeypatch.setattr("frazil.repository.session.commit.now_us", lambda: end - 1)
    fill(session.store, value=5)
    monkeypatch.setattr("frazil.repository.session.commit.now_us", lambda: end)
    with pytest.raises(SessionStateError, match="this session expired"):
        session.commit("late")
    usual = repo.writable_session("main")
    assert usual.expires_at - now < dt.timedelta(hours=25)


@pytest.mark.parametrize(
    "lifetime", [dt.timedelta(0), dt.timedelta(days=-1), dt.timedelta(days=7, seconds=1)]
)
def test_the_lifetime_of_a_session_has_bounds(repo, lifetime):
    with pytest.raises(frazil.InvalidInputError, match=r"lifetime must be .* at most 7 days") as error:
        repo.writable_session("main", lifetime=lifetime)
    assert error.value.kind == ErrorKind.INVALID_COMMIT_CONFIGURATION
    with pytest.raises(TypeError):
        repo.writable_session("main", lifetime=3600)


def test_time_travel(repo):
    times, ids = [dt.datetime.now(dt.UTC)], []
    for n in range(3):
        with repo.transaction("main", message=str(n)) as store:
            fill(store, value=n)
        ids.append(repo.lookup_branch("main"))
        times.append(dt.datetime.now(dt.UTC))
    assert [values(repo.readonly_session(snapshot_id=id_))[0] for id_ in ids] == [0, 1, 2]
    assert [values(repo.readonly_session("main", as_of=when))[0] for when in times[1:]] == [0, 1, 2]
    with pytest.raises(SnapshotNotFoundError) as error:
        repo.readonly_session("main", as_of=times[0] - dt.timedelta(days=1))
    assert error.value.kind == ErrorKind.NO_SNAPSHOT_AT_TIME
    with pytest.raises(TypeError, match="time zone"):
        repo.readonly_session("main", as_of=dt.datetime(2020, 1, 1))
    for wrong in ({}, {"branch": "main", "tag": "t"}, {"tag": "t", "snapshot_id": ids[0]}):
        with pytest.raises(ValueError, match="one of"):
            repo.readonly_session(**wrong)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.MET_ITSELF, Fault.LOST, Fault.REFUSED])
def test_a_fault_at_the_last_write_of_a_commit(fault):
    """Whatever happens to the one write that counts, the commit is there, and once."""
    faults = iter([])
    storage = FaultyStorage(
        frazil.in_memory_storage(), lambda key, condition: next(faults, None) if key == "repo" else None
    )
    repo = frazil.Repository.create(storage)
    session = repo.writable_session("main")
    fill(session.store)
    faults = iter([fault])
    id_ = session.commit("once")
    assert repo.lookup_branch("main") == id_
    assert [c.message for c in repo.ancestry(branch="main")] == ["once", "Repository initialized"]
    assert values(repo.readonly_session("main")) == [1, 1, 1, 1]


@pytest.mark.parametrize("part", ["chunks/", "manifests/", "snapshots/", "transactions/"])
def test_a_failed_upload_fails_the_commit_and_a_retry_succeeds(part):
    broken = False
    storage = FaultyStorage(
        frazil.in_memory_storage(),
        lambda key, condition: Fault.LOST if broken and key.startswith(part) else None,
    )
    repo = frazil.Repository.create(storage)
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(4000,), chunks=(1000,), dtype="u1", compressors=None
    )
    broken = True
    array[:] = np.arange(4000) % 251
    with pytest.raises(frazil.StorageError):
        session.commit("no")
    assert len(list(repo.ancestry(branch="main"))) == 1
    broken = False
    session.commit("yes")
    stored = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:]
    assert np.array_equal(stored, np.arange(4000) % 251)


def test_a_commit_writes_only_the_manifests_it_must(repo, storage):
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        manifest=frazil.ManifestConfig(
            splitting=frazil.ManifestSplittingConfig.from_dict(
                {frazil.ManifestSplitCondition.AnyArray(): {frazil.ManifestSplitDimCondition.Any(): 3}}
            )
        ),
    )
    repo = frazil.Repository.open(storage, config)
    session = repo.writable_session("main")
    fill(session.store, shape=(12,), chunks=(1,))
    fill(session.store, "b", shape=(2,), chunks=(1,))
    first = {file.id for file in repo.list_manifest_files(session.commit("first"))}
    assert len(first) == 5
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[4] = 9
    second = {file.id for file in repo.list_manifest_files(session.commit("second"))}
    assert (len(second), len(second - first)) == (5, 1)
    assert values(repo.readonly_session("main")) == [1, 1, 1, 1, 9, 1, 1, 1, 1, 1, 1, 1]


def test_small_chunks_share_files_and_large_ones_do_not(storage):
    def files():
        return sum(1 for _ in storage.list("chunks"))

    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="small") as store:
        fill(store, shape=(100_000,), chunks=(1000,))
    assert files() == 1
    with repo.transaction("main", message="large") as store:
        fill(store, "b", shape=(1_000_000,), chunks=(500_000,))
    assert files() == 3
    unpacked = frazil.Repository.open(
        storage, frazil.RepositoryConfig(packing=frazil.PackingConfig(enabled=False))
    )
    with unpacked.transaction("main", message="unpacked") as store:
        fill(store, "c", shape=(4000,), chunks=(1000,))
    assert files() == 7


def test_chunk_queries(repo, tmp_path):
    session = repo.writable_session("main")
    fill(session.store, "inline", shape=(4,), chunks=(2,))
    fill(session.store, "native", shape=(4000,), chunks=(2000,))
    zarr.create_array(session.store, name="none", shape=(4,), chunks=(2,), dtype="i4")
    session.commit("x")
    read = repo.readonly_session("main")
    kinds = [read.chunk_type(f"/{name}", [1]) for name in ("inline", "native", "none")]
    assert kinds == [frazil.ChunkType.inline, frazil.ChunkType.native, frazil.ChunkType.uninitialized]
    assert read.all_virtual_chunk_locations() == []
    assert len(read.get_node_id("native")) == 13
    with pytest.raises(frazil.NodeNotFoundError):
        read.chunk_type("/nope", [0])


async def test_chunk_coordinates(repo):
    session = repo.writable_session("main")
    fill(session.store, shape=(4, 6), chunks=(2, 3))
    coordinates = [coords async for coords in session.chunk_coordinates("/a", batch_size=3)]
    assert coordinates == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_read_only_sessions_travel(repo):
    with repo.transaction("main", message="first") as store:
        fill(store)
    session = pickle.loads(pickle.dumps(repo.readonly_session("main")))
    assert values(session) == [1, 1, 1, 1]
    other = pickle.loads(pickle.dumps(repo))
    assert other.lookup_branch("main") == session.snapshot_id


async def test_the_async_twins(repo):
    session = await repo.writable_session_async("main")
    fill(session.store)
    id_ = await session.commit_async("first")
    assert await repo.lookup_branch_async("main") == id_
    assert (await repo.lookup_snapshot_async(id_)).message == "first"


def test_a_lost_snapshot_is_an_error_and_no_empty_repository(storage):
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="first") as store:
        fill(store)
    storage.delete([f"snapshots/{repo.lookup_branch('main')}"])
    again = frazil.Repository.open(storage)
    for session, mode in ((again.readonly_session("main"), "r"), (again.writable_session("main"), "a")):
        with pytest.raises(StorageError, match=session.snapshot_id) as error:
            zarr.open_group(session.store, mode=mode)
        assert error.value.kind == ErrorKind.OBJECT_NOT_FOUND


def test_a_session_that_has_committed_is_on_no_branch(repo):
    session = repo.writable_session("main")
    fill(session.store)
    assert session.branch == "main"
    session.commit("first")
    assert session.branch is None


def test_writes_during_a_commit_are_in_it_or_refused(repo):
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, shape=(2000,), chunks=(1,), dtype="i4")
    stored_rows, started = [], threading.Event()

    def write(first):
        with contextlib.suppress(ReadOnlyError):
            for i in range(first, 2000, 2):
                array[i] = 1
                stored_rows.append(i)
                if len(stored_rows) > 50:
                    started.set()

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    started.wait(10)
    session.commit("meanwhile")
    for thread in threads:
        thread.join()
    assert len(stored_rows) < 2000
    after = zarr.open_array(repo.readonly_session("main").store, mode="r")[:]
    assert np.flatnonzero(after).tolist() == sorted(stored_rows)


def test_of_two_commits_of_one_session_one_is_refused(repo):
    session = repo.writable_session("main")
    fill(session.store)
    with ThreadPoolExecutor(3) as threads:
        commits = [threads.submit(session.commit, "once") for _ in range(3)]
    errors = [error for commit in commits if (error := commit.exception())]
    assert [error.kind for error in errors] == [ErrorKind.COMMIT_NOT_ALLOWED] * 2


def test_a_merge_after_the_commit_is_refused(repo):
    session = repo.writable_session("main")
    fill(session.store)
    workspace, fork = session.workspace, session.fork()
    zarr.open_array(fork.store, path="a")[0] = 7
    session.commit("first")
    for place in (workspace, session.workspace):
        with pytest.raises(ReadOnlyError):
            place.seal_changes(fork.workspace.own_changes())


# ---- sessions without a handle ----------------------------------------------------------------------


def test_a_session_can_be_opened_without_a_handle(storage, repo):
    empty = repo.lookup_branch("main")
    with repo.transaction("main", message="one") as store:
        fill(store, value=1)
    repo.create_tag("v1", repo.lookup_branch("main"))
    one = next(repo.ancestry(branch="main")).written_at
    with repo.transaction("main", message="two") as store:
        fill(store, value=2)
    opened = frazil.Repository.open_session
    assert values(opened(storage)) == values(opened(storage, "main")) == [2] * 4
    assert values(opened(storage, tag="v1")) == values(opened(storage, "main", as_of=one)) == [1] * 4
    assert opened(storage, snapshot_id=empty).snapshot_id == empty
    assert opened(storage).read_only
    with pytest.raises(ValueError, match="expected exactly one of branch, tag and snapshot_id"):
        opened(storage, "main", tag="v1")
    with pytest.raises(frazil.RefNotFoundError):
        opened(storage, "dev")
    with pytest.raises(frazil.RepositoryNotFoundError):
        opened(frazil.in_memory_storage())


def test_a_session_without_a_handle_has_its_own_configuration(storage, repo):
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=77)
    session = frazil.Repository.open_session(storage, config=config)
    assert session.config.inline_chunk_threshold_bytes == 77


def test_a_session_of_spec_version_1_without_a_handle():
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage, spec_version=1)
    with repo.transaction("main", message="one") as store:
        fill(store)
    assert values(frazil.Repository.open_session(storage)) == [1] * 4
