"""Many files are looked at in parallel, before anything is written.

    driver      the files, 50 or more for each task
    executors   open each file: schema, fingerprint, labels; what many files share is sent once
    driver      columns with an entry for each file, and layouts; `combining` says what is wrong with them

What a task cannot open is a problem with the name of the file, not an error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, MissingExtraError
from frazil.jobs.engine import Engine
from frazil.jobs.progress import Progress
from frazil.pipeline.ingest.file_schemas import (
    Chunked,
    Layout,
    Own,
    individual_names,
    layout_of,
    values_digest,
)
from frazil.pipeline.ingest.pattern import Expanded
from frazil.pipeline.ingest.plain_chunks import cuttable
from frazil.pipeline.ingest.problems import Problem
from frazil.readers.files import find_file, local_path
from frazil.readers.reader import ChunkReferences, FileSchema, NotVirtual, Reader, VariableSchema
from frazil.readers.registry import is_zarr, open_source
from frazil.threads import Purpose, thread_pool

PER_TASK: Final = 50
#: Values of variables that are the same in all files are compared up to this size, in bytes.
COMPARED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """How files are opened."""

    format: str | None = None
    group: str = "/"
    storage_options: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, url: str) -> Reader:
        storage_options = None if self.storage_options is None else dict(self.storage_options)
        return open_source(
            url, self.format, group=self.group, storage_options=storage_options, **self.options
        )


#: Names of variables and digests of their values, sorted.
type Digests = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of files, as columns with an entry for each.

    ``layout`` and ``own`` are codes of ``layouts`` and ``owns``, -1 for a file that was not opened, or could
    not be read. The labels of file ``i`` are ``labels[label_start[i]:label_start[i + 1]]``, raw; a file
    without labels has none. ``scalars`` (name -> objects, (files,)) are the raw values of individual
    variables without dimensions, None for files that do not have them. ``individual`` are codes of
    ``individuals``: names and digests of all individual variables of a file.
    """

    urls: tuple[str, ...]
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
    layouts: tuple[Layout, ...]
    owns: tuple[Own, ...]
    scalars: Mapping[str, NDArray[np.object_]]
    individual: NDArray[np.int32]
    individuals: tuple[Digests, ...]
    problems: tuple[Problem, ...] = ()


_NONE: Final = "0" * 32


@dataclass(slots=True)
class _File:
    """What a task says of one file; ``layout``, ``own``, ``individual`` are codes among those of the task."""

    size: int = 0
    fingerprint: str = _NONE
    contents: str = _NONE
    modified: datetime | None = None
    etag: str | None = None
    layout: int = -1
    own: int = -1
    individual: int = -1
    length: int = 0
    labels: NDArray[Any] | None = None
    scalars: dict[str, Any] = field(default_factory=dict)
    problem: tuple[str, str] | None = None
    #: Variables that were asked for, and that no array can hold, of a file that has no others.
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shared:
    options: Options
    dim: str | None
    virtual: bool
    variables: frozenset[str] | None


