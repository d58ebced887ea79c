"""The zarr store of a session: zarr's keys become nodes, documents and chunk references.

All decisions are synchronous. ``get`` awaits only bytes from a remote storage, ``get_sync`` waits for them on
its thread. Every store of the session sees changes immediately, other sessions see them after a commit.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from collections.abc import Buffer as BytesLike
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Any, override

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, cpu, default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from frazil.arguments import checks_arguments, unchecked
from frazil.cf import missing_element_of
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
from frazil.repository.asynchronous import on_thread
from frazil.repository.paths import absolute
from frazil.repository.session.chunk_refs import chunk_error, claimed_bytes, require_plausible
from frazil.repository.session.session import Session, state_of
from frazil.repository.session.workspace import Workspace, size_of
from frazil.zarr_pipeline import prefer_bulk_pipeline
from frazil.zarr_store.array_metadata import array_metadata, stored_metadata
from frazil.zarr_store.references import (
    Coords,
    Document,
    SessionStore,
    chunk_keys,
    chunks_from,
    delete_below,
    directory_of,
    document_keys,
    names_below,
    parse_key,
    read_below,
    span,
)

if TYPE_CHECKING:
    from frazil.format.manifest import ChunkRef


@dataclass(slots=True)
class ChunkDecoder:
    """A decoder of the chunks of an array.

    zarr decodes chunks while it reads from a store. So the decoder puts the bytes into a store in memory, and
    reads the chunk as a block. Codecs of shards check all inner chunks in this way.
    """

    array: zarr.Array[Any]
    chunks: dict[str, Any] = field(default_factory=dict)

    def decoded(self, coords: Coords, data: BytesLike) -> NDArray[Any]:
        """Return the elements of the chunk at ``coords`` that the array has. Raises errors of any class."""
        key = chunk_keys(f"/{self.array.store_path.path}", np.array([coords], np.uint32))[0]
        self.chunks[key] = cpu.Buffer.from_bytes(bytes(data))
        try:
            read = self.array.get_block_selection if coords else self.array.get_basic_selection
            return np.asarray(read(coords))
        finally:
            del self.chunks[key]

    def error(self, coords: Coords, data: BytesLike) -> Exception | None:
        """Return the error of the codecs for the chunk at ``coords``, or None if they decode it."""
        try:
            self.decoded(coords, data)
        except Exception as error:  # codecs raise errors of any class
            return error
        return None

    def missing_element(self) -> Any:
        """Return the element that readers decode as a missing value, or None if the array has none."""
        return missing_element_of(self.array.attrs.asdict(), self.array.dtype)

    def encoded(self, coords: Coords, element: Any) -> bytes:
        """Return a chunk with one element everywhere. No bytes if it is the fill value."""
        try:
            if coords:
                self.array.set_block_selection(coords, element)
            else:
                self.array.set_basic_selection((), element)
            return b"".join(each.to_bytes() for each in self.chunks.values())
        finally:
            self.chunks.clear()


def open_array(store: Store, path: str, mode: Any = "r") -> zarr.Array[Any]:
    """Open an array. Raises the errors of ``array_metadata``."""
    if isinstance(store, IcechunkStore) and (mode == "r" or (mode == "r+" and not store.read_only)):
        with suppress(Exception):  # zarr raises the error
            return _opened(store, path.strip("/"), mode)
    try:
        return zarr.open_array(store, path=path.strip("/"), mode=mode, zarr_format=3)
    except Exception:  # zarr and its registries raise errors of any class
        node = store.session.workspace.node(absolute(path)) if isinstance(store, IcechunkStore) else None
        if node is not None and node.array is not None:
            array_metadata(node.user_data, node.path)
        raise


def _opened(store: IcechunkStore, path: str, mode: str) -> zarr.Array[Any]:
    """Return an array from its document, as zarr opens it, but without an event loop."""
    document = store.get_sync(f"{path}/zarr.json".lstrip("/"))
    if document is None:
        raise NodeNotFoundError(f"`/{path}` must be a node, got none")
    metadata = copy.copy(stored_metadata(document.to_bytes(), f"/{path}"))
    # A change of attributes changes the mapping.
    object.__setattr__(metadata, "attributes", copy.deepcopy(metadata.attributes))
    place = StorePath(store if mode != "r" or store.read_only else store.with_read_only(True), path)
    return zarr.Array(zarr.AsyncArray(metadata, place))


def chunk_decoder(store: Store, path: str) -> ChunkDecoder:
    """Return a decoder of the chunks of the array at ``path``."""
    array = open_array(store, path)
    chunks: dict[str, Any] = {}
    place = StorePath(MemoryStore(chunks), array.store_path.path)
    return ChunkDecoder(zarr.Array(zarr.AsyncArray(array.metadata, place)), chunks)


#: In the class, the name ``list`` means the method of the store.
type _List[T] = list[T]
#: A reference, and the first byte and the end of the range to read.
type _RefRange = tuple[ChunkRef, int, int]


@checks_arguments
class IcechunkStore(SessionStore):
    """The zarr store of a session. ``session.store`` returns it.

    It implements ``zarr.abc.store.Store`` for zarr format 3. It can be pickled if its session can be pickled:
    a read-only session or a fork.

    Args:
        session: Session that the store reads and writes.
        read_only: Whether the store refuses writes. Default: as the session was opened.

    Examples:
        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="first data") as store:
        ...     array = zarr.create_array(store, shape=(4,), chunks=(2,), dtype="i4")
        ...     array[:] = [1, 2, 3, 4]
        >>> zarr.open_array(repo.readonly_session("main").store)[1:3].tolist()
        [2, 3]
        >>> import asyncio
        >>> store = repo.readonly_session("main").store
        >>> asyncio.run(store.exists("zarr.json")), asyncio.run(store.getsize_prefix("c")) > 0
        (True, True)
    """

    #: A read-only store raises an error for a deletion.
    supports_deletes = True
    supports_listing = True
    supports_partial_writes = False  # zarr before 3.1.2 asks
    #: A snapshot holds the metadata of all nodes in one file.
    supports_consolidated_metadata = False

    def __init__(self, session: Session, read_only: bool | None = None) -> None:
        if read_only is None:
            # After a commit, writes raise the error of the session, which says what to do.
            read_only = session.read_only and state_of(session).branch is None
        super().__init__(read_only=read_only)
        self._session = session
        prefer_bulk_pipeline()

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._session, self._read_only))

    def __eq__(self, value: object) -> bool:
        return isinstance(value, IcechunkStore) and self._session == value._session

    __hash__ = None  # type: ignore[assignment]  # equality depends on the session, which is mutable

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return self._session.__dask_tokenize__()

    def __repr__(self) -> str:
        session = self._session
        lines = ["<frazil.IcechunkStore>", f"read_only: {self._read_only}"]
        lines += [f"snapshot_id: {session.snapshot_id}", f"branch: {session.branch}"]
        return "\n".join(lines) + "\n"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return the store as HTML, for notebooks."""
        return Lines("frazil.IcechunkStore", repr(self))._repr_html_()

    @override
    def with_read_only(self, read_only: bool = False) -> IcechunkStore:
        """Return a store of the same session that refuses or allows writes."""
        return IcechunkStore(self._session, read_only)

    @property
    @override
    def supports_writes(self) -> bool:
        """Whether the store allows writes."""
        return not self._read_only

    @property
    def _supports_sync_io(self) -> bool:
        """Whether reads return at once. zarr then reads one chunk after the other without an event loop."""
        return self._session.workspace.context.is_local

    # One value

    @unchecked
    @override
    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the value of a key, or a range of its bytes."""
        workspace = self._session.workspace
        if workspace.context.storage.is_local or _is_at_hand(workspace, key):
            value = _find(workspace, key, byte_range)
        else:
            value = await on_thread(_find, workspace, key, byte_range)
        if not isinstance(value, tuple):
            return None if value is None else _buffer(value, prototype)
        try:
            data = await workspace.read_ref_async(*value)
            _require_plausible(workspace, key, data)
        except IcechunkError as error:
            raise _of_chunk(workspace, key, value[0], error) from error.__cause__
        return _buffer(data, prototype)

    @unchecked
    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Do the same as ``get``, without an event loop.

        Args:
            key: Key of a document or a chunk.
            prototype: Kind of the buffer. Default: zarr's default.
            byte_range: Range of bytes, limited to the size of the value. Default: the whole value.

        Returns:
            The bytes, or None if there is no value.

        Raises:
            IcechunkError: As in ``get``.

        Examples:
            >>> import frazil, zarr
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> group = zarr.create_group(store)
            >>> store.get_sync("zarr.json").to_bytes()[:1], store.get_sync("missing/zarr.json")
            (b'{', None)
        """
        workspace = self._session.workspace
        value = _find(workspace, key, byte_range)
        if not isinstance(value, tuple):
            return None if value is None else _buffer(value, prototype)
        try:
            data = workspace.read_ref(*value)
            _require_plausible(workspace, key, data)
        except IcechunkError as error:
            raise _of_chunk(workspace, key, value[0], error) from error.__cause__
        return _buffer(data, prototype)

    def chunk_decoder(self, array_path: str) -> ChunkDecoder:
        """Return a decoder for the bytes of the chunks of an array.

        Args:
            array_path: Path of the array.

        Returns:
            A decoder, whose method ``error`` returns the error of the codecs, or None.

        Raises:
            InvalidInputError: ``not-an-array`` for a group; ``invalid-path`` for a text that is not a path.
            NodeNotFoundError: ``node-not-found`` if there is no node at the path.
            MissingExtraError: ``missing-extra`` for a codec whose package is not installed.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i2", compressors=None)
            >>> repo.readonly_session("main").store.chunk_decoder("/t").error((0,), b"1234") is None
            True
        """
        node = self._session.workspace.require_array(absolute(array_path))
        return chunk_decoder(self, node.path)

    @unchecked
    @override
    async def exists(self, key: str) -> bool:
        """Return whether there is a value under a key."""
        workspace = self._session.workspace
        path, what = _parsed(workspace, key)
        if what is Document.V3:
            return workspace.node(path) is not None
        if what is Document.V2:
            raise NodeNotFoundError(
                f"{key!r} is a key of zarr version 2, and the store supports only version 3. Use "
                "zarr_format=3",
                ErrorKind.KEY_NOT_FOUND,
            )
        return _ref(workspace, path, what) is not None

    @override
    async def getsize(self, key: str) -> int:
        """Return the size of a value in bytes."""
        value = _find(self._session.workspace, key, None)
        if value is None:
            raise KeyNotFoundError(f"no value under the key {key!r}")
        return value[2] if isinstance(value, tuple) else memoryview(value).nbytes

    @unchecked
    @override
    async def set(self, key: str, value: Buffer) -> None:
        """Write a document or a chunk. The change becomes durable when the session commits.

        A document is stored byte for byte.
        """
        path, coords = self._enter_set(key, value)
        if coords is not None:
            await self._session.workspace.write_chunk_async(path, coords, value.as_numpy_array())

    @unchecked
    def set_sync(self, key: str, value: Buffer) -> None:
        """Do the same as ``set``, without an event loop.

        Args:
            key: Key of a document or a chunk.
            value: Bytes of the value.

        Raises:
            IcechunkError: As in ``set``.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> store = repo.writable_session("main").store
            >>> document = b'{"zarr_format": 3, "node_type": "group"}'
            >>> store.set_sync("data/zarr.json", zarr.core.buffer.cpu.Buffer.from_bytes(document))
            >>> store.get_sync("data/zarr.json").to_bytes() == document
            True
        """
        path, coords = self._enter_set(key, value)
        if coords is not None:
            self._session.workspace.write_chunk(path, coords, value.as_numpy_array())

    def _enter_set(self, key: str, value: Buffer) -> tuple[str, Coords | None]:
        """Set a document, or return the chunk to write."""
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"value must be a zarr Buffer, got {type(value).__name__}")
        path, what = parse_key(key)
        if what is Document.V3:
            self._session.workspace.set_node(path, value.to_bytes())
            return path, None
        if what is Document.V2:
            raise SessionStateError(
                f"{key!r} is a key of zarr version 2, and the store supports only version 3. Use "
                "zarr_format=3",
                ErrorKind.UNIMPLEMENTED,
            )
        return path, what

    @unchecked
    @override
    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a value unless there is one under the key. Raises the errors of ``exists`` and ``set``."""
        if not await self.exists(key):
            await self.set(key, value)

    async def set_partial_values(self, key_start_values: Iterable[tuple[str, int, BytesLike]]) -> None:
        """Always raise an error, because chunks can only be written whole.

        Args:
            key_start_values: Keys, positions and bytes.

        Raises:
            SessionStateError: ``unimplemented``, always.

        Examples:
            >>> import asyncio, frazil
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> asyncio.run(store.set_partial_values([("array/c/0", 0, b"1")]))
            Traceback (most recent call last):
            frazil.errors.SessionStateError: a chunk can only be written whole...
        """
        raise SessionStateError(
            "a chunk can only be written whole. Use set instead of set_partial_values",
            ErrorKind.UNIMPLEMENTED,
        )

    @unchecked
    @override
    async def delete(self, key: str) -> None:
        """Delete a chunk, or a node with all nodes and chunks below it. A missing key is ignored."""
        self.delete_sync(key)

    @unchecked
    def delete_sync(self, key: str) -> None:
        """Do the same as ``delete``, without an event loop.

        Args:
            key: Key of a document or a chunk. A document stands for its node.

        Raises:
            IcechunkError: As in ``delete``.

        Examples:
            >>> import frazil, zarr
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> group = zarr.create_group(store, path="data")
            >>> store.delete_sync("data/zarr.json")
            >>> store.get_sync("data/zarr.json") is None
            True
        """
        self._check_writable()
        path, what = parse_key(key)
        if what is Document.V3:
            self._session.workspace.delete_node(path)
        elif what is not Document.V2:
            self._session.workspace.delete_ref(path, what)

    @override
    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnlyStoreError("store was opened in read-only mode and does not support writing")
        self._session.require_writable()

    # Many values

    @override
    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> _List[Buffer | None]:
        """Return a value or a range of it for each pair, and None for a missing value.

        Raises the errors of ``get``, and ``TypeError`` for pairs of other types.
        """
        pairs = list(key_ranges)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise TypeError("key_ranges must be pairs of a key and a byte range or None")
        # Reads of one turn of the event loop are fetched together. Default: no limit.
        limit = self._session.workspace.context.settings.get_partial_values_concurrency
        turns = asyncio.Semaphore(limit or len(pairs) or 1)

        async def one(key: str, request: ByteRequest | None) -> Buffer | None:
            async with turns:
                return await self.get(key, prototype, request)

        return await asyncio.gather(*starmap(one, pairs))

    @override
    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None]]:
        requests = list(requests)
        values = await asyncio.gather(*[self.get(*request) for request in requests])
        for (key, _, _), value in zip(requests, values, strict=True):
            yield key, value

    @override
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
        """Yield ranges of one value in batches of (number, bytes). Neighbouring ranges are read together."""
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

    @override
    async def list(self) -> AsyncIterator[str]:
        """Yield all keys: first the documents, then the chunks of each array."""
        async for key in self.list_prefix(""):
            yield key

    @override
    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield all keys at and below a path. ``a`` does not match ``ab/zarr.json``."""
        workspace = self._session.workspace
        nodes, chunks = read_below(workspace, directory_of(prefix))
        for key in document_keys(nodes.paths_list()):
            yield key
        for path, start in chunks:
            for key in chunk_keys(path, (await self._off_loop(chunks_from, workspace, path, start)).index):
                yield key

    @override
    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below a path.

        The names below an array are ``zarr.json`` and ``c``, even if the array has no chunks.
        """
        for name in await self._off_loop(names_below, self._session.workspace, directory_of(prefix)):
            yield name

    @override
    async def is_empty(self, prefix: str) -> bool:
        """Return whether there are no values at and below a path."""
        workspace = self._session.workspace
        nodes, chunks = read_below(workspace, directory_of(prefix))
        if len(nodes):
            return False
        return not any([len(await self._off_loop(chunks_from, workspace, *each)) for each in chunks])

    @override
    async def getsize_prefix(self, prefix: str) -> int:
        """Return the size of all values at and below a path, in bytes."""
        workspace = self._session.workspace
        nodes, chunks = read_below(workspace, directory_of(prefix))
        tables = [await self._off_loop(chunks_from, workspace, *each) for each in chunks]
        return int(nodes.user_data.lengths.sum()) + sum(int(table.length.sum()) for table in tables)

    @override
    async def delete_dir(self, prefix: str) -> None:
        """Delete all nodes and chunks at and below a path. A missing path is ignored."""
        self._check_writable()
        await self._off_loop(delete_below, self._session.workspace, directory_of(prefix))

    def sync_clear(self) -> None:
        """Do the same as ``clear``, without an event loop.

        Raises:
            ReadOnlyError: The store or the session is read only.

        Examples:
            >>> import frazil, zarr
            >>> store = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main").store
            >>> array = zarr.create_array(store, name="t", shape=(4,), dtype="i4")
            >>> store.sync_clear()
            >>> store.get_sync("t/zarr.json") is None
            True
        """
        self._check_writable()
        delete_below(self._session.workspace, "/")

    @override
    async def clear(self) -> None:
        """Delete all groups and arrays in this session. The commits in the history stay unchanged."""
        self.sync_clear()

    async def _off_loop[**P, R](self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function that may read manifests: directly if they are local, otherwise on a thread."""
        if self._session.workspace.context.storage.is_local:
            return function(*args, **kwargs)
        return await on_thread(function, *args, **kwargs)


