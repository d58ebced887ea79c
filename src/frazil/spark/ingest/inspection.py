"""Many files are looked at in parallel, before anything is written.

    driver      the files, 50 or more for each task
    executors   open each file: schema, fingerprint, labels; what many files share is sent once
    driver      columns with an entry for each file, and layouts; `combining` says what is wrong with them

What a task cannot open is a problem with the name of the file, not an error.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, MissingExtraError
from frazil.spark.engine import Engine
from frazil.spark.ingest.cutting import cuttable
from frazil.spark.ingest.formats.files import find_file
from frazil.spark.ingest.layout import Chunked, Layout, Own, layout_of, values_digest
from frazil.spark.ingest.opening import open_source
from frazil.spark.ingest.pattern import Expanded
from frazil.spark.ingest.sources import FileSchema, NotVirtual, Reader
from frazil.spark.ingest.units import is_time
from frazil.spark.progress import Progress

PER_TASK: Final = 50
#: Values of variables that are the same in all files are compared up to this size, in bytes.
COMPARED: Final = 1 << 20
#: Readers of one task at a time, for files that are not on this machine.
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a file, or with all of them if ``url`` is None.

    ``kind`` is one of ``KINDS``. One that is not ``fatal`` is told and does not stop anything.
    """

    kind: str
    message: str
    url: str | None = None
    fatal: bool = True

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.message}" if self.url is None else f"{self.kind}: {self.url}: {self.message}"
        )


#: What can be wrong.
KINDS: Final[dict[str, str]] = {
    "damaged": "not a file of a known format, truncated, or cannot be decoded",
    "unreadable": "the storage did not give it",
    "variables": "other variables than the others",
    "dims": "other dimensions, or another length of one that is fixed",
    "dtype": "another dtype",
    "units": "other units or another calendar, which mean other numbers",
    "attributes": "other attributes; fatal where they change what numbers mean",
    "packing": "another scale or offset: the packed numbers cannot be in one array (see `unpack`)",
    "values": "other values of a variable that all files share, such as latitudes",
    "chunks": "chunks or codecs that cannot be in one array (virtual only)",
    "virtual": "a variable that cannot be referred to where it is (virtual only)",
    "unordered": "labels that do not go one way",
    "overlap": "labels that an earlier file has",
    "duplicate": "the same contents as an earlier file",
    "hole": "a gap in regular labels, or labels that only some variables have",
    "changed": "was ingested before, with other contents",
    "types": "variables or attributes of types that no array can hold: they are left out",
    "references": "references to a few bytes each (virtual only)",
    "target": "does not fit to what is in the repository",
}


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


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of files, as columns with an entry for each.

    ``layout`` and ``own`` are codes of ``layouts`` and ``owns``, -1 for a file that was not opened, or could
    not be read. The labels of file ``i`` are ``labels[label_start[i]:label_start[i + 1]]``, raw; a file
    without labels has none.
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
    problems: tuple[Problem, ...] = ()

    def labels_of(self, file: int) -> NDArray[Any]:
        return self.labels[self.label_start[file] : self.label_start[file + 1]]


_NONE: Final = "0" * 32


@dataclass(slots=True)
class _File:
    """What a task says of one file; ``layout`` and ``own`` are codes among those of the task."""

    size: int = 0
    fingerprint: str = _NONE
    contents: str = _NONE
    modified: datetime | None = None
    etag: str | None = None
    layout: int = -1
    own: int = -1
    length: int = 0
    labels: NDArray[Any] | None = None
    problem: tuple[str, str] | None = None
    #: Variables that were asked for, and that no array can hold, of a file that has no others.
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shared:
    options: Options
    dim: str | None
    virtual: bool
    variables: frozenset[str] | None


def dimension(files: Expanded, options: Options) -> str | None:
    """The dimension that goes on from file to file, found in the first file that can be read.

    It is the unlimited one, or the one whose coordinate is a time. Raises ``InvalidInputError`` if it cannot
    be told, and there is more than one file.
    """
    if files.concat_dim is not None:
        return files.concat_dim
    schema = None
    for url in files.urls[:100]:
        try:
            with options.open(url) as reader:
                schema = reader.schema()
                break
        except IcechunkError:
            continue
    if schema is None:
        return None
    times = [name for name in schema.coords if is_time(schema.variables[name].attrs.get("units"))]
    scalars = [
        name
        for name, each in schema.variables.items()
        if not each.dims and is_time(each.attrs.get("units")) and "standard_name" in each.attrs
        if each.attrs["standard_name"] == "time"
    ]
    for found in (sorted(schema.unlimited), times, scalars):
        if len(found) == 1:
            return found[0]
    if len(files.urls) == 1:
        return None
    raise InvalidInputError(
        f"expected concat_dim, the dimension in which files follow each other: {schema.url} has "
        f"{sorted(schema.dims)}, and none of them alone is unlimited or a time",
        ErrorKind.INVALID_KEY,
    )


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
    for result in engine.run(look_task, list(map(pickle.dumps, tasks)), shared):
        told, own_layouts, own_owns = pickle.loads(result)
        _require_readers(told)
        codes = [layouts.setdefault(each.digest, (len(layouts), each))[0] for each in own_layouts]
        own_codes = [owns.setdefault(each, len(owns)) for each in own_owns]
        for file in told:
            file.layout = codes[file.layout] if file.layout >= 0 else -1
            file.own = own_codes[file.own] if file.own >= 0 else -1
        collected += told
        if progress is not None:
            progress.advance(rows=len(told), bytes=sum(file.size for file in told))
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
    return _columns(files.urls, collected, [each for _, each in layouts.values()], list(owns))


