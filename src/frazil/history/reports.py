"""The public value of ``Repository.history.diff_values``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.display import Record, Shown, literal
from frazil.format.columns import I64, U32
from frazil.repository.catalog.presentation import Update


def chunk_grid(num_chunks: tuple[int, ...], index: U32, values: I64, missing: int) -> I64:
    """Return values by chunk on the chunk grid."""
    grid = np.full(num_chunks, missing, np.int64)
    rows: Any = slice(len(index))  # a scalar has one chunk, without coordinates
    if num_chunks:
        rows = np.ravel_multi_index(tuple(index.T), num_chunks)
    grid.reshape(-1)[rows] = values
    return grid


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ValueDifference(Record, shown_as="snapshots.ValueDifference"):
    """The differences in the values of an array between two versions.

    A cell has changed if its values differ. Two NaN are equal, and so are two missing values. The differences
    are "later value minus earlier value", over the changed cells that are numbers or times in both versions.
    They are NaN if there are no such cells, and for arrays of other values.

    Attributes:
        path: The path of the array in the later version.
        cells: The number of cells that both versions have.
        changed: The number of changed cells.
        mean: The mean of the differences.
        max: The largest absolute difference.
        rmse: The root of the mean of the squared differences.
        num_chunks: The number of chunks along each dimension in the later version.
        index: The coordinates of the chunks with changed cells, uint32 of shape (k, ndim).
        changed_by_chunk: The number of changed cells of these chunks, int64 (k,).
        max_by_chunk: The largest absolute difference in these chunks, float64 (k,).
        chunks_read: The number of chunks that were compared.
        units: The units of the differences: the attribute ``units`` of both versions, or for times a unit
            such as ``days``. None if there are none.
        new_cells: The number of cells that only the later version has.
        removed_cells: The number of cells that only the earlier version has.
    """

    path: str
    cells: int
    changed: int
    mean: float
    max: float
    rmse: float
    num_chunks: tuple[int, ...]
    index: U32
    changed_by_chunk: I64
    max_by_chunk: NDArray[np.float64]
    chunks_read: int
    units: str | None = None
    new_cells: int = 0
    removed_cells: int = 0

    def grid(self) -> I64:
        """Return the number of changed cells of each chunk.

        Returns:
            An int64 array with one number for each chunk of the later version.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="create") as store:
            ...     array = zarr.create_array(store, name="t", shape=(6,), chunks=(2,), dtype="i4")
            ...     array[:] = 1
            >>> repo.create_tag("v1", "main")
            >>> with repo.transaction("main", message="correct") as store:
            ...     zarr.open_array(store, path="t")[3] = 5
            >>> repo.history.diff_values("t", from_tag="v1", to_branch="main").grid().tolist()
            [0, 1, 0]
        """
        return chunk_grid(self.num_chunks, self.index, self.changed_by_chunk, 0)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        names = (
            *("path", "cells", "new_cells", "removed_cells", "changed"),
            *("mean", "max", "rmse", "units", "chunks_read"),
        )
        return ((name, literal(getattr(self, name))) for name in names)


@dataclass(frozen=True, slots=True, repr=False)
class StateChange(Record, shown_as="ops.StateChange"):
    """The change of one branch, tag, feature flag, item of metadata, of the configuration or the status.

    Attributes:
        subject: What changed, such as ``branch `main` ``.
        before: The earlier value as text: the id of a snapshot for branches and tags. None if it did not
            exist.
        after: The later value as text. None if it does not exist any more.
    """

    subject: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, repr=False)
class UndoPlan(Record, shown_as="ops.UndoPlan"):
    """The plan of an undo, a redo or a restoration (``Repository.history``). Only ``apply`` makes changes.

    Attributes:
        updates: The entries of the ops log that are undone or made again, newest first. Empty for
            ``restore_to``.
        changes: The changes of the repository.
        notes: What the user may want to know before the changes: branches and tags that are deleted,
            protections of branches that are removed or replaced, and a newer update that changed nothing.
        is_applied: Whether the changes were made. ``apply`` returns such a plan.
        perform: The function that ``apply`` calls.
    """

    updates: list[Update] = field(default_factory=list, hash=False)
    changes: list[StateChange] = field(default_factory=list, hash=False)
    notes: list[str] = field(default_factory=list, hash=False)
    is_applied: bool = False
    perform: Callable[[], object] = field(default=lambda: None, compare=False)

    def apply(self) -> UndoPlan:
        """Make exactly the changes of the plan, in one update.

        Returns:
            The same plan, with ``is_applied``.

        Raises:
            ConflictError: ``repo-info-updated`` if another update changed the same branch, tag or value since
                the plan was made. Nothing was changed.
            SessionStateError: ``cannot-undo`` if a snapshot of the changes was expired or collected since.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> plan = repo.history.undo()
            >>> plan.notes
            ['the branch `dev` is deleted']
            >>> plan.apply().is_applied
            True
        """
        self.perform()
        return replace(self, is_applied=True)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as values of JSON.

        Returns:
            A dictionary with ``updates``, ``changes``, ``notes`` and ``is_applied``.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> repo.history.undo().as_dict()["notes"]
            ['the branch `dev` is deleted']
        """
        return {
            "updates": [f"{type(each.kind).__name__} {each.updated_at.isoformat()}" for each in self.updates],
            "changes": list(map(asdict, self.changes)),
            "notes": list(self.notes),
            "is_applied": self.is_applied,
        }

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for update in self.updates:
            yield "update", repr(update.kind)
        for change in self.changes:
            yield change.subject, f"{change.before} -> {change.after}"
        for note in self.notes:
            yield "note", note
        yield "is_applied", literal(self.is_applied)
