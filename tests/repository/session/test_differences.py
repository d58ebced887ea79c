"""Differences between any two versions, compared with two dictionaries; logs after an expiration."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from zarr.core.sync import sync

import frazil
from frazil.errors import RebaseFailedError
from frazil.format.ids import id_from_text
from frazil.format.manifest import VirtualRef
from frazil.handle.repository import context_of
from frazil.repository.session.differences import commits_between
from frazil.storage.memory import MemoryStorage

GROUPS = ("g", "h", "g/é")
ARRAYS = ("a", "g/a", "h/b")
CONTAINER = "file:///nowhere/"

edits = st.lists(
    st.tuples(
        st.sampled_from(
            ["group", "array", "write", "write", "virtual", "attribute", "delete", "chunk", "resize", "move"]
        ),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
    max_size=6,
)


def edit(repo: frazil.Repository, branch: str, what: str, pick: int, n: int) -> None:
    if what == "move":
        session = repo.rearrange_session(branch)
        paths = session.workspace.node_table().paths_list()
        try:
            session.move(paths[pick % len(paths)], ("/m", "/g/m", "/h/m", "/m/m")[n])
        except frazil.IcechunkError:
            return
        session.commit("moved")
        return
    session = repo.writable_session(branch)
    root: Any = zarr.open_group(session.store, mode="a")
    arrays = [
        path
        for path in session.workspace.node_table().paths_list()
        if session.workspace.require_node(path).array is not None
    ]
    array = arrays[pick % len(arrays)] if arrays else None
    match what:
        case "group" if GROUPS[pick % 3] not in root:
            root.create_group(GROUPS[pick % 3], attributes={"n": n})
        case "array" if (ARRAYS[pick % 3] not in root and array is None) or n == 0:
            root.create_array(
                ARRAYS[pick % 3], shape=(4, 2)[: 1 + n % 2], chunks=(2, 2)[: 1 + n % 2], dtype="u1",
                overwrite=True, compressors=None,
            )  # fmt: skip
        case "attribute":
            root.attrs["n"] = n
        case "write" if array is not None:
            root[array][...] = n
        case "virtual" if array is not None:
            at = (n % min(2, root[array].cdata_shape[0]), 0)[: len(root[array].shape)]
            session.workspace.set_ref(array, at, VirtualRef(f"{CONTAINER}{pick}", n, 4))
        case "chunk" if array is not None:
            sync(session.store.delete(f"{array[1:]}/c/{n % 2}"))
        case "resize" if array is not None:
            root[array].resize((2 + 2 * n, *root[array].shape[1:]))
        case "delete" if array is not None and n:
            del root[array]
    session.commit(what, allow_empty=True)


Seen = dict[str, tuple[str, bytes, dict[Any, Any] | None]]


def seen(repo: frazil.Repository, snapshot: str) -> Seen:
    """By node id: path, document, references."""
    workspace = repo.readonly_session(snapshot_id=snapshot).workspace
    nodes = workspace.node_table()
    out: Seen = {}
    for row in range(len(nodes)):
        node = nodes.node(row)
        refs = None
        if node.array is not None:
            table = workspace.ref_table(node.path)
            refs = {tuple(at): table.ref(number) for number, at in enumerate(table.index.tolist())}
        out[str(node.id)] = (node.path, node.user_data, refs)
    return out


def expected(before: Seen, after: Seen) -> dict[str, Any]:
    new, gone, both = after.keys() - before.keys(), before.keys() - after.keys(), before.keys() & after.keys()

    def paths(ids: Any, where: Seen, arrays: bool) -> set[str]:
        return {where[id_][0] for id_ in ids if (where[id_][2] is not None) == arrays}

    changed = {id_ for id_ in both if before[id_][1] != after[id_][1]}
    chunks: dict[str, list[list[int]]] = {}
    for id_ in after:
        path, _, refs = after[id_]
        if refs is None:
            continue
        old = (before[id_][2] if id_ in before else None) or {}
        if old and refs and len(next(iter(old))) != len(next(iter(refs))):
            old = {}
        at = [key for key in old.keys() | refs.keys() if old.get(key) != refs.get(key)]
        if at:
            chunks[path] = sorted(map(list, at))
    moved = [(before[id_][0], after[id_][0]) for id_ in both if before[id_][0] != after[id_][0]]
    return {
        "new_groups": paths(new, after, False),
        "new_arrays": paths(new, after, True),
        "deleted_groups": paths(gone, before, False),
        "deleted_arrays": paths(gone, before, True),
        "updated_groups": paths(changed, after, False),
        "updated_arrays": paths(changed, after, True),
        "updated_chunks": chunks,
        "moved_nodes": sorted(moved, key=lambda move: move[1].encode().split(b"/")),
    }


def actual(diff: frazil.Diff) -> dict[str, Any]:
    names = ("new", "deleted", "updated")
    every = ["_".join(pair) for pair in product(names, ("groups", "arrays"))]
    sets = {name: getattr(diff, name) for name in every}
    return {**sets, "updated_chunks": diff.updated_chunks, "moved_nodes": diff.moved_nodes}


@settings(max_examples=examples(60))
@given(first=edits, main=edits, dev=edits, inline=st.booleans())
def test_any_two_versions(first: Any, main: Any, dev: Any, inline: bool) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=512 if inline else 0)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    with repo.transaction("main", message="root") as store:
        root = zarr.create_group(store)
        root.create_array("a", shape=(4,), chunks=(2,), dtype="u1", compressors=None)[:] = 9
    for each in first:
        edit(repo, "main", *each)
    repo.create_branch("dev", repo.lookup_branch("main"))
    for branch, several in (("main", main), ("dev", dev)):
        for each in several:
            edit(repo, branch, *each)
    one, other = repo.lookup_branch("main"), repo.lookup_branch("dev")
    ancestors = {(entry.id, tip) for tip in (one, other) for entry in repo.ancestry(snapshot_id=tip)}
    content = {id_: seen(repo, id_) for id_ in (one, other)}
    for before, after in product((one, other), repeat=2):
        diff = repo.diff(from_snapshot_id=before, to_snapshot_id=after)
        if before == after or (before, after) not in ancestors:
            assert actual(diff) == expected(content[before], content[after])
        assert before != after or diff.is_empty()


def test_histories_that_have_nothing_in_common() -> None:
    """Two that were expired down to the root and a branch reset: no log tells of what lies between."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    tips = []
    for number in range(2):
        root = [entry.id for entry in repo.ancestry(branch="main")][-1]
        repo.reset_branch("main", root)
        with repo.transaction("main", message=f"{number}") as store:
            zarr.create_array(store, name="a", shape=(4,), chunks=(2,), dtype="i4")[:2] = 1
        tips.append(repo.lookup_branch("main"))
    diff = repo.diff(from_snapshot_id=tips[0], to_snapshot_id=tips[1])
    # Another node at the same path is another node.
    assert (diff.deleted_arrays, diff.new_arrays, diff.updated_chunks) == ({"/a"}, {"/a"}, {"/a": [[0]]})
    assert not diff.moved_nodes


