"""Expiration and garbage collection: of two copies of a repository, each implementation leaves the same
files and tells the same; and what lives can be read afterwards by both.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.expected import history_of
from tests.interop.both import Side, check_same, sides
from tests.support.examples import examples

import frazil
from frazil.format.repo_info import SnapshotTable, decode_repo_info, encode_repo_info
from frazil.repository.catalog.repo_update import ops_log

pytestmark = [pytest.mark.deep, pytest.mark.interop]

FOLDERS = ("snapshots", "transactions", "manifests", "chunks", "refs")
FIELDS = [name for name in dir(icechunk.GCSummary) if not name.startswith("_")]
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)

Step = tuple[str, int]
ACTS = [*["write"] * 3, "branch", "tag", "untag", "reset", "drop", "abandon", "amend", "virtual", "expire"]
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 2**16)), min_size=2, max_size=10)


def play(side: Side, steps: list[Step]) -> None:
    """A history of ``steps``, each with a number that says where."""
    repo = side.create(side.config(inline_chunk_threshold_bytes=8)).repo
    with repo.transaction("main", message="start") as store:
        zarr.create_array(store, name="x", shape=(20,), chunks=(3,), dtype="i4", compressors=None)[:] = 1
        zarr.create_array(store, name="v", shape=(4,), chunks=(1,), dtype="i4", compressors=None)
    for number, (what, where) in enumerate(steps, 1):
        branch = sorted(repo.list_branches())[where % len(repo.list_branches())]
        past = [commit.id for commit in repo.ancestry(branch=branch)][:-1]
        at = where % 17
        session = repo.writable_session(branch)
        match what:
            case "write" | "abandon" | "amend":
                zarr.open_array(session.store, path="x")[at : at + 3] = number + 1
                if what == "write":
                    session.commit(f"write {number}")
                elif what == "amend" and side.spec > 1:
                    session.amend(f"amend {number}")
                elif side.name == "frazil":
                    session.workspace.writer.flush()
            case "virtual":
                session.store.set_virtual_ref(f"v/c/{where % 4}", f"{side.prefix}d.bin", offset=0, length=4)
                session.commit("virtual")
            case "branch":
                repo.create_branch(f"b{number}", past[where % len(past)])
            case "tag":
                repo.create_tag(f"t{number}", past[where % len(past)])
            case "untag" if repo.list_tags():
                repo.delete_tag(sorted(repo.list_tags())[where % len(repo.list_tags())])
            case "reset":
                repo.reset_branch(branch, past[where % len(past)])
            case "drop" if branch != "main":
                repo.delete_branch(branch)
            case "expire":
                repo.expire_snapshots(repo.lookup_snapshot(past[where % len(past)]).written_at)


def mix_times(path: Path, seed: int) -> None:
    """The clocks of writers went back."""
    info = decode_repo_info((path / "repo").read_bytes(), "repo")
    entries = list(map(info.snapshots.entry, range(len(info.snapshots))))
    later = [entry for entry in entries if entry.parent is not None]
    times = [entry.flushed_at for entry in later]
    Random(seed).shuffle(times)
    entries = [entry for entry in entries if entry.parent is None]
    entries += [replace(entry, flushed_at=when) for entry, when in zip(later, times, strict=True)]
    (path / "repo").write_bytes(encode_repo_info(replace(info, snapshots=SnapshotTable.of(entries))))


def files(path: Path) -> list[str]:
    """All objects. Locks, whose names end in ``#0``, are no objects."""
    existing = (file for name in FOLDERS for file in (path / name).rglob("*") if file.is_file())
    return sorted(str(file.relative_to(path)) for file in existing if not file.name.endswith("#0"))


def left(path: Path) -> Any:
    if not (path / "repo").exists():  # spec version 1
        return files(path), history_of(frazil.Repository.open(frazil.local_filesystem_storage(str(path))))
    info = decode_repo_info((path / "repo").read_bytes(), "repo")
    entries = list(map(info.snapshots.entry, range(len(info.snapshots))))
    log = [entry.kind for entry in ops_log(frazil.local_filesystem_storage(str(path)), info)]
    return files(path), entries, info.branches, info.tags, log


