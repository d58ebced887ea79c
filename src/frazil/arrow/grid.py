"""Arrays as one table: a row for each cell of a grid, with decoded values.

An array of fewer dimensions than the grid is repeated along the others. *Ragged data* (CF conventions,
chapter 9) is a grid of one dimension, that of the observations. A value of an instance (a profile, station or
trajectory) is repeated for its observations: by ``row_size`` (an array with the attribute
``sample_dimension``), or by an index variable (with ``instance_dimension``).

Elements become values by the CF conventions (`frazil.cf`). Integers with a fill value stay integers, because
columns have nulls. NaN stays NaN, unless it is the fill value. Times become timestamps (UTC, microseconds).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.arrays.encoding import is_extension
from frazil.cf import Coding, coding_of
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError, MissingExtraError, NodeNotFoundError
from frazil.extras import warn_of_unreadable
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at

#: How times in unusual calendars are read: as text, as the stored numbers, or not at all.
CALENDARS: Final = ("string", "raw", "error")
_USUAL: Final = frozenset({"standard", "gregorian", "proleptic_gregorian"})
TIMESTAMP: Final = pa.timestamp("us", "UTC")
#: The attribute of times whose column is not a TIMESTAMP, and its values.
COLUMN_TYPE: Final = "column_type"
TIME_TYPES: Final[dict[str, pa.DataType]] = {"date": pa.date32(), "timestamp_ntz": pa.timestamp("us")}

#: Spark has no unsigned numbers, and all engines see the same types: the next larger type holds them.
#: uint64 is checked.
_WIDER: Final[dict[str, pa.DataType]] = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.int64(),
    "float16": pa.float32(),
}
#: A complex number is a pair of numbers, because neither Arrow nor Spark has complex numbers.
COMPLEX: Final[dict[str, pa.DataType]] = {
    name: pa.struct([("real", part), ("imag", part)])
    for name, part in (("complex64", pa.float32()), ("complex128", pa.float64()))
}
_TYPES_OF_KINDS: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys("UTO", pa.string()),
    **dict.fromkeys("SV", pa.binary()),
    "M": TIMESTAMP,
    "m": pa.duration("us"),
}


@dataclass(frozen=True, slots=True)
class Values:
    """Values of a column, and a mask of the nulls; None if there are none."""

    data: NDArray[Any]
    null: NDArray[np.bool_] | None = None

    def take(self, region: tuple[Any, ...]) -> Values:
        """Return the values of a region."""
        return Values(self.data[region], None if self.null is None else self.null[region])

    def flat(self) -> Values:
        """Return the values as one dimension."""
        return Values(self.data.reshape(-1), None if self.null is None else self.null.reshape(-1))


@dataclass(frozen=True, slots=True)
class Decoder:
    """How the elements of one array become values. ``type`` is the type of the column."""

    type: pa.DataType
    coding: Coding

    @property
    def calendar(self) -> str | None:
        """The calendar of times that become text; None for other values."""
        return self.coding.calendar if pa.types.is_string(self.type) else None

    def decode(self, raw: NDArray[Any]) -> Values:
        """Return values of the elements, in their shape."""
        try:
            data, null = self.coding.decode(raw)
        except InvalidInputError as error:
            advice = "Set the option cf=false to read the numbers"
            raise misfit(f"{error.problem.rstrip('.')}. {advice}") from error
        if data.dtype.kind in "Mm":
            data = _in_microseconds(data)
        elif self.coding.calendar is not None and self.calendar is None:
            raise misfit(
                "Times must be after the calendar reform of 1582, got earlier ones. Set the option cf=false "
                "to read the numbers"
            )
        return Values(data, null)


def _in_microseconds(times: NDArray[Any]) -> NDArray[Any]:
    """Return times or durations of columns. Raises ``InvalidInputError`` if microseconds cannot hold them."""
    unit = np.dtype(f"{times.dtype.kind}8[us]")
    try:
        out = times.astype(unit)
    except OverflowError:
        out = np.full(times.shape, "NaT", unit)
    # numpy converts years and months without a check.
    is_lost = ~np.isnat(times) & (out.astype(times.dtype) != times)
    if np.can_cast(times.dtype, unit) and is_lost.any():
        times = times[is_lost]
        raise misfit(
            "Times must be within 292,000 years of 1970, which microseconds hold, got "
            f"{times[np.abs(times.view(np.int64)).argmax()]}. Name the other arrays with the option variables"
        )
    return out


def decoder(
    path: str, dtype: Any, attributes: Mapping[str, Any], *, cf: bool = True, calendars: str = "string"
) -> Decoder:
    """Return how an array's elements become values."""
    coding = coding_of(attributes if cf else {}, dtype)
    coding.require_numbers()
    if coding.calendar is not None and coding.calendar not in _USUAL:
        if calendars == "error":
            raise misfit(
                f"`{path}` must have times of a usual calendar, got the calendar {coding.calendar!r}. Set "
                "the option calendar=string or calendar=raw"
            )
        if calendars == "string":
            return Decoder(pa.string(), coding)
        coding = coding_of(attributes, dtype, times=False)
    if coding.calendar is not None and coding.is_time:
        return Decoder(TIME_TYPES.get(str(attributes.get(COLUMN_TYPE)), TIMESTAMP), coding)
    if coding.is_time:
        return Decoder(pa.duration("us"), coding)
    column_type = _type_of(coding.number_dtype)
    if column_type is None:
        raise misfit(
            f"`{path}` must have numbers, booleans, text, bytes or times, got {coding.number_dtype}. "
            "Name the other arrays with the option variables"
        )
    return Decoder(column_type, coding)


