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
from tests.simulation.run import CLOCKS, ClientPlan, Outcome, Plan, execute, template
from tests.simulation.storage import LAWFUL, Fault

from frazil.errors import OutcomeUnknownError
from frazil.maintenance.collection import after_collection
from frazil.repository.clock import now_us
from frazil.storage.base import ALWAYS, OpenReplacement, Refused

type Function = Callable[..., Any]
_COLLECTING = ("commit", "collect")
_CONTENT = ("content", "verify", "leases", "honest-errors")
_ONCE = ("exactly-once", "content")
_BACKUPS = ("verify", "backup")
_ERRORS = ("ops-log", "honest-errors")
_NO_IDS = np.zeros((0, 12), np.uint8)
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
    changed = mutant.change(original)
    patches = [mock.patch.object(each, name, changed) for each in (users if owner in users else [owner])]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
        if template.cache_info().currsize != templates:
            template.cache_clear()


def _in(module: str, *mutants: Mutant, **options: Any) -> tuple[Mutant, ...]:
    """Return mutants whose seams are in one module, with options of their plans."""
    return tuple(replace(each, seam=f"{module}:{each.seam}", **options) for each in mutants)


def returning(value: Any) -> Callable[[Function], Function]:
    """A function that does nothing and returns ``value``."""
    return lambda _: lambda *_args, **_options: value


