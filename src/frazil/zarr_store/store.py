"""A zarr store over a session: zarr's keys become nodes, documents and chunk references.

    zarr ──key──> parse_key ──> Workspace ──> bytes at hand          documents, inline and pending chunks
                                          └─> reference ──> reader    a range of a file or object

Everything is decided synchronously; ``get`` awaits only where bytes come from a remote storage, and
``get_sync`` waits for them on its thread. zarr's ``FusedCodecPipeline`` uses the synchronous methods where
all storages involved are local.

Changes are seen at once by every store of the session, and by others after a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from collections.abc import Buffer as BytesLike
from datetime import datetime
from itertools import compress, starmap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from frazil.arguments import checks_arguments, unchecked
from frazil.display import Lines
from frazil.errors import (
    ErrorKind,
    IcechunkError,
    InvalidInputError,
    KeyNotFoundError,
    NodeNotFoundError,
    ReadOnlyStoreError,
    SessionStateError,
)
from frazil.repository.asynchronous import BothWays, awaitable, on_thread
from frazil.repository.paths import absolute
from frazil.repository.session.chunk_errors import chunk_error
from frazil.repository.session.chunk_listing import chunk_batches
from frazil.repository.session.chunk_view import size_of
from frazil.repository.session.frames import claimed_bytes, require_plausible
from frazil.repository.session.session import Session
from frazil.repository.session.virtual_refs import ByteRange, ChunkBox, set_grid, set_one, set_some
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.virtual_containers import VirtualChunkSpec
from frazil.zarr_store.keys import Coords, Document, chunk_keys, document_keys, parse_directory, parse_key
from frazil.zarr_store.ranges import span

if TYPE_CHECKING:
    from frazil.format.manifest import ChunkRef, ChunkTable
    from frazil.format.snapshot import NodeTable

#: ``list`` is a method of the store.
type _List[T] = list[T]
#: Coordinates, kinds, locations, offsets, lengths, and the bytes of inline chunks by row.
type ChunkBatch = tuple[
    NDArray[np.uint32],
    NDArray[np.uint8],
    _List[str],
    NDArray[np.uint64],
    NDArray[np.uint64],
    dict[int, bytes],
]
#: What to read: a reference, and the span of bytes within it.
type _Wanted = tuple[ChunkRef, int, int]


@checks_arguments
class IcechunkStore(Store):
    """A zarr store over a session; ``session.store`` makes it.

    Can be pickled if its session can: one that only reads, or a fork.

    >>> import frazil, zarr
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="first data") as store:
    ...     array = zarr.create_array(store, shape=(4,), chunks=(2,), dtype="i4")
    ...     array[:] = [1, 2, 3, 4]
    >>> zarr.open_array(repo.readonly_session("main").store)[1:3].tolist()
    [2, 3]
    """

    def __init__(self, session: Session, read_only: bool | None = None) -> None:
        super().__init__(read_only=session.read_only if read_only is None else read_only)
        self._session = session

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._session, self._read_only))

    def __eq__(self, value: object) -> bool:
        return isinstance(value, IcechunkStore) and self._session == value._session

    __hash__ = None  # type: ignore[assignment]  # equal by a session, which moves on

    def __repr__(self) -> str:
        session = self._session
        lines = ["<frazil.IcechunkStore>", f"read_only: {self._read_only}"]
        lines += [f"snapshot_id: {session.snapshot_id}", f"branch: {session.branch}"]
        return "\n".join(lines) + "\n"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """The store as HTML, for notebooks."""
        return Lines("frazil.IcechunkStore", repr(self))._repr_html_()

    @property
    def session(self) -> Session:
        return self._session

    def with_read_only(self, read_only: bool = False) -> IcechunkStore:
        """A store over the same session that refuses writes, or does not."""
        return IcechunkStore(self._session, read_only)

    @property
    def supports_writes(self) -> bool:
        return not self._read_only

    @property
    def supports_deletes(self) -> bool:
        return True

    @property
    def supports_listing(self) -> bool:
        return True

    @property
    def supports_consolidated_metadata(self) -> bool:
        """No: a snapshot already holds the metadata of all nodes in one file."""
        return False

    @property
    def _supports_sync_io(self) -> bool:
        """Whether reads return at once (zarr asks): one after the other, remote ones would take for ever."""
        context = self._session.workspace.context
        return context.storage.is_local and all(each.is_local for each in context.virtual.containers)

    # One value

    @unchecked
    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The value of a key, or a range of its bytes; None if it is not there.

        Ranges are clamped to the value. Raises ``InvalidInputError`` (``invalid-key``, ``not-an-array``,
        ``invalid-byte-range``), and what reading from the storage raises.
        """
        workspace = self._session.workspace
        if workspace.context.storage.is_local or _is_at_hand(workspace, key):
            value = _find(workspace, key, byte_range)
        else:
            value = await on_thread(_find, workspace, key, byte_range)
        if not isinstance(value, tuple):
            return None if value is None else _buffer(value, prototype)
        try:
            data = await workspace.chunks.read_ref_async(*value)
            _require_plausible(workspace, key, data)
        except IcechunkError as error:
            raise _of_chunk(workspace, key, value[0], error) from error.__cause__
        return _buffer(data, prototype)

    @unchecked
    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """``get`` without an event loop."""
        workspace = self._session.workspace
        value = _find(workspace, key, byte_range)
        if not isinstance(value, tuple):
            return None if value is None else _buffer(value, prototype)
        try:
            data = workspace.chunks.read_ref(*value)
            _require_plausible(workspace, key, data)
        except IcechunkError as error:
            raise _of_chunk(workspace, key, value[0], error) from error.__cause__
        return _buffer(data, prototype)

    @unchecked
    async def exists(self, key: str) -> bool:
        workspace = self._session.workspace
        path, what = _parsed(workspace, key)
        if what is Document.V3:
            return workspace.nodes.node(path) is not None
        if what is Document.V2:
            raise _no_version_2(key)
        return _ref(workspace, path, what) is not None

    async def getsize(self, key: str) -> int:
        """Number of bytes of a value; ``FileNotFoundError`` if it is not there."""
        workspace = self._session.workspace
        path, what = _parsed(workspace, key)
        if what is Document.V3:
            node = workspace.nodes.node(path)
            if node is not None:
                return len(node.user_data)
        elif what is not Document.V2:
            ref = _ref(workspace, path, what)
            if ref is not None:
                return size_of(ref)
        raise KeyNotFoundError(f"no value under the key {key!r}")

    @unchecked
    async def set(self, key: str, value: Buffer) -> None:
        """Write a document, verbatim, or a chunk; in storage it is when the session commits.

        Raises ``ReadOnlyError``; ``InvalidInputError`` (``invalid-key``, ``bad-metadata``, ``not-an-array``,
        ``zero-length-chunk``, or ``invalid-chunk-index`` outside of the array's grid); ``NodeNotFoundError``
        for chunks of no array; ``AlreadyExistsError`` for an array in the place of a group, or the reverse;
        ``SessionStateError`` (``unimplemented``) for keys of zarr version 2.
        """
        path, coords = self._enter_set(key, value)
        if coords is not None:
            await self._session.workspace.chunks.write_async(path, coords, value.as_numpy_array())

    @unchecked
    def set_sync(self, key: str, value: Buffer) -> None:
        """``set`` without an event loop."""
        path, coords = self._enter_set(key, value)
        if coords is not None:
            self._session.workspace.chunks.write(path, coords, value.as_numpy_array())

    def _enter_set(self, key: str, value: Buffer) -> tuple[str, Coords | None]:
        """Set a document, or say which chunk is to be written."""
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"value: expected a zarr Buffer, found {type(value).__name__}")
        path, what = parse_key(key)
        if what is Document.V3:
            self._session.workspace.nodes.set_node(path, value.to_bytes())
            return path, None
        if what is Document.V2:
            raise SessionStateError(
                f"{key!r} is a key of zarr version 2: only version 3 can be stored. Use zarr_format=3",
                ErrorKind.UNIMPLEMENTED,
            )
        return path, what

    @unchecked
    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    async def set_partial_values(self, key_start_values: Iterable[tuple[str, int, BytesLike]]) -> None:
        """Not possible: chunks are written whole."""
        raise SessionStateError(
            "a chunk can only be written whole: use set instead of set_partial_values",
            ErrorKind.UNIMPLEMENTED,
        )

    @unchecked
    async def delete(self, key: str) -> None:
        """Delete a chunk, or a node with everything below it; what is not there is no error."""
        self.delete_sync(key)

    @unchecked
    def delete_sync(self, key: str) -> None:
        """``delete`` without an event loop."""
        self._check_writable()
        path, what = parse_key(key)
        if what is Document.V3:
            self._session.workspace.nodes.delete_node(path)
        elif what is not Document.V2:
            self._session.workspace.chunks.delete_ref(path, what)

    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnlyStoreError("store was opened in read-only mode and does not support writing")
        self._session.require_writable()

    # Many values

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> _List[Buffer | None]:
        """A value or a range of one for each pair, None where there is none."""
        pairs = list(key_ranges)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise TypeError("key_ranges: expected pairs of a key and a range of bytes, or None")
        # Reads of one turn of the loop are fetched together: only whoever asked for a limit gets one.
        limit = self._session.workspace.context.config.get_partial_values_concurrency
        turns = asyncio.Semaphore(limit or len(pairs) or 1)

        async def one(key: str, request: ByteRequest | None) -> Buffer | None:
            async with turns:
                return await self.get(key, prototype, request)

        return await asyncio.gather(*starmap(one, pairs))

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None]]:
        requests = list(requests)
        values = await asyncio.gather(*[self.get(*request) for request in requests])
        for (key, _, _), value in zip(requests, values, strict=True):
            yield key, value

    async def get_ranges(
        self,
        key: str,
        byte_ranges: Sequence[ByteRequest | None],
        *,
        prototype: BufferPrototype,
        max_concurrency: int = 10,
        max_gap_bytes: int = 1 << 20,
        max_coalesced_bytes: int = 16 << 20,
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        """Ranges of one value in batches of (number, bytes); neighbours are read together.

        Raises an ``ExceptionGroup`` with a ``FileNotFoundError`` if the key is not there, as zarr expects it.
        """
        bounds = {"max_gap_bytes": max_gap_bytes, "max_coalesced_bytes": max_coalesced_bytes}
        if self._supports_sync_io:
            yield self.get_ranges_sync(key, byte_ranges, prototype=prototype, **bounds)
            return
        together = super().get_ranges(
            key, byte_ranges, prototype=prototype, max_concurrency=max_concurrency, **bounds
        )
        async for batch in together:
            yield batch

    # Below a prefix

    async def list(self) -> AsyncIterator[str]:
        """All keys: documents first, then chunks array by array."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys at and below a path; whole segments, so ``a`` does not list ``ab/zarr.json``."""
        workspace = self._session.workspace
        nodes, chunks = _read_below(workspace, _directory(prefix))
        for key in document_keys(nodes.paths_list()):
            yield key
        for path, start in chunks:
            for key in chunk_keys(path, (await self._off_loop(_chunks, workspace, path, start)).index):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly below a path. Those of an array are ``zarr.json`` and ``c``, chunks or not."""
        for name in await self._off_loop(_names, self._session.workspace, _directory(prefix)):
            yield name

    async def is_empty(self, prefix: str) -> bool:
        workspace = self._session.workspace
        nodes, chunks = _read_below(workspace, _directory(prefix))
        if len(nodes):
            return False
        return not any([len(await self._off_loop(_chunks, workspace, *each)) for each in chunks])

    async def getsize_prefix(self, prefix: str) -> int:
        """Number of bytes of all values at and below a path."""
        workspace = self._session.workspace
        nodes, chunks = _read_below(workspace, _directory(prefix))
        tables = [await self._off_loop(_chunks, workspace, *each) for each in chunks]
        return nodes.user_data.total() + sum(int(table.length.sum()) for table in tables)

    async def delete_dir(self, prefix: str) -> None:
        """Delete everything at and below a path; nothing happens if nothing is there."""
        self._check_writable()
        await self._off_loop(_delete, self._session.workspace, _directory(prefix))

    def sync_clear(self) -> None:
        """``clear`` without an event loop."""
        self._check_writable()
        _delete(self._session.workspace, "/")

    async def clear(self) -> None:
        """Delete all groups and arrays from this session; what was committed stays in the history."""
        self.sync_clear()

    async def _off_loop[**P, R](self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call what may read manifests: at once if they are local, else on a thread."""
        if self._session.workspace.context.storage.is_local:
            return function(*args, **kwargs)
        return await on_thread(function, *args, **kwargs)

    # Virtual chunks

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
        """Make a chunk a range of somebody else's object, without reading it.

        ``location`` is a URL (``s3://bucket/path/file.nc``), kept verbatim; ``offset`` and ``length`` are
        bytes. ``checksum`` is the object's etag, or the time after which it must not have been modified:
        reading another version of it is an error.

        Raises ``InvalidInputError`` (``invalid-key``, ``invalid-virtual-ref``, ``invalid-chunk-index``,
        ``zero-length-chunk``; ``no-container-for-virtual-chunk`` unless ``validate_container`` is false),
        ``SessionStateError`` (``not-allowed``) for keys of metadata.
        """
        self._check_writable()
        path, coords = parse_key(key)
        if isinstance(coords, Document):
            raise SessionStateError(
                f"expected the key of a chunk, found {key!r}: use set for metadata", ErrorKind.NOT_ALLOWED
            )
        workspace = self._session.workspace
        source = ByteRange(location, offset, length, checksum)
        set_one(workspace, path, coords, source, validate=validate_container)

    def set_virtual_refs(
        self, array_path: str, chunks: Sequence[VirtualChunkSpec], *, validate_containers: bool = True
    ) -> _List[tuple[int, ...]] | None:
        """Set many virtual chunks of one array.

        Returns None, or the coordinates of those that were left out since no virtual chunk container matches
        their location. For whole grids of chunks ``set_virtual_refs_arr`` is much faster.
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
        """Set a box of virtual chunks of one array, given as columns.

        ``chunk_grid_shape`` is the number of chunks along each dimension of the box, ``arr_offset`` its first
        chunk (zeros if not given). ``locations``, ``offsets`` and ``lengths`` (integers, bytes) have an entry
        for each chunk, in C order; an empty location leaves its chunk as it is. ``checksum`` holds for all.

        Returns None, or the coordinates of the chunks that were left out since no virtual chunk container
        matches their location. A million references take about 0.2 s.
        """
        self._check_writable()
        box = ChunkBox(chunk_grid_shape, locations, offsets, lengths, arr_offset, checksum)
        return set_grid(self._session.workspace, array_path, box, validate=validate_containers)

    set_virtual_ref_async = awaitable(set_virtual_ref)
    set_virtual_refs_async = awaitable(set_virtual_refs)
    set_virtual_refs_arr_async = awaitable(set_virtual_refs_arr)

    def array_chunk_iterator(self, array_path: str, batch_size: int = 100_000) -> BothWays[ChunkBatch]:
        """The references of an array in batches of columns, for ``for`` as well as for ``async for``; nothing
        for a group or a missing node.

        Coordinates (uint32, of shape (n, ndim)); kinds (uint8), numbered as ``ChunkType``; locations: a URL
        for a virtual chunk, the id of the chunk file for a native one, '' for an inline one; offsets and
        lengths (uint64); and the bytes of inline chunks by their row in the batch.
        """
        return BothWays(chunk_batches(self._session.workspace, array_path, batch_size))


def _is_at_hand(workspace: Workspace, key: str) -> bool:
    """Whether a key can be found without a request, which would hold up the event loop."""
    path, what = parse_key(key)
    return workspace.chunks.is_cached(path, what if isinstance(what, tuple) else ())


def _find(workspace: Workspace, key: str, request: ByteRequest | None) -> BytesLike | _Wanted | None:
    """The bytes of a document, or where to read those of a chunk; None if it is not there."""
    path, what = _parsed(workspace, key)
    if isinstance(what, tuple):
        ref = workspace.chunks.ref(path, what)
        if ref is not None:
            return ref, *span(request, size_of(ref))
        _require_no_group(workspace, path)
        return None
    node = workspace.nodes.node(path) if what is Document.V3 else None
    if node is None:
        return None
    start, stop = span(request, len(node.user_data))
    return memoryview(node.user_data)[start:stop]


def _parsed(workspace: Workspace, key: str) -> tuple[str, Coords | Document]:
    """What is about to be read; it is noted, if the session tracks that."""
    path, what = parse_key(key)
    if workspace.reads is not None:
        if isinstance(what, tuple):
            workspace.notes.note_chunk(path, what)
        elif what is Document.V3:
            workspace.notes.note_document(path)
    return path, what


def _require_plausible(workspace: Workspace, key: str, data: BytesLike) -> None:
    """``FormatError`` for a chunk that says that it is larger than one of its array can be."""
    claimed = claimed_bytes(data)
    if claimed is None:
        return
    node = workspace.nodes.node(parse_key(key)[0])
    if node is not None:
        require_plausible(key, node.user_data, data, claimed)


def _of_chunk(workspace: Workspace, key: str, ref: ChunkRef, error: IcechunkError) -> IcechunkError:
    """An error of reading a value, with the chunk in its text."""
    path, coords = parse_key(key)
    assert isinstance(coords, tuple)  # documents are at hand
    return chunk_error(workspace, path, coords, ref, error)


def _ref(workspace: Workspace, path: str, coords: Coords) -> ChunkRef | None:
    ref = workspace.chunks.ref(path, coords)
    if ref is None:
        _require_no_group(workspace, path)
    return ref


def _require_no_group(workspace: Workspace, path: str) -> None:
    """Chunks that are not there are common, those of a group are a mistake."""
    if not workspace.nodes.is_array(path) and workspace.nodes.node(path) is not None:
        raise InvalidInputError(
            f"expected an array at `{path}`, found a group: name an array in it", ErrorKind.NOT_AN_ARRAY
        )


def _buffer(data: BytesLike, prototype: BufferPrototype | None) -> Buffer:
    if prototype is not None and not isinstance(prototype, BufferPrototype):
        raise TypeError(f"prototype: expected a BufferPrototype, found {type(prototype).__name__}")
    # zarr's type says bytes; what it needs is a buffer that numpy can look at.
    return (prototype or default_buffer_prototype()).buffer.from_bytes(memoryview(data))


def _no_version_2(key: str) -> NodeNotFoundError:
    return NodeNotFoundError(
        f"{key!r} is a key of zarr version 2, and the store has only version 3: use zarr_format=3",
        ErrorKind.KEY_NOT_FOUND,
    )


def _directory(prefix: str) -> str:
    if not isinstance(prefix, str):
        raise TypeError(f"prefix: expected str, found {type(prefix).__name__}")
    return absolute(prefix.strip("/"))


def _read_below(workspace: Workspace, path: str) -> tuple[NodeTable, list[tuple[str, Coords]]]:
    """``_below``, to look at what is there."""
    nodes, chunks = _below(workspace, path)
    workspace.notes.note_tree(path if len(nodes) or not chunks else chunks[0][0])
    return nodes, chunks


def _below(workspace: Workspace, path: str) -> tuple[NodeTable, list[tuple[str, Coords]]]:
    """Nodes at and below a path; their arrays, each with the coordinates that its chunks there start with."""
    nodes = workspace.nodes.node_table()
    row, inside = nodes.find_node(path), nodes.below(path)
    own_row = [] if row < 0 else [row]
    subtree = nodes.select_nodes(np.r_[own_row, np.arange(len(nodes))[inside]].astype(np.int64))
    arrays = compress(subtree.paths_list(), subtree.is_array.tolist())
    chunks: list[tuple[str, Coords]] = [(array, ()) for array in arrays]
    directory = parse_directory(path) if row < 0 else None
    if directory is not None and workspace.nodes.is_array(directory[0]):
        chunks.append(directory)
    return subtree, chunks


def _chunks(workspace: Workspace, path: str, start: Coords) -> ChunkTable:
    """References of an array whose coordinates start with ``start``."""
    table = workspace.chunks.ref_table(path)
    if len(start) > table.ndim:
        return table.select_chunks(slice(0))
    if not start:
        return table
    return table.select_chunks((table.index[:, : len(start)] == np.array(start, np.uint32)).all(axis=1))


def _names(workspace: Workspace, path: str) -> list[str]:
    """Names directly below a path."""
    node = workspace.nodes.node(path)
    workspace.notes.note_members(path)
    if node is not None:
        own = ["zarr.json"] if node.array is None else ["zarr.json", "c"]
        return list(dict.fromkeys(own + workspace.nodes.children(path)))
    names = workspace.nodes.children(path)
    directory = parse_directory(path)
    if directory is not None and workspace.nodes.is_array(directory[0]):
        array, start = directory
        workspace.notes.note_tree(array)
        index = _chunks(workspace, array, start).index
        if len(start) < index.shape[1]:
            names += map(str, np.unique(index[:, len(start)]).tolist())
    return names


def _delete(workspace: Workspace, path: str) -> None:
    """Delete nodes at and below a path, or the chunks of a part of an array."""
    workspace.nodes.delete_node(path)
    nodes, chunks = _below(workspace, path)
    # Without a node at the path itself, what is below it has no common ancestor to delete.
    for below in nodes.paths_list():
        workspace.nodes.delete_node(below)
    for array, start in chunks if not len(nodes) else ():
        gone = _chunks(workspace, array, start)
        if len(gone):
            workspace.chunks.delete_refs(array, gone.index)
