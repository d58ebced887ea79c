"""Setting the virtual references of an array: one, some, or a whole grid of them as columns.

A location is stored verbatim, or normalized if it is a ``file:`` URL. With validation a location has to have
a virtual chunk container: a single reference without one is an error, and of many references those without
one are left out and reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frazil.chunks.virtual import normalized
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import Ragged, intern
from frazil.format.manifest import ChunkKind, ChunkTable, ForeignObjects, VirtualRef
from frazil.repository.paths import absolute
from frazil.repository.session.virtual_locations import normalized_locations
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.virtual_containers import VirtualChunkSpec

Checksum = str | datetime | None
Failed = list[tuple[int, ...]] | None

_MAX_U32: Final = 2**32 - 1
_MAX_U64: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of bytes of an object, with the checksum of the object."""

    location: str
    offset: int
    length: int
    checksum: Checksum = None


@dataclass(frozen=True, slots=True)
class ChunkBox:
    """A box of chunks as columns in C order; an empty location leaves its chunk as it is. ``first`` is the
    first chunk of the box, zeros if None. ``checksum`` holds for all locations.
    """

    shape: Sequence[int]
    locations: Sequence[str]
    offsets: ArrayLike
    lengths: ArrayLike
    first: Sequence[int] | None = None
    checksum: Checksum = None


@dataclass(frozen=True, slots=True, eq=False)
class VirtualRows:
    """References as columns: the chunk at ``index[row]``, shape (n, ndim), in any order, is a range of the
    object ``locations[numbers[row]]``. The columns ``etags`` and ``modified`` have an entry per location.
    """

    index: NDArray[np.uint32]
    locations: list[str]
    numbers: NDArray[np.integer]
    offsets: NDArray[np.uint64]
    lengths: NDArray[np.uint64]
    etags: Ragged
    modified: NDArray[np.uint32]

    @staticmethod
    def of(
        index: NDArray[np.uint32],
        locations: Sequence[str],
        numbers: NDArray[np.uint32],
        offsets: NDArray[np.uint64],
        lengths: NDArray[np.uint64],
        checksum: Checksum,
    ) -> VirtualRows:
        """Rows whose objects share a checksum. A location that no row uses costs nothing."""
        used, rows = np.unique(numbers, return_inverse=True)
        distinct = list(map(locations.__getitem__, used.tolist()))
        etags, modified = _checksums(checksum, len(distinct))
        return VirtualRows(index, distinct, rows, offsets, lengths, etags, modified)

    def table(self) -> ChunkTable:
        """The rows as a sorted table of references."""
        return ChunkTable(
            self.index,
            np.full(len(self.index), ChunkKind.VIRTUAL, np.uint8),
            self.numbers.astype(np.uint32, copy=False),
            self.offsets,
            self.lengths,
            np.zeros((0, 12), np.uint8),
            ForeignObjects(Ragged.of_text(self.locations), self.etags, self.modified),
            Ragged.empty(),
        ).sorted()


def set_one(
    workspace: Workspace, path: str, coords: tuple[int, ...], source: ByteRange, *, validate: bool
) -> None:
    """Set one reference; see ``IcechunkStore.set_virtual_ref`` for the errors."""
    location, offset, length = normalized(source.location), source.offset, source.length
    if validate:
        workspace.context.virtual.find_container(location)
    if not 0 <= offset <= _MAX_U64 or not 0 <= length <= _MAX_U64:
        raise _invalid(f"an offset and a length of 64 bits, found {offset} and {length}")
    _require_lengths(length > 0, path)
    ref = VirtualRef(location, offset, length, *_checksum(source.checksum))
    workspace.chunks.set_ref(path, coords, ref)


