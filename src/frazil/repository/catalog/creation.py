"""The one file that makes a place a repository, and what to say where that is not possible."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.outcome import write_once
from frazil.repository.retries import RetryPolicy
from frazil.storage.base import IfAbsent, Storage


def not_empty(storage: Storage, key: str, *, is_repository: bool) -> InvalidInputError:
    """Return the error for a new repository in a place that has ``key``, perhaps of another repository."""
    if is_repository:
        text = f"there is a repository in {storage.label()}: open it with Repository.open"
    else:
        text = (
            f"expected an empty place for a new repository, found `{key}` in {storage.label()}: use an empty "
            "directory or prefix, or give check_clean_root=False to leave the other files there"
        )
    return InvalidInputError(text, ErrorKind.PARENT_DIRECTORY_NOT_CLEAN)


def create_first(storage: Storage, key: str, data: bytes, policy: RetryPolicy) -> None:
    """Write the file that makes a repository, if no other writer has. ``data`` are like no other writer's.

    Raises ``InvalidInputError`` (``parent-directory-not-clean``) if there is another one, and what
    ``write_once`` raises.
    """
    if not write_once(storage, key, data, policy, IfAbsent(), "the creation of the repository"):
        raise not_empty(storage, key, is_repository=True)
