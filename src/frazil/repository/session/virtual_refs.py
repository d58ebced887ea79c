"""Virtual references of an array: one, some, or a whole grid of them set as columns; all of them listed.

A location is kept verbatim, or normalised where it is a ``file:`` URL. With validation a location has to
have a virtual chunk container; a single reference without one is an error, of many those without one are
left out and reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import compress, repeat
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frazil.chunks.virtual import Container, VirtualSources, normalized
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import Ragged, intern
from frazil.format.ids import ids_to_text
from frazil.format.manifest import ChunkKind, ChunkTable, ForeignObjects, VirtualRef
from frazil.repository.paths import absolute
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.virtual_containers import VirtualChunkSpec

Checksum = str | datetime | None
Failed = list[tuple[int, ...]] | None

_MAX_U32: Final = 2**32 - 1
_MAX_U64: Final = 2**64 - 1


def set_one(
    workspace: Workspace,
    path: str,
    coords: tuple[int, ...],
    location: str,
    offset: int,
    length: int,
    checksum: Checksum,
    validate: bool,
) -> None:
    """Set one reference; ``IcechunkStore.set_virtual_ref`` tells the errors."""
    location = normalized(location)
    if validate:
        workspace.context.virtual.find_container(location)
    if not 0 <= offset <= _MAX_U64 or not 0 <= length <= _MAX_U64:
        raise _invalid(f"an offset and a length of 64 bits, found {offset} and {length}")
    _require_bytes(length > 0, path)
    workspace.chunks.set_ref(path, coords, VirtualRef(location, offset, length, *_checksum(checksum)))


def set_some(
    workspace: Workspace, array_path: str, chunks: Sequence[VirtualChunkSpec], validate: bool
) -> Failed:
    """Set references one by one described; the coordinates of those without a container, or None."""
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
    told = [_checksum(chunk.etag_checksum or chunk.last_updated_at_checksum) for chunk in chunks]
    distinct, numbers = intern([(chunk.location, *each) for chunk, each in zip(chunks, told, strict=True)])
    return _set(
        workspace,
        path,
        np.array(index, np.uint32).reshape(len(index), ndim),
        [location for location, _, _ in distinct],
        numbers,
        np.array([chunk.offset for chunk in chunks], np.uint64),
        np.array([chunk.length for chunk in chunks], np.uint64),
        Ragged.of_text([etag or "" for _, etag, _ in distinct]),
        np.array([modified or 0 for _, _, modified in distinct], np.uint32),
        validate,
    )


def set_grid(
    workspace: Workspace,
    array_path: str,
    grid: Sequence[int],
    locations: Sequence[str],
    offsets: ArrayLike,
    lengths: ArrayLike,
    validate: bool,
    first: Sequence[int] | None,
    checksum: Checksum,
) -> Failed:
    """Set a box of references given as columns; the coordinates of those without a container, or None."""
    path = absolute(array_path)
    ndim, count = _rank(workspace, path), len(locations)
    starts, sizes = _column("offsets", offsets, count), _column("lengths", lengths, count)
    shape = tuple(map(int, grid))
    if np.prod(shape, dtype=object) != count or min(shape, default=1) < 0:
        raise _invalid(f"{count} locations for a chunk_grid_shape of {shape}: their numbers have to agree")
    corner = tuple(map(int, first)) if first is not None else (0,) * len(shape)
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
    distinct, numbers = intern(locations)
    index = _grid_index(shape, corner)
    if "" in distinct:
        missing = distinct.index("")
        there = numbers != missing
        index, numbers, starts, sizes = index[there], numbers[there], starts[there], sizes[there]
        del distinct[missing]
        numbers = numbers - (numbers > missing)
    etags, times = _checksums(checksum, len(distinct))
    return _set(workspace, path, index, distinct, numbers, starts, sizes, etags, times, validate)


def set_rows(
    workspace: Workspace,
    array_path: str,
    index: NDArray[np.uint32],
    locations: Sequence[str],
    numbers: NDArray[np.uint32],
    offsets: NDArray[np.uint64],
    lengths: NDArray[np.uint64],
    checksum: Checksum,
) -> Failed:
    """Set references to ``locations[numbers]`` at the coordinates ``index``, shape (n, ndim), in any order.

    Returns the coordinates of those without a container, which are left out, or None. A location that no row
    uses costs nothing.
    """
    used, rows = np.unique(numbers, return_inverse=True)
    distinct = list(map(locations.__getitem__, used.tolist()))
    etags, times = _checksums(checksum, len(distinct))
    sources = rows.astype(np.uint32)
    return _set(
        workspace, absolute(array_path), index, distinct, sources, offsets, lengths, etags, times, True
    )


def _checksums(checksum: Checksum, count: int) -> tuple[Ragged, NDArray[np.uint32]]:
    """The columns of ETags and times of ``count`` locations that share a checksum."""
    etag, modified = _checksum(checksum)
    etags = Ragged.of_text([etag or ""]).take(np.zeros(count, np.int64))
    return etags, np.full(count, modified or 0, np.uint32)


def _set(
    workspace: Workspace,
    path: str,
    index: NDArray[np.uint32],
    locations: list[str],
    numbers: NDArray[np.uint32],
    offsets: NDArray[np.uint64],
    lengths: NDArray[np.uint64],
    etags: Ragged,
    modified: NDArray[np.uint32],
    validate: bool,
) -> Failed:
    """Set references to ``locations[numbers]``; those without a container are left out and returned."""
    _require_bytes(bool(lengths.all()), path)
    if (offsets > np.uint64(_MAX_U64) - lengths).any():
        raise _invalid("ranges that end below 2**64")
    locations, known = _normalized(workspace.context.virtual, locations, validate)
    table = ChunkTable(
        index,
        np.full(len(index), ChunkKind.VIRTUAL, np.uint8),
        numbers.astype(np.uint32, copy=False),
        offsets,
        lengths,
        np.zeros((0, 12), np.uint8),
        ForeignObjects(Ragged.of_text(locations), etags, modified),
        Ragged.empty(),
    ).sorted()
    if known.all():
        workspace.chunks.set_refs(path, table)
        return None
    good = known[table.source]
    workspace.chunks.set_refs(path, table.select_chunks(good))
    return list(map(tuple, table.index[~good].tolist())) or None


def _normalized(
    sources: VirtualSources, locations: list[str], validate: bool
) -> tuple[list[str], NDArray[np.bool_]]:
    """Distinct locations as they are kept, and which of them have a container (all, if none is asked for)."""
    known = np.zeros(len(locations), np.bool_)
    for container in sources.containers:
        known |= _plainly_in(container, locations)
    rest = np.flatnonzero(~known).tolist()
    if not rest:
        return locations, known
    kept = list(locations)
    others = list(map(normalized, map(locations.__getitem__, rest)))
    for row, location in zip(rest, others, strict=True):
        kept[row] = location
    known[rest] = sources.matching(others) if validate else True
    return kept, known


def _plainly_in(container: Container, locations: list[str]) -> NDArray[np.bool_]:
    """Locations that need no closer look: normalized, and starting with the prefix of a container.

    Millions of them are looked at in a few calls. Those of files are normalized for sure if none of them has
    unusual characters, or a segment that starts with a dot.
    """
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


_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_./:=,+@~\n-]")


def chunk_batches(workspace: Workspace, array_path: str, batch_size: int) -> Iterator[tuple[Any, ...]]:
    """All references of an array, native and inline ones as well, in batches of columns.

    Nothing for a group or a missing node; ``IcechunkStore.array_chunk_iterator`` tells what a batch is.
    """
    if batch_size < 1:
        raise InvalidInputError(f"batch_size: expected at least 1, found {batch_size}", ErrorKind.NOT_ALLOWED)
    path = absolute(array_path)
    workspace.notes.note_tree(path)
    node = workspace.nodes.node(path)
    if node is None or node.array is None:
        return
    table = workspace.chunks.ref_table(node.path)
    native = ids_to_text(table.chunk_ids)
    foreign = workspace.context.virtual.urls(table.foreign.locations.texts())
    names: dict[int, list[str]] = {ChunkKind.NATIVE: native, ChunkKind.VIRTUAL: foreign}
    for start in range(0, len(table), batch_size):
        part = table.select_chunks(slice(start, start + batch_size))
        locations = np.full(len(part), "", object)
        for kind, texts in names.items():
            rows = part.kind == kind
            locations[rows] = list(map(texts.__getitem__, part.source[rows].tolist()))
        inline = np.flatnonzero(part.kind == ChunkKind.INLINE)
        blobs = part.inline.take(part.source[inline]).blobs()
        inlined = dict(zip(inline.tolist(), blobs, strict=True))
        yield part.index, part.kind, locations.tolist(), part.offset, part.length, inlined


def _grid_index(shape: tuple[int, ...], corner: tuple[int, ...]) -> NDArray[np.uint32]:
    """Coordinates of a box of chunks in C order, (n, ndim)."""
    count = math.prod(shape)  # not -1: an array without dimensions has one chunk
    index = np.indices(shape, np.uint32, sparse=False).reshape(len(shape), count).T
    return np.ascontiguousarray(index + np.array(corner, np.uint32))


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
    """An etag, or seconds since 1970; or neither."""
    if checksum is None or isinstance(checksum, str):
        return checksum or None, None
    if not isinstance(checksum, datetime) or checksum.tzinfo is None:
        raise TypeError(f"checksum: expected an etag or a datetime with a time zone, found {checksum!r}")
    seconds = int(checksum.timestamp())
    if not 0 < seconds <= _MAX_U32:
        raise _invalid(f"a time of modification between 1970 and 2106, found {checksum}")
    return None, seconds


def _require_bytes(there: bool, path: str) -> None:
    if not there:
        raise InvalidInputError(
            f"`{path}`: expected a length of at least 1 byte for each chunk, found 0",
            ErrorKind.ZERO_LENGTH_CHUNK,
        )


def _invalid(expected: str) -> InvalidInputError:
    return InvalidInputError(f"virtual references: expected {expected}", ErrorKind.INVALID_VIRTUAL_REF)
