"""The plan of a repair: rounds of steps on an overlay, until a verification finds nothing to repair.

Damaged metadata hide damage of the files that they refer to. So each round verifies the overlay again, with
the repaired files of the rounds before.

A file that the storage does not return may be good. The plan leaves it as it is, and its finding remains.
Then the plan has no lost chunks and no orphans, because the file may refer to others. An error of the storage
that leaves no finding ends the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frazil.errors import IcechunkError
from frazil.maintenance.repair.files import FileSearch
from frazil.maintenance.repair.lost import lost_chunks
from frazil.maintenance.repair.lost_commits import lost_commits
from frazil.maintenance.repair.orphans import orphans_step
from frazil.maintenance.repair.overlay import Overlay
from frazil.maintenance.repair.quarantine import Quarantine
from frazil.maintenance.repair.refs import is_version_1, ref_steps
from frazil.maintenance.repair.relisting import relist_steps
from frazil.maintenance.repair.repair_plan import ChunkSource, DetachedSnapshot, LostChoice, RepairPlan
from frazil.maintenance.repair.repo_file import require_copies, restore_step
from frazil.maintenance.repair.source_chunks import source_steps
from frazil.maintenance.repair.steps import Site, Step
from frazil.maintenance.verification import plan
from frazil.maintenance.verification.findings import Finding, VerifyLevel
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage

#: Each round repairs a kind of files that others refer to: repo, snapshots, manifests, chunks. One more
#: round is for each copy that turns out to be damaged.
_ROUNDS: Final = 16


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """What to repair, and from what.

    ``open_context`` opens the repository in a storage. ``orphans_before`` is in microseconds since 1970; None
    leaves orphans alone.
    """

    storage: Storage
    open_context: Callable[[Storage], Context]
    copies: Sequence[Storage] = ()
    level: VerifyLevel = "exists"
    lost: LostChoice = "keep"
    orphans_before: int | None = None
    sources: Sequence[ChunkSource] = ()


def repair_plan(request: RepairRequest) -> RepairPlan:
    """Return the plan of a repair. It changes no file."""
    require_copies(request.storage, request.copies)
    site = Site(Overlay(request.storage), Quarantine.new(), request.open_context)
    steps, detached = _first_steps(site, request)
    damage = _damage(site, request)
    search = FileSearch(request.storage, request.copies)
    for _ in range(_ROUNDS):
        new = search.steps(site, damage.findings)
        if not new:
            break
        _perform(new, site)
        steps += new
        damage = _damage(site, request)
    may_be_good = any(each.check == "unavailable" for each in damage.findings)
    lost = [] if may_be_good else lost_chunks(site.context, damage.findings, damage.paths)
    if lost and request.sources and (chunks := list(source_steps(site, request.sources, lost))):
        _perform(chunks, site)
        steps += chunks
        damage = _damage(site, request)
        lost = lost_chunks(site.context, damage.findings, damage.paths)
    steps += lost_commits(site, request.lost, lost)
    steps += [] if may_be_good else _orphans(site.context, request)
    return RepairPlan(
        request.storage.label(),
        tuple(step.describe() for step in steps),
        tuple(lost),
        detached,
        damage.findings,
        perform=_Application(request.storage, request.open_context, tuple(steps)),
    )


def _first_steps(site: Site, request: RepairRequest) -> tuple[list[Step], tuple[DetachedSnapshot, ...]]:
    """Make the steps for the files that name all versions: ``repo``, or the refs of spec version 1."""
    if is_version_1(request.storage, request.copies):
        refs = ref_steps(request.storage, request.copies)
        _perform(refs, site)
        return refs, ()
    restore = restore_step(request.storage, request.copies)
    if restore is None:
        return [], ()
    restore.perform(site)
    relists, detached = relist_steps(site, restore.state.info)
    return [restore, *relists], detached


@dataclass(frozen=True, slots=True)
class _Damage:
    """The damage that a verification finds, and the paths of the arrays in it."""

    findings: tuple[Finding, ...]
    paths: Mapping[bytes, str]


def _damage(site: Site, request: RepairRequest) -> _Damage:
    report = plan.verify(site.context, plan.Request(request.level, plan.run_locally(site.context)))
    return _Damage(report.problems, report.paths)


def _orphans(context: Context, request: RepairRequest) -> list[Step]:
    if request.orphans_before is None:
        return []
    try:
        step = orphans_step(context, request.orphans_before)
    except IcechunkError:  # a damaged file hides the files that it needs
        return []
    return [] if step is None else [step]


def _perform(steps: Iterable[Step], site: Site) -> None:
    for step in steps:
        step.perform(site)


@dataclass(frozen=True, slots=True)
class _Application:
    """Makes the steps of a plan in the storage."""

    storage: Storage
    open_context: Callable[[Storage], Context]
    steps: tuple[Step, ...]

    def __call__(self, metadata: Mapping[str, Any]) -> str:
        """Make the steps, and return the prefix of the files that were put aside."""
        quarantine = Quarantine.new()
        _perform(self.steps, Site(self.storage, quarantine, self.open_context, metadata))
        return quarantine.prefix
