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


def create_first(storage: Storage, key: str, data: bytes, policy: RetryPolicy) -> None:
    """Write the first file of a repository, unless another writer has written it.

    ``data`` must differ from the data of every other writer. Raises ``InvalidInputError``
    (``parent-directory-not-clean``) if another writer has written the file, and the errors of ``write_once``.
    """
    if not write_once(storage, key, data, policy, IfAbsent(), "the creation of the repository"):
        raise not_empty(storage, key, is_repository=True)
