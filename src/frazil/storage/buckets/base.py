"""The base class of buckets in all object stores, and checks before a client is created."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from obstore.exceptions import BaseError

from frazil.errors import ErrorKind, StorageError
from frazil.storage.failures import MessageTerms, first_line
from frazil.storage.option_names import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from obstore.store import ObjectStore

    from frazil.storage.settings import StorageSettings


class Bucket(ABC):
    """A bucket or container of an object store."""

    @property
    @abstractmethod
    def terms(self) -> MessageTerms:
        """The words of messages for this bucket."""

    @property
    def encodes_names(self) -> bool:
        """Whether names of objects contain percent codes: see ``Storage.encodes_names``."""
        return True

    @abstractmethod
    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        """Return a client for the keys below ``prefix``. No request is sent."""

    @abstractmethod
    def address(self, prefix: str) -> str:
        """Return the URL of a prefix, for messages."""

    @abstractmethod
    def describe(self, prefix: str) -> str:
        """Return the lines of ``repr(storage)`` after the first line."""


def description(rows: Mapping[str, str | bool | None]) -> str:
    """Return one line "name: value" for each row whose value is not None."""
    return "".join(f"{name}: {value}\n" for name, value in rows.items() if value is not None)


def connect_client[T](terms: MessageTerms, connect: Callable[[], T]) -> T:
    """Return the client that ``connect`` creates."""
    try:
        return connect()
    except (BaseError, ValueError, TypeError) as error:
        raise StorageError(
            f"the options or credentials of {terms.name} ({terms.service}) are not valid: "
            f"{first_line(error)}",
            ErrorKind.STORAGE_CONFIG,
        ) from None


def check_bucket(name: str) -> None:
    """Raise ``StorageError`` (``storage-config``) for an invalid name of a bucket or container."""
    # The client inserts the name into a URL without a check, and its errors do not explain the problem.
    if re.fullmatch(r"[^\s/?#]+", name) is None or name in (".", ".."):
        raise StorageError(
            "the name of a bucket or container must not be empty and must not contain '/', '?', '#' and "
            f"spaces, got {name!r}. Pass a path inside the bucket as `prefix`",
            ErrorKind.STORAGE_CONFIG,
        )


def check_endpoint(option: str, url: str | None) -> None:
    """Raise ``StorageError`` (``storage-config``) if an endpoint is not an http or https URL with a host."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise StorageError(
            f"{option} must be a URL such as https://host or http://host:9000, got {shown_url(url)!r}",
            ErrorKind.STORAGE_CONFIG,
        )
