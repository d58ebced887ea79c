"""The write of the first file of a repository, and the error if the storage is not empty."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.outcome import write_once
from frazil.repository.retries import RetryPolicy
from frazil.storage.base import IfAbsent, Storage


def not_empty(storage: Storage, key: str, *, is_repository: bool) -> InvalidInputError:
    """Return the error for a new repository in a storage that already has the object ``key``."""
    if is_repository:
        text = f"a repository already exists in the storage {storage.label()}. Open it with Repository.open"
    else:
        text = (
            f"the storage must be empty for a new repository, got `{key}` in {storage.label()}. Use an empty "
            "directory or prefix, or pass check_clean_root=False to keep the other files"
        )
    return InvalidInputError(text, ErrorKind.PARENT_DIRECTORY_NOT_CLEAN)


def require_prefix(storage: Storage) -> None:
    """Raise an error if a new repository would be at the root of a bucket.

    Args:
        storage: The storage of the new repository.

    Raises:
        InvalidInputError: ``empty-prefix-creation`` if the storage is a bucket without a prefix.

    Examples:
        >>> from frazil.storage import in_memory_storage
        >>> require_prefix(in_memory_storage())
    """
    if storage.is_whole_bucket:
        raise InvalidInputError(
            f"the storage of a new repository must have a prefix in the bucket, got {storage.label()} "
            "without a prefix. Pass a prefix to the storage",
            ErrorKind.EMPTY_PREFIX_CREATION,
        )


def create_first(storage: Storage, key: str, data: bytes, policy: RetryPolicy) -> None:
    """Write the first file of a repository, unless another writer has written it.

    ``data`` must differ from the data of every other writer. Raises ``InvalidInputError``
    (``parent-directory-not-clean``) if another writer has written the file, and the errors of ``write_once``.
    """
    if not write_once(storage, key, data, policy, IfAbsent(), "the creation of the repository"):
        raise not_empty(storage, key, is_repository=True)
