"""The base class of the readers of all formats, and their results: schemas, raw values, references to chunks.

A reader does not decode values: packed data stay packed, times stay numbers, characters stay characters. If
the results of a reader are stored without changes, xarray reads the same from the store as from the file. A
reader raises ``FormatError`` with the name of the file if the file is damaged, truncated or of another
format, and ``StorageError`` if it cannot be read at all.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import is_name
from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError
from frazil.readers.files import SourceFile, damaged


def json_value(value: Any) -> Any:
    """Return the value of an attribute as JSON can hold it. Compound values and times become text."""
    match value:
        case bytes():
            return text(value)
        case np.ndarray() if value.size == 1:
            return json_value(value.reshape(-1)[0])
        case np.ndarray():
            return list(map(json_value, value if value.dtype.kind in "OV" else value.tolist()))
        case np.void() if value.dtype.names is not None:
            fields = {name: json_value(value[name]) for name in value.dtype.names}
            return json.dumps(fields, ensure_ascii=False)
        case np.void():
            return value.tobytes().hex()
        case np.datetime64() | np.timedelta64():
            return str(value)
        case np.floating():
            return float(value)
        case complex() | np.complexfloating():
            return [float(value.real), float(value.imag)]
        case np.generic():
            return json_value(value.item())
        case str():
            return _readable(value)
        case None | bool() | int() | float():
            return value
        case list() | tuple():
            return list(map(json_value, value))
        case Mapping():
            return {str(name): json_value(each) for name, each in value.items()}
        case _:
            return str(value)


def decoded(values: NDArray[Any]) -> NDArray[Any]:
    """Decode each text of an array of bytes as UTF-8, or else as Latin-1."""
    if values.dtype.kind == "S":
        try:
            return np.asarray(np.strings.decode(values, "utf-8")).astype(np.dtypes.StringDType())
        except UnicodeDecodeError:
            pass
    texts = [
        text(each) if isinstance(each, bytes) else _readable(str(each)) for each in values.ravel().tolist()
    ]
    return np.array(texts, np.dtypes.StringDType()).reshape(values.shape)


def text(data: bytes) -> str:
    """Return bytes as text, without zeros at the end: UTF-8, or else Latin-1, as in old files."""
    data = data.rstrip(b"\0")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _readable(value: str) -> str:
    """Return a text of h5py, which has surrogates for the bytes of a text that is not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return text(value.encode(errors="surrogateescape"))
    return value


@dataclass(frozen=True, slots=True)
class VariableSchema:
    """One variable of one file, as it is stored.

    ``dtype`` is little-endian or native if the format does not define it, ``StringDType()`` for strings of
    variable length, ``S1`` for characters. ``attrs`` are JSON values without attributes that only describe
    the storage. ``fill_value`` is the value of missing chunks, None if it is not defined. ``chunks`` is None
    for one piece. ``codec`` is the compression in words, such as ``"zlib 4"``. ``coordinate``: it is not
    data, but a coordinate, a bound, a grid mapping, or a scalar that another variable names.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    fill_value: Any | None = None
    chunks: tuple[int, ...] | None = None
    codec: str | None = None
    coordinate: bool = False


@dataclass(frozen=True, slots=True)
class FileSchema:
    """One group of one file.

    ``fingerprint`` is that of `SourceFile`. ``coords`` are the raw values of each one-dimensional variable
    with the name of its dimension. Virtual references store ``etag`` or ``modified``. ``groups`` are the
    paths of the groups below, ``skipped`` the variables that no array can hold, with the reasons. ``changes``
    are the kinds and the texts of what differs from the file, such as a new name.
    """

    url: str
    format: str
    size: int
    fingerprint: str
    group: str = "/"
    variables: dict[str, VariableSchema] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    unlimited: frozenset[str] = frozenset()
    coords: dict[str, NDArray[Any]] = field(default_factory=dict)
    etag: str | None = None
    modified: datetime | None = None
    groups: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    changes: tuple[tuple[str, str], ...] = ()


#: The location code of an inline chunk, whose bytes are in ``ChunkReferences.inline``.
INLINE: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class ChunkReferences:
    """The stored chunks of one variable, as columns with a row for each chunk.

    ``codecs`` are those of Zarr version 3, ``fill_value`` is the value of missing chunks. ``locations`` are
    absolute URLs, ``location`` (uint32) the row of each chunk in them, or `INLINE`. ``index`` (uint32, (n,
    ndim)) is the place in the chunk grid, ``offset`` and ``length`` (uint64) are the bytes in the file.
    ``inline`` (row -> bytes) are the chunks that are not in a file (see `with_inline`).
    """

    chunks: tuple[int, ...]
    codecs: list[dict[str, Any]]
    dtype: np.dtype[Any]
    fill_value: Any
    locations: tuple[str, ...]
    index: NDArray[np.uint32]
    offset: NDArray[np.uint64]
    length: NDArray[np.uint64]
    location: NDArray[np.uint32]
    inline: Mapping[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        in_file = self.location != INLINE
        bad = in_file & ((self.location >= len(self.locations)) | (self.length == 0))
        rows = {*np.flatnonzero(bad).tolist()}
        rows |= {*np.flatnonzero(~in_file).tolist()} ^ {row for row, data in self.inline.items() if data}
        if rows:
            raise FormatError(
                f"{next(iter(self.locations), 'a file')}: expected bytes of the chunk at "
                f"{self.index[min(rows)].tolist()} in the file or inline, got none",
                ErrorKind.INVALID_FILE_FORMAT,
            )

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of a chunk are only its values, in C order."""
        return [each["name"] for each in self.codecs] == ["bytes"] and self.dtype.kind != "T"

    def with_axis(self) -> ChunkReferences:
        """Return the same chunks for an array with an additional first dimension of one step."""
        index = np.insert(self.index, 0, 0, axis=1)
        return replace(self, chunks=(1, *self.chunks), codecs=codecs_with_axis(self.codecs), index=index)

    def with_inline(self, chunks: Mapping[int, bytes]) -> ChunkReferences:
        """Return the same references, with inline bytes (row -> bytes) instead of bytes in a file."""
        rows = list(chunks)
        offset, length, location = self.offset.copy(), self.length.copy(), self.location.copy()
        offset[rows], length[rows], location[rows] = 0, list(map(len, chunks.values())), INLINE
        return replace(
            self, offset=offset, length=length, location=location, inline={**self.inline, **chunks}
        )


