"""What a reader tells of a file against what xarray sees in it, and its references against its values."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from frazil.readers.base_reader import INLINE, ChunkReferences, NotVirtual, Reader, VariableSchema


def read_all(reader: Reader, name: str) -> NDArray[Any]:
    return reader.read(name, (slice(None),) * len(reader.schema().variables[name].dims))


def plain(value: Any) -> Any:
    """An attribute of xarray's as JSON holds it."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def as_text(attrs: Mapping[Any, Any]) -> str:
    """Attributes in any order; what is not a number is equal to itself."""
    return repr(sorted((name, plain(each)) for name, each in attrs.items()))


def same(first: Any, second: Any) -> None:
    """Equal values, even if they are strings, or not numbers."""
    first, second = np.asarray(first), np.asarray(second)
    assert first.shape == second.shape
    if first.dtype.kind in "OTU" or second.dtype.kind in "OTU":
        assert first.astype(object).tolist() == second.astype(object).tolist()
    else:
        assert first.dtype.newbyteorder("=") == second.dtype.newbyteorder("=")
        np.testing.assert_array_equal(first, second)


def same_as_xarray(reader: Reader, original: xr.Dataset, *, added: tuple[str, ...] = ()) -> None:
    """Names, dimensions, attributes and raw values; ``added`` are attributes that only the reader gives."""
    schema = reader.schema()
    assert set(schema.variables) == set(original.variables)
    assert {str(dim): length for dim, length in original.sizes.items()}.items() <= schema.dims.items()
    assert as_text(schema.attrs) == as_text(original.attrs)
    assert schema.unlimited >= set(original.encoding.get("unlimited_dims", ()))
    for name, variable in schema.variables.items():
        expected = original.variables[name]
        attrs = {key: each for key, each in variable.attrs.items() if key not in added}
        assert as_text(attrs) == as_text(expected.attrs), name
        assert variable.dims == expected.dims, name
        assert variable.shape == expected.shape, name
        values = read_all(reader, name)
        assert values.dtype == variable.dtype
        same(values, expected.values)
    for name, values in schema.coords.items():
        same(values, original.variables[name].values)


def same_regions(reader: Reader, name: str) -> None:
    """Parts of a variable are parts of the whole."""
    whole = read_all(reader, name)
    for part in (slice(0, 0), slice(0, 1), slice(1, None), slice(1, 3), slice(-1, None)):
        region = (part,) * whole.ndim
        same(reader.read(name, region), whole[region])


def same_by_references(reader: Reader, name: str) -> ChunkReferences:
    """What Zarr decodes from the bytes in the files is what the reader reads."""
    references = references_of(reader, name)
    same(decoded(references, reader.schema().variables[name]), read_all(reader, name))
    return references


def references_of(reader: Reader, name: str) -> ChunkReferences:
    references = reader.references(name)
    assert isinstance(references, ChunkReferences), references
    return references


def why_not(reader: Reader, name: str) -> str:
    references = reader.references(name)
    assert isinstance(references, NotVirtual)
    return references.reason


def decoded(references: ChunkReferences, variable: VariableSchema) -> NDArray[Any]:
    """The array of Zarr that references make, without Frazil: chunks are copied from files to memory."""
    files = [Path(unquote(urlsplit(url).path)).read_bytes() for url in references.locations]
    ndim = len(variable.shape)
    assert references.index.shape == (len(references.offset), ndim)
    assert (references.index.dtype.str, references.offset.dtype.str) == ("<u4", "<u8")
    store = MemoryStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codecs and dtypes that Zarr's specification does not list
        array: Any = zarr.create_array(
            store,
            shape=variable.shape,
            chunks=references.chunks,
            dtype=references.dtype,
            filters=None,
            compressors=None,
        )
        document = json.loads(asyncio.run(_get(store, "zarr.json")))
        document["codecs"] = references.codecs
        if references.dtype.kind != "S" and references.fill_value is not None:
            document["fill_value"] = array.metadata.data_type.to_json_scalar(
                references.fill_value, zarr_format=3
            )
        chunks = {"zarr.json": json.dumps(document).encode()}
        rows = zip(
            references.index.tolist(), references.offset, references.length, references.location, strict=True
        )
        for row, (index, offset, length, location) in enumerate(rows):
            if location == INLINE:
                data = references.inline[row]
            else:
                data = files[location][int(offset) : int(offset + length)]
            assert len(data) == length
            chunks["/".join(["c", *map(str, index)])] = data
        asyncio.run(_put(store, chunks))
        array = zarr.open_array(store, mode="r")
        return np.asarray(array[...])


async def _get(store: MemoryStore, key: str) -> bytes:
    buffer = await store.get(key, default_buffer_prototype())
    assert buffer is not None
    return buffer.to_bytes()


async def _put(store: MemoryStore, values: dict[str, bytes]) -> None:
    for key, each in values.items():
        await store.set(key, Buffer.from_bytes(each))


def sample_files(*endings: str) -> list[Any]:
    """Files of ``iris-sample-data``, as parameters of a test."""
    samples = pytest.importorskip("iris_sample_data")
    paths = sorted(each for each in Path(samples.path).rglob("*") if each.name.endswith(endings))
    assert paths
    return [pytest.param(each, id=each.name) for each in paths]
