"""The contract of foreign objects: one range of an object, the conditions on it, and the errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from obstore.exceptions import BaseError, NotFoundError

from frazil.errors import ErrorKind, InvalidInputError, StorageError, UnreachableError
from frazil.storage import failures
from frazil.storage.files import failures as file_failures
from frazil.storage.option_names import shown_url
from frazil.storage.traffic import TRAFFIC
from frazil.storage.web import failures as web_failures

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterator


@dataclass(frozen=True, slots=True)
class ForeignRange:
    """A range of an object and the conditions on the object.

    Attributes:
        url: URL of the object.
        start: First byte of the range.
        stop: End of the range; the byte at this position is not part of the range.
        etag: Etag that the object must have. Default: no condition.
        not_modified_since: Time after which the object must not have changed, compared in whole seconds.
            Default: no condition.
    """

    url: str
    start: int
    stop: int
    etag: str | None = None
    not_modified_since: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the range has no bytes."""
        return self.stop <= self.start

    @property
    def has_conditions(self) -> bool:
        """Whether there is a condition on the object."""
        return self.etag is not None or self.not_modified_since is not None

    def check_object(self, etag: str | None, modified: float) -> None:
        """Check the conditions on the object."""
        if self.etag is not None and (etag is None or self.etag.strip('"') != etag.strip('"')):
            raise self._modified(f"its etag must be {self.etag}, got {etag}")
        # References contain whole seconds. A file that is newer by a fraction of a second has changed.
        limit = self.not_modified_since
        if limit is not None and modified > int(limit.timestamp()):
            changed = datetime.fromtimestamp(modified, UTC)
            raise self._modified(
                f"its last change must not be after {limit.isoformat()}, got {changed.isoformat()}"
            )

    def _modified(self, difference: str) -> StorageError:
        return StorageError(
            f"the object of a virtual chunk has changed ({shown_url(self.url)}): {difference}. Restore the "
            "object, or write the virtual references again",
            ErrorKind.VIRTUAL_CHUNK_MODIFIED,
        )

    def too_short(self, end: int) -> StorageError:
        """Return the error for an object that ends at byte ``end``, before the end of the range."""
        return StorageError(
            f"error fetching virtual reference: {shown_url(self.url)} must have the range "
            f"[{self.start}, {self.stop}), but it ends at byte {end}",
            ErrorKind.VIRTUAL_CHUNK_FETCH,
        )


