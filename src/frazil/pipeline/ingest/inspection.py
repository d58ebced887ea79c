"""The inspection of all files in parallel, before anything is written, and the layouts that files share.

    driver      divides the files among tasks, 50 for each task
    executors   open each file; a file that cannot be opened is a problem with its name, not an error
    driver      makes columns with an entry for each file, and tables of the properties that files share

A ``FileLayout`` is the schema of a file without the properties that each file has for itself: the length and
labels along the dimension in which files follow each other, the origin of its times, its packing, the values
of its scalars. A hundred thousand files of one archive have a few layouts, so a file is a row of columns with
the code of its layout.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import compress, repeat, starmap
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.cf_times import is_time
from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, MissingExtraError
from frazil.jobs.engine import Engine, EngineName, slots_of
from frazil.jobs.progress import Progress
from frazil.jobs.task_failures import dumps
from frazil.lazy_names import ModuleOnDemand
from frazil.readers.base_reader import FileSchema, NotVirtual, Reader, VariableSchema, decoded
from frazil.readers.files import SourceFile, find_file, local_path
from frazil.readers.registry import FileAccess, is_zarr
from frazil.repository.paths import HIDDEN
from frazil.threads import Purpose, thread_pool

# Tasks need neither zarr nor repositories, which take a second to import in each process.
if TYPE_CHECKING:
    from frazil.pipeline.ingest import options
    from frazil.pipeline.ingest.options import Problem, SourceFiles
    from frazil.readers import zarr as zarr_reader
else:
    options = ModuleOnDemand("frazil.pipeline.ingest.options")
    zarr_reader = ModuleOnDemand("frazil.readers.zarr")

#: The length of the concat dimension, and of labelled dimensions that grow, in a layout: files differ.
ANY: Final = -1
GROWS: Final = -2

#: Attributes that may differ from file to file if values are unpacked.
PACKING: Final = ("scale_factor", "add_offset")
#: The attributes with the numbers that mean a missing value.
MISSING: Final = ("_FillValue", "missing_value")


@dataclass(frozen=True, slots=True)
class VirtualChunks:
    """The chunks of a variable for references: chunk shape, codecs, dtype and fill value as in Zarr.

    Chunks of plain bytes can be cut along the concat dimension at multiples of ``unit`` steps, and their
    length along it is `ANY`. For other chunks ``unit`` is 0.
    """

    chunks: tuple[int, ...]
    codecs: tuple[Any, ...]
    dtype: np.dtype[Any]
    fill_value: Any
    unit: int = 0


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of a file.

    ``dims`` are its dimensions without the concat dimension. ``values`` are digests of small variables
    without the concat dimension. ``individual`` are variables without the concat dimension whose values may
    differ from file to file (see `individual_names`). ``adds_axis``: files do not have the concat dimension,
    and each file is one step of it. ``virtual`` are the chunks of data for references, None for copies.
    ``skipped`` are variables that no array can hold, and attributes that cannot be read, with the reasons.
    ``groups`` are the paths of the groups below, of the first file. ``changes`` are kinds and texts of what
    differs from the file. ``widens``: files may have their own dtypes of data.
    """

    format: str
    variables: Mapping[str, VariableSchema]
    dims: Mapping[str, int]
    unlimited: frozenset[str]
    values: Mapping[str, str]
    individual: frozenset[str] = frozenset()
    adds_axis: bool = False
    virtual: Mapping[str, VirtualChunks | NotVirtual] | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    changes: tuple[tuple[str, str], ...] = ()
    widens: bool = False

    @property
    def digest(self) -> str:
        """A hash of the layout, 32 hexadecimal digits."""
        parts = [self.format, sorted(self.unlimited), sorted(self.individual), self.adds_axis]
        parts.append(self.changes)
        mappings = (self.variables, self.dims, self.values, self.virtual or {}, self.skipped)
        parts += [sorted(map(repr, each.items())) for each in mappings]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def part(self, names: Collection[str]) -> FileLayout:
        """Return the layout of these variables only."""
        variables = {name: each for name, each in self.variables.items() if name in names}
        dims = {dim for each in variables.values() for dim in each.dims}
        virtual = self.virtual
        return replace(
            self,
            variables=variables,
            dims={dim: size for dim, size in self.dims.items() if dim in dims},
            values={name: each for name, each in self.values.items() if name in variables},
            individual=self.individual & variables.keys(),
            virtual=virtual and {name: each for name, each in virtual.items() if name in variables},
        )

    def has_concat_dim(self, name: str) -> bool:
        """Return whether a variable has the concat dimension."""
        return ANY in self.variables[name].shape

    def is_converted(self, name: str) -> bool:
        """Return whether each file may have its own dtype and missing values of a (numeric) variable."""
        variable = self.variables[name]
        follows = self.has_concat_dim(name) or name in self.individual
        return variable.dtype.kind in "iuf" and (follows if variable.coordinate else self.widens)

    @property
    def data(self) -> frozenset[str]:
        """The names of the data variables; only those with the concat dimension, if there are any."""
        data = [name for name, variable in self.variables.items() if not variable.coordinate]
        return frozenset(filter(self.has_concat_dim, data)) or frozenset(data) or frozenset(self.variables)


