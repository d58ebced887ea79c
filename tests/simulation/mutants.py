"""Mutants: defects that are put into Frazil on purpose. The simulation must notice each of them.

A mutant replaces a text in the source of one function. The new code replaces the code of the function in
place, so all modules that have imported it run the mutant. `MUTANTS` says which check must notice it.
"""

from __future__ import annotations

import inspect
import random
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tests.simulation.faults import LAWFUL, Fault
from tests.simulation.plan import CLOCKS, ClientPlan, Plan
from tests.simulation.run import Outcome, execute, forget_results, template

_REPO_UPDATE = "frazil.repository.catalog.repo_update:update_repo_info"
_GUARD = "frazil.repository.catalog.collection_guard"
_COLLECTION = "frazil.maintenance.collection"
_COMMIT = "frazil.repository.session.commit:_attempt_commit"
_COLLECTING = ("commit", "collect")
_WRITING = ("commit", "commit", "amend", "metadata", "tag", "merge")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: in ``function``, the text ``old`` becomes ``new``. One of ``checks`` must notice it.

    ``operations`` and ``fault_rate`` make plans in which the defect matters. ``seed`` is the first one that
    is tried: a seed whose run notices the defect.
    """

    name: str
    function: str
    old: str
    new: str
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


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return inspect.unwrap(value.fget if isinstance(value, property) else value)


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run a mutant during a block. What runs have stored is not shared between sound and defective code."""
    function: Any = _function(mutant.function)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise LookupError(
            f"{mutant.name}: {mutant.old!r} must be in {mutant.function} once. Adapt the mutant"
        )
    lines = source.replace(mutant.old, mutant.new).splitlines()
    while lines[0].startswith("@"):
        del lines[0]
    names: dict[str, Any] = {}
    text = "\n".join(["from __future__ import annotations", *lines])
    exec(compile(text, mutant.name, "exec"), function.__globals__, names)
    templates = template.cache_info().currsize
    forget_results()
    code, function.__code__ = function.__code__, names[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = code
        forget_results()
        if template.cache_info().currsize != templates:
            template.cache_clear()


MUTANTS = (
    Mutant(
        "the tip is not compared",
        "frazil.repository.catalog.repo_changes:new_snapshot",
        "require_tip(info, branch, base)",
        "pass",
        ("refs", "conflicts", "content"),
    ),
    Mutant(
        "the write has no condition",
        "frazil.storage.local_commit:OpenReplacement.finish",
        ", IfVersion(replacement.version)",
        "",
        ("conditional",),
    ),
    Mutant(
        "no backup of an update",
        "frazil.storage.local_commit:open_replacement",
        "storage.backup(replacement.key, replacement.version, replacement.old, replacement.backup)",
        "pass",
        ("backup",),
    ),
    Mutant(
        "no backup of a commit",
        _COMMIT,
        "uploads.run(lambda: start.save_backup(context.storage))",
        "pass",
        ("backup",),
    ),
    Mutant(
        "the backup has other bytes",
        "frazil.repository.catalog.repo_update:UpdateStart.save_backup",
        "self.raw, ",
        "self.raw[:-1], ",
        ("backup",),
    ),
    Mutant(
        "a refusal is believed",
        _REPO_UPDATE,
        "if applied := sent.applied(at.info):",
        "if False:",
        ("exactly-once",),
        fault_rate=0.05,
        seed=5,
    ),
    Mutant(
        "an error is believed",
        "frazil.repository.catalog.repo_update:SentUpdates.applied",
        "if name in self._infos:",
        "if False:",
        ("exactly-once",),
        fault_rate=0.05,
        seed=5,
    ),
    Mutant(
        "an unknown outcome is called a failure",
        "frazil.repository.catalog.repo_update:SentUpdates.settled",
        "raise outcome_unknown(self._entry, why)",
        "return None",
        ("exactly-once",),
        ("metadata", "tag"),
        fault_rate=0.6,
        fault_kinds=frozenset({Fault.LATE}),
    ),
    Mutant(
        "an unreadable repository is called a failure",
        "frazil.repository.catalog.repo_update:SentUpdates.read",
        "raise outcome_unknown(self._entry, why) from error",
        "raise error",
        ("exactly-once",),
        ("metadata", "tag"),
        fault_rate=0.6,
        fault_kinds=frozenset({Fault.LOST, Fault.ANSWER_LOST}),
        seed=24,
    ),
    Mutant(
        "a backup is deleted when it is refused",
        _REPO_UPDATE,
        "refused.append(at.backup)",
        "storage.delete([backup_key(at.backup)])",
        ("verify", "backup"),
        fault_rate=0.05,
        seed=14,
    ),
    Mutant(
        "the ops log loses entries",
        "frazil.format.repo_info:RepoInfo.recorded",
        "return replace(self, ops=ops)",
        "return replace(self, ops=ops.newest(1))",
        ("ops-log", "backup"),
    ),
    Mutant(
        "an update is as old as the host's clock says",
        _REPO_UPDATE,
        "max(now_us(), newest + 1)",
        "now_us()",
        ("ops-log", "honest-errors"),
        has_clocks=True,
    ),
    Mutant(
        "the log is cut too early",
        "frazil.format.repo_info:RepoInfo.with_short_log",
        "repo_before_updates=self.ops.entry(length).backup_path",
        "repo_before_updates=None",
        ("ops-log",),
        config="short-log",
    ),
    Mutant(
        "a collection stores no list",
        "frazil.repository.catalog.collection_guard:CollectionRecord.with_list",
        "np.ascontiguousarray(garbage).tobytes()",
        "b''",
        ("content", "verify", "leases"),
        _COLLECTING,
    ),
    Mutant(
        "a commit does not look for its files",
        f"{_GUARD}:is_uncollected",
        "if not all(exists):",
        "if False:",
        ("content", "verify"),
        _COLLECTING,
        seed=3,
    ),
    Mutant(
        "a commit ignores the lists of collections",
        f"{_GUARD}:is_uncollected",
        "if any(np.isin(ids, id_keys(garbage)).any() for garbage in running):",
        "if False:",
        ("content", "verify"),
        _COLLECTING,
    ),
    Mutant(
        "a commit does not see a collection in the log",
        f"{_GUARD}:has_collected",
        "if (newer == UpdateKind.GC_RAN).any():",
        "if False:",
        ("content", "verify"),
        _COLLECTING,
        seed=3,
    ),
    Mutant(
        "a collection does not look again",
        f"{_COLLECTION}:CollectionChange.__call__",
        "if not among(after.table.ids(), self.live.snapshots).all():",
        "if False:",
        ("content", "verify"),
        _COLLECTING,
        seed=2,
    ),
    Mutant(
        "a collection deletes living chunks",
        f"{_COLLECTION}:garbage",
        "~live.chunks.rows()",
        "live.chunks.rows()",
        ("content", "verify"),
        _COLLECTING,
    ),
    Mutant(
        "leases are ignored",
        "frazil.repository.catalog.leases:LeaseLimit.refresh",
        "for lease in in_force(self.storage, self.now):",
        "for lease in ():",
        ("leases",),
        ("fork", "fork", "collect"),
    ),
    Mutant(
        "a lease has no age",
        "frazil.repository.catalog.leases:leases",
        'marker.modified - max(0, marker.number("age")) - ROUNDING',
        'marker.number("age") + 2 * marker.modified',
        ("leases",),
        ("fork", "collect", "collect"),
        seed=29,
    ),
    Mutant(
        "a lease ends by another clock",
        "frazil.repository.catalog.leases:leases",
        'max(-_LONGEST_US, min(marker.number("left"), _LONGEST_US))',
        "-_LONGEST_US",
        ("leases",),
        ("fork", "collect", "collect"),
        seed=3,
    ),
    Mutant(
        "a rebase ignores conflicts",
        "frazil.repository.session.rebase:_rebase_over",
        "if len(decided) < len(conflicts):",
        "if False:",
        ("conflicts",),
        ("commit",),
        seed=1,
    ),
    Mutant(
        "a commit does not wait for its packs",
        "frazil.repository.session.commit_files:Uploads.confirm",
        "self._flush.confirm()",
        "pass",
        ("content", "verify"),
        ("commit",),
        config="packs",
    ),
    Mutant(
        "a commit does not wait for its files",
        "frazil.repository.session.commit_files:Uploads.confirm",
        "running.result()",
        "pass",
        ("content", "verify", "honest-errors"),
        ("commit", "read"),
    ),
    Mutant(
        "a fork is pickled before its packs are stored",
        "frazil.repository.session.workspace:Workspace.__reduce__",
        "self.writer.flush()",
        "pass",
        ("content", "verify"),
        ("fork",),
        config="packs",
    ),
    Mutant(
        "a handle reads from its cache",
        "frazil.repository.catalog.catalog:CatalogV2.repo_info",
        "info = open_current_repo_info(self.storage, self.assets.repo_info_cache)",
        "last = self.assets.repo_info_cache._last; "
        "info = last[1] if last else open_current_repo_info(self.storage, self.assets.repo_info_cache)",
        ("recent",),
        ("read", "read", "commit"),
        seed=1,
    ),
    Mutant(
        "an amended version has the wrong parent",
        "frazil.repository.session.commit:_commit_change",
        "before.parent if kind.replaces_parent else parent,",
        "parent,",
        ("refs", "content"),
        ("commit", "amend"),
    ),
    Mutant(
        "a reset does not compare",
        "frazil.repository.catalog.repo_changes:reset_branch",
        "if tip != expected:",
        "if False:",
        ("refs",),
        ("commit", "reset_branch", "reset_branch"),
        seed=12,
    ),
    Mutant(
        "ids are not random",
        "frazil.repository.ids:new_object_id",
        "host.random_bytes(OBJECT_ID_BYTES)",
        "bytes(OBJECT_ID_BYTES)",
        ("immutable", "honest-errors"),
    ),
    Mutant(
        "a repair takes an outage for damage",
        "frazil.maintenance.repair.copies:FileSearch.steps",
        'if each.check == "unavailable"',
        "if False",
        ("repair",),
        ("commit", "repair", "repair"),
        fault_rate=0.02,
        fault_kinds=frozenset({Fault.LOST, Fault.THROTTLED}),
        seed=6,
    ),
    Mutant(
        "a repair copies nothing",
        "frazil.maintenance.repair.copies:CopyFiles.perform",
        "map_bounded(Purpose.FILE_COPIES, copy_file, list(self.origins))",
        "pass",
        ("repair", "verify"),
        ("commit", "lose_file"),
    ),
    Mutant(
        "a job looks for its commit in the history alone",
        "frazil.jobs.job_history:_given_state",
        "next(iter(_removed_commits(job.target, tip, lambda entry: entry.id == id_)), None)",
        "None",
        ("exactly-once",),
        ("job", "job", "squash", "squash"),
        seed=1,
    ),
    Mutant(
        "version 1: a ref is written without a condition",
        "frazil.repository.catalog.catalog_v1:CatalogV1._write_file",
        "self.storage.put(key, data, condition)",
        "self.storage.put(key, data)",
        ("exactly-once", "content"),
        ("commit",),
        spec_version=1,
    ),
)
