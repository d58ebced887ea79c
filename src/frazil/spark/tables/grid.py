"""Arrays as one table: a row for each cell of a grid.

    grid       dimensions with a name and a size: those of the variables together
    column     a dimension (its coordinate, or the number of the cell), a coordinate, or a variable; an array
               of fewer dimensions is repeated along the others
    block      chunks that are read at once: those of the variable with all dimensions

*Ragged data* (CF conventions, chapter 9) is a grid of one dimension, that of the observations. What belongs
to a profile, station or trajectory is repeated for its observations: by ``row_size`` (an array with the
attribute ``sample_dimension``), or by an index variable (with ``instance_dimension``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.spark.tables.decoding import Decoder, Values, decoder, is_readable
from frazil.zarr_store.arrays import array_at


@dataclass(frozen=True, slots=True)
class Instances:
    """How observations belong to instances: ``path`` has the size of each one's run, or each one's number."""

    path: str
    by_size: bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    path         of its array; None for the number of the cell along a dimension
    axes         its dimensions, numbered as in the grid
    chunks       of the array, in elements; what is written as one where it has shards
    is_key       a coordinate: small, and what rows are looked for by
    instances    values are those of instances: repeated for their observations
    """

    name: str
    path: str | None
    axes: tuple[int, ...]
    decoder: Decoder
    chunks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    is_key: bool = False
    instances: Instances | None = None

    @property
    def type(self) -> pa.DataType:
        return self.decoder.type

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Grid:
    """The table: dimensions, their sizes, all columns in order, and the shape of a block in elements."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    columns: tuple[Column, ...]
    block: tuple[int, ...]

    def column(self, name: str) -> Column:
        """A column by its name, in any case if that is clear; ``InvalidInputError`` if there is none."""
        exact = [each for each in self.columns if each.name == name]
        loose = exact or [each for each in self.columns if each.name.lower() == name.lower()]
        if len(loose) != 1:
            raise InvalidInputError(
                f"expected a column of {', '.join(each.name for each in self.columns)}, found {name!r}"
                f"{suggest(name, [each.name for each in self.columns])}",
                ErrorKind.NODE_NOT_FOUND,
            )
        return loose[0]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type) for each in self.columns])


@dataclass(frozen=True, slots=True)
class Selection:
    """Which arrays are a table, and how their elements are read; see the options of the data source."""

    group: str = "/"
    variables: tuple[str, ...] = ()
    cf: bool = True
    calendars: str = "string"
    block_rows: int = 1 << 16


@dataclass(frozen=True, slots=True)
class _Array:
    name: str
    path: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]


def grid_of(session: Session, selection: Selection) -> Grid:
    """The table of a group's arrays.

    Without named variables: those that share the dimensions of the one with the most. Raises
    ``NodeNotFoundError`` for a group or variable that is not there, ``InvalidInputError``
    (``invalid-array-metadata``) if the variables do not fit one grid.
    """
    group = "/" + selection.group.strip("/")
    found = _arrays(session, group, selection.variables)
    by_name = {each.name: each for each in found}
    wanted = list(selection.variables) or _largest(found)
    for name in wanted:
        if name not in by_name:
            raise NodeNotFoundError(f"no array `{name}` in the group `{group}`{suggest(name, by_name)}")
    ragged = _ragged(found)
    dims: dict[str, int] = {}
    for name in sorted(wanted, key=lambda each: -len(by_name[each].dims)):
        array = by_name[name]
        if ragged is not None and array.dims == (ragged[2],):
            continue
        for dim, size in zip(array.dims, array.shape, strict=True):
            if dims.setdefault(dim, size) != size:
                raise InvalidInputError(
                    f"expected variables on one grid, found {dims[dim]} and {size} for the dimension "
                    f"`{dim}` in the group `{group}`: name variables that fit with the option variables",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
    if ragged is not None and ragged[1] in dims and len(dims) > 1:
        ragged = None
    if ragged is not None and not dims:
        dims = {ragged[1]: _size_of(found, ragged[1])}
    used = ragged is not None and set(dims) == {ragged[1]}
    columns = _columns(found, wanted, dims, selection, ragged if used else None)
    blocks = _block(columns, tuple(dims.values()), selection.block_rows)
    return Grid(tuple(dims), tuple(dims.values()), columns, blocks)


def _arrays(session: Session, group: str, variables: Sequence[str]) -> list[_Array]:
    workspace = session.workspace
    prefix = group.rstrip("/") + "/"
    if group != "/" and workspace.nodes.require_node(group).array is not None:
        raise InvalidInputError(f"expected a group at `{group}`, found an array", ErrorKind.NOT_A_GROUP)
    names = dict.fromkeys([*workspace.nodes.children(group), *(each.strip("/") for each in variables)])
    return [
        _array(session, name, prefix + name)
        for name in names
        if (node := workspace.nodes.node(prefix + name)) is not None and node.array is not None
    ]


def _array(session: Session, name: str, path: str) -> _Array:
    array = array_at(session, path)
    names = getattr(array.metadata, "dimension_names", None) or (None,) * array.ndim
    dims = tuple(each or f"dim_{axis}" for axis, each in enumerate(names))
    return _Array(
        name, path, array.shape, dims, regular_grid(array), np.dtype(array.dtype), dict(array.attrs)
    )


def _named_by(arrays: Iterable[_Array], attribute: str) -> set[str]:
    """Names in an attribute of any of them."""
    told = (array.attributes.get(attribute) for array in arrays)
    return {name for each in told if isinstance(each, str) for name in each.split()}


def _largest(found: Sequence[_Array]) -> list[str]:
    """The variables on the dimensions of the one with the most."""
    helpers = _named_by(found, "coordinates") | _named_by(found, "bounds")
    data = [
        each
        for each in found
        if (each.dims != (each.name,) and each.name not in helpers and is_readable(each.dtype))
        and "sample_dimension" not in each.attributes
    ] or [each for each in found if is_readable(each.dtype)]
    if not data:
        raise InvalidInputError(
            "expected a group with arrays to make a table of, found none: give the option group",
            ErrorKind.NODE_NOT_FOUND,
        )
    rank = max(len(each.dims) for each in data)
    grids = {frozenset(each.dims): each.dims for each in reversed(data) if len(each.dims) == rank}
    ragged = _ragged(found)
    if ragged is not None and rank == 1 and frozenset({ragged[1]}) in grids:
        grids = {frozenset({ragged[1]}): (ragged[1],)}
    if len(grids) > 1:
        shown = "; ".join(
            f"({', '.join(dims)}): {', '.join(each.name for each in data if set(each.dims) == names)}"
            for names, dims in reversed(grids.items())
        )
        raise InvalidInputError(
            f"expected variables on one grid, found {shown}: name those of one with the option variables",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    dims = next(iter(grids))
    return [each.name for each in data if set(each.dims) <= dims]


def _ragged(found: Sequence[_Array]) -> tuple[Instances, str, str] | None:
    """How observations belong to instances, the dimension of the first and that of the second."""
    for each in found:
        sample = each.attributes.get("sample_dimension")
        if isinstance(sample, str) and len(each.dims) == 1:
            return Instances(each.path, True), sample, each.dims[0]
        instance = each.attributes.get("instance_dimension")
        if isinstance(instance, str) and len(each.dims) == 1:
            return Instances(each.path, False), each.dims[0], instance
    return None


def _size_of(found: Sequence[_Array], dim: str) -> int:
    for each in found:
        if dim in each.dims:
            return each.shape[each.dims.index(dim)]
    raise InvalidInputError(
        f"expected arrays along the dimension `{dim}`, found none", ErrorKind.INVALID_ARRAY_METADATA
    )


def _columns(
    found: Sequence[_Array],
    wanted: Sequence[str],
    dims: Mapping[str, int],
    selection: Selection,
    ragged: tuple[Instances, str, str] | None,
) -> tuple[Column, ...]:
    """Dimensions first, then coordinates, then variables."""
    order = {dim: axis for axis, dim in enumerate(dims)}
    keys = _named_by(found, "coordinates") | _named_by(
        [each for each in found if each.name in wanted], "ancillary"
    )
    bounds = _named_by(found, "bounds")

    def fits(each: _Array) -> bool:
        return all(dims.get(dim) == size for dim, size in zip(each.dims, each.shape, strict=True))

    def column(each: _Array, is_key: bool) -> Column:
        how = decoder(each.path, each.dtype, each.attributes, cf=selection.cf, calendars=selection.calendars)
        axes = tuple(order[dim] for dim in each.dims)
        return Column(each.name, each.path, axes, how, each.chunks, each.shape, is_key)

    out: dict[str, Column] = {}
    by_name = {each.name: each for each in found}
    for dim, axis in order.items():
        array = by_name.get(dim)
        if array is not None and array.dims == (dim,) and fits(array):
            out[dim] = column(array, True)
        else:
            out[dim] = Column(dim, None, (axis,), Decoder(pa.int64()), shape=(dims[dim],), is_key=True)
    if ragged is not None:
        how, _, instance = ragged
        for each in found:
            if each.dims == (instance,) and each.path != how.path and is_readable(each.dtype):
                values = decoder(
                    each.path, each.dtype, each.attributes, cf=selection.cf, calendars=selection.calendars
                )
                out[each.name] = Column(
                    each.name, each.path, (0,), values, each.chunks, each.shape, True, how
                )
    for each in found:
        is_key = each.name in keys and each.name not in wanted
        if is_key and each.name not in out and each.dims and fits(each) and is_readable(each.dtype):
            out[each.name] = column(each, True)
    for name in wanted:
        if name not in out:
            out[name] = column(by_name[name], name in keys)
    return tuple(each for each in out.values() if each.name not in bounds or each.name in wanted)


def _block(columns: Sequence[Column], shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """The largest chunks of the variables with all dimensions; several where they have few rows."""
    block = [1] * len(shape)
    whole = [each for each in columns if each.path and len(each.axes) == len(shape) and not each.instances]
    for each in whole:
        for axis, chunk in zip(each.axes, each.chunks, strict=True):
            block[axis] = max(block[axis], min(chunk, max(shape[axis], 1)))
    if not whole:
        block = [max(size, 1) for size in shape]
    for axis in reversed(range(len(shape))):
        have = int(np.prod(block, dtype=np.int64))
        times = max(1, min(-(-rows // have), -(-shape[axis] // block[axis])))
        block[axis] *= times
        if block[axis] < shape[axis]:
            break
    return tuple(block)


def index_values(start: int, stop: int) -> Values:
    """Numbers of cells along a dimension."""
    numbers: NDArray[np.int64] = np.arange(start, stop, dtype=np.int64)
    return Values(numbers)
