"""Functions that set virtual references of an array: one, several, or a whole grid as columns.

With validation, a single reference without a virtual chunk container is an error. Many references are set
except for those without a container, whose coordinates the functions return.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import compress, repeat
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frazil.chunks.virtual import Container, VirtualSources, normalized, normalized_all
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import Ragged, intern
from frazil.format.manifest import ChunkKind, ChunkTable, VirtualObjects, VirtualRef
from frazil.repository.paths import absolute
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config import VirtualChunkSpec

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_./:=,+@~\n-]")


def normalized_locations(
    sources: VirtualSources, locations: list[str], validate: bool
) -> tuple[list[str], NDArray[np.bool_]]:
    """Return the normalized locations, and which of them have a container."""
    has_container = np.zeros(len(locations), np.bool_)
    for container in sources.containers:
        has_container |= _is_plainly_in(container, locations)
    is_other = ~has_container
    if not is_other.any():
        return locations, has_container
    others = normalized_all(list(compress(locations, is_other.tolist())))
    has_container[is_other] = sources.matching(others) if validate else True
    stored = np.array(locations, object)
    stored[is_other] = others
    return stored.tolist(), has_container


def _is_plainly_in(container: Container, locations: list[str]) -> NDArray[np.bool_]:
    """Return which locations are surely normalized and start with the prefix of a container."""
    prefix = container.url_prefix
    inside = np.zeros(len(locations), np.bool_)
    if "://" not in prefix or not prefix.endswith("/") or prefix != normalized(prefix):
        return inside
    inside[:] = np.fromiter(map(str.startswith, locations, repeat(prefix)), np.bool_, len(locations))
    if container.is_local:
        text = "\n".join(compress(locations, inside.tolist()))
        if "/." in text or _UNUSUAL.search(text):
            inside[:] = False
    return inside


Checksum = str | datetime | None
Failed = list[tuple[int, ...]] | None

_MAX_U32: Final = 2**32 - 1
_MAX_U64: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, eq=False)
class VirtualRows:
    """References as columns, in any order.

    The chunk at the coordinates ``index[row]``, shape (n, ndim), is a range of the object
    ``locations[numbers[row]]``. The columns ``etags`` and ``modified`` have an entry for each location.
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
        """Return the rows of objects that share a checksum. Unused locations are dropped."""
        used, rows = np.unique(numbers, return_inverse=True)
        distinct = list(map(locations.__getitem__, used.tolist()))
        etags, modified = _checksums(checksum, len(distinct))
        return VirtualRows(index, distinct, rows, offsets, lengths, etags, modified)

    def table(self) -> ChunkTable:
        """Return the rows as a sorted table of references."""
        return ChunkTable(
            self.index,
            np.full(len(self.index), ChunkKind.VIRTUAL, np.uint8),
            self.numbers.astype(np.uint32, copy=False),
            self.offsets,
            self.lengths,
            np.zeros((0, 12), np.uint8),
            VirtualObjects(Ragged.of_text(self.locations), self.etags, self.modified),
            Ragged.empty(),
        ).sorted()


def set_one(
    workspace: Workspace,
    path: str,
    coords: tuple[int, ...],
    location: str,
    offset: int,
    length: int,
    checksum: Checksum,
    *,
    validate: bool,
) -> None:
    """Set one reference. See ``IcechunkStore.set_virtual_ref`` for the errors."""
    location = normalized(location)
    if validate:
        workspace.context.virtual.find_container(location)
    if not 0 <= offset <= _MAX_U64 or not 0 <= length <= _MAX_U64:
        raise _invalid(f"have an offset and a length of 64 bits, got {offset} and {length}")
    _require_lengths(length > 0, path)
    ref = VirtualRef(location, offset, length, *_checksum(checksum))
    workspace.set_ref(path, coords, ref)


