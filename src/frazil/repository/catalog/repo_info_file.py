"""The read of the file ``repo``, which is only decoded if its bytes are new."""

from __future__ import annotations

from frazil.errors import ErrorKind, FormatError, RepositoryNotFoundError, StorageError
from frazil.format.keys import REPO
from frazil.format.late_fields import complete
from frazil.format.repo_info import RepoInfo, open_repo_info
from frazil.remedies import call
from frazil.storage.base import Storage, Version
from frazil.storage.outages import require_whole


class RepoInfoCache:
    """A cache for the last repo info, because most reads get the same bytes again."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[bytes, RepoInfo] | None = None

    def store_repo_info(self, raw: bytes, info: RepoInfo) -> None:
        """Store a repo info that was written or read. Reads get its bytes until another write."""
        self._last = (raw, info)

    def opened(self, raw: bytes) -> RepoInfo:
        """Return the repo info that ``raw`` encodes. Its fields are decoded when they are read."""
        last = self._last
        if last is None or last[0] != raw:
            last = self._last = (raw, open_repo_info(raw, REPO))
        return last[1]


def read_repo_info(storage: Storage, cache: RepoInfoCache | None = None) -> tuple[RepoInfo, Version, bytes]:
    """Return the current repo info, with all fields, the version of its file, and its bytes.

    Raises ``RepositoryNotFoundError`` if there is no file ``repo``, ``FormatError`` if it is damaged, and
    ``StorageError`` if the storage did not return the whole file.
    """
    try:
        data, version = storage.get_versioned(REPO)
    except StorageError as error:
        if (missing := _not_found(storage, error)) is not None:
            raise missing from error
        raise
    raw = bytes(data)
    try:
        return complete((cache or RepoInfoCache()).opened(raw)), version, raw
    except FormatError:
        require_whole(storage, REPO, raw, version)
        raise


def open_current_repo_info(storage: Storage, cache: RepoInfoCache) -> RepoInfo:
    """Return the current repo info, whose fields are decoded when they are read.

    Raises the errors of ``read_repo_info``, except for damaged fields. The version of the file is not
    computed: for local files it is a digest of all bytes.
    """
    try:
        raw = bytes(storage.get(REPO))
    except StorageError as error:
        if (missing := _not_found(storage, error)) is not None:
            raise missing from error
        raise
    try:
        return cache.opened(raw)
    except FormatError:
        return read_repo_info(storage, cache)[0]  # which tells damage from an incomplete answer


def _not_found(storage: Storage, error: StorageError) -> RepositoryNotFoundError | None:
    """Return the error for a ``repo`` that does not exist, or None if ``error`` has another reason."""
    if error.kind == ErrorKind.BUCKET_NOT_FOUND:
        return RepositoryNotFoundError(error.message, error.kind)
    if error.kind == ErrorKind.OBJECT_NOT_FOUND:
        return RepositoryNotFoundError(f"there is no repository in {storage.label()}").with_remedy(
            "Correct the location of the storage, or create a repository with `{}`", call("create")
        )
    return None
