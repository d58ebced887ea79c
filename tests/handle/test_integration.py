"""Merge, cherry-pick and revert, against a model: a dict from path to array."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import of_kind
from tests.support.examples import examples

import frazil
from frazil.conflicts import (
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictSolver,
    ConflictType,
    VersionSelection,
)
from frazil.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    RebaseFailedError,
    RefNotFoundError,
    SessionStateError,
)

CHUNKS = 4
OURS, THEIRS = VersionSelection.UseOurs, VersionSelection.UseTheirs


def repository() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        for name in ("a", "b"):
            make(root, name)
        make(root.create_group("g"), "c")
    repo.create_branch("dev", repo.lookup_branch("main"))
    return repo


def make(group: Any, name: str, fill: int = 0) -> Any:
    array = group.create_array(name, shape=(2 * CHUNKS,), chunks=(2,), dtype="i4", compressors=None)
    array[:] = fill
    return array


def edit(repo: frazil.Repository, branch: str, *steps: Any, message: str = "edit") -> str:
    session = repo.writable_session(branch)
    for step in steps:
        step(zarr.open_group(session.store, mode="r+"))
    return session.commit(message, allow_empty=True)  # what is made and deleted at once is nothing


def put(path: str, chunk: int, value: int) -> Any:
    def step(root: Any) -> None:
        root[path][2 * chunk : 2 * chunk + 2] = value

    return step


def new(path: str, fill: int = 0) -> Any:
    parent, _, name = path.rpartition("/")
    return lambda root: make(root[parent] if parent else root, name, fill)


def drop(path: str) -> Any:
    return lambda root: root.__delitem__(path)


def note(path: str, **attributes: object) -> Any:
    return lambda root: (root[path] if path else root).attrs.update(attributes)


def resize(path: str, chunks: int) -> Any:
    return lambda root: root[path].resize((2 * chunks,))


def content(repo: frazil.Repository, branch: str = "main") -> dict[str, Any]:
    """By path: attributes, and the values of arrays."""
    root = zarr.open_group(repo.readonly_session(branch).store, mode="r")
    return {
        path: (dict(node.attrs), np.asarray(node[:]).tolist() if isinstance(node, zarr.Array) else None)
        for path, node in root.members(max_depth=None)
    }


def numbers(repo: frazil.Repository, path: str, branch: str = "main") -> Any:
    return content(repo, branch)[path][1][::2]


@pytest.fixture
def repo() -> frazil.Repository:
    return repository()


def test_a_merge_brings_chunks_nodes_and_metadata(repo: frazil.Repository) -> None:
    edit(repo, "main", put("a", 0, 1), note("b", x=1))
    edit(repo, "dev", put("a", 1, 2), new("g/d", 5), note("g", y=2))
    source = edit(repo, "dev", put("g/d", 2, 6), drop("g/c"))
    tip = repo.lookup_branch("main")
    id_ = repo.merge("dev", metadata={"why": "x"})
    assert repo.lookup_branch("main") == id_
    assert repo.lookup_branch("dev") == source
    newest = repo.lookup_snapshot(id_)
    assert (newest.parent_id, newest.message) == (tip, "Merge dev into main")
    assert newest.metadata["__frazil"] == {"parents": [tip, source]}
    assert newest.metadata["why"] == "x"
    assert numbers(repo, "a") == [1, 2, 0, 0]
    assert numbers(repo, "g/d") == [5, 5, 6, 5]
    assert content(repo)["b"][0] == {"x": 1}
    assert content(repo)["g"][0] == {"y": 2}
    assert "g/c" not in content(repo)
    diff = repo.diff(from_snapshot_id=tip, to_snapshot_id=id_)
    assert (diff.new_arrays, diff.deleted_arrays, diff.updated_groups) == ({"/g/d"}, {"/g/c"}, {"/g"})


def test_fast_forward(repo: frazil.Repository) -> None:
    tip = repo.lookup_branch("main")
    source = edit(repo, "dev", put("a", 0, 1))
    repo.create_branch("other", tip)
    assert repo.merge("dev") == source == repo.lookup_branch("main")
    assert repo.merge("dev") == source  # an ancestor
    merged = repo.merge("dev", into="other", fast_forward=False, message="all")
    assert merged != source
    assert content(repo, "other") == content(repo, "dev")
    assert repo.lookup_snapshot(merged).parent_id == tip


class Always(ConflictSolver):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        return [self.answer] * len(conflicts)


@pytest.mark.parametrize("answer", [OURS, THEIRS])
def test_deleted_in_one_branch_and_changed_in_the_other(repo: frazil.Repository, answer: Any) -> None:
    edit(repo, "main", put("a", 0, 1), new("g/new", 1))
    edit(repo, "dev", drop("a"), drop("g"))
    repo.merge("dev", solver=Always(answer))
    if answer is OURS:
        assert set(content(repo)) == {"b"}
    else:
        assert numbers(repo, "a") == [1, 0, 0, 0]
        assert set(content(repo)) == {"a", "b", "g", "g/new"}


def test_moves_are_merged(repo: frazil.Repository) -> None:
    edit(repo, "main", put("g/c", 0, 1), new("g/d", 2))
    session = repo.rearrange_session("dev")
    session.move("/g", "/h")
    session.commit("move")
    edit(repo, "dev", put("h/c", 1, 2), new("h/e", 3))
    repo.merge("dev")
    assert set(content(repo)) == {"a", "b", "h", "h/c", "h/d", "h/e"}
    assert numbers(repo, "h/c") == [1, 2, 0, 0]
    repo.merge("main", into="dev")
    assert content(repo) == content(repo, "dev")


def test_an_array_that_moved_with_its_group_comes_back_with_its_chunks(repo: frazil.Repository) -> None:
    edit(repo, "main", put("g/c", 3, 7))
    repo.merge("main", into="dev")
    edit(repo, "main", drop("g/c"))
    session = repo.rearrange_session("dev")
    session.move("/g", "/h")
    session.commit("move")
    edit(repo, "dev", put("h/c", 1, 2))
    repo.merge("dev", solver=Always(OURS))
    assert numbers(repo, "h/c") == [0, 2, 0, 7]


@pytest.mark.parametrize("answer", [OURS, THEIRS])
def test_a_replaced_array_that_was_picked_and_changed_since(repo: frazil.Repository, answer: Any) -> None:
    """Both have one node, which is not the base's."""
    picked = edit(repo, "main", drop("a"), new("a", 7))
    repo.cherry_pick(picked, "dev")
    edit(repo, "dev", put("a", 1, 8))
    edit(repo, "main", put("a", 2, 9))
    with pytest.raises(RebaseFailedError) as error:
        repo.merge("dev")
    assert [(each.conflict_type, each.path) for each in error.value.conflicts] == [
        (ConflictType.NewNodeConflictsWithExistingNode, "/a")
    ]
    repo.merge("dev", solver=Always(answer))
    assert numbers(repo, "a") == ([7, 8, 7, 7] if answer is OURS else [7, 7, 9, 7])
    ids = [repo.readonly_session(branch).get_node_id("/a") for branch in ("main", "dev")]
    assert (ids[0] == ids[1]) is (answer is THEIRS)


