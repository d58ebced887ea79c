"""One run of a plan, all of it from one seed, and the checks during the run and at its end."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from typing import Any

from tests.simulation.model import CHUNKS, Content, Model, RepoHistory, Version, line_of
from tests.simulation.operations import OPERATIONS, Attempt, ClientRun, StartedJob, names
from tests.simulation.pools import installed
from tests.simulation.scheduler import (
    START_US,
    Client,
    Policy,
    Scheduler,
    Seeded,
    SimulatedHost,
    Stuck,
    TooLong,
    Turns,
)
from tests.simulation.storage import (
    LAWFUL,
    Crashed,
    Fault,
    Faults,
    Network,
    Objects,
    Request,
    SimulatedStorage,
    StoredObject,
    Violation,
    forget_storages,
)
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.errors import IcechunkError
from frazil.format.ids import REPO, backup_key, id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo, UpdateKind, decode_repo_info
from frazil.host import replace_host
from frazil.maintenance.verification.findings import Severity
from frazil.pipeline.replication import copy_repository
from frazil.storage.memory import MemoryStorage

HOUR_US = 3_600_000_000
#: How far clocks differ, in microseconds.
CLOCKS = (0, 0, 0, 500_000, 20 * 60_000_000, -20 * 60_000_000, HOUR_US, -HOUR_US, -24 * HOUR_US)
#: Settings of repositories by name: packing, deduplication, inline chunks.
CONFIGS = ("packs", "files", "content", "inline", "short-log")


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client: the operations, and how far the clock of its host is ahead."""

    name: str
    operations: tuple[str, ...]
    ahead_us: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. Its schedule and its faults are drawn from the seed.

    With ``turns``, the schedule is a list: it has the name of the client that goes on at a step.
    ``history`` has operations of a client that ends before the others begin.
    """

    seed: int
    clients: tuple[ClientPlan, ...]
    spec_version: int = 2
    config: str = "packs"
    is_local: bool = False
    storage_ahead_us: int = 0
    fault_rate: float = 0.0
    fault_kinds: frozenset[Fault] = LAWFUL
    switching: float = 0.3
    turns: Mapping[int, str] | None = None
    history: tuple[str, ...] = ()

    def policy(self) -> Policy:
        """Return the policy of the scheduler."""
        return Seeded(self.seed, self.switching) if self.turns is None else Turns(self.turns)


def random_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    numbers = random.Random(f"plan {seed}")
    version = 1 if numbers.random() < 0.1 else 2
    choices = names(version)
    operations = [name for name, weight in choices for _ in range(weight)]
    longest = numbers.choice((4, 8, 16))
    clients = tuple(
        ClientPlan(
            f"c{number}",
            tuple(numbers.choice(operations) for _ in range(numbers.randint(2, longest))),
            numbers.choice(CLOCKS),
        )
        for number in range(numbers.randint(2, 4))
    )
    return Plan(
        seed,
        clients,
        version,
        numbers.choice(CONFIGS),
        is_local=numbers.random() < 0.3,
        storage_ahead_us=numbers.choice(CLOCKS),
        fault_rate=numbers.choice((0.0, 0.0, 0.005, 0.02, 0.05)),
        switching=numbers.choice((0.05, 0.3, 0.8)),
    )


#: Steps after which a run is stopped.
_LIMIT = 20_000


def config_of(name: str) -> frazil.RepositoryConfig:
    """Return the settings of a name in ``CONFIGS``."""
    packing = frazil.PackingConfig(enabled=name in ("packs", "short-log"))
    return frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=512 if name == "inline" else 0,
        packing=packing,
        chunks=frazil.ChunksConfig(deduplicate=name == "content"),
        num_updates_per_repo_info_file=4 if name == "short-log" else 1000,
    )


@cache
def template(version: int, name: str) -> dict[str, bytes]:
    """Return the files of a repository with one commit, which each run copies."""
    storage = MemoryStorage()
    host = SimulatedHost(Scheduler(Plan(0, ()).policy()), Client("template", 0))
    with replace_host(host):
        repo = frazil.Repository.create(storage, config_of(name), spec_version=version)
        session = repo.writable_session("main")
        array = (
            b'{"zarr_format":3,"node_type":"array","shape":[%d],"data_type":"uint8","chunk_grid":{"name":"regular",'
            b'"configuration":{"chunk_shape":[1]}},"chunk_key_encoding":{"name":"default"},"fill_value":0,'
            b'"codecs":[{"name":"bytes"}],"attributes":{}}' % CHUNKS
        )
        session.store.set_sync("zarr.json", Buffer.from_bytes(b'{"zarr_format":3,"node_type":"group"}'))
        for path in ("x", "m0"):
            session.store.set_sync(f"{path}/zarr.json", Buffer.from_bytes(array))
        session.commit("first")
    return {info.key: bytes(storage.get(info.key)) for info in storage.list("")}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run: what was broken, or None; and what is needed to repeat it.

    ``results`` has the attempts and the versions in their order, without ids.
    """

    plan: Plan
    violation: Violation | None
    requests: int
    faults: dict[Request, Fault]
    attempts: Counter[str]
    trace: list[str]
    results: tuple[str, ...]


