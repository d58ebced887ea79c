"""The reader of files in other units, by the rules of UDUNITS.

packed numbers, integers    stay, and get another scale and offset
floats, coordinates         are converted, in the type of the file
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, override

import numpy as np
from cf_units import Unit  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.cf import coding_of
from frazil.errors import InvalidInputError
from frazil.readers.adapters import AdaptedReader
from frazil.readers.base_reader import (
    Bounds,
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
)

#: Attributes with values in the units of the stored numbers, and of the values.
_STORED: Final = ("valid_min", "valid_max", "valid_range")
_DECODED: Final = ("actual_range",)
#: Two points give the scale of a conversion. Other points show whether the conversion is linear.
_FAR: Final = 2.0**20
_POINTS: Final = (1.0, -7.5, 1000.0)
#: Scales such as 5/9 are fractions of numbers up to this one.
_LARGEST: Final = 10**6
_DIFFERENCE: Final = "temperature: difference"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of numbers in one unit: ``scale * number + offset`` if it is linear."""

    source: Unit
    target: Unit
    is_difference: bool

    @classmethod
    def of(cls, variable: VariableSchema, units: str) -> Conversion:
        """Return the conversion of a variable. Raises ``ValueError`` if there is none."""
        source, target = Unit(variable.attrs["units"]), Unit(units)
        if source.is_time_reference() or target.is_time_reference():
            raise ValueError("an ingest converts the units of times itself")
        if source.is_unknown() or target.is_unknown() or not source.is_convertible(target):
            raise ValueError(f"{str(source)!r} cannot be converted to {units!r}")
        return cls(source, target, variable.attrs.get("units_metadata") == _DIFFERENCE)

    def linear(self) -> tuple[float, float]:
        """Return the scale and the offset. Raises ``ValueError`` for a conversion that is not linear."""
        zero, far = (self.source.convert(each, self.target) for each in (0.0, _FAR))
        scale = (far - zero) / _FAR
        expected = self.source.convert(np.array(_POINTS), self.target)
        numbers = scale * np.array(_POINTS)
        if (
            not np.isfinite(scale)
            or (abs(numbers + zero - expected) > 1e-9 * (abs(numbers) + abs(zero))).any()
        ):
            raise ValueError(f"packed numbers in {str(self.source)!r} have no scale in {str(self.target)!r}")
        fraction = float(Fraction(scale).limit_denominator(_LARGEST))
        scale = fraction if abs(fraction - scale) <= 1e-13 * abs(scale) else scale
        return scale, 0.0 if self.is_difference else zero

    def values(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values in the target units, in the type of ``values``."""
        numbers = values.astype(np.float64)
        converted = (
            numbers * self.linear()[0] if self.is_difference else self.source.convert(numbers, self.target)
        )
        return np.asarray(converted).astype(values.dtype)


class ConvertedReader(AdaptedReader):
    """An open file with variables in other units: the units by the name of the variable.

    Names that the file does not have are ignored. The bounds of a coordinate have its units.
    """

    def __init__(self, reader: Reader, units: Mapping[str, str]) -> None:
        super().__init__(reader)
        self._units = units

    @cached_property
    def _conversions(self) -> dict[str, Conversion]:
        """The conversions of the variables of the file that have other units."""
        variables, result = self._reader.schema().variables, dict[str, Conversion]()
        for name in [name for name in self._units if name in variables]:
            variable, units = variables[name], self._units[name]
            before = variable.attrs.get("units")
            if before == units:
                continue
            try:
                if not isinstance(before, str):
                    raise ValueError("the file has no units")
                if variable.dtype.kind not in "iuf":
                    raise ValueError(f"it is {variable.dtype}, and not numbers")
                conversion = Conversion.of(variable, units)
                if conversion.source == conversion.target:
                    continue
                if not self._is_in_values(variable):
                    conversion.linear()
            except ValueError as error:
                text = str(error).removeprefix("[UT_SYNTAX] ")
                raise misfit(
                    f"{self.file.url}: convert must give {name} units that fit, got {units!r}: {text}"
                ) from error
            bounds = str(variable.attrs.get("bounds"))
            result |= dict.fromkeys([name, *([bounds] if bounds in variables else [])], conversion)
        return result

    @staticmethod
    def _is_in_values(variable: VariableSchema) -> bool:
        """Return whether stored numbers are converted, and not only their scale."""
        packed = coding_of(variable.attrs, variable.dtype).floating is not None
        return not packed and (variable.dtype.kind == "f" or variable.coordinate)

    def _converted(self, variable: VariableSchema) -> VariableSchema:
        """Return a variable of the file in its new units."""
        conversion = self._conversions.get(variable.name)
        if conversion is None:
            return variable
        attrs, dtype, fill_value = dict(variable.attrs), variable.dtype, variable.fill_value
        if variable.name in self._units:
            attrs["units"] = self._units[variable.name]
        if self._is_in_values(variable):
            names: tuple[str, ...] = (*_STORED, *_DECODED)
            dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
            fill_value = None if dtype != variable.dtype else fill_value
        else:
            names = _DECODED
            (scale, offset), coding = conversion.linear(), coding_of(attrs, dtype)
            attrs["scale_factor"] = coding.packing[0] * scale
            attrs["add_offset"] = coding.packing[1] * scale + offset
        for name in names:
            if name in attrs and np.asarray(attrs[name]).dtype.kind in "iuf":
                attrs[name] = conversion.values(np.asarray(attrs[name], np.float64)).tolist()
        return replace(variable, attrs=attrs, dtype=dtype, fill_value=fill_value)

    def _numbers(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        """Return the values of a variable in its new units. Missing values stay."""
        variable, conversion = self._reader.variable(name), self._conversions.get(name)
        if conversion is None or not self._is_in_values(variable):
            return stored
        target = self.variable(name)
        with np.errstate(invalid="ignore", over="ignore"):
            values = conversion.values(stored.astype(target.dtype))
        missing = coding_of(variable.attrs, variable.dtype).missing(stored)
        present = np.ones(stored.shape, np.bool_) if missing is None else ~missing
        is_lost = np.isfinite(stored) & np.isinf(values)
        if (same := coding_of(target.attrs, target.dtype).missing(values)) is not None:
            is_lost |= same & ~np.isnan(stored)
        if len(rows := np.flatnonzero(present & is_lost)):
            old, new = stored.flat[rows[0]], values.flat[rows[0]]
            raise misfit(
                f"{self.file.url}: the values of {name} in {conversion.target} must be {target.dtype} "
                f"and must not mean a missing value, got {new} for {old}. Choose other units in convert"
            )
        return np.where(present, values, stored).astype(values.dtype)

    @override
    def contents(self) -> FileContents:
        contents = super().contents()
        for name, each in self._conversions.items():
            if name in self._units:
                contents.changes += (("converted", f"{name} from {each.source} to {self._units[name]}"),)
        contents.variables = list(map(self._converted, contents.variables))
        return contents

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        return self._numbers(variable.name, super().values(variable, bounds))

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        value = super().constant(name, region)
        return None if value is None else self._numbers(name, np.asarray(value))

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        if name in self._conversions and self._is_in_values(self._reader.variable(name)):
            return NotVirtual("its values are converted to other units")
        return super().references(name)


def require_units(convert: Mapping[str, str]) -> None:
    """Raise ``InvalidInputError`` for texts that are no units."""
    for name, units in convert.items():
        try:
            Unit(units)
        except ValueError as error:
            raise InvalidInputError(f"convert must give {name} units of UDUNITS, got {units!r}") from error
