"""The reader of a file that a function of the caller changes: a function of a dataset, or of a local file.

xarray decodes what the function gets, and encodes what it returns, as it would do for a file. Variables that
the function does not compute stay in the file until a task reads them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final, override

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends.common import BackendArray
from xarray.core import indexing

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.readers.adapters import AdaptedReader
from frazil.readers.base_reader import (
    Bounds,
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    decoded,
    json_value,
)
from frazil.readers.files import SourceFile, temporary_file

#: The number of parameters of a function of files: the source, and the target.
_PATHS: Final = 2


def takes_paths(function: Callable[..., Any]) -> bool:
    """Return whether a function reads one file and writes another one; else it is one of a dataset."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C without a signature
        return False
    return (
        sum(each.default is each.empty and each.kind < each.VAR_POSITIONAL for each in parameters) == _PATHS
    )


def call_function(url: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function of the caller. Its errors become ``InvalidInputError`` (``task-failed``)."""
    try:
        return function(*arguments)
    except IcechunkError:
        raise
    except Exception as error:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise InvalidInputError(
            f"{url}: preprocess={name} raised {type(error).__name__}: {error}", ErrorKind.TASK_FAILED
        ) from error


def changed_file(file: SourceFile, function: Callable[..., Any]) -> SourceFile:
    """Return the contents that a function of files writes, as a temporary file."""
    result = temporary_file(file)
    assert result.path is not None
    with file.local() as path:
        call_function(file.url, function, Path(path), Path(result.path))
    result.size = os.stat(result.path).st_size
    return result


class _LazyValues(BackendArray):
    """The stored values of a variable of a file, for xarray."""

    def __init__(self, reader: Reader, variable: VariableSchema) -> None:
        self._reader, self._name = reader, variable.name
        self.shape = variable.shape
        self.dtype = np.dtype(object) if variable.dtype.kind == "T" else variable.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[int | slice, ...]) -> NDArray[Any]:
        bounds = [
            range(size)[each] if isinstance(each, slice) else range(each, each + 1)
            for each, size in zip(key, self.shape, strict=True)
        ]
        region = tuple(slice(each.start, each[-1] + 1) if len(each) else slice(0, 0) for each in bounds)
        values = self._reader.read(self._name, region).astype(self.dtype, copy=False)
        return values[
            tuple(
                slice(None, None, each.step) if isinstance(at, slice) else 0
                for at, each in zip(key, bounds, strict=True)
            )
        ]


class FunctionReader(AdaptedReader):
    """An open file whose dataset a function of the caller changes."""

    def __init__(self, reader: Reader, function: Callable[[xr.Dataset], xr.Dataset]) -> None:
        super().__init__(reader)
        self._function = function

    @cached_property
    def _result(self) -> xr.Dataset:
        """What the function returns."""
        schema = self._reader.schema()
        variables = {
            name: xr.Variable(
                each.dims, indexing.LazilyIndexedArray(_LazyValues(self._reader, each)), each.attrs
            )
            for name, each in schema.variables.items()
        }
        dataset = xr.decode_cf(xr.Dataset(variables, attrs=schema.attrs))
        dataset.encoding = {"source": self.file.url, "unlimited_dims": schema.unlimited}
        result = call_function(self.file.url, self._function, dataset)
        if not isinstance(result, xr.Dataset):
            raise InvalidInputError(
                f"{self.file.url}: preprocess must return a Dataset, got {type(result).__qualname__}",
                ErrorKind.TASK_FAILED,
            )
        return result

    @cached_property
    def _encoded(self) -> dict[str, xr.Variable]:
        """The variables with their coordinates in attributes. Small or computed ones are encoded."""
        variables, _ = xr.conventions.encode_dataset_coordinates(self._result)
        return {
            str(name): each if _is_encoded_in_parts(each) else _encode(each, str(name))
            for name, each in variables.items()
        }

    @override
    def contents(self) -> FileContents:
        contents, result = super().contents(), self._result
        contents.variables = []
        for name, each in self._encoded.items():
            sample = each
            if _is_encoded_in_parts(each):
                sample = _encode(each[tuple(slice(0, 1) for _ in each.dims)], name)
            dtype = np.dtypes.StringDType() if sample.dtype.kind in "OUS" else sample.dtype
            attrs = {str(key): json_value(value) for key, value in sample.attrs.items()}
            dims = tuple(map(str, each.dims))
            coordinate = name in result.coords
            contents.variables.append(
                VariableSchema(name, dims, each.shape, dtype, attrs, coordinate=coordinate)
            )
        contents.attrs = {str(key): json_value(value) for key, value in result.attrs.items()}
        contents.dims = {str(name): size for name, size in result.sizes.items()}
        contents.unlimited &= contents.dims.keys()
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        contents.changes += (("preprocess", f"changed by {name}"),)
        return contents

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        encoded = self._encoded[variable.name]
        part = encoded[tuple(slice(*each) for each in bounds)]
        if _is_encoded_in_parts(encoded):
            part = _encode(part, variable.name)
        values = np.asarray(part.values)
        return decoded(values) if variable.dtype.kind == "T" else values.astype(variable.dtype, copy=False)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        return NotVirtual("preprocess changes the dataset in memory")

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        return None


def _is_encoded_in_parts(variable: xr.Variable) -> bool:
    """Return whether all parts of a variable have the same encoding: that of numbers of the file."""
    return "dtype" in variable.encoding and variable.dtype.kind in "iuf"


def _encode(variable: xr.Variable, name: str) -> xr.Variable:
    """Return a variable as xarray stores it."""
    encoded: xr.Variable = xr.conventions.encode_cf_variable(variable, name=name)
    return encoded