def _is_at_hand(workspace: Workspace, key: str) -> bool:
    """Return whether a key can be found without a request, which would block the event loop."""
    path, what = parse_key(key)
    return workspace.is_cached(path, what if isinstance(what, tuple) else ())


def _find(workspace: Workspace, key: str, request: ByteRequest | None) -> BytesLike | _RefRange | None:
    """Return the bytes of a document, the reference and range of a chunk, or None for a missing value."""
    path, what = _parsed(workspace, key)
    if isinstance(what, tuple):
        ref = _ref(workspace, path, what)
        return None if ref is None else (ref, *span(request, size_of(ref)))
    node = workspace.node(path) if what is Document.V3 else None
    if node is None:
        return None
    start, stop = span(request, len(node.user_data))
    return memoryview(node.user_data)[start:stop]


def _parsed(workspace: Workspace, key: str) -> tuple[str, Coords | Document]:
    """Return the parts of a key that is read. The session records it if it tracks reads."""
    path, what = parse_key(key)
    if workspace.reads is not None:
        if isinstance(what, tuple):
            workspace.note_chunk(path, what)
        elif what is Document.V3:
            workspace.note_document(path)
    return path, what


def _require_plausible(workspace: Workspace, key: str, data: BytesLike) -> None:
    """Raise ``FormatError`` for a chunk whose claimed size is larger than a chunk of its array can be."""
    claimed = claimed_bytes(data)
    if claimed is None:
        return
    node = workspace.node(parse_key(key)[0])
    if node is not None:
        require_plausible(key, node.user_data, data, claimed)


def _of_chunk(workspace: Workspace, key: str, ref: ChunkRef, error: IcechunkError) -> IcechunkError:
    """Return an error of reading a value, with the chunk in its message."""
    path, coords = parse_key(key)
    assert isinstance(coords, tuple)  # documents are in memory
    return chunk_error(workspace.snapshot_id, path, coords, ref, error)


def _ref(workspace: Workspace, path: str, coords: Coords) -> ChunkRef | None:
    """Return the reference of a chunk. Missing chunks of arrays are common, but not chunks of a group."""
    ref = workspace.ref(path, coords)
    if ref is None and not workspace.is_array(path) and workspace.node(path) is not None:
        raise InvalidInputError(
            f"`{path}` must be an array, got a group. Pass an array in this group", ErrorKind.NOT_AN_ARRAY
        )
    return ref


def _buffer(data: BytesLike, prototype: BufferPrototype | None) -> Buffer:
    if prototype is not None and not isinstance(prototype, BufferPrototype):
        raise TypeError(f"prototype must be a BufferPrototype, got {type(prototype).__name__}")
    # zarr's annotation says bytes, but any buffer that numpy can read works.
    return (prototype or default_buffer_prototype()).buffer.from_bytes(memoryview(data))
