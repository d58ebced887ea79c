"""Rewritten manifests: the same splitting, metadata and log as the reference leaves, and the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.interop.both import Side, check_same, sides, splitting

pytestmark = [pytest.mark.deep, pytest.mark.interop]


def boxes(side: Side, id_: str) -> Any:
    """Extents of all manifests, by array, and all of the snapshot's metadata."""
    snapshot = side.repo.inspect_snapshot(id_)
    refs = {node["path"]: node.get("manifest_refs", []) for node in snapshot["nodes"]}
    return {path: sorted(ref["extents"] for ref in each) for path, each in refs.items()}, snapshot["metadata"]


@pytest.mark.parametrize(("method", "version"), [("new_commit", 1), ("new_commit", 2), ("amend", 2)])
def test_both_rewrite_the_same(method: str, version: int, tmp_path: Path) -> None:
    histories = []
    for number in range(2):
        pair = sides(tmp_path / str(number))
        side = pair[number]
        side.repo = side.package.Repository.create(
            side.storage(), side.config(inline_chunk_threshold_bytes=0), spec_version=version
        )
        with side.repo.transaction("main", message="first") as store:
            root = zarr.create_group(store)
            root.create_array("x", shape=(12,), chunks=(1,), dtype="i4")[:] = 1
            root.create_array("y", shape=(4, 6), chunks=(1, 2), dtype="i4")[:2] = 2
            root.create_array("empty", shape=(4,), chunks=(1,), dtype="i4")
            root.create_group("g")
        history: list[list[Any]] = [[], []]
        for size in (5, 3, 100):
            config = side.config(inline_chunk_threshold_bytes=0, manifest=splitting(side.package, size))
            repo = (
                side.repo.reopen(config)
                if number == 0
                else side.package.Repository.open(side.storage(), config)
            )
            side.repo = repo
            metadata = {"size": size, "__icechunk": {"more": 1}}
            id_ = repo.rewrite_manifests("again", branch="main", metadata=metadata, commit_method=method)
            history[0].append(boxes(side, id_))
            log = repo.inspect_transaction_log(id_)
            history[1].append({name: len(each) for name, each in log.items() if name != "header"})
        histories.append((*history, [commit.message for commit in repo.ancestry(branch="main")]))
        if version == 2:
            check_same(*(each.open() for each in pair))
    assert histories[0] == histories[1]
