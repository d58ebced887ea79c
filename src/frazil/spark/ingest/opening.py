"""Which reader is for a file: decided by its first bytes, never by its name."""

from __future__ import annotations

from typing import Any

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.ingest.sources import Reader


def open_source(
    url: str,
    format: str | None = None,
    *,
    group: str = "/",
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> Reader:
    """Open a file (a path or URL) with the reader of its format.

    ``options`` are for the reader of that format. Raises ``FormatError`` (``invalid-file-format``) that names
    the file if no reader knows it or it is damaged, ``StorageError`` if it cannot be read.
    """
    raise InvalidInputError(
        f"expected a format that can be read, found {format} for {url}", ErrorKind.UNIMPLEMENTED
    )
