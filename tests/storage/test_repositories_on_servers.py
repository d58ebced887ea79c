"""Whole repositories on every server: commits are kept when writers meet, and when the network fails."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr
from tests.support.fault_proxy import Fault, FaultProxy

import frazil
from frazil.storage.object_store import ObjectStorage

if TYPE_CHECKING:
    from tests.support.servers import RunningServer

    from frazil.storage.base import Storage

_WRITERS, _COMMITS = 4, 5


def _commit(storage: Storage, writer: int, number: int) -> None:
    """One commit, begun again for as long as another writer was first."""
    while True:
        session = frazil.Repository.open(storage).writable_session("main")
        zarr.open_array(session.store)[writer] = number
        try:
            session.commit(f"{writer}: {number}")
        except frazil.ConflictError:
            continue
        return


def _commit_from_many_threads(storage: Storage, direct: Storage, version: int) -> None:
    session = frazil.Repository.create(direct, spec_version=version).writable_session("main")
    zarr.create_array(session.store, shape=(_WRITERS,), chunks=(1,), dtype="i4")
    session.commit("begin")

    def work(writer: int) -> None:
        for number in range(1, _COMMITS + 1):
            _commit(storage, writer, number)

    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(work, range(_WRITERS)))
    repository = frazil.Repository.open(direct)
    messages = [snapshot.message for snapshot in repository.ancestry(branch="main")]
    expected = {f"{writer}: {number}" for writer in range(_WRITERS) for number in range(1, _COMMITS + 1)}
    assert set(messages[:-2]) == expected
    assert len(messages) == len(expected) + 2  # "begin", and the first snapshot of all
    array = zarr.open_array(repository.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(array[:], _COMMITS)


@pytest.mark.deep
@pytest.mark.sample(1, 1)
@pytest.mark.parametrize("version", [1, 2])
def test_no_commit_is_lost_or_doubled_when_answers_are_lost(version: int, server: RunningServer) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    server.make_bucket(bucket)
    with FaultProxy(server.port) as proxy:
        faults = (Fault.LOSE_ANSWER, Fault.ERROR_AFTER)
        file = {1: r"ref(\.|%2E)json", 2: "repo"}[version]
        rules = [proxy.add(fault, rf"^PUT [^?]*(/|%2F){file}(\?|$)", times=3) for fault in faults]
        faulty = ObjectStorage(server.bucket(bucket, proxy.port), "repository")
        _commit_from_many_threads(faulty, server.storage(bucket, "repository"), version)
        assert [rule.hits for rule in rules] == [3, 3]
