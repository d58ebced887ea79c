"""Rebase: where a session stands afterwards, what is kept when it fails, and what it costs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import zarr
from tests.format.test_repo_info import patched
from tests.support.errors import of_kind
from tests.support.faulty_storage import FaultyStorage

import frazil
from frazil.conflicts import (
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    VersionSelection,
)
from frazil.errors import ConflictError, ErrorKind, FormatError, RebaseFailedError, SessionStateError
from frazil.format.ids import id_to_text, transaction_key
from frazil.format.repo_info import decode_repo_info
from frazil.storage.memory import MemoryStorage

CHUNK = ConflictType.ChunkDoubleUpdate
THEIRS = BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs)


def repository(
    storage: frazil.Storage | None = None, config: frazil.RepositoryConfig | None = None
) -> frazil.Repository:
    """An array of eight chunks of two numbers each, and a group."""
    repo = frazil.Repository.create(storage or frazil.in_memory_storage(), config)
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        array = root.create_array("t", shape=(16,), chunks=(2,), dtype="i4", compressors=None)
        array[:] = np.arange(16)
        root.create_array("big", shape=(3000,), chunks=(1000,), dtype="i4", compressors=None)[:] = 7
        root.create_group("g")
    return repo


def write(session: frazil.Session, chunk: int, value: int, path: str = "t") -> None:
    zarr.open_array(session.store, path=path)[2 * chunk : 2 * chunk + 2] = value


def commit(repo: frazil.Repository, *chunks: int, value: int = 100, message: str = "theirs") -> str:
    session = repo.writable_session("main")
    for chunk in chunks:
        write(session, chunk, value)
    return session.commit(message)


def values(session: frazil.Session, path: str = "t") -> Any:
    return np.asarray(zarr.open_array(session.store, path=path, mode="r")[:]).tolist()


def expected(**chunks: int) -> list[int]:
    out = list(range(16))
    for name, value in chunks.items():
        at = int(name[1:])
        out[2 * at : 2 * at + 2] = [value, value]
    return out


@pytest.fixture
def repo() -> frazil.Repository:
    return repository()


def test_what_was_passed_before_it_failed_stays_passed(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    for chunk in (0, 1):
        write(session, chunk, 1)
    repo.writable_session("main")
    first, second, _ = commit(repo, 5), commit(repo, 0), commit(repo, 6)
    with pytest.raises(RebaseFailedError) as error:
        session.rebase(ConflictDetector())
    assert error.value.snapshot == second
    assert error.value.conflicts == [Conflict(CHUNK, "/t", [[0]])]
    assert session.snapshot_id == first
    assert values(session) == expected(c0=1, c1=1, c5=100)
    with pytest.raises(ConflictError) as late:
        session.commit("too late")
    assert late.value.expected_parent == first
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert values(repo.readonly_session("main")) == expected(c0=1, c1=1, c5=100, c6=100)


def test_a_commit_on_a_moved_branch_reads_only_the_branch() -> None:
    """Among many writers most attempts are lost: these do not decode the log, which is damaged here."""
    storage = MemoryStorage()
    repo = repository(storage)
    stale = frazil.Repository.open(storage).writable_session("main")
    write(stale, 0, 1)
    commit(repo, 5)
    current = frazil.Repository.open(storage).writable_session("main")
    write(current, 1, 1)
    whole = decode_repo_info(storage.get("repo"), "repo")
    storage.put("repo", patched(whole, 7, 0, "u1", 17))
    with pytest.raises(ConflictError):
        stale.commit("too late")
    with pytest.raises(FormatError, match="update of kind 17"):
        current.commit("in time")


def test_the_fill_value_in_place_of_no_chunk_meets_a_chunk_of_others(repo: frazil.Repository) -> None:
    """zarr writes no chunk for it, it deletes what is not there."""
    with repo.transaction("main", message="empty") as store:
        zarr.create_array(store, name="e", shape=(4,), chunks=(2,), dtype="i4", fill_value=0)
    session = repo.writable_session("main")
    forks = session.fork(), session.fork()
    for each, value in zip(forks, (0, 5), strict=True):
        write(each, 0, value, "e")
    with pytest.raises(SessionStateError):
        session.merge(*forks)
    session.merge(forks[0])
    assert session.status().updated_chunks == {"/e": [[0]]}
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="e")[:] = 5
    with pytest.raises(RebaseFailedError) as error:
        session.rebase(ConflictDetector())
    assert error.value.conflicts == [Conflict(CHUNK, "/e", [[0]])]
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert values(repo.readonly_session("main"), "e") == [0, 0, 5, 5]


def test_a_branch_that_is_gone_and_tries_below_zero(repo: frazil.Repository) -> None:
    repo.create_branch("dev", repo.lookup_branch("main"))
    session = repo.writable_session("dev")
    repo.delete_branch("dev")
    with pytest.raises(frazil.RefNotFoundError):
        session.rebase(ConflictDetector())
    with pytest.raises(frazil.InvalidInputError, match="at least 0"):
        session.commit("x", rebase_with=ConflictDetector(), rebase_tries=-1)


def test_metadata_tell_the_attempts(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    write(session, 0, 1)
    commit(repo, 1)
    metadata = {"__icechunk": {"k": 1}, "a": 2}
    with pytest.raises(ConflictError):
        session.commit("ours", metadata, rebase_with=ConflictDetector(), rebase_tries=0)
    session.commit("ours", metadata, rebase_with=ConflictDetector(), rebase_tries=1)
    newest = next(iter(repo.ancestry(branch="main")))
    assert newest.metadata == {"__icechunk": {"k": 1, "rebase_attempts": 1}, "a": 2}
    with repo.transaction("main", message="m", rebase_with=ConflictDetector()) as store:
        zarr.open_array(store, path="t")[0] = 3
    assert next(iter(repo.ancestry(branch="main"))).metadata == {"__icechunk": {"rebase_attempts": 0}}


def test_a_commit_of_which_a_rebase_left_nothing(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    write(session, 0, 1)
    commit(repo, 0)
    session.commit("empty", rebase_with=THEIRS)
    assert values(repo.readonly_session("main")) == expected(c0=100)


def test_a_log_that_is_gone() -> None:
    storage = MemoryStorage()
    repo = repository(storage)
    session = repo.writable_session("main")
    write(session, 0, 1)
    id_ = commit(repo, 1)
    storage.delete([transaction_key(frazil.format.ids.id_from_text(id_))])
    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.REBASE_TX_LOG_PRUNED)):
        session.rebase(ConflictDetector())
    assert values(session) == expected(c0=1)


def test_a_lost_attempt_leaves_its_work_to_the_next() -> None:
    storage = FaultyStorage(MemoryStorage(), lambda key, condition: None)
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = repository(storage, config)
    other = frazil.Repository.open(storage)
    storage.puts.clear()
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="big")[:1000] = 1
    write(session, 0, 1)
    fork = session.fork()
    write(fork, 1, 1)
    session.merge(fork)

    def choose(key: str, condition: object) -> None:
        # Others commit while the files of ours are on their way: to another array, then to one of these.
        if key.startswith("snapshots/") and rounds:
            storage.choose = lambda key, condition: None
            rounds.pop()()
            storage.choose = choose

    rounds: list[Callable[[], object]] = [lambda: commit(other, 5), lambda: metadata(other)]
    storage.choose = choose
    session.commit("ours", rebase_with=ConflictDetector())
    assert not rounds
    puts = [key.split("/")[0] for key in storage.puts]
    # Ours: two packs and, in the first attempt, two manifests. Theirs: a pack and a manifest. Ours once more:
    # the manifest of the array that both wrote to.
    assert (puts.count("chunks"), puts.count("manifests")) == (3, 4)
    assert (puts.count("snapshots"), puts.count("transactions")) == (5, 5)
    fresh = frazil.Repository.open(storage).readonly_session("main")
    assert values(fresh) == expected(c0=1, c1=1, c5=100)
    assert values(fresh, "big") == [1] * 1000 + [7] * 2000


def metadata(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="metadata") as store:
        zarr.open_group(store, path="g", mode="r+").attrs["x"] = 1


def test_threads_wait_while_it_is_decided(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    write(session, 0, 1)
    commit(repo, 0)
    late = threading.Thread(target=write, args=(session, 1, 2))

    class Slow(ConflictSolver):
        def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
            late.start()
            late.join(0.2)
            assert late.is_alive()
            return [VersionSelection.UseOurs]

    session.rebase(Slow())
    late.join()
    assert values(session) == expected(c0=1, c1=2)


class Maximum(ConflictSolver):
    """The larger number of both sides."""

    def __init__(self) -> None:
        self.seen: list[Conflict] = []

    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        self.seen += conflicts
        return [self.larger(conflict) for conflict in conflicts]

    def larger(self, conflict: Any) -> list[bytes] | None:
        sides = (conflict.ours, conflict.theirs)
        arrays = [np.frombuffer(b"".join(side.read(conflict.chunks)), "i4") for side in sides]
        return [each.tobytes() for each in np.maximum(*arrays).reshape(len(conflict.chunks), -1)]


class Counter:
    """Adds what both sides have counted since the base. No subclass, and it reads through zarr."""

    def solve(self, conflicts: Sequence[Any]) -> Iterator[Any]:
        for conflict in conflicts:
            ours, theirs, base = (
                frazil.read(side.session, side.path).reshape(-1, 2)
                for side in (conflict.ours, conflict.theirs, conflict.base)
            )
            yield [each.tobytes() for each in (ours + theirs - base)[conflict.chunks[:, 0]]]


@pytest.mark.parametrize("solver", [Maximum(), Counter()])
def test_a_solver_of_ones_own_makes_chunks_of_both(repo: frazil.Repository, solver: ConflictSolver) -> None:
    session = repo.writable_session("main")
    ours, theirs = np.arange(16), np.arange(16)
    ours[:8] += [10, 1, 10, 1, 10, 1, 10, 1]
    theirs[2:10] += [1, 10, 1, 10, 1, 10, 1, 10]
    zarr.open_array(session.store, path="t")[:8] = ours[:8]
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="t")[2:10] = theirs[2:10]
    session.commit("ours", rebase_with=solver)
    combined = np.maximum(ours, theirs) if isinstance(solver, Maximum) else ours + theirs - np.arange(16)
    assert values(repo.readonly_session("main")) == combined.tolist()


def test_what_a_solver_gets(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    session = repo.writable_session("main")
    write(session, 0, 1)
    zarr.open_group(session.store, path="g", mode="r+").attrs["who"] = "ours"
    del zarr.open_group(session.store, mode="r+")["big"]
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="t")[:4] = 5
        zarr.open_group(store, path="g", mode="r+").attrs["who"] = "theirs"
        zarr.open_array(store, path="big")[0] = 5
    solver = Maximum()
    monkeypatch.setattr(solver, "larger", lambda conflict: None)
    with pytest.raises(RebaseFailedError) as error:
        session.rebase(solver)
    by_path = {conflict.path: conflict for conflict in error.value.conflicts}
    chunk, group, big = by_path["/t"], by_path["/g"], by_path["/big"]
    assert (chunk.chunks.tolist(), chunk.chunks.dtype, chunk.conflicted_chunks) == ([[0]], "uint32", [[0]])
    assert chunk.node_id == session.get_node_id("/t")
    assert np.frombuffer(chunk.theirs.read([[0], [1], [7]])[1], "i4").tolist() == [5, 5]
    assert np.frombuffer(chunk.base.read([[1]])[0], "i4").tolist() == [2, 3]
    assert b"ours" in group.ours.metadata
    assert b"theirs" in group.theirs.metadata
    assert group.base.metadata
    assert (big.ours.path, big.ours.metadata, big.ours.read([[0]])) == (None, None, [None])
    assert big.theirs.read([[0]])[0][:4] == np.int32(5).tobytes()
    again = pickle.loads(pickle.dumps(error.value))
    assert again.conflicts == error.value.conflicts
    with pytest.raises(ValueError, match="in the process of the rebase"):
        _ = again.conflicts[0].ours


class Answers(ConflictSolver):
    """Gives these answers, by path."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        return [self.answers.get(conflict.path.strip("/"), None) for conflict in conflicts]


