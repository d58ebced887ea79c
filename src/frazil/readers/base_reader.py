"""The base class of the readers of all formats: a file, a group, a schema that is read once, typed errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.readers.coordinates import coordinate_names
from frazil.readers.file_errors import damaged
from frazil.readers.files import File
from frazil.readers.reader import ChunkReferences, FileSchema, VariableSchema
from frazil.readers.schema_cache import SCHEMAS

if TYPE_CHECKING:
    from frazil.readers.reader import NotVirtual


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
