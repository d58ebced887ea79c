"""The plan of a repair: rounds of steps on an overlay, until a verification finds nothing to repair.

Damaged metadata hide damage of the files that they refer to. So each round verifies the overlay again, with
the repaired files of the rounds before. The plan is a rehearsal with the code of the repair itself.

A file that the storage does not return may be good. The plan leaves it as it is, and its finding remains.
Then the plan has no lost chunks and no orphans, because the file may refer to others. An error of the storage
that leaves no finding ends the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.errors import IcechunkError
from frazil.maintenance.collection import Collection, unused_files
from frazil.maintenance.repair.copies import FileSearch, RepairContext, Step
from frazil.maintenance.repair.lost_chunks import lost_chunks, lost_commits
from frazil.maintenance.repair.repair_plan import DetachedSnapshot, LostChoice, RepairPlan, RepairStep
from frazil.maintenance.repair.repo_file import (
    config_steps,
    is_version_1,
    relist_steps,
    require_copies,
    restore_step,
)
from frazil.maintenance.repair.storages import Overlay, QuarantiningStorage
from frazil.maintenance.verification.findings import VerificationReport, VerifyLevel
from frazil.maintenance.verification.plan import verify
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage

#: Each round repairs a kind of files that others refer to: repo, snapshots, manifests, chunks. One more
#: round is for each copy that turns out to be damaged.
_ROUNDS: Final = 16


def repair_plan(
    storage: Storage,
    open_context: Callable[[Storage], Context],
    *,
    copies: Sequence[Storage] = (),
    level: VerifyLevel = "exists",
    lost: LostChoice = "keep",
    orphans_before: int | None = None,
) -> RepairPlan:
    """Return the plan of a repair. It changes no file.

    ``open_context`` opens the repository in a storage. ``orphans_before`` is in microseconds since 1970; None
    leaves orphans alone.
    """
    require_copies(storage, copies)
    repair = RepairContext(Overlay(storage), open_context)
    steps: list[Step] = []
    detached: tuple[DetachedSnapshot, ...] = ()
    if is_version_1(storage, copies):
        for copied in config_steps(storage, copies):
            copied.perform(repair)
            steps.append(copied)
    elif (restore := restore_step(storage, copies)) is not None:
        restore.perform(repair)
        relists, detached = relist_steps(repair, restore.state.info)
        steps += [restore, *relists]
    search = FileSearch(storage, copies)
    damage = verify(repair.context, level)
    for _ in range(_ROUNDS):
        new = search.steps(repair, damage.problems)
        if not new:
            break
        for step in new:
            step.perform(repair)
        steps += new
        damage = verify(repair.context, level)
    chunks = []
    if not _may_be_good(damage):
        chunks = lost_chunks(repair.context, damage.problems, damage.paths)
        steps += lost_commits(repair, lost, chunks)
        steps += [] if orphans_before is None else _orphans(repair.context, orphans_before)
    return RepairPlan(
        storage.label(),
        tuple(step.describe() for step in steps),
        tuple(chunks),
        detached,
        damage.problems,
        perform=_Application(storage, open_context, tuple(steps)),
    )


def _may_be_good(damage: VerificationReport) -> bool:
    return any(each.check == "unavailable" for each in damage.problems)


@dataclass(frozen=True, slots=True)
class _Application:
    """Makes the steps of a plan in the storage."""

    storage: Storage
    open_context: Callable[[Storage], Context]
    steps: tuple[Step, ...]

    def __call__(self, metadata: Mapping[str, Any]) -> str:
        """Make the steps, and return the prefix of the files that were put aside."""
        repair = RepairContext(self.storage, self.open_context, metadata)
        for step in self.steps:
            step.perform(repair)
        return repair.quarantine.prefix


@dataclass(frozen=True, slots=True)
class MoveOrphans:
    """Moves files to the quarantine that were modified before a time and that no version needs.

    This is a garbage collection, with all its safeguards for sessions, forks, jobs and commits. Only its
    deletion is another one. ``keys`` are the files at the time of the plan.
    """

    older_than: int
    keys: tuple[str, ...]

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        return RepairStep("orphans", self.keys, "this repository", "no version needs the files", "proved")

    def perform(self, repair: RepairContext) -> None:
        """Move the files. On an overlay, nothing moves."""
        if not isinstance(repair.storage, Overlay):
            context = repair.context
            storage = QuarantiningStorage(context.storage, repair.quarantine)
            Collection(replace(context, storage=storage), self.older_than).collect()


def _orphans(context: Context, older_than: int) -> list[Step]:
    """Return the step that moves orphans, if there are any."""
    try:
        phases = unused_files(context, older_than)
    except IcechunkError:  # a damaged file hides the files that it needs
        return []
    keys = tuple(key for files in phases.values() for key in files.keys())  # noqa: SIM118  # not a dict
    return [MoveOrphans(older_than, keys)] if keys else []
