"""Versions that were expired and collected while somebody works with them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import zarr
from tests.maintenance.schedules import make_old
from tests.support.errors import of_kind
from zarr.core.sync import sync

import frazil
from frazil.errors import ErrorKind, SessionSnapshotNotFoundError, SnapshotNotFoundError, StorageError
from frazil.storage.memory import MemoryStorage

CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False))


def write(repo: frazil.Repository, n: int) -> str:
    session = repo.writable_session("main")
    if n == 0:
        zarr.create_array(session.store, name="g/x", shape=(4,), chunks=(1,), dtype="i4", compressors=None)
    zarr.open_array(session.store, path="g/x")[:] = n
    return session.commit(str(n))


@pytest.fixture(params=[2, 1])
def storage(request: pytest.FixtureRequest) -> MemoryStorage:
    """Three versions of an array, whose files are days old."""
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG, spec_version=request.param)
    for n in range(3):
        write(repo, n)
    make_old(storage, days=2)
    return storage


def ids(repo: frazil.Repository) -> list[str]:
    return [entry.id for entry in repo.ancestry(branch="main")]


def expire(storage: MemoryStorage) -> None:
    repo = frazil.Repository.open(storage, CONFIG)
    write(repo, 9)
    repo.expire_snapshots(datetime.now(UTC))
    repo.garbage_collect(datetime.now(UTC) - timedelta(days=1))


Read = Callable[[frazil.Session], Any]
READS: dict[str, Read] = {
    "array": lambda s: zarr.open_array(s.store, path="g/x", mode="r")[:],
    "group": lambda s: zarr.open_group(s.store, path="g", mode="r"),
    "anything": lambda s: zarr.open(s.store, path="g/x", mode="r"),
    "contains": lambda s: "g" in zarr.open_group(s.store, mode="r"),
    "members": lambda s: list(zarr.open_group(s.store, mode="r").members()),
    "keys": lambda s: list(zarr.open_group(s.store, mode="r").keys()),
    "exists": lambda s: sync(s.store.exists("g/zarr.json")),
    "list": lambda s: sync(_all(s.store.list())),
    "list a directory": lambda s: sync(_all(s.store.list_dir("g"))),
    "chunk": lambda s: s.workspace.read_chunk("/g/x", (0,)),
    "references": lambda s: s.chunk_table("/g/x"),
    "type of a chunk": lambda s: s.chunk_type("/g/x", [0]),
}


async def _all(values: Any) -> list[str]:
    return [value async for value in values]


@pytest.mark.sample(21, 21)
@pytest.mark.deep
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("warm", [False, True])
def test_a_reader_learns_that_the_version_is_gone(storage: MemoryStorage, read: str, warm: bool) -> None:
    """Not that the storage failed; and zarr does not take the array for missing or empty."""
    repo = frazil.Repository.open(storage, CONFIG)
    session = repo.readonly_session(snapshot_id=ids(repo)[1])
    if warm:
        READS[read](session)
    copy = pickle.loads(pickle.dumps(session))
    expire(storage)
    for each in (session, copy):
        try:
            READS[read](each)
        except SessionSnapshotNotFoundError as error:
            assert error.kind == ErrorKind.SNAPSHOT_NOT_FOUND  # noqa: PT017  # it may read what it has
            assert "Open another version" in str(error)  # noqa: PT017
            assert not isinstance(error, KeyError)  # noqa: PT017
        else:
            assert warm
            assert each is session
            assert read not in {"array", "chunk"}


def test_a_lost_file_is_a_failure_of_the_storage(storage: MemoryStorage) -> None:
    """Where the version is there, nobody has expired it."""
    repo = frazil.Repository.open(storage, CONFIG)
    session = repo.readonly_session("main")
    chunks = [info.key for info in storage.list("chunks")]
    storage.delete(chunks)
    with pytest.raises(StorageError, check=of_kind(ErrorKind.OBJECT_NOT_FOUND)):
        READS["array"](session)


Use = Callable[[frazil.Repository, str], Any]
USES: dict[str, Use] = {
    "lookup": lambda repo, id_: repo.lookup_snapshot(id_),
    "ancestry": lambda repo, id_: list(repo.ancestry(snapshot_id=id_)),
    "session": lambda repo, id_: repo.readonly_session(snapshot_id=id_),
    "diff from": lambda repo, id_: repo.diff(from_snapshot_id=id_, to_branch="main"),
    "diff to": lambda repo, id_: repo.diff(from_branch="main", to_snapshot_id=id_),
    "branch": lambda repo, id_: repo.create_branch("new", id_),
    "tag": lambda repo, id_: repo.create_tag("new", id_),
    "reset": lambda repo, id_: repo.reset_branch("main", id_),
    "merge": lambda repo, id_: repo.merge(id_),
    "cherry-pick": lambda repo, id_: repo.cherry_pick(id_),
    "revert": lambda repo, id_: repo.revert(id_),
    "manifests": lambda repo, id_: repo.list_manifest_files(id_),
    "inspect": lambda repo, id_: repo.inspect_snapshot(id_),
}


@pytest.mark.sample(23, 23)
@pytest.mark.deep
@pytest.mark.parametrize("use", USES)
def test_methods_of_a_repository(storage: MemoryStorage, use: str) -> None:
    id_ = ids(frazil.Repository.open(storage, CONFIG))[1]
    expire(storage)
    with pytest.raises(SnapshotNotFoundError) as error:
        USES[use](frazil.Repository.open(storage, CONFIG), id_)
    assert error.value.kind == ErrorKind.SNAPSHOT_NOT_FOUND
    assert "expired or dropped" in str(error.value)
