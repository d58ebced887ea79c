"""The table of conflicts cell by cell, against the reference: what one side does, what the other does, which
conflicts that makes, and what is there when they are solved.

``DIFFERENT`` names every cell where Frazil answers otherwise, with the reason.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from tests.interop.both import check_same, sides
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import sync

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop]

Edit = Callable[[Any], None]


def array(shape: Iterable[int], **attributes: Any) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [2 for _ in shape]}}
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "int8",
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": attributes,
    }
    return json.dumps(document).encode()


def group(**attributes: Any) -> bytes:
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}).encode()


def put(*pairs: tuple[str, bytes]) -> Edit:
    def edit(session: Any) -> None:
        for key, value in pairs:
            sync(session.store.set(key, cpu.Buffer.from_bytes(value)))

    return edit


def drop(path: str) -> Edit:
    return lambda session: sync(session.store.delete_dir(path))


def both(*edits: Edit) -> Edit:
    def edit(session: Any) -> None:
        for each in edits:
            each(session)

    return edit


def move(source: str, target: str) -> Edit:
    return lambda session: session.move(source, target)


def edits(who: str) -> dict[str, Edit]:
    """What one side may do to the nodes of ``base``."""

    def chunk(number: int) -> tuple[str, bytes]:
        return f"g/a/c/{number}", bytes([number, 16 if who == "ours" else 32])

    return {
        "chunk 0": put(chunk(0)),
        "chunks 0, 3": put(chunk(0), chunk(3)),
        "no chunk 0": lambda session: sync(session.store.delete("g/a/c/0")),
        "none where none was": lambda session: sync(session.store.delete("g/e/c/1")),
        "one where none was": put(("g/e/c/1", who.encode()[:2])),
        "attributes": put(("g/a/zarr.json", array([8], who=who))),
        "chunk 0 and attributes": put(chunk(0), ("g/a/zarr.json", array([8], who=who))),
        "shrink": put(("g/a/zarr.json", array([4]))),
        "grow and chunk 5": put(("g/a/zarr.json", array([12])), chunk(5)),
        "delete a": drop("g/a"),
        "replace a": both(drop("g/a"), put(("g/a/zarr.json", array([8], re=who)), chunk(2))),
        "a to group": both(drop("g/a"), put(("g/a/zarr.json", group()))),
        "attributes of g": put(("g/zarr.json", group(who=who))),
        "delete g": drop("g"),
        "replace g": both(drop("g"), put(("g/zarr.json", group(re=who)))),
        "g to array": both(drop("g"), put(("g/zarr.json", array([8], re=who)))),
        "new array b": put(("g/b/zarr.json", array([8])), ("g/b/c/0", b"bb")),
        "new group b": put(("g/b/zarr.json", group()), (f"g/b/{who}/zarr.json", group())),
        "new in sub": put(("g/sub/x/zarr.json", group()), ("g/sub/x/y/zarr.json", group())),
        "delete sub": drop("g/sub"),
    }


MOVES: dict[str, Edit] = {
    "move a": move("/g/a", "/g/m"),
    "move g": move("/g", "/moved"),
    "move h to b": move("/h", "/g/b"),
    "move a into sub": move("/g/a", "/g/sub/x"),
    "move sub to b": move("/g/sub", "/g/b"),
    "move h into sub": move("/h", "/g/sub/h"),
}
#: Theirs in two commits: no session does both.
IN_TURN: dict[str, tuple[str, Edit]] = {
    "delete sub, then move a there": ("delete sub", move("/g/a", "/g/sub"))
}


def base(package: Any, storage: Any = None) -> Any:
    repo = package.Repository.create(storage or package.in_memory_storage())
    session = repo.writable_session("main")
    documents = {"": group(), "g/": group(), "g/a/": array([8]), "g/sub/": group(), "h/": group()}
    documents["g/e/"] = array([4])
    put(*((f"{path}zarr.json", document) for path, document in documents.items()))(session)
    put(*((f"g/a/c/{number}", bytes([number] * 2)) for number in range(4)))(session)
    session.commit("base")
    return repo


def content(session: Any) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        keys = [key async for key in session.store.list()]
        prototype = default_buffer_prototype()
        values = [await session.store.get(key, prototype) for key in keys]
        return {key: value.to_bytes() for key, value in zip(keys, values, strict=True) if value is not None}

    return sync(read())


def solvers(package: Any) -> dict[str, Any]:
    choice, basic = package.VersionSelection, package.BasicConflictSolver
    return {
        "detector": package.ConflictDetector(),
        "basic": basic(),
        "theirs": basic(on_chunk_conflict=choice.UseTheirs),
        "fail": basic(on_chunk_conflict=choice.Fail),
        "strict": basic(fail_on_delete_of_updated_array=True, fail_on_delete_of_updated_group=True),
    }


def conflicts(error: Any) -> list[tuple[str, str, Any]]:
    """Types, paths and, where both wrote chunks, which."""
    return sorted(
        (
            repr(each.conflict_type),
            each.path,
            sorted(each.conflicted_chunks) if repr(each.conflict_type) == "ChunkDoubleUpdate" else None,
        )
        for each in error.conflicts
    )


def outcome(session: Any, solver: Any, package: Any) -> Any:
    """The conflicts, or what the session has then."""
    try:
        session.rebase(solver)
        return inside(content(session))
    except package.RebaseFailedError as error:
        return conflicts(error)
    except package.IcechunkError as error:
        return f"broken: {type(error).__name__}"


def inside(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Without the chunks outside of a smaller array, which the reference has until they are committed."""
    lengths = {
        key.removesuffix("zarr.json"): json.loads(contents[key]) for key in contents if "/c/" not in key
    }
    return {
        key: value
        for key, value in contents.items()
        if "/c/" not in key or int(key[-1]) * 2 < lengths[key[:-3]]["shape"][0]
    }


