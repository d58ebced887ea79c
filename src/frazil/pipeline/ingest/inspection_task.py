"""The task that inspects files."""

from __future__ import annotations

import pickle
from itertools import repeat
from typing import Any

from frazil.pipeline.ingest.file_layout import FileLayout
from frazil.pipeline.ingest.file_report import FileReport, InspectionSpec, file_report
from frazil.threads import Purpose, thread_pool


def inspection_task(shared: bytes, task: bytes) -> bytes:
    """Inspect some files.

    ``shared`` is a pickled `InspectionSpec`, ``task`` are pickled URLs and fingerprints. Returns a pickled
    list of `FileReport`. Equal layouts are one object, which pickle writes once.
    """
    spec: InspectionSpec = pickle.loads(shared)
    urls, fingerprints = pickle.loads(task)
    files: list[FileReport]
    if any("://" in url and not url.startswith("file:") for url in urls):
        with thread_pool(Purpose.FILE_INSPECTIONS) as pool:
            files = list(pool.map(file_report, urls, fingerprints, repeat(spec)))
    else:
        files = list(map(file_report, urls, fingerprints, repeat(spec)))
    layouts: dict[str, FileLayout] = {}
    others: dict[Any, Any] = {}
    for file in files:
        if file.layout is not None:
            file.layout = layouts.setdefault(file.layout.digest, file.layout)
            file.own = others.setdefault(file.own, file.own)
            file.individual = others.setdefault(file.individual, file.individual)
    return pickle.dumps(files)
