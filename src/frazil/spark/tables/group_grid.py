"""The grid of the arrays of a group: which arrays are one table, and what its columns are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frazil.arrays.zarr_arrays import array_at
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.spark.tables.decoding import Decoder, decoder, is_readable
from frazil.spark.tables.grid import Column, Grid, Instances, Selection


@dataclass(frozen=True, slots=True)
class _Array:
    name: str
    path: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Ragged:
    """Ragged data: the dimension of the observations (``sample``), and that of the instances."""

    instances: Instances
    sample: str
    instance: str


def grid_of(session: Session, selection: Selection) -> Grid:
    """Return the table of a group's arrays.

    Without named variables, it has those that share the dimensions of the array with the most dimensions.
    Raises ``NodeNotFoundError`` for a missing group or variable, ``InvalidInputError``
    (``invalid-array-metadata``) if the variables do not fit one grid.
    """
    group = "/" + selection.group.strip("/")
    arrays = _arrays(session, group, selection.variables)
    by_name = {each.name: each for each in arrays}
    wanted = list(selection.variables) or _largest(arrays)
    for name in wanted:
        if name not in by_name:
            raise NodeNotFoundError(f"The group `{group}` has no array `{name}`{suggest(name, by_name)}")
    ragged = _ragged(arrays)
    dims: dict[str, int] = {}
    for name in sorted(wanted, key=lambda each: -len(by_name[each].dims)):
        array = by_name[name]
        if ragged is not None and array.dims == (ragged.instance,):
            continue
        for dim, size in zip(array.dims, array.shape, strict=True):
            if dims.setdefault(dim, size) != size:
                raise InvalidInputError(
                    f"The variables must be on one grid, got the sizes {dims[dim]} and {size} for the "
                    f"dimension `{dim}` in the group `{group}`. Name the variables of one grid with the "
                    "option variables",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
    if ragged is not None and ragged.sample in dims and len(dims) > 1:
        ragged = None
    if ragged is not None and not dims:
        dims = {ragged.sample: _size_of(arrays, ragged.sample)}
    if ragged is not None and set(dims) != {ragged.sample}:
        ragged = None
    columns = _ColumnMaker(arrays, wanted, dims, selection).columns(ragged)
    blocks = _block(columns, tuple(dims.values()), selection.block_rows)
    return Grid(tuple(dims), tuple(dims.values()), columns, blocks)


def _arrays(session: Session, group: str, variables: Sequence[str]) -> list[_Array]:
    workspace = session.workspace
    prefix = group.rstrip("/") + "/"
    if group != "/" and workspace.require_node(group).array is not None:
        raise InvalidInputError(f"`{group}` must be a group, got an array", ErrorKind.NOT_A_GROUP)
    names = dict.fromkeys([*workspace.children(group), *(each.strip("/") for each in variables)])
    return [
        _array(session, name, prefix + name)
        for name in names
        if (node := workspace.node(prefix + name)) is not None and node.array is not None
    ]


def _array(session: Session, name: str, path: str) -> _Array:
    array = array_at(session, path)
    names = getattr(array.metadata, "dimension_names", None) or (None,) * array.ndim
    dims = tuple(each or f"dim_{axis}" for axis, each in enumerate(names))
    return _Array(
        name, path, array.shape, dims, regular_grid(array), np.dtype(array.dtype), dict(array.attrs)
    )


def _named_by(arrays: Iterable[_Array], attribute: str) -> set[str]:
    """Return the names that an attribute of the arrays lists."""
    texts = (array.attributes.get(attribute) for array in arrays)
    return {name for each in texts if isinstance(each, str) for name in each.split()}


def _largest(arrays: Sequence[_Array]) -> list[str]:
    """Return the variables on the dimensions of the array with the most dimensions."""
    helpers = _named_by(arrays, "coordinates") | _named_by(arrays, "bounds")
    data = [
        each
        for each in arrays
        if (each.dims != (each.name,) and each.name not in helpers and is_readable(each.dtype))
        and "sample_dimension" not in each.attributes
    ] or [each for each in arrays if is_readable(each.dtype)]
    if not data:
        raise InvalidInputError(
            "The group must have arrays that can be columns, got none. Set the option group",
            ErrorKind.NODE_NOT_FOUND,
        )
    rank = max(len(each.dims) for each in data)
    grids = {frozenset(each.dims): each.dims for each in reversed(data) if len(each.dims) == rank}
    ragged = _ragged(arrays)
    if ragged is not None and rank == 1 and frozenset({ragged.sample}) in grids:
        grids = {frozenset({ragged.sample}): (ragged.sample,)}
    if len(grids) > 1:
        shown = "; ".join(
            f"({', '.join(dims)}): {', '.join(each.name for each in data if set(each.dims) == names)}"
            for names, dims in reversed(grids.items())
        )
        raise InvalidInputError(
            f"The variables must be on one grid, got {shown}. Name the variables of one grid with the option "
            "variables",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    dims = next(iter(grids))
    return [each.name for each in data if set(each.dims) <= dims]


def _ragged(arrays: Sequence[_Array]) -> _Ragged | None:
    """Return how the data are ragged; None if they are not."""
    for each in arrays:
        sample = each.attributes.get("sample_dimension")
        if isinstance(sample, str) and len(each.dims) == 1:
            return _Ragged(Instances(each.path, True), sample, each.dims[0])
        instance = each.attributes.get("instance_dimension")
        if isinstance(instance, str) and len(each.dims) == 1:
            return _Ragged(Instances(each.path, False), each.dims[0], instance)
    return None


def _size_of(arrays: Sequence[_Array], dim: str) -> int:
    for each in arrays:
        if dim in each.dims:
            return each.shape[each.dims.index(dim)]
    raise InvalidInputError(
        f"The dimension `{dim}` must belong to an array, got no array", ErrorKind.INVALID_ARRAY_METADATA
    )


@dataclass(frozen=True, slots=True)
class _ColumnMaker:
    """Makes the columns of a grid: dimensions first, then coordinates, then variables."""

    arrays: Sequence[_Array]
    wanted: Sequence[str]
    dims: Mapping[str, int]
    selection: Selection

    def columns(self, ragged: _Ragged | None) -> tuple[Column, ...]:
        ancillary = _named_by([each for each in self.arrays if each.name in self.wanted], "ancillary")
        keys = _named_by(self.arrays, "coordinates") | ancillary
        bounds = _named_by(self.arrays, "bounds")
        by_name = {each.name: each for each in self.arrays}
        columns = self._dimensions(by_name)
        if ragged is not None:
            columns |= self._instance_columns(ragged)
        for each in self.arrays:
            is_key = each.name in keys and each.name not in self.wanted
            is_new = each.name not in columns and bool(each.dims)
            if is_key and is_new and self._fits(each) and is_readable(each.dtype):
                columns[each.name] = self._column(each, True)
        for name in self.wanted:
            if name not in columns:
                columns[name] = self._column(by_name[name], name in keys)
        return tuple(each for each in columns.values() if each.name not in bounds or each.name in self.wanted)

    def _dimensions(self, by_name: Mapping[str, _Array]) -> dict[str, Column]:
        """Return a column for each dimension: its coordinate, or the number of the cell."""
        columns: dict[str, Column] = {}
        for axis, (dim, size) in enumerate(self.dims.items()):
            array = by_name.get(dim)
            if array is not None and array.dims == (dim,) and self._fits(array):
                columns[dim] = self._column(array, True)
            else:
                index = decoder(dim, np.int64, {})
                columns[dim] = Column(dim, None, (axis,), index, shape=(size,), is_key=True)
        return columns

    def _instance_columns(self, ragged: _Ragged) -> dict[str, Column]:
        """Return the columns whose values are those of instances."""
        return {
            each.name: Column(
                each.name,
                each.path,
                (0,),
                self._decoder(each),
                each.chunks,
                each.shape,
                is_key=True,
                instances=ragged.instances,
            )
            for each in self.arrays
            if each.dims == (ragged.instance,)
            and each.path != ragged.instances.path
            and is_readable(each.dtype)
        }

    def _column(self, array: _Array, is_key: bool) -> Column:
        order = list(self.dims)
        axes = tuple(order.index(dim) for dim in array.dims)
        return Column(array.name, array.path, axes, self._decoder(array), array.chunks, array.shape, is_key)

    def _decoder(self, array: _Array) -> Decoder:
        cf, calendars = self.selection.cf, self.selection.calendars
        return decoder(array.path, array.dtype, array.attributes, cf=cf, calendars=calendars)

    def _fits(self, array: _Array) -> bool:
        return all(self.dims.get(dim) == size for dim, size in zip(array.dims, array.shape, strict=True))


def _block(columns: Sequence[Column], shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the largest chunks of the variables with all dimensions.

    Several chunks are one block if they have few rows.
    """
    block = [1] * len(shape)
    whole = [each for each in columns if each.path and len(each.axes) == len(shape) and not each.instances]
    for each in whole:
        for axis, chunk in zip(each.axes, each.chunks, strict=True):
            block[axis] = max(block[axis], min(chunk, max(shape[axis], 1)))
    if not whole:
        block = [max(size, 1) for size in shape]
    for axis in reversed(range(len(shape))):
        cells = int(np.prod(block, dtype=np.int64))
        times = max(1, min(-(-rows // cells), -(-shape[axis] // block[axis])))
        block[axis] *= times
        if block[axis] < shape[axis]:
            break
    return tuple(block)
