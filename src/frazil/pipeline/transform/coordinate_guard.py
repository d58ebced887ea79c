"""Coordinate variables are not replaced under the arrays of others.

Results of several operations may be in one group, and share its coordinates. A coordinate that would get
other values is refused as long as an array that is not replaced with it has its dimension: that array would
have got other labels, or a length that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.transform.arrays import ArrayInfo, info, open_array
from frazil.repository.session.session import Session


@dataclass(frozen=True, slots=True)
class Labels:
    """A coordinate variable that is made: of ``values(source)``, or of a region of the old one."""

    old: ArrayInfo
    new: ArrayInfo
    values: Callable[[Session], NDArray[Any]] | None = None
    region: tuple[slice, ...] = ()

    def read(self, session: Session) -> NDArray[Any]:
        if self.values is not None:
            return self.values(session)
        return np.asarray(open_array(session, self.old.path)[self.region or ...])


def is_label(array: ArrayInfo) -> bool:
    """Whether it is the coordinate variable of a dimension."""
    return array.dims == (array.name,)


def refuse_relabelling(
    writing: Session, source: Session, labels: Sequence[Labels], made: Sequence[ArrayInfo]
) -> None:
    """Raises ``InvalidInputError`` for labels that others have and that would not be the same."""
    paths = {each.path for each in made}
    workspace = writing.workspace
    beside: dict[str, list[ArrayInfo]] = {}  # each group is listed once
    for each in labels:
        new = each.new
        node = workspace.nodes.node(new.path)
        if node is None or node.array is None:
            continue
        if new.group not in beside:
            beside[new.group] = [other for other in _arrays(writing, new.group) if other.path not in paths]
        labelled = next((other.path for other in beside[new.group] if new.name in other.dims), None)
        if labelled is None or _same(writing, info(writing, new.path), new, each.read(source)):
            continue
        raise InvalidInputError(
            f"to: expected a group where `{new.name}` is as in the result, found another one that "
            f"`{labelled}` is labelled with: give the result a group of its own",
            ErrorKind.NOT_ALLOWED,
        )


def _arrays(session: Session, group: str) -> list[ArrayInfo]:
    """The arrays of a group."""
    nodes = session.workspace.nodes.node_table()
    below, paths = nodes.below(group), nodes.paths_list()
    arrays = np.arange(len(nodes))[below][nodes.is_array[below]].tolist()
    some = map(paths.__getitem__, arrays)
    return [info(session, path) for path in some if (path.rpartition("/")[0] or "/") == group]


def _same(session: Session, there: ArrayInfo, new: ArrayInfo, values: NDArray[Any]) -> bool:
    if (there.shape, there.dims, there.dtype) != (new.shape, new.dims, new.dtype):
        return False
    if there.attributes != new.attributes:
        return False
    found = np.asarray(open_array(session, there.path)[...])
    return bool(np.array_equal(found, values, equal_nan=values.dtype.kind in "fcmM"))
