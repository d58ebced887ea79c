"""Work on one session in many places: merge what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from frazil.repository.session.session import ForkSession, Session
from frazil.zarr_store import IcechunkStore


def extract_session(zarray: Any, axis: Any = None, keepdims: Any = None) -> Session:
    """Return the session or fork behind a zarr array or group; ``TypeError`` if there is none.

    ``axis`` and ``keepdims`` are there because dask passes them.
    """
    store = zarray.store
    if not isinstance(store, IcechunkStore):
        raise TypeError(
            f"expected a zarr array of a session (its store is an IcechunkStore), found one of a "
            f"{type(store).__name__}: open it with store=session.store"
        )
    return store.session


def merge_sessions(*sessions: ForkSession | Iterable[Any]) -> ForkSession:
    """Return one fork with the work of several forks of the same session, also in lists, and lists of lists.

    Raises ``SessionStateError`` (``merge-failed``) if two of them changed the same chunk or node,
    ``TypeError`` for what is no fork, ``ValueError`` without any.
    """
    forks = list(_flat(sessions))
    if not forks:
        raise ValueError("expected at least one session to merge, found none")
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
            raise TypeError(f"expected ForkSessions, or lists of them, found {type(each).__name__}")


__all__ = ["extract_session", "merge_sessions"]
