"""A repository with a long history."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import zarr
from commits import group
from measure import Measured, scratch

SECOND = 1_000_000  # times are in microseconds
ROUNDS = 5


def long(implementation: str, commits: int) -> Measured:
    """Measure opening the repository, looking up a chunk, reading the history, and a commit."""
    from zarr.core.sync import sync

    icechunk = importlib.import_module(implementation)
    out = Measured()
    with scratch() as root:
        make(root, commits)
        repo = icechunk.Repository.open(icechunk.local_filesystem_storage(root))
        with out.milliseconds_each("open", ROUNDS):
            for _ in range(ROUNDS):
                repo = icechunk.Repository.open(icechunk.local_filesystem_storage(root))
        with out.milliseconds_each("open a session and look a chunk up", ROUNDS):
            for _ in range(ROUNDS):
                repo.readonly_session("main").chunk_type("/a", [0])
        with out.milliseconds_each("ancestry", 1):
            found = sum(1 for _ in repo.ancestry(branch="main"))
        assert found == commits
        with out.milliseconds_each("ancestry, reading ids and messages", 1):
            length = sum(len(each.id) + len(each.message) for each in repo.ancestry(branch="main"))
        with out.milliseconds_each("ancestry, reading all fields", 1):
            values = [
                (each.id, each.parent_id, each.written_at, each.message, each.metadata)
                for each in repo.ancestry(branch="main")
            ]
        assert sum(len(id_) + len(message) for id_, _, _, message, _ in values) == length
        del values
        # The reference has objects only.
        is_ours = implementation == "frazil"
        read = repo.history.log if is_ours else repo.ancestry  # the first use of `history` imports it
        with out.milliseconds_each("ancestry as columns", 1):
            table: Any = read(branch="main") if is_ours else list(read(branch="main"))
        assert len(table["id"] if is_ours else table) == commits
        with out.milliseconds_each("a commit", ROUNDS):
            for count in range(ROUNDS):
                session = repo.writable_session("main")
                sync(session.store.set("zarr.json", group(count)))
                session.commit(f"commit {count}")
        out["repo, KiB"] = (Path(root) / "repo").stat().st_size / 1024
    return out


def make(root: str, commits: int) -> None:
    """Make a repository of ``commits`` commits. Only the files of the last commit exist."""
    from frazil import Repository, local_filesystem_storage
    from frazil.format.repo_info import (
        OpsEntry,
        SnapshotEntry,
        SnapshotTable,
        UpdateKind,
        decode_repo_info,
        encode_repo_info,
        new_repo_info,
    )

    repo = Repository.create(local_filesystem_storage(root))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(4,), dtype="f4")[:] = 1
    session.commit("the last one")

    file = Path(root) / "repo"
    info = decode_repo_info(file.read_bytes(), "repo")
    tip = info.snapshots.entry(info.snapshots.find_snapshot(info.branches["main"]))
    first = info.snapshots.entry(info.snapshots.find_snapshot(tip.parent or b""))
    start = tip.flushed_at - (commits + 1) * SECOND
    ids = [first.id, *(os.urandom(12) for _ in range(commits - 2)), tip.id]
    entries = [replace(first, flushed_at=start)]
    entries += [
        SnapshotEntry(id_, parent, start + k * SECOND, f"hourly update {k}", {"run": k})
        for k, (parent, id_) in enumerate(pairwise(ids[:-1]), 1)
    ]
    entries.append(replace(tip, parent=ids[-2]))
    base = replace(new_repo_info(start, info.config), snapshots=SnapshotTable.of(entries))
    base = replace(base, branches={"main": tip.id})
    # Only the newest updates: a repo info holds only the location of older updates.
    for k in range(max(1, commits - 999), commits):
        told = OpsEntry(UpdateKind.NEW_COMMIT, start + k * SECOND + 1, name="main", new_snapshot=ids[k])
        base = base.recorded(told, backup=f"repo.{k}.{os.urandom(8).hex()}", keep=1000)
    file.write_bytes(encode_repo_info(base))
