"""The end of a run: what was acknowledged, what is stored, and what a verification finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.simulation.model import Version
from tests.simulation.objects import Objects, Violation
from tests.simulation.storage import SimulatedStorage

import frazil
from frazil.errors import IcechunkError
from frazil.format.ids import REPO, backup_key
from frazil.format.repo_info import UpdateKind, decode_repo_info
from frazil.maintenance.verification.findings import Severity
from frazil.storage.local_commit import put_many
from frazil.storage.memory import MemoryStorage

if TYPE_CHECKING:
    from tests.simulation.run import Run

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
    put_many(storage, objects.undamaged().items())
    return storage
