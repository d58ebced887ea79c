"""The contract of foreign objects: one range of an object, the conditions on it, and the errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage import failures
from frazil.storage.files import failures as file_failures
from frazil.storage.option_names import shown_url
from frazil.storage.traffic import TRAFFIC
from frazil.storage.web import failures as web_failures
from frazil.storage.web.answer import Unreachable

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterator


@dataclass(frozen=True, slots=True)
class ForeignRange:
    """The bytes ``start <= i < stop`` of the object at ``url``, and the conditions on the object."""

    url: str
    start: int
    stop: int
    etag: str | None = None
    not_modified_since: datetime | None = None

    @property
    def is_empty(self) -> bool:
        return self.stop <= self.start

    @property
    def has_conditions(self) -> bool:
        return self.etag is not None or self.not_modified_since is not None

    def check_object(self, etag: str | None, modified: float) -> None:
        """Raise ``StorageError`` (``virtual-chunk-modified``) unless the conditions hold for the object.

        ``etag`` and ``modified`` (Unix time in seconds) come from the answer of the server.
        """
        if self.etag is not None and (etag is None or self.etag.strip('"') != etag.strip('"')):
            raise self._modified(f"expected etag {self.etag}, found {etag}")
        # A reference holds whole seconds; of a file every fraction later is a change.
        limit = self.not_modified_since
        if limit is not None and modified > int(limit.timestamp()):
            changed = datetime.fromtimestamp(modified, UTC)
            raise self._modified(
                f"expected no change after {limit.isoformat()}, found one at {changed.isoformat()}"
            )

    def _modified(self, difference: str) -> StorageError:
        return StorageError(
            f"the object of a virtual chunk has changed ({shown_url(self.url)}): {difference}. Restore the "
            "object, or write the virtual references again",
            ErrorKind.VIRTUAL_CHUNK_MODIFIED,
        )

    def too_short(self, end: int) -> StorageError:
        """The error for an object that ends at byte ``end``, inside of the range or before it."""
        return StorageError(
            f"error fetching virtual reference: {shown_url(self.url)} ends at byte {end}, "
            f"expected the range [{self.start}, {self.stop})",
            ErrorKind.VIRTUAL_CHUNK_FETCH,
        )


class ForeignObjects(ABC):
    """The objects below one URL prefix. May be pickled; connects at its first use."""

    def get(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        """The bytes ``start <= i < stop`` of the object at ``url``: all of them, or an error.

        Raises ``StorageError``: ``virtual-chunk-modified`` if the object has another etag or was changed
        after that time (in whole seconds), ``virtual-chunk-fetch`` if it cannot be read;
        ``InvalidInputError`` of kind ``invalid-virtual-ref`` for a URL that is not below the prefix.
        """
        return self.read_range(ForeignRange(url, start, stop, etag, not_modified_since))

    async def get_async(
        self,
        url: str,
        start: int,
        stop: int,
        *,
        etag: str | None = None,
        not_modified_since: datetime | None = None,
    ) -> Buffer:
        """``get`` for an event loop."""
        return await self.read_range_async(ForeignRange(url, start, stop, etag, not_modified_since))

    @abstractmethod
    def read_range(self, byte_range: ForeignRange) -> Buffer:
        """See ``get``."""

    @abstractmethod
    async def read_range_async(self, byte_range: ForeignRange) -> Buffer:
        """See ``get_async``."""

    @abstractmethod
    def size(self, url: str) -> int:
        """How many bytes the object at ``url`` has. Raises ``StorageError`` (``virtual-chunk-fetch``)."""


def outside_prefix(url: str, prefix: str) -> InvalidInputError:
    """The error for a URL that is not below the prefix."""
    return InvalidInputError(
        f"{shown_url(url)!r} is not in the virtual chunk container {shown_url(prefix)!r}: expected a "
        "location that begins with it",
        ErrorKind.INVALID_VIRTUAL_REF,
    )


def check_segments(url: str, key: str) -> None:
    """Refuse keys that clients normalise: they would read another object."""
    if any(segment in ("", ".", "..") for segment in key.split("/")):
        raise InvalidInputError(
            f"cannot address {shown_url(url)!r}: expected a key without empty, '.' and '..' segments",
            ErrorKind.INVALID_VIRTUAL_REF,
        )


def credentials_mismatch(credentials: object, config: object) -> InvalidInputError:
    """The error for credentials of another kind of store."""
    return InvalidInputError(
        f"credentials of type {type(credentials).__qualname__} do not fit a store of type "
        f"{type(config).__qualname__}: give credentials of the same kind",
        ErrorKind.INVALID_CREDENTIALS,
    )


@contextmanager
def fetch_errors(url: str) -> Iterator[None]:
    """Count a request, and raise what it raises as ``StorageError`` (``virtual-chunk-fetch``)."""
    TRAFFIC.count_request()
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise StorageError(
            f"error fetching virtual reference {shown_url(url)}: {_reason(error, url)}",
            ErrorKind.VIRTUAL_CHUNK_FETCH,
        ) from error


def _reason(error: Exception, url: str) -> str:
    """Why the object could not be read, and what to do."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{file_failures.reason_of(error)[1]} ({error.strerror})"
    terms = failures.MessageTerms(
        "/".join(shown_url(url).split("/", 3)[:3]),
        "virtual chunks",
        "give those of this container in `authorize_virtual_chunk_access`",
        "`allow_http=True` to the store of this container",
    )
    if isinstance(error, Unreachable):
        return web_failures.reason_of(error, url)[1]
    reason = failures.reason_of(error, terms)[1]
    failures.shorten(error)
    return reason