def test_chunks_go_under_other_attributes_and_into_a_larger_array(repo: frazil.Repository) -> None:
    edit(repo, "main", note("a", x=1), resize("b", 6))
    edit(repo, "dev", put("a", 0, 1), put("b", 1, 2))
    repo.merge("dev")
    assert content(repo)["a"] == ({"x": 1}, [1, 1, 0, 0, 0, 0, 0, 0])
    assert numbers(repo, "b") == [0, 2, 0, 0, 0, 0]


def test_cherry_pick(repo: frazil.Repository) -> None:
    edit(repo, "dev", put("a", 0, 1))
    picked = edit(repo, "dev", put("a", 1, 2), new("d", 3), note("b", x=1), message="picked")
    edit(repo, "main", put("a", 3, 9))
    id_ = repo.cherry_pick(picked)
    newest = repo.lookup_snapshot(id_)
    assert (newest.message, newest.metadata["__frazil"]) == ("picked", {"cherry_picked": picked})
    assert numbers(repo, "a") == [0, 2, 0, 9]
    assert numbers(repo, "d") == [3, 3, 3, 3]
    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.NO_CHANGES_TO_COMMIT)):
        repo.cherry_pick("dev")
    edit(repo, "main", put("d", 0, 7))
    edit(repo, "dev", put("d", 1, 8))
    with pytest.raises(RebaseFailedError) as failed:
        repo.merge("dev")
    # The new array is in both, from one commit; nobody knows which of its chunks are the newer ones.
    [conflict] = failed.value.conflicts
    assert (conflict.path, conflict.conflicted_chunks) == ("/d", [[0], [1]])
    assert (conflict.base.path, conflict.theirs.path) == (None, "/d")
    repo.merge("dev", solver=Always([THEIRS, OURS]))
    assert numbers(repo, "a") == [1, 2, 0, 9]
    assert numbers(repo, "d") == [7, 8, 3, 3]


