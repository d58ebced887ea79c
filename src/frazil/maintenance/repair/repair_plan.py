"""The plan of a repair, and the report of a restoration, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, cast, get_args

import numpy as np

from frazil.arguments import require_choice
from frazil.display import Record, Shown, counted
from frazil.errors import SessionStateError
from frazil.format.columns import U32, U64
from frazil.maintenance.plan import plain
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.version_info import SnapshotInfo

#: What a repair does at the tips of branches with lost chunks. See ``Repository.upkeep.repair``.
type LostChoice = Literal["keep", "fill", "previous"]
#: How certain a step is. ``proved``: an id, a hash or a checksum in the content proves the step.
#: ``consistent``: all files of the repository agree with the step, but they do not prove it.
type Certainty = Literal["proved", "consistent"]

_SHOWN = 20


def lost_choice(choice: object) -> LostChoice:
    """Check the argument ``lost`` of a repair."""
    require_choice("lost", choice, get_args(LostChoice.__value__))
    return cast("LostChoice", choice)


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One step of a repair. It is atomic for each of its files, and can be repeated.

    Attributes:
        action: ``restore`` writes the file ``repo`` from a backup. ``relist`` puts a snapshot back on its
            branch. ``copy`` writes files from another place. ``rebuild`` writes a file from the content of
            other files. ``commit`` makes a commit without lost chunks, or without keys that are no chunks.
        keys: The keys of the files that the step writes.
        source: Where the content comes from.
        why: The reason of the step.
        certainty: ``proved`` or ``consistent``.
    """

    action: str
    keys: tuple[str, ...]
    source: str
    why: str
    certainty: Certainty

    def __str__(self) -> str:
        more = f" and {len(self.keys) - 1:,} more" if len(self.keys) > 1 else ""
        return f"{self.action} {self.keys[0]}{more}, from {self.source} ({self.certainty}: {self.why})"


@dataclass(frozen=True, slots=True, eq=False)
class LostChunks:
    """Chunks of one array in one chunk file, for which no copy was found.

    Attributes:
        key: The key of the chunk file.
        path: The path of the array. None if no readable version has the array.
        node: The id of the array.
        coordinates: The coordinates of the chunks, uint32 of shape (k, ndim).
        versions: The ids of the versions that need the chunks, newest first.
        previous: For each chunk, the id of the newest version that has other, readable data for it. None if
            there is no such version.
        branches: For each chunk, the branches whose tip needs it. A tip that cannot be read does not count.
        offsets: The positions of the chunks in the chunk file, uint64 of shape (k,).
    """

    key: str
    path: str | None
    node: bytes
    coordinates: U32
    versions: tuple[str, ...]
    previous: tuple[str | None, ...]
    branches: tuple[tuple[str, ...], ...]
    offsets: U64


