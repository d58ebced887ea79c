"""Mutants: defects that are put into Frazil on purpose. The simulation must notice each of them.

A mutant replaces one function of Frazil, or of the simulated storage, by a function that calls the original
and changes its arguments or its result. `MUTANTS` says which check must notice it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
from tests.simulation.faults import LAWFUL, Fault
from tests.simulation.plan import CLOCKS, ClientPlan, Plan
from tests.simulation.run import Outcome, execute, forget_results, template

from frazil.errors import OutcomeUnknownError
from frazil.maintenance.collection import after_collection
from frazil.repository.clock import now_us
from frazil.storage.base import ALWAYS, Refused
from frazil.storage.local_commit import OpenReplacement

type Function = Callable[..., Any]
_COLLECTING = ("commit", "collect")
_WRITING = ("commit", "commit", "amend", "metadata", "tag", "merge")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: ``change`` of the function ``seam`` takes its place. One of ``checks`` must notice it.

    ``operations`` and ``fault_rate`` make plans in which the defect matters. ``seed`` is the first one that
    is tried: a seed whose run notices the defect.
    """

    name: str
    seam: str
    change: Callable[[Function], Function]
    checks: tuple[str, ...]
    operations: tuple[str, ...] = _WRITING
    fault_rate: float = 0.0
    fault_kinds: frozenset[Fault] = LAWFUL
    config: str = "files"
    spec_version: int = 2
    has_clocks: bool = False
    seed: int = 0

    def plan(self, seed: int) -> Plan:
        """Return a plan in which the defect may matter."""
        numbers = random.Random(f"mutant {seed}")
        clients = tuple(
            ClientPlan(
                f"c{number}",
                tuple(numbers.choice(self.operations) for _ in range(5)),
                numbers.choice(CLOCKS) if self.has_clocks else 0,
            )
            for number in range(3)
        )
        return Plan(
            seed,
            clients,
            self.spec_version,
            self.config,
            fault_rate=self.fault_rate,
            fault_kinds=self.fault_kinds,
            switching=numbers.choice((0.1, 0.5, 0.8)),
        )

    def find(self, runs: int = 150) -> Outcome | None:
        """Return the first run that notices the defect, or None."""
        template(self.spec_version, self.config)  # the code without the defect writes it
        with applied(self):
            for seed in dict.fromkeys((self.seed, *range(runs))):
                outcome = execute(self.plan(seed))
                if outcome.violation is not None and outcome.violation.check in self.checks:
                    return outcome
        return None


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run a mutant during a block. What runs have stored is not shared between sound and defective code."""
    module, _, path = mutant.seam.partition(":")
    *outer, name = path.split(".")
    owner: Any = import_module(module)
    for each in outer:
        owner = getattr(owner, each)
    original = vars(owner)[name]
    # modules that have imported the function by its name
    users = [each for each in list(sys.modules.values()) if vars(each).get(name) is original]
    templates = template.cache_info().currsize
    forget_results()
    changed = mutant.change(original)
    patches = [mock.patch.object(each, name, changed) for each in (users if owner in users else [owner])]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
        forget_results()
        if template.cache_info().currsize != templates:
            template.cache_clear()


def returning(value: Any) -> Callable[[Function], Function]:
    """A function that does nothing and returns ``value``."""
    return lambda _: lambda *_args, **_options: value


def _result(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """A function whose result is changed."""
    return lambda original: lambda *args, **options: change(original(*args, **options))


def _leases(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    return _result(lambda leases: list(map(change, leases)))


def _without_condition(original: Function) -> Function:
    return lambda self, key, data, condition=ALWAYS: original(self, key, data)


def _with_short_backup(original: Function) -> Function:
    return lambda self, key, version, data, to: original(self, key, version, bytes(data)[:-1], to)


def _without_outcome(original: Function) -> Function:
    def settled(self: Any) -> Any:
        try:
            return original(self)
        except OutcomeUnknownError:
            return None

    return settled


def _with_first_error(original: Function) -> Function:
    def read(self: Any, call: Function) -> Any:
        try:
            return original(self, call)
        except OutcomeUnknownError as error:
            raise (error.__cause__ or error) from None

    return read


def _without_refused_backup(original: Function) -> Function:
    def opened(storage: Any, replacement: Any, objects: Any = ()) -> Any:
        original(storage, replacement, objects)

        class Deleting(OpenReplacement):
            def finish(self) -> Any:
                answer = super().finish()
                if isinstance(answer, Refused):
                    storage.delete([replacement.backup])
                return answer

        return Deleting(storage, replacement)

    return opened


_with_short_log = _result(lambda info: replace(info, ops=info.ops.newest(1)))
_without_older_log = _result(lambda info: replace(info, repo_before_updates=None))
_without_collections = _result(lambda collected: False if collected else collected)
_with_decided_conflicts = _result(lambda answer: (answer[0][: len(answer[1])], answer[1]))


def _with_empty_list(original: Function) -> Function:
    return lambda self, storage, garbage: original(self, storage, garbage[:0])


def _with_all_snapshots_seen(original: Function) -> Function:
    def change(old: Any, live: Any, info: Any, now: int) -> Any:
        snapshots = after_collection(info, old).table.ids()
        return original(old, replace(live, snapshots=snapshots), info, now)

    return change


def _with_living_chunks(original: Function) -> Function:
    def garbage(after: Any, old: Any, live: Any) -> Any:
        return {**original(after, old, live), "chunks": old.files["chunks"].select_files(live.chunks.rows())}

    return garbage


def _without_flush(original: Function) -> Function:
    def reduce(self: Any) -> Any:
        with mock.patch.object(type(self.writer), "flush"):
            return original(self)

    return reduce


def _with_first_result(original: Function) -> Function:
    results: dict[int, Any] = {}
    handles: list[Any] = []  # alive, so that no other handle has the id

    def repo_info(self: Any) -> Any:
        if id(self) not in results:
            handles.append(self)
            results[id(self)] = original(self)
        return results[id(self)]

    return repo_info


def _with_base_as_parent(original: Function) -> Function:
    return lambda entry, branch, base, flag=None: original(
        replace(entry, parent=base) if branch else entry, branch, base, flag
    )


def _with_damage_for_outages(original: Function) -> Function:
    def steps(self: Any, repair: Any, findings: Any) -> Any:
        damaged = (
            replace(each, check="unreadable") if each.check == "unavailable" else each for each in findings
        )
        return original(self, repair, damaged)

    return steps


def _without_condition_of_ref(original: Function) -> Function:
    def write_file(self: Any, write: Any) -> Any:
        has_condition = getattr(write, "condition", None) is not None
        return original(self, replace(write, condition=ALWAYS) if has_condition else write)

    return write_file


MUTANTS = (
    Mutant(
        "the tip is not compared",
        "frazil.repository.catalog.repo_changes:require_tip",
        returning(None),
        ("refs", "conflicts", "content"),
    ),
    Mutant(
        "the write has no condition",
        "tests.simulation.storage:SimulatedStorage.put",
        _without_condition,
        ("conditional",),
    ),
    Mutant(
        "no backup of an update",
        "tests.simulation.storage:SimulatedStorage.backup",
        returning(None),
        ("backup",),
    ),
    Mutant(
        "no backup of a commit",
        "frazil.repository.catalog.repo_update:UpdateStart.save_backup",
        returning(None),
        ("backup",),
    ),
    Mutant(
        "the backup has other bytes",
        "tests.simulation.storage:SimulatedStorage.backup",
        _with_short_backup,
        ("backup",),
    ),
    Mutant(
        "an answer is believed",
        "frazil.repository.catalog.repo_update:SentUpdates.applied",
        returning(None),
        ("exactly-once",),
        fault_rate=0.05,
        seed=5,
    ),
    Mutant(
        "an unknown outcome is called a failure",
        "frazil.repository.catalog.repo_update:SentUpdates.settled",
        _without_outcome,
        ("exactly-once",),
        ("metadata", "tag"),
        fault_rate=0.6,
        fault_kinds=frozenset({Fault.LATE}),
    ),
    Mutant(
        "an unreadable repository is called a failure",
        "frazil.repository.catalog.repo_update:SentUpdates.read",
        _with_first_error,
        ("exactly-once",),
        ("metadata", "tag"),
        fault_rate=0.6,
        fault_kinds=frozenset({Fault.LOST, Fault.ANSWER_LOST}),
        seed=24,
    ),
    Mutant(
        "a backup is deleted when it is refused",
        "frazil.storage.local_commit:open_replacement",
        _without_refused_backup,
        ("verify", "backup"),
        fault_rate=0.05,
        seed=14,
    ),
    Mutant(
        "the ops log loses entries",
        "frazil.format.repo_info:RepoInfo.recorded",
        _with_short_log,
        ("ops-log", "backup"),
    ),
    Mutant(
        "an update is as old as the host's clock says",
        "frazil.repository.catalog.repo_update:next_update_time",
        lambda _: lambda info: now_us(),
        ("ops-log", "honest-errors"),
        has_clocks=True,
    ),
    Mutant(
        "the log is cut too early",
        "frazil.format.repo_info:RepoInfo.with_short_log",
        _without_older_log,
        ("ops-log",),
        config="short-log",
    ),
    Mutant(
        "a collection stores no list",
        "frazil.repository.catalog.collection_guard:CollectionRecord.with_list",
        _with_empty_list,
        ("content", "verify", "leases"),
        _COLLECTING,
    ),
    Mutant(
        "a commit does not look for its files",
        "frazil.repository.catalog.collection_guard:RequiredFiles.keys",
        returning([]),
        ("content", "verify"),
        _COLLECTING,
        seed=3,
    ),
    Mutant(
        "a commit ignores the lists of collections",
        "frazil.repository.catalog.collection_guard:CollectionRecord.garbage",
        returning(np.zeros((0, 12), np.uint8)),
        ("content", "verify"),
        _COLLECTING,
    ),
    Mutant(
        "a commit does not see a collection in the log",
        "frazil.repository.catalog.collection_guard:has_collected",
        _without_collections,
        ("content", "verify"),
        _COLLECTING,
        seed=3,
    ),
    Mutant(
        "a collection does not look again",
        "frazil.maintenance.collection:collection_change",
        _with_all_snapshots_seen,
        ("content", "verify"),
        _COLLECTING,
        seed=2,
    ),
    Mutant(
        "a collection deletes living chunks",
        "frazil.maintenance.collection:garbage",
        _with_living_chunks,
        ("content", "verify"),
        _COLLECTING,
    ),
    Mutant(
        "leases are ignored",
        "frazil.repository.catalog.collection_guard:in_force",
        returning([]),
        ("leases",),
        ("fork", "fork", "collect"),
    ),
    Mutant(
        "a lease has no age",
        "frazil.repository.catalog.collection_guard:leases",
        _leases(lambda lease: replace(lease, since=2 * lease.taken)),
        ("leases",),
        ("fork", "collect", "collect"),
        seed=29,
    ),
    Mutant(
        "a lease ends by another clock",
        "frazil.repository.catalog.collection_guard:leases",
        _leases(lambda lease: replace(lease, until=0)),
        ("leases",),
        ("fork", "collect", "collect"),
        seed=3,
    ),
    Mutant(
        "a rebase ignores conflicts",
        "frazil.repository.session.conflicts:solve",
        _with_decided_conflicts,
        ("conflicts",),
        ("commit",),
        seed=1,
    ),
    Mutant(
        "a commit does not wait for its packs",
        "frazil.chunks.writer:ChunkFlush.confirm",
        returning(None),
        ("content", "verify"),
        ("commit",),
        config="packs",
        fault_rate=0.3,
        fault_kinds=frozenset({Fault.LOST}),
    ),
    Mutant(
        "a commit does not wait for its files",
        "frazil.repository.session.commit_files:Uploads.confirm",
        returning(None),
        ("content", "verify", "honest-errors"),
        ("commit", "read"),
    ),
    Mutant(
        "a fork is pickled before its packs are stored",
        "frazil.repository.session.workspace:Workspace.__reduce__",
        _without_flush,
        ("content", "verify"),
        ("fork",),
        config="packs",
    ),
    Mutant(
        "a handle reads from its cache",
        "frazil.repository.catalog.context:CatalogV2.repo_info",
        _with_first_result,
        ("recent",),
        ("read", "read", "commit"),
        seed=1,
    ),
    Mutant(
        "an amended version has the wrong parent",
        "frazil.repository.catalog.repo_changes:new_snapshot",
        _with_base_as_parent,
        ("refs", "content"),
        ("commit", "amend"),
    ),
    Mutant(
        "a reset does not compare",
        "frazil.repository.catalog.repo_changes:reset_branch",
        lambda original: lambda name, snapshot, expected: original(name, snapshot, None),
        ("refs",),
        ("commit", "reset_branch", "reset_branch"),
        seed=12,
    ),
    Mutant(
        "ids are not random",
        "frazil.repository.ids:new_object_id",
        returning(bytes(12)),
        ("immutable", "honest-errors"),
    ),
    Mutant(
        "a repair takes an outage for damage",
        "frazil.maintenance.repair.copies:FileSearch.steps",
        _with_damage_for_outages,
        ("repair",),
        ("commit", "repair", "repair"),
        fault_rate=0.02,
        fault_kinds=frozenset({Fault.LOST, Fault.THROTTLED}),
        seed=6,
    ),
    Mutant(
        "a repair copies nothing",
        "frazil.maintenance.repair.copies:copy_files",
        returning(None),
        ("repair", "verify"),
        ("commit", "lose_file"),
    ),
    Mutant(
        "a job looks for its commit in the history alone",
        "frazil.jobs.job_history:_removed_commits",
        returning(()),
        ("exactly-once",),
        ("job", "job", "squash", "squash"),
        seed=1,
    ),
    Mutant(
        "version 1: a ref is written without a condition",
        "frazil.repository.catalog.catalog_v1:CatalogV1.write_file",
        _without_condition_of_ref,
        ("exactly-once", "content"),
        ("commit",),
        spec_version=1,
    ),
)