@settings(max_examples=examples(25))
@given(
    steps=STEPS,
    writer=st.sampled_from(["frazil", "icechunk"]),
    expire=st.sampled_from(["", "frazil", "icechunk", "each"]),
    delete_refs=st.tuples(st.booleans(), st.booleans()),
    older_than=st.integers(0, 100),
    old=st.integers(0, 2**32),
    dry_run=st.booleans(),
    spec=st.sampled_from([1, 2]),
)
def test_both_collect_the_same(
    steps: list[Step],
    writer: str,
    expire: str,
    delete_refs: tuple[bool, bool],
    older_than: int,
    old: int,
    dry_run: bool,
    spec: int,
) -> None:
    def expired(side: Side) -> Any:
        repo = side.open().repo
        times = sorted(commit.written_at for commit in repo.ancestry(branch="main"))
        return repo.expire_snapshots(
            times[older_than % len(times)],
            delete_expired_branches=delete_refs[0],
            delete_expired_tags=delete_refs[1],
        )

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "virtual").mkdir()
        (path / "virtual" / "d.bin").write_bytes(bytes(8))
        pairs = [sides(path / name, path / "virtual", spec) for name in ("frazil", "icechunk")]
        by_name = {side.name: side for side in pairs[0]}
        play(by_name[writer], steps)
        if spec > 1 and old % 2:
            mix_times(pairs[0][0].path, old)
        if expire in by_name:
            expired(by_name[expire])
        one = pairs[0][0].path
        for number, name in enumerate(files(one)):
            if old >> number % 32 & 1:
                os.utime(one / name, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
        shutil.copytree(one, pairs[1][0].path)
        limit = LONG_AGO + timedelta(days=1) if older_than % 2 and spec > 1 else datetime.now(UTC)
        outcomes = []
        for side in (pairs[0][0], pairs[1][1]):
            ids = expired(side) if expire == "each" else None
            before = files(side.path)
            summary = side.open().repo.garbage_collect(limit, dry_run=dry_run)
            outcomes.append((ids, {name: getattr(summary, name) for name in FIELDS}, left(side.path)))
            assert not dry_run or files(side.path) == before
        assert outcomes[0] == outcomes[1]
        ours, theirs = pairs[0]
        check_same(ours.open(), theirs.open())


def test_statistics(tmp_path: Path) -> None:
    ours, theirs = sides(tmp_path / "repo", tmp_path)
    (tmp_path / "d.bin").write_bytes(bytes(100))
    repo = theirs.create(theirs.config(inline_chunk_threshold_bytes=12)).repo
    for number in range(4):
        with repo.transaction("main", message=str(number)) as store:
            x = zarr.create_array(store, name=f"x{number}", shape=(20,), chunks=(10,), dtype="i4")
            x[: 10 + 5 * (number % 3)] = number + np.arange(10 + 5 * (number % 3))
            zarr.create_array(store, name=f"s{number}", shape=(), dtype="i4", compressors=None)[...] = 3
            zarr.create_array(store, name=f"v{number}", shape=(3,), chunks=(1,), dtype="i4")
            for chunk in range(3):
                store.set_virtual_ref(
                    f"v{number}/c/{chunk}",
                    f"{theirs.prefix}d.bin",
                    offset=4 * (chunk % 2 + number % 2),
                    length=4,
                )
    with repo.transaction("main", message="rewritten") as store:
        zarr.open_array(store, path="x0")[:3] = 9
    repo.create_tag("t", repo.lookup_branch("main"))
    mine, yours = ours.open().repo.chunk_storage_stats(), repo.chunk_storage_stats()
    names = ("native_bytes", "virtual_bytes", "inlined_bytes")
    assert [getattr(mine, name) for name in names] == [getattr(yours, name) for name in names]
    assert (mine.total_bytes(), mine.non_virtual_bytes()) == (yours.total_bytes(), yours.non_virtual_bytes())
    for each in (ours.repo, repo):
        with pytest.warns(DeprecationWarning, match="chunk_storage_stats"):
            assert each.total_chunks_storage() == mine.native_bytes > 0
    # Ranges of a pack count as what they are, not as the file.
    with ours.repo.transaction("main", message="packed") as store:
        zarr.create_array(store, name="p", shape=(8,), chunks=(1,), dtype="S50", compressors=None)[:] = b"a"
    assert ours.repo.chunk_storage_stats().native_bytes - mine.native_bytes == 8 * 50