def codecs_with_axis(codecs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return codecs for arrays with an additional first dimension of one step."""
    longer = []
    for codec in codecs:
        config = dict(codec.get("configuration", {}))
        if codec["name"] == "transpose":
            config["order"] = [0, *(each + 1 for each in config["order"])]
        if codec["name"] == "sharding_indexed":
            config["chunk_shape"] = [1, *config["chunk_shape"]]
            config["codecs"] = codecs_with_axis(config["codecs"])
        longer.append({**codec, "configuration": config} if config else codec)
    return longer


@dataclass(frozen=True, slots=True)
class NotVirtual:
    """A variable without references. ``reason`` is a text such as ``"szip: no codec in Zarr"``."""

    reason: str


def bytes_codec(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the Zarr codec for values of this dtype that are stored without compression."""
    if dtype.itemsize == 1 or dtype.kind in "SVT":
        return {"name": "bytes"}
    endian = "big" if dtype.str[0] == ">" else "little"
    return {"name": "bytes", "configuration": {"endian": endian}}


def references_to_file(
    url: str,
    chunks: Sequence[int],
    codecs: list[dict[str, Any]],
    dtype: np.dtype[Any],
    fill_value: Any,
    index: NDArray[Any],
    offset: NDArray[Any],
    length: NDArray[Any],
) -> ChunkReferences:
    """Return references to chunks that are all in the file ``url``: columns as in `ChunkReferences`."""
    return ChunkReferences(
        tuple(map(int, chunks)),
        codecs,
        dtype,
        fill_value,
        (url,),
        np.ascontiguousarray(index, np.uint32),
        np.ascontiguousarray(offset, np.uint64),
        np.ascontiguousarray(length, np.uint64),
        np.zeros(len(offset), np.uint32),
    )


#: Attributes that name coordinates, by the CF conventions.
NAMES_COORDINATES: Final = ("coordinates", "bounds", "climatology", "grid_mapping")
#: Attributes that name other variables (CF and UGRID): scalars among these variables are not data.
NAMES_OTHERS: Final = ("formula_terms", "cell_measures", "ancillary_variables", "mesh", "geometry")


def coordinate_names(variables: Iterable[VariableSchema], attrs: Mapping[str, Any]) -> set[str]:
    """Return the names of the variables that are not data. ``attrs`` are the attributes of the group."""
    named, others, scalars = set[str](), set[str](), set[str]()
    lists: list[tuple[Mapping[str, Any], tuple[str, ...], set[str]]] = [(attrs, ("coordinates",), named)]
    for each in variables:
        lists += [(each.attrs, NAMES_COORDINATES, named), (each.attrs, NAMES_OTHERS, others)]
        named.update([each.name] if each.dims == (each.name,) else ())
        scalars.update(() if each.dims else [each.name])
    for attributes, names, target in lists:
        texts = (attributes[name] for name in names if isinstance(attributes.get(name), str))
        target.update(" ".join(texts).replace(":", " ").split())
    return named | (scalars & others)


#: The limit for all cached schemas, in bytes.
MOST: Final = 64 << 20
#: The estimated bytes of a variable.
VARIABLE: Final = 2 << 10


class Schemas:
    """The last used schemas by the state of their file (size, time, both ends), with a limit of bytes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._used = 0
        self._schemas: OrderedDict[Hashable, tuple[FileSchema, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._schemas)

    def get(self, state: Hashable, read: Callable[[], FileSchema]) -> FileSchema:
        """Return the schema of this state of a file. ``read`` reads it if it is not cached."""
        with self._lock:
            if state in self._schemas:
                self._schemas.move_to_end(state)
                return self._schemas[state][0]
        schema = read()
        count = 1 + len(schema.variables) + len(schema.groups) + len(schema.skipped)
        size = VARIABLE * count + sum(each.nbytes for each in schema.coords.values())
        with self._lock:
            if state not in self._schemas and size <= self._most:
                self._schemas[state] = schema, size
                self._used += size
            while self._used > self._most:
                self._used -= self._schemas.popitem(last=False)[1][1]
        return schema


#: The cache of this process.
SCHEMAS: Final = Schemas()


@dataclass
class FileContents:
    """The contents of one group, as a reader reads them. `Reader.schema` makes a `FileSchema` of them."""

    variables: list[VariableSchema]
    attrs: dict[str, Any]
    dims: dict[str, int]
    unlimited: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    changes: tuple[tuple[str, str], ...] = ()


#: ``(start, stop)`` for each dimension.
type Bounds = tuple[tuple[int, int], ...]


class Reader:
    """An open file (or Zarr group). The reader of a format defines `contents`, `read` and `references`."""

    #: The name of the format in `frazil.readers.registry.FORMATS`.
    format: ClassVar[str] = ""
    #: Schemas are cached that are slow to read, and depend only on the file, the group and ``options``.
    caches_schema: ClassVar[bool] = False
    #: The errors that the library of the format raises for a damaged file.
    library_errors: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    #: Whether the type of such an error is part of the message.
    names_error_type: ClassVar[bool] = True
    #: The names of the options of the constructor.
    option_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, file: SourceFile, group: str = "/") -> None:
        self.file = file
        self.group: Final = "/" + group.strip("/")
        #: The values of the options that change the schema.
        self.options: tuple[str, ...] = ()
        self._schema: FileSchema | None = None
        #: What `close` closes.
        self._stack = ExitStack()

    def contents(self) -> FileContents:
        """Read the variables, dimensions and attributes of the group."""
        raise NotImplementedError

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the raw values of a region (slices with step 1), in the order of the dimensions."""
        variable, bounds = self.variable(name), self.region(name, region)
        shape = tuple(stop - start for start, stop in bounds)
        return np.empty(shape, variable.dtype) if 0 in shape else self.values(variable, bounds)

    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        """Return the raw values of a region that is not empty."""
        raise NotImplementedError

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """Return references to the chunks of a variable, or the reason why there are none."""
        raise NotImplementedError

    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        """Return the single value (shape ``()``) of a region without stored elements; None if it has some."""
        return None

    def fingerprint(self) -> str:
        """Return the fingerprint of the file. `schema` calls it after `contents`."""
        return self.file.fingerprint()

    def schema(self) -> FileSchema:
        """Return the schema of the group. It is read once."""
        if self._schema is None:
            file = self.file
            if self.caches_schema:
                state = self.format, file.url, self.group, file.size, file.modified, file.etag
                key = (*state, file.fingerprint(), *self.options)
                self._schema = SCHEMAS.get(key, self._read_schema)
            else:
                self._schema = self._read_schema()
        return self._schema

    def _read_schema(self) -> FileSchema:
        file, contents = self.file, self.contents()
        names = coordinate_names(contents.variables, contents.attrs)
        variables = {
            each.name: replace(each, coordinate=True) if each.name in names else each
            for each in contents.variables
            if is_name(each.name)
        }
        others = (each.name for each in contents.variables if each.name not in variables)
        contents.skipped |= dict.fromkeys(others, "a name that no array can have")
        self._schema = FileSchema(
            url=file.url,
            format=self.format,
            size=(file.original or file).size,
            fingerprint=self.fingerprint(),
            group=self.group,
            etag=file.etag,
            modified=file.modified,
            **vars(contents) | {"variables": variables},
        )
        # `read` needs the schema.
        coords = {
            name: self.read(name, (slice(None),)) for name, each in variables.items() if each.dims == (name,)
        }
        return replace(self._schema, coords=coords)

    def variable(self, name: str) -> VariableSchema:
        """Return a variable of the schema, or raise ``FormatError`` if the group does not have it."""
        schema = self.schema()
        try:
            return schema.variables[name]
        except KeyError:
            why = schema.skipped.get(name)
            actual = f"one that cannot be read: {why}" if why else f"only {sorted(schema.variables)}"
            raise damaged(self.file.url, f"a variable {name!r} in {self.group}", actual) from None

    def region(self, name: str, region: Sequence[slice]) -> Bounds:
        """Return a region as (start, stop) for each dimension, or raise ``InvalidInputError``."""
        shape = self.variable(name).shape
        if len(region) != len(shape) or any(each.step not in (None, 1) for each in region):
            raise InvalidInputError(
                f"{self.file.url}: region must have a slice with step 1 for each of {len(shape)} dimensions "
                f"of {name!r}, got {region}",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        bounds = [each.indices(size)[:2] for each, size in zip(region, shape, strict=True)]
        return tuple((start, max(start, stop)) for start, stop in bounds)

    @contextmanager
    def library_call(self, expected: str) -> Iterator[None]:
        """Return a context in which errors of the library become ``FormatError``."""
        try:
            yield
        except IcechunkError:
            raise
        except self.library_errors as error:
            actual = f"{type(error).__name__}: {error}" if self.names_error_type else error
            raise damaged(self.file.url, expected, actual) from error

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
