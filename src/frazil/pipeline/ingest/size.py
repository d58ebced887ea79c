"""Estimates the size of an ingest before any file is opened, to decide whether to start processes."""

from __future__ import annotations

import os
from typing import Final

from frazil.pipeline.ingest.pattern import Files, expand
from frazil.readers.files import local_path

#: This process reads so few files and bytes faster than other processes start.
FEW_FILES: Final = 64
FEW_BYTES: Final = 256 << 20


def is_small(source: Files) -> bool:
    """Return whether ``source`` is at most 64 files with at most 256 MiB, all on this machine."""
    urls = expand(source).urls
    if len(urls) > FEW_FILES:
        return False
    paths = [local_path(url) for url in urls]
    return all(path is not None for path in paths) and sum(map(_size, filter(None, paths))) <= FEW_BYTES


def _size(path: str) -> int:
    """Return the bytes of a file, or of all files of a folder (a Zarr group); 0 if it does not exist."""
    if not os.path.isdir(path):
        try:
            return os.stat(path).st_size
        except OSError:  # the ingest reports the file
            return 0
    return sum(
        entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
        for folder, _, _ in os.walk(path)
        for entry in os.scandir(folder)
    )