def assert_well_formed(contents: dict[str, bytes]) -> None:
    """Every node is in a group."""
    kinds = {
        key.removesuffix("zarr.json"): json.loads(contents[key])["node_type"]
        for key in contents
        if key.endswith("zarr.json")
    }
    for path in kinds:
        if path:
            above = path.rstrip("/").rpartition("/")
            assert kinds.get(above[0] + above[1]) == "group", path


def outcomes(package: Any, theirs: Edit, ours: dict[str, Edit]) -> dict[tuple[str, str], Any]:
    """Of every edit of ours, with every solver, rebased onto theirs."""
    repo = base(package)
    chosen = solvers(package)
    pairs = list(itertools.product(ours, chosen))
    sessions = dict(zip(pairs, [repo.writable_session("main") for _ in pairs], strict=True))
    session = repo.writable_session("main")
    theirs(session)
    session.commit("theirs")
    outcomes: dict[tuple[str, str], Any] = {}
    for name, solver in pairs:
        first: Any = outcomes.get((name, "detector"))
        if solver != "detector" and not isinstance(first, list):
            continue  # nothing to solve
        if solver in ("theirs", "fail") and not any("Chunk" in kind for kind, _, _ in first):
            continue
        if solver == "strict" and not any("DeleteOf" in kind for kind, _, _ in first):
            continue
        ours[name](sessions[name, solver])
        outcomes[name, solver] = outcome(sessions[name, solver], chosen[solver], package)
    return outcomes


LOST = [("ChunksUpdatedInUpdatedArray", "/g/a", None)]


def new(path: str) -> list[Any]:
    return [("NewNodeConflictsWithExistingNode", path, None)]


def orphans(path: str, count: int = 1) -> list[Any]:
    return [("NewNodeInInvalidGroup", path, None)] * count


def children(*paths: str) -> list[Any]:
    return [("DeleteOfUpdatedGroup", path, None) for path in paths]


