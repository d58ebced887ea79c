"""Identical chunks are stored once, whoever writes them, and garbage collection does not get them."""

from __future__ import annotations

import datetime as dt
import errno
import os
import pickle
import time
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

import frazil
from frazil.repository.catalog.collection_guard import CollectionWatch
from frazil.storage import system

CHUNK = 1 << 18
DEDUPLICATING = frazil.RepositoryConfig(
    chunks=frazil.ChunksConfig(deduplicate=True), packing=frazil.PackingConfig(threshold_bytes=CHUNK)
)


def storage_at(path: Path) -> frazil.Storage:
    return frazil.local_filesystem_storage(str(path))


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    repo = frazil.Repository.create(storage_at(tmp_path / "repo"), DEDUPLICATING)
    repo.save_config()
    return repo


def files(tmp_path: Path) -> list[Any]:
    return sorted(path for path in (tmp_path / "repo" / "chunks").iterdir() if "#" not in path.name)


def fill(session: frazil.Session, name: str, values: Any) -> None:
    """An array of one chunk for each value."""
    array = zarr.create_array(
        session.store, name=name, shape=(len(values) * CHUNK,), chunks=(CHUNK,), dtype="u1", compressors=None
    )
    array[:] = np.repeat(np.array(values, "u1"), CHUNK)


def read(repo: frazil.Repository, name: str) -> Any:
    return frazil.read(repo.readonly_session("main"), name)[::CHUNK].tolist()


def commit(repo: frazil.Repository, name: str, values: Any) -> str:
    session = repo.writable_session("main")
    fill(session, name, values)
    return session.commit(name)


def test_forks_find_each_other_s_chunks_and_bring_the_end_of_the_session_forward(
    repo: frazil.Repository, tmp_path: Path
) -> None:
    commit(repo, "a", [1])
    (file,) = files(tmp_path)
    stored = age(file, hours=10)
    session = repo.writable_session("main")
    end = session.expires_at
    forks = [pickle.loads(pickle.dumps(session.fork())) for _ in range(2)]
    for number, fork in enumerate(forks):
        fill(fork, f"f{number}", [7, 1][: number + 1])
    back = [pickle.loads(pickle.dumps(fork)) for fork in forks]
    assert [fork.expires_at for fork in back] == [end, stored + dt.timedelta(hours=21)]
    session.merge(*back)
    assert session.expires_at == stored + dt.timedelta(hours=21)
    session.commit("merged")
    assert len(files(tmp_path)) == 2
    assert read(repo, "f1") == [7, 1]


@pytest.mark.parametrize("in_fork", [False, True])
def test_the_name_of_a_found_chunk_is_durable_before_the_commit(
    repo: frazil.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_fork: bool
) -> None:
    """Its writer may have been killed before its own flush."""
    commit(repo, "a", [1])
    chunks, flush, flushed = str(tmp_path / "repo" / "chunks"), system.files.flush_directory, []

    def recording(path: str) -> None:
        flushed.append((path, (tmp_path / "repo" / "repo").stat().st_ino))
        if path == chunks and flushed.count(flushed[-1]) < 3:
            raise OSError(errno.EIO, "broken")
        flush(path)

    def write(session: frazil.Session) -> Any:
        fill(session, "b", [1, 1])
        return pickle.loads(pickle.dumps(session)) if in_fork else session

    session = repo.writable_session("main")
    monkeypatch.setattr(system.files, "flush_directory", recording)
    inode = (tmp_path / "repo" / "repo").stat().st_ino
    with pytest.raises(frazil.StorageError, match="broken"):
        session.merge(write(session.fork())) if in_fork else write(session).commit("b")
    assert flushed.count((chunks, inode)) == 2  # a flush is tried twice
    assert (tmp_path / "repo" / "repo").stat().st_ino == inode
    if not in_fork:
        session.commit("b")
        assert flushed.count((chunks, inode)) == 3
        assert read(repo, "b") == [1, 1]


# --------------------------------------------------------------- the reference, and garbage collection


def age(path: Path, hours: float) -> dt.datetime:
    """Make a file look as if it was stored that long ago."""
    then = round(time.time() - hours * 3600)
    os.utime(path, (then, then))
    return dt.datetime.fromtimestamp(then, dt.UTC)


def reference_at(path: Path) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def collect(path: Path, hours: int = 24) -> Any:
    """The reference's garbage collection, with the youngest cut-off that is safe; files that went."""
    cut_off = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)
    return reference_at(path).garbage_collect(cut_off).chunks_deleted


def garbage(repo: frazil.Repository, tmp_path: Path, hours: int) -> Any:
    """A chunk of sevens that nobody refers to any more, stored so many hours ago."""
    session = repo.writable_session("main")
    fill(session, "lost", [7])
    (file,) = files(tmp_path)
    age(file, hours)
    return file


@pytest.mark.interop
def test_the_reference_reads_shared_files_and_collects_them_when_the_last_reference_goes(
    repo: frazil.Repository, tmp_path: Path
) -> None:
    commit(repo, "a", [1, 2, 1])
    commit(repo, "b", [2])
    theirs = reference_at(tmp_path / "repo")
    for name, expected in {"a": [1, 2, 1], "b": [2]}.items():
        array = zarr.open_array(theirs.readonly_session("main").store, path=name, mode="r")
        assert np.asarray(array[::CHUNK]).tolist() == expected
        assert (np.asarray(array[:]).reshape(-1, CHUNK) == np.array(expected)[:, None]).all()
    session = theirs.writable_session("main")
    del zarr.open_group(session.store)["a"]
    session.commit("without a")
    theirs.expire_snapshots(dt.datetime.now(dt.UTC))
    assert theirs.garbage_collect(dt.datetime.now(dt.UTC)).chunks_deleted == 1
    assert read(repo, "b") == [2]
    commit(repo, "c", [1, 2])
    assert read(repo, "c") == [1, 2]


@pytest.mark.interop
@pytest.mark.parametrize("hours", [1, 11, 13, 23, 25, 1000])
def test_a_deduplicated_chunk_is_not_collected_before_the_commit(
    repo: frazil.Repository, tmp_path: Path, hours: int
) -> None:
    file = garbage(repo, tmp_path, hours)
    session = repo.writable_session("main")
    fill(session, "found", [7])
    assert files(tmp_path) == [file]
    collected = collect(tmp_path / "repo")
    session.commit("found")
    assert read(repo, "found") == [7]
    assert collected == 0


@pytest.mark.interop
def test_a_chunk_that_was_collected_before_is_stored_again(repo: frazil.Repository, tmp_path: Path) -> None:
    garbage(repo, tmp_path, 30)
    session = repo.writable_session("main")
    assert collect(tmp_path / "repo") == 1
    fill(session, "found", [7])
    assert collect(tmp_path / "repo") == 0
    session.commit("found")
    assert read(repo, "found") == [7]


@pytest.mark.interop
def test_a_watch_sees_collections(repo: frazil.Repository, tmp_path: Path) -> None:
    watch = CollectionWatch(repo._context.catalog.repo_info, repo.storage)
    assert [watch(), watch()] == [True, True]
    collect(tmp_path / "repo")
    commit(repo, "a", [1])
    assert [watch(), watch()] == [False, True]
    short = frazil.Repository.open(repo.storage, frazil.RepositoryConfig(num_updates_per_repo_info_file=2))
    for number in range(4):
        short.create_tag(f"t{number}", short.lookup_branch("main"))
    assert [watch(), watch()] == [False, True]  # the log no longer tells
    assert pickle.loads(pickle.dumps(watch))()
