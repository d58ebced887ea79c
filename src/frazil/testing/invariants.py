"""Assertions that are true for every history and every store."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from frazil.format.ids import INITIAL_SNAPSHOT_ID, id_to_text

if TYPE_CHECKING:
    from frazil.repository.catalog.version_info import SnapshotInfo
    from frazil.testing.models import ModelStore
    from frazil.zarr_store import IcechunkStore

__all__ = [
    "assert_ancestry_invariants",
    "assert_list_dir_equal",
    "assert_moves_sorted_by_final_path",
    "compare_list_dir",
]


def assert_ancestry_invariants(
    ancestry: list[SnapshotInfo], known_commits: set[str] | None = None, *, must_contain_initial: bool = True
) -> None:
    """Assert that a history is valid.

    The times decrease, no snapshot is there twice, each snapshot has the next one as its parent, and the last
    one has no parent.

    Args:
        ancestry: Snapshots of a history, the newest first.
        known_commits: Ids of all snapshots that the history may contain. Default: any.
        must_contain_initial: Whether the last snapshot must be the initial one. After an expiration, it may
            be another snapshot without a parent. Default: True.
    """
    ids = [snapshot.id for snapshot in ancestry]
    assert len(set(ids)) == len(ids), f"a snapshot is there twice: {ids}"
    for newer, older in pairwise(ancestry):
        assert newer.written_at > older.written_at, f"{newer.id} is not newer than its parent {older.id}"
        assert newer.parent_id == older.id, f"{newer.id} has the parent {newer.parent_id}, not {older.id}"
    assert ancestry, "a history has at least one snapshot"
    assert ancestry[-1].parent_id is None, f"the last snapshot has a parent: {ancestry[-1].parent_id}"
    initial = id_to_text(INITIAL_SNAPSHOT_ID)
    if must_contain_initial:
        assert ids[-1] == initial, f"the last snapshot is {ids[-1]}, not the initial one"
    if known_commits is not None:
        assert set(ids) <= known_commits | {initial}, f"unknown: {set(ids) - known_commits}"


def assert_moves_sorted_by_final_path(moved_nodes: list[tuple[str, str]]) -> None:
    """Assert that moves are sorted by the segments of their targets: /a, /a/b, /a-b."""
    targets = [target.split("/") for _, target in moved_nodes]
    assert targets == sorted(targets), f"not sorted: {moved_nodes}"


def assert_list_dir_equal(path: str, expected: list[str], actual: list[str]) -> None:
    """Assert that two listings of a directory are equal."""
    target, listed = ({name for name in names if name != "c"} for names in (expected, actual))
    assert listed == target, f"`{path}` must contain {sorted(target)}, got {sorted(listed)}"
    assert len(actual) == len(set(actual)), f"`{path}`: a name is there twice in {actual}"


async def compare_list_dir(model: ModelStore, store: IcechunkStore, paths: Iterable[str]) -> None:
    """Call ``assert_list_dir_equal`` for the model and the store, for all paths."""
    for path in paths:
        inside = path.strip("/")
        expected = [name async for name in model.list_dir(inside)]
        assert_list_dir_equal(path, expected, [name async for name in store.list_dir(inside)])
