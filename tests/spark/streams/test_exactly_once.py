"""Every batch once, whatever happens to the history: amended, reset, merged, picked, expired."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import FormatError, RebaseFailedError, SessionStateError
from frazil.repository.catalog.history_records import BATCH, QUERY, STREAMS
from frazil.spark.streams.sink import Stamp, batches_done, commit_once

pytestmark = pytest.mark.interop

QUERIES = ("hourly", "daily")
BATCHES = 12
NOTES = 400


class World:
    """A repository with one cell for each batch of two queries; doing a batch adds one to its cell.

    So the cells of a version are the model: a batch is done there if its cell is 1, and no cell is 2.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.path = str(path)
        self.random = random.Random(seed)
        config = frazil.RepositoryConfig(num_updates_per_repo_info_file=40)
        self.repo = frazil.Repository.create(frazil.local_filesystem_storage(self.path), config)
        self.repo.save_config()
        with self.repo.transaction("main", message="cells") as store:
            shape = (len(QUERIES), BATCHES)
            zarr.create_array(store, name="cells", shape=shape, chunks=(1, 1), dtype="i4", fill_value=0)
            zarr.create_array(store, name="notes", shape=(NOTES,), chunks=(1,), dtype="i4", fill_value=0)
        self.notes = 0
        self.replayed = 0
        self.repo.create_branch("dev", self.repo.lookup_branch("main"))

    def theirs(self) -> icechunk.Repository:
        return icechunk.Repository.open(icechunk.local_filesystem_storage(self.path))

    def cells(self, branch: str) -> np.ndarray:
        array = zarr.open_array(self.repo.readonly_session(branch).store, path="cells", mode="r")
        return np.asarray(array[:])

    def branch(self) -> str:
        return self.random.choice(sorted(self.repo.list_branches()))

    def ancestor(self, branch: str) -> str:
        ids = [info.id for info in self.repo.ancestry(branch=branch)]
        usable = ids[:-1] or ids  # the very first one has no cells
        return self.random.choice(usable[:6])

    def note(self, store: Any) -> None:
        self.notes += 1
        zarr.open_array(store, path="notes", mode="r+")[self.notes] = 1

    # Steps

    def batch(self) -> None:
        branch, number = self.branch(), self.random.randrange(len(QUERIES))
        cells = self.cells(branch)[number]
        new = int(np.argmin(cells))
        if cells.all():
            return
        batch = new if self.random.random() < 0.6 else self.random.randrange(new + 1)
        self.do(branch, number, batch)

    def do(self, branch: str, number: int, batch: int) -> None:
        done = self.cells(branch)[number, batch]

        def write(session: frazil.Session) -> None:
            array = frazil.Array(session, "/cells")
            array[number, batch] = array[number, batch] + 1

        snapshot_id = commit_once(self.repo, branch, Stamp(QUERIES[number], batch), write, "batch")
        assert (snapshot_id is None) == bool(done), (branch, QUERIES[number], batch)
        assert self.cells(branch)[number, batch] == 1
        self.replayed += snapshot_id is None

    def amend(self) -> None:
        session = self.repo.writable_session(self.branch())
        self.note(session.store)
        session.amend("amended")

    def amend_by_reference(self) -> None:
        session = self.theirs().writable_session(self.branch())
        self.note(session.store)
        session.amend("amended by the reference")

    def commit(self) -> None:
        with self.repo.transaction(self.branch(), message="note") as store:
            self.note(store)

    def commit_by_reference(self) -> None:
        session = self.theirs().writable_session(self.branch())
        self.note(session.store)
        session.commit("by the reference")

    def reset(self) -> None:
        branch = self.branch()
        self.repo.reset_branch(branch, self.ancestor(branch))

    def create(self) -> None:
        name = self.random.choice(["one", "two"])
        if name in self.repo.list_branches():
            self.repo.delete_branch(name)
        self.repo.create_branch(name, self.ancestor(self.branch()))

    def merge(self) -> None:
        solver = frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs)
        self.repo.merge(self.branch(), into=self.branch(), solver=solver)

    def pick(self) -> None:
        infos = [info for info in self.repo.ancestry(branch=self.branch()) if QUERY in info.metadata]
        if infos:
            self.repo.cherry_pick(self.random.choice(infos[:4]).id, onto=self.branch())

    def expire(self) -> None:
        repo: Any = self.random.choice([self.repo, self.theirs()])
        repo.expire_snapshots(dt.datetime.now(dt.UTC))

    def collect(self) -> None:
        repo: Any = self.random.choice([self.repo, self.theirs()])
        repo.garbage_collect(dt.datetime.now(dt.UTC))

    def reopen(self) -> None:
        self.repo = frazil.Repository.open(frazil.local_filesystem_storage(self.path))

    def step(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self.batch: 40,
            self.amend: 6,
            self.amend_by_reference: 8,
            self.commit: 4,
            self.commit_by_reference: 3,
            self.reset: 4,
            self.create: 5,
            self.merge: 6,
            self.pick: 4,
            self.expire: 4,
            self.collect: 3,
            self.reopen: 3,
        }
        (chosen,) = self.random.choices(list(steps), list(steps.values()))
        try:
            chosen()
        except RebaseFailedError:
            pass  # nothing was merged or picked
        except SessionStateError as error:
            # The first commit has no parent; what a pick or merge brings is here, or has expired.
            if error.kind not in (
                "no-amend-for-initial-commit",
                "no-changes-to-commit",
                "rebase-tx-log-pruned",
            ):
                raise
        except icechunk.IcechunkError as error:
            if "first commit" not in str(error) and "initial" not in str(error):
                raise


