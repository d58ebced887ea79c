"""What a session has read: declared or tracked, compared before each rebase, and what that is good for."""

import asyncio
import itertools
import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from tests.counting import A_FEW_STEPS, python_steps
from tests.support.patience import patience
from zarr.core.buffer import default_buffer_prototype

import frazil
from frazil.changes.diff import NodeChanges
from frazil.changes.reads import ReadSet, joined_reads, stale_reads
from frazil.conflicts import BasicConflictSolver, ConflictDetector, ConflictSolver, StaleRead
from frazil.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NodeNotFoundError,
    RebaseFailedError,
    StaleReadError,
)
from frazil.repository.session import commit as commit_module
from frazil.repository.session import session as session_module
from frazil.repository.session.commit_files import PendingCommit
from frazil.storage.checks import TRAFFIC
from frazil.storage.memory import MemoryStorage

OURS = BasicConflictSolver()
#: What a commit or a rebase may have to go on top of others.
SOLVERS = [ConflictDetector(), OURS]


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def repo(request: pytest.FixtureRequest) -> frazil.Repository:
    return repository(request.param)


def repository(spec_version: int = 2, config: frazil.RepositoryConfig | None = None) -> frazil.Repository:
    """Arrays ``foo`` and ``bar`` of four chunks of ten ones, and a group with an array ``inside``."""
    repo = frazil.Repository.create(MemoryStorage(), config, spec_version=spec_version)
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        for path in ("foo", "bar", "group/inside", "wide/plane"):
            shape = (40, 40) if path.endswith("plane") else (40,)
            root.create_array(path, shape=shape, chunks=(10,) * len(shape), dtype="i4")[...] = 1
    return repo


def opened(session: frazil.Session, path: str) -> zarr.Array[Any]:
    return zarr.open_array(session.store, path=path)


def put(path: str, where: Any = slice(None), value: int = 7) -> Callable[[frazil.Session], None]:
    def change(session: frazil.Session) -> None:
        opened(session, path)[where] = value

    return change


def create(path: str) -> Callable[[frazil.Session], None]:
    def change(session: frazil.Session) -> None:
        zarr.create_array(session.store, name=path, shape=(2,), chunks=(1,), dtype="i4")[:] = 1

    return change


def delete(path: str) -> Callable[[frazil.Session], None]:
    return lambda session: session.workspace.delete_node(f"/{path}")


def attribute(path: str, value: int = 1) -> Callable[[frazil.Session], None]:
    def change(session: frazil.Session) -> None:
        zarr.open(session.store, path=path).attrs["unit"] = value

    return change


def others(repo: frazil.Repository, *changes: Callable[[frazil.Session], None]) -> str:
    """Each change in a commit of its own; the id of the last."""
    for change in changes:
        session = repo.writable_session("main")
        change(session)
        id_ = session.commit("others")
    return id_


def stale(is_stale: bool) -> Any:
    """Expect the error of a stale read, or none."""
    return pytest.raises(StaleReadError) if is_stale else nullcontext()


# Declared


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_a_result_of_an_input_that_others_changed_is_refused(repo: frazil.Repository, solver: Any) -> None:
    session = repo.writable_session("main")
    opened(session, "bar")[:] = np.asarray(opened(session, "foo")[:]) * 10
    culprit = others(repo, put("foo", slice(0, 10)))
    tip = others(repo, put("group/inside"))
    with pytest.raises(StaleReadError, match=rf"{culprit}: `/foo`: another session .*\[0\]") as error:
        session.commit("bar", rebase_with=solver, reads=["/foo"])
    assert error.value.kind == ErrorKind.STALE_READ
    assert error.value.snapshot == culprit
    chunk = np.array([[0]], np.uint32)
    assert error.value.reads == [StaleRead("/foo", "another session wrote the chunks", chunk)]
    assert "Read and write again in a new session" in str(error.value)
    assert isinstance(error.value, ConflictError)
    assert isinstance(error.value, RebaseFailedError)
    assert error.value.conflicts == []
    assert repo.lookup_branch("main") == tip
    assert session.has_uncommitted_changes
    with pytest.raises(StaleReadError):  # nor at the next attempt
        session.commit("bar", rebase_with=solver, reads=["/foo"])


