"""Arrays of zarr over a session, with counts of values, and errors that name a chunk that cannot be decoded.

Codecs raise errors of any class in the pipeline of zarr, where the chunk is not known any more. After such a
failure, the selection is repeated over a store without chunks, which records the requested keys. Then the
chunks are decoded one by one. A read without an error costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import zarr
from zarr.core.array_spec import ArrayConfigParams
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore, StorePath

from frazil.display import some_of
from frazil.errors import IcechunkError, InvalidInputError
from frazil.repository.session.chunk_refs import undecodable
from frazil.repository.session.session import Session
from frazil.zarr_names import BaseArray, async_array
from frazil.zarr_store.references import parse_key
from frazil.zarr_store.store import IcechunkStore, open_array

#: Errors that do not concern the bytes of a chunk.
_NOT_OF_CHUNKS: Final = (IndexError, MemoryError)


@dataclass(slots=True)
class ValueCounts:
    """The bytes of the values of selections, before compression."""

    read: int = 0
    written: int = 0


_COUNTS: Final[ContextVar[ValueCounts | None]] = ContextVar("frazil_value_counts", default=None)


@contextmanager
def counted_values() -> Iterator[ValueCounts]:
    """Count the values that this thread reads and writes through arrays of `array_at`."""
    counts = ValueCounts()
    token = _COUNTS.set(counts)
    try:
        yield counts
    finally:
        _COUNTS.reset(token)


def count_values(read: int = 0, written: int = 0) -> None:
    """Add bytes of values to the counts of this thread."""
    counts = _COUNTS.get()
    if counts is not None:
        counts.read += read
        counts.written += written


def array_at(source: Session | IcechunkStore, path: str, mode: Any = "r") -> zarr.Array[Any]:
    """Open an array of a session or store."""
    store = source if isinstance(source, IcechunkStore) else source.store
    return NamingArray(async_array(open_array(store, path, mode)))


def session_of(targets: Sequence[Any]) -> Session:
    """Return the session of Zarr arrays or stores; raise an error if they belong to several."""
    stores = [getattr(target, "store", target) for target in targets]
    if not stores or not all(isinstance(store, IcechunkStore) and store == stores[0] for store in stores):
        raise InvalidInputError(
            "targets must be zarr arrays or stores of one session, got "
            f"{some_of(map(repr, stores))}. Open them with store=session.store"
        )
    assert isinstance(stores[0], IcechunkStore)
    return stores[0].session


def settings_of(target: zarr.Array[Any]) -> ArrayConfigParams:
    """Return how zarr writes to an array, which another open array must repeat."""
    config = getattr(target, "config", None) or async_array(target)._config  # before zarr 3.1.2
    return {"write_empty_chunks": config.write_empty_chunks, "order": config.order}


def _naming(method: str) -> Any:
    """Return a method of ``zarr.Array`` for selections, with errors that name chunks."""

    def select(self: NamingArray, selection: Any = ..., *values: Any, **options: Any) -> Any:
        try:
            result = getattr(super(NamingArray, self), method)(selection, *values, **options)
            if values:
                count_values(written=np.size(values[0]) * self.dtype.itemsize)
            else:
                count_values(read=np.size(result) * self.dtype.itemsize)
            return result
        except IcechunkError:
            raise  # the error of the store names the chunk
        except _NOT_OF_CHUNKS:
            raise
        except Exception as error:
            cause = _ours(error) or _undecodable(self, method.replace("set_", "get_"), selection, error)
            if cause is None:
                raise
            raise cause from cause.__cause__  # not from the same error of the first read

    return select


class NamingArray(BaseArray):
    """An array with errors that name chunks, as the module describes."""

    get_basic_selection: Final = _naming("get_basic_selection")
    get_orthogonal_selection: Final = _naming("get_orthogonal_selection")
    get_coordinate_selection: Final = _naming("get_coordinate_selection")
    get_mask_selection: Final = _naming("get_mask_selection")
    get_block_selection: Final = _naming("get_block_selection")
    set_basic_selection: Final = _naming("set_basic_selection")
    set_orthogonal_selection: Final = _naming("set_orthogonal_selection")
    set_coordinate_selection: Final = _naming("set_coordinate_selection")
    set_mask_selection: Final = _naming("set_mask_selection")
    set_block_selection: Final = _naming("set_block_selection")


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
    # The keys of the chunks of the selection.
    keys = _RequestedKeys()
    place = StorePath(MemoryStore(keys), array.store_path.path)
    nothing: zarr.Array[Any] = zarr.Array(zarr.AsyncArray(array.metadata, place))
    with suppress(Exception):  # zarr's settings may refuse missing chunks: their keys are recorded before
        getattr(nothing, method)(selection)
    workspace = store.session.workspace
    whole = zarr.Array(async_array(array))
    for key in keys.record:
        path, coords = parse_key(key)
        if not isinstance(coords, tuple) or (ref := workspace.ref(path, coords)) is None:
            continue
        try:
            whole.get_block_selection(coords) if coords else whole.get_basic_selection(())
        except Exception as again:
            return _ours(again) or undecodable(workspace.snapshot_id, path, coords, ref, again)
    return None


class _RequestedKeys(dict[str, Buffer]):
    """The values of a store without values, which records the requested keys."""

    def __init__(self) -> None:
        self.record: dict[str, None] = {}

    def __missing__(self, key: str) -> Buffer:
        self.record[key] = None
        raise KeyError(key)
