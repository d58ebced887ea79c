"""A session that is dropped with changes warns once, and only if the changes are lost unnoticed."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress

import pytest
import zarr

import frazil
from frazil.errors import UncommittedChangesWarning


def _dropped(repo: frazil.Repository) -> None:
    zarr.create_group(repo.writable_session("main").store, path="new")


def _moved(repo: frazil.Repository) -> None:
    repo.rearrange_session("main").move("/old", "/new")


def _committed(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="new")
    session.commit("new")


def _rebased(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="first")
    _committed(repo)
    session.rebase(frazil.ConflictDetector())
    session.commit("first")


def _discarded(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="new")
    session.discard_changes()


def _fork(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.fork().store, path="new")


def _failed_block(repo: frazil.Repository) -> None:
    with suppress(RuntimeError), repo.transaction("main", message="new") as store:
        zarr.create_group(store, path="new")
        raise RuntimeError


def _failed_commit(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="first")
    _committed(repo)
    with pytest.raises(frazil.ConflictError):
        session.commit("first")


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (_dropped, 1),
        (_moved, 1),
        (_committed, 0),
        (_rebased, 0),
        (_discarded, 0),
        (_fork, 0),
        (_failed_block, 0),
        (_failed_commit, 0),
    ],
)
def test_lost_changes(work: Callable[[frazil.Repository], None], expected: int) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="old") as store:
        zarr.create_group(store, path="old")
    gc.collect()  # the sessions of other tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work(repo)
        gc.collect()
    assert [each.category for each in caught] == [UncommittedChangesWarning] * expected


@pytest.mark.parametrize(("end", "expected"), [("", True), ("session.commit('new')", False)])
def test_the_end_of_a_program(end: str, expected: bool) -> None:
    program = (
        "import frazil, zarr; repo = frazil.Repository.create(frazil.in_memory_storage());"
        f"session = repo.writable_session('main'); zarr.create_group(session.store, path='new'); {end}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ("UncommittedChangesWarning" in done.stderr) == expected


def test_a_write_after_the_commit_says_so() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="new")
    session.commit("new")
    group = zarr.open_group(session.store, mode="a")
    for write in (
        lambda: group.create_group("more"),
        lambda: zarr.open_group(session.store, mode="w"),
        lambda: session.move("/new", "/moved"),
    ):
        with pytest.raises(frazil.ReadOnlyError, match=r"has committed.*writable_session"):
            write()