def set_some(
    workspace: Workspace, array_path: str, chunks: Sequence[VirtualChunkSpec], *, validate: bool
) -> Failed:
    """Set references that are described one by one."""
    path = absolute(array_path)
    ndim = _rank(workspace, path)
    for chunk in chunks:
        if not isinstance(chunk, VirtualChunkSpec):
            raise TypeError(f"chunks must be VirtualChunkSpec, got {type(chunk).__name__}")
    index = [chunk.index for chunk in chunks]
    if any(map(ndim.__ne__, map(len, index))):
        raise InvalidInputError(
            f"the index of each chunk must have {ndim} coordinates, as many as `{path}` has dimensions",
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


def set_grid(
    workspace: Workspace,
    array_path: str,
    shape: Sequence[int],
    locations: Sequence[str],
    offsets: ArrayLike,
    lengths: ArrayLike,
    first: Sequence[int] | None,
    checksum: Checksum,
    *,
    validate: bool,
) -> Failed:
    """Set a box of references, as columns in C order.

    An empty location leaves its chunk as it is. ``first`` has the coordinates of the first chunk of the box;
    None stands for zeros. ``checksum`` is the checksum of all locations.

    Return the coordinates of the references without a container, which are not set, or None.
    """
    path = absolute(array_path)
    ndim, count = _rank(workspace, path), len(locations)
    columns = _column("offsets", offsets, count), _column("lengths", lengths, count)
    index = _box_index(tuple(map(int, shape)), count, first, path, ndim)
    distinct, numbers = intern(locations)
    rows = VirtualRows(index, distinct, numbers, *columns, *_checksums(checksum, len(distinct)))
    if "" in distinct:
        is_set = numbers != distinct.index("")
        begins, sizes = (each[is_set] for each in columns)
        rows = VirtualRows.of(index[is_set], distinct, numbers[is_set], begins, sizes, checksum)
    return set_rows(workspace, path, rows, validate=validate)


def _box_index(
    shape: tuple[int, ...], count: int, first: Sequence[int] | None, path: str, ndim: int
) -> NDArray[np.uint32]:
    """Return the coordinates of the chunks of a box, shape (n, ndim)."""
    if np.prod(shape, dtype=object) != count or min(shape, default=1) < 0:
        raise _invalid(
            f"have as many locations as chunk_grid_shape has chunks, got {count} locations for {shape}"
        )
    corner = (0,) * len(shape) if first is None else tuple(map(int, first))
    if len(shape) != ndim or len(corner) != ndim:
        raise InvalidInputError(
            f"chunk_grid_shape and arr_offset must have {ndim} numbers for `{path}`, got {shape}, {corner}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    if any(low < 0 or low + size - 1 > _MAX_U32 for low, size in zip(corner, shape, strict=True)):
        raise InvalidInputError(
            f"arr_offset must lead to coordinates of 32 bits, got {corner}", ErrorKind.INVALID_CHUNK_INDEX
        )
    index = np.empty((*shape, ndim), np.uint32)
    for axis, numbers in enumerate(np.indices(shape, np.uint32, sparse=True)):
        np.add(numbers, np.uint32(corner[axis]), out=index[..., axis])
    return index.reshape(math.prod(shape), ndim)


def set_rows(workspace: Workspace, array_path: str, rows: VirtualRows, *, validate: bool = True) -> Failed:
    """Set references that are described by columns."""
    path = absolute(array_path)
    _require_lengths(bool(rows.lengths.all()), path)
    if (rows.offsets > np.uint64(_MAX_U64) - rows.lengths).any():
        raise _invalid("have ranges that end below 2**64. Check the offsets and lengths")
    locations, has_container = normalized_locations(workspace.context.virtual, rows.locations, validate)
    table = replace(rows, locations=locations).table()
    if has_container.all():
        workspace.set_refs(path, table)
        return None
    is_valid = has_container[table.source]
    workspace.set_refs(path, table.select_chunks(is_valid))
    return list(map(tuple, table.index[~is_valid].tolist())) or None


def _checksums(checksum: Checksum, count: int) -> tuple[Ragged, NDArray[np.uint32]]:
    """Return the columns of ETags and times of ``count`` locations that share a checksum."""
    etag, modified = _checksum(checksum)
    etags = Ragged.of_text([etag or ""]).take(np.zeros(count, np.int64))
    return etags, np.full(count, modified or 0, np.uint32)


def _rank(workspace: Workspace, path: str) -> int:
    array = workspace.require_array(path).array_data
    return len(array.shape)


def _column(name: str, values: ArrayLike, count: int) -> NDArray[np.uint64]:
    column = np.asarray(values)
    if column.shape != (count,) or column.dtype.kind not in "iu":
        raise _invalid(f"have {count} integers as {name}, got {column.dtype} of shape {column.shape}")
    if column.dtype.kind == "i" and count and column.min() < 0:
        raise _invalid(f"have {name} that are not negative, got {column.min()}")
    return np.ascontiguousarray(column, np.uint64)


def _checksum(checksum: Checksum) -> tuple[str | None, int | None]:
    """Return a checksum as an etag or as seconds since 1970. Both are None without a checksum."""
    if checksum is None or isinstance(checksum, str):
        return checksum or None, None
    if not isinstance(checksum, datetime) or checksum.tzinfo is None:
        raise TypeError(f"checksum must be an etag or a datetime with a time zone, got {checksum!r}")
    seconds = int(checksum.timestamp())
    if not 0 < seconds <= _MAX_U32:
        raise _invalid(f"have a time of modification between 1970 and 2106, got {checksum}")
    return None, seconds


def _require_lengths(are_positive: bool, path: str) -> None:
    if not are_positive:
        raise InvalidInputError(
            f"virtual chunks of `{path}` must have at least 1 byte, got 0", ErrorKind.ZERO_LENGTH_CHUNK
        )


def _invalid(requirement: str) -> InvalidInputError:
    return InvalidInputError(f"virtual references must {requirement}", ErrorKind.INVALID_VIRTUAL_REF)