def run(path: Path, seed: int, steps: int) -> World:
    world = World(path, seed)
    for _ in range(steps):
        world.step()
    return world


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("seed", [0, 1])
def test_each_batch_is_done_once_in_a_random_story(tmp_path: Path, seed: int) -> None:
    world = run(tmp_path / "repo", seed, 50)
    assert world.replayed


# One story each. The random one above may or may not meet them.


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "repo", 0)


@pytest.mark.deep
def test_an_amended_commit_still_names_its_batch(world: World) -> None:
    world.do("main", 0, 0)
    session = world.repo.writable_session("main")
    world.note(session.store)
    session.amend("a correction", metadata={"by": "me"})
    info = world.repo.lookup_snapshot(world.repo.lookup_branch("main"))
    assert (info.metadata[QUERY], info.metadata[BATCH], info.metadata["by"]) == ("hourly", 0, "me")
    world.do("main", 0, 0)
    assert world.replayed == 1


@pytest.mark.deep
def test_a_batch_that_the_reference_amended_is_in_the_ops_log_and_its_backups(world: World) -> None:
    """Without its backups the ops log has a gap: an error, and no replay."""
    world.do("main", 0, 0)
    for _ in range(2):
        session = world.theirs().writable_session("main")
        world.note(session.store)
        session.amend("amended by the reference")
    for number in range(100):  # operations, of which 40 are in one file
        world.repo.set_metadata({**world.repo.get_metadata(), "number": number})
    world.reopen()
    world.do("main", 0, 0)
    assert world.replayed == 1
    for backup in (Path(world.path) / "overwritten").iterdir():
        backup.unlink()
    world.reopen()
    with pytest.raises(
        SessionStateError, match=r"cannot find out whether .* a part of the ops log is missing"
    ):
        world.do("main", 0, 0)
    assert world.cells("main")[0, 0] == 1


@pytest.mark.deep
@pytest.mark.parametrize("by", ["frazil", "icechunk"])
def test_a_batch_that_was_merged_is_done_when_its_branch_is_gone(world: World, by: str) -> None:
    for batch in range(3):
        world.do("dev", 0, batch)
    world.commit()
    with world.repo.transaction("main", message="no fast forward") as store:
        world.note(store)
    world.repo.merge("dev", into="main")
    world.repo.delete_branch("dev")
    repo: Any = world.repo if by == "frazil" else world.theirs()
    repo.expire_snapshots(dt.datetime.now(dt.UTC))
    repo.garbage_collect(dt.datetime.now(dt.UTC))
    world.reopen()
    for batch in range(4):
        world.do("main", 0, batch)
    assert world.replayed == 3


@pytest.mark.deep
def test_a_picked_batch_is_done_alone(world: World) -> None:
    for batch in range(3):
        world.do("dev", 0, batch)
    world.repo.cherry_pick("dev", onto="main")
    for batch in (2, 0, 1, 2, 3):
        world.do("main", 0, batch)
    assert world.replayed == 2


@pytest.mark.deep
def test_a_batch_that_was_reverted_is_not_done_again(world: World) -> None:
    """Somebody took it back on purpose. A branch that is reset to before it has not done it."""
    world.do("main", 0, 0)
    before, done = [info.id for info in world.repo.ancestry(branch="main")][1::-1]
    world.repo.revert(done, on="main")
    assert 0 in batches_done(world.repo, world.repo.lookup_branch("main"), "hourly")
    world.repo.reset_branch("main", before)
    assert 0 not in batches_done(world.repo, world.repo.lookup_branch("main"), "hourly")


@pytest.mark.deep
def test_records_of_earlier_versions_are_read(world: World) -> None:
    world.do("main", 0, 3)
    tip = world.repo.lookup_branch("main")
    world.repo.set_metadata({STREAMS: {"daily": [{"batch": 7, "snapshot": tip}]}})
    assert batches_done(world.repo, tip, "daily").last == 7
    world.do("main", 0, 4)
    assert world.repo.get_metadata()[STREAMS]["daily"] == [{"batch": 7, "snapshot": tip}]


@pytest.mark.deep
def test_records_that_are_none_are_an_error(world: World) -> None:
    world.repo.set_metadata({STREAMS: {"hourly": [{"batch": "many"}]}})
    with pytest.raises(
        FormatError, match=r"`frazil.streams` in the metadata of the repository must have records"
    ):
        world.do("main", 0, 0)


def test_merges_of_spec_version_1_name_the_batches_that_they_bring(tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(tmp_path), spec_version=1)
    with repo.transaction("main", message="cells") as store:
        zarr.create_array(store, name="cells", shape=(4,), chunks=(1,), dtype="i4", fill_value=0)
    repo.create_branch("dev", repo.lookup_branch("main"))

    def write(session: frazil.Session) -> None:
        zarr.open_array(session.store, path="cells", mode="r+")[0] = 1

    assert commit_once(repo, "dev", Stamp("q", 0), write, "batch")
    with repo.transaction("main", message="no fast forward") as store:
        zarr.open_array(store, path="cells", mode="r+")[3] = 1
    repo.merge("dev", into="main")
    assert commit_once(repo, "main", Stamp("q", 0), write, "batch") is None
