"""The check of each rule: what it expects, what the version has, and where the first offence is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InternalError, InvalidInputError
from frazil.jobs.blocks import regular_grid
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    coordinate,
    coordinates_of,
    dimensions,
    open_array,
    open_field,
)
from frazil.pipeline.validation.scan import Offence, ValueSummary
from frazil.repository.session.session import Session

#: Whether the rule holds, what it expects, what the version has, and where the first offence is.
type Verdict = tuple[bool, str, str, str]
#: The values of an array, and the offences of the rule among them.
type ScanResult = tuple[ValueSummary, Offence]


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """A rule about a version, and the results of the scans of its array and of the other version's."""

    session: Session
    rule: Any
    result: ScanResult | None = None
    other_result: ScanResult | None = None

    def array(self) -> zarr.Array[Any]:
        """Return the array of the rule. Raises ``NodeNotFoundError``."""
        return open_array(self.session, self.rule.path)

    def scanned(self) -> ScanResult:
        """Return the result of the scan. Raises as `open_field` if the array was not scanned."""
        if self.result is None:
            open_field(self.session, self.rule.path)
            raise InternalError(f"`{self.rule.path}` was not scanned")
        return self.result

    def coordinate(self) -> NDArray[Any]:
        """Return the values of a coordinate, as stored; fill values are NaN."""
        array = self.array()
        if array.ndim != 1:
            raise InvalidInputError(
                f"`{self.rule.path}` must have one dimension, got {array.ndim}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        if array.dtype.kind not in "biuf":
            return np.asarray(array[...])
        return open_field(self.session, self.rule.path).decoded(np.asarray(array[...]))

    def where(self, offence: Offence) -> str:
        """Return the index of an offence, and its labels."""
        if not offence.count:
            return ""
        field = open_field(self.session, self.rule.path)
        coordinates = coordinates_of(field, ArrayLookup(self.session), field.dims)
        labels = [
            f"{dim}={coordinate(self.session, field.parent, dim).values[at]!s}"
            for dim, at in zip(field.dims, offence.index, strict=True)
            if dim in coordinates and coordinates[dim].ndim == 1
        ]
        return ", ".join([f"index {offence.index}", *labels])


def _exists(checked: CheckedRule) -> Verdict:
    kind, path = checked.rule.kind, checked.rule.path.strip("/")
    try:
        node = zarr.open(checked.session.store, path=path, mode="r", zarr_format=3)
    except FileNotFoundError:
        return False, f"an {kind}" if kind == "array" else f"a {kind}", "nothing", ""
    actual = "array" if isinstance(node, zarr.Array) else "group"
    return actual == kind, kind, actual, ""


def _shape(checked: CheckedRule) -> Verdict:
    actual, expected = checked.array().shape, tuple(checked.rule.shape)
    ok = len(actual) == len(expected) and all(
        length is None or length == n for length, n in zip(expected, actual, strict=True)
    )
    return ok, str(expected), str(actual), ""


def _dtype(checked: CheckedRule) -> Verdict:
    actual, expected = checked.array().dtype, np.dtype(checked.rule.dtype)
    return actual == expected, str(expected), str(actual), ""


def _dims(checked: CheckedRule) -> Verdict:
    actual, expected = dimensions(checked.array()), tuple(checked.rule.dims)
    return actual == expected, str(expected), str(actual), ""


def _units(checked: CheckedRule) -> Verdict:
    actual = checked.array().attrs.get("units")
    return actual == checked.rule.units, checked.rule.units, str(actual), ""


def _attributes(checked: CheckedRule) -> Verdict:
    expected = dict(checked.rule.attributes)
    attrs = dict(checked.array().attrs)
    actual = {name: attrs.get(name) for name in expected}
    ok = all(name in attrs and (value is None or attrs[name] == value) for name, value in expected.items())
    return ok, str(expected), str(actual), ""


def _filled(checked: CheckedRule) -> Verdict:
    array = checked.array()
    grid = regular_grid(array)
    chunks = math.prod(-(-n // max(step, 1)) for n, step in zip(array.shape, grid, strict=True))
    stored = len(checked.session.chunk_table("/" + checked.rule.path.strip("/")))
    share = stored / chunks if chunks else 1.0
    return share >= checked.rule.share, f"{checked.rule.share:.1%} of chunks", f"{stored} of {chunks}", ""


def _monotonic(checked: CheckedRule) -> Verdict:
    rule, values = checked.rule, checked.coordinate()
    # Values are compared, not subtracted: differences of large integers are not exact, strings have none.
    lower, upper = (values[:-1], values[1:])[:: 1 if rule.increasing else -1]
    if values.dtype.kind in "cV":
        raise _unordered(values)
    good = np.asarray(lower < upper if rule.strictly else lower <= upper)
    words = f"{'strictly ' if rule.strictly else ''}{'increasing' if rule.increasing else 'decreasing'}"
    return _steps_verdict(values, good, words)


def _regular(checked: CheckedRule) -> Verdict:
    rule, values = checked.rule, checked.coordinate()
    steps = _steps(values)
    step = rule.step if rule.step is not None else float(steps[0]) if len(steps) else 0.0
    return _steps_verdict(values, np.abs(steps - step) <= rule.tolerance * abs(step), f"steps of {step:g}")


def _steps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return differences, exact for integers and times."""
    if values.dtype.kind not in "biufmM":
        raise _unordered(values)
    if values.dtype.kind in "biu" and len(values):
        values = values.astype(np.uint64) - values.min().astype(np.uint64)  # modulo 2**64
        values = values.view(np.int64)
    return np.asarray(np.diff(values.view(np.int64) if values.dtype.kind in "mM" else values), np.float64)


def _unordered(values: NDArray[Any]) -> InvalidInputError:
    return InvalidInputError(f"the type {values.dtype}", ErrorKind.INVALID_ARRAY_METADATA)


def _steps_verdict(values: NDArray[Any], good: NDArray[np.bool_], words: str) -> Verdict:
    if good.all():
        return True, words, f"{len(values)} values", ""
    at = int(np.argmin(good))
    return False, words, f"{values[at]} then {values[at + 1]}", f"index ({at + 1},)"


def _no_duplicates(checked: CheckedRule) -> Verdict:
    values = checked.coordinate()
    _, first, which, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    if (counts == 1).all():
        return True, "no duplicates", f"{len(values)} values", ""
    at = int(first[counts > 1].min())
    again = int(np.flatnonzero(which == which[at])[1])  # also for NaN
    return False, "no duplicates", f"{values[at]} at {at} and {again}", f"index ({again},)"


def _range(checked: CheckedRule) -> Verdict:
    rule = checked.rule
    summary, offence = checked.scanned()
    expected = f"{'' if rule.min is None else rule.min} to {'' if rule.max is None else rule.max}".strip()
    actual = f"{summary.least} to {summary.most}"
    if offence.count:
        actual = f"{offence.count} outside, {actual}; first {offence.value}"
    return not offence.count, expected, actual, checked.where(offence)


def _nan_share(checked: CheckedRule) -> Verdict:
    rule = checked.rule
    summary, offence = checked.scanned()
    share = summary.nan / summary.size if summary.size else 0.0
    ok = rule.min <= share <= rule.max
    expected = f"NaN at most {rule.max:.3%}" + (f", at least {rule.min:.3%}" if rule.min else "")
    return ok, expected, f"{share:.3%}", "" if ok else checked.where(offence)


def _finite(checked: CheckedRule) -> Verdict:
    _, offence = checked.scanned()
    expected = "finite values" + (" or NaN" if checked.rule.nan else "")
    return not offence.count, expected, f"{offence.count} others", checked.where(offence)


def _statistics(checked: CheckedRule) -> Verdict:
    rule = checked.rule
    summary, _ = checked.scanned()
    actual = f"mean {summary.mean:.6g}, std {summary.std:.6g}"
    if checked.other_result is None:
        return True, "nothing to compare with", actual, ""
    other = checked.other_result[0]
    deviations = []  # each with the largest that is allowed
    if rule.sigma is not None:
        deviations.append((abs(summary.mean - other.mean), rule.sigma * other.std))
    if rule.relative is not None:
        deviations.append((abs(summary.mean - other.mean), rule.relative * abs(other.mean)))
        deviations.append((abs(summary.std - other.std), rule.relative * other.std))
    limits = [] if rule.sigma is None else [f"{rule.sigma:g} sigma"]
    limits += [] if rule.relative is None else [f"{rule.relative:.1%}"]
    expected = f"mean {other.mean:.6g}, std {other.std:.6g} within {' and '.join(limits)}"
    # NaN in both versions is equal; NaN in only one is not.
    same = math.isnan(summary.mean) == math.isnan(other.mean)
    return same and not any(deviation > most for deviation, most in deviations), expected, actual, ""


#: The check of each kind of rule.
CHECKS: Final[Mapping[str, Callable[[CheckedRule], Verdict]]] = {
    "Exists": _exists,
    "Shape": _shape,
    "DType": _dtype,
    "Dims": _dims,
    "Units": _units,
    "Attributes": _attributes,
    "Filled": _filled,
    "Monotonic": _monotonic,
    "Regular": _regular,
    "NoDuplicates": _no_duplicates,
    "Range": _range,
    "NanShare": _nan_share,
    "Finite": _finite,
    "StatisticsAgainst": _statistics,
}
