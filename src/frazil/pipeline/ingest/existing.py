"""The group of the repository that gets the files, before it changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.cf import fill_value
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import TargetArray, choose_chunks, create, open_target
from frazil.pipeline.ingest.axis import Axis
from frazil.pipeline.ingest.dataset import Dataset, StoredVariables
from frazil.pipeline.ingest.file_report import COMPARED
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.options import IngestRequest
from frazil.readers.reader import VariableSchema
from frazil.repository.session.session import Session


class ExistingGroup:
    """The arrays of a group by name; no arrays if the group does not exist."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.path = group.strip("/")
        self.arrays: dict[str, zarr.Array[Any]] = {}
        parts = self.path.split("/")
        if self.path and {"", ".", ".."} & {*parts}:
            raise InvalidInputError(
                f"group must be the path of a group, got {group!r}", ErrorKind.INVALID_ARGUMENT
            )
        for at in range(1, len(parts) + 1):
            if session.workspace.is_array(path := f"/{'/'.join(parts[:at])}"):
                raise InvalidInputError(
                    f"`{path}` must be a group of the repository, got an array",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
        if session.workspace.node(f"/{self.path}") is not None:
            for name in self._array_names():
                self.reopen_array(name)

    def _array_names(self) -> list[str]:
        workspace = self.session.workspace
        at = f"/{self.path}".rstrip("/")
        return [name for name in workspace.children(at or "/") if workspace.is_array(f"{at}/{name}")]

    def path_of(self, name: str) -> str:
        """Return the path of an array of the group."""
        return "/" + "/".join(filter(None, [self.path, name.strip("/")]))

    def reopen_array(self, name: str) -> None:
        """Open an array again after its metadata have changed."""
        self.arrays[name] = open_target(self.session.store, self.path_of(name).strip("/"))

    def arrays_along(self, dim: str) -> list[str]:
        """Return the names of the arrays that have a dimension."""
        return [name for name, array in self.arrays.items() if dim in dims_of(array)]

    def stored_variables(self) -> StoredVariables:
        """Return the arrays of the group as variables, and the values of the small ones."""
        variables = {
            name: VariableSchema(name, dims_of(array), array.shape, array.dtype, _attributes(array))
            for name, array in self.arrays.items()
        }
        return StoredVariables(variables, self._small_values)

    def _small_values(self, name: str) -> NDArray[Any] | None:
        array = self.arrays.get(name)
        if array is None or math.prod(array.shape) * max(array.dtype.itemsize, 1) > COMPARED:
            return None
        return np.asarray(array[...])

    def add_dimension(self, name: str, dim: str, length: int, longest: int) -> None:
        """Give an array a new first dimension, and repeat its values for each of ``length`` steps.

        ``longest`` is the largest number of steps of a chunk. An array that has the dimension stays as it is.
        """
        array = self.arrays[name]
        if dim in dims_of(array):
            return
        values = np.asarray(array[...])
        shape = (length, *array.shape)
        chunks = choose_chunks(shape, max(array.dtype.itemsize, 1), 0)
        target = TargetArray(
            self.path_of(name),
            name,
            (dim, *dims_of(array)),
            shape,
            array.dtype,
            (min(chunks[0], longest), *chunks[1:]),
            0,
            array.fill_value,
            dict(array.attrs),
        )
        del zarr.open_group(self.session.store, path=self.path, mode="r+")[name]
        create(self.session.store, target)
        self.reopen_array(name)
        self.arrays[name][...] = np.broadcast_to(values, shape)

    def label_paths(self) -> tuple[str, ...]:
        """Return the paths of the arrays that are labels along a dimension."""
        return tuple(self.path_of(name) for name in self.arrays if self.arrays_along(name))


@dataclass(slots=True)
class GroupChange:
    """The change of a group by one ingest: the call, the files, the group before, and the axis.

    ``axis`` is None until it is planned, and if files do not follow each other.
    """

    request: IngestRequest
    dataset: Dataset
    existing: ExistingGroup
    axis: Axis | None = None

    @property
    def session(self) -> Session:
        """The session of the job."""
        return self.existing.session

    @property
    def inspection(self) -> Inspection:
        """The contents of all files."""
        return self.dataset.inspection


def _attributes(array: zarr.Array[Any]) -> dict[str, Any]:
    """Return the attributes of an array, with a number as ``_FillValue``."""
    attrs, text = dict(array.attrs), array.attrs.get("_FillValue")
    if array.dtype.kind == "f" and isinstance(text, str):
        attrs["_FillValue"] = fill_value(text, array.dtype).item()
    return attrs


def dims_of(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions of an array; an empty tuple if they have no names."""
    return tuple(map(str, array.metadata.dimension_names or ()))  # type: ignore[union-attr]


def axis_of(array: zarr.Array[Any], dim: str) -> int:
    """Return the index of a dimension of an array."""
    return dims_of(array).index(dim)
