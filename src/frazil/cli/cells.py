"""Cells of an array for people and programs: their selection, their decoded values, and a plot of them.

All commands that show or take values decode them by the CF conventions (`frazil.cf`), unless there is
``--raw``. Then values, and labels, are the stored elements. A selection names cells by index as in Python, or
by the labels of coordinates:

==============================  ======================================================================
``0,:4,::2``                    an index, or START:STOP:STEP, for each dimension
``...,-1``                      the last index of the last dimension
``time=2026-11-01T06,lat=10``   labels of coordinates; a dimension without a label is whole
``lat=10..20,time=2026-11..``   labels from a lower one to a higher one, both included
``lat~10.2,time~2026-11-01``    the label that is nearest, at most half a cell away
``lat~10.2~5,time~2026-11~6 h`` the label that is nearest, at most 5 or 6 hours away
==============================  ======================================================================

The labels of a dimension without a coordinate are its indices, as in xarray.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from frazil.cf import Coding, coding_of, geographic_kind
from frazil.cf_times import Mask, Values
from frazil.cli.arguments import key_value
from frazil.cli.command import table
from frazil.errors import IcechunkError, InvalidInputError
from frazil.extras import needs
from frazil.repository.target import parse_index
from frazil.zarr_store.arrays import array_at

if TYPE_CHECKING:
    import zarr

    from frazil.repository.session.session import Session

type Labels = dict[str, Any]
type Indices = tuple[Any, ...]

#: The usual ends of the names of bounds.
_BOUNDS: Final = ("_bnds", "_bounds", "_climatology")
_LABEL: Final = re.compile(r"([^=~]*)[=~](.*)", re.DOTALL)


class SelectionType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of a selection: a tuple of indices and slices, or labels by the names of dimensions."""

    name = "slice"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Indices | Labels:
        """Return the selection of the text; a wrong text is wrong usage."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # the default
        if "=" in value or "~" in value:
            return dict(map(_label, filter(None, value.split(","))))
        try:
            return parse_index(value)
        except InvalidInputError:
            text = f"must be indices and slices such as 0,:4,::2, or labels such as lat=10, got {value!r}"
            self.fail(text, param, ctx)


SELECTION: Final = SelectionType()


@dataclass(frozen=True, slots=True)
class Nearest:
    """The label of a coordinate that is nearest to a value, at most ``limit`` away; None is half a cell."""

    value: Any
    limit: Any = None


def _label(text: str) -> tuple[str, Any]:
    """Return the dimension and the label of ``DIM=LABEL``, ``DIM=FIRST..LAST`` or ``DIM~LABEL``."""
    parts = _LABEL.fullmatch(text)
    if parts is None:
        raise click.BadParameter(f"must be DIM=LABEL, DIM=FIRST..LAST or DIM~LABEL, got {text!r}")
    if text[parts.end(1)] == "~":
        value, *limit = parts[2].split("~", 1)
        name, label = key_value(f"{parts[1]}={value}")
        return name, Nearest(label, *(key_value(f"{name}={each}")[1] for each in limit))
    name, label = key_value(f"{parts[1]}={parts[2]}")
    first, separator, last = parts[2].partition("..")
    if not separator:
        return name, label
    ends = (key_value(f"{name}={each}")[1] if each.strip() else None for each in (first, last))
    return name, slice(*ends)


def indices_of(session: Session, path: str, selection: Indices | Labels) -> Indices:
    """Return the indices and slices of a selection."""
    if isinstance(selection, tuple):
        return selection
    with needs("a selection by labels", extra="pipeline"):
        from frazil.pipeline.transform.arrays import array_info, coordinate_of
        from frazil.pipeline.transform.labels import positions_by_label
    array = array_info(session, path)
    if unknown := sorted(set(selection).difference(filter(None, array.dims))):
        names = ", ".join(filter(None, array.dims)) or "no names"
        raise click.UsageError(f"no dimension {', '.join(unknown)} in {path}: its dimensions have {names}")
    indices: list[Any] = []
    for dim in array.dims:
        label = slice(None) if dim is None else selection.get(dim, slice(None))
        if dim is None or label == slice(None):
            indices.append(label)
        elif isinstance(label, slice) and coordinate_of(session, array, dim) is None:
            last = label.stop + 1 or None if isinstance(label.stop, int) else label.stop
            indices.append(_index(positions_by_label(session, array, dim, slice(label.start, last), None)))
        elif isinstance(label, Nearest):
            nearest = (label.value, "nearest", label.limit)
            indices.append(_index(positions_by_label(session, array, dim, *nearest)))
        else:
            try:
                positions = positions_by_label(session, array, dim, label, None)
            except InvalidInputError as error:
                # A label may contain a colon: times do.
                if not isinstance(label, str) or ":" not in label:
                    raise
                raise click.UsageError(f"{error}. Write a range of labels as {dim}=FIRST..LAST") from error
            if isinstance(label, slice) and _descends(session, path, dim):
                positions = positions_by_label(session, array, dim, slice(label.stop, label.start), None)
            if not positions and isinstance(label, slice):
                shown = "..".join("" if end is None else str(end) for end in (label.start, label.stop))
                raise click.UsageError(f"no label of {dim} in {path} is in the range {shown}")
            indices.append(_index(positions))
    return tuple(indices)


def _descends(session: Session, path: str, dim: str) -> bool:
    """Return whether the labels of a dimension go from high to low."""
    coordinate = OpenArray(session, f"{path.rpartition('/')[0]}/{dim}")
    ends = coordinate.cells(coordinate.elements(([0, -1],))).values
    return bool(ends[0] > ends[1])


def _index(positions: Any) -> Any:
    """Return positions as an index of numpy and zarr: one position is a number, a range is a slice."""
    if not isinstance(positions, int) and len(positions) == 1:
        return positions[0]
    if isinstance(positions, range):
        return slice(positions.start, positions.stop)
    return positions if isinstance(positions, int) else list(positions)


def has_nearest(selection: Indices | Labels) -> bool:
    """Return whether a selection names the nearest label of a dimension."""
    return isinstance(selection, dict) and any(isinstance(each, Nearest) for each in selection.values())


def selected_shape(shape: tuple[int, ...], indices: Indices) -> tuple[int, ...]:
    """Return the shape of a selection, without its values. A wrong selection is wrong usage."""
    try:
        return np.broadcast_to(np.uint8(0), shape)[indices or ...].shape
    except IndexError as error:
        raise click.UsageError(f"the array has the shape {list(shape)}: {error}") from error


@dataclass(frozen=True, slots=True)
class CellValues:
    """Values of cells, and which are missing, None if none is.

    Attributes:
        coding: How the values were decoded.
        values: The values.
        missing: Which are missing.
    """

    coding: Coding
    values: Values
    missing: Mask | None = None

    @property
    def units(self) -> str:
        """The units of the values as text, empty for times, which have none, and for stored elements."""
        return "" if self.coding.is_time else self.coding.units or ""

    def texts(self) -> Values:
        """Return a text for each cell, as `frazil set` reads it."""
        flat = self.values.reshape(-1)
        text = self.coding.text if self.coding.floating is not None or flat.dtype.kind in "mMOS" else str
        texts = np.empty(flat.shape, object)
        texts[:] = list(map(text, flat if flat.dtype.kind in "mMfc" else flat.tolist()))
        if self.missing is not None:
            texts[self.missing.reshape(-1)] = (
                "NaT" if self.coding.is_time or flat.dtype.kind in "mM" else "NaN"
            )
        return texts.reshape(self.values.shape)

    def documents(self) -> Any:
        """Return the values in the form that JSON has, with None for missing values and for NaN."""
        values = self.values
        if self.coding.is_time or values.dtype.kind in "mMS":
            values = self.texts()
        nothing = np.isnan(values) if values.dtype.kind == "f" else None
        if self.missing is not None:
            nothing = self.missing if nothing is None else nothing | self.missing
        if nothing is not None and nothing.any():
            values = values.astype(object)
            values[nothing] = None
        return values.tolist()


@dataclass(frozen=True, slots=True)
class SelectionAxis:
    """A dimension of a selection: its name, and the labels of its cells, or their positions."""

    name: str
    positions: Values
    labels: CellValues | None
    attributes: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """A text for each cell."""
        if self.labels is None:
            return list(map(str, self.positions.reshape(-1).tolist()))
        return list(shortened(self.labels.texts()).reshape(-1))

    @property
    def is_northward(self) -> bool:
        """Whether the last cell is further north than the first."""
        numbers = self.positions if self.labels is None else self.labels.values
        if self.labels is None or numbers.dtype.kind not in "iuf" or numbers.size < 2:
            return False
        attributes = self.attributes
        is_y = attributes.get("axis") == "Y" or attributes.get("standard_name") == "projection_y_coordinate"
        is_y = is_y or geographic_kind(self.name, attributes) == "latitude"
        return is_y and bool(numbers[-1] > numbers[0])


class OpenArray:
    """An array of a session whose cells are shown or changed.

    Attributes:
        path: The path of the array.
        array: The array of zarr.
        coding: How its elements become values.
    """

    def __init__(self, session: Session, path: str, *, raw: bool = False, mode: Any = "r") -> None:
        session.workspace.require_array(path)
        self.path = path
        self.array: zarr.Array[Any] = array_at(session, path, mode)
        dtype = np.dtype(self.array.dtype)
        self._session = session
        self._raw = raw
        self.coding: Final = Coding(dtype) if raw else coding_of(self._attributes(), dtype)

    def _attributes(self) -> dict[str, Any]:
        """Return the attributes. Bounds of a coordinate have its units and its calendar (CF 7.1)."""
        attributes = dict(self.array.attrs)
        group, _, name = self.path.rpartition("/")
        if "units" in attributes or self.array.ndim < 2:
            return attributes
        dims = getattr(self.array.metadata, "dimension_names", None) or ()
        for parent in filter(None, (*dims, *(name.removesuffix(each) for each in _BOUNDS))):
            node = self._session.workspace.node(f"{group}/{parent}")
            if node is None or node.array is None:
                continue
            own = json.loads(node.user_data).get("attributes", {})
            if name in (own.get("bounds"), own.get("climatology")):
                return {key: own[key] for key in ("units", "calendar") if key in own} | attributes
        return attributes

    def elements(self, indices: Indices) -> Values:
        """Return the stored elements of a selection."""
        return np.asarray(self.array[indices or ...])

    def cells(self, elements: Values) -> CellValues:
        """Return the values of elements. A number that is no time stays a number, as text with its units."""
        try:
            return CellValues(self.coding, *self.coding.decode(elements))
        except InvalidInputError:
            if not self.coding.is_time:
                raise
        self.coding.decode(np.zeros(1, elements.dtype))  # units that are none are an error
        values = np.empty(elements.shape, object)
        missing = np.zeros(elements.shape, bool)
        for at, element in np.ndenumerate(elements):
            try:
                value, is_missing = self.coding.decode(element)
            except InvalidInputError:
                values[at] = f"{element} {self.coding.units}"
            else:
                values[at], missing[at] = value[()], is_missing is not None and bool(is_missing)
        return CellValues(self.coding, values, missing)

    def axes(self, indices: Indices) -> list[SelectionAxis]:
        """Return the dimensions of the array, with the cells of a selection: a scalar at one index."""
        axes = []
        ndim = self.array.ndim
        names = getattr(self.array.metadata, "dimension_names", None) or [None] * ndim
        at = next((number for number, each in enumerate(indices) if each is Ellipsis), len(indices))
        after = indices[at + 1 :]
        by_dimension = [*indices[:at], *[slice(None)] * (ndim - at - len(after)), *after]
        for name, length, index in zip(names, self.array.shape, by_dimension, strict=True):
            positions = np.arange(length)[index]
            axes.append(SelectionAxis(name or "", np.asarray(positions), *self._labels(name, length, index)))
        return axes

    def _labels(
        self, name: str | None, length: int, index: Any
    ) -> tuple[CellValues | None, Mapping[str, Any]]:
        """Return the labels of cells along a dimension, None without a coordinate, and its attributes."""
        path = f"{self.path.rpartition('/')[0]}/{name}"
        node = self._session.workspace.node(path) if name and path != self.path else None
        array = None if node is None else node.array
        if array is None or (array.shape, array.dimension_names) != ((length,), (name,)):
            return None, {}
        try:
            coordinate = OpenArray(self._session, path, raw=self._raw)
            return coordinate.cells(coordinate.elements((index,))), dict(coordinate.array.attrs)
        except IcechunkError:
            return None, {}  # its attributes define no values, or its calendar needs cftime


def shortened(times: Values) -> Values:
    """Return texts of times without the time of the day if all are at midnight."""
    midnight = "T00:00:00"
    flat = times.reshape(-1).tolist()
    if not flat or not all(each.endswith(midnight) for each in flat):
        return times
    return np.array([each.removesuffix(midnight) for each in flat], object).reshape(times.shape)


def place(axes: Sequence[SelectionAxis]) -> str:
    """Return the labels of the dimensions of a selection at one index, such as ``lat=10, lon=300``."""
    return ", ".join(
        f"{each.name}={each.texts[0]}" for each in axes if each.labels and not each.positions.ndim
    )


def lines_of(
    name: str, cells: CellValues, axes: Sequence[SelectionAxis], *, by_label: bool = False
) -> Iterator[str]:
    """Yield the lines of cells: a table with labels for one or two dimensions, else a line for each row.

    The line of one cell has its value only; ``by_label`` has a line with its labels before it.
    """
    texts = shortened(cells.texts())
    title = f"{name} [{cells.units}]" if cells.units else name
    where = place(axes)
    along = [each for each in axes if each.positions.ndim]
    if not along:
        yield from [where] * bool(where and by_label)
        yield f"{texts.item()} {cells.units}".rstrip()
    elif len(along) > 2 or not any(each.labels for each in along):
        if cells.units:
            yield f"{title} at {where}" if where else title
        yield from map(" ".join, texts.reshape(-1, texts.shape[-1]).tolist())
    elif len(along) == 1:
        yield from [where] * bool(where)
        named = [(along[0].name, title), *zip(along[0].texts, texts.tolist(), strict=True)]
        yield from table(named, right=frozenset({0, 1}))
    else:
        if cells.units or where:
            yield f"{title} at {where}" if where else title
        corner = " \\ ".join(each.name or "-" for each in along)
        rows: list[tuple[str, ...]] = [(corner, *along[1].texts)]
        rows += [(label, *row) for label, row in zip(along[0].texts, texts.tolist(), strict=True)]
        yield from table(rows, right=frozenset(range(len(rows[0]))))


def values_of(coding: Coding, shape: tuple[int, ...], text: str, name: str) -> Values:
    """Return the elements of the text of a value: a number, a text, a time, or nested lists in JSON."""
    content: Any = text
    if coding.dtype.kind not in "OUTSV" or text.startswith("["):
        # JSON; NaN, NaT and null are missing values, and other texts stay texts.
        special = text.lower().lstrip("+")
        is_number = special in ("nan", "inf", "-inf", "infinity", "-infinity")
        content = float(special) if is_number else text
        for spelling in (text.lower(), text):
            with suppress(json.JSONDecodeError):
                content = json.loads(spelling)
    try:
        values = np.asarray(content)
        is_fitting = np.broadcast_shapes(values.shape, shape) == shape
    except ValueError:
        is_fitting = False
    if not is_fitting:
        raise click.UsageError(f"the value must fit the shape {list(shape)} of the selection, got {text!r}")
    return coding.encode(values, name=name)


#: Characters from low to high values; the first is a missing value.
_DENSITY: Final = np.array(list(" .:-=+*#%@"))


def plot_lines(cells: CellValues, axes: Sequence[SelectionAxis]) -> Iterator[str]:
    """Yield the lines of a plot of one or two dimensions, and a line with the limits of the values.

    A matrix that is larger than the terminal is thinned out. Rows of ascending latitudes are reversed.
    """
    matrix = cells.values.squeeze()
    if matrix.ndim > 2 or matrix.dtype.kind not in "biuf" or not matrix.size:
        raise click.UsageError(
            f"a picture needs numbers with one or two dimensions, got {cells.values.dtype} of shape "
            f"{list(cells.values.shape)}. Pass a SLICE"
        )
    numbers = matrix.astype(np.float64)
    if cells.missing is not None:
        numbers[cells.missing.squeeze()] = np.nan
    is_reversed = matrix.ndim == 2 and next(each for each in axes if each.positions.size > 1).is_northward
    numbers = np.atleast_2d(numbers[::-1] if is_reversed else numbers)
    is_finite = np.isfinite(numbers)
    low, high = (numbers[is_finite].min(), numbers[is_finite].max()) if is_finite.any() else (0.0, 0.0)
    columns, lines = shutil.get_terminal_size()
    step = tuple(
        slice(None, None, -(-n // most))
        for n, most in zip(numbers.shape, (max(lines - 3, 8), columns), strict=True)
    )
    levels = (np.where(is_finite, numbers, low)[step] - low) / ((high - low) or 1)
    texts: Any = _DENSITY[(levels * (len(_DENSITY) - 2)).round().astype(int) + 1]
    yield from ("".join(row).rstrip() for row in np.where(is_finite[step], texts, " ").tolist())
    notes = f" {cells.units}" * bool(cells.units) + f", {numbers.shape[0]} x {numbers.shape[1]} values"
    where = place(axes)
    notes += f" at {where}" * bool(where)
    yield f"{low:g} to {high:g}{notes}{', north at the top' * is_reversed}"