def test_revert(repo: frazil.Repository) -> None:
    ids = repo.readonly_session("main").get_node_id("/g/c")
    bad = edit(repo, "main", put("a", 0, 1), drop("g"), new("d"), note("b", x=1), message="bad")
    edit(repo, "main", put("a", 1, 2))
    id_ = repo.revert(bad)
    newest = repo.lookup_snapshot(id_)
    assert (newest.message, newest.metadata["__frazil"]) == ('Revert "bad"', {"reverted": bad})
    assert numbers(repo, "a") == [0, 2, 0, 0]
    assert set(content(repo)) == {"a", "b", "g", "g/c"}
    assert content(repo)["b"][0] == {}
    assert repo.readonly_session("main").get_node_id("/g/c") == ids
    again = repo.revert(id_)
    assert numbers(repo, "a") == [1, 2, 0, 0]
    assert set(content(repo)) == {"a", "b", "d"}
    edit(repo, "main", put("a", 0, 5))
    with pytest.raises(RebaseFailedError) as error:
        repo.revert(again)
    assert [conflict.conflict_type for conflict in error.value.conflicts] == [ConflictType.ChunkDoubleUpdate]


def test_names(repo: frazil.Repository) -> None:
    tip = edit(repo, "dev", put("a", 0, 1))
    repo.create_tag("v1", tip)
    edit(repo, "main", put("a", 1, 1))
    assert repo.lookup_snapshot(repo.cherry_pick("v1")).message == "edit"
    root = list(repo.ancestry(branch="main"))[-1].id
    for pick_or_revert in (repo.cherry_pick, repo.revert):
        with pytest.raises(InvalidInputError):
            pick_or_revert(root)
    acts: list[Any] = [repo.merge, repo.cherry_pick, repo.revert]
    for act in acts:
        with pytest.raises(RefNotFoundError):
            act("nobody")
        with pytest.raises(RefNotFoundError):
            act("dev", "nobody")
        with pytest.raises(TypeError, match="solve"):
            act("dev", solver=3)


def test_a_branch_that_moves_meanwhile(repo: frazil.Repository) -> None:
    edit(repo, "main", put("a", 0, 1))
    edit(repo, "dev", put("a", 1, 2), put("b", 0, 2))

    class Late(ConflictSolver):
        """Somebody commits while the solver decides."""

        def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
            if not late:
                late.append(edit(repo, "main", put("a", 2, 3)))
            return [OURS] * len(conflicts)

    late: list[str] = []
    edit(repo, "main", put("b", 0, 1))
    id_ = repo.merge("dev", solver=Late())
    newest = repo.lookup_snapshot(id_)
    assert newest.parent_id == late[0] == newest.metadata["__frazil"]["parents"][0]
    assert numbers(repo, "a") == [1, 2, 3, 0]
    assert numbers(repo, "b") == [2, 0, 0, 0]