def test_a_document_of_both(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_group(session.store, path="g", mode="r+").attrs["ours"] = 1
    with repo.transaction("main", message="theirs") as store:
        zarr.open_group(store, path="g", mode="r+").attrs["theirs"] = 1
    document = b'{"zarr_format":3,"node_type":"group","attributes":{"ours":1,"theirs":1}}'
    session.commit("ours", rebase_with=Answers(g=document))
    group = zarr.open_group(repo.readonly_session("main").store, path="g", mode="r")
    assert dict(group.attrs) == {"ours": 1, "theirs": 1}


def test_an_array_without_chunks_comes_back(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="empty") as store:
        zarr.create_array(store, name="e", shape=(4, 4), chunks=(2, 2), dtype="i4")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="e").attrs["who"] = "ours"
    with repo.transaction("main", message="gone") as store:
        del zarr.open_group(store)["e"]
    session.commit("ours", rebase_with=Answers(e=VersionSelection.UseOurs))
    assert zarr.open_array(repo.readonly_session("main").store, path="e").attrs["who"] == "ours"


def _new_group(path: str) -> Any:
    return lambda root: root.create_group(path)


@pytest.mark.parametrize(
    ("moves", "theirs", "conflict", "left"),
    [
        ([("/t", "/g/t")], lambda root: root.__delitem__("g"), "/g", {"t", "big", "sub", "sub/a"}),
        ([("/sub", "/g/s")], lambda root: root.__delitem__("g"), "/g", {"t", "big", "sub", "sub/a"}),
        ([("/sub", "/m")], _new_group("m"), "/m", {"t", "big", "g", "sub", "sub/a", "m"}),
        ([("/sub", "/m"), ("/t", "/sub")], _new_group("m"), "/m", None),
        ([("/sub", "/m"), ("/t", "/m/x")], _new_group("sub/x"), "/m/x", {"big", "g", "m", "m/a", "m/x", "t"}),
    ],
)
def test_a_move_that_gives_way_is_undone_with_all_below(
    repo: frazil.Repository, moves: Any, theirs: Any, conflict: str, left: Any
) -> None:
    with repo.transaction("main", message="more") as store:
        group = zarr.open_group(store).create_group("sub")
        group.create_array("a", shape=(2,), chunks=(2,), dtype="i4")[:] = 5
    session = repo.rearrange_session("main")
    for source, target in moves:
        session.move(source, target)
    with repo.transaction("main", message="theirs") as store:
        theirs(zarr.open_group(store))
    with pytest.raises(RebaseFailedError) as error:
        session.rebase(ConflictDetector())
    assert error.value.conflicts == [Conflict(ConflictType.MoveOperationCannotBeRebased, conflict)]
    session.commit("ours", rebase_with=Answers(**{conflict.strip("/"): VersionSelection.UseTheirs}))
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    members = dict(root.members(max_depth=None))
    above = {path.rpartition("/")[0] for path in members} - {""}
    assert above <= {path for path, node in members.items() if isinstance(node, zarr.Group)}
    assert left is None or set(members) == left