class ForeignObjects(ABC):
    """The objects below one URL prefix.

    It can be pickled, and it connects at its first use. ``open_foreign`` creates it.
    """

    def get(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        """Return a range of an object: all its bytes, or an error.

        Args:
            url: URL of the object, below the prefix.
            start: First byte of the range.
            stop: End of the range; the byte at this position is not part of the range.
            etag: Etag that the object must have. Default: no condition.
            not_modified_since: Time after which the object must not have changed, compared in whole seconds.
                Default: no condition.

        Returns:
            The bytes ``start <= i < stop``.

        Raises:
            StorageError: ``virtual-chunk-modified`` if a condition does not hold; ``virtual-chunk-fetch`` if
                the range cannot be read.
            InvalidInputError: ``invalid-virtual-ref`` for a URL that is not below the prefix.

        Examples:
            >>> from pathlib import Path
            >>> from frazil.storage import local_filesystem_store, open_foreign
            >>> size = Path("data.bin").write_bytes(b"0123456789")
            >>> folder = Path.cwd().as_uri() + "/"
            >>> files = open_foreign(local_filesystem_store(""), None, folder)
            >>> bytes(files.get(f"{folder}data.bin", 2, 5))
            b'234'
        """
        return self._read(ForeignRange(url, start, stop, etag, not_modified_since))

    async def get_async(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        """Do the same as ``get``, for an event loop."""
        return await self._read_async(ForeignRange(url, start, stop, etag, not_modified_since))

    @abstractmethod
    def _read(self, byte_range: ForeignRange) -> Buffer:
        """Return the bytes of a range. Each kind of store implements this method for ``get``."""

    @abstractmethod
    async def _read_async(self, byte_range: ForeignRange) -> Buffer:
        """Do the same as ``_read``, for an event loop."""

    @abstractmethod
    def size(self, url: str) -> int:
        """Return the size of an object.

        Args:
            url: URL of the object, below the prefix.

        Returns:
            The size in bytes.

        Raises:
            StorageError: ``virtual-chunk-fetch`` if the object cannot be found.
            InvalidInputError: ``invalid-virtual-ref`` for a URL that is not below the prefix.

        Examples:
            >>> from pathlib import Path
            >>> from frazil.storage import local_filesystem_store, open_foreign
            >>> size = Path("data.bin").write_bytes(b"0123456789")
            >>> folder = Path.cwd().as_uri() + "/"
            >>> open_foreign(local_filesystem_store(""), None, folder).size(f"{folder}data.bin")
            10
        """


def outside_prefix(url: str, prefix: str) -> InvalidInputError:
    """Return the error for a URL that is not below the prefix."""
    return InvalidInputError(
        f"the location {shown_url(url)!r} must begin with {shown_url(prefix)!r}, the URL prefix of its "
        "virtual chunk container",
        ErrorKind.INVALID_VIRTUAL_REF,
    )


def check_segments(url: str, key: str) -> None:
    """Raise ``InvalidInputError`` for a key that clients normalise: they would read another object."""
    if any(segment in ("", ".", "..") for segment in key.split("/")):
        raise InvalidInputError(
            f"the key in {shown_url(url)!r} must not have empty, '.' and '..' segments",
            ErrorKind.INVALID_VIRTUAL_REF,
        )


def credentials_mismatch(credentials: object, config: object) -> InvalidInputError:
    """Return the error for credentials of another kind of store."""
    return InvalidInputError(
        f"credentials of type {type(credentials).__qualname__} do not fit a store of type "
        f"{type(config).__qualname__}. Pass credentials of the same kind",
        ErrorKind.INVALID_CREDENTIALS,
    )


@contextmanager
def fetch_errors(url: str) -> Iterator[None]:
    """Count a request, and raise its errors as ``StorageError`` (``virtual-chunk-fetch``)."""
    TRAFFIC.count_request()
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        kind, reason = _reason(error, url)
        failure = StorageError(
            f"error fetching virtual reference {shown_url(url)}: {reason}", ErrorKind.VIRTUAL_CHUNK_FETCH
        )
        if kind is ErrorKind.CREDENTIALS_MISSING:
            failure.with_remedy(
                "Pass the credentials of this container in `authorize_virtual_chunk_access`",
                shell="Set the credentials of this container in the environment",
            )
        raise failure from error


def is_foreign_outage(error: BaseException) -> bool:
    """Return whether a failed read says nothing about the foreign object, as ``is_outage`` does for ours."""
    cause = error.__cause__
    if not isinstance(error, StorageError) or error.kind != ErrorKind.VIRTUAL_CHUNK_FETCH or cause is None:
        return False
    is_absent = isinstance(cause, (*file_failures.MISSING_FILE, NotFoundError))
    return not is_absent and failures.ErrorParts.from_text(str(cause)).status != _NO_SUCH_RANGE


#: The status of an object store for a range behind the end of an object.
_NO_SUCH_RANGE: Final = "416"


def _reason(error: Exception, url: str) -> tuple[ErrorKind, str]:
    """Return the kind of a failure, and why the object cannot be read."""
    if isinstance(error, OSError) and error.errno is not None:
        kind, text = file_failures.reason_of(error)
        return kind, f"{text} ({error.strerror})"
    terms = failures.MessageTerms("/".join(shown_url(url).split("/", 3)[:3]), "virtual chunks")
    if isinstance(error, UnreachableError):
        return web_failures.reason_of(error, url)
    reason = failures.reason_of(error, terms)
    failures.shorten(error)
    return reason