@dataclass(eq=False)
class Run:
    """The state of one run, which its clients share."""

    plan: Plan
    scheduler: Scheduler = field(init=False)
    network: Network = field(init=False)
    history: RepoHistory = field(init=False)
    model: Model = field(init=False)
    clients: dict[str, Client] = field(init=False)
    attempts: list[Attempt] = field(default_factory=list)
    #: The branches after each change of `repo`, by name.
    tips: list[dict[str, str]] = field(default_factory=list)
    jobs: list[StartedJob] = field(default_factory=list)
    repeats: set[str] = field(default_factory=set)  #: The marks of jobs with several versions.
    violation: Violation | None = None
    judge: Client = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self.scheduler = Scheduler(plan.policy(), limit=_LIMIT)
        objects = Objects(clock=lambda: self.scheduler.now_us + plan.storage_ahead_us)
        faults = Faults(plan.fault_rate, plan.seed, plan.fault_kinds)
        self.network = Network(self.scheduler, objects, faults, plan.is_local)
        self.judge = Client("judge", plan.seed)
        self.model = Model(self._content, may_repeat=self._may_repeat)
        published = self.model.published if plan.spec_version > 1 else lambda version: None
        self.history = RepoHistory(objects, published)
        self.clients = {each.name: Client(each.name, plan.seed, each.ahead_us) for each in plan.clients}
        for key, data in template(plan.spec_version, plan.config).items():
            objects.objects[key] = StoredObject(data, 0, START_US + plan.storage_ahead_us)
        objects.on_repo = self._repo_changed
        self.scheduler.now_us += 24 * 3600 * 1_000_000

    @property
    def spec_version(self) -> int:
        return self.plan.spec_version

    def _repo_changed(self, before: bytes | None, after: bytes) -> None:
        try:
            self.history.changed(before, after)
        except Violation as violation:
            self.violation = self.violation or violation  # the client may catch it
            raise
        self._record_tips(decode_repo_info(after, REPO))

    def _may_repeat(self, version: Version) -> bool:
        """Return whether a job runs again because a reset of its branch has removed its version."""
        if version.message not in {each.mark for each in self.jobs}:
            return False
        if version.branch not in {branch for branch, _ in self.history.resets}:
            return False
        info = decode_repo_info(self.network.objects.objects[REPO].data, REPO)
        line = map(id_to_text, line_of(info, id_from_text(version.parent or "")))
        self.repeats.add(version.message)
        return self.model.messages[version.message] not in line

    def _record_tips(self, info: RepoInfo) -> None:
        self.tips.append({name: id_to_text(id_) for name, id_ in info.branches.items()})

    def branches(self) -> set[str]:
        """Return the branches of the repository now."""
        return set(self.tips[-1]) if self.tips else {"main"}

    def tips_of(self, branch: str) -> list[str]:
        """Return all versions that the branch has had."""
        return list({each[branch]: None for each in self.tips if branch in each})

    def require_recent(self, branch: str, version: str, since: int) -> None:
        """Raise unless the branch was at the version at some time after ``since`` changes of `repo`."""
        recent = [each.get(branch) for each in self.tips[max(since - 1, 0) :]]
        if self.spec_version > 1 and version not in recent:
            raise Violation("recent", f"{branch!r} was read at {version}, which it had left before the call")

    def host_time_us(self, name: str) -> int:
        return self.scheduler.now_us + self.clients[name].ahead_us

    def content_of(self, session: frazil.Session) -> Content:
        """Return the chunks of a session."""
        chunks = {n: session.store.get_sync(f"x/c/{n}") for n in range(CHUNKS)}
        return {n: value.to_bytes() for n, value in chunks.items() if value is not None}

    def _content(self, version: str) -> Content:
        with self.scheduler.standing_still():
            repo = frazil.Repository.open(without_steps(self.network.objects))
            return self.content_of(repo.readonly_session(snapshot_id=version))

    def copy(self, client: ClientRun) -> None:
        """Copy the repository, and check the copy."""
        target = Objects(clock=self.network.objects.clock)
        network = Network(self.scheduler, target)
        copy_repository(client.repo, SimulatedStorage(network, self.clients[client.name]), engine="inline")
        with self.scheduler.standing_still():
            repo = frazil.Repository.open(without_steps(target))
            for name in sorted(repo.list_branches()):
                session = repo.readonly_session(name)
                self.model.require(session.snapshot_id, self.content_of(session))

    # ---- the run

    def execute(self) -> None:
        """Run all clients, and judge what is left. Sets ``violation``."""
        host = SimulatedHost(self.scheduler, self.judge)
        with installed(self.scheduler), replace_host(host):
            try:
                self._begin()
                if self.plan.history:
                    self._run_history()
                for each in self.plan.clients:
                    self.scheduler.start(self.clients[each.name], partial(self._live, each))
                self.scheduler.run()
                if self.violation is None:
                    Judge(self).judge()
            except Violation as violation:
                self.violation = self.violation or violation
            except (Stuck, TooLong) as error:
                self.violation = self.violation or Violation("progress", str(error))

    def _begin(self) -> None:
        repo = frazil.Repository.open(without_steps(self.network.objects))
        for version in repo.ancestry(branch="main"):
            session = repo.readonly_session(snapshot_id=version.id)
            self.model.contents[version.id] = {} if version.parent_id is None else self.content_of(session)
        if self.spec_version > 1:
            self._record_tips(decode_repo_info(self.network.objects.objects[REPO].data, REPO))

    def _run_history(self) -> None:
        """Run the operations of the history, without changes of the task and without faults."""
        plan = ClientPlan("history", self.plan.history)
        self.clients[plan.name] = Client(plan.name, self.plan.seed)
        faults, self.network.faults = self.network.faults, Faults()
        policy, self.scheduler.policy = self.scheduler.policy, Turns({})
        self.scheduler.start(self.clients[plan.name], partial(self._live, plan))
        self.scheduler.run()
        self.network.faults, self.scheduler.policy = faults, policy
        self.scheduler.now_us += 3600 * 1_000_000
        self.scheduler.begin_again()
        if self.network.trace is not None:
            self.network.trace.clear()

    def _live(self, plan: ClientPlan) -> None:
        """The life of one client: operations, and a new process after each crash."""
        try:
            client = self._process(plan)
            for number, name in enumerate(plan.operations):
                if self.violation is not None:
                    return
                if client is None or self.clients[plan.name].is_dead:
                    client = self._process(plan)
                if client is None:
                    continue
                client.operation = number
                client.numbers = random.Random(f"{self.plan.seed} {plan.name} {number}")
                self._operate(client, name)
        except Violation as violation:
            self.violation = self.violation or violation
        except TooLong as error:
            self.violation = self.violation or Violation("progress", str(error))

    def _process(self, plan: ClientPlan) -> ClientRun | None:
        host = self.clients[plan.name]
        host.is_dead = False
        host.starts += 1
        storage = SimulatedStorage(self.network, host)
        try:
            repo = frazil.Repository.open(storage, config_of(self.plan.config))
        except (IcechunkError, Crashed):
            return None
        run = ClientRun(self, plan.name, storage, repo, random.Random(0))
        run.calls = host.starts * 1000
        return run

    def _operate(self, client: ClientRun, name: str) -> None:
        client.start = self.network.objects.clock()
        try:
            OPERATIONS[name][0](client)
        except Crashed:
            pass
        except IcechunkError as error:
            client.require_allowed(error)
        except Violation:
            raise
        except Exception as error:
            raise Violation("honest-errors", f"{name}: {type(error).__name__}: {error}") from error

    # ---- the end

    def results(self) -> tuple[str, ...]:
        """Return what has happened, without ids."""
        messages = {version: message for message, version in self.model.messages.items()}
        versions = [f"{each.message} on {messages.get(each.parent or '')}" for each in self.history.published]
        return (*versions, *sorted(f"{each.mark} {each.outcome}" for each in self.attempts))

    def undamaged(self) -> MemoryStorage:
        """Return a copy of the repository as it was without accidents."""
        return without_steps(self.network.objects)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Let the collector of Python wait: it would end calls of earlier runs in the middle of a request."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def execute(plan: Plan, *, with_trace: bool = False) -> Outcome:
    """Run a plan."""
    forget_storages()
    with _without_collector():
        run = Run(plan)
        if with_trace:
            run.network.trace = []
        run.execute()
    return Outcome(
        plan,
        run.violation,
        run.network.count,
        run.network.faults.record,
        Counter(each.outcome for each in run.attempts),
        run.network.trace or [],
        run.results(),
    )


