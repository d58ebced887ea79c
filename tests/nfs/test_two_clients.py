"""Two clients of one NFS server, each with its own cache: `scripts/test-nfs` mounts them for these tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.support.patience import patience

import frazil
from frazil.jobs import open_shared, shared
from frazil.storage import system

CLIENTS = [Path(each) for each in os.environ.get("FRAZIL_NFS_CLIENTS", "").split(":") if each]

pytestmark = pytest.mark.skipif(not CLIENTS, reason="scripts/test-nfs mounts the clients")

#: A writer that commits until it is killed. It prints each commit that was reported as done.
WRITER = """
import sys, zarr, frazil
repo = frazil.Repository.open(sys.argv[1])
for number in range(int(sys.argv[3])):
    session = repo.writable_session("main")
    zarr.open_array(session.store, path=sys.argv[2], mode="r+")[number % 8] = number
    print(session.commit(str(number), rebase_with=frazil.ConflictDetector(), rebase_tries=1000), flush=True)
"""


@pytest.fixture
def folders(request: pytest.FixtureRequest) -> list[str]:
    """The folder of one repository, as each client sees it."""
    name = f"{request.node.name}-{os.getpid()}".replace("[", "-").replace("]", "")
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(CLIENTS[0] / name), config)
    repo.save_config()
    with repo.transaction("main", message="arrays") as store:
        for path in ("first", "second", "third", "fourth"):
            zarr.create_array(store, name=path, shape=(8,), chunks=(2,), dtype="i4")[:] = 0
    return [str(client / name) for client in CLIENTS]


def test_clients_without_the_question_see_old_names(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the clients share a cache, and the other tests prove nothing."""
    monkeypatch.setattr(type(system.files), "refresh_names", lambda self, path: None)
    tips = []
    for number in range(1, 7):
        session = frazil.Repository.open(folders[1]).writable_session("main")
        zarr.open_array(session.store, path="first", mode="r+")[:] = number
        commit = session.commit(str(number))
        tips.append((commit, frazil.Repository.open(folders[0]).lookup_branch("main")))
    assert any(ours != theirs for theirs, ours in tips)


def test_a_new_session_sees_the_newest_commit(folders: list[str]) -> None:
    reader, writer = folders
    frazil.Repository.open(reader)
    for number in range(1, 13):
        repo = frazil.Repository.open(writer)
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="first", mode="r+")[:] = number
        tip = session.commit(str(number))
        if number % 4 == 0:  # files that the other client knows are gone
            repo.expire_snapshots(datetime.now(UTC))
            repo.garbage_collect(datetime.now(UTC))
        fresh = frazil.Repository.open(reader)
        assert fresh.lookup_branch("main") == tip
        first = zarr.open_array(fresh.readonly_session("main").store, path="first")
        assert np.asarray(first[:]).tolist() == [number] * 8
        if number % 5 == 0:
            fresh.create_tag(f"v{number}", tip)
            assert f"v{number}" in frazil.Repository.open(writer).list_tags()
            reader, writer = writer, reader


def test_a_long_lived_handle_sees_the_newest_commit(folders: list[str]) -> None:
    ours, theirs = (frazil.Repository.open(folder) for folder in folders)
    for number in range(1, 7):
        for writer, reader in ((ours, theirs), (theirs, ours)):
            session = writer.writable_session("main")
            zarr.open_array(session.store, path="first", mode="r+")[:] = number
            tip = session.commit(str(number))
            assert reader.lookup_branch("main") == tip


@pytest.mark.timeout(1800)
def test_no_commit_of_two_clients_is_lost(folders: list[str]) -> None:
    """Each client has one writer that ends and one that is killed."""
    done: list[str] = []
    writers = []
    for folder, paths in zip(folders, (("first", "second"), ("third", "fourth")), strict=True):
        for path, count in zip(paths, (12, 1000), strict=True):
            command = [sys.executable, "-c", WRITER, folder, path, str(count)]
            writers.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
    for writer in writers[0::2]:
        output, errors = writer.communicate(timeout=patience(120))
        assert writer.returncode == 0, errors
        done += output.split()
    for writer in writers[1::2]:
        writer.send_signal(signal.SIGKILL)
        done += writer.communicate()[0].split()
    assert len(done) > 24
    for folder in folders:
        repo = frazil.Repository.open(folder)
        history = [each.id for each in repo.ancestry(branch="main")]
        assert set(done) <= set(history)
        assert len(set(history)) == len(history)
    assert frazil.Repository.open(folders[0]).upkeep.verify("checksum").ok


def test_a_shared_job_on_two_clients(folders: list[str]) -> None:
    def prepare(session: frazil.Session) -> None:
        zarr.create_array(session.store, name="t", shape=(8,), chunks=(2,), dtype="i4")

    open_shared(frazil.Repository.open(folders[0]), 4, job_id="job", prepare=prepare)
    for number in range(4):
        job = shared(frazil.Repository.open(folders[number % 2]), "job")
        assert len(job.missing()) == 4 - number
        with job.task(number) as session:
            zarr.open_array(session.store, path="t", mode="r+")[2 * number : 2 * number + 2] = number + 1
    first = shared(frazil.Repository.open(folders[1]), "job").commit()
    again = shared(frazil.Repository.open(folders[0]), "job").commit()
    assert again.snapshot_id == first.snapshot_id
    store = frazil.Repository.open(folders[0]).readonly_session("main").store
    assert np.asarray(zarr.open_array(store, path="t", mode="r")[:]).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
