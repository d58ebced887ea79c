"""Arrays of zarr that read and write boxes in bulk, for the operations of Frazil.

They are ``NamingArray`` in everything else: an array with a codec or dtype that has no fast decoder, an index
with arrays, a damaged chunk, a write of a part of a chunk, and values of another dtype or shape are those of
zarr, with errors that name the chunk.
"""

from __future__ import annotations

from typing import Any, override

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arrays.assignment import box_values
from frazil.arrays.box_reading import read_box_into
from frazil.arrays.box_writing import BoxWriting
from frazil.arrays.encoding import Encoding, encoding_of
from frazil.arrays.selection import BoxSelection, selection_of
from frazil.arrays.single_chunk import read_in_chunk
from frazil.arrays.write_plan import boxes_of
from frazil.errors import InvalidIndexError
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import NamingArray
from frazil.zarr_store.arrays import array_at as naming_array_at
from frazil.zarr_store.store import IcechunkStore


def array_at(source: Session | IcechunkStore, path: str, mode: Any = "r") -> zarr.Array[Any]:
    """Open an array of a session or store. Errors are those of ``zarr_store.arrays.array_at``."""
    return in_bulk(naming_array_at(source, path, mode))


def in_bulk(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Return the same array, with reads or writes of boxes in bulk."""
    return BulkArray(array.async_array)


class BulkArray(NamingArray):
    """An array that reads boxes in bulk if it is open for reading, and writes boxes in bulk otherwise."""

    @override
    def get_basic_selection(self, selection: Any = ..., **options: Any) -> Any:
        values = _box_of(self, selection, options) if self.read_only else None
        return super().get_basic_selection(selection, **options) if values is None else values

    @override
    def get_orthogonal_selection(self, selection: Any, **options: Any) -> Any:
        values = _box_of(self, selection, options) if self.read_only else None
        return super().get_orthogonal_selection(selection, **options) if values is None else values

    @override
    def set_basic_selection(self, selection: Any, value: Any, **options: Any) -> None:
        if not _writes_in_bulk(self, selection, value, options):
            super().set_basic_selection(selection, value, **options)

    @override
    def set_orthogonal_selection(self, selection: Any, value: Any, **options: Any) -> None:
        if not _writes_in_bulk(self, selection, value, options):
            super().set_orthogonal_selection(selection, value, **options)


def _box_of(array: BulkArray, selection: Any, options: dict[str, Any]) -> NDArray[Any] | None:
    """Return the elements of a box, or None for what zarr reads or refuses."""
    config, stored = array.async_array.config, _encoding_of(array, options)
    if stored is None or config.order != "C" or not config.read_missing_chunks:
        return None
    store, path, encoding = stored
    slices = _slices_of(selection, array.shape)
    if slices is None:
        return None
    session = store.session
    counts = tuple(each.count for each in slices.slices)
    if 0 in counts:
        return np.asarray(np.empty(counts, encoding.dtype)[slices.view])
    if encoding.shards is None:
        values = read_in_chunk(session.workspace, path, encoding, slices.slices)
        if values is not None:
            return np.asarray(values[slices.view])
    out = np.empty(counts, encoding.dtype)
    _, failures = read_box_into(session, path, encoding, slices.slices, out)
    return None if len(failures) else np.asarray(out[slices.view])


def _writes_in_bulk(array: BulkArray, selection: Any, value: Any, options: dict[str, Any]) -> bool:
    """Write the elements of a box. Return False for what zarr writes or refuses: then nothing has changed."""
    stored = _encoding_of(array, options)
    if stored is None or type(value) is not np.ndarray or value.dtype != array.dtype or array.read_only:
        return False
    store, path, encoding = stored
    slices = _slices_of(selection, array.shape)
    # The array that zarr has opened may be an earlier one at the same path.
    if slices is None or encoding.codecs != array.async_array.metadata.codecs:
        return False
    counts = tuple(each.count for each in slices.slices)
    shape = np.broadcast_to(np.zeros((), np.bool_), counts)[slices.view].shape
    if 0 in counts or value.shape != shape or not _has_chunks(array, encoding):
        return False
    # A read of chunks that change in part needs the references of the session as columns, after each write.
    if not all(box.is_complete for box in boxes_of(encoding, slices.slices)):
        return False
    store.session.require_writable()
    writes_fill = array.async_array.config.write_empty_chunks
    writing = BoxWriting(store.session.workspace, path, encoding, writes_fill=writes_fill)
    return writing.run(slices.slices, box_values(value, slices))


def _encoding_of(array: NamingArray, options: dict[str, Any]) -> tuple[IcechunkStore, str, Encoding] | None:
    """Return the store, the path and the encoding of an array. None for what only zarr can read and write."""
    store = array.store
    if not isinstance(store, IcechunkStore) or any(
        each is not None and each != [] for each in options.values()
    ):
        return None
    path = f"/{array.store_path.path}"
    entry = store.session.workspace.array_entry(path)
    encoding = None if entry is None else encoding_of(entry.node.user_data)
    if encoding is None or (encoding.shape, encoding.dtype) != (array.shape, array.dtype):
        return None
    return store, path, encoding


def _has_chunks(array: NamingArray, encoding: Encoding) -> bool:
    """Return whether an array has the regular grid and the fill value of an encoding."""
    if encoding.shards is not None or not all(isinstance(each, int) for each in encoding.lengths):
        return False
    fill = np.array(array.fill_value, encoding.dtype)
    return array.chunks == encoding.lengths and fill.tobytes() == encoding.fill.tobytes()


def _slices_of(selection: Any, shape: tuple[int, ...]) -> BoxSelection | None:
    """Return the box of a selection that zarr and numpy read in the same way, or None."""
    items = selection if isinstance(selection, tuple) else (selection,)
    if not shape or not all(map(_is_plain_item, items)):
        return None
    try:
        box = selection_of(selection, shape)
    except InvalidIndexError:
        return None
    is_array = isinstance(box, BoxSelection) and any(isinstance(each, slice) for each in box.view)
    return box if isinstance(box, BoxSelection) and is_array else None


def _is_plain_item(item: Any) -> bool:
    if isinstance(item, slice):
        return item.step is None or bool(isinstance(item.step, int | np.integer) and item.step > 0)
    return item is Ellipsis or (isinstance(item, int | np.integer) and not isinstance(item, bool))
