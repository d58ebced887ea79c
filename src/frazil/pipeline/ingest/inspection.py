"""Inspects all files in parallel, before anything is written.

    driver      divides the files among tasks, 50 for each task
    executors   open each file
    driver      makes columns with an entry for each file, and tables of the properties that files share

`frazil.pipeline.ingest.dataset` decides which of the files are one dataset.

A file that the task cannot open is a problem with the name of the file, not an error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, MissingExtraError
from frazil.jobs.engine import Engine
from frazil.jobs.job import Input
from frazil.jobs.progress import Progress
from frazil.pipeline.ingest.arrays import cuttable_chunks
from frazil.pipeline.ingest.layouts import (
    FileLayout,
    OwnAttributes,
    VirtualChunks,
    individual_names,
    layout_of,
    values_digest,
)
from frazil.pipeline.ingest.options import FileAccess, SourceFiles
from frazil.pipeline.ingest.problems import Problem
from frazil.readers.attribute_values import decoded
from frazil.readers.base_reader import Reader
from frazil.readers.file_schema import ChunkReferences, FileSchema, NotVirtual, VariableSchema
from frazil.readers.files import find_file, local_path
from frazil.readers.registry import is_zarr
from frazil.threads import Purpose, thread_pool

#: The values of shared variables are compared up to this size, in bytes.
COMPARED: Final = 1 << 20


#: Names of variables and digests of their values, sorted.
type Digests = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class InspectionSpec:
    """The options of the inspection that all tasks get.

    ``dim``: the dimension in which files follow each other, None if files have none. ``virtual``: whether to
    report the chunks of data for references. ``variables``: the data variables to report, None for all.
    """

    access: FileAccess
    dim: str | None = None
    virtual: bool = False
    variables: frozenset[str] | None = None


_NO_DIGEST: Final = "0" * 32


@dataclass(slots=True)
class FileReport:
    """The report on one file. A file without a layout has a problem, or was not opened."""

    size: int = 0
    fingerprint: str = _NO_DIGEST
    contents: str = _NO_DIGEST
    modified: datetime | None = None
    etag: str | None = None
    layout: FileLayout | None = None
    own: OwnAttributes = ()
    individual: Digests = ()
    length: int = 0
    labels: NDArray[Any] | None = None
    scalars: dict[str, Any] = field(default_factory=dict)
    problem: tuple[str, str] | None = None
    #: Requested variables that no array can hold, in a file without any usable variable.
    unfit: tuple[str, ...] = ()


def file_report(url: str, fingerprint: str | None, spec: InspectionSpec) -> FileReport:
    """Return the report on one file. The file is not opened if it still has this fingerprint."""
    if fingerprint is not None and (file := _state(url, spec.access)).fingerprint == fingerprint:
        return file
    try:
        with spec.access.open(url) as reader:
            whole = reader.schema()
            schema = _chosen(_with_masked_text(whole, virtual=spec.virtual), spec.variables)
            if schema is None:
                problem = ("variables", _nothing(whole, spec.variables))
                unfit = tuple(whole.skipped.keys() & (spec.variables or ()))
                return replace(_state(url, spec.access), problem=problem, unfit=unfit)
            individual = individual_names(schema, spec.dim)
            values = _compared(reader, schema, spec.dim, individual)
            digests, scalars = _individual(reader, schema, individual)
            virtual = _virtual(reader, schema, spec.dim) if spec.virtual else None
    except MissingExtraError as error:  # not a problem of the file: the driver raises it
        return FileReport(problem=(error.kind, error.message))
    except IcechunkError as error:
        problem = (_problem_kind(url, error), _without_name(url, error.message))
        return replace(_state(url, spec.access), problem=problem)
    except Exception as error:  # libraries may raise any error for a damaged file
        return replace(_state(url, spec.access), problem=("damaged", f"{type(error).__name__}: {error}"))
    layout, own = layout_of(schema, spec.dim, values, frozenset(scalars | dict(digests)), virtual)
    return FileReport(
        schema.size,
        state_of(schema),
        schema.fingerprint,
        schema.modified,
        schema.etag,
        layout,
        own,
        digests,
        length=1 if spec.dim is None else schema.dims.get(spec.dim, 1),
        labels=schema.coords.get(spec.dim) if spec.dim is not None else None,
        scalars=scalars,
    )


def _problem_kind(url: str, error: IcechunkError) -> str:
    """Return the kind of problem of a file without a schema."""
    if isinstance(error, InvalidInputError) or error.kind == ErrorKind.KEY_NOT_FOUND:
        return "options"
    path = local_path(url)
    is_folder = path is not None and os.path.isdir(path) and not is_zarr(url)
    return "damaged" if isinstance(error, FormatError) and not is_folder else "unreadable"


def _without_name(url: str, message: str) -> str:
    """Return the text of a reader's error on one line, without the name of the file."""
    text = " ".join(message.split())
    path = local_path(url)
    names = [url] if path is None else [url, path, Path(path).absolute().as_uri()]
    for name in names:
        text = text.removeprefix(f"{name}: ")
    return text


def _state(url: str, access: FileAccess) -> FileReport:
    """Return a report without the help of a reader: size, fingerprint and time of the file."""
    try:
        file = find_file(url, access.storage_options)
        contents = file.fingerprint()
    except IcechunkError:  # the file does not exist, or is a directory
        return FileReport()
    fingerprint = _with_time(contents, file.modified, file.etag)
    return FileReport(file.size, fingerprint, contents, file.modified, file.etag)


