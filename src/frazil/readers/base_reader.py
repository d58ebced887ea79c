"""The base class of the readers of all formats: a file, a group, a schema that is read once, typed errors.

An ingest opens each file several times: to find the concat dimension, to inspect the file, and to copy from
it. The metadata of a file with thousands of variables take seconds to read. The key of a schema is the state
of its file: its size, its time or etag, and the bytes at both ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from numpy.typing import NDArray

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.readers.file_schema import ChunkReferences, FileSchema, VariableSchema
from frazil.readers.files import File, damaged

if TYPE_CHECKING:
    from frazil.readers.file_schema import NotVirtual


#: Attributes that name coordinates, by the CF conventions.
_NAMES_COORDINATES: Final = ("coordinates", "bounds", "climatology", "grid_mapping")
#: Attributes that name other variables (CF and UGRID): scalars among these variables are not data.
_NAMES_OTHERS: Final = ("formula_terms", "cell_measures", "ancillary_variables", "mesh", "geometry")


def coordinate_names(variables: Iterable[VariableSchema], attrs: Mapping[str, Any]) -> set[str]:
    """Return the names of the variables that are not data, by their attributes and dimensions.

    ``attrs`` are the attributes of the group.
    """
    named: set[str] = set(_words_in(attrs, ("coordinates",)))
    others: set[str] = set()
    scalars: set[str] = set()
    for each in variables:
        named.update(_words_in(each.attrs, _NAMES_COORDINATES))
        others.update(_words_in(each.attrs, _NAMES_OTHERS))
        if each.dims == (each.name,):
            named.add(each.name)
        if not each.dims:
            scalars.add(each.name)
    return named | (scalars & others)


def _words_in(attrs: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    texts = (attrs[name] for name in names if isinstance(attrs.get(name), str))
    return chain.from_iterable(text.replace(":", " ").split() for text in texts)


#: The limit for all cached schemas, in bytes.
MOST: Final = 64 << 20
#: The estimated bytes of a variable.
VARIABLE: Final = 2 << 10


class Schemas:
    """The last used schemas by the state of their file, with at most ``most`` bytes."""

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
        size = weight(schema)
        with self._lock:
            if state not in self._schemas and size <= self._most:
                self._schemas[state] = schema, size
                self._used += size
            while self._used > self._most:
                self._used -= self._schemas.popitem(last=False)[1][1]
        return schema


def weight(schema: FileSchema) -> int:
    """Return the estimated bytes of a schema."""
    labels = sum(each.nbytes for each in schema.coords.values())
    return VARIABLE * (1 + len(schema.variables) + len(schema.groups) + len(schema.skipped)) + labels


#: The cache of this process.
SCHEMAS: Final = Schemas()


@dataclass(slots=True)
class FileContents:
    """The contents of one group, as a reader reads them. `Reader.schema` makes a `FileSchema` of them."""

    variables: list[VariableSchema]
    attrs: dict[str, Any]
    dims: dict[str, int]
    unlimited: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)


class Reader:
    """An open file (or Zarr group). The reader of a format defines `contents`, `read` and `references`.

    Attributes:
        format: The name of the format in `frazil.readers.registry.FORMATS`.
        caches_schema: Whether schemas are cached. They must be slow to read, and depend only on the file, the
            group and ``options``.
        library_errors: The errors that the library of the format raises for a damaged file.
        names_error_type: Whether the type of such an error is part of the message.
        option_names: The names of the options of the constructor.
    """

    format: ClassVar[str] = ""
    caches_schema: ClassVar[bool] = False
    library_errors: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    names_error_type: ClassVar[bool] = True
    option_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, file: File, group: str = "/") -> None:
        self.file = file
        self.group = "/" + group.strip("/")
        #: The values of the options that change the schema.
        self.options: tuple[str, ...] = ()
        self._schema: FileSchema | None = None

    def contents(self) -> FileContents:
        """Read the variables, dimensions and attributes of the group."""
        raise NotImplementedError

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the raw values of a region of a variable, of its dtype and in the order of its dimensions.

        The slices have step 1.
        """
        raise NotImplementedError

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """Return references to the chunks of a variable, or the reason why there are none."""
        raise NotImplementedError

    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        """Return the single value (shape ``()``) of a region in which no element was ever written.

        Returns None if some elements were written, or if the format does not tell.
        """
        return None

    def fingerprint(self) -> str:
        """Return the fingerprint of the file. `schema` calls it after `contents`."""
        return self.file.fingerprint()

    def schema(self) -> FileSchema:
        """Return the schema of the group. It is read once."""
        if self._schema is None and self.caches_schema:
            file = self.file
            state = self.format, file.url, self.group, file.size, file.modified, file.etag, file.fingerprint()
            self._schema = SCHEMAS.get((*state, *self.options), self._read_schema)
        return self._read_schema() if self._schema is None else self._schema

    def _read_schema(self) -> FileSchema:
        self._schema = self._assemble(self.contents())
        return self._schema

    def variable(self, name: str) -> VariableSchema:
        """Return a variable of the schema, or raise ``FormatError`` if the group does not have it."""
        schema = self.schema()
        try:
            return schema.variables[name]
        except KeyError:
            why = schema.skipped.get(name)
            actual = f"one that cannot be read: {why}" if why else f"only {sorted(schema.variables)}"
            raise damaged(self.file.url, f"a variable {name!r} in {self.group}", actual) from None

    def region(self, name: str, region: Sequence[slice]) -> tuple[tuple[int, int], ...]:
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
        """Return a context in which errors of the library of the format become ``FormatError``.

        ``expected`` names the expected part of the file, for the message.
        """
        try:
            yield
        except IcechunkError:
            raise
        except self.library_errors as error:
            actual = f"{type(error).__name__}: {error}" if self.names_error_type else error
            raise damaged(self.file.url, expected, actual) from error

    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _assemble(self, contents: FileContents) -> FileSchema:
        file = self.file
        names = coordinate_names(contents.variables, contents.attrs)
        variables = {
            each.name: replace(each, coordinate=True) if each.name in names else each
            for each in contents.variables
        }
        self._schema = FileSchema(
            url=file.url,
            format=self.format,
            size=file.size,
            fingerprint=self.fingerprint(),
            group=self.group,
            variables=variables,
            attrs=contents.attrs,
            dims=contents.dims,
            unlimited=contents.unlimited,
            etag=file.etag,
            modified=file.modified,
            groups=contents.groups,
            skipped=contents.skipped,
        )
        coords = {
            name: self.read(name, (slice(None),)) for name, each in variables.items() if each.dims == (name,)
        }
        return replace(self._schema, coords=coords)
