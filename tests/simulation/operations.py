"""What the clients do. Each operation is a function of a `ClientRun`; `OPERATIONS` has all of them by
name."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.simulation.model import CHUNKS, Content, Intent
from tests.simulation.storage import IMMUTABLE, Crashed, Violation
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.errors import (
    ErrorKind,
    FormatError,
    IcechunkError,
    InternalError,
    OutcomeUnknownError,
    StorageError,
    TaskFailedError,
)
from frazil.format.repo_info import UpdateKind
from frazil.jobs.engine import Inline
from frazil.jobs.job import Job, Target, Tasks
from frazil.jobs.job_run import run_job
from frazil.jobs.task_results import Outcome
from frazil.repository.session.session import ForkSession, Session
from frazil.storage.memory import MemoryStorage

if TYPE_CHECKING:
    import random

    from tests.simulation.run import Run

#: Errors that a client may get because of others, or because of what it asks for.
ALLOWED = frozenset(
    {
        *("commit-conflict", "rebase-failed", "update-attempts-exhausted", "branch-update-conflict"),
        *("repo-info-updated", "config-updated", "garbage-collected", "garbage-collection-running"),
        *("gc-deletes-failing", "snapshot-not-found", "branch-not-found", "tag-not-found", "ref-not-found"),
        *("branch-already-exists", "tag-already-exists", "tag-previously-deleted", "no-changes-to-commit"),
        *("no-amend-for-initial-commit", "rebase-tx-log-pruned", "read-only-repository", "session-expired"),
        *("invalid-commit-configuration", "invalid-repository-migration", "rearrange-session-only"),
        *("node-not-found", "move-wont-overwrite", "not-allowed"),
    }
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call that changes the repository: its mark, and what the client was told."""

    client: str
    mark: str | tuple[UpdateKind, str]
    outcome: str  # done, failed, unknown
    answer: str | None = None  # the version, or the error


@dataclass(eq=False)
class ClientRun:
    """One client during a run. ``numbers`` are the random numbers of the present operation."""

    run: Run
    name: str
    storage: Any
    repo: frazil.Repository
    numbers: random.Random
    operation: int = 0
    calls: int = 0
    start: int = 0  #: When the present operation started, by the clock of the storage.

    def mark(self) -> str:
        """Return a text that no other call has."""
        self.calls += 1
        return f"{self.name}.{self.operation}.{self.calls}"

    def attempt[T](
        self, mark: str | tuple[UpdateKind, str], call: Callable[[], T], *, may_do_nothing: bool = False
    ) -> T | None:
        """Make a call and record what became of it. Return None if it failed.

        With ``may_do_nothing``, the call may return a version that it found.
        """
        try:
            value = call()
        except OutcomeUnknownError as error:
            self.record(mark, "unknown", repr(error))
        except IcechunkError as error:
            self.require_allowed(error)
            self.record(mark, "failed", repr(error))
        except Crashed:
            self.record(mark, "unknown")
            raise
        else:
            messages = self.run.model.messages
            if not (may_do_nothing and value in self.run.model.contents and value != messages.get(str(mark))):
                self.record(mark, "done", value if isinstance(value, str) else None)
            return value
        return None

    def record(self, mark: str | tuple[UpdateKind, str], outcome: str, answer: str | None = None) -> None:
        """Record what became of a call."""
        self.run.attempts.append(Attempt(self.name, mark, outcome, answer))

    def require_allowed(self, error: IcechunkError) -> None:
        """Raise ``Violation`` for an error that nothing explains."""
        if self.run.clients[self.name].is_dead:
            return  # a job reports the end of the process as the error of its task
        if self.has_accidents() and isinstance(error, FormatError | StorageError | TaskFailedError):
            return
        if error.kind in ALLOWED or (
            isinstance(error, StorageError | TaskFailedError) and self._is_simulated(error)
        ):
            return
        if isinstance(error, FormatError | StorageError | TaskFailedError) and self.has_short_reads():
            return
        if error.kind == ErrorKind.OBJECT_NOT_FOUND and self.run.history.collections:
            return
        if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION and self.run.spec_version == 1:
            self.run.clients[self.name].is_dead = True  # another client has upgraded it: open it again
            return
        if isinstance(error, FormatError | InternalError | StorageError) or error.kind not in ALLOWED:
            raise Violation(
                "honest-errors", f"{type(error).__name__} ({error.kind}): {error.message}"
            ) from error

    def has_short_reads(self) -> bool:
        """Return whether the storage has given this client fewer bytes than an object has."""
        return self.run.clients[self.name].short_reads > 0

    def has_accidents(self) -> bool:
        """Return whether a file was damaged at some time during the present operation."""
        objects = self.run.network.objects
        return bool(objects.damaged) or objects.undamaged_at >= self.start

    def _is_simulated(self, error: BaseException | None) -> bool:
        while error is not None:
            if "simulated:" in str(error):
                return True
            error = error.__cause__ or error.__context__
        return False

    # ---- parts of operations

    def branch(self) -> str:
        """Return a branch, most often `main`."""
        names = sorted(self.run.branches())
        return "main" if self.numbers.random() < 0.7 else self.numbers.choice(names)

    def changes(self, mark: str, most: int = 3) -> dict[int, bytes]:
        """Return new bytes for some chunks."""
        chunks = self.numbers.sample(range(CHUNKS), self.numbers.randint(1, most))
        if self.numbers.random() < 0.2:  # bytes that others write as well, for deduplication
            return dict.fromkeys(chunks, b"the same bytes" * 3)
        return {chunk: f"{mark} {chunk}".encode() * 3 for chunk in chunks}

    def write(self, session: frazil.Session | frazil.ForkSession, changes: Content) -> None:
        for chunk, data in changes.items():
            session.store.set_sync(f"x/c/{chunk}", Buffer.from_bytes(data))

    def declare(self, mark: str, session: frazil.Session, changes: Content, **options: Any) -> None:
        self.run.model.intents[mark] = Intent(session.snapshot_id, changes, **options)

    def time(self, hours: float) -> datetime:
        """Return a time by the clock of this host."""
        self.run.network.note(self.run.clients[self.name], "clock")
        us = self.run.host_time_us(self.name)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us) + timedelta(hours=hours)