@dataclass(frozen=True, slots=True)
class LabelledValues:
    """The labels of a file along dimensions that grow, and its variables without other growing dimensions.

    Two of them are equal if their digests are equal.
    """

    digest: str
    labels: Mapping[str, NDArray[Any]] = field(compare=False)
    values: Mapping[str, NDArray[Any]] = field(compare=False)


_NO_LABELS: Final = LabelledValues("", {}, {})


#: ``(variable, attribute, value)`` for each attribute that may differ from file to file.
type OwnAttributes = tuple[tuple[str, str, Any], ...]


def layout_of(
    schema: FileSchema,
    dim: str | None,
    values: Mapping[str, str],
    individual: frozenset[str] = frozenset(),
    virtual: Mapping[str, VirtualChunks | NotVirtual] | None = None,
    *,
    widens: bool = False,
    grow: Collection[str] = (),
) -> tuple[FileLayout, OwnAttributes]:
    """Return the layout of a file, and its own attributes: packing, units and Gregorian calendar of times."""
    lengths = dict.fromkeys(grow, GROWS) | {dim: ANY}
    own: list[tuple[str, str, Any]] = []
    variables = {}
    for name, variable in schema.variables.items():
        names = [*PACKING, "calendar", *(["units"] if is_time(variable.attrs.get("units")) else [])]
        mine = {each: variable.attrs[each] for each in names if each in variable.attrs}
        own += [(name, each, tuple(v) if isinstance(v, list) else v) for each, v in mine.items()]
        attrs = {each: value for each, value in variable.attrs.items() if each not in names}
        if (calendar := calendar_of(variable.attrs)) not in GREGORIAN:
            attrs["calendar"] = calendar
        sizes = zip(variable.dims, variable.shape, strict=True)
        shape = tuple(lengths.get(each, size) for each, size in sizes)
        variables[name] = replace(variable, attrs=attrs, shape=shape)
    layout = FileLayout(
        schema.format,
        variables,
        {name: size for name, size in schema.dims.items() if name not in lengths},
        schema.unlimited,
        values,
        individual,
        dim not in schema.dims,
        virtual,
        schema.skipped,
        tuple(each for each in schema.groups if HIDDEN not in each.split("/")),
        schema.changes,
        widens and virtual is None,
    )
    return layout, tuple(sorted(own))


def individual_names(schema: FileSchema, dim: str | None) -> frozenset[str]:
    """Return the variables whose values may differ from file to file: scalars, their bounds, and times."""
    variables = {name: each for name, each in schema.variables.items() if dim not in each.dims}
    mappings = {each.attrs.get("grid_mapping") for each in schema.variables.values()}
    scalars = {
        name: each
        for name, each in variables.items()
        if not each.dims and name not in mappings and "grid_mapping_name" not in each.attrs
    }
    bounds = {str(each.attrs.get(key)) for each in scalars.values() for key in ("bounds", "climatology")}
    times = {
        name
        for name, each in variables.items()
        if each.coordinate and name not in schema.dims and is_time(each.attrs.get("units"))
    }
    return frozenset({*scalars, *(bounds & variables.keys()), *times})


def with_attributes(variable: VariableSchema, own: OwnAttributes) -> VariableSchema:
    """Return a variable of a layout with the own attributes of a file."""
    mine = {attribute: value for name, attribute, value in own if name == variable.name}
    return replace(variable, attrs={**variable.attrs, **mine}) if mine else variable


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in the byte order of this machine, which copies have."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def values_digest(values: NDArray[Any]) -> str:
    """Return a digest of the values of a small variable, 16 hexadecimal digits."""
    hashed = hashlib.sha256(f"{values.shape}".encode())
    plain = np.ascontiguousarray(values)
    if plain.dtype.kind in "TOU":
        hashed.update(repr(plain.tolist()).encode())
    else:
        hashed.update(plain.dtype.newbyteorder("<").str.encode())
        hashed.update(plain.astype(plain.dtype.newbyteorder("<")).tobytes())
    return hashed.hexdigest()[:16]


#: The calendars that have the same dates since 1582.
GREGORIAN: Final = frozenset({"standard", "proleptic_gregorian"})
#: Other names of calendars: CF conventions, section 4.4.1.
_CALENDARS: Final = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}