def _type_of(dtype: np.dtype[Any]) -> pa.DataType | None:
    """Return the type of a column for elements; None if no column can hold them."""
    if dtype.kind == "V" and dtype.names is not None:
        return None
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return _WIDER.get(dtype.name) or pa.from_numpy_dtype(dtype.newbyteorder("="))
    if dtype.kind == "c":
        return COMPLEX.get(dtype.name)
    return _TYPES_OF_KINDS.get(dtype.kind)


def is_number(column: pa.DataType) -> bool:
    """Return whether a column has numbers."""
    return bool(pa.types.is_integer(column) or pa.types.is_floating(column))


def dims_of(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions of an array."""
    names = getattr(array.metadata, "dimension_names", None) or (None,) * array.ndim
    return tuple(each or f"dim_{axis}" for axis, each in enumerate(names))


def as_texts(data: NDArray[Any]) -> NDArray[Any]:
    """Return objects of cftime as texts, None as None; other values unchanged."""
    flat = data.reshape(-1)
    if data.dtype.kind != "O" or not any(hasattr(each, "calendar") for each in flat):
        return data
    texts = np.array([None if each is None else each.isoformat(" ") for each in flat.tolist()], object)
    return texts.reshape(data.shape)


def to_arrow(values: Values, column: pa.DataType) -> pa.Array:
    """Return an Arrow array of values of one dimension. Plain types without nulls are not copied."""
    data, null = values.data, values.null
    kind = data.dtype.kind
    if column == pa.date32():
        days = np.ascontiguousarray(data).astype("M8[D]")
        has_time = (days != data) & ~np.isnat(data)
        if has_time.any():
            raise misfit(f"Times of a column of dates must be at midnight, got {data[has_time][0]}")
        return pa.array(days.view(np.int64).astype(np.int32), pa.int32(), mask=null).view(column)
    if kind in "Mm":
        return pa.array(np.ascontiguousarray(data).view(np.int64), pa.int64(), mask=null).view(column)
    if kind in "UTO":
        return pa.array(as_texts(data).astype(object), pa.string(), mask=null, from_pandas=False)
    if kind in "SV":
        return pa.array(data.tolist(), pa.binary(), mask=null)
    if kind == "c":
        parts = [np.ascontiguousarray(part, part.dtype.newbyteorder("=")) for part in (data.real, data.imag)]
        is_null = None if null is None else pa.array(null)
        return pa.StructArray.from_arrays(list(map(pa.array, parts)), fields=list(column), mask=is_null)
    is_large = column == pa.int64() and data.dtype == np.uint64
    if is_large and data.size and int(data.max()) > np.iinfo(np.int64).max:
        raise misfit(f"Numbers must be below 2**63, the largest integer of a column, got {int(data.max())}")
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    if kind in "uf" and data.dtype.name not in ("float32", "float64"):
        data = data.astype(column.to_pandas_dtype())
    return pa.array(np.ascontiguousarray(data), column, mask=null, from_pandas=False)


@dataclass(frozen=True, slots=True)
class Instances:
    """The array with the number of observations of each instance, or the instance of each one."""

    path: str
    by_size: bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. Without a ``path`` it is the number of the cell along a dimension.

    ``axes`` are its dimensions, numbered as in the grid; ``chunks`` have elements, those of shards if any.
    Conditions choose rows by a column that is a key. Values of ``instances`` are repeated for observations.
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
        """The Arrow type of the values."""
        return self.decoder.type


@dataclass(frozen=True, slots=True)
class Grid:
    """The table: dimensions, their sizes, all columns in order, and the shape of a block in elements."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    columns: tuple[Column, ...]
    block: tuple[int, ...]

    def column(self, name: str) -> Column:
        """Return a column by its name, in upper or lower case if only one column fits."""
        exact = [each for each in self.columns if each.name == name]
        loose = exact or [each for each in self.columns if each.name.lower() == name.lower()]
        if len(loose) != 1:
            raise InvalidInputError(
                f"A column must be one of {', '.join(each.name for each in self.columns)}, got {name!r}"
                f"{suggest(name, [each.name for each in self.columns])}",
                ErrorKind.NODE_NOT_FOUND,
            )
        return loose[0]

    def schema(self, names: Iterable[str] | None = None) -> pa.Schema:
        """Return the columns of these names as an Arrow schema; by default all columns."""
        chosen = self.columns if names is None else map(self.column, names)
        return pa.schema([pa.field(each.name, each.type) for each in chosen])


@dataclass(frozen=True, slots=True)
class Selection:
    """Which arrays are a table, and how their elements are read.

    Attributes:
        group: The path of the group.
        variables: The names of the arrays. The default, ``()``, is the arrays that share the dimensions of
            the array with the most dimensions.
        cf: Whether the CF conventions are applied: fill values, packed data, times.
        calendars: How times of unusual calendars are read: ``"string"``, ``"raw"`` (the stored numbers) or
            ``"error"``.
        block_rows: About how many rows one read takes, at least a chunk.
    """

    group: str = "/"
    variables: tuple[str, ...] = ()
    cf: bool = True
    calendars: str = "string"
    block_rows: int = 1 << 16


@dataclass(frozen=True, slots=True)
class _GridArray:
    name: str
    path: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _RaggedData:
    """Ragged data: the dimension of the observations (``sample``), and that of the instances."""

    instances: Instances
    sample: str
    instance: str


def grid_of(session: Session, selection: Selection) -> Grid:
    """Return the table of a group's arrays.

    Without named variables, it has those that share the dimensions of the array with the most dimensions.
    """
    group = "/" + selection.group.strip("/")
    workspace = session.workspace
    if group != "/" and workspace.require_node(group).array is not None:
        raise InvalidInputError(f"`{group}` must be a group, got an array", ErrorKind.NOT_A_GROUP)
    arrays, chosen = [], [each.strip("/") for each in selection.variables]
    for name in dict.fromkeys([*workspace.children(group), *chosen]):
        path = f"{group.rstrip('/')}/{name}"
        node = workspace.node(path)
        if node is not None and node.array is not None:
            try:
                array = array_at(session, path)
                named = (name, path, array.shape, dims_of(array), regular_grid(array))
                coding_of(array.attrs.asdict() if selection.cf else {}, array.dtype).require_numbers()
                if is_extension(np.dtype(array.dtype)):
                    raise misfit(f"`{path}` must have a data type of numpy, got {array.dtype}")
            except (InvalidInputError, MissingExtraError) as error:
                if name in chosen:
                    raise
                if not chosen or node.array.dimension_names == (name,):
                    warn_of_unreadable(path, error)
                continue
            arrays.append(_GridArray(*named, np.dtype(array.dtype), dict(array.attrs)))
    by_name = {each.name: each for each in arrays}
    names = list(selection.variables) or _largest(arrays)
    for name in names:
        if name not in by_name:
            raise NodeNotFoundError(f"The group `{group}` has no array `{name}`{suggest(name, by_name)}")
    ragged = _ragged(arrays)
    dims: dict[str, int] = {}
    for variable in sorted(map(by_name.__getitem__, names), key=lambda each: -len(each.dims)):
        if ragged is not None and variable.dims == (ragged.instance,):
            continue
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            if dims.setdefault(dim, size) != size:
                raise misfit(
                    f"The variables must be on one grid, got the sizes {dims[dim]} and {size} for the "
                    f"dimension `{dim}` in the group `{group}`. Name the variables of one grid with the "
                    "option variables"
                )
    if ragged is not None and not dims:
        with_sample = [each for each in arrays if ragged.sample in each.dims]
        if not with_sample:
            raise misfit(f"The dimension `{ragged.sample}` must belong to an array, got no array")
        first = with_sample[0]
        dims = {ragged.sample: first.shape[first.dims.index(ragged.sample)]}
    if ragged is not None and set(dims) != {ragged.sample}:
        ragged = None
    columns = _columns(arrays, names, dims, selection, ragged)
    blocks = _block(columns, tuple(dims.values()), selection.block_rows)
    return Grid(tuple(dims), tuple(dims.values()), columns, blocks)


def _named_by(arrays: Iterable[_GridArray], attribute: str) -> set[str]:
    """Return the names that an attribute of the arrays lists."""
    texts = (array.attributes.get(attribute) for array in arrays)
    return {name for each in texts if isinstance(each, str) for name in each.split()}


def _largest(arrays: Sequence[_GridArray]) -> list[str]:
    """Return the variables on the dimensions of the array with the most dimensions."""
    helpers = _named_by(arrays, "coordinates") | _named_by(arrays, "bounds")
    data = [
        each
        for each in arrays
        if (each.dims != (each.name,) and each.name not in helpers and _type_of(each.dtype) is not None)
        and "sample_dimension" not in each.attributes
    ] or [each for each in arrays if _type_of(each.dtype) is not None]
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
        raise misfit(
            f"The variables must be on one grid, got {shown}. Name the variables of one grid with the option "
            "variables"
        )
    dims = next(iter(grids))
    return [each.name for each in data if set(each.dims) <= dims]


def _ragged(arrays: Sequence[_GridArray]) -> _RaggedData | None:
    """Return how the data are ragged; None if they are not."""
    for each in arrays:
        sample = each.attributes.get("sample_dimension")
        if isinstance(sample, str) and len(each.dims) == 1:
            return _RaggedData(Instances(each.path, True), sample, each.dims[0])
        instance = each.attributes.get("instance_dimension")
        if isinstance(instance, str) and len(each.dims) == 1:
            return _RaggedData(Instances(each.path, False), each.dims[0], instance)
    return None


def _columns(
    arrays: Sequence[_GridArray],
    names: Sequence[str],
    dims: Mapping[str, int],
    selection: Selection,
    ragged: _RaggedData | None,
) -> tuple[Column, ...]:
    """Return the columns: dimensions first, then values of instances, coordinates and variables."""
    order = list(dims)
    by_name = {each.name: each for each in arrays}
    keys = _named_by(arrays, "coordinates") | _named_by(map(by_name.__getitem__, names), "ancillary")
    bounds = _named_by(arrays, "bounds")

    def column(array: _GridArray, is_key: bool, instances: Instances | None = None) -> Column:
        axes = (0,) if instances else tuple(order.index(dim) for dim in array.dims)
        cf, calendars = selection.cf, selection.calendars
        codec = decoder(array.path, array.dtype, array.attributes, cf=cf, calendars=calendars)
        return Column(array.name, array.path, axes, codec, array.chunks, array.shape, is_key, instances)

    def fits(array: _GridArray) -> bool:
        return all(dims.get(dim) == size for dim, size in zip(array.dims, array.shape, strict=True))

    columns: dict[str, Column] = {}
    for axis, (dim, size) in enumerate(dims.items()):
        array = by_name.get(dim)
        if array is not None and array.dims == (dim,) and fits(array):
            columns[dim] = column(array, True)
        else:
            index = decoder(dim, np.int64, {})
            columns[dim] = Column(dim, None, (axis,), index, shape=(size,), is_key=True)
    readable = [each for each in arrays if _type_of(each.dtype) is not None]
    for each in readable:
        if ragged and each.dims == (ragged.instance,) and each.path != ragged.instances.path:
            columns[each.name] = column(each, True, ragged.instances)
    for each in readable:
        is_key = each.name in keys and each.name not in names
        if is_key and each.name not in columns and each.dims and fits(each):
            columns[each.name] = column(each, True)
    for name in names:
        if name not in columns:
            columns[name] = column(by_name[name], name in keys)
    return tuple(each for each in columns.values() if each.name not in bounds or each.name in names)


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
