"""Readers that change a part of what another reader returns: new names, texts of characters, dates of names.

`frazil.readers.registry` puts the adapters that a caller asks for on top of each other: the function of the
caller (`frazil.readers.function`), new names, texts, dates, and units (`frazil.readers.units`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, override

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.geozarr import DIMENSIONS
from frazil.readers.base_reader import (
    NAMES_COORDINATES,
    NAMES_OTHERS,
    Bounds,
    ChunkReferences,
    FileContents,
    FileSchema,
    NotVirtual,
    Reader,
    VariableSchema,
    decoded,
)


class AdaptedReader(Reader):
    """An open file, as its reader returns it. A subclass changes a part of it."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.file, reader.group)
        self._stack.callback(reader.close)
        self._reader = reader

    @override
    def contents(self) -> FileContents:
        schema = self._reader.schema()
        return FileContents(
            list(schema.variables.values()),
            dict(schema.attrs),
            dict(schema.dims),
            schema.unlimited,
            schema.groups,
            dict(schema.skipped),
            schema.changes,
        )

    @override
    def _read_schema(self) -> FileSchema:
        return replace(super()._read_schema(), format=self._reader.schema().format)

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        return self._reader.values(self._reader.variable(variable.name), bounds)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        return self._reader.references(name)

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        return self._reader.constant(name, region)

    @override
    def fingerprint(self) -> str:
        return self._reader.fingerprint()


# Names


#: Attributes with names of variables or dimensions -> the words that are such names, and not other terms.
_WORDS: Final = {
    **dict.fromkeys((*NAMES_COORDINATES, *NAMES_OTHERS), re.compile(r"[^\s:]+")),
    **dict.fromkeys(("formula_terms", "cell_measures"), re.compile(r"[^\s:]+(?=\s|$)")),
    "cell_methods": re.compile(r"[^\s:]+(?=:)"),
}