def test_a_move_of_what_theirs_deleted_cannot_stand(repo: frazil.Repository) -> None:
    session = repo.rearrange_session("main")
    session.move("/t", "/g/t")
    with repo.transaction("main", message="gone") as store:
        del zarr.open_group(store)["t"]
    with pytest.raises(RebaseFailedError) as error:
        session.rebase(Answers(**{"g/t": VersionSelection.UseOurs}))
    assert error.value.conflicts == [Conflict(ConflictType.MoveOperationCannotBeRebased, "/g/t")]


@pytest.mark.parametrize("answer", ["what", 3, [True], [True, "x"], [True, False, True], b"bytes"], ids=str)
def test_answers_that_are_none(repo: frazil.Repository, answer: Any) -> None:
    session = repo.writable_session("main")
    write(session, 0, 1)
    write(session, 1, 1)
    commit(repo, 0, 1)
    with pytest.raises(frazil.InvalidInputError):
        session.rebase(Answers(t=answer))
    assert values(session) == expected(c0=1, c1=1)


def test_other_metadata_over_rewritten_manifests(repo: frazil.Repository) -> None:
    """Nobody's log tells of it, and yet the session's node has to have the new ones."""
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t").attrs["who"] = "ours"
    rewritten = repo.rewrite_manifests("anew", branch="main")
    session.commit("ours", rebase_with=ConflictDetector())
    before, after = (repo.readonly_session(snapshot_id=id_) for id_ in (rewritten, session.snapshot_id))
    arrays = [each.workspace.require_array("/t").array for each in (before, after)]
    one, other = ([] if each is None else each.manifests for each in arrays)
    assert [ref.id for ref in one] == [ref.id for ref in other]
    listed = repo.inspect_snapshot(session.snapshot_id)["manifests"]
    assert {id_to_text(ref.id) for ref in other} <= {each["id"] for each in listed}


def test_an_amend_beside_other_writers_is_rebased(repo: frazil.Repository) -> None:
    """It replaces the commit of the other writer and contains its changes. Without a solver it is refused."""
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="a", shape=(3,), chunks=(1,), dtype="i4")
    late, early, other = (repo.writable_session("main") for _ in range(3))
    for at, session in enumerate((early, late, other)):
        zarr.open_array(session.store, path="a")[at] = at + 1
    early.commit("early")
    with pytest.raises(ConflictError):
        late.amend("late")
    late.amend("late", rebase_with=ConflictDetector())
    other.amend("other", rebase_with=ConflictDetector(), metadata={"by": "me"})
    assert [each.message for each in repo.ancestry(branch="main")][:2] == ["other", "an array"]
    assert values(repo.readonly_session("main"), "a") == [1, 2, 3]
    assert repo.lookup_snapshot(repo.lookup_branch("main")).metadata["__icechunk"] == {"rebase_attempts": 1}
