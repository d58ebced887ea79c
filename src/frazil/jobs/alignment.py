"""Checks that xarray can open the groups that a job writes as a tree.

``xarray.open_datatree`` gives a group the dimensions and coordinates of its parent groups. It refuses a tree
in which they differ: a dimension with another size, or a coordinate with other labels. A job that writes such
a group warns before its work. Without the warning, the user would notice only when a reader fails.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import MisalignedGroupWarning
from frazil.format.columns import Ragged, distinct_rows
from frazil.format.nodes import NodeTable
from frazil.format.row_vectors import unshared
from frazil.repository.session.session import Session

_PACKAGE: Final = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True)
class Misalignment:
    """A dimension of a group that differs from the dimension of a parent group."""

    group: str
    above: str
    dim: str
    size: int
    size_above: int

    def __str__(self) -> str:
        differ = f"{self.dim} = {self.size} and {self.dim} = {self.size_above}"
        if self.size == self.size_above:
            differ = f"{differ} with other labels"
        return (
            "xarray.open_datatree cannot open the result of this job: dimensions of the group "
            f"`{self.group}` must be those of its parent group `{self.above}`, got {differ}. Store the data "
            "in another group, such as `/data`, and write results to groups beside it, or write them to "
            "another branch or repository"
        )


def warn_of_misalignment(session: Session, writes: Sequence[str]) -> None:
    """Warn of the first group that a job writes and that differs from a parent group.

    The warning is a `MisalignedGroupWarning`. ``session`` has the metadata of all arrays that the job
    creates. ``writes`` are the paths of the arrays or groups that it writes.
    """
    first = next(misalignments(session, writes), None)
    if first is not None:
        warnings.warn(str(first), MisalignedGroupWarning, skip_file_prefixes=(_PACKAGE,))


def misalignments(session: Session, writes: Sequence[str]) -> Iterator[Misalignment]:
    """Yield the dimensions because of which xarray cannot open the groups of ``writes`` as a tree.

    >>> import frazil, zarr
    >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    >>> for path, size in (("t", 4), ("half/t", 2)):
    ...     t = zarr.create_array(session.store, name=path, shape=size, dtype="f4", dimension_names=["x"])
    >>> [(each.group, each.above, each.dim) for each in misalignments(session, ["/half/t"])]
    [('/half', '/', 'x')]
    """
    nodes = session.workspace.node_table()
    tree = _Tree(session, nodes, _depths(nodes.paths))
    outputs = tree.groups_of(writes)
    for group in sorted(outputs | tree.groups_below(outputs)):
        sizes = tree.sizes(group)
        for above in _above(group) if sizes else ():
            if group not in outputs and above not in outputs:
                continue  # the job changes neither group
            common = tree.sizes(above)
            for dim in sorted(sizes.keys() & common.keys()):
                if sizes[dim] != common[dim] or tree.has_other_labels(group, above, dim):
                    yield Misalignment(group, above, dim, sizes[dim], common[dim])


@dataclass(frozen=True, slots=True)
class _Tree:
    """The groups of a session, including its changes."""

    session: Session
    nodes: NodeTable
    depths: NDArray[np.int64]
    cached_sizes: dict[str, dict[str, int]] = field(default_factory=dict)

    def groups_of(self, paths: Iterable[str]) -> set[str]:
        """Return each path that is a group, and the parent group of each other path."""
        rows = ((path, self.nodes.find_node(path)) for path in ("/" + path.strip("/") for path in paths))
        return {
            path if row >= 0 and not self.nodes.is_array[row] else path.rpartition("/")[0] or "/"
            for path, row in rows
        }

    def groups_below(self, groups: set[str]) -> set[str]:
        """Return all groups below the given groups."""
        paths, numbers = self.nodes.paths_list(), np.arange(len(self.nodes))
        rows = [numbers[below][~self.nodes.is_array[below]] for below in map(self.nodes.below, groups)]
        return {paths[row] for row in np.concatenate([*rows, numbers[:0]]).tolist()}

    def sizes(self, group: str) -> dict[str, int]:
        """Return the sizes of the dimensions of the arrays directly in a group, by name.

        If two arrays have different sizes of a dimension, the last array decides.
        """
        if group not in self.cached_sizes:
            nodes, below = self.nodes, self.nodes.below(group)
            is_direct = self.depths[below] == (group.count("/") + 1 if group != "/" else 1)
            is_wanted = is_direct & nodes.is_array[below] & nodes.named[below]
            rows = np.arange(len(nodes))[below][is_wanted]
            name_rows = nodes.dim_rows.take(rows).compact().values
            sizes = nodes.array_length.take(rows).compact().values
            has_name = name_rows >= 0
            self.cached_sizes[group] = _last_sizes(nodes.dim_names, name_rows[has_name], sizes[has_name])
        return self.cached_sizes[group]

    def has_other_labels(self, group: str, above: str, dim: str) -> bool:
        """Return whether two coordinates with the same length and units have different values.

        Returns False if tasks have not written a coordinate yet, and if the job tracks its reads, because the
        check would add reads.
        """
        if self.session.workspace.reads is not None:
            return False
        labels = [self._labels(f"{each.rstrip('/')}/{dim}", dim) for each in (group, above)]
        if labels[0] is None or labels[1] is None:
            return False
        (one, units), (other, other_units) = labels[0], labels[1]
        if units != other_units or one.dtype.kind != other.dtype.kind:
            return False
        return not np.array_equal(one, other, equal_nan=one.dtype.kind == "f")

    def _labels(self, path: str, dim: str) -> tuple[np.ndarray[Any, Any], tuple[Any, Any]] | None:
        row = self.nodes.find_node(path)
        array = self.nodes.node(row).array if row >= 0 and self.nodes.is_array[row] else None
        if array is None or array.dimension_names != (dim,):
            return None
        if len(self.session.chunk_table(path)) != array.num_chunks[0]:
            return None
        attributes = json.loads(self.nodes.node(row).user_data).get("attributes") or {}
        stored = zarr.open_array(self.session.store, path=path.strip("/"), mode="r", zarr_format=3)
        return np.asarray(stored[...]), (attributes.get("units"), attributes.get("calendar"))


def _depths(paths: Ragged) -> NDArray[np.int64]:
    """Return the number of slashes in each path."""
    slashes = np.concatenate([[0], np.cumsum(paths.values == ord("/"), dtype=np.int64)])
    depths: NDArray[np.int64] = slashes[paths.starts + paths.lengths] - slashes[paths.starts]
    return depths


def _last_sizes(names: Ragged, name_rows: NDArray[Any], sizes: NDArray[Any]) -> dict[str, int]:
    """Return sizes by name. ``name_rows`` are rows of ``names``. Of equal names, the last size is used."""
    used_rows, position = np.unique(name_rows, return_inverse=True)  # equal names share rows in a file
    texts, numbers = distinct_rows(unshared(names.take(used_rows), "dimension names"))
    numbers_reversed = numbers[position][::-1]
    distinct, first_reversed = np.unique(numbers_reversed, return_index=True)
    last = len(sizes) - 1 - first_reversed
    return dict(zip(texts.take(distinct).texts(), sizes[last].tolist(), strict=True))


def _above(group: str) -> list[str]:
    """Return the parent groups of a group, the root first.

    >>> _above("/a/b"), _above("/")
    (['/', '/a'], [])
    """
    names = [name for name in group.split("/") if name]
    return ["/" + "/".join(names[:depth]) for depth in range(len(names))]