@pytest.mark.sample(25, 25)
@pytest.mark.deep
@pytest.mark.parametrize(
    ("reads", "change", "is_stale"),
    [
        (["foo"], put("foo", 3), True),
        (["foo"], put("bar", 3), False),
        (["foo"], attribute("foo"), True),
        (["foo"], attribute("group"), False),
        (["foo"], delete("foo"), True),
        (["group"], put("group/inside", 1), True),
        (["group"], create("group/new"), True),
        (["group"], delete("group/inside"), True),
        (["group"], attribute("group"), True),
        (["group/inside"], delete("group"), True),
        (["group/inside"], create("group/new"), False),
        (["/"], put("group/inside", 1), True),
        (["/"], create("new"), True),
        ([""], attribute(""), True),
        ([("foo", slice(0, 10))], put("foo", slice(0, 10)), True),
        ([("foo", slice(0, 10))], put("foo", slice(10, 20)), False),
        ([("foo", slice(5, 15))], put("foo", slice(10, 20)), True),
        ([("foo", -1)], put("foo", slice(30, 40)), True),
        ([("foo", slice(None, None, -1))], put("foo", 0), True),
        ([("foo", slice(35, 5, -10))], put("foo", 0), False),
        ([("foo", slice(0, 0))], put("foo", 0), False),
        ([("foo", slice(0, 10))], attribute("foo"), True),
        ([("foo", slice(0, 10))], delete("foo"), True),
        ([("foo", slice(0, 10)), ("foo", slice(30, 40))], put("foo", 35), True),
        ([("foo", slice(0, 10)), ("foo", slice(30, 40))], put("foo", 25), False),
        ([("foo", ...)], put("foo", 25), True),
        ([("wide/plane", np.s_[0:10, 0:10])], put("wide/plane", np.s_[0:10, 10:20]), False),
        ([("wide/plane", np.s_[0:10])], put("wide/plane", np.s_[0:10, 10:20]), True),
        ([("wide/plane", np.s_[..., 15])], put("wide/plane", np.s_[30:40, 10:20]), True),
        ([("wide/plane", np.s_[..., 15])], put("wide/plane", np.s_[:, 20:30]), False),
        ([], put("foo", 3), False),
    ],
)
def test_each_kind_of_change_meets_the_reads_that_it_touches(
    repo: frazil.Repository, reads: list[Any], change: Callable[[frazil.Session], None], is_stale: bool
) -> None:
    session = repo.writable_session("main")
    create("result")(session)
    others(repo, put("wide/plane", (39, 39)), change)  # more than one commit
    with stale(is_stale):
        session.commit("result", rebase_with=ConflictDetector(), reads=reads)
    assert is_stale or frazil.read(repo.readonly_session("main"), "result").tolist() == [1, 1]


def test_a_region_of_a_rectilinear_grid_is_the_chunks_that_hold_it() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with zarr.config.set({"array.rectilinear_chunks": True}):
        with repo.transaction("main", message="base") as store:
            for name in ("foo", "bar"):
                zarr.create_array(store, name=name, shape=(10,), chunks=[[1, 2, 3, 4]], dtype="i4")[:] = 1
        for selection, where, is_stale in [
            (slice(3, 6), slice(0, 3), False),
            (slice(3, 6), 5, True),
            (slice(2, 4), slice(6, 10), False),
            (slice(2, 4), 1, True),
            (0, 1, False),
        ]:
            session = repo.writable_session("main")
            put("bar")(session)
            others(repo, put("foo", where, value=hash((str(selection), str(where))) % 1000))
            with stale(is_stale):
                session.commit("bar", rebase_with=ConflictDetector(), reads=[("foo", selection)])


@pytest.mark.sample(17)
@pytest.mark.parametrize(
    ("reads", "error"),
    [
        (["nowhere"], NodeNotFoundError),
        ([("nowhere", slice(3))], NodeNotFoundError),
        (["a//b"], InvalidInputError),
        ([("group", slice(3))], InvalidInputError),
        ([("foo", 40)], InvalidInputError),
        ([("foo", np.s_[0, 0])], InvalidInputError),
        ([("foo", np.s_[..., ...])], InvalidInputError),
        ([("foo", slice("a"))], InvalidInputError),
        ([("foo", None)], None),
        ([("foo", True)], InvalidInputError),
        ([("foo", [1, 2])], InvalidInputError),
        ([3], TypeError),
        (["foo", ("foo", 1, 2)], TypeError),
        ("foo", TypeError),
    ],
)
def test_what_cannot_be_declared_is_an_error_at_once(
    repo: frazil.Repository, reads: Any, error: type[Exception] | None
) -> None:
    session = repo.writable_session("main")
    put("bar")(session)
    tip = repo.lookup_branch("main")
    if error is None:
        session.rebase(ConflictDetector(), reads=reads)
        return
    with pytest.raises(error, match=r"reads|path|the node at `/group` must be an array"):
        session.commit("bar", reads=reads)
    with pytest.raises(error):
        session.rebase(ConflictDetector(), reads=reads)
    with pytest.raises(error), repo.transaction("main", message="bar", reads=reads):
        pytest.fail("the block began")
    assert repo.lookup_branch("main") == tip