#: Why Frazil's detector finds other conflicts: (ours, theirs) -> which.
DIFFERENT: dict[str, dict[tuple[str, str], list[Any]]] = {
    "a chunk that theirs wrote would be lost in silence: it is outside of our smaller array": {
        ("shrink", "chunks 0, 3"): LOST
    },
    "theirs put a node where ours did: one would be lost in silence, or both be there": {
        ("replace a", "replace a"): new("/g/a"),
        ("replace a", "a to group"): new("/g/a"),
        ("a to group", "replace a"): new("/g/a"),
        ("a to group", "a to group"): new("/g/a"),
        ("replace g", "replace g"): new("/g"),
        ("replace g", "g to array"): new("/g"),
        ("g to array", "replace g"): new("/g"),
        ("g to array", "g to array"): new("/g"),
    },
    "a new node of ours would be in no group": {
        ("replace a", "delete g"): orphans("/g"),
        ("a to group", "delete g"): orphans("/g"),
        ("new array b", "delete g"): orphans("/g"),
        ("new group b", "delete g"): orphans("/g", 2),
        ("new in sub", "delete g"): orphans("/g/sub", 2),
        ("new in sub", "replace g"): orphans("/g/sub", 2),
        ("new in sub", "delete sub"): orphans("/g/sub", 2),
    },
    "a new node of theirs would be in no group, or in an array": {
        ("delete g", "new array b"): children("/g"),
        ("delete g", "new group b"): children("/g"),
        ("delete g", "new in sub"): children("/g", "/g/sub"),
        ("delete g", "a to group"): children("/g"),
        ("delete g", "replace a"): children("/g"),
        ("delete sub", "new in sub"): children("/g/sub"),
        ("replace g", "new in sub"): children("/g/sub"),
        ("g to array", "new array b"): children("/g"),
        ("g to array", "new group b"): children("/g"),
        ("g to array", "new in sub"): children("/g", "/g/sub"),
        ("g to array", "a to group"): children("/g"),
        ("g to array", "replace a"): children("/g"),
    },
    "what ours deleted is gone in theirs too: the node there now is another one, and stays": {
        ("delete a", "replace a"): [],
        ("replace g", "replace a"): [],
    },
}
CELLS = {cell: conflicts for cells in DIFFERENT.values() for cell, conflicts in cells.items()}


@pytest.mark.sample(6, 6)
@pytest.mark.parametrize("theirs", edits("theirs"))
def test_cells_are_those_of_the_reference(theirs: str) -> None:
    ours, reference = (
        outcomes(package, edits("theirs")[theirs], edits("ours")) for package in (frazil, icechunk)
    )
    for (name, solver), actual in ours.items():
        cell = (name, theirs)
        if isinstance(actual, dict):
            assert_well_formed(actual)
        if cell not in CELLS:
            assert actual == reference[name, solver], (cell, solver)
        elif solver == "detector":
            assert (actual if isinstance(actual, list) else []) == CELLS[cell], cell
            assert actual != reference[name, solver], cell


MOVE = "MoveOperationCannotBeRebased"
#: What theirs moved -> ours -> the conflicts, or some keys that are there and some that are not.
MOVED: dict[str, dict[str, Any]] = {
    "move a": {
        "chunk 0": ("g/m/c/0", "g/a/c/0"),
        "chunk 0 and attributes": ("g/m/c/0", "g/a/zarr.json"),
        "new array b": ("g/b/c/0", "g/a/zarr.json"),
        "delete a": [(MOVE, "/g/a", None)],
        "replace a": [(MOVE, "/g/a", None)],
        "delete g": [("DeleteOfUpdatedGroup", "/g", None), (MOVE, "/g/a", None)],
        "move a": ("g/m/zarr.json", "g/a/zarr.json"),
        "move a into sub": [(MOVE, "/g/sub/x", None)],
        "move g": [(MOVE, "/moved/a", None)],
        "move h to b": ("g/b/zarr.json", "h/zarr.json"),
    },
    "delete sub, then move a there": {
        "move h into sub": [(MOVE, "/g/sub", None)],
        "new in sub": orphans("/g/sub", 2),
        "chunk 0": ("g/sub/c/0", "g/a/zarr.json"),
    },
    "move g": {
        "chunk 0": ("moved/a/c/0", "g/a/c/0"),
        "shrink": ("moved/a/c/1", "moved/a/c/2"),
        "attributes of g": ("moved/zarr.json", "g/zarr.json"),
        "new array b": ("moved/b/c/0", "g/b/zarr.json"),
        "new in sub": ("moved/sub/x/y/zarr.json", "g/sub/x/zarr.json"),
        "delete a": ("moved/sub/zarr.json", "moved/a/zarr.json"),
        "replace a": ("moved/a/c/2", "moved/a/c/0"),
        "delete g": [(MOVE, "/g", None)],
        "move h to b": ("moved/b/zarr.json", "h/zarr.json"),
        "move a": [(MOVE, "/g/m", None)],
    },
    "move h to b": {
        "chunk 0": ("g/b/zarr.json", "h/zarr.json"),
        "new array b": new("/g/b"),
        "new group b": new("/g/b"),
        "delete g": children("/g"),
        "move sub to b": [(MOVE, "/g/b", None)],
    },
    "move a into sub": {
        "chunk 0": ("g/sub/x/c/0", "g/a/zarr.json"),
        "new in sub": [*new("/g/sub/x"), *orphans("/g/sub/x")],
        "delete sub": children("/g/sub"),
    },
    # ours is the move now
    "chunk 0": {"move a": ("g/m/c/0", "g/a/c/0"), "move g": ("moved/a/c/0", "g/zarr.json")},
    "new array b": {"move g": ("moved/b/c/0", "g/b/zarr.json"), "move h to b": [(MOVE, "/g/b", None)]},
    "delete a": {"move a": [(MOVE, "/g/m", None)], "move g": ("moved/sub/zarr.json", "moved/a/zarr.json")},
    "replace a": {"move a": [(MOVE, "/g/m", None)], "move g": ("moved/a/c/2", "moved/a/c/0")},
    "delete sub": {"move a into sub": [(MOVE, "/g/sub", None)]},
    "g to array": {"move h to b": [(MOVE, "/g", None)]},
    "delete g": {"move h to b": [(MOVE, "/g", None)], "move a": [(MOVE, "/g/m", None)]},
}


