"""Arrays of zarr over a session, with errors that name the chunk that cannot be decoded.

Codecs raise errors of any class (``RuntimeError: Zstd decompression error``) in the pipeline of zarr, where
the chunk is not known any more. Therefore, after a failure, the selection is repeated over a store that has
no chunks and records the requested keys. Then the chunks are decoded one by one. A read without an error
costs nothing more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, override

import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath, WrapperStore

from frazil.errors import IcechunkError
from frazil.repository.session.chunk_refs import undecodable
from frazil.repository.session.session import Session
from frazil.zarr_store.keys import parse_key
from frazil.zarr_store.store import IcechunkStore, open_array

#: Errors that do not concern the bytes of a chunk.
_NOT_OF_CHUNKS: Final = (IndexError, MemoryError)


def array_at(source: Session | IcechunkStore, path: str, mode: Any = "r") -> zarr.Array[Any]:
    """Open an array of a session or store.

    Reads and writes raise ``FormatError`` (``undecodable-chunk``) for a chunk that its codecs cannot decode.
    The error names the array, the coordinates and the object of the chunk.
    """
    store = source if isinstance(source, IcechunkStore) else source.store
    return NamingArray(open_array(store, path, mode).async_array)


class NamingArray(zarr.Array[Any]):
    """An array with errors that name chunks, as the module describes."""

    @override
    def get_basic_selection(self, selection: Any = ..., **options: Any) -> Any:
        return self._named("get_basic_selection", selection, options)

    @override
    def get_orthogonal_selection(self, selection: Any, **options: Any) -> Any:
        return self._named("get_orthogonal_selection", selection, options)

    @override
    def get_coordinate_selection(self, selection: Any, **options: Any) -> Any:
        return self._named("get_coordinate_selection", selection, options)

    @override
    def get_mask_selection(self, mask: Any, **options: Any) -> Any:
        return self._named("get_mask_selection", mask, options)

    @override
    def get_block_selection(self, selection: Any, **options: Any) -> Any:
        return self._named("get_block_selection", selection, options)

    @override
    def set_basic_selection(self, selection: Any, value: Any, **options: Any) -> None:
        self._named("set_basic_selection", selection, options, value)

    @override
    def set_orthogonal_selection(self, selection: Any, value: Any, **options: Any) -> None:
        self._named("set_orthogonal_selection", selection, options, value)

    @override
    def set_coordinate_selection(self, selection: Any, value: Any, **options: Any) -> None:
        self._named("set_coordinate_selection", selection, options, value)

    @override
    def set_mask_selection(self, mask: Any, value: Any, **options: Any) -> None:
        self._named("set_mask_selection", mask, options, value)

    @override
    def set_block_selection(self, selection: Any, value: Any, **options: Any) -> None:
        self._named("set_block_selection", selection, options, value)

    def _named(self, method: str, selection: Any, options: dict[str, Any], *values: Any) -> Any:
        call: Callable[..., Any] = getattr(super(), method)
        try:
            return call(selection, *values, **options)
        except IcechunkError:
            raise  # the error of the store names the chunk
        except _NOT_OF_CHUNKS:
            raise
        except Exception as error:
            cause = _ours(error) or _undecodable(self, method.replace("set_", "get_"), selection, error)
            if cause is None:
                raise
            raise cause from cause.__cause__


def _ours(error: Exception) -> IcechunkError | None:
    """Return an error of the store among the errors that zarr collected."""
    if isinstance(error, IcechunkError):
        return error
    inner = error.exceptions if isinstance(error, ExceptionGroup) else ()
    return next((own for each in inner if (own := _ours(each)) is not None), None)


def _undecodable(
    array: zarr.Array[Any], method: str, selection: Any, error: Exception
) -> IcechunkError | None:
    """Return the error of the first chunk of a selection that cannot be decoded. None if there is none."""
    store = array.store
    if not isinstance(store, IcechunkStore):
        return None
    workspace = store.session.workspace
    whole = zarr.Array(array.async_array)
    for key in _keys(array, store, method, selection):
        path, coords = parse_key(key)
        if not isinstance(coords, tuple) or (ref := workspace.ref(path, coords)) is None:
            continue
        try:
            whole.get_block_selection(coords) if coords else whole.get_basic_selection(())
        except Exception as again:
            return _ours(again) or undecodable(workspace.snapshot_id, path, coords, ref, again)
    return None


def _keys(array: zarr.Array[Any], store: IcechunkStore, method: str, selection: Any) -> list[str]:
    """Return the keys of the chunks of a selection."""
    notes = _Notes(store)
    place = StorePath(notes, array.store_path.path)
    nothing: zarr.Array[Any] = zarr.Array(zarr.AsyncArray(array.metadata, place))
    with suppress(Exception):  # zarr's settings may refuse missing chunks: their keys are recorded before
        getattr(nothing, method)(selection)
    return list(notes.keys)


class _Notes(WrapperStore[IcechunkStore]):
    """A store without values that records the requested keys."""

    def __init__(self, store: IcechunkStore) -> None:
        super().__init__(store)
        self.keys: dict[str, None] = {}

    @override
    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return self.get_sync(key)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        self.keys[key] = None
        return None

    @override
    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [self.get_sync(key) for key, _ in key_ranges]

    @override
    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], **options: Any
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        self.get_sync(key)
        yield list(enumerate([None] * len(byte_ranges)))
