"""The files that no version needs: a garbage collection that moves files instead of deleting them.

The collection has all safeguards for sessions, forks, jobs and commits. Only its deletion is another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from frazil.maintenance.digests import Marks
from frazil.maintenance.garbage import Collection, collect
from frazil.maintenance.garbage_plan import Live, garbage, needed, old_files, without_dead
from frazil.maintenance.incremental_walk import IncrementalWalk
from frazil.maintenance.progress import NO_PROGRESS
from frazil.maintenance.repair.overlay import Overlay
from frazil.maintenance.repair.quarantine import QuarantiningStorage
from frazil.maintenance.repair.repair_plan import RepairStep
from frazil.maintenance.repair.steps import Site
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.leases import LeaseLimit
from frazil.repository.clock import now_us


@dataclass(frozen=True, slots=True)
class MoveOrphans:
    """Moves files to the quarantine that were modified before a time and that no version needs.

    ``older_than`` is in microseconds since 1970. ``keys`` are the files at the time of the plan.
    """

    older_than: int
    keys: tuple[str, ...]

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        return RepairStep("orphans", self.keys, "this repository", "no version needs the files", "proved")

    def perform(self, site: Site) -> None:
        """Move the files. On an overlay, nothing moves."""
        if isinstance(site.storage, Overlay):
            return
        context = site.context
        storage = QuarantiningStorage(context.storage, site.quarantine)
        collect(replace(context, storage=storage), Collection(self.older_than))


def orphans_step(context: Context, older_than: int) -> MoveOrphans | None:
    """Return the step that moves orphans, or None if there are none."""
    what = Collection(LeaseLimit(context.storage, now_us(), older_than).refresh())
    old = old_files(context.storage, what.older_than, older_than, what.listings)
    info = context.catalog.full_repo_info()
    # The stored result of earlier collections is not used, because damaged files must be noticed.
    walk = IncrementalWalk(context.storage, what.walker, NO_PROGRESS, uses_stored=False)
    live = needed(info, old, Live(Marks(old.chunks.ids)), walk)
    phases = garbage(without_dead(info, old.snapshots.ids), old, live)
    keys = tuple(key for files in phases.values() for key in files.keys())  # noqa: SIM118  # not a dict
    return MoveOrphans(older_than, keys) if keys else None
