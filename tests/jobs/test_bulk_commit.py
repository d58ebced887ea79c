"""Commits whose manifests the executors write: the same as those of one process, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import icechunk
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.judge import same_by_reference

import frazil
from frazil.errors import ErrorKind, InvalidInputError, RebaseFailedError, SessionStateError
from frazil.jobs.task_rounds import write_manifests
from frazil.spark import Inline, Job, Outcome, Target, Tasks, Threads, run_job

SHAPE = (12, 6)
SPLIT = 4


def new_repo(split: int | None = SPLIT) -> frazil.Repository:
    manifest = None
    if split is not None:
        rules: dict[Any, dict[Any, int]] = {
            frazil.ManifestSplitCondition.AnyArray(): {frazil.ManifestSplitDimCondition.Axis(0): split}
        }
        splitting = frazil.ManifestSplittingConfig.from_dict(rules)
        manifest = frazil.ManifestConfig(splitting=splitting)
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0, manifest=manifest)
    return frazil.Repository.create(frazil.in_memory_storage(), config)


def create(session: frazil.Session, name: str, shape: tuple[int, int] = SHAPE) -> None:
    zarr.create_array(
        session.store, name=name, shape=shape, chunks=(1, 1), dtype="i4", fill_value=-1, overwrite=True
    )


def work(fork: frazil.Session, shared: Any, item: Any) -> Outcome:
    """Set or delete chunks: coordinates and a number, or None."""
    name, chunks = item
    array = zarr.open_array(fork.store, path=name, mode="r+")
    for coords, value in chunks.items():
        array[coords] = -1 if value is None else value
    return Outcome()


def job(repo: frazil.Repository, items: list[Any], prepare: Any = None, above: int = 0) -> Job:
    def prepared(session: frazil.Session) -> Tasks:
        if prepare is not None:
            prepare(session)
        return Tasks(items)

    parameters = {"items": repr(items), "step": len(list(repo.ancestry(branch="main")))}
    return Job("set", Target(repo), prepared, work, None, parameters, manifests_on_executors_above=above)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few references are many here."""
    monkeypatch.setattr("frazil.jobs.task_rounds.SENT_REFERENCES", 2)
    monkeypatch.setattr("frazil.jobs.task_results.SENT_REFERENCES", 2)
    monkeypatch.setattr("frazil.jobs.task_rounds._WAITING_REFERENCES", 3)


def content(repo: frazil.Repository, name: str) -> dict[tuple[int, ...], int]:
    session = repo.readonly_session("main")
    array: Any = zarr.open_array(session.store, path=name, mode="r")
    index = session.chunk_table(f"/{name}").index.tolist()
    return {tuple(at): int(array[tuple(at)]) for at in index}


def diff_of(repo: frazil.Repository) -> Any:
    newest, before, *_ = repo.ancestry(branch="main")
    diff = repo.diff(from_snapshot_id=before.id, to_snapshot_id=newest.id)
    return sorted(diff.new_arrays), sorted(diff.updated_arrays), diff.updated_chunks


cells = st.tuples(st.integers(0, SHAPE[0] - 1), st.integers(0, SHAPE[1] - 1))
parts = st.dictionaries(cells, st.none() | st.integers(0, 99), min_size=1, max_size=20)


@st.composite
def items(draw: st.DrawFn) -> list[Any]:
    """Chunks of two arrays, dealt to tasks."""
    out = []
    for name in ("old", "new"):
        chunks = draw(parts)
        owners = draw(st.lists(st.integers(0, 2), min_size=len(chunks), max_size=len(chunks)))
        dealt = dict(zip(chunks, owners, strict=True))
        out += [(name, {at: chunks[at] for at in chunks if dealt[at] == task}) for task in range(3)]
    return [item for item in draw(st.permutations(out)) if item[1]]


@pytest.mark.deep
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=15)
@given(parts, items(), parts, st.booleans(), st.booleans())
def test_the_same_as_on_the_driver(
    before: dict[Any, Any], dealt: list[Any], driver: dict[Any, Any], is_split: bool, resplit: bool
) -> None:
    contents = []
    for above in (10**9, 0):
        repo = new_repo(SPLIT if is_split and not resplit else None)
        run_job(job(repo, [("old", before)], lambda session: create(session, "old"), 10**9), Inline())
        if is_split and resplit:
            repo = frazil.Repository.open(repo.storage, new_repo().config)

        def prepare(session: frazil.Session) -> None:
            create(session, "new")
            work(session, None, ("new", driver))
            work(session, None, ("old", driver))

        run_job(job(repo, dealt, prepare, above), Inline())
        new, updated, chunks = diff_of(repo)
        chunks.pop("/new", None)  # not told of manifests that executors wrote
        contents.append((content(repo, "old"), content(repo, "new"), new, updated, chunks))
        assert not list(repo.storage.list("staging"))
    assert contents[0] == contents[1]