def write(repo: frazil.Repository, branch: str, place: int) -> str:
    session = repo.writable_session(branch)
    zarr.open_array(session.store, path="a")[place] = place + 1
    return session.commit(f"number {place}")


def forked() -> tuple[frazil.Repository, list[str], list[str], list[str]]:
    """Return a repository with two branches, and the ids of their common commits and of both branches.

    All commits except the tips are expired.
    """
    repo = frazil.Repository.create(MemoryStorage())
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(16,), chunks=(1,), dtype="i4")
    common = [repo.lookup_branch("main"), *(write(repo, "main", place) for place in range(4))]
    repo.create_branch("side", common[-1])
    mains, sides = [write(repo, "main", 4)], [write(repo, "side", 5)]
    limit = datetime.now(UTC)
    mains.append(write(repo, "main", 6))
    sides.append(write(repo, "side", 7))
    repo.expire_snapshots(limit)
    return repo, common, mains, sides


def test_logs_that_both_branches_have_are_not_compared() -> None:
    repo, common, mains, sides = forked()
    info = context_of(repo).catalog.repo_info()
    assert {id_from_text(id_) for id_ in common} <= {*info.table.pruned().compact().values.tolist()}
    (commit,) = commits_between(info, id_from_text(sides[-1]), id_from_text(mains[-1]))
    assert sorted(commit.logs) == sorted(map(id_from_text, [*mains, *sides]))


def test_a_cherry_pick_over_expired_versions_brings_one_commit() -> None:
    """The differences of the branches are those after the expired fork."""
    repo, _, _, _ = forked()
    write(repo, "side", 8)
    write(repo, "main", 8)  # the same change: no conflict
    write(repo, "side", 9)
    repo.cherry_pick("side", "main")
    content = np.asarray(zarr.open_array(repo.readonly_session("main").store, path="a")[:])
    assert np.flatnonzero(content).tolist() == [0, 1, 2, 3, 4, 6, 8, 9]


def test_conflicts_over_expired_versions_are_found() -> None:
    repo, _, _, _ = forked()
    session = repo.writable_session("side")
    zarr.open_array(session.store, path="a")[4] = 99  # `main` has changed it in an expired version
    session.commit("another number")
    before = repo.lookup_branch("main")
    with pytest.raises(RebaseFailedError) as failure:
        repo.cherry_pick("side", "main")
    assert [conflict.path for conflict in failure.value.conflicts] == ["/a"]
    assert repo.lookup_branch("main") == before
