"""The read of the file ``repo``, which is only decoded if its bytes are new."""

from __future__ import annotations

from frazil.errors import ErrorKind, FormatError, RepositoryNotFoundError, StorageError
from frazil.format.keys import REPO
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.storage.base import Storage, Version
from frazil.storage.outages import require_whole


class RepoInfoCache:
    """A cache for the last decoded repo info, because most reads get the same bytes again."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[bytes, RepoInfo] | None = None

    def store_repo_info(self, raw: bytes, info: RepoInfo) -> None:
        """Store a repo info that this process has written. Reads get its bytes until another write."""
        self._last = (raw, info)

    def decoded(self, raw: bytes) -> RepoInfo:
        """Return the repo info that ``raw`` encodes."""
        last = self._last
        if last is None or last[0] != raw:
            last = self._last = (raw, decode_repo_info(raw, REPO))
        return last[1]


def read_repo_info(storage: Storage, cache: RepoInfoCache | None = None) -> tuple[RepoInfo, Version, bytes]:
    """Return the current repo info, the version of its file, and its bytes.

    Raises ``RepositoryNotFoundError`` if there is no file ``repo``, ``FormatError`` if it is damaged, and
    ``StorageError`` if the storage did not return the whole file.
    """
    try:
        data, version = storage.get_versioned(REPO)
    except StorageError as error:
        if error.kind == ErrorKind.BUCKET_NOT_FOUND:
            raise RepositoryNotFoundError(error.message, error.kind) from error
        if error.kind == ErrorKind.OBJECT_NOT_FOUND:
            raise RepositoryNotFoundError(
                f"there is no repository in {storage.label()}. Correct the location of the storage, or "
                "create a repository with Repository.create"
            ) from error
        raise
    raw = bytes(data)
    try:
        return (cache or RepoInfoCache()).decoded(raw), version, raw
    except FormatError:
        require_whole(storage, REPO, raw, version)
        raise
