"""Work on one session in many places: merge what comes back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from frazil.repository.session import ForkSession
from frazil.zarr_store import IcechunkStore


def extract_session(zarray: Any, axis: Any = None, keepdims: Any = None) -> ForkSession:
    """The fork behind a zarr array or group; ``TypeError`` if there is none.

    ``axis`` and ``keepdims`` are there because dask passes them.
    """
    store = zarray.store
    if not isinstance(store, IcechunkStore) or not isinstance(store.session, ForkSession):
        raise TypeError(f"expected an array over a ForkSession, found one over {type(store).__name__}")
    return store.session


def merge_sessions(*sessions: ForkSession | Iterable[ForkSession]) -> ForkSession:
    """One fork with the work of several forks of the same session.

    Raises ``SessionStateError`` (``merge-failed``) if two of them changed the same chunk or node,
    ``ValueError`` without any.
    """
    forks: list[ForkSession] = []
    for each in sessions:
        forks.extend([each] if isinstance(each, ForkSession) else each)
    if not forks:
        raise ValueError("expected at least one session to merge, found none")
    first, *rest = forks
    first.merge(*rest)
    return first


__all__ = ["extract_session", "merge_sessions"]