def look(
    files: Expanded,
    dim: str | None,
    options: Options,
    engine: Engine,
    *,
    virtual: bool = False,
    variables: Collection[str] | None = None,
    known: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Looked:
    """Open all files, in tasks of the engine. ``variables`` are the data that count, all if not given.

    Files of which ``known`` has the fingerprint (by URL) are not opened if they still have it. Raises
    ``MissingExtraError`` if the library for the format of a file is not installed.
    """
    count = len(files.urls)
    fingerprints = list(map((known or {}).get, files.urls))
    tasks = [
        (files.urls[start : start + PER_TASK], fingerprints[start : start + PER_TASK])
        for start in range(0, count, PER_TASK)
    ]
    shared = pickle.dumps(_Shared(options, dim, virtual, None if variables is None else frozenset(variables)))
    collected: list[_File] = []
    layouts: dict[str, tuple[int, Layout]] = {}
    owns: dict[Own, int] = {}
    individuals: dict[Digests, int] = {}
    for result in engine.run(look_task, list(map(pickle.dumps, tasks)), shared):
        reports, *tables = pickle.loads(result)
        _require_readers(reports)
        codes = [layouts.setdefault(each.digest, (len(layouts), each))[0] for each in tables[0]]
        own_codes = [owns.setdefault(each, len(owns)) for each in tables[1]]
        individual_codes = [individuals.setdefault(each, len(individuals)) for each in tables[2]]
        for file in reports:
            file.layout = codes[file.layout] if file.layout >= 0 else -1
            file.own = own_codes[file.own] if file.own >= 0 else -1
            file.individual = individual_codes[file.individual] if file.individual >= 0 else -1
        collected += reports
        if progress is not None:
            progress.advance(rows=len(reports), bytes=sum(file.size for file in reports))
    found = {name for _, each in layouts.values() for name in each.variables}
    found |= {name for each in collected for name in each.unfit}
    if missing := sorted(set(variables or ()) - found) if all(each is None for each in fingerprints) else []:
        why = next(
            (each.skipped[missing[0]] for _, each in layouts.values() if missing[0] in each.skipped), ""
        )
        raise InvalidInputError(
            f"variables: expected names of variables in the files, found {missing[0]!r}, which "
            f"{f'no array can hold: {why}' if why else 'none has'}",
            ErrorKind.INVALID_KEY,
        )
    return _columns(
        files.urls, collected, [each for _, each in layouts.values()], list(owns), list(individuals)
    )


def _require_readers(files: Sequence[_File]) -> None:
    """Raises ``MissingExtraError`` if a task had no library to read its files with."""
    for file in files:
        if file.problem is not None and file.problem[0] == ErrorKind.MISSING_EXTRA:
            raise MissingExtraError(file.problem[1])


def _columns(
    urls: tuple[str, ...],
    told: list[_File],
    layouts: Sequence[Layout],
    owns: Sequence[Own],
    individuals: Sequence[Digests],
) -> Looked:
    labels = [file.labels for file in told if file.labels is not None]
    lengths = np.array([0 if file.labels is None else len(file.labels) for file in told], np.int64)
    return Looked(
        urls=urls,
        size=np.array([file.size for file in told], np.int64),
        fingerprint=_digests([file.fingerprint for file in told]),
        contents=_digests([file.contents for file in told]),
        modified=tuple(file.modified for file in told),
        etag=tuple(file.etag for file in told),
        layout=np.array([file.layout for file in told], np.int32),
        own=np.array([file.own for file in told], np.int32),
        length=np.array([file.length for file in told], np.int64),
        label_start=np.concatenate([[0], np.cumsum(lengths)]),
        labels=np.concatenate(labels) if labels else np.empty(0),
        layouts=tuple(layouts),
        owns=tuple(owns),
        scalars=_scalar_columns(told),
        individual=np.array([file.individual for file in told], np.int32),
        individuals=tuple(individuals),
        problems=tuple(
            Problem(*file.problem, url)
            for url, file in zip(urls, told, strict=True)
            if file.problem is not None
        ),
    )


def _scalar_columns(files: Sequence[_File]) -> dict[str, NDArray[np.object_]]:
    columns: dict[str, NDArray[np.object_]] = {}
    for row, file in enumerate(files):
        for name, value in file.scalars.items():
            if name not in columns:
                columns[name] = np.full(len(files), None, object)
            columns[name][row] = value
    return columns


def _digests(texts: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(len(texts), 16)


def look_task(shared: bytes, task: bytes) -> bytes:
    """The task: open some files, and say what is in them."""
    common: _Shared = pickle.loads(shared)
    urls, known = pickle.loads(task)
    layouts: dict[str, tuple[int, Layout]] = {}
    owns: dict[Own, int] = {}
    individuals: dict[Digests, int] = {}
    files: list[_File] = []
    for file, layout, own, individual in _each(urls, known, common):
        if layout is not None:
            file.layout = layouts.setdefault(layout.digest, (len(layouts), layout))[0]
            file.own = owns.setdefault(own, len(owns))
            file.individual = individuals.setdefault(individual, len(individuals))
        files.append(file)
    return pickle.dumps((files, [each for _, each in layouts.values()], list(owns), list(individuals)))


type _Row = tuple[_File, Layout | None, Own, Digests]


def _each(urls: Sequence[str], known: Sequence[str | None], common: _Shared) -> Iterator[_Row]:
    far = any("://" in url and not url.startswith("file:") for url in urls)
    if not far:
        yield from map(_one, urls, known, repeat(common))
        return
    with thread_pool(Purpose.FILE_INSPECTIONS) as pool:
        yield from pool.map(_one, urls, known, repeat(common))


def _one(url: str, known: str | None, common: _Shared) -> _Row:
    if known is not None and (file := _state(url, common.options)).fingerprint == known:
        return file, None, (), ()
    try:
        with common.options.open(url) as reader:
            whole = reader.schema()
            schema = _chosen(whole, common.variables)
            if schema is None:
                text = _nothing(whole, common.variables)
                unfit = tuple(whole.skipped.keys() & (common.variables or ()))
                return _bad(url, common.options, "variables", text, unfit)
            individual = individual_names(schema, common.dim)
            values = _compared(reader, schema, common.dim, individual)
            digests, scalars = _individual(reader, schema, individual)
            virtual = _virtual(reader, schema, common.dim) if common.virtual else None
            labels = schema.coords.get(common.dim) if common.dim is not None else None
    except MissingExtraError as error:  # not a problem of the file: `look` raises it
        return replace(_File(), problem=(error.kind, error.message)), None, (), ()
    except IcechunkError as error:
        return _bad(url, common.options, _kind(url, error), _without_name(url, error.message))
    except Exception as error:  # a library that does not know what to make of a file
        return _bad(url, common.options, "damaged", f"{type(error).__name__}: {error}")
    layout, own = layout_of(schema, common.dim, values, frozenset(scalars | dict(digests)), virtual)
    length = 1 if common.dim is None else schema.dims.get(common.dim, 1)
    file = _File(
        schema.size,
        state_of(schema),
        schema.fingerprint,
        schema.modified,
        schema.etag,
        length=length,
        labels=labels,
        scalars=scalars,
    )
    return file, layout, own, digests


def _bad(url: str, options: Options, kind: str, text: str, unfit: tuple[str, ...] = ()) -> _Row:
    return replace(_state(url, options), problem=(kind, text), unfit=unfit), None, (), ()


def _kind(url: str, error: IcechunkError) -> str:
    """The kind of problem of a file that gives no schema."""
    if isinstance(error, InvalidInputError) or error.kind == ErrorKind.KEY_NOT_FOUND:
        return "options"
    path = local_path(url)
    is_folder = path is not None and os.path.isdir(path) and not is_zarr(url)
    return "damaged" if isinstance(error, FormatError) and not is_folder else "unreadable"


def _without_name(url: str, message: str) -> str:
    """The text of a reader's error on one line, without the name of the file: the problem has it."""
    text = " ".join(message.split())
    path = local_path(url)
    names = [url] if path is None else [url, path, Path(path).absolute().as_uri()]
    for name in names:
        text = text.removeprefix(f"{name}: ")
    return text


def _state(url: str, options: Options) -> _File:
    """What can be said of a file without a reader."""
    try:
        file = find_file(url, options.storage_options)
        contents = file.fingerprint()
    except IcechunkError:  # it is not there, or it is a directory
        return _File()
    fingerprint = _with_time(contents, file.modified, file.etag)
    return _File(file.size, fingerprint, contents, file.modified, file.etag)


def state_of(schema: FileSchema) -> str:
    """The fingerprint by which a file is known again."""
    return _with_time(schema.fingerprint, schema.modified, schema.etag)


def _with_time(contents: str, modified: datetime | None, etag: str | None) -> str:
    """Fingerprints have the ends of a file only: where no etag tells of what is between, its time has to."""
    if modified is None or etag is not None:
        return contents
    return hashlib.sha256(f"{contents} {modified.timestamp()}".encode()).hexdigest()[:32]


def _nothing(schema: FileSchema, variables: frozenset[str] | None) -> str:
    """Why a file has nothing to ingest."""
    named = schema.skipped if variables is None else {}
    if variables is not None:
        named = {name: schema.skipped[name] for name in sorted(variables & schema.skipped.keys())}
        text = f"has none of {', '.join(sorted(variables))}"
    else:
        text = f"expected variables in the group {schema.group}, found none that an array can hold"
    if named:
        text += ": " + ", ".join(f"{name} ({why})" for name, why in named.items())
    if schema.groups:
        text += f"; there are groups {', '.join(schema.groups)}: source_group (--source-group) chooses one"
    return text


def _chosen(schema: FileSchema, variables: frozenset[str] | None) -> FileSchema | None:
    """With these data variables only; None if it has none of them, or none at all."""
    if variables is None:
        return schema if schema.variables else None
    chosen = {name: each for name, each in schema.variables.items() if each.coordinate or name in variables}
    if not variables & chosen.keys():
        return None
    return replace(schema, variables=chosen)


def _compared(
    reader: Reader, schema: FileSchema, dim: str | None, individual: frozenset[str]
) -> dict[str, str]:
    """Digests of what should be the same in all files. Where files do not have the dimension, data are each
    file's own.
    """
    return {
        name: values_digest(_values(reader, schema, variable))
        for name, variable in schema.variables.items()
        if dim not in variable.dims and name not in individual and _bytes(variable) <= COMPARED
        if variable.coordinate or dim in schema.dims
    }


def _individual(reader: Reader, schema: FileSchema, names: frozenset[str]) -> tuple[Digests, dict[str, Any]]:
    """Digests of what may be each file's own; of scalars also the raw values."""
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
    return reader.read(variable.name, tuple(map(slice, variable.shape))) if values is None else values


def _bytes(variable: VariableSchema) -> int:
    return math.prod(variable.shape) * max(variable.dtype.itemsize, 1)


def _virtual(reader: Reader, schema: FileSchema, dim: str | None) -> dict[str, Chunked | NotVirtual]:
    """The chunks of data; coordinates are copied."""
    return {
        name: _chunked(reader.references(name), variable, dim)
        for name, variable in schema.variables.items()
        if not variable.coordinate
    }


def _chunked(
    references: ChunkReferences | NotVirtual, variable: VariableSchema, dim: str | None
) -> Chunked | NotVirtual:
    if isinstance(references, NotVirtual):
        return references
    codecs = tuple(json.dumps(each, sort_keys=True) for each in references.codecs)
    chunks, unit = references.chunks, 0
    if dim in variable.dims:
        axis = variable.dims.index(dim)
        chunks, unit = cuttable(references, axis, variable.shape[axis])
    return Chunked(chunks, codecs, references.dtype, references.fill_value, unit)