def set_some(
    workspace: Workspace, array_path: str, chunks: Sequence[VirtualChunkSpec], *, validate: bool
) -> Failed:
    """Set references described one by one; the coordinates of those without a container, or None."""
    path = absolute(array_path)
    ndim = _rank(workspace, path)
    for chunk in chunks:
        if not isinstance(chunk, VirtualChunkSpec):
            raise TypeError(f"chunks: expected VirtualChunkSpec, found {type(chunk).__name__}")
    index = [chunk.index for chunk in chunks]
    if any(map(ndim.__ne__, map(len, index))):
        raise InvalidInputError(
            f"`{path}` has {ndim} dimensions: expected {ndim} coordinates for each chunk",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    checksums = [_checksum(chunk.etag_checksum or chunk.last_updated_at_checksum) for chunk in chunks]
    objects = [(chunk.location, *each) for chunk, each in zip(chunks, checksums, strict=True)]
    distinct, numbers = intern(objects)
    rows = VirtualRows(
        np.array(index, np.uint32).reshape(len(index), ndim),
        [location for location, _, _ in distinct],
        numbers,
        np.array([chunk.offset for chunk in chunks], np.uint64),
        np.array([chunk.length for chunk in chunks], np.uint64),
        Ragged.of_text([etag or "" for _, etag, _ in distinct]),
        np.array([modified or 0 for _, _, modified in distinct], np.uint32),
    )
    return set_rows(workspace, path, rows, validate=validate)


def set_grid(workspace: Workspace, array_path: str, box: ChunkBox, *, validate: bool) -> Failed:
    """Set a box of references; the coordinates of those without a container, or None."""
    path = absolute(array_path)
    ndim, count = _rank(workspace, path), len(box.locations)
    offsets, lengths = _column("offsets", box.offsets, count), _column("lengths", box.lengths, count)
    index = _box_index(box, path, ndim)
    distinct, numbers = intern(box.locations)
    etags, modified = _checksums(box.checksum, len(distinct))
    rows = VirtualRows(index, distinct, numbers, offsets, lengths, etags, modified)
    return set_rows(workspace, path, _with_locations(rows), validate=validate)


def _box_index(box: ChunkBox, path: str, ndim: int) -> NDArray[np.uint32]:
    """The coordinates of the chunks of a box, (n, ndim)."""
    count, shape = len(box.locations), tuple(map(int, box.shape))
    if np.prod(shape, dtype=object) != count or min(shape, default=1) < 0:
        raise _invalid(f"{count} locations for a chunk_grid_shape of {shape}: their numbers have to agree")
    corner = tuple(map(int, box.first)) if box.first is not None else (0,) * len(shape)
    if len(shape) != ndim or len(corner) != ndim:
        raise InvalidInputError(
            f"`{path}` has {ndim} dimensions: expected {ndim} numbers in chunk_grid_shape and in arr_offset, "
            f"found {shape} and {corner}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    if any(low < 0 or low + size - 1 > _MAX_U32 for low, size in zip(corner, shape, strict=True)):
        raise InvalidInputError(
            f"arr_offset: expected chunk coordinates of 32 bits, found {corner}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    count = math.prod(shape)  # not -1: an array without dimensions has one chunk
    index = np.indices(shape, np.uint32, sparse=False).reshape(len(shape), count).T
    return np.ascontiguousarray(index + np.array(corner, np.uint32))


def _with_locations(rows: VirtualRows) -> VirtualRows:
    """The rows whose location is not empty."""
    if "" not in rows.locations:
        return rows
    empty = rows.locations.index("")
    is_set = rows.numbers != empty
    numbers, has_name = rows.numbers[is_set], np.arange(len(rows.locations)) != empty
    return VirtualRows(
        rows.index[is_set],
        [*rows.locations[:empty], *rows.locations[empty + 1 :]],
        numbers - (numbers > empty),
        rows.offsets[is_set],
        rows.lengths[is_set],
        rows.etags.take(np.flatnonzero(has_name)),
        rows.modified[has_name],
    )


def set_rows(workspace: Workspace, array_path: str, rows: VirtualRows, *, validate: bool = True) -> Failed:
    """Set references given as columns. The coordinates of those without a container, which are left out, or
    None.
    """
    path = absolute(array_path)
    _require_lengths(bool(rows.lengths.all()), path)
    if (rows.offsets > np.uint64(_MAX_U64) - rows.lengths).any():
        raise _invalid("ranges that end below 2**64")
    locations, has_container = normalized_locations(workspace.context.virtual, rows.locations, validate)
    table = replace(rows, locations=locations).table()
    if has_container.all():
        workspace.chunks.set_refs(path, table)
        return None
    is_valid = has_container[table.source]
    workspace.chunks.set_refs(path, table.select_chunks(is_valid))
    return list(map(tuple, table.index[~is_valid].tolist())) or None


def _checksums(checksum: Checksum, count: int) -> tuple[Ragged, NDArray[np.uint32]]:
    """The columns of ETags and times of ``count`` locations that share a checksum."""
    etag, modified = _checksum(checksum)
    etags = Ragged.of_text([etag or ""]).take(np.zeros(count, np.int64))
    return etags, np.full(count, modified or 0, np.uint32)


def _rank(workspace: Workspace, path: str) -> int:
    array = workspace.nodes.require_node(path).array
    if array is None:
        raise InvalidInputError(
            f"expected an array at `{path}`, found a group: name an array in it", ErrorKind.NOT_AN_ARRAY
        )
    return len(array.shape)


def _column(name: str, values: ArrayLike, count: int) -> NDArray[np.uint64]:
    column = np.asarray(values)
    if column.shape != (count,) or column.dtype.kind not in "iu":
        raise _invalid(
            f"{count} integers as {name}, one for each location, found {column.dtype} of shape {column.shape}"
        )
    if column.dtype.kind == "i" and count and column.min() < 0:
        raise _invalid(f"{name} that are not negative, found {column.min()}")
    return np.ascontiguousarray(column, np.uint64)


def _checksum(checksum: Checksum) -> tuple[str | None, int | None]:
    """The etag, or the seconds since 1970, of a checksum; both None without a checksum."""
    if checksum is None or isinstance(checksum, str):
        return checksum or None, None
    if not isinstance(checksum, datetime) or checksum.tzinfo is None:
        raise TypeError(f"checksum: expected an etag or a datetime with a time zone, found {checksum!r}")
    seconds = int(checksum.timestamp())
    if not 0 < seconds <= _MAX_U32:
        raise _invalid(f"a time of modification between 1970 and 2106, found {checksum}")
    return None, seconds


def _require_lengths(are_positive: bool, path: str) -> None:
    if not are_positive:
        raise InvalidInputError(
            f"`{path}`: expected a length of at least 1 byte for each chunk, found 0",
            ErrorKind.ZERO_LENGTH_CHUNK,
        )


def _invalid(expected: str) -> InvalidInputError:
    return InvalidInputError(f"virtual references: expected {expected}", ErrorKind.INVALID_VIRTUAL_REF)
