"""The read of a selection of an array in one call."""

from __future__ import annotations

from typing import Any

from frazil.arguments import checked
from frazil.arrays.array import Array
from frazil.repository.session.session import Session


@checked
def read(session: Session, path: str, selection: Any = ...) -> Any:
    """Return the selected elements of an array.

    The function returns ``frazil.Array(session, path)[selection]``.

    Args:
        session: The session.
        path: The path of the array.
        selection: An index of numpy: integers, slices, ``...``, ``None``, integer and boolean arrays. Use
            ``numpy.s_`` for an index with slices. Default: the whole array.

    Returns:
        A numpy array; a single element as a scalar.

    Raises:
        NodeNotFoundError: ``node-not-found`` if there is no node at the path.
        InvalidInputError: ``not-an-array`` for a group; ``invalid-path`` for a text that is not a path.
        InvalidIndexError: ``invalid-argument`` for an invalid index. It is an ``IndexError``.
        StorageError: A chunk cannot be read.
        FormatError: A chunk is damaged.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="t", data=np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> frazil.read(repo.readonly_session("main"), "/t", np.s_[1:3, :]).tolist()
        [[4, 5, 6, 7], [8, 9, 10, 11]]
    """
    return Array(session, path)[selection]