def _require_readers(files: Sequence[_File]) -> None:
    """Raises ``MissingExtraError`` if a task had no library to read its files with."""
    for file in files:
        if file.problem is not None and file.problem[0] == ErrorKind.MISSING_EXTRA:
            raise MissingExtraError(file.problem[1])


def _columns(
    urls: tuple[str, ...], told: list[_File], layouts: Sequence[Layout], owns: Sequence[Own]
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
        problems=tuple(
            Problem(*file.problem, url)
            for url, file in zip(urls, told, strict=True)
            if file.problem is not None
        ),
    )


def _digests(texts: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(len(texts), 16)


def look_task(shared: bytes, task: bytes) -> bytes:
    """The task: open some files, and say what is in them."""
    common: _Shared = pickle.loads(shared)
    urls, known = pickle.loads(task)
    layouts: dict[str, tuple[int, Layout]] = {}
    owns: dict[Own, int] = {}
    told: list[_File] = []
    for file, layout, own in _each(urls, known, common):
        if layout is not None:
            file.layout = layouts.setdefault(layout.digest, (len(layouts), layout))[0]
            file.own = owns.setdefault(own, len(owns))
        told.append(file)
    return pickle.dumps((told, [each for _, each in layouts.values()], list(owns)))


def _each(
    urls: Sequence[str], known: Sequence[str | None], common: _Shared
) -> Iterator[tuple[_File, Layout | None, Own]]:
    far = any("://" in url and not url.startswith("file:") for url in urls)
    if not far:
        yield from map(_one, urls, known, repeat(common))
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(_one, urls, known, repeat(common))


def _one(url: str, known: str | None, common: _Shared) -> tuple[_File, Layout | None, Own]:
    if known is not None and (file := _state(url, common.options)).fingerprint == known:
        return file, None, ()
    try:
        with common.options.open(url) as reader:
            whole = reader.schema()
            schema = _chosen(whole, common.variables)
            if schema is None:
                text = _nothing(whole, common.variables)
                unfit = tuple(whole.skipped.keys() & (common.variables or ()))
                state = _state(url, common.options)
                return replace(state, problem=("variables", text), unfit=unfit), None, ()
            values = _compared(reader, schema, common.dim)
            virtual = _virtual(reader, schema, common.dim) if common.virtual else None
            labels = _labels(reader, schema, common.dim)
    except MissingExtraError as error:  # not a problem of the file: `look` raises it
        return replace(_File(), problem=(error.kind, error.message)), None, ()
    except IcechunkError as error:
        kind = "damaged" if isinstance(error, FormatError) else "unreadable"
        return replace(_state(url, common.options), problem=(kind, " ".join(error.message.split()))), None, ()
    except Exception as error:  # a library that does not know what to make of a file
        problem = ("damaged", f"{type(error).__name__}: {error}")
        return replace(_state(url, common.options), problem=problem), None, ()
    layout, own = layout_of(schema, common.dim, values, virtual)
    length = 1 if common.dim is None else schema.dims.get(common.dim, 1)
    file = _File(
        schema.size,
        state_of(schema),
        schema.fingerprint,
        schema.modified,
        schema.etag,
        length=length,
        labels=labels,
    )
    return file, layout, own


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


def _labels(reader: Reader, schema: FileSchema, dim: str | None) -> NDArray[Any] | None:
    """Labels along the dimension; those of a scalar coordinate where files do not have the dimension."""
    if dim is None or dim not in schema.variables:
        return None
    if dim in schema.coords:
        return np.atleast_1d(schema.coords[dim])
    return None if schema.variables[dim].dims else np.atleast_1d(reader.read(dim, ()))


def _compared(reader: Reader, schema: FileSchema, dim: str | None) -> dict[str, str]:
    """Digests of what should be the same in all files."""
    new_axis = dim is not None and dim not in schema.dims
    digests = {}
    for name, variable in schema.variables.items():
        goes_on = dim in variable.dims or (new_axis and (not variable.coordinate or name == dim))
        size = int(np.prod(variable.shape)) * max(variable.dtype.itemsize, 1)
        if not goes_on and size <= COMPARED:
            values = schema.coords.get(name)
            if values is None:
                values = reader.read(name, tuple(map(slice, variable.shape)))
            digests[name] = values_digest(values)
    return digests


def _virtual(reader: Reader, schema: FileSchema, dim: str | None) -> dict[str, Chunked | NotVirtual]:
    found: dict[str, Chunked | NotVirtual] = {}
    for name, variable in schema.variables.items():
        if variable.coordinate:
            continue
        refs = reader.references(name)
        if isinstance(refs, NotVirtual):
            found[name] = refs
            continue
        if dim is not None and dim not in schema.dims:
            refs = refs.with_axis()
        codecs = tuple(json.dumps(each, sort_keys=True) for each in refs.codecs)
        chunks, unit = refs.chunks, 0
        if dim in variable.dims:
            axis = variable.dims.index(dim)
            chunks, unit = cuttable(refs, axis, variable.shape[axis])
        found[name] = Chunked(chunks, codecs, refs.dtype, refs.fill_value, unit)
    return found
