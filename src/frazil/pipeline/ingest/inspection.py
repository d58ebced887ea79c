"""Inspects all files in parallel, before anything is written.

    driver      divides the files among tasks, 50 for each task
    executors   open each file (`frazil.pipeline.ingest.inspection_task`)
    driver      makes columns with an entry for each file, and tables of the properties that files share

`frazil.pipeline.ingest.dataset` decides which of the files are one dataset.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError, MissingExtraError
from frazil.jobs.engine import Engine
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Input
from frazil.pipeline.ingest.file_layout import FileLayout, OwnAttributes
from frazil.pipeline.ingest.file_report import Digests, FileReport, InspectionSpec
from frazil.pipeline.ingest.inspection_task import inspection_task
from frazil.pipeline.ingest.pattern import SourceFiles
from frazil.pipeline.ingest.problems import Problem

PER_TASK: Final = 50


@dataclass(frozen=True, slots=True)
class Inspection:
    """The contents of the files, as columns with one entry for each file.

    ``dim`` is the dimension in which files follow each other, None if they have none. ``layout`` and ``own``
    are codes of ``layouts`` and ``owns``, -1 for a file that was not opened or could not be read. The raw
    labels of file ``i`` are ``labels[label_start[i]:label_start[i + 1]]``, an empty part for a file without
    labels. ``scalars`` (name -> objects, (files,)) are the raw values of individual variables without
    dimensions, None for files that do not have them. ``individual`` are codes of ``individuals``: names and
    digests of all individual variables of a file.
    """

    files: SourceFiles
    dim: str | None
    size: NDArray[np.int64]
    fingerprint: NDArray[np.uint8]
    contents: NDArray[np.uint8]
    modified: tuple[datetime | None, ...]
    etag: tuple[str | None, ...]
    layout: NDArray[np.int32]
    own: NDArray[np.int32]
    length: NDArray[np.int64]
    label_start: NDArray[np.int64]
    labels: NDArray[Any]
    layouts: tuple[FileLayout, ...]
    owns: tuple[OwnAttributes, ...]
    scalars: Mapping[str, NDArray[np.object_]]
    individual: NDArray[np.int32]
    individuals: tuple[Digests, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all files."""
        return self.files.urls

    @property
    def encodings(self) -> NDArray[np.int64]:
        """A code for each file. Files with the same code have the same encodings of coordinates."""
        codes: NDArray[np.int64] = self.layout.astype(np.int64) * len(self.owns) + self.own
        return codes

    def chosen_urls(self, mask: NDArray[np.bool_]) -> list[str]:
        """Return the URLs of the files in a mask."""
        return [self.urls[i] for i in np.flatnonzero(mask).tolist()]

    def as_input(self) -> Input:
        """Return all files as one input of the job: their number, the name of the first, and a digest."""
        hashed = hashlib.sha256("\0".join(self.urls).encode())
        hashed.update(self.fingerprint.tobytes())
        paths = (f"{len(self.urls)} files", self.files.names()[0])
        return Input("files", None, "", paths, hashed.hexdigest()[:32])


