"""What the readers of all formats share: attributes as JSON, which variables are coordinates, codecs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.readers.files import File, damaged
from frazil.readers.reader import ChunkReferences, FileSchema, VariableSchema
from frazil.readers.schema_cache import SCHEMAS

if TYPE_CHECKING:
    from frazil.readers.reader import NotVirtual

#: Attributes that name coordinates, by the CF conventions.
_NAMES_COORDINATES: Final = ("coordinates", "bounds", "climatology", "grid_mapping")
#: Attributes that name other variables (CF and UGRID): those without dimensions are no data either.
_NAMES_OTHERS: Final = ("formula_terms", "cell_measures", "ancillary_variables", "mesh", "geometry")


@dataclass(slots=True)
class Parts:
    """What a format's reader finds; `assemble` makes the schema of it."""

    variables: list[VariableSchema]
    attrs: dict[str, Any]
    dims: dict[str, int]
    unlimited: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)


class BaseReader:
    """What is the same in every reader. ``format`` is a name of the table in ``opening``.

    ``keeps_schema`` says that a schema is long to read, and depends on nothing but the file and the group.
    """

    format: str = ""
    keeps_schema: bool = False

    def __init__(self, file: File, group: str = "/") -> None:
        self.file = file
        self.group = "/" + group.strip("/")
        self._schema: FileSchema | None = None

    def parts(self) -> Parts:
        raise NotImplementedError

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        raise NotImplementedError

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        raise NotImplementedError

    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        return None

    def fingerprint(self) -> str:
        """Asked for after ``parts``."""
        return self.file.fingerprint()

    def schema(self) -> FileSchema:
        """See `frazil.readers.reader.FileSchema`. Found once."""
        if self._schema is None and self.keeps_schema:
            file = self.file
            state = self.format, file.url, self.group, file.size, file.modified, file.etag, file.fingerprint()
            self._schema = SCHEMAS.get(state, self._read_schema)
        return self._read_schema() if self._schema is None else self._schema

    def _read_schema(self) -> FileSchema:
        self._schema = self._assemble(self.parts())
        return self._schema

    def variable(self, name: str) -> VariableSchema:
        """One variable of the schema. Raises ``FormatError`` if it is not there."""
        schema = self.schema()
        try:
            return schema.variables[name]
        except KeyError:
            why = schema.skipped.get(name)
            found = (
                f"one that cannot be read: {why}" if why else f"none; there are {sorted(schema.variables)}"
            )
            raise damaged(self.file.url, f"a variable {name!r} in {self.group}", found) from None

    def region(self, name: str, region: Sequence[slice]) -> tuple[tuple[int, int], ...]:
        """A region as (start, stop) for each dimension. Raises ``InvalidInputError`` if it is none."""
        shape = self.variable(name).shape
        if len(region) != len(shape) or any(each.step not in (None, 1) for each in region):
            raise InvalidInputError(
                f"{self.file.url}: expected a slice with step 1 for each of {len(shape)} dimensions of "
                f"{name!r}, found {region}",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        bounds = [each.indices(size)[:2] for each, size in zip(region, shape, strict=True)]
        return tuple((start, max(start, stop)) for start, stop in bounds)

    def close(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _assemble(self, parts: Parts) -> FileSchema:
        file = self.file
        names = coordinate_names(parts.variables, parts.attrs)
        variables = {
            each.name: replace(each, coordinate=True) if each.name in names else each
            for each in parts.variables
        }
        self._schema = FileSchema(
            url=file.url,
            format=self.format,
            size=file.size,
            fingerprint=self.fingerprint(),
            group=self.group,
            variables=variables,
            attrs=parts.attrs,
            dims=parts.dims,
            unlimited=parts.unlimited,
            etag=file.etag,
            modified=file.modified,
            groups=parts.groups,
            skipped=parts.skipped,
        )
        coords = {
            name: self.read(name, (slice(None),)) for name, each in variables.items() if each.dims == (name,)
        }
        return replace(self._schema, coords=coords)


def coordinate_names(variables: Iterable[VariableSchema], attrs: Mapping[str, Any]) -> set[str]:
    """The variables that are not data, as far as attributes and names tell."""
    named: set[str] = set(_words(attrs, ("coordinates",)))
    others: set[str] = set()
    scalars: set[str] = set()
    for each in variables:
        named.update(_words(each.attrs, _NAMES_COORDINATES))
        others.update(_words(each.attrs, _NAMES_OTHERS))
        if each.dims == (each.name,):
            named.add(each.name)
        if not each.dims:
            scalars.add(each.name)
    return named | (scalars & others)


def _words(attrs: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    texts = (attrs[name] for name in names if isinstance(attrs.get(name), str))
    return chain.from_iterable(text.replace(":", " ").split() for text in texts)


def json_value(value: Any) -> Any:
    """An attribute as JSON can hold it: one element is a scalar, more are a list, characters are text.

    What JSON cannot hold becomes text: the fields of a compound type, references, times.

    >>> json_value(np.array([1.5], "f4")), json_value(np.array([b"a", b"b"])), json_value(b"caf\\xc3\\xa9")
    (1.5, ['a', 'b'], 'café')
    >>> json_value(np.array((1, b"K"), [("level", "i4"), ("unit", "S3")]))
    '{"level": 1, "unit": "K"}'
    """
    match value:
        case bytes():
            return text(value)
        case np.ndarray() if value.size == 1:
            return json_value(value.reshape(-1)[0])
        case np.ndarray():
            return list(map(json_value, value if value.dtype.kind in "OV" else value.tolist()))
        case np.generic():
            return _json_scalar(value)
        case None | bool() | int() | float() | str():
            return value
        case complex():
            return [value.real, value.imag]
        case list() | tuple():
            return list(map(json_value, value))
        case Mapping():
            return {str(name): json_value(each) for name, each in value.items()}
        case _:
            return str(value)


def _json_scalar(value: np.generic) -> Any:
    match value:
        case np.void() if value.dtype.names is not None:
            fields = {name: json_value(value[name]) for name in value.dtype.names}
            return json.dumps(fields, ensure_ascii=False)
        case np.void():
            return value.tobytes().hex()
        case np.datetime64() | np.timedelta64():
            return str(value)
        case np.floating():
            return float(value)
        case np.complexfloating():
            return json_value(complex(value))
        case _:
            return json_value(value.item())


def text(data: bytes) -> str:
    """UTF-8, or else Latin-1 as old files have it; without the zeros at its end."""
    data = data.rstrip(b"\0")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def bytes_codec(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Zarr's codec for values of this dtype as they are in memory."""
    if dtype.itemsize == 1 or dtype.kind in "SVT":
        return {"name": "bytes"}
    endian = "big" if dtype.str[0] == ">" else "little"
    return {"name": "bytes", "configuration": {"endian": endian}}


def one_location(
    url: str,
    chunks: Sequence[int],
    codecs: list[dict[str, Any]],
    dtype: np.dtype[Any],
    fill_value: Any,
    index: NDArray[Any],
    offset: NDArray[Any],
    length: NDArray[Any],
) -> ChunkReferences:
    """References to chunks that are all in one file."""
    return ChunkReferences(
        chunks=tuple(map(int, chunks)),
        codecs=codecs,
        dtype=dtype,
        fill_value=fill_value,
        locations=(url,),
        index=np.ascontiguousarray(index, np.uint32),
        offset=np.ascontiguousarray(offset, np.uint64),
        length=np.ascontiguousarray(length, np.uint64),
        location=np.zeros(len(offset), np.uint32),
    )