def state_of(schema: FileSchema) -> str:
    """Return the fingerprint by which an ingest recognizes an unchanged file."""
    return _with_time(schema.fingerprint, schema.modified, schema.etag)


def _with_time(contents: str, modified: datetime | None, etag: str | None) -> str:
    """Add the time of the file to its fingerprint, unless it has an etag.

    A fingerprint covers only both ends of a file. A change between them changes the etag or the time.
    """
    if modified is None or etag is not None:
        return contents
    return hashlib.sha256(f"{contents} {modified.timestamp()}".encode()).hexdigest()[:32]


def _nothing(schema: FileSchema, variables: frozenset[str] | None) -> str:
    """Return the reason why a file has no variables to ingest."""
    named = schema.skipped if variables is None else {}
    if variables is not None:
        named = {name: schema.skipped[name] for name in sorted(variables & schema.skipped.keys())}
        text = f"has none of {', '.join(sorted(variables))}"
    else:
        text = f"the group {schema.group} has no variables that an array can hold"
    if named:
        text += ": " + ", ".join(f"{name} ({why})" for name, why in named.items())
    if schema.groups:
        text += (
            f"; there are groups {', '.join(schema.groups)}, and each can be the source group of an ingest"
        )
    return text


def _with_masked_text(schema: FileSchema, *, virtual: bool) -> FileSchema:
    """Return the schema with text for characters with a fill value, which xarray masks.

    xarray cannot open a Zarr array of characters with ``_FillValue``, but masks texts with ``missing_value``.
    It joins characters along a dimension of their own to strings, and does not mask these. References keep
    the characters, and get a note.
    """
    variables, skipped = dict(schema.variables), dict(schema.skipped)
    for name, each in schema.variables.items():
        fill = each.attrs.get("_FillValue")
        if (
            each.dtype.kind == "S"
            and isinstance(fill, str)
            and len(fill) == 1
            and not _is_joined(schema, each)
        ):
            attrs = {key: value for key, value in each.attrs.items() if key != "_FillValue"}
            attrs["missing_value"] = fill
            text = np.dtypes.StringDType()
            variables[name] = replace(each, dtype=text, attrs=attrs, fill_value="")
            if virtual:
                variables[name] = each
                skipped[f"{name}:_FillValue"] = f"xarray masks {fill!r} in the file; a copy does, too"
    return replace(schema, variables=variables, skipped=skipped)


def _is_joined(schema: FileSchema, variable: VariableSchema) -> bool:
    """Return whether xarray joins the characters along the last dimension to strings."""
    last = variable.dims[-1:]
    users = [each for each in schema.variables.values() if last and last[0] in each.dims]
    return bool(last) and all(each.dtype.kind == "S" and each.dims[-1:] == last for each in users)


def _chosen(schema: FileSchema, variables: frozenset[str] | None) -> FileSchema | None:
    """Return the schema with only these data variables; None if it has none of them, or no variables."""
    if variables is None:
        return schema if schema.variables else None
    chosen = {name: each for name, each in schema.variables.items() if each.coordinate or name in variables}
    if not variables & chosen.keys():
        return None
    return replace(schema, variables=chosen)


def _compared(
    reader: Reader, schema: FileSchema, dim: str | None, individual: frozenset[str]
) -> dict[str, str]:
    """Return digests of the variables that should be the same in all files.

    If files do not have the dimension, data differ from file to file and are excluded.
    """
    return {
        name: values_digest(_values(reader, schema, variable))
        for name, variable in schema.variables.items()
        if dim not in variable.dims and name not in individual and _bytes(variable) <= COMPARED
        if variable.coordinate or dim in schema.dims
    }


def _individual(reader: Reader, schema: FileSchema, names: frozenset[str]) -> tuple[Digests, dict[str, Any]]:
    """Return digests of the variables that may differ from file to file, and the raw values of scalars."""
    digests: dict[str, str] = {}
    scalars: dict[str, Any] = {}
    for name in sorted(names):
        variable = schema.variables[name]
        if _bytes(variable) > COMPARED:
            continue
        values = np.asarray(_values(reader, schema, variable))
        digests[name] = values_digest(values)
        if not variable.dims:
            scalars[name] = values.reshape(-1)[0] if values.dtype.kind == "T" else values.item()
    return tuple(digests.items()), scalars


def _values(reader: Reader, schema: FileSchema, variable: VariableSchema) -> NDArray[Any]:
    values = schema.coords.get(variable.name)
    if values is None:
        values = reader.read(variable.name, tuple(map(slice, variable.shape)))
    return decoded(values) if variable.dtype.kind == "T" and values.dtype.kind == "S" else values


def _bytes(variable: VariableSchema) -> int:
    return math.prod(variable.shape) * max(variable.dtype.itemsize, 1)


def _virtual(reader: Reader, schema: FileSchema, dim: str | None) -> dict[str, VirtualChunks | NotVirtual]:
    """Return the chunks of data for references. Coordinates are copied, and have none."""
    return {
        name: _chunked(reader.references(name), variable, dim)
        for name, variable in schema.variables.items()
        if not variable.coordinate
    }


def _chunked(
    references: ChunkReferences | NotVirtual, variable: VariableSchema, dim: str | None
) -> VirtualChunks | NotVirtual:
    if isinstance(references, NotVirtual):
        return references
    codecs = tuple(json.dumps(each, sort_keys=True) for each in references.codecs)
    chunks, unit = references.chunks, 0
    if dim in variable.dims:
        axis = variable.dims.index(dim)
        chunks, unit = cuttable_chunks(references, axis, variable.shape[axis])
    return VirtualChunks(chunks, codecs, references.dtype, references.fill_value, unit)


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
