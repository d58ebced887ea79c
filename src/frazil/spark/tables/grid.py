"""Arrays as one table: a row for each cell of a grid.

    grid       dimensions with a name and a size: those of the variables together
    column     a dimension (its coordinate, or the number of the cell), a coordinate, or a variable; an array
               of fewer dimensions is repeated along the others
    block      the chunks that one read takes: those of the variable with all dimensions

*Ragged data* (CF conventions, chapter 9) is a grid of one dimension, that of the observations. A value of an
instance (a profile, station or trajectory) is repeated for its observations: by ``row_size`` (an array with
the attribute ``sample_dimension``), or by an index variable (with ``instance_dimension``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.decoding import Decoder, Values


@dataclass(frozen=True, slots=True)
class Instances:
    """How observations belong to instances.

    The array at ``path`` has the number of observations of each instance (``by_size``), or the number of the
    instance of each observation.
    """

    path: str
    by_size: bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    path         of its array; None for the number of the cell along a dimension
    axes         its dimensions, numbered as in the grid
    chunks       of the array, in elements; the shards if it has shards
    is_key       a coordinate: small, and conditions choose rows by it
    instances    values are those of instances, and are repeated for their observations
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

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Grid:
    """The table: dimensions, their sizes, all columns in order, and the shape of a block in elements."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    columns: tuple[Column, ...]
    block: tuple[int, ...]

    def column(self, name: str) -> Column:
        """Return a column by its name, in upper or lower case if only one column fits.

        Raises ``InvalidInputError`` (``node-not-found``) for a missing column.
        """
        exact = [each for each in self.columns if each.name == name]
        loose = exact or [each for each in self.columns if each.name.lower() == name.lower()]
        if len(loose) != 1:
            raise InvalidInputError(
                f"A column must be one of {', '.join(each.name for each in self.columns)}, got {name!r}"
                f"{suggest(name, [each.name for each in self.columns])}",
                ErrorKind.NODE_NOT_FOUND,
            )
        return loose[0]

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.schema([pa.field(each.name, each.type) for each in self.columns])


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


def index_values(start: int, stop: int) -> Values:
    """Return the numbers of cells along a dimension."""
    numbers: NDArray[np.int64] = np.arange(start, stop, dtype=np.int64)
    return Values(numbers)
