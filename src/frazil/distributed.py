"""Functions for distributed work on one session: get the session of an array, and merge forks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from frazil.repository.session.session import ForkSession, Session
from frazil.zarr_store import IcechunkStore


def extract_session(zarray: Any, axis: Any = None, keepdims: Any = None) -> Session:
    """Return the session or fork of a zarr array or group.

    Args:
        zarray: A zarr array or group that was opened with ``store=session.store``.
        axis: Ignored. dask passes it.
        keepdims: Ignored. dask passes it.

    Returns:
        The session of the store.

    Raises:
        TypeError: The store of the array is not an ``IcechunkStore``.

    Examples:
        >>> import frazil, zarr
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> group = zarr.create_group(session.store)
        >>> extract_session(group) == session
        True
    """
    store = zarray.store
    if not isinstance(store, IcechunkStore):
        raise TypeError(
            f"the store of the array must be IcechunkStore, got {type(store).__name__}. Open the array with "
            "store=session.store"
        )
    return store.session


def merge_sessions(*sessions: ForkSession | Iterable[Any]) -> ForkSession:
    """Merge several forks of the same session into the first of them.

    Args:
        *sessions: Forks, lists of forks, or lists of such lists.

    Returns:
        The first fork, with the changes of all forks.

    Raises:
        SessionStateError: Two forks changed the same chunk or node (``merge-failed``).
        TypeError: An item is not a fork.
        ValueError: There are no forks.

    Examples:
        >>> import frazil
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> session.merge(merge_sessions([session.fork(), session.fork()]))
    """
    forks = list(_flat(sessions))
    if not forks:
        raise ValueError("sessions must have at least one fork, got none")
    first, *rest = forks
    first.merge(*rest)
    return first


def _flat(sessions: Iterable[Any]) -> Iterator[ForkSession]:
    for each in sessions:
        if isinstance(each, ForkSession):
            yield each
        elif isinstance(each, Iterable) and not isinstance(each, str):
            yield from _flat(each)
        else:
            raise TypeError(
                f"sessions must be ForkSession or lists of ForkSession, got {type(each).__name__}"
            )


__all__ = ["extract_session", "merge_sessions"]
