"""Nodes that change their place: Frazil and the published icechunk do the same, refuse the same, and read
what the other has written.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.interop.both import check_same, content_of, copies, log_of, sides
from tests.support.examples import examples

pytestmark = [pytest.mark.deep, pytest.mark.interop]

GROUPS = ("a", "a/b", "a/b/c", "a-b", "d", "é")
ARRAYS = ("a/b/x", "y", "a-b/z")
PLACES = [
    *(f"/{path}" for path in (*GROUPS, *ARRAYS)),
    "/",
    *("/new", "/a/new", "/d/new", "/d/new/x", "/a0", "/y/below", "/new/new", "/é/a", "relative"),
]
moves = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(PLACES)), min_size=1, max_size=12)


def plant(repo: Any) -> None:
    session = repo.writable_session("main")
    root = zarr.create_group(session.store)
    for path in GROUPS:
        root.require_group(path, overwrite=False).attrs["was"] = path
    for number, path in enumerate(ARRAYS):
        array = root.create_array(path, shape=(6,), chunks=(2,), dtype="i4")
        array[:4] = np.arange(4) + 10 * number
    session.commit("planted")


@pytest.fixture(scope="module")
def planted() -> Any:
    folder = Path(tempfile.mkdtemp(prefix="frazil-moves-"))
    ours, _ = sides(folder / "repo")
    plant(ours.create().repo)
    yield folder / "repo"
    shutil.rmtree(folder)


def attempt(session: Any, source: str, target: str) -> tuple[str, str | None] | None:
    try:
        session.move(source, target)
    except Exception as error:  # it is what is compared
        return type(error).__name__, getattr(error, "kind", None)
    return None


@pytest.mark.deep
@settings(max_examples=examples(40))
@given(moves=moves, more=moves)
# Moves to the first place, also through another place, and a parent that moves after its child.
@example(
    moves=[("/d", "/new"), ("/new", "/d")], more=[("/a/b/x", "/d/x"), ("/d/x", "/new"), ("/new", "/a/b/x")]
)
@example(moves=[("/a/b", "/d/b"), ("/d", "/new"), ("/new/b", "/a/b")], more=[("/new", "/d"), ("/y", "/d/y")])
def test_both_move_the_same(planted: Path, moves: list[tuple[str, str]], more: list[tuple[str, str]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="frazil-moves-"))
    try:
        both = copies(planted, folder)
        for part in (moves, more):
            sessions = [side.repo.rearrange_session("main") for side in both]
            for move in part:
                mine, theirs = (attempt(session, *move) for session in sessions)
                assert mine == theirs, move
                assert sessions[0].has_uncommitted_changes == sessions[1].has_uncommitted_changes
            assert repr(sessions[0].status()) == repr(sessions[1].status())
            assert content_of(sessions[0]) == content_of(sessions[1])
            ids = [session.commit("moved", allow_empty=True) for session in sessions]
            assert log_of(both[0], ids[0]) == log_of(both[1], ids[1])
        # Each reads what either has written, and tells the same of both commits together.
        texts = set()
        for side in both:
            readers = [each.open() for each in sides(side.path)]
            check_same(*readers)
            first = [entry.id for entry in readers[0].repo.ancestry(branch="main")][-2]
            for reader in readers:
                texts.add(repr(reader.repo.diff(from_snapshot_id=first, to_branch="main")))
        assert len(texts) == 1
    finally:
        shutil.rmtree(folder)