def commit(client: ClientRun) -> None:
    """Commit some chunks; after a conflict, rebase and try once more."""
    session = client.repo.writable_session(client.branch())
    mark = client.mark()
    changes = client.changes(mark)
    client.write(session, changes)
    if client.numbers.random() < 0.3:
        session.workspace.writer.flush()
    way = client.numbers.choice(("plain", "plain", "detector", "ours"))
    solver = {
        "plain": None,
        "detector": frazil.ConflictDetector(),
        "ours": frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs),
    }[way]
    client.declare(mark, session, changes, may_overwrite=way == "ours")
    done = client.attempt(mark, lambda: session.commit(mark, rebase_with=solver, rebase_tries=3))
    if done is None and client.run.attempts[-1].outcome == "failed":
        again = client.mark()
        client.declare(again, session, changes)
        with suppress(IcechunkError):
            session.rebase(frazil.ConflictDetector())
        client.attempt(again, lambda: session.commit(again))


def rebase(client: ClientRun) -> None:
    """Commit after a rebase with a solver that lets these changes win."""
    session = client.repo.writable_session("main")
    mark = client.mark()
    changes = client.changes(mark)
    client.write(session, changes)
    solver = frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs)
    client.declare(mark, session, changes, may_overwrite=True)
    session.rebase(solver)
    client.attempt(mark, lambda: session.commit(mark, rebase_with=solver, rebase_tries=5))


def amend(client: ClientRun) -> None:
    """Replace the tip by a version with some more chunks."""
    session = client.repo.writable_session(client.branch())
    mark = client.mark()
    changes = client.changes(mark)
    client.write(session, changes)
    client.declare(mark, session, changes, amends=True)
    client.attempt(mark, lambda: session.amend(mark))


def flush(client: ClientRun) -> None:
    """Store a version that is on no branch, and give it a tag."""
    session = client.repo.writable_session(client.branch())
    mark = client.mark()
    changes = client.changes(mark)
    client.write(session, changes)
    client.declare(mark, session, changes)
    version = client.attempt(mark, lambda: session.flush(mark))
    if version is not None and client.run.spec_version > 1:
        tag = f"tag-{mark}"
        client.attempt((UpdateKind.TAG_CREATED, tag), lambda: client.repo.create_tag(tag, version))