def filled(name: str, rows: range, value: int = 1) -> tuple[str, dict[tuple[int, int], int]]:
    return name, {(row, column): value for row in rows for column in range(SHAPE[1])}


def start(split: int | None = SPLIT) -> frazil.Repository:
    """A repository with an array whose first rows are set."""
    repo = new_repo(split)
    run_job(job(repo, [filled("x", range(2))], lambda session: create(session, "x"), 10**9), Inline())
    return repo


def test_what_two_tasks_set_is_an_error() -> None:
    repo = start()
    tip = repo.lookup_branch("main")
    twice = [filled("x", range(4, 8)), ("x", {(7, 5): 2, (8, 0): 2})]
    with pytest.raises(SessionStateError, match=r"1 chunk\(s\) of `/x` .* \(7, 5\)") as caught:
        run_job(job(repo, twice), Inline())
    assert caught.value.kind == ErrorKind.MERGE_FAILED
    assert repo.lookup_branch("main") == tip
    assert not list(repo.storage.list("staging"))


def test_the_driver_reads_back_what_is_not_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.jobs.task_rounds._write_manifests", None)
    repo = start()
    run_job(job(repo, [filled("x", range(4)), filled("x", range(4, 8), 3)], above=100), Inline())
    assert content(repo, "x") == dict(
        [*filled("x", range(4))[1].items(), *filled("x", range(4, 8), 3)[1].items()]
    )


def manifests(repo: frazil.Repository) -> Any:
    node = repo.readonly_session("main").workspace.require_array("/x")
    assert node.array is not None
    return node.array.manifests


@pytest.mark.parametrize(
    ("theirs", "is_lost"), [(("x", {(11, 0): 5}), True), (("y", {(0, 0): 5}), False)], ids=["same", "other"]
)
def test_somebody_else_commits_meanwhile(theirs: Any, is_lost: bool) -> None:
    repo = start()
    run_job(job(repo, [], lambda session: create(session, "y")), Inline())

    def finish(session: frazil.Session, values: list[Any]) -> None:
        with repo.transaction("main", message="theirs") as store:
            work(store.session, None, theirs)
        zarr.open_array(session.store, path="x", mode="r+").attrs["by"] = "us"

    mine = replace(job(repo, [filled("x", range(4, 6), 2)]), finish=finish)
    if is_lost:
        with pytest.raises(RebaseFailedError) as caught:
            run_job(mine, Inline())
        assert [conflict.path for conflict in caught.value.conflicts] == ["/x"]
    else:
        run_job(mine, Inline())
        assert content(repo, "y") == {(0, 0): 5}
        assert content(repo, "x") == dict(
            [*filled("x", range(2))[1].items(), *filled("x", range(4, 6), 2)[1].items()]
        )


def test_the_session_goes_on_with_them() -> None:
    """They can be read before the commit; what is changed after them comes on top."""
    repo = start()

    def finish(session: frazil.Session, values: list[Any]) -> None:
        array: Any = zarr.open_array(session.store, path="x", mode="r+")
        assert array[4:6].tolist() == [[2] * 6] * 2
        array[5, 0] = 7
        array.attrs["done"] = True

    run_job(replace(job(repo, [filled("x", range(4, 6), 2)]), finish=finish), Inline())
    array: Any = zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")
    assert array[4:6].tolist() == [[2] * 6, [7] + [2] * 5]
    assert array[:2].tolist() == [[1] * 6] * 2
    assert array.attrs["done"] is True


def test_a_log_that_is_too_long_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.jobs.task_rounds._LOG_BYTES", 200)
    repo = start()
    with pytest.raises(InvalidInputError, match="transaction log"):
        run_job(job(repo, [filled("x", range(4, 8), 2)]), Inline())
    run_job(job(repo, [filled("z", range(4, 8), 2)], lambda session: create(session, "z")), Inline())
    assert content(repo, "z") == filled("z", range(4, 8), 2)[1]


class Twice:
    """Every task runs twice, as when Spark is impatient; the first attempt's result is lost."""

    def run(self, task: Any, tasks: Any, shared: bytes) -> Any:
        for message in tasks:
            task(shared, message)
            yield task(shared, message)


class Dies:
    """The second stage dies with its second task."""

    def run(self, task: Any, tasks: Any, shared: bytes) -> Any:
        for number, message in enumerate(tasks):
            if task is write_manifests and number:
                raise RuntimeError("killed")
            yield task(shared, message)