def _result(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """A function whose result is changed."""
    return lambda original: lambda *args, **options: change(original(*args, **options))


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


def _without_expected_tip(original: Function) -> Function:
    return lambda name, snapshot, expected: original(name, snapshot, None)


def _with_time_of_host(original: Function) -> Function:
    return lambda info: now_us()


_without_age = _result(lambda leases: [replace(lease, since=2 * lease.taken) for lease in leases])
_without_end = _result(lambda leases: [replace(lease, until=0) for lease in leases])
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
    *_in(
        "tests.simulation.storage",
        Mutant("the write has no condition", "SimulatedStorage.put", _without_condition, ("conditional",)),
        Mutant("no backup of an update", "SimulatedStorage.backup", returning(None), ("backup",)),
        Mutant("the backup has other bytes", "SimulatedStorage.backup", _with_short_backup, ("backup",)),
    ),
    *_in(
        "frazil.format.repo_info",
        Mutant("the ops log loses entries", "RepoInfo.recorded", _with_short_log, ("ops-log", "backup")),
        Mutant("the log is cut early", "RepoInfo.with_short_log", _without_older_log, ("ops-log",)),
        config="short-log",
    ),
    *_in(
        "frazil.repository.catalog.repo_changes",
        Mutant("the tip is not compared", "require_tip", returning(None), ("refs", "conflicts", "content")),
        Mutant("an amend has the wrong parent", "new_snapshot", _with_base_as_parent, ("refs", "content")),
        Mutant("a reset does not compare", "reset_branch", _without_expected_tip, ("refs",), seed=6),
        operations=("commit", "amend", "reset_branch", "reset_branch"),
    ),
    *_in(
        "frazil.repository.catalog.repo_update",
        Mutant("no backup of a commit", "UpdateStart.save_backup", returning(None), ("backup",)),
        Mutant("a commit has the host's time", "next_update_time", _with_time_of_host, _ERRORS),
        has_clocks=True,
    ),
    *_in(
        "frazil.repository.catalog.repo_update",
        Mutant("an answer is believed", "SentUpdates.applied", returning(None), _ONCE, seed=5),
        Mutant("an unknown outcome is a failure", "SentUpdates.settled", _without_outcome, _ONCE),
        operations=("metadata", "tag"),
        fault_rate=0.6,
        fault_kinds=frozenset({Fault.LATE}),
    ),
    *_in(
        "frazil.repository.catalog.repo_update",
        Mutant("an unreadable `repo` is a failure", "SentUpdates.read", _with_first_error, _ONCE, seed=24),
        operations=("metadata", "tag"),
        fault_rate=0.6,
        fault_kinds=frozenset({Fault.LOST, Fault.ANSWER_LOST}),
    ),
    *_in(
        "frazil.storage.base",
        Mutant(
            "a refused backup is deleted",
            "Storage.open_replacement",
            _without_refused_backup,
            _BACKUPS,
            seed=3,
        ),
        fault_rate=0.05,
    ),
    *_in(
        "frazil.repository.catalog.collection_guard",
        Mutant(
            "a collection stores no list", "CollectionRecord.with_list", _with_empty_list, _CONTENT, seed=3
        ),
        Mutant("a commit does not look for files", "CommitReferences.keys", returning([]), _CONTENT, seed=21),
        Mutant("a commit ignores lists", "CollectionRecord.garbage", returning(_NO_IDS), _CONTENT),
        Mutant("a commit sees no collection", "has_collected", _without_collections, _CONTENT, seed=3),
        operations=_COLLECTING,
    ),
    *_in(
        "frazil.maintenance.collection",
        Mutant("no second look", "collection_change", _with_all_snapshots_seen, _CONTENT),
        Mutant("a collection deletes living chunks", "garbage", _with_living_chunks, _CONTENT),
        operations=_COLLECTING,
    ),
    *_in(
        "frazil.repository.catalog.collection_guard",
        Mutant("leases are ignored", "in_force", returning([]), ("leases",), seed=6),
        Mutant("a lease has no age", "leases", _without_age, ("leases",), seed=74),
        Mutant("a lease ends by another clock", "leases", _without_end, ("leases",), seed=13),
        operations=("fork", "collect", "collect"),
    ),
    *_in(
        "frazil.repository.session.conflicts",
        Mutant("a rebase ignores conflicts", "solve", _with_decided_conflicts, ("conflicts",), seed=1),
        operations=("commit",),
    ),
    *_in(
        "frazil.repository.session.commit_files",
        Mutant("a commit does not wait for files", "Uploads.confirm", returning(None), _CONTENT, seed=22),
        operations=("commit", "read"),
    ),
    *_in(
        "frazil.chunks.writer",
        Mutant("a commit does not wait for packs", "ChunkFlush.confirm", returning(None), _CONTENT),
        operations=("commit",),
        config="packs",
        fault_rate=0.3,
        fault_kinds=frozenset({Fault.LOST}),
    ),
    *_in(
        "frazil.repository.session.workspace",
        Mutant("a fork is pickled without packs", "Workspace.__reduce__", _without_flush, _CONTENT),
        operations=("fork",),
        config="packs",
    ),
    *_in(
        "frazil.repository.catalog.context",
        Mutant("a handle reads its cache", "CatalogV2.repo_info", _with_first_result, ("recent",), seed=1),
        operations=("read", "read", "commit"),
    ),
    *_in(
        "frazil.repository.ids",
        Mutant("ids are not random", "new_object_id", returning(bytes(12)), ("immutable", "honest-errors")),
    ),
    *_in(
        "frazil.maintenance.repair.copies",
        Mutant("an outage is damage", "FileSearch.steps", _with_damage_for_outages, ("repair",), seed=9),
        operations=("commit", "repair", "repair"),
        fault_rate=0.02,
        fault_kinds=frozenset({Fault.LOST, Fault.THROTTLED}),
    ),
    *_in(
        "frazil.maintenance.repair.copies",
        Mutant("a repair copies nothing", "copy_files", returning(None), ("repair", "verify")),
        operations=("commit", "lose_file"),
    ),
    *_in(
        "frazil.jobs.job_history",
        Mutant("a job looks only in the history", "_removed_commits", returning(()), _ONCE, seed=32),
        operations=("job", "job", "squash", "squash"),
    ),
    *_in(
        "frazil.repository.catalog.catalog_v1",
        Mutant("a ref has no condition", "CatalogV1.write_file", _without_condition_of_ref, _ONCE),
        operations=("commit",),
        spec_version=1,
    ),
)