@pytest.mark.parametrize("timeout", [0, 60])
def test_an_expected_tip(repo: frazil.Repository, timeout: Any) -> None:
    """The branch has moved before the call, or moves during the call: nothing happens."""
    repo = repo.reopen(frazil.RepositoryConfig(fast_forward_timeout=timedelta(seconds=timeout)))
    source = edit(repo, "dev", put("a", 0, 1))
    seen = repo.lookup_branch("main")
    tips = [edit(repo, "main", put("b", 0, 1))]

    class Late(ConflictSolver):
        def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
            tips.append(edit(repo, "main", put("b", 1, 1)))
            return [OURS] * len(conflicts)

    edit(repo, "dev", put("b", 0, 2))
    for act, what in ((repo.merge, "dev"), (repo.cherry_pick, source), (repo.revert, seen)):
        with pytest.raises(ConflictError) as error:
            act(what, from_snapshot_id=seen)
        assert (error.value.kind, error.value.expected_parent) == (ErrorKind.BRANCH_UPDATE_CONFLICT, seen)
    with pytest.raises(ConflictError, check=of_kind(ErrorKind.BRANCH_UPDATE_CONFLICT)):
        repo.merge("dev", from_snapshot_id=tips[0], solver=Late())
    assert repo.lookup_branch("main") == tips[-1] != tips[0]
    repo.revert("dev", "dev", from_snapshot_id=repo.lookup_branch("dev"))
    assert numbers(repo, "b", "dev") == [0, 0, 0, 0]


NAMES = ("a", "b", "d", "e")


@st.composite
def edits(draw: Any) -> Any:
    """Some commits, each of some edits: of a chunk, of attributes, a deletion, a new array."""
    step = st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(0, CHUNKS - 1), st.integers(1, 50)),
        st.tuples(st.just("note"), st.sampled_from(NAMES), st.just(0), st.integers(1, 50)),
        st.tuples(st.just("drop"), st.sampled_from(NAMES), st.just(0), st.just(0)),
        st.tuples(st.just("new"), st.sampled_from(NAMES), st.just(0), st.integers(1, 50)),
    )
    return draw(st.lists(st.lists(step, min_size=1, max_size=3), min_size=1, max_size=3))


class Model:
    """One branch as a dict: name -> (identity, attributes, values of chunks)."""

    def __init__(self, nodes: Any) -> None:
        self.nodes = nodes

    def copy(self) -> Any:
        return Model({name: [id_, note_, list(chunks)] for name, (id_, note_, chunks) in self.nodes.items()})

    def plain(self) -> dict[str, Any]:
        return {name: (note_, chunks) for name, (_, note_, chunks) in self.nodes.items()}

    def does(self, kind: str, name: str, chunk: int, value: int) -> bool:
        """Apply one edit; whether it can be."""
        exists = name in self.nodes
        if exists == (kind == "new"):
            return False
        if kind == "put":
            self.nodes[name][2][chunk] = value
        elif kind == "note":
            self.nodes[name][1] = value
        elif kind == "drop":
            del self.nodes[name]
        else:
            self.nodes[name] = [object(), 0, [value] * CHUNKS]
        return True


STEPS = {
    "put": lambda name, chunk, value: put(name, chunk, value),
    "note": lambda name, chunk, value: note(name, x=value),
    "drop": lambda name, chunk, value: drop(name),
    "new": lambda name, chunk, value: new(name, value),
}