def fork(client: ClientRun) -> None:
    """Write with two forks, one of them in another process, and commit what both have written."""
    session = client.repo.writable_session(client.branch())
    mark = client.mark()
    changes = client.changes(mark, 6)
    items = sorted(changes.items())
    first, second = dict(items[::2]), dict(items[1::2])
    near = session.fork()
    far = pickle.loads(pickle.dumps(session.fork()))
    client.write(near, first)
    client.write(far, second)
    far = pickle.loads(pickle.dumps(far))
    session.merge(near, far)
    client.declare(mark, session, changes)
    client.attempt(mark, lambda: session.commit(mark, rebase_with=frazil.ConflictDetector()))
    answer = client.run.attempts[-1].answer or ""
    if ErrorKind.GARBAGE_COLLECTED in answer and not client.has_accidents():
        raise Violation("leases", "a collection deleted chunks of a fork")


def move(client: ClientRun) -> None:
    """Rename an array without chunks, and back."""
    session = client.repo.rearrange_session(client.branch())
    mark = client.mark()
    names = ["/m0", "/m1"]
    client.numbers.shuffle(names)
    session.move(*names)
    client.declare(mark, session, {})
    client.attempt(mark, lambda: session.commit(mark))


def create_branch(client: ClientRun) -> None:
    name = client.mark()
    tip = client.repo.lookup_branch(client.branch())
    client.attempt((UpdateKind.BRANCH_CREATED, name), lambda: client.repo.create_branch(name, tip))


def delete_branch(client: ClientRun) -> None:
    names = sorted(client.run.branches() - {"main"})
    if names:
        name = client.numbers.choice(names)
        client.attempt((UpdateKind.BRANCH_DELETED, name), lambda: client.repo.delete_branch(name))


def reset_branch(client: ClientRun) -> None:
    """Set a branch back by one version, if it has not moved."""
    branch = client.branch()
    tip = client.repo.lookup_branch(branch)
    parent = client.repo.lookup_snapshot(tip).parent_id
    if parent is not None and len(client.run.model.contents[parent]):
        kind = (UpdateKind.BRANCH_RESET, branch)
        client.attempt(kind, lambda: client.repo.reset_branch(branch, parent, from_snapshot_id=tip))
        if client.run.attempts[-1].outcome == "done" and (branch, tip) not in client.run.history.resets:
            raise Violation("refs", f"{branch!r} was reset, although it was not at {tip} any more")


def tag(client: ClientRun) -> None:
    """Create a tag, and delete it."""
    name = client.mark()
    tip = client.repo.lookup_branch(client.branch())
    done = (UpdateKind.TAG_CREATED, name)
    client.attempt(done, lambda: client.repo.create_tag(name, tip))
    if client.numbers.random() < 0.5:
        client.attempt((UpdateKind.TAG_DELETED, name), lambda: client.repo.delete_tag(name))


def metadata(client: ClientRun) -> None:
    mark = client.mark()
    client.attempt((UpdateKind.METADATA_CHANGED, mark), lambda: client.repo.set_metadata({"mark": mark}))


def status(client: ClientRun) -> None:
    mark = client.mark()
    new = frazil.RepoStatus(frazil.RepoAvailability.online, limited_availability_reason=mark)
    client.attempt((UpdateKind.REPO_STATUS_CHANGED, mark), lambda: client.repo.set_status(new))


def configure(client: ClientRun) -> None:
    client.repo.save_config()


def merge(client: ClientRun) -> None:
    """Merge a branch into another."""
    names = sorted(client.run.branches())
    source, into = client.numbers.choice(names), client.branch()
    target, mark = client.repo.lookup_branch(into), client.mark()
    client.run.model.intents[mark] = Intent(target, {}, sources=lambda: tuple(client.run.tips_of(source)))
    client.attempt(
        mark, lambda: client.repo.merge(source, into, message=mark, fast_forward=False), may_do_nothing=True
    )


def cherry_pick(client: ClientRun) -> None:
    version = client.numbers.choice(client.run.history.published or [None])
    if version is None or version.parent is None:
        return
    mark, onto = client.mark(), client.branch()
    client.run.model.intents[mark] = Intent(version.id, {}, sources=lambda: (version.id,))
    client.attempt(mark, lambda: client.repo.cherry_pick(version.id, onto, message=mark), may_do_nothing=True)


