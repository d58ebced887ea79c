"""Arrays of zarr that read boxes in bulk, for the operations of Frazil.

They are ``NamingArray`` in everything else: an array with a codec or dtype that has no fast decoder, an index
with arrays, a damaged chunk and a write are those of zarr, with errors that name the chunk.
"""

from __future__ import annotations

from typing import Any, override

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arrays.box_reading import read_box_into
from frazil.arrays.encoding import encoding_of
from frazil.arrays.selection import BoxSelection, selection_of
from frazil.arrays.single_chunk import read_in_chunk
from frazil.errors import InvalidIndexError
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import NamingArray
from frazil.zarr_store.arrays import array_at as naming_array_at
from frazil.zarr_store.store import IcechunkStore


def array_at(source: Session | IcechunkStore, path: str, mode: Any = "r") -> zarr.Array[Any]:
    """Open an array of a session or store.

    An array with the mode ``r`` reads boxes in bulk. Errors are those of ``zarr_store.arrays.array_at``.

    Args:
        source: Session or its store.
        path: Path of the array.
        mode: Mode of ``zarr.open_array``. Default: ``r``.

    Returns:
        The array.

    Raises:
        MissingExtraError: ``missing-extra`` for a codec whose package is not installed.
        Exception: Other errors of ``zarr.open_array``.

    Examples:
        >>> import frazil, zarr
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> array = zarr.create_array(session.store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> array_at(session, "/t")[1:].tolist()
        [0, 0, 0]
    """
    array = naming_array_at(source, path, mode)
    return in_bulk(array) if mode == "r" else array


def in_bulk(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Return the same array, with reads of boxes in bulk."""
    return BulkArray(array.async_array)


class BulkArray(NamingArray):
    """An array that reads boxes in bulk, as the module describes."""

    @override
    def get_basic_selection(self, selection: Any = ..., **options: Any) -> Any:
        values = _box_of(self, selection, options)
        return super().get_basic_selection(selection, **options) if values is None else values

    @override
    def get_orthogonal_selection(self, selection: Any, **options: Any) -> Any:
        values = _box_of(self, selection, options)
        return super().get_orthogonal_selection(selection, **options) if values is None else values


def _box_of(array: BulkArray, selection: Any, options: dict[str, Any]) -> NDArray[Any] | None:
    """Return the elements of a box, or None for what zarr reads or refuses."""
    store, config = array.store, array.async_array.config
    is_usual = config.order == "C" and config.read_missing_chunks
    has_options = any(each is not None and each != [] for each in options.values())
    if not isinstance(store, IcechunkStore) or not is_usual or has_options:
        return None
    session, path = store.session, f"/{array.store_path.path}"
    slices = _slices_of(selection, array.shape)
    entry = session.workspace.array_entry(path)
    encoding = None if entry is None else encoding_of(entry.node.user_data)
    if slices is None or encoding is None or (encoding.shape, encoding.dtype) != (array.shape, array.dtype):
        return None
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