def trace_digest(plan: Plan) -> str:
    """Run a plan, and return a digest of all its requests and results."""
    outcome = execute(plan, with_trace=True)
    lines = [*outcome.trace, *outcome.results, str(outcome.violation)]
    return sha256("\n".join(lines).encode()).hexdigest()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A time after the ends of all leases and sessions, in microseconds.
_LATER_US = 60 * 24 * 3600 * 1_000_000
#: Folders of files that the format defines, and of the data for the next walk. Nothing else may stay.
_LASTING = {
    *(REPO, "snapshots", "manifests", "transactions", "chunks", "overwritten"),
    *("refs", "config.yaml", "walks", "quarantine"),
}


def _upgraded(repo: frazil.Repository) -> frazil.Repository:
    """Complete an upgrade whose client crashed. Until then nobody can change the repository."""
    is_complete = repo.spec_version == 1 or repo.status.availability is frazil.RepoAvailability.online
    return repo if is_complete else frazil.upgrade_icechunk_repository(repo, dry_run=False)


@dataclass(frozen=True, slots=True)
class Judge:
    """The judge of a run whose clients have ended."""

    run: Run

    def judge(self) -> None:
        """Raise ``Violation`` for the first promise that is broken."""
        self.run.network.execute_late(everything=True)
        before, is_whole = without_steps(self.run.network.objects), not self.run.history.collections
        if self.run.spec_version > 1:
            self._judge_attempts()
            # On a full storage, a collection that fails may delete backups that `repo` still names.
            collects = any("collect" in each.operations for each in self.run.plan.clients)
            if not (self.run.network.full_until and collects):
                self._judge_backups()
        self.run.scheduler.now_us += _LATER_US
        limit = _EPOCH + timedelta(microseconds=self.run.scheduler.now_us) + timedelta(days=30)
        storage = SimulatedStorage(self.run.network, self.run.judge)
        with _as_violations("verify"):
            if self.run.network.objects.damaged:
                frazil.Repository.upkeep.repair(
                    storage, copies=[without_steps(self.run.network.objects)]
                ).apply()
            judge = _upgraded(frazil.Repository.open(storage))
            judge.garbage_collect(limit)
            self._judge_contents()
            report = judge.upkeep.verify("exists")
        if not report.ok:
            raise Violation("verify", str(report))
        self._judge_files()
        if self.run.spec_version > 1 and self.run.plan.seed % 4 == 0:
            with _as_violations("restore"):
                self._judge_restoration(before, is_whole=is_whole)

    def _judge_restoration(self, storage: MemoryStorage, *, is_whole: bool) -> None:
        """Lose `repo`, and restore it from its newest backup. No version gets another content.

        The files of a commit that was refused look the same as those of a lost commit: docs/repair.md.
        """
        before = frazil.Repository.open(storage)
        tips = {name: before.lookup_branch(name) for name in before.list_branches()}
        storage.delete([REPO])
        plan = frazil.Repository.upkeep.repair(storage, level="metadata").apply()
        after = frazil.Repository.open(storage)
        if is_whole and {each.severity for each in plan.findings} & {Severity.LOSS, Severity.DAMAGE}:
            raise Violation("restore", f"a lost `repo` left damage: {plan}")
        relisted = {key for step in plan.steps if step.action == "relist" for key in step.keys}
        for name in after.list_branches():
            tip = after.lookup_branch(name)
            if f"snapshots/{tip}" not in relisted and tip not in self.run.model.contents:
                raise Violation("restore", f"{name!r} is at {tip}, which was never published")
            if tips.get(name) == tip:
                self.run.model.require(tip, self.run.content_of(after.readonly_session(name)))

    def _judge_backups(self) -> None:
        info = decode_repo_info(self.run.network.objects.objects[REPO].data, REPO)
        for name in filter(None, {*info.ops.backups.texts(), info.repo_before_updates}):
            if backup_key(name) not in self.run.network.objects.objects:
                raise Violation("backup", f"`repo` names `{name}`, which is not stored")

    def _judge_attempts(self) -> None:
        for attempt in self.run.attempts:
            if attempt.mark in self.run.repeats:
                continue
            if isinstance(attempt.mark, str):
                count = int(attempt.mark in self.run.model.messages)
                answer = self.run.model.messages.get(attempt.mark)
                if attempt.outcome == "done" and attempt.answer not in (None, answer):
                    raise Violation("exactly-once", f"{attempt}: the version is {answer}")
            else:
                count = self.run.history.entries[attempt.mark]
                if attempt.mark[0] in (UpdateKind.BRANCH_RESET, UpdateKind.BRANCH_DELETED):
                    continue  # others may do the same
            allowed = {"done": (1,), "failed": (0,), "unknown": (0, 1)}[attempt.outcome]
            if count not in allowed:
                raise Violation("exactly-once", f"{attempt} took effect {count} times")

    def _judge_contents(self) -> None:
        repo = frazil.Repository.open(without_steps(self.run.network.objects))
        tips = {repo.lookup_branch(name) for name in repo.list_branches()}
        tips |= {repo.lookup_tag(name) for name in repo.list_tags()}
        done: set[str] = set()
        for tip in sorted(tips):
            line = [*repo.ancestry(snapshot_id=tip)]
            if self.run.spec_version == 1:
                self._publish(line)
            for version in line:
                if version.id not in done:
                    done.add(version.id)
                    session = repo.readonly_session(snapshot_id=version.id)
                    self.run.model.require(version.id, self.run.content_of(session))
        if self.run.spec_version == 1:
            self._judge_version_1()

    def _publish(self, line: list[Any]) -> None:
        """Record the versions of spec version 1, the oldest first."""
        for each in reversed(line):
            if each.id not in self.run.model.contents:
                kind = UpdateKind.NEW_COMMIT
                self.run.model.published(Version(each.id, each.parent_id, each.message, kind, None))

    def _judge_version_1(self) -> None:
        for attempt in self.run.attempts:
            if isinstance(attempt.mark, str) and attempt.outcome != "unknown":
                count = int(attempt.mark in self.run.model.messages)
                if count != (attempt.outcome == "done"):
                    raise Violation("exactly-once", f"{attempt} is {count} times in the history")

    def _judge_files(self) -> None:
        strange = [key for key in self.run.network.objects.objects if key.partition("/")[0] not in _LASTING]
        # A collection of spec version 1 leaves a mark.
        if len(strange) > (self.run.spec_version == 1) or not all(
            key.startswith("collections/") for key in strange
        ):
            raise Violation("leftovers", f"{len(strange)} objects stay, such as `{strange[0]}`")


@contextmanager
def _as_violations(check: str) -> Iterator[None]:
    """Raise errors of Frazil in a block as violations of a check."""
    try:
        yield
    except IcechunkError as error:
        raise Violation(check, f"{type(error).__name__} ({error.kind}): {error.message}") from error


def without_steps(objects: Objects) -> MemoryStorage:
    """Return a storage with the same bytes and without damage, which takes no steps."""
    storage = MemoryStorage()
    storage.put_many(objects.undamaged().items())
    return storage