@dataclass(frozen=True, slots=True)
class DetachedSnapshot:
    """A snapshot that the restored file ``repo`` does not list, and whose branch is not certain.

    Attributes:
        id: The id of the snapshot.
        message: The message of the commit.
        written_at: The time of the commit.
        branches: The branches that it may belong to: its log fits the tip of each. Empty if it fits no tip.
    """

    id: str
    message: str
    written_at: datetime
    branches: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"of {' or '.join(self.branches)}" if self.branches else "of no branch that exists now"
        return f"{self.id} {self.written_at:%Y-%m-%d %H:%M:%S} {self.message!r:.60}, perhaps {where}"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RepairPlan(Record, shown_as="RepairPlan"):
    """The steps of a repair, and the damage that no step repairs.

    Attributes:
        storage: The label of the storage.
        steps: The steps, in their order.
        lost: The chunks that are lost for good.
        detached: Snapshots that the restored file ``repo`` does not list, and whose branch is not certain,
            the oldest first. ``Repository.upkeep.recover`` puts one on a branch.
        findings: The damage that remains after all steps, lost chunks included.
        quarantine: The prefix of the files that the repair puts aside. None before ``apply``.

    Examples:
        >>> import frazil
        >>> storage = frazil.in_memory_storage()
        >>> repo = frazil.Repository.create(storage)
        >>> plan = frazil.Repository.upkeep.repair(storage)
        >>> plan.ok, plan.rows()
        (True, [])
    """

    storage: str
    steps: tuple[RepairStep, ...]
    lost: tuple[LostChunks, ...] = ()
    detached: tuple[DetachedSnapshot, ...] = ()
    findings: tuple[Finding, ...] = ()
    quarantine: str | None = None
    perform: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def ok(self) -> bool:
        """Whether there is nothing to do: no step, no other damage and no detached snapshot."""
        return not (self.steps or self.findings or self.detached)

    @property
    def complete(self) -> bool:
        """Whether the steps repair all damage."""
        return not self.findings

    @property
    def choices(self) -> tuple[int, int]:
        """The numbers of lost chunks at tips of branches that ``fill`` and ``previous`` replace."""
        needed = [
            previous
            for each in self.lost
            for previous, branches in zip(each.previous, each.branches, strict=True)
            if branches
        ]
        return len(needed), sum(version is not None for version in needed)

    def apply(self, *, metadata: Mapping[str, Any] | None = None) -> RepairPlan:
        """Make the steps of the plan, in their order.

        The repair puts each damaged file aside, below ``quarantine/``, before it replaces the file. An
        interrupted repair can be run again, with a new plan.

        Args:
            metadata: Metadata of the commits of the plan, such as ``{"author": "Ada"}``.

        Returns:
            The plan, with the prefix of the files that the repair has put aside.

        Raises:
            ReadOnlyError: ``read-only-storage`` if the storage is read-only.
            ConflictError: ``repo-info-updated`` if another process changed a file of the plan since the plan
                was made. The repair stops before this step. Make a new plan.
            StorageError: If the storage fails. Run the repair again.
            FormatError: If the content of a copy has changed since the plan was made.

        Examples:
            >>> import frazil
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.create_branch("dev", repo.lookup_branch("main"))
            >>> storage.delete(["repo"])
            >>> plan = frazil.Repository.upkeep.repair(storage)
            >>> [step.action for step in plan.steps]
            ['restore']
            >>> applied = plan.apply()
            >>> frazil.Repository.open(storage).upkeep.verify().ok
            True
        """
        if self.perform is None:
            raise SessionStateError("this plan has no repair to apply. Make a plan with upkeep.repair")
        return replace(self, quarantine=self.perform(metadata or {}) if self.steps else None)

    def rows(self) -> list[dict[str, Any]]:
        """Return the steps as rows, with one row for each file.

        Returns:
            Rows with the keys ``action``, ``key``, ``source``, ``why`` and ``certainty``.
        """
        names = ("source", "why", "certainty")
        return [
            {"action": each.action, "key": key, **{name: getattr(each, name) for name in names}}
            for each in self.steps
            for key in each.keys
        ]

    def lost_rows(self) -> list[dict[str, Any]]:
        """Return the lost chunks as rows, with one row for each chunk.

        Returns:
            Rows with the keys ``key``, ``path``, ``coordinates``, ``versions``, ``previous`` and
            ``branches``.

        Examples:
            >>> RepairPlan("in-memory", ()).lost_rows()
            []
        """
        return [
            {
                "key": each.key,
                "path": each.path,
                "coordinates": coordinates,
                "versions": list(each.versions),
                "previous": previous,
                "branches": list(branches),
            }
            for each in self.lost
            for coordinates, previous, branches in zip(
                each.coordinates.tolist(), each.previous, each.branches, strict=True
            )
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as values that JSON has.

        Returns:
            ``storage``, ``steps``, ``lost``, ``detached``, ``findings`` and ``quarantine``.

        Examples:
            >>> RepairPlan("in-memory", ()).as_dict()["steps"]
            []
        """
        names = ("id", "message", "written_at", "branches")
        return {
            "storage": self.storage,
            "steps": self.rows(),
            "lost": self.lost_rows(),
            "detached": [{name: plain(getattr(each, name)) for name in names} for each in self.detached],
            "findings": [{"key": each.key, "text": str(each)} for each in self.findings],
            "quarantine": self.quarantine,
        }

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "storage", self.storage
        yield "steps", _lines(list(map(str, self.steps)))
        if self.lost:
            number = int(np.sum([len(each.coordinates) for each in self.lost]))
            arrays = Counter(each.path or each.node.hex() for each in self.lost)
            fill, previous = self.choices
            end = "" if fill else ", which no readable tip of a branch needs: nothing is left to do there"
            yield "lost", f"{counted(number, 'chunk')} of {', '.join(sorted(arrays))}{end}"
            if fill and not any(each.action == "commit" for each in self.steps):
                text = f"fill: {counted(fill, 'chunk')} become missing values\n"
                text += f"previous: {counted(previous, 'chunk')} get the data of an older version"
                yield "choices for lost chunks", text
        if self.detached:
            yield "detached", _lines(list(map(str, self.detached)))
        yield "findings that remain", _lines(list(map(str, self.findings)))
        if self.quarantine is not None:
            yield "quarantine", self.quarantine


@dataclass(frozen=True, slots=True, repr=False)
class RestoreReport(Record, shown_as="RestoreReport"):
    """What the plan of ``Repository.upkeep.restore`` does.

    Attributes:
        backup: The name of the backup.
        branches: The restored branches: the id of the snapshot of each.
        tags: The restored tags: the id of the snapshot of each.
        missing: The branches and tags whose snapshot has no file.
        missing_snapshots: The ids of all snapshots without a file. They were expired, and garbage collection
            has deleted their files. A later collection raises an error as long as a branch or tag leads to
            one of them. ``Repository.expire_snapshots`` removes them from the history again.
        unlisted: The snapshots that were written after the backup, oldest first. Their ``parent_id`` is None,
            because a backup does not know their parents. ``Repository.upkeep.recover`` lists one again.
    """

    backup: str
    branches: dict[str, str]
    tags: dict[str, str]
    missing: tuple[str, ...]
    missing_snapshots: tuple[str, ...]
    unlisted: tuple[SnapshotInfo, ...]


def _lines(texts: list[str]) -> str:
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return "\n".join([*texts[:_SHOWN], *more]) or "none"
