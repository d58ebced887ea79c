"""The keys of the zarr store, what they name, and the methods of the store for references.

Nodes may have the names ``c`` and ``0``. The last ``c`` before a sequence of numbers begins the coordinates
of a chunk. The parser does not check whether there is such an array with this number of dimensions. A path
can be a group, an array, or a part of the chunk grid of an array, such as ``t/c/0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from functools import lru_cache
from itertools import compress, repeat
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from frazil.errors import ErrorKind, InvalidInputError, SessionStateError
from frazil.repository.asynchronous import SyncAsyncIterator, awaitable
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.repository.session.session_methods import chunk_batches
from frazil.repository.session.virtual_refs import set_grid, set_one, set_some
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config import VirtualChunkSpec

if TYPE_CHECKING:
    from frazil.format.manifest import ChunkTable
    from frazil.format.snapshot import NodeTable


type Coords = tuple[int, ...]


class Document(Enum):
    """The kind of a key that does not name a chunk: a document of zarr version 3 or 2."""

    V3 = 3
    V2 = 2


_DOCUMENTS: Final = {
    "zarr.json": Document.V3,
    ".zgroup": Document.V2,
    ".zarray": Document.V2,
    ".zattrs": Document.V2,
    ".zmetadata": Document.V2,
}
_MAX_COORD: Final = 2**32 - 1


def parse_key(key: str) -> tuple[str, Coords | Document]:
    """Return the path of a node, and the document or the coordinates of the chunk that a key names."""
    # Chunks are the most frequent keys, so they are first. The slash is for an array at the root.
    try:
        parsed = _chunk(key) or _document(key) or _chunk("/" + key)
    except (AttributeError, TypeError):
        raise TypeError(f"key must be str, got {type(key).__name__}") from None
    if parsed is None:
        raise _invalid(key)
    return parsed


def parse_directory(path: str) -> tuple[str, Coords] | None:
    """Return the array whose chunks may be below a path, and the coordinates that these chunks share."""
    if path.endswith("/c"):
        return path.removesuffix("/c") or "/", ()
    return _chunk(path)


def document_keys(paths: list[str]) -> list[str]:
    """Return the keys of the documents of nodes."""
    return list(map(str.lstrip, map(str.__add__, paths, repeat("/zarr.json")), repeat("/")))


def chunk_keys(path: str, index: NDArray[np.uint32]) -> list[str]:
    """Return the keys of the chunks of an array at coordinates ``index`` of shape (n, ndim)."""
    prefix = f"{path}/c".lstrip("/")
    columns = [map(str, column) for column in index.T.tolist()]
    return list(map("/".join, zip(repeat(prefix, len(index)), *columns, strict=True)))


def _chunk(key: str) -> tuple[str, Coords] | None:
    prefix, separator, tail = key.rpartition("/c/")
    if not separator:
        return None
    # int() also accepts signs, blanks, underscores and the digits of other scripts.
    digits = tail.replace("/", "")
    if not (digits.isdecimal() and digits.isascii()):
        return None
    try:
        coords = tuple(map(int, tail.split("/")))
    except ValueError:  # an empty segment, or thousands of digits
        return None
    if len(tail) > 9 and max(coords) > _MAX_COORD:
        return None
    return _node(prefix), coords


def _document(key: str) -> tuple[str, Coords | Document] | None:
    prefix, _, name = key.rpartition("/")
    document = _DOCUMENTS.get(name)
    if document is not None:
        return _node(prefix), document
    return (_node(prefix), ()) if name == "c" else None


@lru_cache(4096)
def _node(prefix: str) -> str:
    """Return the path of a node for the text before its document or chunks."""
    if prefix.endswith("/"):
        raise _invalid(prefix)
    try:
        prefix.encode()
        return absolute(prefix)
    except (InvalidInputError, UnicodeEncodeError) as error:
        raise _invalid(prefix) from error


def _invalid(key: str) -> InvalidInputError:
    return InvalidInputError(
        f"a zarr key must be <node>/zarr.json, or <array>/c and the coordinates of a chunk, got {key!r}",
        ErrorKind.INVALID_KEY,
    )


def span(request: ByteRequest | None, size: int) -> tuple[int, int]:
    """Return the first byte and the end of a request for a value of ``size`` bytes, within the value."""
    match request:
        case None:
            return 0, size
        case RangeByteRequest(start, stop):
            least = min(start, stop)
        case OffsetByteRequest(start):
            stop, least = size, start
        case SuffixByteRequest(suffix):
            start, stop, least = max(size - suffix, 0), size, suffix
        case _:
            raise _invalid_request(request)
    if least < 0:
        raise _invalid_request(request)
    stop = min(stop, size)
    return min(start, stop), stop


def _invalid_request(request: object) -> InvalidInputError:
    return InvalidInputError(
        "byte_range must be a RangeByteRequest, OffsetByteRequest or SuffixByteRequest without negative "
        f"numbers. Unexpected byte_range, got {request!r}",
        ErrorKind.INVALID_BYTE_RANGE,
    )


def directory_of(prefix: str) -> str:
    """Return the path that a prefix of keys names."""
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be str, got {type(prefix).__name__}")
    return absolute(prefix.strip("/"))


def read_below(workspace: Workspace, path: str) -> tuple[NodeTable, list[tuple[str, Coords]]]:
    """Return the result of ``_below``, and record it as a read."""
    nodes, chunks = _below(workspace, path)
    workspace.note_tree(path if len(nodes) or not chunks else chunks[0][0])
    return nodes, chunks


def _below(workspace: Workspace, path: str) -> tuple[NodeTable, list[tuple[str, Coords]]]:
    """Return nodes at and below a path, and their arrays with the first coordinates of the chunks there."""
    nodes = workspace.node_table()
    row, inside = nodes.find_node(path), nodes.below(path)
    own_row = [] if row < 0 else [row]
    subtree = nodes.select_nodes(np.r_[own_row, np.arange(len(nodes))[inside]].astype(np.int64))
    arrays = compress(subtree.paths_list(), subtree.is_array.tolist())
    chunks: list[tuple[str, Coords]] = [(array, ()) for array in arrays]
    directory = parse_directory(path) if row < 0 else None
    if directory is not None and workspace.is_array(directory[0]):
        chunks.append(directory)
    return subtree, chunks


def chunks_from(workspace: Workspace, path: str, start: Coords) -> ChunkTable:
    """Return the references of an array whose coordinates begin with ``start``."""
    table = workspace.ref_table(path)
    if len(start) > table.ndim:
        return table.select_chunks(slice(0))
    if not start:
        return table
    return table.select_chunks((table.index[:, : len(start)] == np.array(start, np.uint32)).all(axis=1))


def names_below(workspace: Workspace, path: str) -> list[str]:
    """Return the names directly below a path."""
    node = workspace.node(path)
    workspace.note_tree(path, "members")
    if node is not None:
        own = ["zarr.json"] if node.array is None else ["zarr.json", "c"]
        return list(dict.fromkeys(own + workspace.children(path)))
    names = workspace.children(path)
    directory = parse_directory(path)
    if directory is not None and workspace.is_array(directory[0]):
        array, start = directory
        workspace.note_tree(array)
        index = chunks_from(workspace, array, start).index
        if len(start) < index.shape[1]:
            names += map(str, np.unique(index[:, len(start)]).tolist())
    return names


def delete_below(workspace: Workspace, path: str) -> None:
    """Delete nodes at and below a path, or the chunks in a part of an array."""
    workspace.delete_node(path)
    nodes, chunks = _below(workspace, path)
    # Without a node at the path itself, the nodes below it have no common ancestor to delete.
    for below in nodes.paths_list():
        workspace.delete_node(below)
    for array, start in chunks if not len(nodes) else ():
        table = chunks_from(workspace, array, start)
        if len(table):
            workspace.delete_refs(array, table.index)


#: In a class with a method ``list``, the name ``list`` means this method.
type _List[T] = list[T]
#: Coordinates, kinds, locations, offsets, lengths, and bytes of inline chunks by row.
type ChunkBatch = tuple[
    NDArray[np.uint32],
    NDArray[np.uint8],
    _List[str],
    NDArray[np.uint64],
    NDArray[np.uint64],
    dict[int, bytes],
]


class SessionStore(Store):
    """The base of ``IcechunkStore``: its session, and the methods for references to chunks."""

    _session: Session

    @property
    def session(self) -> Session:
        """The session that the store reads and writes."""
        return self._session

    def set_virtual_ref(
        self,
        key: str,
        location: str,
        *,
        offset: int,
        length: int,
        checksum: str | datetime | None = None,
        validate_container: bool = True,
    ) -> None:
        """Set a chunk to a range of bytes of an object outside of the repository, without reading the object.

        Args:
            key: Key of the chunk, for example ``array/c/0/1``.
            location: URL of the object, for example ``s3://bucket/path/file.nc``. It is stored unchanged,
                except that ``file:`` URLs are normalised.
            offset: First byte of the chunk in the object.
            length: Size of the chunk in bytes.
            checksum: Etag of the object, or a time after which the object must not change. A later read of a
                changed object raises an error. Default: no check.
            validate_container: Whether the repository must have a virtual chunk container for the location.
                Default: True.

        Raises:
            ReadOnlyError: The store or the session is read only.
            InvalidInputError: ``invalid-key``; ``invalid-virtual-ref`` for an invalid location or range;
                ``invalid-chunk-index`` for a chunk outside of the array's grid; ``zero-length-chunk``;
                ``no-container-for-virtual-chunk`` if there is no container for the location.
            SessionStateError: ``not-allowed`` for the key of a document.

        Specification: *ChunkRef*.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> url = "s3://bucket/file.nc"
            >>> store.set_virtual_ref("t/c/0", url, offset=512, length=8, validate_container=False)
            >>> store.session.all_virtual_chunk_locations()
            ['s3://bucket/file.nc']
        """
        self._check_writable()
        path, coords = parse_key(key)
        if isinstance(coords, Document):
            raise SessionStateError(f"key must be the key of a chunk, got {key!r}. Use set for metadata")
        workspace = self._session.workspace
        set_one(workspace, path, coords, location, offset, length, checksum, validate=validate_container)

    def set_virtual_refs(
        self, array_path: str, chunks: Sequence[VirtualChunkSpec], *, validate_containers: bool = True
    ) -> _List[tuple[int, ...]] | None:
        """Set many virtual chunks of one array.

        For a whole grid of chunks, ``set_virtual_refs_arr`` is much faster.

        Args:
            array_path: Path of the array.
            chunks: Chunks, each with its index in the grid, location, range and checksum.
            validate_containers: Whether to skip chunks without a virtual chunk container for their location.
                Default: True.

        Returns:
            The coordinates of the skipped chunks, or None if no chunk was skipped.

        Raises:
            ReadOnlyError: The store or the session is read only.
            IcechunkError: As in ``set_virtual_ref``, except ``no-container-for-virtual-chunk``.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> chunks = [frazil.VirtualChunkSpec([i], "s3://bucket/file.nc", 8 * i, 8) for i in range(2)]
            >>> store.set_virtual_refs("t", chunks)
            [(0,), (1,)]
            >>> store.set_virtual_refs("t", chunks, validate_containers=False) is None
            True
        """
        self._check_writable()
        return set_some(self._session.workspace, array_path, chunks, validate=validate_containers)

    def set_virtual_refs_arr(
        self,
        array_path: str,
        chunk_grid_shape: tuple[int, ...],
        locations: Sequence[str],
        offsets: NDArray[np.uint64],
        lengths: NDArray[np.uint64],
        *,
        validate_containers: bool = True,
        arr_offset: tuple[int, ...] | None = None,
        checksum: datetime | str | None = None,
    ) -> _List[tuple[int, ...]] | None:
        """Set a box of virtual chunks of one array from columns.

        The columns have one entry for each chunk of the box, in C order. A million references take
        about 0.2 s.

        Args:
            array_path: Path of the array.
            chunk_grid_shape: Number of chunks of the box along each dimension.
            locations: URLs of the objects. An empty text leaves its chunk unchanged.
            offsets: First byte of each chunk in its object. Integer array of shape (n,).
            lengths: Size of each chunk in bytes. Integer array of shape (n,).
            validate_containers: Whether to skip chunks without a virtual chunk container for their location.
                Default: True.
            arr_offset: Coordinates of the first chunk of the box. Default: zeros.
            checksum: Etag of all objects, or a time after which they must not change. Default: no check.

        Returns:
            The coordinates of the skipped chunks, or None if no chunk was skipped.

        Raises:
            ReadOnlyError: The store or the session is read only.
            IcechunkError: As in ``set_virtual_ref``, except ``no-container-for-virtual-chunk``.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> locations, offsets, lengths = ["s3://b/f"] * 2, np.array([0, 8]), np.array([8, 8])
            >>> store.set_virtual_refs_arr("t", (2,), locations, offsets, lengths, validate_containers=False)
            >>> store.session.all_virtual_chunk_locations()
            ['s3://b/f', 's3://b/f']
        """
        self._check_writable()
        box = (chunk_grid_shape, locations, offsets, lengths, arr_offset, checksum)
        return set_grid(self._session.workspace, array_path, *box, validate=validate_containers)

    set_virtual_ref_async: Final = awaitable(set_virtual_ref)
    set_virtual_refs_async: Final = awaitable(set_virtual_refs)
    set_virtual_refs_arr_async: Final = awaitable(set_virtual_refs_arr)

    def array_chunk_iterator(
        self, array_path: str, batch_size: int = 100_000
    ) -> SyncAsyncIterator[ChunkBatch]:
        """Iterate over the references of an array, in batches of columns.

        A group or a missing node has no references.

        Args:
            array_path: Path of the array.
            batch_size: Most references in one batch. Default: 100000.

        Returns:
            An object for ``for`` and for ``async for``. Each batch is a tuple: coordinates (uint32, shape (n,
            ndim)); kinds (uint8, numbers of ``ChunkType``); locations (the URL of a virtual chunk, the id of
            the chunk file of a native chunk, or '' for an inline chunk); offsets and lengths in bytes
            (uint64); and the bytes of inline chunks, by their row in the batch.

        Examples:
            >>> import frazil, zarr
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
            >>> [batch[0].tolist() for batch in store.array_chunk_iterator("/t")]
            [[[0], [1]]]
        """
        return SyncAsyncIterator(chunk_batches(self._session.workspace, array_path, batch_size))