def test_an_earlier_rebase_that_knew_nothing_of_the_reads_hides_nothing(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    opened(session, "bar")[:] = np.asarray(opened(session, "foo")[:]) * 10
    culprit = others(repo, put("foo"))
    session.rebase(ConflictDetector())
    with pytest.raises(StaleReadError) as error:
        session.commit("bar", reads=["foo"])
    assert error.value.snapshot == culprit
    session.commit("bar", reads=["group"])


def test_a_change_that_was_taken_back_is_none() -> None:
    repo = repository()
    with repo.transaction("main", message="unit") as store:
        zarr.open_array(store, path="foo").attrs["unit"] = 0
    session = repo.writable_session("main")
    put("bar")(session)
    others(repo, attribute("foo", 5), attribute("foo", 0), create("new"), delete("new"))
    session.commit("bar", rebase_with=ConflictDetector(), reads=["/"])


def test_fast_forwards_and_transactions_compare_as_well() -> None:
    repo = repository(config=frazil.RepositoryConfig(fast_forward_timeout=timedelta(seconds=patience(20))))
    session = repo.writable_session("main")
    put("bar")(session)
    others(repo, put("foo", 3))
    with pytest.raises(StaleReadError):
        session.commit("bar", reads=["foo"])
    with pytest.raises(StaleReadError):
        asyncio.run(session.commit_async("bar", reads=["foo"]))
    with pytest.raises(StaleReadError):
        asyncio.run(session.rebase_async(ConflictDetector(), reads=["foo"]))
    session.commit("bar", reads=[("foo", slice(10, 40)), "group"])
    options: list[dict[str, Any]] = [{"reads": iter(["foo"])}, {"track_reads": True}]
    for number, more in enumerate(options):
        with pytest.raises(StaleReadError):
            late(repo, number, **more)


def late(repo: frazil.Repository, number: int, **more: Any) -> None:
    """A transaction whose input others change before it commits."""
    with repo.transaction("main", message="late", **more) as store:
        zarr.open_array(store, path="bar")[:] = zarr.open_array(store, path="foo")[:]
        others(repo, put("foo", 4, value=100 + number))


def test_each_attempt_compares(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input changes between the first rebase, which had nothing against it, and the second."""
    session = repo.writable_session("main")
    put("bar")(session)
    others(repo, put("group/inside"))
    attempts = []
    real = commit_module.write_commit

    def write_commit(pending: PendingCommit) -> bytes:
        if pending.message == "bar":
            attempts.append(1)
            if len(attempts) == 2:
                others(repo, put("foo"))
        return real(pending)

    monkeypatch.setattr(session_module, "write_commit", write_commit)
    with pytest.raises(StaleReadError):
        session.commit("bar", rebase_with=ConflictDetector(), reads=["foo"])
    assert len(attempts) == 2


def test_a_comparison_costs_no_request() -> None:
    repo = repository()
    requests = []
    declared: list[list[Any]] = [[], ["group", ("foo", slice(3))]]
    for reads in declared:
        session = repo.writable_session("main")
        session.workspace.write_chunk("/bar", (0,), b"12345678")
        others(repo, put("wide/plane", value=len(reads)))
        TRAFFIC.take_counts()
        session.rebase(OURS, reads=reads)
        requests.append(TRAFFIC.take_counts().requests)
    assert requests[0] == requests[1] > 0


def test_comparisons_take_no_step_for_a_chunk() -> None:
    steps = []
    for count in (1_000, 10_000):
        column = np.stack([np.arange(count), np.arange(count)], axis=1).astype(np.uint32)
        theirs = NodeChanges(chunk_paths={b"12345678": "/foo"}, chunks={b"12345678": column})
        reads = joined_reads([ReadSet(chunks={"/foo": (column[::2],)})] * 2)
        steps.append(python_steps(partial(stale_reads, reads, theirs)))
        (stale,) = stale_reads(reads, theirs)
        assert stale.chunks is not None
        assert len(stale.chunks) == count // 2
    assert steps[1] <= steps[0] + A_FEW_STEPS


@pytest.mark.parametrize("kind", ["members", "trees"])
def test_comparisons_take_as_many_steps_for_each_group_of_many(kind: str) -> None:
    steps = []
    for count in (100, 1_000):
        groups = [f"/all/{number:04}" for number in range(count)]
        nodes = [f"{group}/{name}" for group in groups for name in "bca"]
        theirs = NodeChanges(created={str(number).encode(): path for number, path in enumerate(nodes)})
        paths: Any = {kind: frozenset(groups)}
        reads = ReadSet(**paths)
        steps.append(python_steps(partial(stale_reads, reads, theirs)))
        stale = stale_reads(reads, theirs)
        assert [each.path for each in stale] == groups
        assert f"`{groups[0]}/a`" in str(stale[0])
    assert steps[1] <= 15 * steps[0]


# Moves


@pytest.mark.parametrize(
    ("move", "reads", "is_stale"),
    [
        (("/foo", "/group/foo"), ["foo"], True),
        (("/foo", "/group/foo"), [("foo", 0)], True),
        (("/group", "/elsewhere"), ["group/inside"], True),
        (("/group", "/elsewhere"), [("group/inside", 0)], True),
        (("/group", "/elsewhere"), ["group"], True),
        (("/group", "/elsewhere"), ["/"], True),
        (("/foo", "/group/foo"), ["group"], True),
        (("/foo", "/group/foo"), ["wide"], False),
        (("/foo", "/group/foo"), ["group/inside"], False),
    ],
)
def test_moves_by_others(move: tuple[str, str], reads: list[Any], is_stale: bool) -> None:
    repo = repository()
    session = repo.writable_session("main")
    put("bar")(session)
    rearranging = repo.rearrange_session("main")
    rearranging.move(*move)
    rearranging.commit("move")
    others(repo, put("wide/plane", 0) if "wide" not in reads else create("new"))
    with stale(is_stale):
        session.rebase(ConflictDetector(), reads=reads)


# Tracked


def tracking(repo: frazil.Repository) -> frazil.Session:
    return repo.writable_session("main", track_reads=True)


def members(session: frazil.Session, path: str = "group") -> list[str]:
    return sorted(zarr.open_group(session.store, path=path).array_keys())


def refused(method: str, path: str, index: list[int], session: frazil.Session) -> None:
    with pytest.raises(NodeNotFoundError):
        getattr(session, method)(path, index)


READS: dict[str, Callable[[frazil.Session], Any]] = {
    "a part of foo": lambda session: opened(session, "foo")[0:10],
    "a part of plane": lambda session: opened(session, "wide/plane")[0:10, 0:10],
    "attributes": lambda session: dict(opened(session, "foo").attrs),
    "members": members,
    "is there": lambda session: asyncio.run(session.store.exists("new/zarr.json")),
    "nothing there": lambda session: "new" in zarr.open_group(session.store),
    "size": lambda session: asyncio.run(session.store.getsize("foo/c/0")),
    "sizes": lambda session: asyncio.run(session.store.getsize_prefix("group")),
    "is empty": lambda session: asyncio.run(session.store.is_empty("new")),
    "keys": lambda session: asyncio.run(listed(session.store.list())),
    "chunks there": lambda session: asyncio.run(listed(session.store.list_dir("foo/c"))),
    "partial": lambda session: asyncio.run(
        session.store.get_partial_values(default_buffer_prototype(), [("foo/c/0", None)])
    ),
    "references": lambda session: session.chunk_table("/foo"),
    "batches": lambda session: list(session.store.array_chunk_iterator("/foo")),
    "coordinates": lambda session: asyncio.run(listed(session.chunk_coordinates("/foo"))),
    "kind of a chunk": lambda session: session.chunk_type("/foo", [0]),
    "kind of a chunk that cannot be": lambda session: [
        session.chunk_type("/foo", [index]) for index in (-1, 1 << 32, 1 << 70)
    ],
    "kind of a chunk of nothing": partial(refused, "chunk_type", "/new", [0]),
    "id": lambda session: session.get_node_id("/foo"),
    "locations": lambda session: session.all_virtual_chunk_locations(),
    "shift": lambda session: session.shift_array("/foo", [0]),
}


async def listed(items: Any) -> list[Any]:
    return [each async for each in items]


@pytest.mark.sample(33, 33)
@pytest.mark.deep
@pytest.mark.parametrize(
    ("read", "change", "is_stale"),
    [
        ("a part of foo", put("foo", slice(0, 10)), True),
        ("a part of foo", put("foo", slice(20, 30)), False),
        ("a part of foo", attribute("foo"), True),
        ("a part of foo", delete("foo"), True),
        ("a part of foo", attribute("group"), False),
        ("a part of plane", put("wide/plane", np.s_[0:10, 10:20]), False),
        ("a part of plane", put("wide/plane", np.s_[5, 5]), True),
        ("attributes", put("foo", 0), False),
        ("attributes", attribute("foo"), True),
        ("members", create("group/new"), True),
        ("members", delete("group/inside"), True),
        ("members", put("group/inside"), False),
        ("members", create("group/sub/new"), True),
        ("is there", create("new"), True),
        ("nothing there", create("new"), True),
        ("size", put("foo", 0), True),
        ("sizes", put("group/inside", 0), True),
        ("sizes", put("foo", 0), False),
        ("is empty", create("new"), True),
        ("is empty", create("new/deeper"), True),
        ("keys", create("other"), True),
        ("chunks there", put("foo", 0), True),
        ("partial", put("foo", 0), True),
        ("references", put("foo", 20), True),
        ("batches", put("foo", 20), True),
        ("coordinates", put("foo", 20), True),
        ("kind of a chunk", put("foo", 0), True),
        ("kind of a chunk", put("foo", 20), False),
        ("kind of a chunk that cannot be", put("foo", 0), False),
        ("kind of a chunk that cannot be", delete("foo"), True),
        ("kind of a chunk of nothing", create("new"), True),
        ("kind of a chunk of nothing", create("other"), False),
        ("id", delete("foo"), True),
        ("locations", put("foo", 20), True),
        ("shift", put("foo", 20), True),
    ],
)
def test_what_was_read_is_noted(
    repo: frazil.Repository, read: str, change: Callable[[frazil.Session], None], is_stale: bool
) -> None:
    session = tracking(repo)
    READS[read](session)
    create("result")(session)
    others(repo, change)
    with stale(is_stale):
        session.rebase(OURS)
        session.commit("result", rebase_with=ConflictDetector())


def test_reads_of_what_the_session_wrote_do_not_count(repo: frazil.Repository) -> None:
    session = tracking(repo)
    put("foo", slice(0, 10))(session)
    create("mine/new")(session)
    assert np.asarray(opened(session, "foo")[0:10]).tolist() == [7] * 10
    assert np.asarray(opened(session, "mine/new")[:]).tolist() == [1, 1]
    assert members(session, "mine") == ["new"]
    assert session.chunk_table("/mine/new").index.tolist() == [[0], [1]]
    delete("group")(session)
    assert asyncio.run(session.store.exists("group/zarr.json")) is False
    noted = session.workspace.reads
    assert noted is not None
    assert not noted.reads().chunks
    assert noted.reads().trees == frozenset()
    assert "/group" not in noted.reads().documents
    others(repo, put("foo", slice(0, 10), value=8))
    session.rebase(OURS)  # two wrote one chunk: that is a conflict, and for a solver


def test_a_group_that_was_missing_is_not_the_sessions_own_with_all_below() -> None:
    """Nodes can be below a path where no group is."""
    repo = frazil.Repository.create(MemoryStorage())
    with repo.transaction("main", message="base") as store:
        zarr.create_array(store, name="group/inside", shape=(2,), chunks=(1,), dtype="i4")[:] = 1
    session = repo.writable_session("main")
    session.workspace.delete_node("/group")
    session.workspace.set_node("/group/inside", zarr_array())
    session.commit("no group")
    for read in (members, lambda session: asyncio.run(session.store.getsize_prefix("group"))):
        session = tracking(repo)
        session.workspace.set_node("/group", b'{"zarr_format": 3, "node_type": "group"}')
        read(session)
        others(repo, delete("group/inside"))
        with pytest.raises(StaleReadError):
            session.rebase(OURS)
        others(repo, lambda session: session.workspace.set_node("/group/inside", zarr_array()))


def zarr_array() -> bytes:
    session = frazil.Repository.create(MemoryStorage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2,), chunks=(1,), dtype="i4")
    return session.workspace.require_node("/a").user_data


def test_reads_of_forks_come_back_with_merge(repo: frazil.Repository) -> None:
    numbers = itertools.count(1000)
    for change in (lambda fork: None, put("bar", slice(0, 10))):
        session = tracking(repo)
        create("result")(session)
        fork = pickle.loads(pickle.dumps(session.fork()))
        opened(fork, "foo")[0:10]
        assert np.asarray(opened(fork, "result")[:]).tolist() == [1, 1]
        change(fork)
        session.merge(pickle.loads(pickle.dumps(fork)))
        assert session.workspace.reads is not None
        assert session.workspace.reads.reads().chunks.keys() == {"/foo"}
        others(repo, put("foo", 0, value=next(numbers)))
        with pytest.raises(StaleReadError):
            session.rebase(OURS)


@pytest.mark.deep
def test_threads_read_at_the_same_time(repo: frazil.Repository) -> None:
    session = tracking(repo)
    array = opened(session, "wide/plane")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(array.__getitem__, np.ndindex(40, 40)))
    assert session.workspace.reads is not None
    (chunks,) = session.workspace.reads.reads().chunks["/wide/plane"]
    assert chunks.tolist() == [[row, column] for row in range(4) for column in range(4)]


def test_many_reads_of_few_chunks_stay_few() -> None:
    session = tracking(repository())
    tracker = session.workspace.reads
    assert tracker is not None
    for number in range(100_000):
        session.workspace.note_chunk("/foo", (number % 4,))
    (queue,) = (each.queue for each in tracker._chunks.values())
    assert len(queue) < 20_000
    assert tracker.reads().chunks["/foo"][0].tolist() == [[0], [1], [2], [3]]


def test_after_a_discard_and_a_rebase_reads_still_count(repo: frazil.Repository) -> None:
    session = tracking(repo)
    value = int(np.asarray(opened(session, "foo")[0]))
    session.discard_changes()
    put("bar", slice(0, 10), value)(session)
    others(repo, put("group/inside"))
    session.rebase(ConflictDetector())
    others(repo, put("foo", 0))
    with pytest.raises(StaleReadError):
        session.commit("bar", rebase_with=ConflictDetector())


def test_what_is_read_during_a_rebase_is_compared_too(repo: frazil.Repository) -> None:
    session = tracking(repo)
    put("bar")(session)
    others(repo, put("bar", value=8), put("foo"))
    base = session.snapshot_id

    class Reader(ConflictSolver):
        """Takes ours, after a look at another array; so may another thread."""

        def solve(self, conflicts: Any) -> Any:
            assert opened(session, "foo")[0] == 1
            return OURS.solve(conflicts)

    with pytest.raises(StaleReadError, match="/foo"):
        session.rebase(Reader())
    assert session.snapshot_id == base


def test_errors_are_pickled_and_shown(repo: frazil.Repository) -> None:
    session = tracking(repo)
    opened(session, "wide/plane")[:]
    create("result")(session)
    others(repo, put("wide/plane"))
    with pytest.raises(StaleReadError, match=r"\[0, 0\], .* and 11 more") as error:
        session.rebase(ConflictDetector())
    again = pickle.loads(pickle.dumps(error.value))
    assert (again.snapshot, again.reads, str(again)) == (
        error.value.snapshot,
        error.value.reads,
        str(error.value),
    )
    assert "stale-read" in repr(again) or "StaleReadError" in repr(again)


# Serializable

CELLS = [("foo", 0), ("foo", 1), ("bar", 0), ("bar", 1)]
NAMES = ["x", "y"]


class InModel:
    """A state in the memory of the test: what one transaction after the other makes of it."""

    def __init__(self) -> None:
        self.cells = dict.fromkeys(CELLS, 1)
        self.names: set[str] = set()

    def get(self, cell: tuple[str, int]) -> int:
        return self.cells[cell]

    def set(self, cell: tuple[str, int], value: int) -> None:
        self.cells[cell] = value

    def count(self) -> int:
        return len(self.names)

    def toggle(self, name: str) -> None:
        self.names ^= {name}


class InStore:
    """The same in a session's store: chunks of one byte, and groups in a group."""

    def __init__(self, session: frazil.Session) -> None:
        self.store = session.store

    def get(self, cell: tuple[str, int]) -> int:
        data = self.store.get_sync(f"{cell[0]}/c/{cell[1]}")
        assert data is not None
        return int(data.to_bytes()[0])

    def set(self, cell: tuple[str, int], value: int) -> None:
        self.store.set_sync(f"{cell[0]}/c/{cell[1]}", buffer(bytes([value])))

    def count(self) -> int:
        return len(set(asyncio.run(listed(self.store.list_dir("group")))) & set(NAMES))

    def has(self, name: str) -> bool:
        return self.store.get_sync(f"group/{name}/zarr.json") is not None

    def toggle(self, name: str) -> None:
        if self.has(name):
            self.store.delete_sync(f"group/{name}/zarr.json")
        else:
            group = buffer(b'{"zarr_format": 3, "node_type": "group"}')
            self.store.set_sync(f"group/{name}/zarr.json", group)


def buffer(data: bytes) -> Any:
    return default_buffer_prototype().buffer.from_bytes(data)


type Step = tuple[str, Any, Any]

steps = st.one_of(
    st.tuples(st.just("copy"), st.sampled_from(CELLS), st.sampled_from(CELLS)),
    st.tuples(st.just("count"), st.none(), st.sampled_from(CELLS)),
    st.tuples(st.just("toggle"), st.sampled_from(NAMES), st.none()),
)


def run(step: Step, state: InModel | InStore) -> None:
    """Every write depends on what was read right before it."""
    match step:
        case "copy", source, target:
            state.set(target, (3 * state.get(source) + 1) % 251)
        case "count", _, target:
            state.set(target, 100 + state.count())
        case "toggle", name, _:
            state.toggle(name)


def run_together(
    transactions: list[list[Step]], order: Iterable[int], solver: Any, *, track_reads: bool
) -> tuple[InModel, InModel]:
    """Two states after the transactions, whose steps run in ``order``: the one that is on the branch, and the
    one that the transactions which could be committed leave if they run one after the other.
    """
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        root.create_group("group")
        for name in ("foo", "bar"):
            root.create_array(name, shape=(2,), chunks=(1,), dtype="u1", compressors=None)[:] = 1
    sessions = [repo.writable_session("main", track_reads=track_reads) for _ in transactions]
    left = [list(steps) for steps in transactions]
    serial = InModel()
    for number in [*order, *(number for number, steps in enumerate(left) for _ in range(len(steps) + 1))]:
        session = sessions[number]
        if session.read_only:
            continue
        if left[number]:
            run(left[number].pop(0), InStore(session))
            continue
        try:
            session.commit("all", rebase_with=solver, allow_empty=True)
        except ConflictError:
            sessions[number] = repo.readonly_session("main")
            continue
        for step in transactions[number]:
            run(step, serial)
    final, tip = InModel(), InStore(repo.readonly_session("main"))
    final.cells = {cell: tip.get(cell) for cell in CELLS}
    final.names = {name for name in NAMES if tip.has(name)}
    return final, serial


@given(
    st.lists(st.lists(steps, min_size=1, max_size=3), min_size=2, max_size=3),
    st.lists(st.integers(0, 1), max_size=8),
    st.sampled_from(SOLVERS),
)
def test_tracked_transactions_are_serializable(
    transactions: list[list[Step]], order: list[int], solver: Any
) -> None:
    final, serial = run_together(transactions, order, solver, track_reads=True)
    assert (final.cells, final.names) == (serial.cells, serial.names)


SKEWS: list[list[list[Step]]] = [
    [[("copy", ("foo", 0), ("bar", 0))], [("copy", ("bar", 0), ("foo", 0))]],
    [[("count", None, ("foo", 0))], [("toggle", "x", None)]],
]


@pytest.mark.parametrize("skew", SKEWS)
def test_write_skew_without_tracking(skew: list[list[Step]]) -> None:
    for track_reads in (False, True):
        final, serial = run_together(skew, [0, 1, 1, 0], ConflictDetector(), track_reads=track_reads)
        same = (final.cells, final.names) == (serial.cells, serial.names)
        assert same is track_reads


def test_own_changes_of_the_session_may_be_named(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    create("mine")(session)
    others(repo, put("foo"))
    session.commit("mine", rebase_with=ConflictDetector(), reads=["mine", ("mine", 0)])
