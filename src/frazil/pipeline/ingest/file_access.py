"""Opens the files of an ingest with the options of the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.readers.base_reader import Reader
from frazil.readers.registry import open_source


@dataclass(frozen=True, slots=True)
class FileAccess:
    """The format, the group in the files, and the options of storage and reader; see `FileOptions`."""

    format: str | None = None
    group: str = "/"
    storage_options: Mapping[str, Any] | None = None
    reader_options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, url: str) -> Reader:
        """Open a file with the reader of its format."""
        storage_options = None if self.storage_options is None else dict(self.storage_options)
        return open_source(
            url, self.format, group=self.group, storage_options=storage_options, **self.reader_options
        )
