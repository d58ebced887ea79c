"""The results of readers: the schema of a file, references to its chunks.

A reader does not decode values: packed data stay packed, times stay numbers, characters stay characters. If
the results of a reader are stored without changes, xarray reads the same from the store as from the file.

    VariableSchema     one variable: dimensions, shape, dtype, attributes, how it is stored
    FileSchema         the variables of one group of one file, its fingerprint, its coordinates
    ChunkReferences    the positions of the chunks of a variable in files, as columns

A reader raises ``FormatError`` (``invalid-file-format``) with the name of the file if the file is damaged,
truncated or of another format, and ``StorageError`` if it cannot be read at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError


@dataclass(frozen=True, slots=True)
class VariableSchema:
    """One variable of one file, as it is stored.

    Attributes:
        name: The name of the variable.
        dims: The names of its dimensions.
        shape: Its length in each dimension.
        dtype: Its dtype: little-endian or native if the format does not define it, ``StringDType()`` for
            strings of variable length, ``S1`` for characters.
        attrs: Its attributes, as values that JSON can hold (numbers, strings, lists): CF attributes,
            ``_FillValue``, ``scale_factor``, ``units``, ``calendar``, ``coordinates``, ``grid_mapping`` and
            others, but not those that only describe the storage (``_NCProperties``, ``DIMENSION_LIST``,
            ``CLASS``, ``NAME``, ...).
        fill_value: The value of missing chunks, of the dtype; None if it is not defined.
        chunks: The shape of its chunks; None if it is stored as one piece.
        codec: Its compression in words, such as ``"shuffle, zlib 4"``.
        coordinate: Whether it is not data, but a dimension coordinate, an auxiliary coordinate, a bound, a
            grid mapping, or a scalar that another variable names.
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

    Attributes:
        url: The URL of the file.
        format: The name of its format.
        size: Its size in bytes.
        fingerprint: A digest of its state, see `fingerprint`.
        group: The path of the group.
        variables: The variables of the group, by name.
        attrs: The attributes of the group.
        dims: The lengths of the dimensions, by name.
        unlimited: The names of the unlimited dimensions.
        coords: The raw values of each one-dimensional variable with the name of its dimension.
        etag: The etag of an object, which virtual references store.
        modified: The time of the last change, which virtual references to files store.
        groups: The paths of the groups below.
        skipped: The variables that no array can hold (compound types, references, ...), with the reasons.
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


#: The location code of an inline chunk, whose bytes are in ``ChunkReferences.inline``.
INLINE: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class ChunkReferences:
    """The stored chunks of one variable, as columns with a row for each chunk.

    Attributes:
        chunks: The shape of a chunk.
        codecs: The codecs that decode the bytes of a chunk, as in the metadata of Zarr version 3.
        dtype: The dtype of the decoded values.
        fill_value: The value of missing chunks, which have no row.
        locations: The absolute URLs of files or objects, such as ``file:///...`` and ``s3://...``.
        index: The index of each chunk in the chunk grid, uint32, (n, ndim).
        offset: The first byte of each chunk in its file, uint64.
        length: The number of bytes of each chunk, uint64.
        location: The row of each chunk in ``locations``, uint32; `INLINE` for an inline chunk.
        inline: The bytes of inline chunks, which are not in a file, by row (see `with_inline`).
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
                f"{self.index[row].tolist()} in the file or inline, got none",
                ErrorKind.INVALID_FILE_FORMAT,
            )

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of a chunk are only its values, in C order."""
        return [each["name"] for each in self.codecs] == ["bytes"] and self.dtype.kind != "T"

    def with_axis(self) -> ChunkReferences:
        """Return the same chunks for an array with an additional first dimension of one step."""
        index = np.insert(self.index, 0, 0, axis=1)
        return replace(self, chunks=(1, *self.chunks), codecs=codecs_with_axis(self.codecs), index=index)

    def with_inline(self, chunks: Mapping[int, bytes]) -> ChunkReferences:
        """Return the same references, with inline bytes (row -> bytes) instead of bytes in a file."""
        rows = list(chunks)
        offset, length, location = self.offset.copy(), self.length.copy(), self.location.copy()
        offset[rows], length[rows], location[rows] = 0, list(map(len, chunks.values())), INLINE
        return replace(
            self, offset=offset, length=length, location=location, inline={**self.inline, **chunks}
        )


def codecs_with_axis(codecs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return codecs for arrays with an additional first dimension of one step."""
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
    """A variable without references. ``reason`` is a text such as ``"szip: no codec in Zarr"``."""

    reason: str


def fingerprint(size: int, state: str | None, head: bytes, tail: bytes) -> str:
    """Return a digest of the state of a file, 32 hexadecimal digits. A changed file has another digest.

    ``state`` is its etag, or None. The time of the file is not included, so copies of a file have the same
    digest. ``head`` and ``tail`` are its first and last 65,536 bytes (both the whole file if it is smaller).
    """
    hashed = hashlib.sha256(f"{size} {state or ''} ".encode())
    hashed.update(len(head).to_bytes(8, "little") + head + tail)
    return hashed.hexdigest()[:32]


def bytes_codec(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the Zarr codec for values of this dtype that are stored without compression."""
    if dtype.itemsize == 1 or dtype.kind in "SVT":
        return {"name": "bytes"}
    endian = "big" if dtype.str[0] == ">" else "little"
    return {"name": "bytes", "configuration": {"endian": endian}}


def references_to_file(
    url: str,
    chunks: Sequence[int],
    codecs: list[dict[str, Any]],
    dtype: np.dtype[Any],
    fill_value: Any,
    index: NDArray[Any],
    offset: NDArray[Any],
    length: NDArray[Any],
) -> ChunkReferences:
    """Return references to chunks that are all in the file ``url``: columns as in `ChunkReferences`.

    ``chunks`` is the shape of a chunk.
    """
    return ChunkReferences(
        chunks=tuple(map(int, chunks)),
        codecs=codecs,
        dtype=dtype,
        fill_value=fill_value,
        locations=(url,),
        index=np.ascontiguousarray(index, np.uint32),
        offset=np.ascontiguousarray(offset, np.uint64),
        length=np.ascontiguousarray(length, np.uint64),
        location=np.zeros(len(offset), np.uint32),
    )