def three_way(base: Any, ours: Any, theirs: Any, ours_wins: bool = False) -> Any:
    """The merge of three models, None where both changed the same differently."""
    out = {}
    for name in {*base.nodes, *ours.nodes, *theirs.nodes}:
        b, o, t = (model.nodes.get(name) for model in (base, ours, theirs))
        values = [x[0] if x else None for x in (b, o, t)]
        if values[0] == values[1] == values[2]:
            if b is None:
                continue
            note_ = pick(b[1], o[1], t[1])
            chunks = [pick(*each, ours_wins) for each in zip(b[2], o[2], t[2], strict=True)]
            if note_ is None or None in chunks:
                return None
            out[name] = [b[0], note_, chunks]
        elif values[1] == values[0]:
            if o is not None and o[1:] != b[1:]:
                return None
            if t is not None:
                out[name] = t
        elif values[2] == values[0]:
            if t is not None and t[1:] != b[1:]:
                return None
            if o is not None:
                out[name] = o
        elif o is None and t is None:
            continue
        else:
            return None if o and t else NotImplemented
    return Model(out)


def pick(base: Any, ours: Any, theirs: Any, ours_wins: bool = False) -> Any:
    if ours in (base, theirs):
        return theirs
    return ours if theirs == base or ours_wins else None


@settings(max_examples=examples(30))
@given(edits(), edits(), st.booleans())
def test_rebases_are_those_of_the_model(mine: Any, yours: Any, ours_wins: bool) -> None:
    """One session against some commits; chunks that both wrote are decided, all else is a conflict."""
    repo, base = small()
    basic = BasicConflictSolver(on_chunk_conflict=OURS, fail_on_delete_of_updated_array=True)
    solver = basic if ours_wins else ConflictDetector()
    session, model = repo.writable_session("main"), base.copy()
    for kind, *args in [step for each in mine for step in each]:
        if model.does(kind, *args):
            STEPS[kind](*args)(zarr.open_group(session.store, mode="r+"))
    theirs = commits(repo, "main", yours, base)
    expected = three_way(base, model, theirs, ours_wins=ours_wins)
    try:
        session.rebase(solver)
    except RebaseFailedError:
        # Metadata under chunks of ours, and what both wrote although it is the same, are conflicts too.
        mine_, yours_ = (
            {(kind, name, chunk) for each in script for kind, name, chunk, _ in each}
            for script in (mine, yours)
        )
        touched = {name for kind, name, _ in mine_ & yours_ if kind in ("put", "note")}
        under = {name for kind, name, _ in yours_ if kind == "note"} & {
            name for kind, name, _ in mine_ if kind == "put"
        }
        assert expected is None or expected is NotImplemented or touched or under
        return
    assert expected is not None
    if expected is not NotImplemented:
        assert read(session) == expected.plain()
        if session.has_uncommitted_changes:
            session.commit("ours")
            assert read(repo.readonly_session("main")) == expected.plain()


def small() -> Any:
    """A repository with two arrays, and its model."""
    repo, base = frazil.Repository.create(frazil.in_memory_storage()), Model({})
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        for name in NAMES[:2]:
            make(root, name)
            base.nodes[name] = [object(), 0, [0] * CHUNKS]
    return repo, base


def commits(repo: frazil.Repository, branch: str, script: Any, base: Any) -> Any:
    """Run a script of commits; the model of what it leaves."""
    model = base.copy()
    for each in script:
        steps = [STEPS[kind](*args) for kind, *args in each if model.does(kind, *args)]
        if steps:
            edit(repo, branch, *steps)
    return model


def read(session: frazil.Session) -> dict[str, Any]:
    root = zarr.open_group(session.store, mode="r")
    return {name: (array.attrs.get("x", 0), np.asarray(array[::2]).tolist()) for name, array in root.arrays()}


@settings(max_examples=examples(30))
@given(edits(), edits())
def test_merges_are_those_of_the_model(mine: Any, yours: Any) -> None:
    repo, base = small()
    repo.create_branch("dev", repo.lookup_branch("main"))
    ours, theirs = commits(repo, "dev", mine, base), commits(repo, "main", yours, base)
    expected = three_way(base, ours, theirs)
    try:
        repo.merge("dev", fast_forward=False)
    except RebaseFailedError:
        # A node that one deleted, and made again, and the other deleted: not for the model to say.
        assert expected is None or expected is NotImplemented
        return
    assert expected is not None
    if expected is not NotImplemented:
        assert read(repo.readonly_session("main")) == expected.plain()