@pytest.mark.deep
@pytest.mark.interop
def test_the_reference_reads_it_and_attempts_leave_only_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.jobs.task_rounds.SPLIT_REFS", 10)  # several tasks
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), new_repo().config)
    tip = repo.lookup_branch("main")
    dealt = [filled("x", range(6), 2), filled("x", range(6, 12), 3)]
    with pytest.raises(RuntimeError, match="killed"):
        run_job(job(repo, dealt, lambda session: create(session, "x")), Dies())
    assert repo.lookup_branch("main") == tip
    run_job(job(repo, dealt, lambda session: create(session, "x")), Twice())
    assert len(manifests(repo)) == 3
    run_job(job(repo, [filled("x", range(3, 5), 4)]), Twice())
    repo.storage.delete([info.key for info in repo.storage.list("leases")])  # that of the dead job has ended
    gone = repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert gone.manifests_deleted == 1 + 3 + 2
    same_by_reference(tmp_path)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    last, before, first = theirs.ancestry(branch="main")
    difference = theirs.diff(from_snapshot_id=first.id, to_snapshot_id=before.id)
    assert (difference.new_arrays, difference.updated_chunks) == ({"/x"}, {})
    then = theirs.diff(from_snapshot_id=before.id, to_snapshot_id=last.id)
    assert sorted(then.updated_chunks["/x"]) == [[row, column] for row in (3, 4) for column in range(6)]
    session = theirs.writable_session("main")
    zarr.open_array(session.store, path="x", mode="r+")[0, 0] = 9
    session.commit("theirs goes on")
    same_by_reference(tmp_path)


class Collects:
    """After each task somebody collects all garbage."""

    def __init__(self, collect: Any, *, resumable: bool) -> None:
        self.collect, self.resumable = collect, resumable

    def run(self, task: Any, tasks: Any, shared: bytes) -> Any:
        for message in tasks:
            self.collect()
            yield task(shared, message)
            self.collect()


@pytest.mark.sample(4, 4)
@pytest.mark.deep
@pytest.mark.interop
@pytest.mark.parametrize("who", ["ours", "on executors", "the reference"])
@pytest.mark.parametrize("resumable", [False, True])
def test_garbage_is_collected_at_every_stage(who: str, resumable: bool, tmp_path: Path) -> None:
    """Of all ages. What we collect spares the job; the reference's collection is noticed."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), new_repo().config)
    other = frazil.Repository.open(repo.storage)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    tomorrow = datetime.now(UTC) + timedelta(days=1)

    def collect() -> None:
        if who == "ours":
            other.garbage_collect(tomorrow)
        elif who == "on executors":
            other.upkeep.collect(tomorrow, engine=Inline()).apply()
        else:
            theirs.garbage_collect(tomorrow)

    def prepare(session: frazil.Session) -> None:
        prepares(session)
        collect()

    def finish(session: frazil.Session, values: list[Any]) -> None:
        collect()

    dealt = [filled("x", range(4)), filled("x", range(4, 8), 2), ("x", {(8, 0): 3})]
    mine = replace(job(repo, dealt, prepare), finish=finish)
    if who == "the reference":
        with pytest.raises(SessionStateError) as caught:
            run_job(mine, Collects(collect, resumable=resumable))
        assert caught.value.kind == ErrorKind.GARBAGE_COLLECTED
        run_job(replace(mine, prepare=job(repo, dealt, prepares).prepare, finish=None), Threads(1))
    else:
        run_job(mine, Collects(collect, resumable=resumable))
    expected = dict(item for _, chunks in [*dealt, filled("x", range(11, 12), 7)] for item in chunks.items())
    assert content(repo, "x") == expected
    same_by_reference(tmp_path)
    assert not [info for folder in ("staging", "leases") for info in repo.storage.list(folder)]


def prepares(session: frazil.Session) -> None:
    create(session, "x")
    work(session, None, filled("x", range(11, 12), 7))


@pytest.mark.deep
def test_a_second_driver_goes_on_with_what_the_first_has_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.jobs.task_rounds.SPLIT_REFS", 10)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), new_repo().config)
    dealt = [filled("x", range(6), 2), filled("x", range(6, 12), 3)]
    parameters = {"n": 1}

    def again() -> Job:
        return replace(job(repo, dealt, lambda session: create(session, "x")), parameters=parameters)

    class Resumable(Dies):
        resumable = True

    class Counts:
        resumable = True
        tasks: ClassVar[list[str]] = []

        def run(self, task: Any, tasks: Any, shared: bytes) -> Any:
            self.tasks.extend([task.__name__] * len(tasks))
            yield from Inline().run(task, tasks, shared)

    with pytest.raises(RuntimeError, match="killed"):
        run_job(again(), Resumable())
    done = run_job(again(), Counts())
    assert set(Counts.tasks) == {"write_manifests"}
    assert done.metrics.resumed == 2
    assert content(repo, "x") == {at: value for _, chunks in dealt for at, value in chunks.items()}
    assert not list(repo.storage.list("staging"))
