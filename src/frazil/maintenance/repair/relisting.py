"""Snapshots that are younger than the restored file ``repo``, and the branch of each.

A snapshot goes back to a branch only if one explanation is left: its transaction log and its references fit
the tip of this branch, and no other version near a tip, and no other snapshot fits the same tip. Otherwise it
stays detached. The files of a flushed session, or of a commit that was refused, look the same as those of a
commit. So the step is ``consistent``, and not ``proved``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from frazil.errors import AlreadyExistsError, IcechunkError
from frazil.format.ids import id_from_text, id_list, id_to_text
from frazil.format.keys import snapshot_key
from frazil.format.repo_info import RepoInfo
from frazil.maintenance.repair.repair_plan import DetachedSnapshot, RepairStep
from frazil.maintenance.repair.steps import Site
from frazil.maintenance.restoration import unlisted_snapshots
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.session.snapshot_recovery import fitting_parents, relist_snapshot
from frazil.storage.outages import is_outage, skip_damage

#: The number of ancestors of each tip that a snapshot must not fit. A commit that was refused started from
#: one of them.
_ANCESTORS: Final = 8


@dataclass(frozen=True, slots=True)
class Relist:
    """Lists a snapshot again, and moves a branch from its parent to it."""

    id: str
    branch: str
    parent: str
    message: str

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        why = (
            f"its log and its references fit the tip {self.parent} of branch `{self.branch}`, and no other "
            f"version; message {self.message!r:.60}"
        )
        key = snapshot_key(id_from_text(self.id))
        return RepairStep("relist", (key,), "the snapshot itself", why, "consistent")

    def perform(self, site: Site) -> None:
        """List the snapshot, unless it is listed."""
        with suppress(AlreadyExistsError):
            relist_snapshot(site.context, self.id, self.branch, self.parent)


def relist_steps(site: Site, backup: RepoInfo) -> tuple[list[Relist], tuple[DetachedSnapshot, ...]]:
    """Make the steps that list younger snapshots again, on an overlay."""
    context = site.context
    waiting = list(unlisted_snapshots(site.storage, backup))
    steps: list[Relist] = []
    while (step := _next_step(context, waiting)) is not None:
        try:
            step.perform(site)
        except IcechunkError as error:  # a file is missing, or a collection runs: the snapshot stays detached
            if is_outage(error):
                raise
            break
        steps.append(step)
        waiting = [each for each in waiting if each.id != step.id]
    return steps, tuple(_detached(context, waiting))


def _detached(context: Context, waiting: Sequence[SnapshotInfo]) -> Iterator[DetachedSnapshot]:
    """Yield the snapshots with the branches that each may belong to. The oldest snapshot must be first."""
    branches: dict[bytes, list[str]] = {}
    for name, tip in sorted(context.catalog.full_repo_info().branches.items()):
        branches.setdefault(tip, []).append(name)
    for each in waiting:
        id_ = id_from_text(each.id)
        names = sorted(
            {name for parent in _fitting(context, list(branches), id_) for name in branches[parent]}
        )
        branches[id_] = names  # the next snapshot may be its child
        yield DetachedSnapshot(each.id, each.message, each.written_at, tuple(names))


def _next_step(context: Context, waiting: Sequence[SnapshotInfo]) -> Relist | None:
    """Return the step for the oldest snapshot with exactly one explanation."""
    if not waiting:
        return None
    info = context.catalog.full_repo_info()
    others = [id_from_text(each.id) for each in waiting]
    near = _near_tips(info)
    fits = {each.id: _fitting(context, [*near, *others], id_from_text(each.id)) for each in waiting}
    for each in waiting:
        parents = fits[each.id]
        rivals = [parent for id_, others in fits.items() if id_ != each.id for parent in others]
        branches = [name for name, tip in info.branches.items() if [tip] == parents]
        if len(branches) == 1 and parents[0] not in rivals:
            return Relist(each.id, branches[0], id_to_text(parents[0]), each.message)
    return None


def _near_tips(info: RepoInfo) -> list[bytes]:
    """Return the tips of branches and tags, with some of the ancestors of each."""
    near: dict[bytes, None] = {}
    ids = id_list(info.table.ids())
    for tip in dict.fromkeys([*info.branches.values(), *info.tags.values()]):
        rows = info.table.chain(info.table.find_snapshot(tip))[: _ANCESTORS + 1].tolist()
        near.update(dict.fromkeys(ids[row] for row in rows))
    return list(near)


def _fitting(context: Context, candidates: Sequence[bytes], id_: bytes) -> list[bytes]:
    parents: list[bytes] = []
    for candidate in candidates:
        if candidate != id_:
            with skip_damage():  # a damaged candidate is no explanation
                parents += fitting_parents(context, [candidate], id_)
    return parents
