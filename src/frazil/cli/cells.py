"""Cells of an array for people and programs: decoded values, with their units and the labels of coordinates.

All commands that show or take values decode them by the CF conventions (`frazil.cf`), unless there is
``--raw``. Then values, and labels, are the stored elements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from frazil.cf import Coding, coding_of, geographic_kind
from frazil.cf_times import Mask, Values
from frazil.cli.output import table
from frazil.cli.selections import Indices
from frazil.errors import IcechunkError
from frazil.zarr_store.arrays import array_at

if TYPE_CHECKING:
    import zarr

    from frazil.repository.session.session import Session

raw_option: Final = click.option(
    "--raw", is_flag=True, help="Stored elements instead of values: without packing, missing values, times."
)


@dataclass(frozen=True, slots=True)
class Cells:
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
        text = self.coding.text if self.coding.floating is not None or flat.dtype.kind in "mMO" else str
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
        if self.coding.is_time or values.dtype.kind in "mM":
            values = self.texts()
        nothing = np.isnan(values) if values.dtype.kind == "f" else None
        if self.missing is not None:
            nothing = self.missing if nothing is None else nothing | self.missing
        if nothing is not None and nothing.any():
            values = values.astype(object)
            values[nothing] = None
        return values.tolist()


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension of a selection: its name, and the labels of its cells, or their positions."""

    name: str
    positions: Values
    labels: Cells | None
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
        self.coding = Coding(dtype) if raw else coding_of(dict(self.array.attrs), dtype)
        self._session = session
        self._raw = raw

    def elements(self, indices: Indices) -> Values:
        """Return the stored elements of a selection."""
        return np.asarray(self.array[indices or ...])

    def cells(self, elements: Values) -> Cells:
        """Return the values of elements."""
        return Cells(self.coding, *self.coding.decode(elements))

    def axes(self, indices: Indices) -> list[Axis]:
        """Return the dimensions of the array, with the cells of a selection: a scalar at one index."""
        axes = []
        names = getattr(self.array.metadata, "dimension_names", None) or [None] * self.array.ndim
        for name, length, index in zip(
            names, self.array.shape, _by_dimension(self.array.ndim, indices), strict=True
        ):
            positions = np.arange(length)[index]
            axes.append(Axis(name or "", np.asarray(positions), *self._labels(name, length, index)))
        return axes

    def _labels(self, name: str | None, length: int, index: Any) -> tuple[Cells | None, Mapping[str, Any]]:
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


def _by_dimension(ndim: int, indices: Indices) -> list[Any]:
    """Return an index for each dimension.

    >>> _by_dimension(3, (..., 1))
    [slice(None, None, None), slice(None, None, None), 1]
    """
    at = next((number for number, each in enumerate(indices) if each is Ellipsis), None)
    if at is None:
        return [*indices, *[slice(None)] * (ndim - len(indices))]
    return [*indices[:at], *[slice(None)] * (ndim - len(indices) + 1), *indices[at + 1 :]]


def shortened(times: Values) -> Values:
    """Return texts of times without the time of the day if all are at midnight.

    >>> shortened(np.array(["2024-03-01T00:00:00", "2024-03-02T00:00:00"], object)).tolist()
    ['2024-03-01', '2024-03-02']
    """
    midnight = "T00:00:00"
    flat = times.reshape(-1).tolist()
    if not flat or not all(each.endswith(midnight) for each in flat):
        return times
    return np.array([each.removesuffix(midnight) for each in flat], object).reshape(times.shape)


def lines_of(name: str, cells: Cells, axes: Sequence[Axis]) -> Iterator[str]:
    """Yield the lines of cells: a table with labels for one or two dimensions, else a line for each row."""
    texts = shortened(cells.texts())
    title = f"{name} [{cells.units}]" if cells.units else name
    where = ", ".join(
        f"{each.name}={each.texts[0]}" for each in axes if each.labels and not each.positions.ndim
    )
    along = [each for each in axes if each.positions.ndim]
    if not along:
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
    """Return the elements of the text of a value: a number, a text, a time, or nested lists in JSON.

    >>> values_of(Coding(np.dtype("i2")), (), "7", "/t")
    array(7, dtype=int16)
    """
    given: Any = text
    if coding.dtype.kind not in "OUTSV" or text.startswith("["):
        given = _from_json(text)
    try:
        values = np.asarray(given)
        is_fitting = np.broadcast_shapes(values.shape, shape) == shape
    except ValueError:
        is_fitting = False
    if not is_fitting:
        raise click.UsageError(f"the value must fit the shape {list(shape)} of the selection, got {text!r}")
    return coding.encode(values, name=name)


def _from_json(text: str) -> Any:
    """Return the value of a JSON text. NaN, NaT and null are missing values; other texts stay texts."""
    for spelling in (text, text.lower()):
        try:
            return json.loads(spelling)
        except json.JSONDecodeError:
            continue
    special = text.lower().lstrip("+")
    return float(special) if special in ("nan", "inf", "-inf", "infinity", "-infinity") else text
