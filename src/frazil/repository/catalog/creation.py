"""The write of the first file of a repository, and the error if the storage is not empty."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.outcome import write_once
from frazil.repository.retries import RetryPolicy
from frazil.storage.base import IfAbsent, Storage


def not_empty(storage: Storage, key: str, *, is_repository: bool) -> InvalidInputError:
    """Return the error for a new repository in a storage that already has the object ``key``."""
    kind = ErrorKind.PARENT_DIRECTORY_NOT_CLEAN
    if is_repository:
        error = InvalidInputError(f"a repository already exists in the storage {storage.label()}", kind)
        return error.with_remedy("Open it with Repository.open", shell="")
    return InvalidInputError(
        f"the storage must be empty for a new repository, got `{key}` in {storage.label()}", kind
    ).with_remedy(
        "Use an empty directory or prefix, or pass check_clean_root=False to keep the other files",
        shell="Use an empty directory or prefix",
    )


def require_prefix(storage: Storage) -> None:
    """Raise an error if a new repository would be at the root of a bucket."""
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
