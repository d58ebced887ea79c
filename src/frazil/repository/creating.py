"""The one file that makes a place a repository, and what to say where that is not possible."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.base import IfAbsent, Refused, Storage


def not_empty(storage: Storage, key: str, *, is_repository: bool) -> InvalidInputError:
    """The error for a new repository in a place that has ``key``, perhaps of another repository."""
    if is_repository:
        text = f"there is a repository in {storage.place()}: open it with Repository.open"
    else:
        text = (
            f"expected an empty place for a new repository, found `{key}` in {storage.place()}: use an empty "
            "directory or prefix, or give check_clean_root=False to leave the other files there"
        )
    return InvalidInputError(text, ErrorKind.PARENT_DIRECTORY_NOT_CLEAN)


def put_first(storage: Storage, key: str, data: bytes) -> None:
    """Write the file that makes a repository, if nobody else has.

    ``InvalidInputError`` (``parent-directory-not-clean``) if there is another one.
    """
    failure: StorageError | None = None
    try:
        refused = isinstance(storage.put(key, data, IfAbsent()), Refused)
    except StorageError as error:
        refused, failure = True, error
    if not refused:
        return
    # A lost answer: the bytes tell whose repository it is.
    try:
        current = bytes(storage.get(key))
    except StorageError as error:
        raise failure or error from None
    if current != data:
        raise not_empty(storage, key, is_repository=True)