class RenamedReader(AdaptedReader):
    """An open file whose variables and dimensions have other names: ``new_names`` by the names in the file.

    Names that the file does not have are ignored. Attributes that name variables have the new names.
    """

    def __init__(self, reader: Reader, new_names: Mapping[str, str]) -> None:
        super().__init__(reader)
        self._new_names = new_names

    @cached_property
    def _used(self) -> dict[str, str]:
        """The new names of the names that the file has."""
        schema = self._reader.schema()
        for names in (list(schema.variables), list(schema.dims)):
            after = [self._new_names.get(name, name) for name in names]
            for name, count in Counter(after).items():
                if count > 1:
                    same = [f"`{old}`" for old, new in zip(names, after, strict=True) if new == name]
                    raise InvalidInputError(
                        f"{self.file.url}: rename must give each variable and each dimension its own name, "
                        f"got {name!r} for {' and '.join(same)}",
                        ErrorKind.INVALID_KEY,
                    )
        every = dict.fromkeys((*schema.variables, *schema.dims))
        return {name: new for name in every if (new := self._new_names.get(name, name)) != name}

    @cached_property
    def _old(self) -> dict[str, str]:
        """The names in the file of the variables with new names."""
        return {new: old for old, new in self._used.items() if old in self._reader.schema().variables}

    def _renamed(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names in the dataset of names in the file."""
        return tuple(self._used.get(name, name) for name in names)

    def _renamed_attributes(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes with the new names of the variables and dimensions that they name."""

        def new_name(word: re.Match[str]) -> str:
            return self._used.get(word[0], word[0])

        named = {name: words for name, words in _WORDS.items() if isinstance(attrs.get(name), str)}
        changed: dict[str, Any] = {name: words.sub(new_name, attrs[name]) for name, words in named.items()}
        if isinstance(dims := attrs.get(DIMENSIONS), list):
            changed[DIMENSIONS] = [self._used.get(name, name) for name in map(str, dims)]
        return {**attrs, **changed}

    @override
    def contents(self) -> FileContents:
        contents, used = super().contents(), self._used
        contents.variables = [
            replace(
                each,
                name=used.get(each.name, each.name),
                dims=self._renamed(each.dims),
                attrs=self._renamed_attributes(each.attrs),
            )
            for each in contents.variables
        ]
        contents.attrs = self._renamed_attributes(contents.attrs)
        contents.dims = {used.get(name, name): size for name, size in contents.dims.items()}
        contents.unlimited = frozenset(self._renamed(contents.unlimited))
        contents.changes += tuple(("renamed", f"{old} to {new}") for old, new in used.items())
        return contents

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        return self._reader.values(self._reader.variable(self._old.get(variable.name, variable.name)), bounds)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        return self._reader.references(self._old.get(name, name))

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        return self._reader.constant(self._old.get(name, name), region)


# Texts


class TextReader(AdaptedReader):
    """An open file whose variables of characters along one of ``dims`` are texts.

    The last dimension of such a variable is the length of a text: `station(station, strlen)` of NetCDF-3.
    """

    def __init__(self, reader: Reader, dims: Collection[str]) -> None:
        super().__init__(reader)
        self._dims = frozenset(dims)

    def _length(self, variable: VariableSchema) -> int | None:
        """Return the length of the texts of a variable of the file; None if it is another variable."""
        is_text = variable.dtype == "S1" and variable.dims[-1:] and variable.dims[-1] not in self._dims
        return variable.shape[-1] if is_text and self._dims & {*variable.dims} else None

    def _as_text(self, variable: VariableSchema) -> VariableSchema:
        return replace(
            variable,
            dims=variable.dims[:-1],
            shape=variable.shape[:-1],
            dtype=np.dtypes.StringDType(),
            attrs={name: each for name, each in variable.attrs.items() if name != "_Encoding"},
            fill_value="",
            chunks=None if variable.chunks is None else variable.chunks[:-1],
        )

    @override
    def contents(self) -> FileContents:
        contents = super().contents()
        contents.variables = [
            each if self._length(each) is None else self._as_text(each) for each in contents.variables
        ]
        variables = self._reader.schema().variables.values()
        lengths = {each.dims[-1] for each in variables if self._length(each) is not None}
        for name in lengths.difference(*(each.dims for each in contents.variables)):
            del contents.dims[name]
        return contents

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        length = self._length(self._reader.variable(variable.name))
        if length is None:
            return super().values(variable, bounds)
        shape = tuple(stop - start for start, stop in bounds)
        if not length:
            return np.full(shape, "", np.dtypes.StringDType())
        characters = np.ascontiguousarray(super().values(variable, (*bounds, (0, length))), "S1")
        return decoded(characters.view(f"S{length}").reshape(shape))

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        if self._length(self._reader.variable(name)) is not None:
            return NotVirtual("its characters are read as texts")
        return super().references(name)

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        is_text = self._length(self._reader.variable(name)) is not None
        return None if is_text else super().constant(name, region)


# Dates


#: The codes of strptime that a pattern may have, with what they match.
_DATE_CODES: Final = {
    **dict.fromkeys(("%m", "%d", "%H", "%M", "%S", "%y"), r"\d{2}"),
    "%Y": r"\d{4}",
    "%j": r"\d{3}",
    "%f": r"\d{1,6}",
    "%b": r"[^\W\d_]{3}",
    "%B": r"[^\W\d_]+",
}
_PARTS_OF_PATTERN: Final = re.compile(r"(%.|\*|\?)")
_WILDCARDS: Final = {"*": ".*?", "?": ".", "%%": "%"}
#: What a pattern of an attribute begins with, before its name.
_ATTRIBUTE: Final = "attribute:"
#: The forms of dates in attributes: that of TIFF, and else ISO 8601.
_TIFF_DATE: Final = "%Y:%m:%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class DatePattern:
    """Where a file has a date: in its name, or in an attribute, as codes of strptime. See `of`."""

    text: str
    attribute: str | None
    codes: tuple[str, ...]
    expression: re.Pattern[str] | None

    @classmethod
    def of(cls, name: str, text: str) -> DatePattern:
        """Return a pattern: ``"s2_%Y%m%d_*.tif"`` or ``"attribute:ACQUIRED"`` or ``"attribute:DAY %Y%j"``."""
        attribute, pattern = None, text
        if text.startswith(_ATTRIBUTE):
            attribute, _, pattern = text.removeprefix(_ATTRIBUTE).strip().partition(" ")
        parts = list(filter(None, _PARTS_OF_PATTERN.split(pattern)))
        codes = [each for each in parts if each in _DATE_CODES]
        unknown = [each for each in parts if each[0] == "%" and each not in (*_DATE_CODES, "%%")]
        twice = [each for each, count in Counter(codes).items() if count > 1]
        if unknown or twice or not (codes or (attribute and not pattern)):
            raise InvalidInputError(
                f"dates must give {name} a name of a file with each code of strptime at most once "
                f"({', '.join(_DATE_CODES)}), or `{_ATTRIBUTE}NAME`, got {text!r}"
            )
        means = {**_WILDCARDS, **{code: f"({each})" for code, each in _DATE_CODES.items()}}
        expression = re.compile("".join(means.get(each) or re.escape(each) for each in parts), re.DOTALL)
        return cls(text, attribute, tuple(codes), expression if codes else None)

    def date(self, text: str) -> datetime:
        """Return the date in a name or in the value of an attribute; ``ValueError`` if it has none."""
        if self.expression is not None:
            if (match := self.expression.fullmatch(text)) is None:
                raise ValueError(text)
            date = datetime.strptime(" ".join(match.groups()), " ".join(self.codes))
        else:
            try:
                date = datetime.strptime(text, _TIFF_DATE)
            except ValueError:
                date = datetime.fromisoformat(text)
        return date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo is not None else date


class DatedReader(AdaptedReader):
    """An open file with a time for each of ``dates``, unless the file has a variable of this name.

    The first time is a dimension of one step, which all data get. The others are coordinates along it.
    """

    def __init__(self, reader: Reader, dates: Mapping[str, DatePattern]) -> None:
        super().__init__(reader)
        self._dates = dates

    @cached_property
    def _times(self) -> dict[str, int]:
        """The times that the file gets, in the units of `_unit`."""
        schema = self._reader.schema()
        names = [name for name in self._dates if name not in schema.variables and name not in schema.dims]
        return {name: self._microseconds(name, self._dates[name]) // self._unit(name)[1] for name in names}

    def _microseconds(self, name: str, pattern: DatePattern) -> int:
        schema = self._reader.schema()
        url, where = self.file.url, "the name"
        if pattern.attribute is None:
            path = url.rstrip("/").split("/")
            text: Any = "/".join(path[-1 - pattern.text.count("/") :])
        else:
            where = f"the attribute {pattern.attribute}"
            sources = [schema.attrs, *(each.attrs for each in schema.variables.values())]
            text = next((each[pattern.attribute] for each in sources if pattern.attribute in each), None)
        try:
            return (pattern.date(str(text)) - _EPOCH) // timedelta(microseconds=1)
        except ValueError:
            raise InvalidInputError(
                f"{url}: {where} must have a date for {name} as in {pattern.text!r}, got {text!r}",
                ErrorKind.INVALID_KEY,
            ) from None

    def _unit(self, name: str) -> tuple[str, int]:
        """Return the unit of a time, and its length in microseconds. It is the same for all files."""
        return ("microseconds", 1) if "%f" in self._dates[name].codes else ("seconds", 1_000_000)

    def _is_stacked(self, variable: VariableSchema) -> bool:
        """Return whether a variable of the file gets the dimension."""
        return bool(self._times) and not variable.coordinate

    @override
    def contents(self) -> FileContents:
        contents = super().contents()
        for name in self._times:
            attrs = {"standard_name": "time", "units": f"{self._unit(name)[0]} since 1970-01-01"}
            attrs["calendar"] = "proleptic_gregorian"
            dim = next(iter(self._times))
            contents.variables.append(
                VariableSchema(name, (dim,), (1,), np.dtype(np.int64), attrs, coordinate=True)
            )
            contents.changes += (("dates", f"{name} from {self._dates[name].text}"),)
            contents.dims |= {dim: 1}
            contents.unlimited |= {dim}
        contents.variables = [
            replace(
                each,
                dims=(dim, *each.dims),
                shape=(1, *each.shape),
                chunks=None if each.chunks is None else (1, *each.chunks),
            )
            if each.name not in self._times and self._is_stacked(each)
            else each
            for each in contents.variables
        ]
        return contents

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        if variable.name in self._times:
            return np.array([self._times[variable.name]], np.int64)
        if not self._is_stacked(variable):
            return super().values(variable, bounds)
        return super().values(variable, bounds[1:])[np.newaxis]

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        references = super().references(name)
        if isinstance(references, NotVirtual) or not self._is_stacked(self._reader.variable(name)):
            return references
        return references.with_axis()

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        if name in self._times:
            return None
        return super().constant(name, region[self._is_stacked(self._reader.variable(name)) :])


_EPOCH: Final = datetime(1970, 1, 1)
