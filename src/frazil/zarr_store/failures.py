"""Errors that are both what zarr's interface promises and what Frazil promises."""

from __future__ import annotations

from frazil.errors import ErrorKind, NotFoundError, ReadOnlyError


class ReadOnlyStoreError(ReadOnlyError, ValueError):
    """A write to a store that was opened read-only: a ``ValueError`` for zarr."""

    default_kind = ErrorKind.READ_ONLY_STORE


class KeyNotFoundError(NotFoundError, FileNotFoundError):
    """A question about a value that is not there: a ``FileNotFoundError`` for zarr."""

    default_kind = ErrorKind.KEY_NOT_FOUND
