"""How much an ingest has to read, before any file is opened: whether it pays to start processes."""

from __future__ import annotations

import os
from typing import Final

from frazil.pipeline.ingest.pattern import Files, expand
from frazil.readers.files import local_path

#: So many files, with so many bytes, are read in this process faster than others start.
FEW_FILES: Final = 64
FEW_BYTES: Final = 256 << 20


def is_small(source: Files) -> bool:
    """Whether ``source`` is a few files with few bytes, all on this machine.

    Raises ``InvalidInputError`` (``key-not-found``) if there are none.

    >>> is_small(["s3://bucket/day_1.nc"])
    False
    """
    urls = expand(source).urls
    if len(urls) > FEW_FILES:
        return False
    paths = [local_path(url) for url in urls]
    return all(path is not None for path in paths) and sum(map(_size, filter(None, paths))) <= FEW_BYTES


def _size(path: str) -> int:
    """The bytes of a file, or of all files of a folder (a group of Zarr); 0 if it is not there."""
    if not os.path.isdir(path):
        try:
            return os.stat(path).st_size
        except OSError:  # the ingest names it
            return 0
    return sum(
        entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
        for folder, _, _ in os.walk(path)
        for entry in os.scandir(folder)
    )