def calendar_of(attrs: Mapping[str, Any]) -> str:
    """Return the calendar of a variable with these attributes, by one name for each calendar."""
    name = str(attrs.get("calendar", "standard")).lower()
    return _CALENDARS.get(name, name)


# Attributes that change the meaning of the stored numbers.
MEANING: Final = (
    *("units", "calendar", "_FillValue", "missing_value"),
    *("_Unsigned", "flag_values", "flag_masks", "dtype", "_Encoding"),
)


def meaningful(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the attributes that change the meaning of a variable, also of a grid mapping: its parameters.

    The parameters of a projection are numbers. The texts of WKT count without them: producers change its
    words, and not the projection.
    """
    if attrs.keys().isdisjoint(("grid_mapping_name", "crs_wkt", "spatial_ref")):
        return MEANING
    texts = ("grid_mapping_name",) if "grid_mapping_name" in attrs else ("crs_wkt", "spatial_ref")
    numbers = (
        name for name, value in attrs.items() if ":" not in name and isinstance(value, int | float | list)
    )
    return *MEANING, *texts, *sorted({*numbers} - {*MEANING})


def effect_of(variable: VariableSchema, attribute: str) -> Any:
    """Return an attribute, None without it. NaN as a missing value of floats has no effect: None, too."""
    value = variable.attrs.get(attribute)
    return None if variable.dtype.kind == "f" and attribute in MISSING and value != value else value


def meaning(layout: FileLayout) -> tuple[Any, ...]:
    """Return the properties that files of one dataset must share, except values and storage."""
    variables = []
    for name, variable in layout.variables.items():
        converted = layout.is_converted(name)
        attrs = {
            each: value
            for each in meaningful(variable.attrs)
            if (value := effect_of(variable, each)) is not None and not (converted and each in MISSING)
        }
        dtype = "number" if converted else native(variable.dtype)
        variables.append((name, repr((variable.dims, variable.shape, dtype, attrs))))
    virtual = sorted((name, repr(_without_unit(each))) for name, each in (layout.virtual or {}).items())
    return layout.adds_axis, tuple(sorted(layout.dims.items())), tuple(sorted(variables)), repr(virtual)


def _without_unit(each: VirtualChunks | NotVirtual) -> VirtualChunks | NotVirtual:
    """Return the chunks without what may differ: the unit of chunks that can be cut, and the level."""
    return replace(each, unit=0, codecs=decoding(each.codecs)) if isinstance(each, VirtualChunks) else each


def decoding(codecs: Iterable[str]) -> tuple[str, ...]:
    """Return codecs (JSON) without the level of compression, which decoders do not need."""
    documents = list(map(json.loads, codecs))
    for each in documents:
        for name in ("level", "clevel"):
            each.get("configuration", {}).pop(name, None)
    return tuple(json.dumps(each, sort_keys=True) for each in documents)


def differences(layout: FileLayout, expected: FileLayout) -> list[tuple[str, str]]:
    """Return the differences that exclude one dataset, as pairs of a kind of problem and a text."""
    result: list[tuple[str, str]] = []
    missing, more = expected.variables.keys() - layout.variables, layout.variables.keys() - expected.variables
    if missing or more:
        parts = [f"without {', '.join(sorted(missing))}"] * bool(missing)
        parts += [f"with {', '.join(sorted(more))}"] * bool(more)
        result.append(("variables", " and ".join(parts)))
    if layout.adds_axis != expected.adds_axis:
        has = ["does not have" if layout.adds_axis else "has", "have it" if layout.adds_axis else "do not"]
        result.append(("dims", f"{has[0]} the concat dimension, but other files {has[1]}"))
    for name in sorted(layout.variables.keys() & expected.variables):
        variable, other = layout.variables[name], expected.variables[name]
        converted = layout.is_converted(name) and expected.is_converted(name)
        if (variable.dims, variable.shape) != (other.dims, other.shape):
            text = f"{name} must be {dims_text(other)}, as in most files, got {dims_text(variable)}"
            result.append(("dims", text))
        dtypes = native(variable.dtype), native(other.dtype)
        if not converted and dtypes[0] != dtypes[1]:
            kind = "dtype" if all(each.kind in "iuf" for each in dtypes) else "mixed"
            result.append((kind, f"{name} must be {dtypes[1]}, as in most files, got {dtypes[0]}"))
        for attribute in dict.fromkeys((*meaningful(variable.attrs), *meaningful(other.attrs))):
            # A Gregorian calendar of times is an own attribute of a file, and no part of its layout.
            values = effect_of(variable, attribute), effect_of(other, attribute)
            if attribute == "calendar":
                values = calendar_of(variable.attrs), calendar_of(other.attrs)
            if repr(values[0]) != repr(values[1]) and not (converted and attribute in MISSING):
                kind = "units" if attribute in ("units", "calendar") else "attributes"
                mine, expected_text = ("no value" if each is None else repr(each) for each in values)
                text = f"{attribute} of {name} must be {expected_text}, as in most files, got {mine}"
                result.append((kind, text))
    for name in sorted((layout.virtual or {}).keys() & (expected.virtual or {})):
        chunks, expected_chunks = (layout.virtual or {})[name], (expected.virtual or {})[name]
        if repr(_without_unit(chunks)) != repr(_without_unit(expected_chunks)):
            stored = _storage(expected_chunks), _storage(chunks)
            text = "{} must be stored as {}, as in most files, got {}".format(name, *stored)
            result.append(("chunks", text))
    return result


def value_differences(values: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """Return a text that names the variables with other values (by their digests); "" if there are none."""
    both = sorted(values.keys() & expected.keys())
    return "; ".join(f"{name} has other values" for name in both if values[name] != expected[name])


def _storage(each: VirtualChunks | NotVirtual) -> str:
    if isinstance(each, NotVirtual):
        return each.reason
    chunks = ", ".join("any" if size == ANY else str(size) for size in each.chunks)
    return f"{each.dtype} in chunks of ({chunks}), {codecs_text(each.codecs)}, fill value {each.fill_value}"


def codecs_text(codecs: Iterable[str]) -> str:
    """Return codecs (JSON) with their options as text."""
    texts = []
    for codec in map(json.loads, codecs):
        options = (f"{name} {value}" for name, value in sorted(codec.get("configuration", {}).items()))
        texts.append(" ".join([codec["name"], *(f"({each})" for each in options)]))
    return " + ".join(texts)


def dims_text(variable: VariableSchema) -> str:
    """Return the dimensions of a variable as text, with their lengths except that of the concat dimension."""
    sizes = zip(variable.dims, variable.shape, strict=True)
    return "(" + ", ".join(name if size < 0 else f"{name}: {size}" for name, size in sizes) + ")"


#: The values of shared variables are compared up to this size, in bytes.
COMPARED: Final = 1 << 20


#: Names of variables and digests of their values, sorted.
type Digests = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class InspectionSpec:
    """The options of the inspection that all tasks get. ``variables`` are the data, None for all.

    ``widens``: files may have their own dtypes of data. ``grow`` are the labelled dimensions that grow.
    ``groups`` are the rules of groups by path: see `group_of`.
    """

    access: FileAccess
    dim: str | None = None
    virtual: bool = False
    variables: Collection[str] | None = None
    widens: bool = False
    grow: Collection[str] = ()
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


_NO_DIGEST: Final = "0" * 32


@dataclass(slots=True)
class FileReport:
    """The report on one file. A file without a layout has a problem, or was not opened."""

    size: int = 0
    fingerprint: str = _NO_DIGEST
    contents: str = _NO_DIGEST
    validator: str = _NO_DIGEST
    modified: datetime | None = None
    etag: str | None = None
    layout: FileLayout | None = None
    own: OwnAttributes = ()
    individual: Digests = ()
    labelled: LabelledValues = _NO_LABELS
    group: str = ""
    length: int = 0
    labels: NDArray[Any] | None = None
    scalars: dict[str, Any] = field(default_factory=dict)
    problem: tuple[str, str] | None = None
    #: Requested variables that no array can hold, in a file without any usable variable.
    unfit: tuple[str, ...] = ()


#: The reasons why chunks of a variable cannot be read (None: they can), by its name and its `VirtualChunks`.
type Checked = dict[str, str | None]


#: Kinds of errors of a reader -> kinds of problems. All others: the options do not fit the file.
_PROBLEM_OF: Final = {
    ErrorKind.BAD_SOURCE: "format",
    ErrorKind.INVALID_ARRAY_METADATA: "units",
    ErrorKind.TASK_FAILED: "preprocess",
}


def file_report(url: str, fingerprint: str | None, spec: InspectionSpec, checked: Checked) -> FileReport:
    """Return the report on one file. The file is not opened if it still has this fingerprint."""
    if fingerprint is not None and (file := _state(url, spec.access)).fingerprint == fingerprint:
        return file
    try:
        with spec.access.open(url) as reader:
            whole = reader.schema()
            schema = _with_masked_text(whole, virtual=spec.virtual)
            if spec.variables is not None:
                some = {
                    name: each
                    for name, each in schema.variables.items()
                    if each.coordinate or name in spec.variables
                }
                schema = replace(schema, variables=some if not some.keys().isdisjoint(spec.variables) else {})
            if not schema.variables:
                kind = "options" if spec.variables is None else "variables"
                problem = (kind, _nothing(whole, spec.variables))
                unfit = tuple(whole.skipped.keys() & (spec.variables or ()))
                return replace(_state(url, spec.access), problem=problem, unfit=unfit)
            grow = [dim for dim in schema.dims if dim in spec.grow and dim != spec.dim]
            individual = individual_names(schema, spec.dim)
            labelled, shared = _NO_LABELS, schema
            if grow:
                labelled = _labelled_values(reader, schema, spec.dim, grow)
                variables = {k: each for k, each in schema.variables.items() if not {*grow} & {*each.dims}}
                individual, shared = individual & variables.keys(), replace(schema, variables=variables)
            values, digests, scalars = _small_values(reader, shared, spec.dim, individual)
            virtual = _virtual(reader, schema, spec, checked) if spec.virtual else None
    except MissingExtraError as error:  # not a problem of the file: the driver raises it
        return FileReport(problem=(error.kind, error.message))
    except IcechunkError as error:
        path = local_path(url)
        text = " ".join(error.message.split())
        for name in [url] if path is None else [url, path, Path(path).absolute().as_uri()]:
            text = text.removeprefix(f"{name}: ")
        is_folder = path is not None and os.path.isdir(path) and not is_zarr(url)
        kind = "damaged" if isinstance(error, FormatError) and not is_folder else "unreadable"
        if isinstance(error, InvalidInputError) or error.kind == ErrorKind.KEY_NOT_FOUND:
            kind = _PROBLEM_OF.get(error.kind, "options")
        return replace(_state(url, spec.access), problem=(kind, text))
    except Exception as error:  # libraries may raise any error for a damaged file
        return replace(_state(url, spec.access), problem=("damaged", f"{type(error).__name__}: {error}"))
    names = frozenset(name for name, _ in digests)
    layout, own = layout_of(schema, spec.dim, values, names, virtual, widens=spec.widens, grow=grow)
    return FileReport(
        schema.size,
        file_state(schema, schema.fingerprint),
        schema.fingerprint,
        (reader.file.original or reader.file).validator or _NO_DIGEST,
        schema.modified,
        schema.etag,
        layout,
        own,
        digests,
        labelled,
        group_of(whole, spec.groups),
        length=1 if spec.dim is None else schema.dims.get(spec.dim, 1),
        labels=schema.coords.get(spec.dim) if spec.dim is not None else None,
        scalars=scalars,
    )


def group_of(schema: FileSchema, groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first group whose rule a file fulfils; "" if there is none.

    The keys of a rule are ``calendar``, dimensions (their length), ``file`` (a pattern of its name), and
    attributes of the file.
    """
    if not groups:
        return ""
    calendars = {
        calendar_of(each.attrs) for each in schema.variables.values() if is_time(each.attrs.get("units"))
    }
    name = unquote(schema.url.rstrip("/").rpartition("/")[2])

    def fulfils(key: str, value: Any) -> bool:
        if key in ("calendar", "file"):
            calendar = calendar_of({key: value})
            return calendar in calendars if key == "calendar" else fnmatchcase(name, str(value))
        actual: Any = schema.dims.get(key, schema.attrs.get(key))
        return bool(actual == value)

    for path, rule in groups.items():
        if all(starmap(fulfils, rule.items())):
            return path
    return ""


def _state(url: str, access: FileAccess) -> FileReport:
    """Return a report without the help of a reader: size, fingerprint and time of the file."""
    try:
        file = find_file(url, access.storage_options)
        contents = file.fingerprint()
    except IcechunkError:  # the file does not exist, or is a directory
        return FileReport()
    validator = file.validator or _NO_DIGEST
    return FileReport(file.size, file_state(file, contents), contents, validator, file.modified, file.etag)


def file_state(file: SourceFile | FileSchema, contents: str) -> str:
    """Return the fingerprint by which an ingest recognizes an unchanged file.

    It includes the time of the file, unless there is an etag: ``contents`` covers only both ends of a file,
    and a change between them changes the etag or the time.
    """
    if file.modified is None or file.etag is not None:
        return contents
    return hashlib.sha256(f"{contents} {file.modified.timestamp()}".encode()).hexdigest()[:32]


def _nothing(schema: FileSchema, variables: Collection[str] | None) -> str:
    """Return the reason why a file has no variables to ingest."""
    if variables is None:
        named = schema.skipped
        text = f"the group {schema.group} has no variables that an array can hold"
    else:
        named = {name: schema.skipped[name] for name in sorted(schema.skipped.keys() & variables)}
        text = f"has none of {', '.join(sorted(variables))}"
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
        fill, last = each.attrs.get("_FillValue"), each.dims[-1:]
        if each.dtype.kind != "S" or not isinstance(fill, str) or len(fill) != 1:
            continue
        users = [other for other in schema.variables.values() if last and last[0] in other.dims]
        if last and all(other.dtype.kind == "S" and other.dims[-1:] == last for other in users):
            continue
        if virtual:
            skipped[f"{name}:_FillValue"] = f"xarray masks {fill!r} in the file; a copy does, too"
            continue
        attrs = {key: value for key, value in each.attrs.items() if key != "_FillValue"}
        attrs["missing_value"] = fill
        variables[name] = replace(each, dtype=np.dtypes.StringDType(), attrs=attrs, fill_value="")
    return replace(schema, variables=variables, skipped=skipped)


def _small_values(
    reader: Reader, schema: FileSchema, dim: str | None, individual: frozenset[str]
) -> tuple[dict[str, str], Digests, dict[str, Any]]:
    """Return digests of shared variables, digests of individual variables, and the individual scalars."""
    values: dict[str, str] = {}
    digests: dict[str, str] = {}
    scalars: dict[str, Any] = {}
    for name, variable in sorted(schema.variables.items()):
        is_shared = dim not in variable.dims and (variable.coordinate or dim in schema.dims)
        size = math.prod(variable.shape) * max(variable.dtype.itemsize, 1)
        if size > COMPARED or not (is_shared or name in individual):
            continue
        data = schema.coords.get(name)
        if data is None:
            data = np.asarray(reader.read(name, tuple(map(slice, variable.shape))))
        if variable.dtype.kind == "T" and data.dtype.kind == "S":
            data = decoded(data)
        (digests if name in individual else values)[name] = values_digest(data)
        if name in individual and not variable.dims:
            scalars[name] = data.reshape(-1)[0] if data.dtype.kind == "T" else data.item()
    return values, tuple(digests.items()), scalars


def _labelled_values(
    reader: Reader, schema: FileSchema, dim: str | None, grow: Sequence[str]
) -> LabelledValues:
    """Return the labels of dimensions that grow, and the variables that do not get the concat dimension."""
    hashed, labels, values = hashlib.sha256(), {}, {}
    for name in grow:
        labels[name] = _text(schema.coords.get(name, np.empty(0)))
        if len(np.unique(labels[name])) != schema.dims[name]:
            raise misfit(
                f"{schema.url}: {name} must have a label for each step, and each label once, to grow"
            )
    for name, variable in schema.variables.items():
        stacks = dim in variable.dims or not (variable.coordinate or dim in schema.dims)
        if name in grow or not {*grow} & {*variable.dims} or stacks:
            continue
        if math.prod(variable.shape) * max(variable.dtype.itemsize, 1) > COMPARED:
            raise misfit(
                f"{schema.url}: {name} must have the concat dimension or at most 1 MiB, if {grow[0]} grows"
            )
        values[name] = _text(np.asarray(reader.read(name, tuple(map(slice, variable.shape)))))
    for name, each in sorted((labels | values).items()):
        hashed.update(f"{name} {values_digest(each)} ".encode())
    return LabelledValues(hashed.hexdigest()[:32], labels, values)


def _text(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with texts of variable length as ``StringDType``, and numbers as of this machine."""
    return (
        values.astype(np.dtypes.StringDType())
        if values.dtype.kind in "OUT"
        else values.astype(native(values.dtype), copy=False)
    )


def _virtual(
    reader: Reader, schema: FileSchema, spec: InspectionSpec, checked: Checked
) -> dict[str, VirtualChunks | NotVirtual]:
    """Return the chunks of data for references. The ingest copies the rest: coordinates, and a few texts.

    Of the files with the same codecs and chunks, the first one proves that the chunks can be read.
    """
    dim = spec.dim
    result: dict[str, VirtualChunks | NotVirtual] = {}
    for name, variable in schema.variables.items():
        if variable.coordinate:
            continue
        if reader.file.original is None:
            references = reader.references(name)
        else:
            references = NotVirtual("the file is compressed as a whole, or changed by preprocess")
        if isinstance(references, NotVirtual):
            # The ingest copies a few texts: HDF5 has texts of variable length in a heap.
            size = math.prod(variable.shape) * variable.dtype.itemsize
            if variable.dtype.kind != "T" or dim in variable.dims or size > COMPARED:
                result[name] = references
            continue
        codecs = tuple(json.dumps(each, sort_keys=True) for each in references.codecs)
        chunks, unit = references.chunks, 0
        if dim in variable.dims and references.is_plain:
            axis = variable.dims.index(dim)
            length, size = variable.shape[axis], chunks[axis]
            before = chunks[:axis] if size <= max(length, 1) else (1,) * axis
            chunks, unit = (*before, ANY, *chunks[axis + 1 :]), min(size, length)
        virtual = VirtualChunks(chunks, codecs, references.dtype, references.fill_value, unit)
        storage = f"{name} {virtual}"
        if storage not in checked:
            checked[storage] = zarr_reader.why_unreadable(
                reader, name, references, spec.access.storage_options
            )
        reason = checked[storage]
        result[name] = virtual if reason is None else NotVirtual(reason)
    return result


def inspection_task(shared: bytes, task: bytes) -> bytes:
    """Return a pickled list of reports. Equal layouts are one object, which pickle writes once."""
    spec: InspectionSpec = pickle.loads(shared)
    urls, fingerprints = pickle.loads(task)
    files: list[FileReport]
    checked: Checked = {}
    if any("://" in url and not url.startswith("file:") for url in urls):
        with thread_pool(Purpose.FILE_INSPECTIONS) as pool:
            files = list(pool.map(file_report, urls, fingerprints, repeat(spec), repeat(checked)))
    else:
        files = list(map(file_report, urls, fingerprints, repeat(spec), repeat(checked)))
    layouts: dict[str, FileLayout] = {}
    others: dict[Any, Any] = {}
    for file in files:
        if file.layout is not None:
            file.layout = layouts.setdefault(file.layout.digest, file.layout)
            file.own = others.setdefault(file.own, file.own)
            file.individual = others.setdefault(file.individual, file.individual)
            file.labelled = others.setdefault(file.labelled, file.labelled)
    return pickle.dumps(files)


#: The least and the most files of a task.
_FEWEST_FILES: Final = 8
FILES: Final = 50


def files_per_task(files: int, engine: Engine | EngineName | None) -> int:
    """Return the number of files that a task opens: few enough for two tasks for each slot of the engine."""
    return min(FILES, max(files // (2 * slots_of(engine)), _FEWEST_FILES))


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files of a call that a group has, by what it remembers of them.

    ``unchanged`` is a mask of the files with the validator of their ingest, which are not opened. ``size``,
    ``fingerprint``, ``contents`` and ``validator`` have a row for each of them. ``fingerprints`` (by URL) are
    those of the other files that the group has: a file is opened if it has another one now.
    """

    unchanged: NDArray[np.bool_]
    size: NDArray[np.int64]
    fingerprint: NDArray[np.uint8]
    contents: NDArray[np.uint8]
    validator: NDArray[np.uint8]
    fingerprints: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The contents of the files, as columns with one entry for each file.

    ``dim`` is the dimension in which files follow each other, None if they have none. ``layout`` and ``own``
    are codes of ``layouts`` and ``owns``, -1 for a file that was not opened or could not be read. The raw
    labels of file ``i`` are ``labels[label_start[i]:label_start[i + 1]]``, an empty part for a file without
    labels. ``scalars`` (name -> objects, (files,)) are the raw values of individual variables without
    dimensions, None for files that do not have them. ``individual`` are codes of ``individuals``: names and
    digests of all individual variables of a file. ``labelled`` are codes of ``labelled_values``: the labels
    along dimensions that grow. ``group`` are codes of ``groups``: see `group_of`.
    """

    files: SourceFiles
    dim: str | None
    size: NDArray[np.int64]
    fingerprint: NDArray[np.uint8]
    contents: NDArray[np.uint8]
    validator: NDArray[np.uint8]
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
    labelled: NDArray[np.int32]
    labelled_values: tuple[LabelledValues, ...]
    group: NDArray[np.int32]
    groups: tuple[str, ...]
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

    def in_group(self, path: str) -> NDArray[np.bool_]:
        """Return a mask of the opened files whose rule names a group; "" for files without one."""
        codes = [code for code, each in enumerate(self.groups) if each == path]
        mask: NDArray[np.bool_] = np.isin(self.group, codes)
        return mask

    def chosen_urls(self, mask: NDArray[np.bool_]) -> list[str]:
        """Return the URLs of the files in a mask."""
        return [self.urls[i] for i in np.flatnonzero(mask).tolist()]

    @property
    def digest(self) -> str:
        """A hash of the names and the fingerprints of all files, 32 hexadecimal digits."""
        hashed = hashlib.sha256("\0".join(self.urls).encode())
        hashed.update(self.fingerprint.tobytes())
        return hashed.hexdigest()[:32]


def inspect_all(
    files: SourceFiles,
    spec: InspectionSpec,
    engine: Engine,
    *,
    known: KnownFiles | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Open all files that are not known or have changed, in tasks of the engine."""
    urls, expected = files.urls, {} if known is None else known.fingerprints
    if known is not None:
        urls = tuple(compress(urls, (~known.unchanged).tolist()))
        if progress is not None:
            progress.advance(rows=len(known.size), bytes=int(known.size.sum()))
    count = files_per_task(len(urls), engine)
    parts = (urls[start : start + count] for start in range(0, len(urls), count))
    tasks = [pickle.dumps((part, list(map(expected.get, part)))) for part in parts]
    reports: list[FileReport] = []
    for result in engine.run(inspection_task, tasks, dumps(spec)):
        some: list[FileReport] = pickle.loads(result)
        for file in some:
            if file.problem is not None and file.problem[0] == ErrorKind.MISSING_EXTRA:
                raise MissingExtraError(file.problem[1])
        reports += some
        if progress is not None:
            progress.advance(rows=len(some), bytes=sum(file.size for file in some))
    inspection = _columns(replace(files, urls=urls), spec.dim, reports)
    if known is not None and (known.fingerprints or known.unchanged.any()):
        return _with_known(inspection, files, known)
    layouts = inspection.layouts
    names = {name for each in layouts for name in each.variables}
    names |= {name for report in reports for name in report.unfit}
    if missing := sorted(set(spec.variables or ()) - names):
        reasons = [each.skipped[missing[0]] for each in layouts if missing[0] in each.skipped]
        reason = f"no array can hold: {reasons[0]}" if reasons else "no file has"
        raise InvalidInputError(
            f"variables must be names of variables in the files, got {missing[0]!r}, which {reason}"
        )
    return inspection


def _with_known(inspection: Inspection, files: SourceFiles, known: KnownFiles) -> Inspection:
    """Return the inspection of all files, with rows for the known files, which were not opened."""
    count, opened = len(files.urls), np.flatnonzero(~known.unchanged)

    def spread(values: NDArray[Any], others: Any) -> NDArray[Any]:
        column = np.full((count, *values.shape[1:]), None if values.dtype == object else 0, values.dtype)
        column[opened], column[known.unchanged] = values, others
        return column

    remembered = {name: getattr(known, name) for name in ("size", "fingerprint", "contents", "validator")}
    others = {**remembered, "length": 0}
    others |= dict.fromkeys(("layout", "own", "individual", "labelled", "group"), -1)
    columns: dict[str, Any] = {
        name: spread(getattr(inspection, name), values) for name, values in others.items()
    }
    lengths = spread(np.diff(inspection.label_start), 0)
    for name in ("modified", "etag"):
        values = dict(zip(opened.tolist(), getattr(inspection, name), strict=True))
        columns[name] = tuple(map(values.get, range(count)))
    return replace(
        inspection,
        files=files,
        label_start=np.concatenate([[0], np.cumsum(lengths)]),
        scalars={name: spread(values, None) for name, values in inspection.scalars.items()},
        **columns,
    )


def _columns(files: SourceFiles, dim: str | None, reports: Sequence[FileReport]) -> Inspection:
    dtypes = {file.labels.dtype for file in reports if file.labels is not None}
    common = np.result_type(*dtypes) if all(each.kind in "iuf" for each in dtypes) and dtypes else None
    scalars: dict[str, NDArray[np.object_]] = {}
    for row, file in enumerate(reports):
        for name, value in file.scalars.items():
            if name not in scalars:
                scalars[name] = np.full(len(reports), None, object)
            scalars[name][row] = value
        if common is None or common.kind != "f" or file.labels is None or file.labels.dtype.kind == "f":
            continue
        # Integer labels must be exact in the float of all labels. Python compares them exactly.
        labels = file.labels.tolist()
        for label, same in zip(labels, file.labels.astype(common).tolist(), strict=True):
            if label != same:
                text = f"{dim} has the value {label}, which {common} cannot hold"
                file.problem, file.layout = ("dtype", text), None
                break
    all_labels = [file.labels for file in reports if file.labels is not None]
    lengths = [0 if file.labels is None else len(file.labels) for file in reports]
    layout, layouts = _codes(reports, attrgetter("layout"), attrgetter("digest"))
    own, owns = _codes(reports, attrgetter("own"))
    individual, individuals = _codes(reports, attrgetter("individual"))
    group, groups = _codes(reports, attrgetter("group"))
    labelled, labelled_values = _codes(reports, attrgetter("labelled"))
    fingerprint, contents, validator = (
        np.frombuffer(bytes.fromhex("".join(map(attrgetter(name), reports))), np.uint8).reshape(-1, 16)
        for name in ("fingerprint", "contents", "validator")
    )
    return Inspection(
        files=files,
        dim=dim,
        size=np.array([file.size for file in reports], np.int64),
        fingerprint=fingerprint,
        contents=contents,
        validator=validator,
        modified=tuple(file.modified for file in reports),
        etag=tuple(file.etag for file in reports),
        layout=layout,
        own=own,
        length=np.array([file.length for file in reports], np.int64),
        label_start=np.concatenate([[0], np.cumsum(lengths)]),
        labels=np.concatenate(all_labels) if all_labels else np.empty(0),
        layouts=layouts,
        owns=owns,
        scalars=scalars,
        individual=individual,
        individuals=individuals,
        labelled=labelled,
        labelled_values=labelled_values,
        group=group,
        groups=groups,
        problems=tuple(
            options.Problem(*file.problem, url)
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
