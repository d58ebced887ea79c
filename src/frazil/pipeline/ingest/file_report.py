"""The report of a task on one file: its layout, and the properties that differ from file to file.

A file that the task cannot open is a problem with the name of the file, not an error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, MissingExtraError
from frazil.pipeline.ingest.file_access import FileAccess
from frazil.pipeline.ingest.file_layout import (
    FileLayout,
    OwnAttributes,
    VirtualChunks,
    individual_names,
    layout_of,
    values_digest,
)
from frazil.pipeline.ingest.plain_chunks import cuttable_chunks
from frazil.readers.attribute_values import decoded
from frazil.readers.base_reader import Reader
from frazil.readers.files import find_file, local_path
from frazil.readers.reader import ChunkReferences, FileSchema, NotVirtual, VariableSchema
from frazil.readers.registry import is_zarr

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