def revert(client: ClientRun) -> None:
    branch = client.branch()
    tip = client.repo.lookup_branch(branch)
    parent = client.repo.lookup_snapshot(tip).parent_id
    if parent is None or not len(client.run.model.contents[parent]):
        return
    mark = client.mark()
    client.run.model.intents[mark] = Intent(tip, {}, sources=lambda: (parent,))
    client.attempt(mark, lambda: client.repo.revert(tip, branch, message=mark), may_do_nothing=True)


def rewrite_manifests(client: ClientRun) -> None:
    branch, mark = client.branch(), client.mark()
    client.run.model.intents[mark] = Intent(client.repo.lookup_branch(branch), {})
    client.attempt(mark, lambda: client.repo.rewrite_manifests(mark, branch=branch), may_do_nothing=True)


def compact(client: ClientRun) -> None:
    """Merge small chunk files into packs, where that is worth a commit."""
    branch, mark = client.branch(), client.mark()
    client.run.model.intents[mark] = Intent(client.repo.lookup_branch(branch), {})
    client.repo.upkeep.compact(mark, branch=branch, limits=frazil.CompactionLimits(live_fraction=0.9)).apply()


def expire(client: ClientRun) -> None:
    hours = client.numbers.choice((-1, -0.001, 0))
    client.repo.expire_snapshots(client.time(hours), delete_expired_tags=client.numbers.random() < 0.5)


def collect(client: ClientRun) -> None:
    hours = client.numbers.choice((-1, -0.001, 0, 24))
    client.repo.garbage_collect(client.time(hours))


def read(client: ClientRun) -> None:
    """Read a version. It is a tip that the branch had during the call, and has the content of the model."""
    branch = client.branch()
    since = len(client.run.tips)
    session = client.repo.readonly_session(branch)
    client.run.require_recent(branch, session.snapshot_id, since)
    content = client.run.content_of(session)
    # The versions of spec version 1 are recorded at the end.
    client.run.model.require(session.snapshot_id, content, may_be_unknown=client.run.spec_version == 1)


def verify(client: ClientRun) -> None:
    """Verify the repository. Nothing is damaged, also while others write."""
    report = client.repo.upkeep.verify("exists")
    checks = {each.check for each in report.problems} - {"unavailable"}
    if checks and not client.has_short_reads() and not client.has_accidents():
        raise Violation("verify", str(report))


def copy(client: ClientRun) -> None:
    """Copy the repository. The copy is whole."""
    client.run.copy(client)


def upgrade(client: ClientRun) -> None:
    """Upgrade the repository from spec version 1 to 2."""
    frazil.upgrade_icechunk_repository(client.repo, dry_run=False)


def idle(client: ClientRun) -> None:
    """Do nothing for some hours."""
    client.run.scheduler.pause(client.numbers.choice((0.1, 60.0, 3600.0, 30_000.0)))


def retain(client: ClientRun) -> None:
    """Remove the versions that no rule of a policy selects."""
    policy = frazil.Retention(last=client.numbers.randint(1, 4))
    client.repo.upkeep.retain(policy if client.numbers.random() < 0.7 else {"main": policy}).apply()


def squash(client: ClientRun) -> None:
    """Squash the last versions of a branch. With a message, a new version replaces the tip."""
    branch = client.branch()
    line = [version.id for version in client.repo.ancestry(branch=branch)]
    since = line[min(client.numbers.randint(1, 4), len(line) - 1)]
    if client.numbers.random() < 0.5:
        client.repo.upkeep.squash(branch, since).apply()
        return
    mark = client.mark()
    client.run.model.intents[mark] = Intent(line[0], {}, amends=True)
    client.run.history.squashes.add(mark)
    client.attempt(mark, lambda: client.repo.upkeep.squash(branch, since, message=mark).apply())


def repair(client: ClientRun) -> None:
    """Repair a repository without damage, while others write and requests fail. Nothing is to do."""
    plan = frazil.Repository.upkeep.repair(client.storage, level="exists").apply()
    if plan.steps and not client.has_accidents():
        raise Violation("repair", f"a sound repository was repaired: {plan.rows()}")