def inspect_all(
    files: SourceFiles,
    spec: InspectionSpec,
    engine: Engine,
    *,
    fingerprints: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Open all files, in tasks of the engine.

    Files whose fingerprint is still the one in ``fingerprints`` (by URL) are not opened.
    """
    expected = [(fingerprints or {}).get(url) for url in files.urls]
    tasks = [
        pickle.dumps((files.urls[start : start + PER_TASK], expected[start : start + PER_TASK]))
        for start in range(0, len(files.urls), PER_TASK)
    ]
    reports: list[FileReport] = []
    for result in engine.run(inspection_task, tasks, pickle.dumps(spec)):
        some: list[FileReport] = pickle.loads(result)
        for file in some:
            if file.problem is not None and file.problem[0] == ErrorKind.MISSING_EXTRA:
                raise MissingExtraError(file.problem[1])
        reports += some
        if progress is not None:
            progress.advance(rows=len(some), bytes=sum(file.size for file in some))
    inspection = _columns(files, spec.dim, reports)
    if all(each is None for each in expected):
        _require_variables(spec, reports, inspection.layouts)
    return inspection


def _require_variables(
    spec: InspectionSpec, reports: Sequence[FileReport], layouts: Sequence[FileLayout]
) -> None:
    """Raise ``InvalidInputError`` if no file has a variable that the caller names."""
    names = {name for layout in layouts for name in layout.variables}
    names |= {name for report in reports for name in report.unfit}
    missing = sorted((spec.variables or frozenset()) - names)
    if not missing:
        return
    reasons = [layout.skipped[missing[0]] for layout in layouts if missing[0] in layout.skipped]
    reason = f"no array can hold: {reasons[0]}" if reasons else "no file has"
    raise InvalidInputError(
        f"variables must be names of variables in the files, got {missing[0]!r}, which {reason}",
        ErrorKind.INVALID_ARGUMENT,
    )


def _columns(files: SourceFiles, dim: str | None, reports: Sequence[FileReport]) -> Inspection:
    _refuse_inexact_labels(dim, reports)
    labels = [file.labels for file in reports if file.labels is not None]
    lengths = np.array([0 if file.labels is None else len(file.labels) for file in reports], np.int64)
    layout, layouts = _codes(reports, attrgetter("layout"), attrgetter("digest"))
    own, owns = _codes(reports, attrgetter("own"))
    individual, individuals = _codes(reports, attrgetter("individual"))
    return Inspection(
        files=files,
        dim=dim,
        size=np.array([file.size for file in reports], np.int64),
        fingerprint=_digests([file.fingerprint for file in reports]),
        contents=_digests([file.contents for file in reports]),
        modified=tuple(file.modified for file in reports),
        etag=tuple(file.etag for file in reports),
        layout=layout,
        own=own,
        length=np.array([file.length for file in reports], np.int64),
        label_start=np.concatenate([[0], np.cumsum(lengths)]),
        labels=np.concatenate(labels) if labels else np.empty(0),
        layouts=layouts,
        owns=owns,
        scalars=_scalar_columns(reports),
        individual=individual,
        individuals=individuals,
        problems=tuple(
            Problem(*file.problem, url)
            for url, file in zip(files.urls, reports, strict=True)
            if file.problem is not None
        ),
    )


def _codes(
    reports: Sequence[FileReport],
    value_of: Callable[[FileReport], Any],
    key: Callable[[Any], Any] = lambda value: value,
) -> tuple[NDArray[np.int32], tuple[Any, ...]]:
    """Return a code for each file, and the values in the order of their codes; -1 without a layout."""
    table: dict[Any, tuple[int, Any]] = {}
    code_of: dict[int, int] = {}  # the files of a task share equal values
    codes = np.full(len(reports), -1, np.int32)
    for row, file in enumerate(reports):
        if file.layout is None:
            continue
        value = value_of(file)
        if id(value) not in code_of:
            code_of[id(value)] = table.setdefault(key(value), (len(table), value))[0]
        codes[row] = code_of[id(value)]
    return codes, tuple(value for _, value in table.values())


def _refuse_inexact_labels(dim: str | None, reports: Sequence[FileReport]) -> None:
    """Mark files with integer labels that the dtype of all labels, a float, cannot hold."""
    dtypes = {file.labels.dtype for file in reports if file.labels is not None}
    if len(dtypes) <= 1 or any(each.kind not in "iuf" for each in dtypes):
        return
    common = np.result_type(*dtypes)
    for file in reports:
        labels = file.labels
        if common.kind != "f" or labels is None or labels.dtype.kind == "f":
            continue
        # Python compares integers with floats exactly.
        same = [a == b for a, b in zip(labels.tolist(), labels.astype(common).tolist(), strict=True)]
        if not all(same):
            text = f"{dim} has the value {labels[same.index(False)]}, which {common} cannot hold"
            file.problem, file.layout = ("dtype", text), None


def _scalar_columns(files: Sequence[FileReport]) -> dict[str, NDArray[np.object_]]:
    columns: dict[str, NDArray[np.object_]] = {}
    for row, file in enumerate(files):
        for name, value in file.scalars.items():
            if name not in columns:
                columns[name] = np.full(len(files), None, object)
            columns[name][row] = value
    return columns


def _digests(texts: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(len(texts), 16)
