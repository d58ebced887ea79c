"""Errors that all readers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from frazil.errors import ErrorKind, FormatError, StorageError


def damaged(url: str, expected: str, actual: object) -> FormatError:
    """Return the error for a file that is damaged, truncated or of another format. All readers raise it."""
    text = " ".join(str(actual).split())
    return FormatError(f"{url}: expected {expected}, got {text}", ErrorKind.INVALID_FILE_FORMAT)


def no_group(url: str, group: str, actual: object) -> FormatError:
    """Return the error for a group that a file does not have. All readers raise it."""
    return FormatError(f"{url}: no group {group}: {actual}", ErrorKind.KEY_NOT_FOUND)


@contextmanager
def file_access(url: str) -> Iterator[None]:
    """Return a context in which errors of the operating system become ``StorageError`` with the URL."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"{url}: the file does not exist", ErrorKind.OBJECT_NOT_FOUND) from error
    except OSError as error:
        raise StorageError(f"{url}: cannot be read: {error}", ErrorKind.IO) from error
