"""A job does not replace coordinate variables of arrays that it does not write.

Results of several operations may be in one group, and share its coordinates. An operation may not give a
coordinate other values while an array that the operation does not replace has its dimension: that array would
get other labels, or another length than its labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.transform.array_info import ArrayInfo, array_info, open_array
from frazil.repository.session.session import Session


@dataclass(frozen=True, slots=True)
class Labels:
    """A coordinate variable among the results: ``values(source)``, or a region of the old variable."""

    old: ArrayInfo
    new: ArrayInfo
    values: Callable[[Session], NDArray[Any]] | None = None
    region: tuple[slice, ...] = ()

    def read(self, session: Session) -> NDArray[Any]:
        """Return the values that the result will have."""
        if self.values is not None:
            return self.values(session)
        return np.asarray(open_array(session, self.old.path)[self.region or ...])


def is_label(array: ArrayInfo) -> bool:
    """Return whether an array is the coordinate variable of a dimension."""
    return array.dims == (array.name,)


def refuse_relabelling(
    session: Session, source: Session, labels: Sequence[Labels], results: Sequence[ArrayInfo]
) -> None:
    """Raise ``InvalidInputError`` if a coordinate would change that other arrays of its group have.

    ``session`` writes to the target, ``source`` reads the inputs.
    """
    paths = {each.path for each in results}
    workspace = session.workspace
    neighbours: dict[str, list[ArrayInfo]] = {}  # each group is listed once
    for each in labels:
        new = each.new
        node = workspace.node(new.path)
        if node is None or node.array is None:
            continue
        if new.group not in neighbours:
            arrays = _arrays_of_group(session, new.group)
            neighbours[new.group] = [other for other in arrays if other.path not in paths]
        labelled = next((other.path for other in neighbours[new.group] if new.name in other.dims), None)
        if labelled is None or _is_same(session, array_info(session, new.path), new, each.read(source)):
            continue
        raise InvalidInputError(
            f"to must be a group whose `{new.name}` is equal to that of the result, got a group where "
            f"`{labelled}` is labelled with another `{new.name}`. Pass another group",
            ErrorKind.NOT_ALLOWED,
        )


def _arrays_of_group(session: Session, group: str) -> list[ArrayInfo]:
    nodes = session.workspace.node_table()
    below, paths = nodes.below(group), nodes.paths_list()
    rows = np.arange(len(nodes))[below][nodes.is_array[below]].tolist()
    array_paths = map(paths.__getitem__, rows)
    return [array_info(session, path) for path in array_paths if (path.rpartition("/")[0] or "/") == group]


def _is_same(session: Session, existing: ArrayInfo, new: ArrayInfo, values: NDArray[Any]) -> bool:
    if (existing.shape, existing.dims, existing.dtype) != (new.shape, new.dims, new.dtype):
        return False
    if existing.attributes != new.attributes:
        return False
    stored = np.asarray(open_array(session, existing.path)[...])
    return bool(np.array_equal(stored, values, equal_nan=values.dtype.kind in "fcmM"))
