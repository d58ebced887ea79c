"""The protocol of readers, and their results: the schema of a file, references to its chunks.

A reader decodes nothing: packed data stay packed, times stay numbers, characters stay characters. If the
results of a reader are stored as they are, xarray reads the same from the store as from the file.

    VariableSchema     one variable: dimensions, shape, dtype, attributes, how it is stored
    FileSchema         the variables of one group of one file, its fingerprint, its coordinates
    ChunkReferences    where in files the chunks of a variable are, as columns
    Reader             an open file

A reader raises ``FormatError`` (``invalid-file-format``) that names the file when it is damaged, truncated or
of another format, and ``StorageError`` when it cannot be read at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError


@dataclass(frozen=True, slots=True)
class VariableSchema:
    """One variable of one file, as stored.

    ``dtype`` is little-endian or native where the format leaves that open; strings of any length have
    ``numpy.dtypes.StringDType()``, characters ``S1``. ``attrs`` are values of JSON (numbers, strings, lists
    of them): CF attributes, ``_FillValue``, ``scale_factor``, ``units``, ``calendar``, ``coordinates``,
    ``grid_mapping`` and the others included; not those that only describe how the format stores it
    (``_NCProperties``, ``DIMENSION_LIST``, ``CLASS``, ``NAME``, ...). ``fill_value`` is that of chunks that
    were never written: a value of the dtype, or None. ``chunks`` is None if it is stored as one piece,
    ``codec`` is the compression in words (``"shuffle, zlib 4"``). ``coordinate`` says that it is not data:
    a dimension coordinate, an auxiliary coordinate, a bound, a grid mapping, or has no dimensions and is
    named by another variable.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    fill_value: Any | None = None
    chunks: tuple[int, ...] | None = None
    codec: str | None = None
    coordinate: bool = False


@dataclass(frozen=True, slots=True)
class FileSchema:
    """One group of one file.

    ``fingerprint`` comes from `fingerprint`. ``etag`` and ``modified`` are what virtual references remember
    of the state of the file (an etag for objects, a time for files). ``coords`` holds the raw values of each
    variable of one dimension that has the name of its dimension. ``groups`` are the paths of the groups
    below, and ``skipped`` the variables that no array can hold (compound types, references, ...), each with
    the reason.
    """

    url: str
    format: str
    size: int
    fingerprint: str
    group: str = "/"
    variables: dict[str, VariableSchema] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    unlimited: frozenset[str] = frozenset()
    coords: dict[str, NDArray[Any]] = field(default_factory=dict)
    etag: str | None = None
    modified: datetime | None = None
    groups: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)


#: The code of a location that is no file: the bytes of the chunk are in ``ChunkReferences.inline``.
INLINE: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class ChunkReferences:
    """The stored chunks of one variable, as columns with a row for each chunk.

    ``index`` (uint32, (n, ndim)) is the chunk's place in the grid of ``chunks`` (its shape), ``offset`` and
    ``length`` (uint64) are bytes in ``locations[location]`` (codes, uint32; absolute URLs: ``file:///...``,
    ``s3://...``). ``codecs`` are those of Zarr v3's metadata that decode these bytes into an array of
    ``dtype``, ``fill_value`` is that of chunks without a row. ``inline`` are bytes of chunks that have no
    place in a file (row -> bytes); the location of these rows is `INLINE` (see `with_inline`).

    Raises ``FormatError`` (``invalid-file-format``) for a row that has neither bytes in a file nor inline
    bytes.
    """

    chunks: tuple[int, ...]
    codecs: list[dict[str, Any]]
    dtype: np.dtype[Any]
    fill_value: Any
    locations: tuple[str, ...]
    index: NDArray[np.uint32]
    offset: NDArray[np.uint64]
    length: NDArray[np.uint64]
    location: NDArray[np.uint32]
    inline: Mapping[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        in_file = self.location != INLINE
        bad = in_file & ((self.location >= len(self.locations)) | (self.length == 0))
        rows = {*np.flatnonzero(bad).tolist()}
        rows |= {*np.flatnonzero(~in_file).tolist()} ^ {row for row, data in self.inline.items() if data}
        if rows:
            row = min(rows)
            raise FormatError(
                f"{next(iter(self.locations), 'a file')}: expected bytes of the chunk at "
                f"{self.index[row].tolist()}, in the file or inline, found none",
                ErrorKind.INVALID_FILE_FORMAT,
            )

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of a chunk are its values in the order of C, and nothing else."""
        return [each["name"] for each in self.codecs] == ["bytes"] and self.dtype.kind != "T"

    def with_axis(self) -> ChunkReferences:
        """The same chunks in an array with one more dimension, of one step, before the others."""
        index = np.insert(self.index, 0, 0, axis=1)
        return replace(self, chunks=(1, *self.chunks), codecs=codecs_with_axis(self.codecs), index=index)

    def with_inline(self, chunks: Mapping[int, bytes]) -> ChunkReferences:
        """The same references, with these bytes instead of those in a file (row -> bytes)."""
        rows = list(chunks)
        offset, length, location = self.offset.copy(), self.length.copy(), self.location.copy()
        offset[rows], length[rows], location[rows] = 0, list(map(len, chunks.values())), INLINE
        return replace(
            self, offset=offset, length=length, location=location, inline={**self.inline, **chunks}
        )


def codecs_with_axis(codecs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Codecs of arrays with one more dimension, of one step, before the others.

    >>> codecs_with_axis([{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "bytes"}])
    [{'name': 'transpose', 'configuration': {'order': [0, 2, 1]}}, {'name': 'bytes'}]
    """
    longer = []
    for codec in codecs:
        config = dict(codec.get("configuration", {}))
        if codec["name"] == "transpose":
            config["order"] = [0, *(each + 1 for each in config["order"])]
        if codec["name"] == "sharding_indexed":
            config["chunk_shape"] = [1, *config["chunk_shape"]]
            config["codecs"] = codecs_with_axis(config["codecs"])
        longer.append({**codec, "configuration": config} if config else codec)
    return longer


@dataclass(frozen=True, slots=True)
class NotVirtual:
    """A variable to whose chunks nothing can refer. ``reason`` is such as ``"szip: no codec in Zarr"``."""

    reason: str


class Reader(Protocol):
    """An open file (or Zarr group). A context manager; cheap to open, reads nothing that is not asked for."""

    def schema(self) -> FileSchema: ...

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        """Raw values of a variable: of its dtype, and in the order of its dimensions. Slices have step 1."""
        ...

    def references(self, name: str) -> ChunkReferences | NotVirtual: ...

    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        """The value (shape ``()``) that all elements of a region have, because none of them was ever written.

        None if some were, or if the format does not say.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def fingerprint(size: int, state: str | None, head: bytes, tail: bytes) -> str:
    """A digest of the state of a file: 32 hexadecimal digits. A changed file has another one.

    ``state`` is its etag, or None; a time is not in it, since copies of one file are the same file. ``head``
    and ``tail`` are its first and last 65,536 bytes (the whole file twice if it has less).

    >>> fingerprint(3, None, b"abc", b"abc") == fingerprint(3, None, b"abd", b"abd")
    False
    """
    hashed = hashlib.sha256(f"{size} {state or ''} ".encode())
    hashed.update(len(head).to_bytes(8, "little") + head + tail)
    return hashed.hexdigest()[:32]