def lose_file(client: ClientRun) -> None:
    """Lose a file, or its second half, and bring it back from a copy while others work."""
    run, objects = client.run, client.run.network.objects
    keys = [
        key for key in sorted(objects.objects) if key.startswith(IMMUTABLE) and key not in objects.damaged
    ]
    key = client.numbers.choice(keys)
    half = objects.objects[key].data[: len(objects.objects[key].data) // 2]
    with run.scheduler.standing_still():
        objects.harm(key, half if client.numbers.random() < 0.5 else None)
        run.network.note(run.clients[client.name], f"accident {key}")
        is_needed = key in _damage(client)
    copy = run.undamaged()
    frazil.Repository.upkeep.repair(client.storage, copies=[copy]).apply()
    with run.scheduler.standing_still():
        # A version that others publish during a verification is not verified. The next repair sees it.
        if is_needed and key in objects.damaged:
            frazil.Repository.upkeep.repair(client.storage, copies=[copy]).apply()
        if is_needed and key in objects.damaged and key in _damage(client):
            raise Violation("repair", f"`{key}` was damaged and needed, and is not repaired")


def _damage(client: ClientRun) -> set[str]:
    """Return the files with problems, which a storage with the same bytes has at this moment."""
    storage = MemoryStorage()
    objects = client.run.network.objects.objects
    storage.put_many(((key, each.data) for key, each in objects.items()))
    return {each.key for each in frazil.Repository.open(storage).upkeep.verify("exists").problems}


@dataclass(eq=False)
class StartedJob:
    """A job of a run, which several drivers may run. ``bases`` are the versions that it started at."""

    mark: str
    branch: str
    changes: Content
    bases: set[str] = field(default_factory=set)


def job(client: ClientRun) -> None:
    """Run a job: a new one, or one that this or another client has started."""
    jobs = client.run.jobs
    if jobs and client.numbers.random() < 0.5:
        started = client.numbers.choice(jobs)
    else:
        mark = client.mark()
        started = StartedJob(mark, client.branch(), client.changes(mark, 4))
        jobs.append(started)
    run_started(client, started)


def run_started(client: ClientRun, started: StartedJob) -> None:
    """Run a job as one of its drivers. A failure does not say that no driver has committed it."""
    mark = started.mark

    def prepare(session: Session) -> Tasks:
        started.bases.add(session.snapshot_id)
        is_one = len(started.bases) == 1
        client.run.model.intents[mark] = Intent(
            session.snapshot_id, started.changes, may_overwrite=not is_one
        )
        return Tasks(sorted(started.changes.items()))

    planned = Job("write", Target(client.repo, started.branch), prepare, work, message=mark, id=mark)
    try:
        result = run_job(planned, Inline(resumable=True))
    except IcechunkError as error:
        client.require_allowed(error)
        client.record(mark, "unknown", repr(error))
    except Crashed:
        client.record(mark, "unknown")
        raise
    else:
        # The version of an earlier commit may be one that a squash has left in its place.
        client.record(mark, "done", None if result.done_before else result.version.snapshot_id)


def work(fork: ForkSession, shared: Any, item: Any) -> Outcome:
    """Write one chunk."""
    chunk, data = item
    fork.store.set_sync(f"x/c/{chunk}", Buffer.from_bytes(data))
    return Outcome(chunks=1)


#: Name -> operation, and how often a random plan has it.
OPERATIONS: dict[str, tuple[Callable[[ClientRun], None], int]] = {
    each.__name__: (each, weight)
    for each, weight in (
        *((commit, 14), (rebase, 2), (amend, 3), (flush, 3), (fork, 3), (move, 2)),
        *((create_branch, 2), (delete_branch, 1), (reset_branch, 1), (tag, 2)),
        *((metadata, 1), (status, 1), (configure, 1)),
        *((merge, 3), (cherry_pick, 1), (revert, 1), (rewrite_manifests, 2), (compact, 2)),
        *((expire, 2), (collect, 4), (read, 5), (verify, 1), (copy, 1), (idle, 1), (upgrade, 1)),
        *((job, 4), (retain, 1), (squash, 2), (repair, 1), (lose_file, 1)),
    )
}
#: Operations of spec version 1.
IN_VERSION_1 = ("commit", "fork", "job", "create_branch", "tag", "collect", "read", "idle", "upgrade")


def names(version: int) -> Iterable[tuple[str, int]]:
    """Return the operations of a spec version, with their weights."""
    return [
        (name, weight)
        for name, (_, weight) in OPERATIONS.items()
        if (name in IN_VERSION_1 if version == 1 else name != "upgrade")
    ]
