"""The modes of writing, and the positions of new coordinates along an axis.

    append             all coordinates are new, and behind the existing ones along the append dimension
    insert             all coordinates exist: their values are replaced, nothing is added
    upsert, backfill   values of existing coordinates are replaced, new coordinates are inserted in order
    overwrite-region   as insert; cells without a row in the box around the rows are cleared: along each
                       dimension it has the positions from the first to the last coordinate of the rows

An axis of numbers, times or durations is in order if its values only rise or only fall; new values keep that
order. An axis of one value rises. Text and unsorted values have no order: their new values are added behind
the existing ones, in ascending order. A dimension without coordinates grows to the largest number of a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.write_layout import Axis, Box, Distinct, Layout

OVERWRITE: Final = "overwrite-region"
MODES: Final = ("append", "backfill", "insert", OVERWRITE, "upsert")
#: Modes in which every dimension may grow.
GROWING: Final = ("upsert", "backfill")


@dataclass(frozen=True, slots=True)
class Growth:
    """An axis with new coordinates.

    ``values`` are all coordinates, in order. ``old`` is the new position of each old one: int64 (size,),
    ascending.
    """

    values: pa.Array
    old: NDArray[np.int64]

    @property
    def first_moved(self) -> int:
        """The first position whose coordinate changes; the old size if none changes."""
        moved = self.old != np.arange(len(self.old))
        return int(np.argmax(moved)) if moved.any() else len(self.old)


def ascending(values: pa.Array) -> pa.Array:
    """Return the values in ascending order."""
    half = pa.types.is_float16(values.type)  # Arrow cannot order them
    return values.take(pc.sort_indices(values.cast(pa.float32()) if half else values))


def grow_axis(axis: Axis, fresh: pa.Array) -> Growth:
    """Return the axis with new coordinates at their places in order. ``fresh``: none of them exists."""
    assert axis.values is not None
    new = ascending(fresh.cast(axis.values.type))
    every = pa.concat_arrays([axis.values, new])
    down = _direction(axis.values)
    numbers = _numbers(every)
    if down is None or numbers is None:
        return Growth(every, np.arange(axis.size))
    order = np.argsort(numbers, kind="stable")
    order = order[::-1] if down else order
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return Growth(every.take(pa.array(order)), positions[: axis.size])


def require_behind(axis: Axis, fresh: pa.Array) -> None:
    """Raise ``InvalidInputError`` (``invalid-chunk-index``) for coordinates that mode append may not add."""
    if axis.values is None:
        numbers = fresh.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if len(numbers) and numbers.min() < axis.size:
            raise _early(axis, "behind the last cell", axis.size - 1, numbers.min())
        return
    growth = grow_axis(axis, fresh)
    if growth.first_moved < axis.size:
        first = growth.values[growth.first_moved]
        order: dict[bool | None, str] = {
            True: "below the last one, as the axis falls,",
            False: "above the last one",
        }
        place = order.get(_direction(growth.values), "behind the last one")
        last = coordinate_text(axis.values[axis.size - 1])
        raise _early(axis, place, last, coordinate_text(first))


def _early(axis: Axis, place: str, last: Any, early: Any) -> InvalidInputError:
    return InvalidInputError(
        f"New coordinates must be {place} along {axis.name}, {last}, in mode append, got {axis.name} = "
        f"{early}. Mode upsert (or backfill) inserts it in order. If several streams write to one axis, use "
        "such a mode, or give each stream an axis of its own",
        ErrorKind.INVALID_CHUNK_INDEX,
    )


def box_around(layout: Layout, distinct: Distinct) -> Box | None:
    """Return the box around rows with these existing coordinates; None without rows."""
    positions = [axis.find_positions(distinct[axis.name]) for axis in layout.axes]
    if not all(map(len, positions)):
        return None
    return tuple((int(at.min()), int(at.max()) + 1) for at in positions)


def box_text(layout: Layout, box: Box) -> str:
    """Return the first and the last coordinate of a box along each dimension, for a message."""
    parts = []
    for axis, (start, stop) in zip(layout.axes, box, strict=True):
        first, last = (
            at if axis.values is None else coordinate_text(axis.values[at]) for at in (start, stop - 1)
        )
        parts.append(f"{axis.name} = {first}" + ("" if first == last else f" to {last}"))
    return ", ".join(parts)


def coordinate_text(value: pa.Scalar) -> str:
    """Return a coordinate for a message, with times in UTC."""
    if pa.types.is_timestamp(value.type) and value.is_valid:
        text = str(np.datetime64(value.cast(pa.int64()).as_py(), value.type.unit))
        return text.removesuffix(".000000") + ("Z" if value.type.tz is not None else "")
    return repr(value.as_py())


def _direction(values: pa.Array) -> bool | None:
    """Return True if the values fall, False if they rise (or are fewer than two), None without order."""
    numbers = _numbers(values)
    if numbers is None:
        return None
    if (numbers[1:] > numbers[:-1]).all():
        return False
    return True if (numbers[1:] < numbers[:-1]).all() else None


def _numbers(values: pa.Array) -> NDArray[Any] | None:
    """Return numbers in the order of the values, or None for values without order."""
    column = values.type
    if pa.types.is_timestamp(column) or pa.types.is_duration(column):
        values = values.view(pa.int64())
    elif pa.types.is_date(column):
        values = values.view(pa.int32() if pa.types.is_date32(column) else pa.int64())
    elif not (pa.types.is_integer(column) or pa.types.is_floating(column)):
        return None
    if values.null_count:
        return None
    numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return None if numbers.dtype.kind == "f" and np.isnan(numbers).any() else numbers
