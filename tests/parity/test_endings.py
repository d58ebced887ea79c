"""Commits that replace others, and snapshots that no branch leads to: as the published icechunk makes them,
readable for it, and told in the same logs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from tests.expected import diff_text, kind_text
from tests.interop.both import (
    Side,
    check_same,
    check_same_snapshot,
    content_of,
    copies,
    diff_of,
    log_of,
    sides,
)
from zarr.core.sync import sync

pytestmark = [pytest.mark.deep, pytest.mark.interop]


@pytest.fixture
def both(tmp_path: Path) -> tuple[Side, Side]:
    """Two copies of one repository: three commits, one of them with references of all kinds."""
    virtual = tmp_path / "files"
    virtual.mkdir()
    (virtual / "data.bin").write_bytes(bytes(range(100)))
    ours, _ = sides(tmp_path / "first", virtual)
    repo = ours.create(ours.config(inline_chunk_threshold_bytes=12)).repo
    session = repo.writable_session("main")
    root = zarr.create_group(session.store)
    for path in ("g", "g/sub", "old"):
        root.create_group(path)
    for path in ("g/a", "b", "old/c"):
        root.create_array(path, shape=(8,), chunks=(4,), dtype="i4", compressors=None)[:] = 1
    root.create_array("v", shape=(4,), chunks=(2,), dtype="u1", compressors=None)
    session.store.set_virtual_ref("v/c/0", f"{ours.prefix}data.bin", offset=3, length=2)
    session.commit("first")
    for number in (2, 3):
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="b")[:4] = number
        zarr.open_group(session.store, path="g").attrs["n"] = number
        session.commit(f"commit {number}")
    return copies(ours.path, tmp_path, virtual)


def edit(session: Any) -> None:
    root: Any = zarr.open_group(session.store)
    root["b"][4:] = 9
    root["g"].attrs["k"] = 1
    root["g/a"].resize((4,))
    del root["old"]
    root.create_group("new").create_array("d", shape=(2,), chunks=(1,), dtype="i4")[:] = 5
    sync(session.store.delete("v/c/0"))


def undo(session: Any) -> None:
    root: Any = zarr.open_group(session.store)
    del root["new"]
    root["b"][:] = 7


def move(session: Any) -> None:
    session.move("/g", "/h")


def counts_of_log(side: Side, id_: str) -> Any:
    """What the transaction log tells; new nodes have ids of their own."""
    log = log_of(side, id_)
    chunks = sorted(each["chunks"] for each in log.pop("updated_chunks"))
    return {name: value if name == "moved_nodes" else len(value) for name, value in log.items()}, chunks


def look(side: Side, id_: str, *before: str) -> Any:
    """What can be seen of a version, but for ids and times."""
    entry = side.repo.lookup_snapshot(id_)
    content = content_of(side.repo.readonly_session(snapshot_id=id_))
    for node in content.values():
        del node["id"]
        node.pop("chunks", None)
    return {
        "entry": (entry.parent_id, entry.message, entry.metadata),
        "content": content,
        "log": counts_of_log(side, id_),
        "diffs": [repr(side.repo.diff(from_snapshot_id=each, to_snapshot_id=id_)) for each in before],
        "ops": [kind_text(update.kind).partition("(")[0] for update in side.repo.ops_log()],
    }


def check_readable(both: tuple[Side, Side]) -> None:
    for side in both:
        ours, theirs = sides(side.path, side.virtual)
        check_same(ours.open(), theirs.open())


def history(side: Side) -> list[str]:
    return [entry.id for entry in side.repo.ancestry(branch="main")]


@pytest.mark.sample(4, 4)
@pytest.mark.parametrize("steps", [[edit], [edit, undo], [edit, move], [move, move], [edit, undo, move]])
def test_amended_commits_are_the_same(both: tuple[Side, Side], steps: list[Any]) -> None:
    seen = []
    for side in both:
        _, second, first, root = history(side)
        for number, step in enumerate(steps):
            moves = step is move
            session = (side.repo.rearrange_session if moves else side.repo.writable_session)("main")
            if moves and number and steps[number - 1] is move:
                session.move("/h", "/é")
            else:
                step(session)
            id_ = session.amend(f"amended {number}", metadata={"n": number})
            assert (session.read_only, session.branch, session.snapshot_id) == (True, None, id_)
        assert history(side)[1:] == [second, first, root]
        seen.append(look(side, id_, second, first, root))
    if undo in steps:  # the reference tells of what the first step made and the second deleted, twice
        mine, theirs = (each.pop("log") for each in seen)
        created = {"groups": 1, "arrays": 1}
        for kind, count in created.items():
            assert [mine[0][f"{did}_{kind}"] for did in ("new", "deleted")] == [0, 1]
            assert [theirs[0][f"{did}_{kind}"] for did in ("new", "deleted")] == [count, 1 + count]
        assert len(mine[1]) == len(theirs[1]) - 1
    assert seen[0] == seen[1]
    check_readable(both)


def change(root: Any) -> None:
    """What an amended commit first did, with nodes that it then changes and deletes."""
    for path in ("made", "gone"):
        root.create_group(path)
    for path in ("arr", "lost"):
        root.create_array(path, shape=(4,), chunks=(1,), dtype="i4", compressors=None)[:2] = 1


def change_again(root: Any) -> None:
    root["made"].attrs["x"] = 1
    root["arr"].attrs["x"] = 1
    root["arr"][2:] = 3
    del root["gone"], root["lost"]


#: What somebody does who has not seen that commit, and whether it goes on top.
MEANWHILE: dict[str, tuple[Callable[[Any], object], bool]] = {
    "chunks of another array": (lambda root: root["b"].__setitem__(slice(4), 8), True),
    "a group where one was made and deleted": (lambda root: root.create_group("gone"), True),
    "a group where one was made": (lambda root: root.create_group("made"), False),
    "an array where one was made": (
        lambda root: root.create_array("arr", shape=(1,), chunks=(1,), dtype="i4"),
        False,
    ),
}


@pytest.mark.sample(3, 3)
@pytest.mark.parametrize("case", MEANWHILE)
def test_rebases_over_an_amended_commit(both: tuple[Side, Side], case: str) -> None:
    """Frazil amends, twice; both rebase over its log."""
    act, passes = MEANWHILE[case]
    for side in both:
        ours = sides(side.path, side.virtual)[0].open()
        late = side.repo.writable_session("main")
        act(zarr.open_group(late.store))
        session = ours.repo.writable_session("main")
        change(zarr.open_group(session.store))
        session.commit("first")
        for again in (change_again, lambda root: root["b"].__setitem__(slice(4, 8), 9)):
            session = ours.repo.writable_session("main")
            again(zarr.open_group(session.store))
            session.amend("amended")
        log = ours.repo.inspect_transaction_log(session.snapshot_id)
        assert (len(log["new_groups"]), len(log["new_arrays"]), len(log["updated_chunks"])) == (1, 1, 2)
        assert not any(
            log[f"{did}_{kind}"] for did in ("deleted", "updated") for kind in ("groups", "arrays")
        )
        solver = side.package.ConflictDetector()
        if passes:
            late.rebase(solver)
            late.commit("late")
            store = ours.repo.readonly_session("main").store
            array: Any = zarr.open_array(store, path="arr", mode="r")
            assert array[:].tolist() == [1, 1, 3, 3]
        else:
            with pytest.raises(side.package.RebaseFailedError):
                late.rebase(solver)
    check_readable(both)


def test_what_an_amended_commit_says_of_expired_ones_stays(both: tuple[Side, Side]) -> None:
    seen = []
    for side in both:
        storage = icechunk.local_filesystem_storage(str(side.path))
        icechunk.Repository.open(storage).expire_snapshots(datetime.now(UTC) + timedelta(seconds=1))
        assert len(history(side)) == 2
        session = side.repo.writable_session("main")
        edit(session)
        id_ = session.amend("amended")
        root = history(side)[-1]
        seen.append(look(side, id_, root))
        info = both[0].package.Repository.open(sides(side.path)[0].storage())._info()
        pruned = info.snapshots.entry(
            info.snapshots.find_snapshot(both[0].package.format.ids.id_from_text(id_))
        )
        assert len(pruned.pruned_ancestor_tx_logs) == 2
    assert seen[0] == seen[1]


def test_amending_only_the_message(both: tuple[Side, Side]) -> None:
    seen = []
    for side in both:
        tip, second, *_ = history(side)
        side.repo.create_tag("kept", tip)
        side.repo.set_default_commit_metadata({"by": "me"})
        session = side.repo.writable_session("main")
        id_ = session.amend("another message", allow_empty=True)
        assert side.repo.lookup_tag("kept") == tip
        seen.append(look(side, id_, second))
        assert counts_of_log(side, id_) == counts_of_log(side, tip)
    assert seen[0] == seen[1]
    check_readable(both)


@pytest.mark.sample(3, 3)
@pytest.mark.parametrize("case", ["clean", "edited", "moved", "stale", "reads", "no branch"])
def test_flushed_snapshots_are_the_same(both: tuple[Side, Side], case: str) -> None:
    seen = []
    for side in both:
        tip = history(side)[0]
        side.repo.create_branch("dev", tip)
        session = side.repo.writable_session("dev")
        if case == "moved":
            session = side.repo.rearrange_session("dev")
            move(session)
        elif case == "reads":
            session = side.repo.readonly_session("main")
        elif case != "clean":
            edit(session)
        if case == "stale":
            other = side.repo.writable_session("dev")
            undo_free = zarr.open_group(other.store)
            undo_free.attrs["other"] = 1
            other.commit("other")
        if case == "no branch":
            side.repo.delete_branch("dev")
        status = diff_text(session.status())
        id_ = session.flush("aside", metadata={"n": 1})
        assert (session.read_only, session.branch, session.snapshot_id) == (True, None, id_)
        assert not session.has_uncommitted_changes
        assert id_ not in history(side)
        assert diff_of(side.repo, tip, id_) == status
        seen.append(look(side, id_, tip))
        ours, theirs = sides(side.path, side.virtual)
        check_same_snapshot(ours.open(), theirs.open(), id_)
    assert seen[0] == seen[1]
    check_readable(both)
