"""What buckets in all object stores share: the contract, and checks before a client is made."""

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
        """What messages call the bucket."""

    @property
    def encodes_names(self) -> bool:
        """See ``Storage.encodes_names``."""
        return True

    @abstractmethod
    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        """A client for the keys below ``prefix``. Makes no request."""

    @abstractmethod
    def describe(self, prefix: str) -> str:
        """The lines of ``repr(storage)`` after the first."""


def description(rows: Mapping[str, str | bool | None]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in rows.items() if value is not None)


def connect_client[T](terms: MessageTerms, connect: Callable[[], T]) -> T:
    """Make a client; what the client says about its options is the caller's mistake."""
    try:
        return connect()
    except (BaseError, ValueError, TypeError) as error:
        raise StorageError(
            f"the options or credentials of {terms.name} ({terms.service}) are not valid: "
            f"{first_line(error)}",
            ErrorKind.STORAGE_CONFIG,
        ) from None


def check_bucket(name: str) -> None:
    # The client puts it into an address as it is, and fails in ways of its own.
    if re.fullmatch(r"[^\s/?#]+", name) is None or name in (".", ".."):
        raise StorageError(
            f"expected the name of a bucket or container, without '/', '?', '#' and spaces, found {name!r}; "
            "a path inside of it is `prefix`",
            ErrorKind.STORAGE_CONFIG,
        )


def check_endpoint(option: str, url: str | None) -> None:
    if url is None:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise StorageError(
            f"{option}: expected an address such as https://host or http://host:9000, found "
            f"{shown_url(url)!r}",
            ErrorKind.STORAGE_CONFIG,
        )