@pytest.mark.sample(6, 6)
@pytest.mark.parametrize("theirs", MOVED)
def test_cells_with_moves(theirs: str, tmp_path: Path) -> None:
    """The reference takes no move across a rebase, and loses nodes where it tries. It reads the results."""
    every = {**edits("theirs"), **MOVES}
    ours_of = {**edits("ours"), **MOVES}
    for number, (ours, expected) in enumerate(MOVED[theirs].items()):
        mine, yours = sides(tmp_path / str(number))
        mine.repo = repo = base(frazil, mine.storage())
        opened = [
            repo.rearrange_session("main") if name in MOVES else repo.writable_session("main")
            for name in (ours, theirs)
        ]
        ours_of[ours](opened[0])
        if theirs in IN_TURN:
            first, then = IN_TURN[theirs]
            every[first](opened[1])
            opened[1].commit("theirs")
            opened[1] = repo.rearrange_session("main")
            then(opened[1])
        else:
            every[theirs](opened[1])
        opened[1].commit("theirs")
        result = outcome(opened[0], frazil.ConflictDetector(), frazil)
        if isinstance(expected, list):
            assert result == expected, ours
            continue
        assert isinstance(result, dict), (ours, result)
        assert_well_formed(result)
        assert (expected[0] in result, expected[1] in result) == (True, False), ours
        opened[0].commit("ours")
        check_same(mine, yours.open())
        assert inside(content(yours.repo.readonly_session("main"))) == result


def test_the_reference_reads_merges_picks_and_reverts(tmp_path: Path) -> None:
    ours, theirs = sides(tmp_path)
    ours.create()
    repo = ours.repo
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        root.create_array("a", shape=(8,), chunks=(2,), dtype="i8")[:] = 1
        root.create_group("g").create_array("c", shape=(800,), chunks=(100,), dtype="i8")[:] = 2
    repo.create_branch("dev", repo.lookup_branch("main"))
    with repo.transaction("dev", message="dev") as store:
        dev: Any = zarr.open_group(store, mode="r+")
        dev["g/c"][:100] = 3
        dev.create_array("d", shape=(2,), chunks=(1,), dtype="i8")[:] = 4
        del dev["a"]
    with repo.transaction("main", message="main") as store:
        zarr.open_array(store, path="g/c")[700:] = 5
    merged = repo.merge("dev")
    back = repo.revert(merged)
    repo.cherry_pick(merged, solver=frazil.BasicConflictSolver())
    repo.revert(back, on="dev", solver=Everything())
    check_same(ours, theirs.open())
    assert repo.lookup_snapshot(merged).metadata == theirs.repo.lookup_snapshot(merged).metadata


class Everything:
    def solve(self, conflicts: Any) -> list[Any]:
        return [frazil.VersionSelection.UseOurs for _ in conflicts]
